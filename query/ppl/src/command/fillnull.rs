//! `fillnull with value [in fields]`, `fillnull using field = value, …`, `fillnull value=… [fields]`: values for nulls.

use crate::ast::{Assignment, Expression, FieldName};

/// `fillnull`: replaces nulls.
#[derive(Clone, Debug, PartialEq)]
pub enum FillNullCommand {
    /// One value for several fields.
    One {
        /// The value.
        value: Expression,
        /// The fields; empty means all.
        fields: Vec<FieldName>,
        /// `true` for the form `value=…`, which fills only fields of the value's type.
        is_typed: bool,
    },
    /// `using`: a value for each field.
    Each(Vec<Assignment>),
}
