//! `wildcard`: values (on text fields: terms) that a pattern of `*` and `?` describes.

use std::fmt;

use millrace_work::error::Result;
use serde_json::{Map, Value};

use super::{Clause, Common, Normalize, Parser, Rewrite, single};

/// A `wildcard` clause.
#[derive(Clone, Debug, PartialEq)]
pub struct WildcardQuery {
    /// Field path.
    pub field: String,
    /// The pattern: `*` any characters, `?` one, `\` takes the next as it is.
    pub value: String,
    /// Normalization of the pattern's other characters for the field's terms.
    pub normalize: Normalize,
    /// `true` if ASCII letters match in either case.
    pub case_insensitive: bool,
    /// Rewrite of the terms; one score for all where absent.
    pub rewrite: Option<Rewrite>,
    /// Boost and name.
    pub common: Common,
}

impl Clause for WildcardQuery {
    fn parse(_: &mut Parser, fields: &Map<String, Value>) -> Result<Self> {
        let single::Pattern { field, value, case_insensitive, rewrite, common } =
            single::pattern("wildcard", fields)?;
        Ok(Self { field, value, normalize: Normalize::Field, case_insensitive, rewrite, common })
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} like {}", self.field, self.value)
    }
}
