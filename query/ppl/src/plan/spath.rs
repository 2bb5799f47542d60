//! `spath`: values in a text that is JSON.

use millrace_sql::error::Result;

use super::pipe::Pipe;
use super::{Planner, syntax};
use crate::command::SpathCommand;

/// Plans the command.
pub(super) fn plan(
    command: &SpathCommand,
    mut pipe: Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<Pipe> {
    let input = match &command.input {
        Some(input) => planner.expression(input, &mut pipe)?,
        None => syntax::column("_raw"),
    };
    let Some(path) = &command.path else {
        let input_name = syntax::path(&input).unwrap_or_else(|| "_raw".to_owned());
        let output = command.output.as_ref().map_or(input_name, |output| output.path.clone());
        pipe.replace(&output, syntax::call("json_extract_all", vec![input]), planner.sql)?;
        return Ok(pipe);
    };
    let output = command.output.as_ref().map_or(&path.path, |output| &output.path);
    let value = syntax::call("json_path", vec![input, syntax::string(&path.path)]);
    pipe.extend(output, value, planner.sql)?;
    Ok(pipe)
}
