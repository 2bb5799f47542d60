//! `fillnull`: values for nulls.

use millrace_sql::error::{Result, SqlError};
use millrace_sql::relational::SqlType;
use sqlparser::ast;

use super::pipe::Pipe;
use super::{Planner, paths_of, syntax};
use crate::command::FillNullCommand;

/// Plans the command.
pub(super) fn plan(
    command: &FillNullCommand,
    mut pipe: Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<Pipe> {
    match command {
        FillNullCommand::One { value, fields, is_typed } => {
            let value = planner.expression(value, &mut pipe)?;
            let fields: Vec<String> = match fields.is_empty() {
                false => paths_of(fields),
                true => {
                    let typed = pipe.typed(planner.sql)?;
                    let fits = |ty: SqlType| !is_typed || takes(&value, ty);
                    typed
                        .into_iter()
                        .filter(|(_, ty)| !ty.is_json() && fits(*ty))
                        .map(|(name, _)| name)
                        .collect()
                }
            };
            for field in fields {
                fill(&field, value.clone(), &mut pipe, planner)?;
            }
        }
        FillNullCommand::Each(assignments) => {
            for assignment in assignments {
                let value = planner.expression(&assignment.value, &mut pipe)?;
                fill(&assignment.field.path, value, &mut pipe, planner)?;
            }
        }
    }
    Ok(pipe)
}

/// Returns whether a type has a value that is spelt out.
fn takes(value: &ast::Expr, ty: SqlType) -> bool {
    match value {
        ast::Expr::Value(value) => match &value.value {
            ast::Value::Number(..) => ty.is_number(),
            ast::Value::Boolean(_) => ty == SqlType::Boolean,
            _ => ty.is_string(),
        },
        ast::Expr::UnaryOp { .. } => ty.is_number(),
        _ => true,
    }
}

fn fill(field: &str, value: ast::Expr, pipe: &mut Pipe, planner: &mut Planner<'_, '_, '_>) -> Result<()> {
    if let ast::Expr::Value(literal) = &value {
        let is_text =
            matches!(literal.value, ast::Value::SingleQuotedString(_) | ast::Value::DoubleQuotedString(_));
        let is_number = matches!(literal.value, ast::Value::Number(..));
        let ty = pipe.type_of(field, planner.sql)?;
        let own = if is_text { "VARCHAR" } else { "INTEGER" };
        let other = match ty {
            ty if is_text && ty.is_number() => ty.general_name(),
            ty if is_number && ty.is_string() => "VARCHAR",
            _ => "",
        };
        if !other.is_empty() {
            return Err(SqlError::Semantic(format!(
                "fillnull failed: replacement value type {own} is not compatible with field '{field}' (type: {other}). The replacement value type must match the field type."
            )));
        }
    }
    let filled = syntax::call("coalesce", vec![syntax::column(field), value]);
    pipe.replace(field, filled, planner.sql)
}
