//! Calls: functions of the registry and aggregates; [`window`](super::window) binds those with OVER.

use std::sync::Arc;

use datafusion::functions_aggregate::average::avg_udaf;
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::functions_aggregate::min_max::{max_udaf, min_udaf};
use datafusion::functions_aggregate::stddev::{stddev_pop_udaf, stddev_udaf};
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::functions_aggregate::variance::{var_pop_udaf, var_samp_udaf};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{AggregateUDF, Case, Expr, SortExpr, lit};
use sqlparser::ast;

use super::case::result_type;
use super::collection::is_collection;
use super::condition::null_test;
use super::highlight::is_highlight;
use super::nested::{is_nested, is_reverse_nested};
use super::percentile::is_percentile;
use super::pipeline::type_name;
use super::{Binder, Bound, ExpressionContext, Scope, literal, unsupported};
use crate::bind::Literal;
use crate::error::{Result, SqlError};
use crate::functions::{self, time, values};
use crate::types::SqlType;

/// An aggregate function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aggregate {
    Count,
    Sum,
    Avg,
    Min,
    Max,
    VarPop,
    VarSamp,
    StdPop,
    StdSamp,
    /// The sample's deviation, with 0 for one row.
    Std,
}

impl Aggregate {
    pub(super) fn new(name: &str) -> Option<Self> {
        Some(match name {
            "count" => Self::Count,
            "sum" => Self::Sum,
            "avg" => Self::Avg,
            "min" => Self::Min,
            "max" => Self::Max,
            "var_pop" | "variance" => Self::VarPop,
            "var_samp" => Self::VarSamp,
            "stddev_pop" => Self::StdPop,
            "stddev_samp" => Self::StdSamp,
            "std" | "stddev" => Self::Std,
            _ => return None,
        })
    }

    fn udaf(self) -> Arc<AggregateUDF> {
        match self {
            Self::Count => count_udaf(),
            Self::Sum => sum_udaf(),
            Self::Avg => avg_udaf(),
            Self::Min => min_udaf(),
            Self::Max => max_udaf(),
            Self::VarPop => var_pop_udaf(),
            Self::VarSamp => var_samp_udaf(),
            Self::StdPop => stddev_pop_udaf(),
            Self::StdSamp | Self::Std => stddev_udaf(),
        }
    }

    /// Returns whether the sum of integers of a type may be none of 64 bits. That of smaller ones would take billions of them.
    pub(super) fn wraps(self, of: SqlType) -> bool {
        self == Self::Sum && matches!(of, SqlType::Long | SqlType::UnsignedLong)
    }

    /// The type in which values are aggregated, and that of the result.
    fn types(self, of: SqlType) -> Option<(SqlType, SqlType)> {
        use SqlType::{Double, Float, Long, Undefined, UnsignedLong};
        Some(match self {
            Self::Count => (of, Long),
            Self::Min | Self::Max if of.is_json() => return None,
            Self::Min | Self::Max => (of, of),
            Self::Sum if of == UnsignedLong => (UnsignedLong, UnsignedLong),
            Self::Sum if of.is_integer() => (Long, Long),
            Self::Sum if matches!(of, Double | Float | Undefined) => (Double, Double),
            _ if of.is_number() || of == Undefined => (Double, Double),
            // The middle of moments.
            Self::Avg if of.is_temporal() => (Double, of),
            _ => return None,
        })
    }
}

/// Returns whether a function of a name aggregates.
pub(crate) fn names_aggregate(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    Aggregate::new(&name).is_some()
        || is_percentile(&name)
        || matches!(name.as_str(), "tophits" | "stats" | "extended_stats" | "percentiles")
}

/// The name of a called function, in lower case.
pub(super) fn called(call: &ast::Function) -> String {
    call.name.to_string().trim_matches('`').to_ascii_lowercase()
}

/// The arguments of a call that takes expressions.
pub(super) fn arguments(call: &ast::Function) -> Result<Vec<&ast::Expr>> {
    match &call.args {
        ast::FunctionArguments::None => Ok(Vec::new()),
        ast::FunctionArguments::Subquery(_) => unsupported("a subquery as an argument"),
        ast::FunctionArguments::List(list) => list
            .args
            .iter()
            .map(|arg| match arg {
                ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) => Ok(expr),
                other => Err(SqlError::Syntax(format!("[{other}] is no argument of [{}]", call.name))),
            })
            .collect(),
    }
}

