//! `replace`: other texts for texts. `*` in a pattern stands for any text.

use millrace_sql::error::{Result, SqlError};

use super::pipe::Pipe;
use super::{Planner, syntax};
use crate::command::ReplaceCommand;

/// Most pairs, each of which is a call around those before.
const MAX_PAIRS: usize = 100;
/// Longest texts of the pairs over all fields, in bytes.
const MAX_BYTES: usize = 4 << 20;

/// Plans the command.
pub(super) fn plan(
    command: &ReplaceCommand,
    mut pipe: Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<Pipe> {
    if command.pairs.len() > MAX_PAIRS {
        return Err(SqlError::TooLarge(format!("replace has more than {MAX_PAIRS} pairs of texts")));
    }
    let bytes = command.pairs.iter().map(|pair| pair.pattern.value.len() + pair.replacement.value.len());
    if bytes.sum::<usize>().saturating_mul(command.fields.len()) > MAX_BYTES {
        return Err(SqlError::TooLarge(format!(
            "the texts of replace are longer than {MAX_BYTES} bytes over all fields"
        )));
    }
    for field in &command.fields {
        pipe.check_listed(&field.path, planner.sql)?;
        let mut value = syntax::column(&field.path);
        for pair in &command.pairs {
            let (pattern, replacement) = (&pair.pattern.value, &pair.replacement.value);
            let (wildcards, targets) = (wildcards(pattern), wildcards(replacement));
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

/// Counts the `*` of a pattern that no backslash escapes.
fn wildcards(pattern: &str) -> usize {
    let (mut count, mut letters) = (0, pattern.chars());
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => drop(letters.next()),
            '*' => count += 1,
            _ => {}
        }
    }
    count
}
