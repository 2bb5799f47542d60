//! `rename old as new, …`: other names for columns.

use crate::ast::FieldPattern;

/// `rename`: gives columns other names. The text of each `*` goes to the `*` of the same number.
#[derive(Clone, Debug, PartialEq)]
pub struct RenameCommand {
    /// At least one pair of an old and a new name.
    pub renamings: Vec<Renaming>,
}

/// An old and a new name.
#[derive(Clone, Debug, PartialEq)]
pub struct Renaming {
    /// The column, or a pattern.
    pub from: FieldPattern,
    /// The new name, with as many `*`.
    pub to: FieldPattern,
}
