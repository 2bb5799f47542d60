//! `nomv field`: an array as one text.

use crate::ast::FieldName;

/// `nomv`: makes one text of an array, an element a line.
#[derive(Clone, Debug, PartialEq)]
pub struct NoMvCommand {
    /// The field.
    pub field: FieldName,
}
