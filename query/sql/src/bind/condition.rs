//! Conditions: truth values, joined, negated, and tests that are neither comparisons nor relevance.

use datafusion::logical_expr::{Case, Expr, Operator, lit, not};
use datafusion::scalar::ScalarValue;

use super::arithmetic::operation;
use super::comparison::comparable;
use super::{Binder, Bound, Literal, Scope, unsupported};
use crate::error::{Result, SqlError};
use crate::functions::{self, values};
use crate::push::{PushedPredicate, has_exists, has_exists_within, is_null};
use crate::source::SourceKind;
use crate::types::SqlType;

impl Binder<'_> {
    /// Takes an expression as a condition.
    pub(super) fn truth(&mut self, bound: Bound) -> Result<Bound> {
        self.infer(&bound, SqlType::Boolean);
        boolean(bound)
    }
}

/// Takes an expression as a condition.
pub(super) fn boolean(bound: Bound) -> Result<Bound> {
    match bound.ty {
        SqlType::Boolean => Ok(if bound.list { bound.single() } else { bound }),
        SqlType::Undefined => Ok(Bound::new(bound.to(SqlType::Boolean)?, SqlType::Boolean)),
        SqlType::Integer | SqlType::Long => {
            let zero = Expr::Literal(ScalarValue::try_from(&bound.ty.arrow())?, None);
            let zero = match bound.ty {
                SqlType::Integer => lit(0i32),
                SqlType::Long => lit(0i64),
                _ => zero,
            };
            Ok(Bound::new(operation(bound.expr, Operator::NotEq, zero), SqlType::Boolean))
        }
        other => {
            Err(SqlError::Semantic(format!("a condition has to be BOOLEAN, but is {}", other.general_name())))
        }
    }
}

/// Joins conditions.
pub(super) fn and_or(parts: &[Bound], and: bool) -> Bound {
    let pushed: Option<Vec<PushedPredicate>> = parts.iter().map(|part| part.pushed.clone()).collect();
    let mut level: Vec<Expr> = parts.iter().map(|part| part.expr.clone()).collect();
    while level.len() > 1 {
        let mut next = Vec::with_capacity(level.len().div_ceil(2));
        let mut pairs = level.into_iter();
        while let Some(left) = pairs.next() {
            next.push(match pairs.next() {
                Some(right) if and => left.and(right),
                Some(right) => left.or(right),
                None => left,
            });
        }
        level = next;
    }
    let expr = level.pop().unwrap_or_else(|| lit(and));
    Bound {
        pushed: pushed.and_then(|pushed| PushedPredicate::all(&pushed, and)),
        ..Bound::new(expr, SqlType::Boolean)
    }
}

/// Negates a condition.
pub(super) fn negation(bound: Bound) -> Bound {
    let pushed = bound.pushed.map(PushedPredicate::not);
    Bound { pushed, ..Bound::new(not(bound.expr), SqlType::Boolean) }
}

/// Negates a condition behind NOT.
pub(super) fn negated_where(negated: bool, bound: Bound) -> Bound {
    if negated { negation(bound) } else { bound }
}

/// Binds IS NULL and IS NOT NULL.
pub(super) fn null_test(value: &Bound, scope: &Scope, null: bool) -> Bound {
    let pushed = value.field.as_ref().and_then(|(source, path)| match &scope.sources.get(*source)?.kind {
        SourceKind::Index(index) if has_exists(&index.snapshot, path) => Some(is_null(*source, path)),
        SourceKind::Nested(own) if has_exists_within(&own.index.snapshot, path, Some(&own.path)) => {
            Some(is_null(*source, path))
        }
        _ => None,
    });
    let test = match null {
        true => Bound { pushed, ..Bound::new(value.expr.clone().is_null(), SqlType::Boolean) },
        false => Bound {
            pushed: pushed.map(PushedPredicate::not),
            ..Bound::new(value.expr.clone().is_not_null(), SqlType::Boolean)
        },
    };
    match value.literal {
        Some(Literal::Null) => Bound::new(lit(null), SqlType::Boolean),
        Some(_) => Bound::new(lit(!null), SqlType::Boolean),
        None => test,
    }
}

/// Binds LIKE, which does not tell upper from lower case of ASCII letters.
pub(super) fn like(value: &Bound, pattern: &Bound, scope: &mut Scope) -> Result<Bound> {
    let comparable = comparable(value, scope);
    if let Some(text) = comparable.as_ref().filter(|own| own.is_of_terms()) {
        let Some(Literal::Str(pattern)) = &pattern.literal else {
            return unsupported(
                "LIKE on a text field without a keyword field, but for a pattern that is spelt out",
            );
        };
        let pushed = text.like(pattern);
        let pushed = pushed.ok_or_else(|| SqlError::Semantic("LIKE needs a pattern".to_owned()))?;
        let source = scope.sources.get_mut(pushed.source);
        let marks =
            source.and_then(|source| Some((source.mark(&pushed.truth)?, source.mark(&pushed.falsity)?)));
        let Some((truth, falsity)) = marks else { return unsupported("LIKE on this field") };
        let branches =
            vec![(Box::new(truth), Box::new(lit(true))), (Box::new(falsity), Box::new(lit(false)))];
        let expr = Expr::Case(Case::new(None, branches, None));
        return Ok(Bound { pushed: Some(pushed), ..Bound::new(expr, SqlType::Boolean) });
    }
    let pushed = match &pattern.literal {
        Some(Literal::Str(pattern)) => comparable.and_then(|own| own.like(pattern)),
        _ => None,
    };
    let shown = pattern.to(SqlType::Keyword)?;
    let expr = match value.list {
        true if value.ty.is_string() => values::any_like(value, shown)?,
        _ => functions::like(value.single().to(SqlType::Keyword)?, shown),
    };
    Ok(Bound { pushed, ..Bound::new(expr, SqlType::Boolean) })
}
