//! `sort [n] [+|-]field [asc|desc], …`: the order of rows.

use crate::ast::{FieldName, TextSpan};

/// `sort`: orders rows.
#[derive(Clone, Debug, PartialEq)]
pub struct SortCommand {
    /// The most rows that stay; 0 and `None` mean all.
    pub count: Option<u64>,
    /// At least one key.
    pub keys: Vec<SortTerm>,
}

/// A key of an order.
#[derive(Clone, Debug, PartialEq)]
pub struct SortTerm {
    /// The field.
    pub field: FieldName,
    /// `true` for `-field`, `field desc`, `field d`.
    pub is_descending: bool,
    /// The type that values are compared as.
    pub comparison: SortComparison,
    /// The text of the key.
    pub span: TextSpan,
}

/// The type that values are compared as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortComparison {
    /// The type of the field: the field alone, or `auto(field)`.
    #[default]
    Auto,
    /// `str(field)`
    Text,
    /// `ip(field)`
    Ip,
    /// `num(field)`
    Number,
}
