//! Window functions: the windows of OVER and WINDOW, and the functions over them; [`frame`](super::frame) binds their frames.

use std::sync::Arc;

use datafusion::functions_aggregate::count::count_udaf;
use datafusion::functions_window::cume_dist::cume_dist_udwf;
use datafusion::functions_window::lead_lag::{lag_udwf, lead_udwf};
use datafusion::functions_window::nth_value::{first_value_udwf, last_value_udwf, nth_value_udwf};
use datafusion::functions_window::ntile::ntile_udwf;
use datafusion::functions_window::rank::{dense_rank_udwf, percent_rank_udwf, rank_udwf};
use datafusion::functions_window::row_number::row_number_udwf;
use datafusion::logical_expr::expr::{NullTreatment, WindowFunction, WindowFunctionParams};
use datafusion::logical_expr::utils::find_window_exprs;
use datafusion::logical_expr::{Case, Expr, WindowFunctionDefinition, WindowUDF, cast, lit};
use datafusion::scalar::ScalarValue;
use sqlparser::ast;

use super::call::{Aggregate, arguments};
use super::case::result_type;
use super::percentile::is_percentile;
use super::{Binder, Bound, ExpressionContext, Literal, Scope, unsupported};
use crate::error::{Result, SqlError};
use crate::functions::{self, sliding};
use crate::types::SqlType;

/// Most windows that build on one another.
const MAX_INHERITED: usize = 16;

