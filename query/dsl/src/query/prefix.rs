//! `prefix`: values (on text fields: terms) that start with a string.

use std::fmt;

use millrace_work::error::Result;
use serde_json::{Map, Value};

use super::{Clause, Common, Normalize, Parser, Rewrite, single};

/// A `prefix` clause.
#[derive(Clone, Debug, PartialEq)]
pub struct PrefixQuery {
    /// Field path.
    pub field: String,
    /// Prefix of the values.
    pub value: String,
    /// Normalization of the value for the field's terms.
    pub normalize: Normalize,
    /// `true` if ASCII letters match in either case.
    pub case_insensitive: bool,
    /// Rewrite of the terms; one score for all where absent.
    pub rewrite: Option<Rewrite>,
    /// Boost and name.
    pub common: Common,
}

impl Clause for PrefixQuery {
    fn parse(_: &mut Parser, fields: &Map<String, Value>) -> Result<Self> {
        let single::Pattern { field, value, case_insensitive, rewrite, common } =
            single::pattern("prefix", fields)?;
        Ok(Self { field, value, normalize: Normalize::Field, case_insensitive, rewrite, common })
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}*", self.field, Value::String(self.value.clone()))
    }
}
