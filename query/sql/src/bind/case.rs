//! CASE, and the types that CAST names.

use datafusion::logical_expr::{Case, Expr, Operator};
use sqlparser::ast;

use super::comparison::compare;
use super::{Binder, Bound, Place, Scope};
use crate::error::{Result, SqlError};
use crate::types::{SqlType, TIMESTAMP};

impl Binder<'_> {
    /// Binds CASE.
    pub(super) fn case(
        &mut self,
        operand: Option<&ast::Expr>,
        conditions: &[ast::CaseWhen],
        else_result: Option<&ast::Expr>,
        scope: &mut Scope,
        place: Place,
    ) -> Result<Bound> {
        let operand = operand.map(|operand| self.expr(operand, scope, place)).transpose()?;
        if let Some(operand) = &operand {
            self.repeat(&operand.expr, conditions.len())?;
        }
        let mut branches = Vec::with_capacity(conditions.len());
        let mut ty = SqlType::Undefined;
        let join = |ty: &mut SqlType, result: &Bound| {
            *ty = ty.common(result.ty).ok_or_else(|| {
                SqlError::Semantic(format!(
                    "All result clauses should be of same type, but found {} and {}",
                    ty.general_name(),
                    result.ty.general_name()
                ))
            })?;
            Ok::<_, SqlError>(())
        };
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
            join(&mut ty, &result)?;
            branches.push((condition, result));
        }
        let last = else_result.map(|last| self.expr(last, scope, place)).transpose()?;
        if let Some(last) = &last {
            join(&mut ty, last)?;
        }
        self.infer_alike(branches.iter().map(|(_, result)| result).chain(&last));
        let mut when_then = Vec::with_capacity(branches.len());
        for (condition, result) in branches {
            when_then.push((Box::new(condition.expr), Box::new(result.to(ty)?)));
        }
        let else_expr = last.map(|last| last.to(ty)).transpose()?.map(Box::new);
        Ok(Bound::new(Expr::Case(Case::new(None, when_then, else_expr)), ty))
    }
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
