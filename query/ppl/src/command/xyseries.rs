//! `xyseries [sep=text] [format=text] x name in (value, …) fields`: names of a column as columns.

use crate::ast::{FieldName, StringLiteral};
use crate::parser::{Parser, Parsing};

/// `xyseries`: turns values of a column into columns.
#[derive(Clone, Debug, PartialEq)]
pub struct XySeriesCommand {
    /// The field of rows.
    pub x_field: FieldName,
    /// The field whose values name columns.
    pub name_field: FieldName,
    /// The values; at least one.
    pub values: Vec<StringLiteral>,
    /// The fields with data; at least one.
    pub data_fields: Vec<FieldName>,
    /// `sep`: the text between field and value in names (default `: `).
    pub sep: Option<String>,
    /// `format`: a name with `$AGG$` and `$VAL$`.
    pub format: Option<String>,
}

impl Parser<'_> {
    pub(crate) fn xyseries_command(&mut self) -> Parsing<XySeriesCommand> {
        let (mut sep, mut format) = (None, None);
        loop {
            if self.option("sep") {
                sep = Some(self.string()?.value);
            } else if self.option("format") {
                format = Some(self.string()?.value);
            } else {
                break;
            }
        }
        let x_field = self.field()?;
        let name_field = self.field()?;
        self.expect_keyword("in")?;
        self.expect_symbol("(")?;
        let mut values = vec![self.string()?];
        while self.symbol(",") {
            let start = self.start();
            values.push(self.string()?);
            self.check_count(start, values.len())?;
        }
        self.expect_symbol(")")?;
        let data_fields = self.field_list()?;
        Ok(XySeriesCommand { x_field, name_field, values, data_fields, sep, format })
    }
}
