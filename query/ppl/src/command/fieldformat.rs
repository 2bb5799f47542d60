//! `fieldformat field = [text .] expression [. text], …`: values as text for people.

use crate::ast::{Expression, FieldName, StringLiteral};

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
