//! `prefix`: values (on text fields: terms) that start with a string.

use std::fmt;

use millrace_work::error::Result;
use serde_json::{Map, Value};

use super::{Clause, Common, Normalize, Parser, Rewrite, single};
use crate::json;

/// A `prefix` clause.
#[derive(Clone, Debug, PartialEq)]
pub struct PrefixQuery {
    /// Field path.
    pub field: String,
    /// What values start with.
    pub value: String,
    /// How the value is made fit for the field's terms.
    pub normalize: Normalize,
    /// Whether ASCII letters match in either case.
    pub case_insensitive: bool,
    /// What the terms become; one score for all where absent.
    pub rewrite: Option<Rewrite>,
    /// Boost and name.
    pub common: Common,
}

impl Clause for PrefixQuery {
    fn parse(_: &mut Parser, fields: &Map<String, Value>) -> Result<Self> {
        let (mut case_insensitive, mut rewrite) = (false, None);
        let clause = single::parse("prefix", &["value", "prefix"], fields, &mut |key, option| {
            match key {
                "case_insensitive" => case_insensitive = json::boolean(option)?,
                "rewrite" => rewrite = Rewrite::option(option),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        let single::Single { field, value, common } = clause;
        Ok(Self { field, value, normalize: Normalize::Field, case_insensitive, rewrite, common })
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}*", self.field, Value::String(self.value.clone()))
    }
}
