//! `fieldsummary [includefields=field, …] [nulls=bool]`: a row of figures for each field.

use crate::ast::FieldName;
use crate::parser::{Parser, Parsing};

/// `fieldsummary`: answers count, distinct count, least, greatest and average of each field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldSummaryCommand {
    /// `includefields`: the fields; empty means all.
    pub fields: Vec<FieldName>,
    /// `nulls`: whether nulls are counted (default false).
    pub nulls: bool,
}

impl Parser<'_> {
    pub(crate) fn fieldsummary_command(&mut self) -> Parsing<FieldSummaryCommand> {
        let mut command = FieldSummaryCommand { fields: Vec::new(), nulls: false };
        loop {
            if self.option("includefields") {
                command.fields = self.field_list()?;
            } else if self.option("nulls") {
                command.nulls = self.boolean()?;
            } else {
                return Ok(command);
            }
        }
    }
}
