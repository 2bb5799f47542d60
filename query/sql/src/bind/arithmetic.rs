//! Arithmetic: operators over numbers, and over moments and intervals.

use datafusion::functions::core::expr_fn::nullif;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use datafusion::scalar::ScalarValue;

use super::comparison::mismatch;
use super::{Bound, Literal, literal};
use crate::error::{Result, SqlError};
use crate::functions;
use crate::types::SqlType;

/// Makes an operation of two expressions.
pub(super) fn operation(left: Expr, operator: Operator, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), operator, Box::new(right)))
}

/// Binds `+`, `-`, `*`, `/` and `%`.
pub(super) fn arithmetic(left: &Bound, operator: Operator, right: &Bound, now_ms: i64) -> Result<Bound> {
    let temporal = |bound: &Bound| bound.ty.is_temporal() || bound.ty == SqlType::Interval;
    if temporal(left) || temporal(right) {
        return match operator {
            Operator::Plus if right.ty == SqlType::Interval => {
                functions::call("date_add", &[left.clone(), right.clone()], now_ms)
            }
            Operator::Plus if left.ty == SqlType::Interval => {
                functions::call("date_add", &[right.clone(), left.clone()], now_ms)
            }
            Operator::Minus if right.ty == SqlType::Interval => {
                functions::call("date_sub", &[left.clone(), right.clone()], now_ms)
            }
            _ => Err(mismatch(&operator.to_string(), left, right)),
        };
    }
    if operator == Operator::Plus && left.ty.is_string() && right.ty.is_string() {
        return functions::call("concat", &[left.clone(), right.clone()], now_ms);
    }
    let number = |bound: &Bound| bound.ty.is_number() || bound.ty == SqlType::Undefined;
    if !number(left) || !number(right) {
        return Err(SqlError::Semantic(format!(
            "{operator} function expected {{[BYTE,BYTE],[SHORT,SHORT],[INTEGER,INTEGER],[LONG,LONG],[FLOAT,FLOAT],[DOUBLE,DOUBLE]}}, but get [{},{}]",
            left.ty.general_name(),
            right.ty.general_name()
        )));
    }
    let ty = match (left.ty, right.ty) {
        // Integers are narrower than floats here, though they hold more digits.
        (SqlType::Float, other) | (other, SqlType::Float) if other.is_integer() => SqlType::Float,
        (one, other) => one.common(other).ok_or_else(|| mismatch(&operator.to_string(), left, right))?,
    };
    if ty == SqlType::Undefined {
        return Ok(literal::bound(Literal::Null));
    }
    let (one, other) = (left.to(ty)?, right.to(ty)?);
    let nonzero = match right.literal {
        Some(Literal::Int(number)) => number != 0,
        Some(Literal::Float(number)) => number != 0.0,
        _ => false,
    };
    let other = match operator {
        Operator::Divide | Operator::Modulo if !nonzero => nullif(other, zero(ty)?),
        _ => other,
    };
    let expr = match ty.is_integer() {
        true => functions::checked(operator, ty, one, other),
        false => operation(one, operator, other),
    };
    Ok(Bound::new(expr, ty))
}

fn zero(ty: SqlType) -> Result<Expr> {
    Ok(Expr::Literal(ScalarValue::new_zero(&ty.arrow())?, None))
}

/// Negates an integer that is spelt out.
pub(super) fn negative(number: i128) -> Literal {
    match (i64::try_from(-number), u64::try_from(-number)) {
        (Ok(number), _) => Literal::Int(number),
        (_, Ok(number)) => Literal::UInt(number),
        _ => Literal::Float(-number as f64),
    }
}
