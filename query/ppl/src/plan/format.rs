//! `fieldformat` and `nomv`: values as texts. They keep the order.

use millrace_sql::error::Result;

use super::pipe::Pipe;
use super::{Planner, syntax};
use crate::command::{FieldFormatCommand, NoMvCommand};

/// Plans `fieldformat`.
pub(super) fn fieldformat(
    command: &FieldFormatCommand,
    mut pipe: Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<Pipe> {
    for format in &command.formats {
        let mut value = planner.expression(&format.value, &mut pipe)?;
        if format.prefix.is_some() || format.suffix.is_some() {
            let prefix = format.prefix.iter().map(|text| syntax::string(&text.value));
            let suffix = format.suffix.iter().map(|text| syntax::string(&text.value));
            value = syntax::call("concat", prefix.chain([value]).chain(suffix).collect());
        }
        pipe.replace(&format.field.path, value, planner.sql)?;
    }
    Ok(pipe)
}

/// Plans `nomv`.
pub(super) fn nomv(command: &NoMvCommand, mut pipe: Pipe, planner: &mut Planner<'_, '_, '_>) -> Result<Pipe> {
    let args = vec![syntax::column(&command.field.path), syntax::string("\n")];
    pipe.replace(&command.field.path, syntax::call("mvjoin", args), planner.sql)?;
    Ok(pipe)
}
