//! Aggregates that keep values: `first`, `last`, `earliest`, `latest`, `take`, `list` and `values`.

use datafusion::functions_aggregate::array_agg::array_agg_udaf;
use datafusion::functions_aggregate::first_last::{first_value_udaf, last_value_udaf};
use datafusion::logical_expr::expr::{AggregateFunction, NullTreatment};
use datafusion::logical_expr::{Expr, SortExpr};
use sqlparser::ast;

use super::call::arguments;
use super::{Binder, Bound, ExpressionContext, Literal, Scope, unsupported};
use crate::error::{Result, SqlError};
use crate::functions::{self, lists};
use crate::types::SqlType;

/// Most values of `list`.
const MAX_LISTED: usize = 100;
/// Values of `take` where the call does not say how many.
const TAKEN: usize = 10;
/// Column of the time that `earliest` and `latest` compare where the call names none.
const TIME: &str = "@timestamp";

/// Returns true for the names of the functions.
pub(super) fn is_collection(name: &str) -> bool {
    matches!(name, "first" | "last" | "earliest" | "latest" | "take" | "list" | "values")
}

impl Binder<'_> {
    /// Binds an aggregate that keeps values.
    pub(super) fn collection(
        &mut self,
        name: &str,
        call: &ast::Function,
        scope: &mut Scope,
    ) -> Result<Bound> {
        let exprs = arguments(call)?;
        let (value, rest) = match exprs.as_slice() {
            [value, rest @ ..] if rest.len() < 2 => (*value, rest.first().copied()),
            _ => {
                return Err(SqlError::Semantic(format!(
                    "[{call}] takes a value and at most one argument more"
                )));
            }
        };
        let value = self.expr(value, scope, ExpressionContext::Row)?.single();
        if value.ty == SqlType::Undefined {
            return unsupported(format!("[{call}] of NULL"));
        }
        let filter = match &call.filter {
            None => None,
            Some(filter) => {
                let filter = self.expr(filter, scope, ExpressionContext::Row)?;
                Some(self.truth(filter)?.expr)
            }
        };
        let aggregate = |function, args, distinct, order: Vec<SortExpr>, nulls, filter: Option<Expr>| {
            let filter = filter.map(Box::new);
            Expr::AggregateFunction(AggregateFunction::new_udf(
                function, args, distinct, filter, order, nulls,
            ))
        };
        let ignored = Some(NullTreatment::IgnoreNulls);
        let mut rows = Vec::new();
        if let ast::FunctionArguments::List(list) = &call.args {
            for clause in &list.clauses {
                let ast::FunctionArgumentClause::OrderBy(keys) = clause else {
                    return unsupported(format!("[{clause}] in [{call}]"));
                };
                for key in keys {
                    let bound = self.expr(&key.expr, scope, ExpressionContext::Row)?.single();
                    let ascending = key.options.asc.unwrap_or(true);
                    rows.push(SortExpr::new(bound.expr, ascending, key.options.nulls_first.unwrap_or(false)));
                }
            }
        }
        match name {
            "first" | "last" => {
                let function = if name == "first" { first_value_udaf() } else { last_value_udaf() };
                let expr = aggregate(function, vec![value.expr.clone()], false, rows, ignored, filter);
                Ok(Bound { shown: value.shown, ..Bound::new(expr, value.ty) })
            }
            "earliest" | "latest" => {
                let time = match rest {
                    Some(time) => self.expr(time, scope, ExpressionContext::Row)?,
                    None => {
                        let time = ast::Expr::Identifier(ast::Ident::with_quote('`', TIME));
                        self.expr(&time, scope, ExpressionContext::Row)?
                    }
                };
                let order = vec![SortExpr::new(time.single().expr, name == "earliest", false)];
                let expr =
                    aggregate(first_value_udaf(), vec![value.expr.clone()], false, order, None, filter);
                Ok(Bound { shown: value.shown, ..Bound::new(expr, value.ty) })
            }
            _ => {
                let most = match rest {
                    None if name == "take" => TAKEN,
                    None => MAX_LISTED,
                    Some(count) => {
                        let count = self.expr(count, scope, ExpressionContext::Row)?;
                        match self.spelt_out(count, Literal::Int(1)).literal {
                            Some(Literal::Int(count)) => usize::try_from(count).unwrap_or(0),
                            _ => {
                                return Err(SqlError::Semantic(format!(
                                    "[{call}] takes a literal number of values"
                                )));
                            }
                        }
                    }
                };
                let (ty, expr) = match name {
                    "take" => (value.ty, value.expr.clone()),
                    _ => (SqlType::Keyword, functions::cast(&value, SqlType::Keyword)?),
                };
                let is_set = name == "values";
                let order = if is_set { vec![SortExpr::new(expr.clone(), true, false)] } else { rows };
                let present = expr.clone().is_not_null();
                let filter = Some(filter.map_or(present.clone(), |filter| filter.and(present)));
                let most = if is_set && rest.is_none() { usize::MAX } else { most };
                let collected = aggregate(array_agg_udaf(), vec![expr], is_set, order, None, filter);
                Ok(Bound::new(lists::as_json(collected, ty, most), SqlType::Array))
            }
        }
    }
}
