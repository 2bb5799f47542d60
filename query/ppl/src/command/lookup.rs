//! `lookup index key [as field], … [append|replace|output field [as alias], …]`: columns of another index by key.

use crate::ast::{FieldName, IndexSelector};
use crate::parser::{Parser, Parsing};

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

/// The modes by name.
const MODES: [(&str, LookupMode); 3] =
    [("append", LookupMode::Append), ("replace", LookupMode::Replace), ("output", LookupMode::Replace)];

impl Parser<'_> {
    pub(crate) fn lookup_command(&mut self) -> Parsing<LookupCommand> {
        let index = self.index()?;
        let keys = self.lookup_pairs()?;
        let output = match self.one_of(&MODES) {
            Some(mode) => Some(LookupOutput { mode, fields: self.lookup_pairs()? }),
            None => None,
        };
        Ok(LookupCommand { index, keys, output })
    }

    fn lookup_pairs(&mut self) -> Parsing<Vec<LookupPair>> {
        let mut pairs = Vec::new();
        loop {
            let start = self.start();
            let lookup_field = self.field()?;
            let input_field = if self.keyword("as") { self.field()? } else { lookup_field.clone() };
            pairs.push(LookupPair { lookup_field, input_field });
            self.check_count(start, pairs.len())?;
            if !self.symbol(",") {
                return Ok(pairs);
            }
        }
    }
}
