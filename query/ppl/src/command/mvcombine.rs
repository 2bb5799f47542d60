//! `mvcombine field [delim=text]`: one row of rows that differ in a field alone.

use crate::ast::FieldName;
use crate::parser::{Parser, Parsing};

/// `mvcombine`: makes one row of rows that differ in a field alone; the field becomes an array.
#[derive(Clone, Debug, PartialEq)]
pub struct MvCombineCommand {
    /// The field.
    pub field: FieldName,
    /// `delim`: the text between elements where the array is shown as text.
    pub delim: Option<String>,
}

impl Parser<'_> {
    pub(crate) fn mvcombine_command(&mut self) -> Parsing<MvCombineCommand> {
        let delim = if self.option("delim") { Some(self.string()?.value) } else { None };
        let field = self.field()?;
        let delim = if self.option("delim") { Some(self.string()?.value) } else { delim };
        Ok(MvCombineCommand { field, delim })
    }
}
