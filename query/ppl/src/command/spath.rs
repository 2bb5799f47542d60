//! `spath [input=field] [output=field] [path=…]`: values in a text that is JSON.

use crate::ast::{Expression, FieldName, TextSpan};

/// `spath`: extracts values of JSON.
#[derive(Clone, Debug, PartialEq)]
pub struct SpathCommand {
    /// `input`: the field with JSON (default `_raw`).
    pub input: Option<Expression>,
    /// `output`: the column (default the path).
    pub output: Option<FieldName>,
    /// `path`, such as `a.b{0}.c`; `None` extracts everything.
    pub path: Option<SpathPath>,
}

/// A path into JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpathPath {
    /// The path as written, without quotes.
    pub path: String,
    /// The position of the text.
    pub span: TextSpan,
}
