//! `makeresults [count=n] [format=csv|json] [data=text]`: rows of the text itself.

use crate::ast::StringLiteral;

/// `makeresults`: rows without an index.
#[derive(Clone, Debug, PartialEq)]
pub struct MakeResultsCommand {
    /// `count`: the number of rows with `@timestamp` alone (default 1).
    pub count: u64,
    /// `format`: the form of the data.
    pub format: Option<DataFormat>,
    /// `data`: rows as text.
    pub data: Option<StringLiteral>,
}

/// The form of data in `makeresults`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataFormat {
    /// A line with names, then a line a row.
    Csv,
    /// An array of objects.
    Json,
}
