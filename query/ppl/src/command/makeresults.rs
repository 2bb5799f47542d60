//! `makeresults [count=n] [format=csv|json] [data=text]`: rows of the text itself.

use crate::ast::StringLiteral;
use crate::parser::{Mismatch, Parser, Parsing};

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

impl Parser<'_> {
    pub(crate) fn makeresults_command(&mut self) -> Parsing<MakeResultsCommand> {
        let mut command = MakeResultsCommand { count: 1, format: None, data: None };
        loop {
            if self.option("count") {
                command.count = self.count("count")?;
            } else if self.option("format") {
                let formats = [("csv", DataFormat::Csv), ("json", DataFormat::Json)];
                command.format = Some(self.one_of(&formats).ok_or(Mismatch)?);
            } else if self.option("data") {
                command.data = Some(self.string()?);
            } else {
                return Ok(command);
            }
        }
    }
}
