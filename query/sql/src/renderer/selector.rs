//! HAVING as `bucket_selector`: a condition on the values of a bucket.

use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use datafusion::scalar::ScalarValue;
use serde_json::{Map, Value, json};

use super::flat_select::GroupMember;
use super::{RenderResult, unwrapped};

/// Writes conditions that all hold. `path` names the value that an aggregate is in a bucket, for variables and paths.
pub(super) fn selector(
    conditions: &[Expr],
    mut path: impl FnMut(usize) -> RenderResult<(String, String)>,
) -> RenderResult<Value> {
    let mut paths = Map::new();
    let mut parts = Vec::with_capacity(conditions.len());
    for condition in conditions {
        parts.push(source(condition, &mut |metric| {
            let (variable, path) = path(metric)?;
            paths.insert(variable.clone(), json!(path));
            Ok(variable)
        })?);
    }
    let script = json!({"source": parts.join(" && "), "lang": "painless"});
    Ok(json!({"bucket_selector": {"buckets_path": paths, "script": script, "gap_policy": "skip"}}))
}

fn source(expr: &Expr, variable: &mut impl FnMut(usize) -> RenderResult<String>) -> RenderResult<String> {
    let unknown = || "this condition on groups".into();
    match unwrapped(expr) {
        Expr::Literal(value, _) => number(value).ok_or_else(unknown),
        Expr::Not(inner) => Ok(format!("!({})", source(inner, variable)?)),
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let operator = match op {
                Operator::And => "&&",
                Operator::Or => "||",
                Operator::Eq => "==",
                Operator::NotEq => "!=",
                Operator::Lt => "<",
                Operator::LtEq => "<=",
                Operator::Gt => ">",
                Operator::GtEq => ">=",
                Operator::Plus => "+",
                Operator::Minus => "-",
                Operator::Multiply => "*",
                _ => return Err(unknown()),
            };
            Ok(format!("({} {operator} {})", source(left, variable)?, source(right, variable)?))
        }
        own @ Expr::Column(_) => match GroupMember::new(own) {
            Some(GroupMember::Metric(at)) => Ok(format!("params.{}", variable(at)?)),
            _ => Err("a condition on a key of groups".into()),
        },
        Expr::ScalarFunction(call) => {
            let operator = match call.func.name() {
                "add" => "+",
                "subtract" => "-",
                "multiply" => "*",
                _ => return Err(unknown()),
            };
            let [left, right] = call.args.as_slice() else { return Err(unknown()) };
            Ok(format!("({} {operator} {})", source(left, variable)?, source(right, variable)?))
        }
        _ => Err(unknown()),
    }
}

/// Writes a number that a condition spells out.
fn number(value: &ScalarValue) -> Option<String> {
    match value {
        ScalarValue::Float32(Some(number)) if number.is_finite() => Some(number.to_string()),
        ScalarValue::Float64(Some(number)) if number.is_finite() => Some(number.to_string()),
        ScalarValue::Boolean(Some(flag)) => Some(flag.to_string()),
        value if value.data_type().is_integer() && !value.is_null() => Some(value.to_string()),
        _ => None,
    }
}
