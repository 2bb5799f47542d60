//! `lookup index key [as field], … [append|replace|output field [as alias], …]`: columns of another index by key.

use crate::ast::{FieldName, IndexSelector};

/// `lookup`: adds columns of another index to each row.
#[derive(Clone, Debug, PartialEq)]
pub struct LookupCommand {
    /// The other index.
    pub index: IndexSelector,
    /// At least one key.
    pub keys: Vec<LookupPair>,
    /// The columns; `None` means all but the keys, replaced.
    pub output: Option<LookupOutput>,
}

/// A field of the other index and a field of the input.
#[derive(Clone, Debug, PartialEq)]
pub struct LookupPair {
    /// The field of the other index.
    pub lookup_field: FieldName,
    /// The field of the input: the name behind `as`, else the same.
    pub input_field: FieldName,
}

/// The columns that `lookup` adds.
#[derive(Clone, Debug, PartialEq)]
pub struct LookupOutput {
    /// The treatment of values that are there.
    pub mode: LookupMode,
    /// At least one column.
    pub fields: Vec<LookupPair>,
}

/// Treatment of values of the input by `lookup`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupMode {
    /// They fill nulls only.
    Append,
    /// They replace values: `replace`, `output`.
    Replace,
}
