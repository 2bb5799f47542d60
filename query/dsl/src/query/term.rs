//! `term`: one exact value of a field; not analyzed, also on text fields.

use std::fmt;

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::{Clause, Common, Parser, single_field, unsupported};
use crate::json;

/// A `term` clause.
#[derive(Clone, Debug, PartialEq)]
pub struct TermQuery {
    /// Field path.
    pub field: String,
    /// The value, a JSON scalar.
    pub value: Value,
    /// `true` if letters match in either case.
    pub case_insensitive: bool,
    /// Boost and name.
    pub common: Common,
}

impl Clause for TermQuery {
    fn parse(_: &mut Parser, fields: &Map<String, Value>) -> Result<Self> {
        parse("term", fields, true)
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}", self.field, self.value)
    }
}

/// Parses a clause about a term; `folds` tells whether letters may match in either case.
pub(super) fn parse(clause: &str, fields: &Map<String, Value>, folds: bool) -> Result<TermQuery> {
    let mut common = Common::default();
    let mut rest = Map::new();
    for (key, value) in fields {
        if !(matches!(key.as_str(), "boost" | "_name")
            && !value.is_object()
            && common.take(clause, key, value)?)
        {
            rest.insert(key.clone(), value.clone());
        }
    }
    let (field, value) = single_field(clause, &rest)?;
    let (mut given, mut case_insensitive) = (None, false);
    match value {
        Value::Object(options) => {
            for (key, option) in options {
                match key.as_str() {
                    "value" | "term" => given = Some(option.clone()),
                    "case_insensitive" if folds => case_insensitive = json::boolean(option)?,
                    _ if common.take(clause, key, option)? => {}
                    _ => return Err(unsupported(clause, key)),
                }
            }
        }
        Value::Array(_) => {
            return Err(Error::Parsing(format!("[{clause}] query does not support array of values")));
        }
        scalar => given = Some(scalar.clone()),
    }
    match given {
        None | Some(Value::Null) => Err(Error::IllegalArgument("value cannot be null".to_owned())),
        Some(Value::Array(_)) => {
            Err(Error::Parsing(format!("[{clause}] query does not support array of values")))
        }
        Some(Value::Object(_)) => {
            Err(Error::Parsing(format!("[{clause}] unknown token [START_OBJECT] after [value]")))
        }
        Some(value) => Ok(TermQuery { field: field.to_owned(), value, case_insensitive, common }),
    }
}
