//! `rex field=name [mode=extract|sed] [max_match=n] [offset_field=name] pattern`: parts of a text.

use crate::ast::{FieldName, StringLiteral};

/// `rex`: adds a column for each named group, or edits a text as `sed` does.
#[derive(Clone, Debug, PartialEq)]
pub struct RexCommand {
    /// The field.
    pub field: FieldName,
    /// The regular expression, or the expression of `sed`.
    pub pattern: StringLiteral,
    /// `mode` (default extract).
    pub mode: RexMode,
    /// `max_match`: the most matches (default 1); more than one makes arrays, 0 means the setting's limit.
    pub max_match: u64,
    /// `offset_field`: the column with the positions of groups.
    pub offset_field: Option<FieldName>,
}

/// Operation of `rex`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RexMode {
    /// Adds a column for each named group.
    #[default]
    Extract,
    /// Replaces text: `s/…/…/g`, `y/…/…/`.
    Sed,
}
