//! `rename`: other names for columns.

use millrace_sql::error::{Result, SqlError};

use super::Planner;
use super::columns::captures;
use super::pipe::{Pipe, is_metadata};
use crate::command::RenameCommand;

/// Refuses the name of metadata for a column of the user.
pub(super) fn check_name(name: &str) -> Result<()> {
    match is_metadata(name) {
        true => Err(SqlError::Semantic(format!("Cannot use metadata field [{name}] as the alias."))),
        false => Ok(()),
    }
}

/// Plans the command.
pub(super) fn plan(
    command: &RenameCommand,
    mut pipe: Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<Pipe> {
    for renaming in &command.renamings {
        let (from, to) = (&renaming.from.pattern, &renaming.to.pattern);
        if from.matches('*').count() != to.matches('*').count() {
            return Err(SqlError::Semantic(format!(
                "Source and target patterns have different wildcard counts: [{from}] and [{to}]"
            )));
        }
        if !renaming.from.is_wildcard() {
            check_name(to)?;
            let visible = pipe.visible(planner.sql)?;
            // A name that is not there is left alone, and takes the place of the other.
            match visible.contains(from) || pipe.find(from, planner.sql)?.is_some() {
                true => pipe.rename(from, to, planner.sql)?,
                false if from != to => pipe.drop(std::slice::from_ref(to), planner.sql)?,
                false => {}
            }
            continue;
        }
        for name in pipe.visible(planner.sql)? {
            let Some(texts) = captures(from, &name) else { continue };
            let mut texts = texts.into_iter();
            let mut target = String::new();
            for (at, part) in to.split('*').enumerate() {
                if at > 0 {
                    target.push_str(&texts.next().unwrap_or_default());
                }
                target.push_str(part);
            }
            check_name(&target)?;
            pipe.rename(&name, &target, planner.sql)?;
        }
    }
    Ok(pipe)
}
