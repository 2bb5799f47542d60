//! `xyseries [sep=text] [format=text] x name in (value, …) fields`: names of a column as columns.

use crate::ast::{FieldName, StringLiteral};

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
