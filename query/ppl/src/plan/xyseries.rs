//! `xyseries`: values of a column as columns. It sets the order: that of the rows' field.

use millrace_sql::error::{Result, SqlError};
use sqlparser::ast;

use super::pipe::{Pipe, SortKey};
use super::{Planner, syntax};
use crate::command::XySeriesCommand;

/// Most columns that the command makes.
const MAX_SERIES: usize = 1_000;

/// Plans the command.
pub(super) fn plan(
    command: &XySeriesCommand,
    mut pipe: Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<Pipe> {
    if command.values.len().saturating_mul(command.data_fields.len()) > MAX_SERIES {
        return Err(SqlError::TooLarge(format!("xyseries makes more than {MAX_SERIES} columns")));
    }
    let separator = command.sep.as_deref().unwrap_or(": ");
    let mut series: Vec<(String, ast::Expr)> = Vec::new();
    for field in &command.data_fields {
        for value in &command.values {
            let name = match &command.format {
                Some(format) => format.replace("$AGG$", &field.path).replace("$VAL$", &value.value),
                None => format!("{}{separator}{}", field.path, value.value),
            };
            super::rename::check_name(&name)?;
            let own = syntax::cast(syntax::column(&command.name_field.path), ast::DataType::String(None));
            let is_own = syntax::binary(own, ast::BinaryOperator::Eq, syntax::string(&value.value));
            let cell = syntax::case(vec![(is_own, syntax::column(&field.path))], None);
            series.push((name, syntax::call("max", vec![cell])));
        }
    }
    let row = &command.x_field.path;
    let shown: Vec<String> =
        std::iter::once(row.clone()).chain(series.iter().map(|(name, _)| name.clone())).collect();
    pipe.aggregate(series, vec![(row.clone(), syntax::column(row))], planner.sql)?;
    let key = SortKey { expr: syntax::column(row), ascending: true, nulls_first: true };
    pipe.sort(vec![key], planner.sql)?;
    pipe.keep(&shown, planner.sql)?;
    Ok(pipe)
}
