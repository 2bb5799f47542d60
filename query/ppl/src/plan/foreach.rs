//! `foreach`: an `eval` for each field that a pattern names. It keeps the order.

use super::columns::captures;
use super::pipe::Pipe;
use super::{Planner, refused, syntax};
use crate::command::{ForeachCommand, ForeachMode, ForeachPlaceholder, ForeachTarget};
use millrace_sql::error::{Result, SqlError};

/// Longest name of a column that the command makes, in bytes.
const MAX_NAME: usize = 1_024;
/// Longest assignments of all rounds of a statement, in bytes.
pub(super) const MAX_BYTES: usize = 1 << 20;

/// Plans the command.
pub(super) fn plan(
    command: &ForeachCommand,
    mut pipe: Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<Pipe> {
    if command.mode != ForeachMode::Multifield {
        return refused("foreach over elements");
    }
    for target in &command.targets {
        let ForeachTarget::Fields(pattern) = target else { return refused("foreach over elements") };
        let names = match pattern.is_wildcard() {
            true => pipe.visible(planner.sql)?,
            false => vec![pattern.pattern.clone()],
        };
        for name in names {
            let Some(texts) = captures(&pattern.pattern, &name) else { continue };
            let mut placeholders = vec![
                placeholder(command.fieldstr.as_deref().unwrap_or("<<FIELD>>"), &name),
                placeholder(command.matchstr.as_deref().unwrap_or("<<MATCHSTR>>"), &texts.concat()),
            ];
            for (at, text) in texts.iter().enumerate() {
                let word = command.matchsegs.get(at).cloned().flatten();
                let word = word.unwrap_or_else(|| format!("<<MATCHSEG{}>>", at + 1));
                placeholders.push(placeholder(&word, text));
            }
            for assignment in &command.assignments {
                if !assignment.value.subsearches.is_empty() {
                    return refused("a subsearch in foreach");
                }
                let left = &mut planner.substitution_bytes;
                let assignment = assignment.substitute(&placeholders, left).ok_or_else(too_long)?;
                let column = &assignment.target;
                if column.len() > MAX_NAME {
                    return Err(SqlError::TooLarge(format!(
                        "foreach makes a name of more than {MAX_NAME} bytes"
                    )));
                }
                super::rename::check_name(column)?;
                pipe.extend(column, assignment.value.expr, planner.sql)?;
            }
        }
    }
    Ok(pipe)
}

fn placeholder(word: &str, text: &str) -> ForeachPlaceholder {
    ForeachPlaceholder { word: word.to_owned(), expr: syntax::column(text), text: text.to_owned() }
}

fn too_long() -> SqlError {
    SqlError::TooLarge(format!("the assignments of all rounds of foreach are longer than {MAX_BYTES} bytes"))
}
