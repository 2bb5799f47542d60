//! `flatten field [as (alias, …)]`: members of an object as columns.

use crate::ast::FieldName;

/// `flatten`: makes a column of each member of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct FlattenCommand {
    /// The field with objects.
    pub field: FieldName,
    /// Names for the members, in their order; empty keeps their own.
    pub aliases: Vec<FieldName>,
}
