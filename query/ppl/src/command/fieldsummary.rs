//! `fieldsummary [includefields=field, …] [nulls=bool]`: a row of figures for each field.

use crate::ast::FieldName;

/// `fieldsummary`: answers count, distinct count, least, greatest and average of each field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldSummaryCommand {
    /// `includefields`: the fields; empty means all.
    pub fields: Vec<FieldName>,
    /// `nulls`: whether nulls are counted (default false).
    pub nulls: bool,
}
