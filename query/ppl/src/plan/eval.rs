//! `eval`: new columns, each of which the next ones see.

use millrace_sql::error::Result;

use super::Planner;
use super::pipe::Pipe;
use crate::command::EvalCommand;

/// Plans the command.
pub(super) fn plan(command: &EvalCommand, mut pipe: Pipe, planner: &mut Planner<'_, '_, '_>) -> Result<Pipe> {
    for assignment in &command.assignments {
        let expr = planner.value(&assignment.value, &mut pipe)?;
        super::rename::check_name(&assignment.field.path)?;
        pipe.extend(&assignment.field.path, expr, planner.sql)?;
    }
    Ok(pipe)
}
