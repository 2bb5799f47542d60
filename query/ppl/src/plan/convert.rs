//! `convert`: values to other types.

use millrace_sql::error::Result;

use super::columns::matching;
use super::pipe::Pipe;
use super::{Planner, syntax};
use crate::command::{ConvertCommand, ConvertFunction};

/// Format of times where no option says.
const TIME_FORMAT: &str = "%m/%d/%Y %H:%M:%S";

/// Plans the command.
pub(super) fn plan(
    command: &ConvertCommand,
    mut pipe: Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<Pipe> {
    let format = command.timeformat.as_deref().unwrap_or(TIME_FORMAT);
    for conversion in &command.conversions {
        let fields = match conversion.field.is_wildcard() {
            true => matching(&pipe.visible(planner.sql)?, &conversion.field.pattern),
            false => vec![conversion.field.pattern.clone()],
        };
        for field in fields {
            let value = syntax::column(&field);
            let converted = match conversion.function {
                ConvertFunction::None => value,
                ConvertFunction::Auto => syntax::call("convert_auto", vec![value]),
                ConvertFunction::Num => syntax::call("convert_num", vec![value]),
                ConvertFunction::Ctime => syntax::call("convert_ctime", vec![value, syntax::string(format)]),
                ConvertFunction::Mktime => {
                    syntax::call("convert_mktime", vec![value, syntax::string(format)])
                }
                ConvertFunction::Mstime => syntax::call("convert_mstime", vec![value]),
                ConvertFunction::Dur2Sec => syntax::call("convert_dur2sec", vec![value]),
                ConvertFunction::Memk => syntax::call("convert_memk", vec![value]),
                ConvertFunction::RmUnit => syntax::call("convert_rmunit", vec![value]),
                ConvertFunction::RmComma => syntax::call("convert_rmcomma", vec![value]),
            };
            match &conversion.alias {
                Some(alias) => pipe.extend(&alias.path, converted, planner.sql)?,
                None if conversion.function == ConvertFunction::None => {}
                None => pipe.replace(&field, converted, planner.sql)?,
            }
        }
    }
    Ok(pipe)
}
