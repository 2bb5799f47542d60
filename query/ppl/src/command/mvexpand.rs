//! `mvexpand field [limit=n]`: a row for each element of an array.

use crate::ast::FieldName;
use crate::parser::{Parser, Parsing};

/// `mvexpand`: makes a row of each element of an array.
#[derive(Clone, Debug, PartialEq)]
pub struct MvExpandCommand {
    /// The field with arrays.
    pub field: FieldName,
    /// `limit`: the most elements of each row.
    pub limit: Option<u64>,
}

impl Parser<'_> {
    pub(crate) fn mvexpand_command(&mut self) -> Parsing<MvExpandCommand> {
        let field = self.field()?;
        let limit = if self.option("limit") { Some(self.count("limit")?) } else { None };
        Ok(MvExpandCommand { field, limit })
    }
}
