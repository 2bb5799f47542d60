//! `term`: one exact value of a field; not analyzed, also on text fields.

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::{Common, single_field, unsupported};
use crate::json;

/// A `term` clause.
#[derive(Clone, Debug, PartialEq)]
pub struct TermQuery {
    /// Field path.
    pub field: String,
    /// The value, a JSON scalar.
    pub value: Value,
    /// Whether letters match in either case.
    pub case_insensitive: bool,
    /// Boost and name.
    pub common: Common,
}

impl TermQuery {
    pub(super) fn parse(fields: &Map<String, Value>) -> Result<Self> {
        let mut common = Common::default();
        let mut rest = Map::new();
        for (key, value) in fields {
            if !(matches!(key.as_str(), "boost" | "_name")
                && !value.is_object()
                && common.take("term", key, value)?)
            {
                rest.insert(key.clone(), value.clone());
            }
        }
        let (field, value) = single_field("term", &rest)?;
        let (mut given, mut case_insensitive) = (None, false);
        match value {
            Value::Object(options) => {
                for (key, option) in options {
                    match key.as_str() {
                        "value" | "term" => given = Some(option.clone()),
                        "case_insensitive" => case_insensitive = json::boolean(option)?,
                        _ if common.take("term", key, option)? => {}
                        _ => return Err(unsupported("term", key)),
                    }
                }
            }
            Value::Array(_) => {
                return Err(Error::Parsing("[term] query does not support array of values".to_owned()));
            }
            scalar => given = Some(scalar.clone()),
        }
        match given {
            None | Some(Value::Null) => Err(Error::IllegalArgument("value cannot be null".to_owned())),
            Some(Value::Array(_)) => {
                Err(Error::Parsing("[term] query does not support array of values".to_owned()))
            }
            Some(Value::Object(_)) => {
                Err(Error::Parsing("[term] unknown token [START_OBJECT] after [value]".to_owned()))
            }
            Some(value) => Ok(Self { field: field.to_owned(), value, case_insensitive, common }),
        }
    }
}
