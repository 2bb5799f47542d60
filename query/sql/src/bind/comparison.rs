//! Comparisons: of two values, of a value with a list.
//!
//! What the index can answer of them goes beside the expression ([`PushedPredicate`]); literals are compared as the other side has them
//! ([`operand`]).

use datafusion::logical_expr::{Expr, Operator, cast, not};
use datafusion::scalar::ScalarValue;
use sqlparser::ast;

use super::arithmetic::operation;
use super::condition::{and_or, negated_where, negation};
use super::{Binder, Bound, ExpressionContext, Literal, Scope, literal, operand, unsupported};
use crate::error::{Result, SqlError};
use crate::functions::{self, address, time, values};
use crate::push::{Comparable, PushedPredicate};
use crate::source::SourceKind;
use crate::types::{NANOS, SqlType, TIMESTAMP};

/// Most values of an IN list.
const MAX_LIST: usize = 65_536;

impl Binder<'_> {
    /// Binds IN.
    pub(super) fn in_list(
        &mut self,
        expr: &ast::Expr,
        list: &[ast::Expr],
        negated: bool,
        scope: &mut Scope,
        place: ExpressionContext,
    ) -> Result<Bound> {
        if list.len() > MAX_LIST {
            return Err(SqlError::TooLarge(format!(
                "IN has {} values, more than the {MAX_LIST} that are allowed",
                list.len()
            )));
        }
        let value = self.expr(expr, scope, place)?;
        if let Some(bound) = self.elements_in(&value, list, scope, place)? {
            return Ok(negated_where(negated, bound));
        }
        let mut ty = value.ty;
        let mut parts = Vec::with_capacity(list.len());
        for part in list {
            let part = self.expr(part, scope, place)?;
            ty = ty.common(part.ty).ok_or_else(|| mismatch("in", &value, &part))?;
            parts.push(part);
        }
        self.infer_alike(std::iter::once(&value).chain(&parts));
        let parts: Vec<Bound> =
            parts.into_iter().map(|part| operand::normalized(&value, &part, scope).unwrap_or(part)).collect();
        if let Some(bound) = any_of_literals(&value, &parts, scope) {
            return Ok(negated_where(negated, bound));
        }
        let own = comparable(&value, scope);
        let literals: Option<Vec<_>> = parts.iter().map(|part| as_compared(part, &value)).collect();
        let pushed = own.zip(literals).and_then(|(own, literals)| own.any_of(&literals));
        let mut bound = if value.list || parts.iter().any(|part| are_instants(&value, part)) {
            self.repeat(&value.expr, parts.len())?;
            let mut any = Vec::with_capacity(parts.len());
            for part in &parts {
                any.push(compare(&value, Operator::Eq, part, scope)?);
            }
            and_or(&any, false)
        } else {
            let exprs = parts.iter().map(|part| part.to(ty)).collect::<Result<Vec<_>>>()?;
            Bound::new(value.to(ty)?.in_list(exprs, false), SqlType::Boolean)
        };
        bound.pushed = pushed;
        Ok(negated_where(negated, bound))
    }
}

/// Finds how the index compares a field.
pub(super) fn comparable(value: &Bound, scope: &Scope) -> Option<Comparable> {
    let (source, path) = value.field.as_ref()?;
    match &scope.sources.get(*source)?.kind {
        // What is read from sources is compared as it is there.
        _ if value.ty.is_json() => None,
        SourceKind::Index(index) => match index.nested_path(path) {
            Some(nested) => Comparable::of_elements(&index.snapshot, *source, path, nested),
            None => Comparable::new(&index.snapshot, *source, path),
        },
        SourceKind::Nested(own) => Comparable::within(&own.index.snapshot, *source, path, Some(&own.path)),
        _ => None,
    }
}

/// Returns a literal that is no number as it is compared with a field.
fn as_compared(literal: &Bound, field: &Bound) -> Option<Literal> {
    let own = literal.literal.clone()?;
    Some(match (field.ty, own) {
        (ty, _) if ty.is_number() => return None,
        (SqlType::Timestamp(_), Literal::Str(text)) => Literal::Timestamp(time::instant(&text)?),
        // Fields of days hold midnights.
        (SqlType::Date, Literal::Str(text)) => {
            Literal::Timestamp(time::nanos_of(i64::from(time::date(&text)?) * time::DAY))
        }
        (SqlType::Boolean, Literal::Int(number @ (0 | 1))) => Literal::Bool(number == 1),
        (SqlType::Boolean, Literal::Str(text)) => match text.to_ascii_lowercase().as_str() {
            "true" => Literal::Bool(true),
            "false" => Literal::Bool(false),
            _ => return None,
        },
        (_, other) => other,
    })
}

