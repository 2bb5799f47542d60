//! CASE, and the types that CAST names.

use datafusion::logical_expr::{Case, Expr, Operator};
use sqlparser::ast;

use super::comparison::compare;
use super::{Binder, Bound, ExpressionContext, Literal, Scope, literal};
use crate::error::{Result, SqlError};
use crate::types::{NANOS, SqlType, TIMESTAMP};

impl Binder<'_> {
    /// Binds CASE.
    pub(super) fn case(
        &mut self,
        operand: Option<&ast::Expr>,
        conditions: &[ast::CaseWhen],
        else_result: Option<&ast::Expr>,
        scope: &mut Scope,
        place: ExpressionContext,
    ) -> Result<Bound> {
        let operand = operand.map(|operand| self.expr(operand, scope, place)).transpose()?;
        if let Some(operand) = &operand {
            self.repeat(&operand.expr, conditions.len())?;
        }
        let mut branches = Vec::with_capacity(conditions.len());
        for branch in conditions {
            let condition = self.expr(&branch.condition, scope, place)?;
            let condition = match &operand {
                None => self.truth(condition)?,
                Some(operand) => {
                    self.infer_alike([operand, &condition]);
                    compare(operand, Operator::Eq, &condition, scope)?
                }
            };
            let result = self.expr(&branch.result, scope, place)?;
            branches.push((condition, result));
        }
        let last = else_result.map(|last| self.expr(last, scope, place)).transpose()?;
        self.infer_alike(branches.iter().map(|(_, result)| result).chain(&last));
        let ty = result_type(branches.iter().map(|(_, result)| result).chain(&last))?;
        let mut when_then = Vec::with_capacity(branches.len());
        for (condition, result) in branches {
            when_then.push((Box::new(condition.expr), Box::new(result.to(ty)?)));
        }
        let else_expr = last.map(|last| last.to(ty)).transpose()?.map(Box::new);
        Ok(Bound::new(Expr::Case(Case::new(None, when_then, else_expr)), ty))
    }
}

/// Finds the type that the results of the branches of one expression have. Numbers are widened; a text among values of another type
/// has to be spelled out and to be such a value, because others would fail at some row.
pub(super) fn result_type<'b>(results: impl Iterator<Item = &'b Bound> + Clone) -> Result<SqlType> {
    let refused = |one: SqlType, other: SqlType| {
        SqlError::Semantic(format!(
            "All result clauses should be of same type, but found {} and {}",
            one.general_name(),
            other.general_name()
        ))
    };
    let mut ty = SqlType::Undefined;
    for result in results.clone() {
        ty = ty.common(result.ty).ok_or_else(|| refused(ty, result.ty))?;
    }
    // A literal that nanoseconds do not hold makes all of them microseconds.
    let beyond = |result: &Bound| {
        result.literal.as_ref().and_then(literal::instant).is_some_and(|at| i64::try_from(at).is_err())
    };
    if ty == NANOS && results.clone().any(beyond) {
        ty = TIMESTAMP;
    }
    // Addresses are texts in expressions.
    if ty.is_string() || matches!(ty, SqlType::Undefined | SqlType::Ip) {
        return Ok(ty);
    }
    for result in results.filter(|result| result.ty.is_string()) {
        let fits = match &result.literal {
            Some(Literal::Str(text)) => literal::spells(text, ty),
            _ => false,
        };
        if !fits {
            return Err(refused(result.ty, ty));
        }
    }
    Ok(ty)
}

/// Finds the type that CAST names.
pub(super) fn cast_type(data_type: &ast::DataType) -> Result<SqlType> {
    let name = data_type.to_string().to_ascii_uppercase();
    let name = name.split(['(', ' ']).next().unwrap_or_default();
    Ok(match name {
        "BYTE" | "TINYINT" => SqlType::Byte,
        "SHORT" | "SMALLINT" => SqlType::Short,
        "INT" | "INTEGER" | "SIGNED" => SqlType::Integer,
        "LONG" | "BIGINT" => SqlType::Long,
        "FLOAT" | "REAL" => SqlType::Float,
        "DOUBLE" | "DECIMAL" | "NUMERIC" => SqlType::Double,
        "STRING" | "VARCHAR" | "CHAR" | "TEXT" | "KEYWORD" => SqlType::Keyword,
        "BOOLEAN" | "BOOL" => SqlType::Boolean,
        "DATE" => SqlType::Date,
        "TIME" => SqlType::Time,
        "TIMESTAMP" | "DATETIME" => TIMESTAMP,
        "IP" => SqlType::Ip,
        other => return Err(SqlError::Semantic(format!("cannot cast to {other}"))),
    })
}