impl Binder<'_> {
    /// Binds a window function.
    pub(super) fn window(
        &mut self,
        name: &str,
        call: &ast::Function,
        over: &ast::WindowType,
        scope: &mut Scope,
        place: ExpressionContext,
    ) -> Result<Bound> {
        if place == ExpressionContext::Row {
            return Err(SqlError::Semantic(format!("window function [{name}] cannot be used here")));
        }
        let spec = match over {
            ast::WindowType::NamedWindow(name) => named_window(name, &scope.windows, 0)?,
            ast::WindowType::WindowSpec(spec) => inherited(spec, &scope.windows, 0)?,
        };
        let shared = matches!(over, ast::WindowType::NamedWindow(_)) || spec.window_name.is_some();
        let mut partition_by = Vec::new();
        for expr in &spec.partition_by {
            let bound = self.expr(expr, scope, ExpressionContext::Aliased)?;
            self.repeat(&bound.expr, usize::from(shared))?;
            partition_by.push(bound.single().expr);
        }
        let (mut order_by, mut types) = (Vec::new(), Vec::new());
        for key in &spec.order_by {
            let (sort, ty) = self.typed_sort_key(key, scope)?;
            self.repeat(&sort.expr, usize::from(shared))?;
            order_by.push(sort);
            types.push(ty);
        }
        let window_frame = self.frame(spec.window_frame.as_ref(), &mut order_by, &types, scope)?;
        let params = WindowFunctionParams {
            args: Vec::new(),
            partition_by,
            order_by,
            window_frame,
            filter: None,
            null_treatment: null_treatment(name, call)?,
            distinct: false,
        };
        let bound = match Aggregate::new(name) {
            Some(aggregate) => self.aggregate_window(aggregate, call, params, scope)?,
            None if is_percentile(name) => self.percentile(call, Some(params), scope)?,
            None => self.value_window(name, call, params, scope)?,
        };
        let mut nested = false;
        for window in find_window_exprs([&bound.expr]) {
            let Expr::WindowFunction(window) = &window else { continue };
            let params = &window.params;
            let within = params.args.iter().chain(&params.partition_by);
            let within = within.chain(params.order_by.iter().map(|key| &key.expr));
            nested |= !find_window_exprs(within.chain(params.filter.as_deref())).is_empty();
        }
        if nested {
            return unsupported("a window function within another");
        }
        Ok(bound)
    }

    /// Binds an aggregate over a window.
    fn aggregate_window(
        &mut self,
        aggregate: Aggregate,
        call: &ast::Function,
        mut params: WindowFunctionParams,
        scope: &mut Scope,
    ) -> Result<Bound> {
        if let Some(filter) = &call.filter {
            let filter = self.expr(filter, scope, ExpressionContext::Output)?;
            params.filter = Some(Box::new(self.truth(filter)?.expr));
        }
        let (argument, distinct) = self.aggregated(call, scope, ExpressionContext::Output)?;
        let argument = argument.map(|argument| argument.single());
        // Equal values change neither end.
        let is_end = matches!(aggregate, Aggregate::Min | Aggregate::Max);
        let distinct = distinct && !is_end;
        let own = argument.as_ref().and_then(|argument| argument.shown);
        let wraps = argument.as_ref().is_some_and(|argument| aggregate.wraps(argument.ty));
        let counts_rows = argument.is_none();
        let (mut function, args, ty) = self.over(aggregate, call, argument, false)?;
        let slides = !params.window_frame.start_bound.is_unbounded();
        if distinct {
            let known = match aggregate {
                Aggregate::Count => !counts_rows,
                Aggregate::Sum => !slides,
                Aggregate::Avg => !slides && !ty.is_temporal(),
                _ => false,
            };
            if !known {
                return unsupported(format!("[{call}]: DISTINCT of this function in such a window"));
            }
        } else if slides && (ty == SqlType::Double || aggregate == Aggregate::Avg) && !is_end {
            function = sliding::sliding(function);
        }
        params.args = args;
        params.distinct = distinct;
        let make = |fun, params| Expr::from(WindowFunction { fun, params });
        let expr = make(WindowFunctionDefinition::AggregateUDF(function), params.clone());
        let expr = match aggregate {
            Aggregate::Std => {
                let count = make(WindowFunctionDefinition::AggregateUDF(count_udaf()), params);
                let when = vec![(Box::new(count.eq(lit(1i64))), Box::new(lit(0f64)))];
                Expr::Case(Case::new(None, when, Some(Box::new(expr))))
            }
            _ if wraps => functions::sum_as_integer(expr, ty),
            _ => expr,
        };
        if aggregate == Aggregate::Avg && ty.is_temporal() {
            let moment = functions::from_micros(expr, ty)?;
            return Ok(Bound { shown: own.filter(|_| matches!(ty, SqlType::Timestamp(_))), ..moment });
        }
        let shown = match aggregate {
            Aggregate::Count => Some("integer"),
            _ if matches!(ty, SqlType::Timestamp(_)) => own,
            _ => None,
        };
        Ok(Bound { shown, ..Bound::new(expr, ty) })
    }

    /// Binds a function that knows only windows.
    fn value_window(
        &mut self,
        name: &str,
        call: &ast::Function,
        mut params: WindowFunctionParams,
        scope: &mut Scope,
    ) -> Result<Bound> {
        let (function, fewest, most): (Arc<WindowUDF>, usize, usize) = match name {
            "row_number" => (row_number_udwf(), 0, 0),
            "rank" => (rank_udwf(), 0, 0),
            "dense_rank" => (dense_rank_udwf(), 0, 0),
            "percent_rank" => (percent_rank_udwf(), 0, 0),
            "cume_dist" => (cume_dist_udwf(), 0, 0),
            "ntile" => (ntile_udwf(), 1, 1),
            "first_value" => (first_value_udwf(), 1, 1),
            "last_value" => (last_value_udwf(), 1, 1),
            "nth_value" => (nth_value_udwf(), 2, 2),
            "lag" => (lag_udwf(), 1, 3),
            "lead" => (lead_udwf(), 1, 3),
            _ => return Err(SqlError::Semantic(format!("unsupported function name: {name}"))),
        };
        if call.filter.is_some() {
            return unsupported(format!("FILTER of [{name}]"));
        }
        let mut args = Vec::new();
        for arg in arguments(call)? {
            args.push(self.expr(arg, scope, ExpressionContext::Output)?.single());
        }
        if !(fewest..=most).contains(&args.len()) {
            return Err(SqlError::Semantic(format!(
                "[{name}] takes {fewest} to {most} arguments, but got {}",
                args.len()
            )));
        }
        let least = if matches!(name, "lag" | "lead") { i64::MIN } else { 1 };
        let integer =
            |binder: &mut Self, arg: &Bound| match binder.spelt_out(arg.clone(), Literal::Int(1)).literal {
                Some(Literal::Int(number)) if number >= least && number != i64::MIN => Ok(lit(number)),
                _ => Err(SqlError::Semantic(format!("[{name}] takes a literal integer, at least {least}"))),
            };
        let fun = WindowFunctionDefinition::WindowUDF(function);
        let make = |params| Expr::from(WindowFunction { fun, params });
        let bound = match args.as_slice() {
            [] if matches!(name, "percent_rank" | "cume_dist") => Bound::new(make(params), SqlType::Double),
            [] => Bound::new(cast(make(params), SqlType::Integer.arrow()), SqlType::Integer),
            [tiles] if name == "ntile" => {
                params.args = vec![integer(self, tiles)?];
                Bound::new(cast(make(params), SqlType::Integer.arrow()), SqlType::Integer)
            }
            [value, rest @ ..] => {
                let mut ty = value.ty;
                if let [_, default] = rest {
                    self.infer_alike(&[value.clone(), default.clone()]);
                    ty = result_type([value, default].into_iter())?;
                }
                params.args.push(value.to(ty)?);
                if let [offset, default @ ..] = rest {
                    let offset = integer(self, offset)?;
                    if params.null_treatment.is_some() && name.starts_with('l') {
                        // DataFusion answers wrong values at other distances, where it reads a partition in pieces.
                        if offset == lit(0i64) {
                            params.null_treatment = None;
                        } else if offset != lit(1i64) {
                            return unsupported(format!(
                                "IGNORE NULLS of [{name}] with another offset than 1"
                            ));
                        }
                    }
                    params.args.push(offset);
                    for default in default {
                        let default = literal_value(&default.to(ty)?).ok_or_else(|| {
                            SqlError::Unsupported(format!(
                                "the default of [{call}] is not supported: it has to be a literal of type {}",
                                ty.general_name()
                            ))
                        })?;
                        params.args.push(Expr::Literal(default, None));
                    }
                }
                let shown = value.shown.filter(|_| ty == value.ty);
                Bound { shown, ..Bound::new(make(params), ty) }
            }
        };
        Ok(bound)
    }
}

