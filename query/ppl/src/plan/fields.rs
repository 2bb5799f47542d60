//! `fields` and `table`: the columns that stay, or that go.

use millrace_sql::error::{Result, SqlError};

use super::Planner;
use super::columns::matching;
use super::pipe::Pipe;
use crate::command::FieldsCommand;

/// Plans the command.
pub(super) fn plan(
    command: &FieldsCommand,
    mut pipe: Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<Pipe> {
    let mut names: Vec<String> = Vec::new();
    for field in &command.fields {
        if field.is_wildcard() {
            let visible = pipe.visible(planner.sql)?;
            let found = matching(&visible, &field.pattern);
            if found.is_empty() && !command.is_exclusion && field.pattern != "*" {
                return Err(SqlError::Semantic(format!(
                    "wildcard pattern [{}] matches no fields",
                    field.pattern
                )));
            }
            names.extend(found);
        } else {
            names.push(field.pattern.clone());
        }
    }
    match command.is_exclusion {
        true => pipe.drop(&names, planner.sql)?,
        false => pipe.keep(&names, planner.sql)?,
    }
    Ok(pipe)
}
