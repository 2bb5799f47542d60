//! `stats(x)`, `extended_stats(x)` and `percentiles(x, p, …)`: several aggregates of one value, as an object.

use sqlparser::ast;

use super::call::arguments;
use super::{Binder, Bound, ExpressionContext, Literal, Scope, unsupported};
use crate::error::{Result, SqlError};
use crate::functions::objects::object;
use crate::types::SqlType;

/// Most percentages of one call.
const MAX_PERCENTAGES: usize = 100;
/// Percentages where a call names none.
const PERCENTAGES: [f64; 7] = [1.0, 5.0, 25.0, 50.0, 75.0, 95.0, 99.0];

/// Members of `stats`, and the aggregates that they are.
const STATS: [(&str, &str); 5] =
    [("count", "count"), ("min", "min"), ("max", "max"), ("avg", "avg"), ("sum", "sum")];
/// Members that `extended_stats` has beside these and the sum of squares.
const EXTENDED: [(&str, &str); 2] = [("variance", "var_pop"), ("std_deviation", "stddev_pop")];

/// Returns true for the names of these functions.
pub(super) fn is_statistics(name: &str) -> bool {
    matches!(name, "stats" | "extended_stats" | "percentiles")
}

/// Makes a call of another function, with other arguments and what else the call has.
fn call_of(call: &ast::Function, name: &str, args: Vec<ast::Expr>) -> ast::Function {
    let mut call = call.clone();
    call.name = ast::ObjectName::from(vec![ast::Ident::new(name)]);
    if let ast::FunctionArguments::List(list) = &mut call.args {
        let unnamed = |expr| ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr));
        list.args = args.into_iter().map(unnamed).collect();
    }
    call
}

impl Binder<'_> {
    /// Binds a call of one of these functions.
    pub(super) fn statistics(
        &mut self,
        name: &str,
        call: &ast::Function,
        scope: &mut Scope,
    ) -> Result<Bound> {
        if call.over.is_some() {
            return unsupported(format!("[{call}] over a window"));
        }
        let args: Vec<ast::Expr> = arguments(call)?.into_iter().cloned().collect();
        let usage = || SqlError::Semantic(format!("[{call}] needs a value"));
        let (value, rest) = args.split_first().ok_or_else(usage)?;
        let members = match name {
            "percentiles" => self.percentages(call, value, rest, scope)?,
            _ if !rest.is_empty() => {
                return Err(SqlError::Semantic(format!("[{call}] takes one argument")));
            }
            _ => self.moments(name == "extended_stats", call, value, scope)?,
        };
        Ok(Bound::new(object(members), SqlType::Object))
    }

    fn percentages(
        &mut self,
        call: &ast::Function,
        value: &ast::Expr,
        given: &[ast::Expr],
        scope: &mut Scope,
    ) -> Result<Vec<(String, datafusion::logical_expr::Expr)>> {
        if given.len() > MAX_PERCENTAGES {
            return Err(SqlError::TooLarge(format!(
                "[percentiles] takes at most {MAX_PERCENTAGES} percentages, but got {}",
                given.len()
            )));
        }
        let mut percentages = Vec::with_capacity(given.len());
        for percentage in given {
            let bound = self.expr(percentage, scope, ExpressionContext::Row)?;
            match self.spelt_out(bound, Literal::Int(50)).literal {
                Some(Literal::Int(number)) => percentages.push(number as f64),
                Some(Literal::Float(number)) => percentages.push(number),
                _ => {
                    return Err(SqlError::Semantic(format!("[{call}] takes literal percentages")));
                }
            }
        }
        if percentages.is_empty() {
            percentages.extend(PERCENTAGES);
        }
        let mut members = Vec::with_capacity(percentages.len());
        for percentage in percentages {
            let number = ast::Value::Number(percentage.to_string(), false);
            let args = vec![value.clone(), ast::Expr::Value(number.into())];
            let bound = self.percentile(&call_of(call, "percentile", args), None, scope)?;
            members.push((format!("{percentage:?}"), bound.to(SqlType::Double)?));
        }
        Ok(members)
    }

    fn moments(
        &mut self,
        extended: bool,
        call: &ast::Function,
        value: &ast::Expr,
        scope: &mut Scope,
    ) -> Result<Vec<(String, datafusion::logical_expr::Expr)>> {
        let square = || ast::Expr::BinaryOp {
            left: Box::new(value.clone()),
            op: ast::BinaryOperator::Multiply,
            right: Box::new(value.clone()),
        };
        let of_value = |(member, name): &(&'static str, &'static str)| (*member, *name, value.clone());
        let mut parts: Vec<(&str, &str, ast::Expr)> = STATS.iter().map(of_value).collect();
        if extended {
            parts.push(("sum_of_squares", "sum", square()));
            parts.extend(EXTENDED.iter().map(of_value));
        }
        let mut members = Vec::with_capacity(parts.len());
        for (member, name, value) in parts {
            let bound = self.function(&call_of(call, name, vec![value]), scope, ExpressionContext::Output)?;
            if !bound.ty.is_number() && bound.ty != SqlType::Undefined {
                return Err(SqlError::Semantic(format!(
                    "[{call}] takes numbers, but got {}",
                    bound.ty.general_name()
                )));
            }
            let ty = if name == "count" { SqlType::Long } else { SqlType::Double };
            members.push((member.to_owned(), bound.to(ty)?));
        }
        Ok(members)
    }
}