/// Returns the value of a literal, or of one that is cast.
fn literal_value(expr: &Expr) -> Option<ScalarValue> {
    match expr {
        Expr::Literal(value, _) => Some(value.clone()),
        Expr::Cast(cast) => literal_value(&cast.expr)?.cast_to(cast.field.data_type()).ok(),
        _ => None,
    }
}

/// Reads IGNORE NULLS and RESPECT NULLS, and refuses other clauses of arguments.
fn null_treatment(name: &str, call: &ast::Function) -> Result<Option<NullTreatment>> {
    let mut treatment = call.null_treatment;
    if let ast::FunctionArguments::List(list) = &call.args {
        for clause in &list.clauses {
            match clause {
                ast::FunctionArgumentClause::IgnoreOrRespectNulls(own) => treatment = Some(*own),
                other => return unsupported(format!("[{other}] in a window function")),
            }
        }
    }
    match treatment {
        Some(ast::NullTreatment::IgnoreNulls)
            if matches!(name, "lag" | "lead" | "first_value" | "last_value" | "nth_value") =>
        {
            Ok(Some(NullTreatment::IgnoreNulls))
        }
        Some(ast::NullTreatment::IgnoreNulls) => unsupported(format!("IGNORE NULLS of [{name}]")),
        Some(ast::NullTreatment::RespectNulls) | None => Ok(None),
    }
}

/// Finds a window of the clause WINDOW.
fn named_window(
    name: &ast::Ident,
    windows: &[ast::NamedWindowDefinition],
    depth: usize,
) -> Result<ast::WindowSpec> {
    if depth > MAX_INHERITED {
        return Err(SqlError::TooLarge(format!("more than {MAX_INHERITED} windows build on one another")));
    }
    let mut found = windows.iter().enumerate().filter(|(_, window)| window.0.value == name.value);
    let Some((at, ast::NamedWindowDefinition(_, window))) = found.next() else {
        return Err(SqlError::Semantic(format!("no window is named [{}] before its use", name.value)));
    };
    if found.next().is_some() {
        return Err(SqlError::Semantic(format!("two windows are named [{}]", name.value)));
    }
    let before = windows.get(..at).unwrap_or_default();
    match window {
        ast::NamedWindowExpr::NamedWindow(other) => named_window(other, before, depth + 1),
        ast::NamedWindowExpr::WindowSpec(spec) => inherited(spec, before, depth),
    }
}

/// Adds the clauses that a window inherits from the one that it names.
fn inherited(
    spec: &ast::WindowSpec,
    windows: &[ast::NamedWindowDefinition],
    depth: usize,
) -> Result<ast::WindowSpec> {
    let Some(name) = &spec.window_name else { return Ok(spec.clone()) };
    let base = named_window(name, windows, depth + 1)?;
    let refused = |what: &str| {
        Err(SqlError::Semantic(format!("{what} in a window that builds on window [{}]", name.value)))
    };
    if base.window_frame.is_some() {
        return Err(SqlError::Semantic(format!(
            "window [{}] has a frame, so none builds on it: use [OVER {}]",
            name.value, name.value
        )));
    }
    if !spec.partition_by.is_empty() {
        return refused("PARTITION BY is not allowed");
    }
    if !spec.order_by.is_empty() && !base.order_by.is_empty() {
        return refused("a second ORDER BY is not allowed");
    }
    let order_by = if spec.order_by.is_empty() { base.order_by } else { spec.order_by.clone() };
    Ok(ast::WindowSpec { partition_by: base.partition_by, order_by, ..spec.clone() })
}
