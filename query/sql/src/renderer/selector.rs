//! HAVING as `bucket_selector`: a condition on the values of a bucket.
//!
//! An aggregate without values is null, and a comparison of it is not true, nor is its negation. Scripts know no null, so NOT moves
//! down to the comparisons, and each that a missing value could meet asks for the count of values, too.

use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use datafusion::scalar::ScalarValue;
use serde_json::{Map, Value, json};

use super::flat_select::GroupMember;
use super::{RenderResult, unwrapped};

/// An aggregate in a condition.
pub(super) struct Variable {
    /// Name in the script.
    pub(super) name: String,
    /// Path in a bucket.
    pub(super) path: String,
    /// Name and path of the count of its values, where the comparison needs that.
    pub(super) count: Option<(String, String)>,
}

/// Writer of a condition. `variable` finds an aggregate by its number, for a comparison that accepts NaN or does not.
pub(super) struct Selector<F> {
    variable: F,
    paths: Map<String, Value>,
}

impl<F: FnMut(usize, bool) -> RenderResult<Variable>> Selector<F> {
    pub(super) fn new(variable: F) -> Self {
        Self { variable, paths: Map::new() }
    }

    /// Writes conditions that all hold.
    pub(super) fn body(mut self, conditions: &[Expr]) -> RenderResult<Value> {
        let parts = conditions.iter().map(|condition| self.condition(condition, true));
        let parts = parts.collect::<RenderResult<Vec<String>>>()?;
        let script = json!({"source": parts.join(" && "), "lang": "painless"});
        Ok(json!({"bucket_selector": {"buckets_path": self.paths, "script": script, "gap_policy": "skip"}}))
    }

    /// Writes a condition that is true, or one that is false.
    fn condition(&mut self, expr: &Expr, is_true: bool) -> RenderResult<String> {
        match unwrapped(expr) {
            Expr::Literal(ScalarValue::Boolean(Some(flag)), _) => Ok((*flag == is_true).to_string()),
            Expr::Not(inner) => self.condition(inner, !is_true),
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                let operator = match (op, is_true) {
                    (Operator::And, true) | (Operator::Or, false) => "&&",
                    (Operator::Or, true) | (Operator::And, false) => "||",
                    _ => return self.comparison(left, *op, right, is_true),
                };
                let (left, right) = (self.condition(left, is_true)?, self.condition(right, is_true)?);
                Ok(format!("({left} {operator} {right})"))
            }
            _ => Err("this condition on groups".into()),
        }
    }

    fn comparison(
        &mut self,
        left: &Expr,
        operator: Operator,
        right: &Expr,
        is_true: bool,
    ) -> RenderResult<String> {
        let operator = match (operator, is_true) {
            (Operator::Eq, true) | (Operator::NotEq, false) => "==",
            (Operator::NotEq, true) | (Operator::Eq, false) => "!=",
            (Operator::Lt, true) | (Operator::GtEq, false) => "<",
            (Operator::LtEq, true) | (Operator::Gt, false) => "<=",
            (Operator::Gt, true) | (Operator::LtEq, false) => ">",
            (Operator::GtEq, true) | (Operator::Lt, false) => ">=",
            _ => return Err("this condition on groups".into()),
        };
        let mut counts = Vec::new();
        let accepts_nan = operator == "!=";
        let left = self.number(left, accepts_nan, &mut counts)?;
        let right = self.number(right, accepts_nan, &mut counts)?;
        let comparison = format!("({left} {operator} {right})");
        if counts.is_empty() {
            return Ok(comparison);
        }
        let counts: Vec<String> = counts.iter().map(|count| format!("(params.{count} > 0)")).collect();
        Ok(format!("({} && {comparison})", counts.join(" && ")))
    }

    /// Writes a number, and lists the counts of values that it needs.
    fn number(&mut self, expr: &Expr, accepts_nan: bool, counts: &mut Vec<String>) -> RenderResult<String> {
        let unknown = || "this condition on groups".into();
        let (operator, left, right) = match unwrapped(expr) {
            Expr::Literal(value, _) => return number(value).ok_or_else(unknown),
            own @ Expr::Column(_) => {
                let Some(GroupMember::Metric(at)) = GroupMember::new(own) else {
                    return Err("a condition on a key of groups".into());
                };
                let variable = (self.variable)(at, accepts_nan)?;
                self.paths.insert(variable.name.clone(), json!(variable.path));
                if let Some((count, path)) = variable.count {
                    self.paths.insert(count.clone(), json!(path));
                    if !counts.contains(&count) {
                        counts.push(count);
                    }
                }
                return Ok(format!("params.{}", variable.name));
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                let operator = match op {
                    Operator::Plus => "+",
                    Operator::Minus => "-",
                    Operator::Multiply => "*",
                    _ => return Err(unknown()),
                };
                (operator, left.as_ref(), right.as_ref())
            }
            Expr::ScalarFunction(call) => {
                let operator = match call.func.name() {
                    "add" => "+",
                    "subtract" => "-",
                    "multiply" => "*",
                    _ => return Err(unknown()),
                };
                let [left, right] = call.args.as_slice() else { return Err(unknown()) };
                (operator, left, right)
            }
            _ => return Err(unknown()),
        };
        let left = self.number(left, accepts_nan, counts)?;
        let right = self.number(right, accepts_nan, counts)?;
        Ok(format!("({left} {operator} {right})"))
    }
}

/// Writes a number that a condition spells out.
fn number(value: &ScalarValue) -> Option<String> {
    match value {
        ScalarValue::Float32(Some(number)) if number.is_finite() => Some(number.to_string()),
        ScalarValue::Float64(Some(number)) if number.is_finite() => Some(number.to_string()),
        value if value.data_type().is_integer() && !value.is_null() => Some(value.to_string()),
        _ => None,
    }
}
