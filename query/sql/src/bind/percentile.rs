//! `percentile(value, percent)`: the value that so many of a hundred values are below, between two of them where none is it.

use datafusion::functions_aggregate::array_agg::array_agg_udaf;
use datafusion::functions_aggregate::percentile_cont::percentile_cont_udaf;
use datafusion::logical_expr::expr::{AggregateFunction, WindowFunction, WindowFunctionParams};
use datafusion::logical_expr::{Expr, WindowFunctionDefinition, cast, lit};
use sqlparser::ast;

use super::call::arguments;
use super::{Binder, Bound, ExpressionContext, Literal, Scope, unsupported};
use crate::error::{Result, SqlError};
use crate::functions::lists;
use crate::types::SqlType;

/// Returns true for the names of the function.
pub(super) fn is_percentile(name: &str) -> bool {
    matches!(name, "percentile" | "percentile_approx")
}

impl Binder<'_> {
    /// Binds a percentile, over groups or over a window.
    pub(super) fn percentile(
        &mut self,
        call: &ast::Function,
        window: Option<WindowFunctionParams>,
        scope: &mut Scope,
    ) -> Result<Bound> {
        let place = if window.is_some() { ExpressionContext::Output } else { ExpressionContext::Row };
        if matches!(&call.args, ast::FunctionArguments::List(list) if list.duplicate_treatment.is_some()) {
            return unsupported(format!("DISTINCT in [{call}]"));
        }
        // The third argument tunes an approximation, and this one is exact.
        let exprs = arguments(call)?;
        let ([value, percent] | [value, percent, _]) = exprs.as_slice() else {
            return Err(SqlError::Semantic(format!("[{call}] needs a value and a percentage")));
        };
        let value = self.expr(value, scope, place)?;
        if value.list {
            return unsupported(format!("[{call}] of a field of several values"));
        }
        if !value.ty.is_number() && value.ty != SqlType::Undefined {
            return Err(SqlError::Semantic(format!(
                "[{call}] takes numbers, but got {}",
                value.ty.general_name()
            )));
        }
        let percent = self.expr(percent, scope, place)?;
        let fraction = match self.spelt_out(percent, Literal::Int(50)).literal {
            Some(Literal::Int(percent)) if (0..=100).contains(&percent) => percent as f64 / 100.0,
            Some(Literal::Float(percent)) if (0.0..=100.0).contains(&percent) => percent / 100.0,
            _ => {
                return Err(SqlError::Semantic(format!("[{call}] takes a literal percentage from 0 to 100")));
            }
        };
        let filter = match &call.filter {
            None => None,
            Some(filter) => {
                let filter = self.expr(filter, scope, place)?;
                Some(Box::new(self.truth(filter)?.expr))
            }
        };
        let ty = if value.ty == SqlType::Undefined { SqlType::Double } else { value.ty };
        if self.is_pipeline && window.is_none() {
            return pipeline_percentile(&value, ty, fraction, filter);
        }
        let (function, args) = (percentile_cont_udaf(), vec![value.to(SqlType::Double)?, lit(fraction)]);
        let expr = match window {
            None => Expr::AggregateFunction(AggregateFunction::new_udf(
                function,
                args,
                false,
                filter,
                Vec::new(),
                None,
            )),
            Some(params) => {
                let frame = &params.window_frame;
                if !frame.start_bound.is_unbounded() || !frame.end_bound.is_unbounded() {
                    return unsupported(format!("[{call}], which is not over its whole partition,"));
                }
                let params = WindowFunctionParams { args, filter, ..params };
                let fun = WindowFunctionDefinition::AggregateUDF(function);
                Expr::from(WindowFunction { fun, params })
            }
        };
        Ok(Bound::new(if ty == SqlType::Double { expr } else { cast(expr, ty.arrow()) }, ty))
    }
}

/// Binds the percentile of a pipeline, which is one of the values: the first that so many of a hundred are below.
fn pipeline_percentile(
    value: &Bound,
    ty: SqlType,
    fraction: f64,
    filter: Option<Box<Expr>>,
) -> Result<Bound> {
    let value = value.to(ty)?;
    let present = value.clone().is_not_null();
    let filter = Box::new(match filter {
        Some(filter) => filter.and(present),
        None => present,
    });
    // The aggregate collects without an order, since an ordered one compares each value with all before it.
    let collected =
        AggregateFunction::new_udf(array_agg_udaf(), vec![value], false, Some(filter), Vec::new(), None);
    Ok(Bound::new(lists::at_fraction(Expr::AggregateFunction(collected), ty, fraction), ty))
}
