//! `convert [timeformat=text] function(field) [as alias], …`: values to other types.

use crate::ast::{FieldName, FieldPattern, TextSpan};

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
