//! `fieldformat field = [text .] expression [. text], …`: values as text for people.

use crate::ast::{Expression, FieldName, StringLiteral};
use crate::parser::{Parser, Parsing};

/// `fieldformat`: replaces fields by texts made of an expression.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldFormatCommand {
    /// At least one format.
    pub formats: Vec<FieldFormat>,
}

/// A format of a field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldFormat {
    /// The field.
    pub field: FieldName,
    /// The text in front of the value.
    pub prefix: Option<StringLiteral>,
    /// The value.
    pub value: Expression,
    /// The text behind the value.
    pub suffix: Option<StringLiteral>,
}

impl Parser<'_> {
    pub(crate) fn fieldformat_command(&mut self) -> Parsing<FieldFormatCommand> {
        let mut formats = Vec::new();
        loop {
            let start = self.start();
            formats.push(self.field_format()?);
            self.check_count(start, formats.len())?;
            if !self.symbol(",") {
                return Ok(FieldFormatCommand { formats });
            }
        }
    }

    fn field_format(&mut self) -> Parsing<FieldFormat> {
        let field = self.field()?;
        self.expect_symbol("=")?;
        let mut prefix = None;
        if self.peek_string() {
            // A text in front of a dot is a prefix; else it begins the expression.
            let place = self.checkpoint();
            let text = self.string()?;
            if self.symbol(".") {
                prefix = Some(text);
            } else {
                self.back_to(place);
            }
        }
        let value = self.expression()?;
        let suffix = if self.symbol(".") { Some(self.string()?) } else { None };
        Ok(FieldFormat { field, prefix, value, suffix })
    }
}
