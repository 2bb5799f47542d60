//! `expand` and `mvexpand`: a row for each element of an array. They keep the order.

use millrace_sql::error::Result;
use millrace_sql::relational::NullHandling;

use super::Planner;
use super::pipe::Pipe;
use crate::command::{ExpandCommand, MvExpandCommand};

/// Plans `mvexpand`: a row without elements goes.
pub(super) fn mvexpand(
    command: &MvExpandCommand,
    mut pipe: Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<Pipe> {
    let limit = command.limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
    pipe.unnest(&command.field.path, limit, NullHandling::Drop, planner.sql)?;
    Ok(pipe)
}

/// Plans `expand`: a row without elements has a null.
pub(super) fn expand(
    command: &ExpandCommand,
    mut pipe: Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<Pipe> {
    pipe.unnest(&command.field.path, None, NullHandling::PreserveAndExpandEmpty, planner.sql)?;
    if let Some(alias) = &command.alias {
        pipe.rename(&command.field.path, &alias.path, planner.sql)?;
    }
    Ok(pipe)
}
