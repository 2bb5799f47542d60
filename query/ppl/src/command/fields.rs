//! `fields [+|-] field, …` and `table …`: the columns that stay, or that go.

use crate::ast::FieldPattern;

/// `fields` and `table`: chooses columns.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldsCommand {
    /// `true` for `fields - …`: the columns go.
    pub is_exclusion: bool,
    /// At least one name or pattern, in order.
    pub fields: Vec<FieldPattern>,
}
