//! `replace`: other texts for texts. `*` in a pattern stands for any text.

use millrace_sql::error::{Result, SqlError};

use super::pipe::Pipe;
use super::{Planner, syntax};
use crate::command::ReplaceCommand;

/// Plans the command.
pub(super) fn plan(
    command: &ReplaceCommand,
    mut pipe: Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<Pipe> {
    for field in &command.fields {
        let mut value = syntax::column(&field.path);
        for pair in &command.pairs {
            let (pattern, replacement) = (&pair.pattern.value, &pair.replacement.value);
            let (wildcards, targets) = (pattern.matches('*').count(), replacement.matches('*').count());
            if targets > 0 && targets != wildcards {
                return Err(SqlError::Semantic(format!(
                    "Error in 'replace' command: Wildcard count mismatch - pattern has {wildcards} wildcard(s), replacement has {targets}. Replacement must have same number of wildcards or none."
                )));
            }
            let args = vec![value, syntax::string(pattern), syntax::string(replacement)];
            value = syntax::call("wildcard_replace", args);
        }
        pipe.replace(&field.path, value, planner.sql)?;
    }
    Ok(pipe)
}