/// Binds IN over literals that single numbers, addresses or flags meet; `None` where one of them does not.
fn any_of_literals(value: &Bound, parts: &[Bound], scope: &Scope) -> Option<Bound> {
    if value.list {
        return None;
    }
    if value.ty == SqlType::Ip {
        let bits: Vec<u128> = parts.iter().map(operand::address).collect::<Option<_>>()?;
        let literals: Option<Vec<_>> = parts.iter().map(|part| part.literal.clone()).collect();
        let pushed = comparable(value, scope).zip(literals).and_then(|(own, literals)| own.any_of(&literals));
        let any = bits.into_iter().map(address::order_of).collect();
        let expr = address::order(value.expr.clone()).in_list(any, false);
        return Some(Bound { pushed, ..Bound::new(expr, SqlType::Boolean) });
    }
    if value.ty == SqlType::Boolean {
        let flag = |part| match as_compared(part, value) {
            Some(own @ Literal::Bool(_)) => Some(own),
            _ => None,
        };
        let literals: Vec<Literal> = parts.iter().map(flag).collect::<Option<_>>()?;
        let pushed = comparable(value, scope).and_then(|own| own.any_of(&literals));
        let any = literals.into_iter().map(|own| literal::bound(own).expr).collect();
        return Some(Bound {
            pushed,
            ..Bound::new(value.expr.clone().in_list(any, false), SqlType::Boolean)
        });
    }
    let null = |part: &Bound| part.literal == Some(Literal::Null);
    let mut comparisons = Vec::with_capacity(parts.len());
    for part in parts.iter().filter(|part| !null(part)) {
        comparisons.push(operand::compared(value, Operator::Eq, part, scope)?);
    }
    // What cannot be equal is no part of the list.
    comparisons.retain(|comparison| comparison.operator == Operator::Eq);
    let nulls = parts.iter().any(null);
    let literals: Vec<Literal> = comparisons.iter().map(|comparison| comparison.literal.clone()).collect();
    let pushed = comparable(value, scope).filter(|_| !nulls).and_then(|own| own.any_of(&literals));
    let mut any: Vec<Expr> = Vec::with_capacity(comparisons.len());
    for comparison in comparisons {
        if comparison.is_signed_zero() {
            any.extend(comparison.value.arithmetic_negate().ok().map(|zero| Expr::Literal(zero, None)));
        }
        any.push(comparison.expr());
    }
    if nulls {
        any.push(Expr::Literal(ScalarValue::try_from(&value.ty.arrow()).ok()?, None));
    }
    let expr = match any.is_empty() {
        true => operation(value.expr.clone(), Operator::NotEq, value.expr.clone()),
        false => value.expr.clone().in_list(any, false),
    };
    Some(Bound { pushed, ..Bound::new(expr, SqlType::Boolean) })
}

/// Makes the refusal of two types that do not go together.
pub(super) fn mismatch(operator: &str, left: &Bound, right: &Bound) -> SqlError {
    SqlError::Semantic(format!(
        "{operator} function expected {{[same types]}}, but get [{},{}]",
        left.ty.general_name(),
        right.ty.general_name()
    ))
}

/// Binds a comparison.
pub(super) fn compare(left: &Bound, operator: Operator, right: &Bound, scope: &Scope) -> Result<Bound> {
    let ty = left.ty.common(right.ty).ok_or_else(|| mismatch(&operator.to_string(), left, right))?;
    if let (Some(_), None) = (&left.literal, &right.literal)
        && let Some(operator) = operator.swap()
    {
        return compare(right, operator, left, scope);
    }
    if let Some(right) = operand::normalized(left, right, scope) {
        return compare(left, operator, &right, scope);
    }
    if operator == Operator::NotEq && operand::compared(left, Operator::Eq, right, scope).is_some() {
        return compare(left, Operator::Eq, right, scope).map(negation);
    }
    if let Some(comparison) = operand::compared(left, operator, right, scope) {
        return with_literal(left, &comparison, scope);
    }
    if left.list || right.list {
        return any_compared(left, operator, right, ty, scope);
    }
    if ty == SqlType::Undefined {
        return Ok(Bound::new(Expr::Literal(ScalarValue::Boolean(None), None), SqlType::Boolean));
    }
    if are_instants(left, right) {
        return instants_compared(left, operator, right);
    }
    let expr = match operand::address(right).filter(|_| left.ty == SqlType::Ip) {
        Some(bits) => operation(address::order(left.expr.clone()), operator, address::order_of(bits)),
        None => operation(left.to(ty)?, operator, right.to(ty)?),
    };
    Ok(Bound {
        pushed: pushed_comparison(left, operator, right, scope),
        ..Bound::new(expr, SqlType::Boolean)
    })
}