impl Binder<'_> {
    /// Binds a call.
    pub(super) fn function(
        &mut self,
        call: &ast::Function,
        scope: &mut Scope,
        place: ExpressionContext,
    ) -> Result<Bound> {
        let name = called(call);
        if let Some(bound) = self.relevance(&name, call, scope)? {
            return Ok(bound);
        }
        if let Some(bound) = self.point_condition(&name, call, scope)? {
            return Ok(bound);
        }
        if let Some(bound) = self.search_aggregation(&name, call, scope, place)? {
            return Ok(bound);
        }
        if is_nested(&name) {
            return self.nested(call, scope, place);
        }
        if is_reverse_nested(&name) {
            return self.reverse_nested(call, scope);
        }
        if is_highlight(&name) {
            return self.highlight(call, scope, place);
        }
        if let Some(over) = &call.over {
            return self.window(&name, call, over, scope, place);
        }
        if let Some(aggregate) = Aggregate::new(&name) {
            if place == ExpressionContext::Row {
                return Err(SqlError::Semantic(format!("aggregate function [{name}] cannot be used here")));
            }
            return self.aggregate(aggregate, call, scope);
        }
        if is_collection(&name) && place != ExpressionContext::Row {
            return self.collection(&name, call, scope);
        }
        if is_percentile(&name) && place != ExpressionContext::Row {
            return self.percentile(call, None, scope);
        }
        if name == "grouping" && place != ExpressionContext::Row {
            return self.grouping_function(call, scope);
        }
        if let Some(bound) = self.lambda_call(&name, call, scope, place)? {
            return Ok(bound);
        }
        let exprs = arguments(call)?;
        let args = match (name.as_str(), exprs.as_slice()) {
            // The first argument is a word of the language.
            ("timestampadd" | "timestampdiff" | "get_format" | "extract", [first, rest @ ..]) => {
                let word = match first {
                    ast::Expr::Identifier(ident) => ident.value.clone(),
                    ast::Expr::Value(value) => value.to_string().trim_matches(['\'', '"']).to_owned(),
                    other => other.to_string(),
                };
                let mut args = vec![literal::bound(Literal::Str(word))];
                for arg in rest {
                    args.push(self.expr(arg, scope, place)?);
                }
                args
            }
            _ => exprs.iter().map(|arg| self.expr(arg, scope, place)).collect::<Result<Vec<_>>>()?,
        };
        let args = if name == "coalesce" { self.alike(args)? } else { self.dated(&name, args) };
        if matches!(name.as_str(), "ifnull" | "nullif" | "coalesce") {
            for arg in &args {
                self.repeat(&arg.expr, 1)?;
            }
        }
        match (name.as_str(), args.as_slice()) {
            ("if", [_, results @ ..]) => self.infer_alike(results),
            ("ifnull" | "nullif" | "coalesce", all) => self.infer_alike(all),
            _ => {}
        }
        match (name.as_str(), args.as_slice()) {
            ("isnull", [value]) => Ok(null_test(value, scope, true)),
            ("if", [condition, one, other]) => {
                let condition = self.truth(condition.clone())?;
                conditional(vec![(condition, one.clone())], Some(other.clone()))
            }
            ("ifnull", [one, other]) => {
                let missing = null_test(one, scope, true);
                conditional(vec![(missing, other.clone())], Some(one.clone()))
            }
            ("nullif", [one, other]) => {
                let same =
                    super::comparison::compare(one, datafusion::logical_expr::Operator::Eq, other, scope)?;
                let bound = conditional(vec![(same, literal::bound(Literal::Null))], Some(one.clone()))?;
                // A text that was compared is a string.
                let ty = if bound.ty == SqlType::Text { SqlType::Keyword } else { bound.ty };
                Ok(Bound { ty, ..bound })
            }
            ("coalesce", [_, ..]) => {
                let mut branches = Vec::new();
                for value in &args {
                    branches.push((null_test(value, scope, false), value.clone()));
                }
                conditional(branches, None)
            }
            // It is a literal, which keeps its nanoseconds and meets fields as such.
            ("timestamp" | "datetime", [Bound { literal: Some(Literal::Str(text)), .. }])
                if time::instant(text).is_some() =>
            {
                let bound = literal::bound(Literal::Timestamp(time::instant(text).unwrap_or_default()));
                Ok(Bound { shown: (name == "datetime").then_some("datetime"), ..bound })
            }
            ("conv", [_, from, to]) if self.is_pipeline => {
                for base in [from, to] {
                    if let Some(Literal::Int(number)) = base.literal
                        && !(2..=36).contains(&number)
                    {
                        return Err(SqlError::Semantic(format!(
                            "radix {number} less than Character.MIN_RADIX or greater than Character.MAX_RADIX: a base is from 2 to 36"
                        )));
                    }
                }
                self.call(&name, &args)
            }
            ("typeof", [value]) if self.is_pipeline => {
                Ok(literal::bound(Literal::Str(type_name(value.ty).to_owned())))
            }
            // Integers stay what they are.
            ("ceil" | "ceiling" | "floor" | "round" | "truncate", [value, ..])
                if self.is_pipeline && value.ty.is_integer() && value.ty.arrow().is_signed_integer() =>
            {
                let bound = self.call(&name, &args)?;
                Ok(Bound::new(datafusion::logical_expr::cast(bound.expr, value.ty.arrow()), value.ty))
            }
            ("typeof", [value]) => Ok(literal::bound(Literal::Str(value.ty.general_name().to_owned()))),
            ("add", [one, other]) => self.binary(one, &ast::BinaryOperator::Plus, other, scope),
            ("subtract", [one, other]) => self.binary(one, &ast::BinaryOperator::Minus, other, scope),
            ("multiply", [one, other]) => self.binary(one, &ast::BinaryOperator::Multiply, other, scope),
            ("divide", [one, other]) => self.binary(one, &ast::BinaryOperator::Divide, other, scope),
            ("mod" | "modulus", [one, other]) => self.binary(one, &ast::BinaryOperator::Modulo, other, scope),
            ("brain_pattern" | "brain_numbered" | "brain_tokens", _) if self.is_pipeline => {
                match self.brain_call(&name, &args)? {
                    Some(bound) => Ok(bound),
                    None => self.call(&name, &args),
                }
            }
            ("json_list" | "row_object", _) => match self.json_call(&name, &args)? {
                Some(bound) => Ok(bound),
                None => self.call(&name, &args),
            },
            _ => match self.array_call(&name, &args)? {
                Some(bound) => Ok(bound),
                None => self.call(&name, &self.first_values(&name, args.clone())),
            },
        }
    }

    /// Binds an aggregate.
    fn aggregate(&mut self, aggregate: Aggregate, call: &ast::Function, scope: &mut Scope) -> Result<Bound> {
        let filter = match &call.filter {
            None => None,
            Some(filter) => {
                let filter = self.expr(filter, scope, ExpressionContext::Row)?;
                if self.is_pipeline && filter.ty != SqlType::Boolean {
                    return Err(SqlError::Semantic(format!(
                        "Condition expected a boolean type, but got {}",
                        type_name(filter.ty)
                    )));
                }
                Some(Box::new(self.truth(filter)?.expr))
            }
        };
        let (argument, distinct) = self.aggregated(call, scope, ExpressionContext::Row)?;
        if aggregate == Aggregate::Count
            && argument.as_ref().is_none_or(|argument| argument.literal.is_some())
            && let Some(identity) = self.reversed_identity(scope)?
        {
            // A document is counted once, however many of its elements are in a group.
            let count = AggregateFunction::new_udf(
                functions::distinct::count(),
                vec![identity],
                true,
                filter,
                Vec::new(),
                None,
            );
            let count = Bound::new(Expr::AggregateFunction(count), SqlType::Long);
            return Ok(Bound { shown: Some("integer"), ..count });
        }
        let list = argument.as_ref().is_some_and(|argument| argument.list);
        let counter = match list {
            true => values::over(count_udaf(), SqlType::Double.arrow(), distinct),
            false if distinct => functions::distinct::count(),
            false => count_udaf(),
        };
        let shown = argument.as_ref().and_then(|argument| argument.shown);
        let wraps = argument.as_ref().is_some_and(|argument| aggregate.wraps(argument.ty));
        let (function, args, ty) = self.over(aggregate, call, argument, distinct)?;
        let distinct = distinct && !list;
        let make = |function: Arc<AggregateUDF>, args: Vec<Expr>| {
            Expr::AggregateFunction(AggregateFunction::new_udf(
                function,
                args,
                distinct,
                filter.clone(),
                Vec::new(),
                None,
            ))
        };
        let expr = make(function, args.clone());
        let expr = match aggregate {
            Aggregate::Std => {
                let one = make(counter, args).eq(lit(1i64));
                Expr::Case(Case::new(None, vec![(Box::new(one), Box::new(lit(0f64)))], Some(Box::new(expr))))
            }
            _ if wraps => functions::sum_as_integer(expr, ty),
            _ => expr,
        };
        let mut bound = Bound::new(expr, ty);
        if aggregate == Aggregate::Count {
            bound.shown = Some("integer");
        }
        if aggregate == Aggregate::Avg && ty.is_temporal() {
            bound = functions::from_micros(bound.expr, ty)?;
        }
        if matches!(ty, SqlType::Timestamp(_)) {
            bound.shown = shown;
        }
        Ok(bound)
    }

    /// Binds the argument of an aggregate; `None` where it counts rows.
    pub(super) fn aggregated(
        &mut self,
        call: &ast::Function,
        scope: &mut Scope,
        place: ExpressionContext,
    ) -> Result<(Option<Bound>, bool)> {
        let ast::FunctionArguments::List(list) = &call.args else {
            return Err(SqlError::Syntax(format!("[{}] needs an argument", call.name)));
        };
        let distinct = matches!(list.duplicate_treatment, Some(ast::DuplicateTreatment::Distinct));
        let [argument] = list.args.as_slice() else {
            return Err(SqlError::Semantic(format!("[{}] takes one argument", call.name)));
        };
        match argument {
            ast::FunctionArg::Unnamed(
                ast::FunctionArgExpr::Wildcard | ast::FunctionArgExpr::QualifiedWildcard(_),
            ) => Ok((None, distinct)),
            ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) => {
                let repeats = matches!(expr, ast::Expr::Function(inner) if is_reverse_nested(&called(inner)));
                if repeats && !distinct && !matches!(called(call).as_str(), "min" | "max") {
                    return unsupported(format!(
                        "[{call}], which would count a document for each of its elements,"
                    ));
                }
                let argument = self.expr(expr, scope, place)?;
                let argument = self.aggregated_number(Aggregate::new(&called(call)), argument)?;
                Ok((Some(argument), distinct))
            }
            other => Err(SqlError::Syntax(format!("[{other}] is no argument of [{}]", call.name))),
        }
    }

    /// Returns the function, its arguments and the type of an aggregate.
    pub(super) fn over(
        &self,
        aggregate: Aggregate,
        call: &ast::Function,
        argument: Option<Bound>,
        distinct: bool,
    ) -> Result<(Arc<AggregateUDF>, Vec<Expr>, SqlType)> {
        let udaf = match aggregate {
            Aggregate::Count if distinct => functions::distinct::count(),
            other => other.udaf(),
        };
        let Some(argument) = argument.filter(|argument| {
            aggregate != Aggregate::Count
                || !matches!(argument.literal, Some(ref literal) if *literal != Literal::Null)
        }) else {
            return match aggregate {
                Aggregate::Count => Ok((udaf, vec![lit(1i64)], SqlType::Long)),
                _ => Err(SqlError::Semantic(format!("[{}] cannot aggregate [*]", call.name))),
            };
        };
        let (of, ty) = aggregate.types(argument.ty).ok_or_else(|| {
            SqlError::Semantic(format!(
                "{} function expected {{[BYTE],[SHORT],[INTEGER],[LONG],[FLOAT],[DOUBLE]}}, but get [{}]",
                called(call),
                argument.ty.general_name()
            ))
        })?;
        if argument.ty.is_temporal() && aggregate == Aggregate::Avg {
            return Ok((udaf, vec![functions::to_micros(&argument)?], ty));
        }
        let list = argument.list;
        let values = if list { values::list_of(&argument, of)? } else { argument.to(of)? };
        let (values, of) = match aggregate.wraps(argument.ty) {
            true => functions::summed(values, list),
            false => (values, of.arrow()),
        };
        Ok((if list { values::over(udaf, of, distinct) } else { udaf }, vec![values], ty))
    }

    /// Binds a key of ORDER BY: nulls come last unless asked for, and `x IS [NOT] NULL` is where they come.
    pub(super) fn sort_key(&mut self, key: &ast::OrderByExpr, scope: &mut Scope) -> Result<SortExpr> {
        Ok(self.typed_sort_key(key, scope)?.0)
    }

    /// Binds a key of ORDER BY, with its type.
    pub(super) fn typed_sort_key(
        &mut self,
        key: &ast::OrderByExpr,
        scope: &mut Scope,
    ) -> Result<(SortExpr, SqlType)> {
        let ascending = key.options.asc.unwrap_or(true);
        let (expr, nulls_first) = match &key.expr {
            ast::Expr::IsNotNull(inner) => (inner.as_ref(), Some(true)),
            ast::Expr::IsNull(inner) => (inner.as_ref(), Some(false)),
            other => (other, key.options.nulls_first),
        };
        let bound = self.expr(expr, scope, ExpressionContext::Aliased)?;
        let expr = match bound.list {
            true if !ascending => values::greatest(bound.expr, bound.ty),
            true => values::least(bound.expr, bound.ty),
            false => bound.expr,
        };
        Ok((SortExpr::new(expr, ascending, nulls_first.unwrap_or(false)), bound.ty))
    }
}

/// Makes the choice of the first branch whose condition holds.
fn conditional(branches: Vec<(Bound, Bound)>, last: Option<Bound>) -> Result<Bound> {
    let ty = result_type(branches.iter().map(|(_, value)| value).chain(&last))?;
    let mut when_then = Vec::with_capacity(branches.len());
    for (condition, value) in &branches {
        when_then.push((Box::new(condition.expr.clone()), Box::new(value.to(ty)?)));
    }
    let last = last.map(|last| last.to(ty)).transpose()?.map(Box::new);
    // A computed string has no analyzer.
    let ty = if ty == SqlType::Text { SqlType::Keyword } else { ty };
    Ok(Bound::new(Expr::Case(Case::new(None, when_then, last)), ty))
}
