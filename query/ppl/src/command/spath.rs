//! `spath [input=field] [output=field] [path=…]`: values in a text that is JSON.

use crate::ast::{Expression, FieldName, TextSpan};
use crate::parser::{Expectation, Mismatch, Parser, Parsing};

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

impl Parser<'_> {
    pub(crate) fn spath_command(&mut self) -> Parsing<SpathCommand> {
        let mut command = SpathCommand { input: None, output: None, path: None };
        loop {
            if self.option("input") {
                command.input = Some(self.value_expression()?);
            } else if self.option("output") {
                command.output = Some(self.new_name()?);
            } else if self.option("path")
                || (command.path.is_none() && (self.peek_name() || self.peek_string()))
            {
                command.path = Some(self.spath_path()?);
            } else {
                return Ok(command);
            }
        }
    }

    fn spath_path(&mut self) -> Parsing<SpathPath> {
        self.note(Expectation::Other("a path such as a.b{0}"));
        if self.peek_string() {
            let text = self.string()?;
            return Ok(SpathPath { path: text.value, span: text.span });
        }
        let start = self.start();
        let mut path = String::new();
        loop {
            if self.rest().starts_with('`') {
                path.push_str(&self.quoted('`')?);
                continue;
            }
            let is_part = |letter: char| {
                letter.is_alphanumeric() || matches!(letter, '_' | '@' | '$' | '-' | '.' | '{' | '}' | '*')
            };
            let length = self.rest().find(|letter: char| !is_part(letter)).unwrap_or(self.rest().len());
            if length == 0 {
                break;
            }
            path.push_str(self.take(length));
        }
        if path.is_empty() {
            return Err(Mismatch);
        }
        Ok(SpathPath { path, span: self.span_from(start) })
    }
}