/// Binds the comparison of a number with a literal of its type.
fn with_literal(own: &Bound, comparison: &operand::LiteralComparison, scope: &Scope) -> Result<Bound> {
    let pushed =
        comparable(own, scope).and_then(|own| own.compared(comparison.operator, &comparison.literal));
    let expr = match own.list {
        true => values::any(own, comparison.operator, comparison.expr(), own.ty)?,
        false => operation(own.expr.clone(), comparison.operator, comparison.expr()),
    };
    Ok(Bound { pushed, ..Bound::new(expr, SqlType::Boolean) })
}

fn pushed_comparison(
    left: &Bound,
    operator: Operator,
    right: &Bound,
    scope: &Scope,
) -> Option<PushedPredicate> {
    let value = as_compared(right, left)?;
    if value == Literal::Null {
        return None;
    }
    comparable(left, scope)?.compared(operator, &value)
}

/// Compares lists: any value for most operators, none for `<>`.
fn any_compared(
    left: &Bound,
    operator: Operator,
    right: &Bound,
    ty: SqlType,
    scope: &Scope,
) -> Result<Bound> {
    let pushed = pushed_comparison(left, operator, right, scope);
    let negated = operator == Operator::NotEq;
    let asked = if negated { Operator::Eq } else { operator };
    let timestamps = matches!((left.ty, right.ty), (SqlType::Timestamp(_), SqlType::Timestamp(_)));
    let expr = match (left.list, right.list) {
        // Those of two resolutions are compared as they are.
        (true, false) if timestamps => values::any(left, asked, right.expr.clone(), left.ty)?,
        (false, true) if timestamps => {
            let swapped = asked.swap().ok_or_else(|| mismatch(&operator.to_string(), left, right))?;
            values::any(right, swapped, left.expr.clone(), right.ty)?
        }
        (true, false) => values::any(left, asked, right.to(ty)?, ty)?,
        (false, true) => {
            let swapped = asked.swap().ok_or_else(|| mismatch(&operator.to_string(), left, right))?;
            values::any(right, swapped, left.to(ty)?, ty)?
        }
        _ => return unsupported("the comparison of two fields of several values"),
    };
    let bound = Bound::new(if negated { not(expr) } else { expr }, SqlType::Boolean);
    Ok(Bound { pushed, ..bound })
}

/// Returns true for two values that are compared as instants: no type of timestamps holds both.
fn are_instants(one: &Bound, other: &Bound) -> bool {
    let timestamp = |bound: &Bound| matches!(bound.ty, SqlType::Timestamp(_));
    let finer = one.ty != other.ty && (one.ty == NANOS || other.ty == NANOS);
    finer && one.ty.is_temporal() && other.ty.is_temporal()
        || timestamp(one) && other.ty.is_string()
        || one.ty.is_string() && timestamp(other)
}

/// Compares instants exactly. Equality names whole microseconds too, which joins have as their key.
fn instants_compared(left: &Bound, operator: Operator, right: &Bound) -> Result<Bound> {
    let exact = functions::instants(left.expr.clone(), operator, right.expr.clone());
    let expr = match (operator, left.ty, right.ty) {
        (Operator::Eq, SqlType::Timestamp(_), SqlType::Timestamp(_)) => {
            let key = |bound: &Bound| cast(bound.expr.clone(), TIMESTAMP.arrow());
            operation(key(left), Operator::Eq, key(right)).and(exact)
        }
        (Operator::NotEq, ..) => {
            not(functions::instants(left.expr.clone(), Operator::Eq, right.expr.clone()))
        }
        _ => exact,
    };
    Ok(Bound::new(expr, SqlType::Boolean))
}
