//! `stats`: aggregates of groups, a row for each. It destroys the order.

use millrace_sql::error::{Result, SqlError};
use millrace_sql::relational::SqlType;
use sqlparser::ast;

use super::aggregates::{aggregate, grouping_keys};
use super::pipe::Pipe;
use super::{Planner, syntax};
use crate::command::StatsCommand;

/// Plans the command.
pub(super) fn plan(
    command: &StatsCommand,
    mut pipe: Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<Pipe> {
    let mut aggregates = Vec::with_capacity(command.aggregates.len());
    for call in &command.aggregates {
        aggregates.push(aggregate(call, &mut pipe, planner)?);
    }
    let keys = grouping_keys(command.by.as_ref(), &mut pipe, planner)?;
    for key in &keys {
        let field = syntax::path(&key.field).unwrap_or_default();
        let summary = pipe.index().map(|index| planner.sql.field(index, &field)).transpose()?.flatten();
        if summary.is_some_and(|summary| summary.ty == SqlType::Nested) {
            return Err(SqlError::Semantic(format!(
                "Cannot execute nested aggregation on [{field}]: group by a field of its elements"
            )));
        }
    }
    let is_nullable = command.bucket_nullable.unwrap_or(planner.settings.legacy_syntax);
    for key in &keys {
        if !is_nullable || key.is_time_span {
            pipe.filter(syntax::is_not_null(key.field.clone()), planner.sql)?;
        }
    }
    let mut named: Vec<(String, ast::Expr)> = Vec::with_capacity(keys.len());
    for key in keys {
        // A key that is named twice has a column each time.
        let is_taken = |name: &str| named.iter().any(|(known, _)| known == name);
        let mut name = key.name.clone();
        let mut number = 0;
        while is_taken(&name) {
            name = format!("{}{number}", key.name);
            number += 1;
        }
        named.push((name, key.expr));
    }
    pipe.aggregate(aggregates, named, planner.sql)?;
    Ok(pipe)
}
