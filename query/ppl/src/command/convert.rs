//! `convert [timeformat=text] function(field) [as alias], …`: values to other types.

use crate::ast::{FieldName, FieldPattern, TextSpan};
use crate::parser::{Mismatch, Parser, Parsing};

/// `convert`: converts values of fields, in place or under an alias.
#[derive(Clone, Debug, PartialEq)]
pub struct ConvertCommand {
    /// `timeformat`: the format of `ctime` and `mktime`.
    pub timeformat: Option<String>,
    /// At least one conversion.
    pub conversions: Vec<Conversion>,
}

/// A conversion of a field.
#[derive(Clone, Debug, PartialEq)]
pub struct Conversion {
    /// The function.
    pub function: ConvertFunction,
    /// The field.
    pub field: FieldPattern,
    /// The name behind `as`.
    pub alias: Option<FieldName>,
    /// The text of the conversion.
    pub span: TextSpan,
}

/// A function of `convert`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConvertFunction {
    /// To a number where the text is one, else unchanged.
    Auto,
    /// To a number, else null.
    Num,
    /// From seconds since 1970 to text.
    Ctime,
    /// From text to seconds since 1970.
    Mktime,
    /// From `MM:SS.fraction` to seconds.
    Mstime,
    /// From `D+HH:MM:SS` to seconds.
    Dur2Sec,
    /// From sizes such as `10m` to kilobytes.
    Memk,
    /// To a number without its unit.
    RmUnit,
    /// To a number without its commas.
    RmComma,
    /// Unchanged.
    None,
}

/// The functions by name.
const FUNCTIONS: [(&str, ConvertFunction); 10] = [
    ("auto", ConvertFunction::Auto),
    ("num", ConvertFunction::Num),
    ("ctime", ConvertFunction::Ctime),
    ("mktime", ConvertFunction::Mktime),
    ("mstime", ConvertFunction::Mstime),
    ("dur2sec", ConvertFunction::Dur2Sec),
    ("memk", ConvertFunction::Memk),
    ("rmunit", ConvertFunction::RmUnit),
    ("rmcomma", ConvertFunction::RmComma),
    ("none", ConvertFunction::None),
];

impl Parser<'_> {
    pub(crate) fn convert_command(&mut self) -> Parsing<ConvertCommand> {
        let timeformat = if self.option("timeformat") { Some(self.string()?.value) } else { None };
        let mut conversions = vec![self.conversion()?];
        loop {
            let has_comma = self.symbol(",");
            if !has_comma && !self.peek_name() {
                return Ok(ConvertCommand { timeformat, conversions });
            }
            let start = self.start();
            conversions.push(self.conversion()?);
            self.check_count(start, conversions.len())?;
        }
    }

    fn conversion(&mut self) -> Parsing<Conversion> {
        let start = self.start();
        let function = self.one_of(&FUNCTIONS).ok_or(Mismatch)?;
        self.expect_symbol("(")?;
        let field = self.field_pattern()?;
        self.expect_symbol(")")?;
        let alias = self.alias()?;
        Ok(Conversion { function, field, alias, span: self.span_from(start) })
    }
}
