//! `top [n] [options] fields [by fields]` and `rare …`: the most and the least frequent values.

use crate::ast::FieldName;

/// `top` and `rare`: counts combinations of values and keeps the most or the least frequent ones.
#[derive(Clone, Debug, PartialEq)]
pub struct RareTopCommand {
    /// `true` for `rare`.
    pub is_rare: bool,
    /// The most combinations that stay in each group (default 10).
    pub count: u64,
    /// `countfield`: the column with the counts (default `count`).
    pub countfield: String,
    /// `showcount`: whether counts are shown (default true).
    pub showcount: bool,
    /// `usenull`: whether rows that miss a field count; `None` takes the setting.
    pub usenull: Option<bool>,
    /// At least one field.
    pub fields: Vec<FieldName>,
    /// The fields behind `by`.
    pub by: Vec<FieldName>,
}
