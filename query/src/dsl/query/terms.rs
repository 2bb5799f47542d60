//! `terms`: any of a list of exact values, with one score.

use serde_json::{Map, Value};

use super::Common;
use crate::dsl::json::token;
use crate::error::{Error, Result};

/// A `terms` clause.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TermsQuery {
    /// Field path.
    pub field: String,
    /// The values, JSON scalars.
    pub values: Vec<Value>,
    /// Boost and name.
    pub common: Common,
}

impl TermsQuery {
    pub(super) fn parse(fields: &Map<String, Value>) -> Result<Self> {
        let mut common = Common::default();
        let mut found: Option<(&str, &Vec<Value>)> = None;
        for (key, value) in fields {
            match value {
                Value::Array(values) => {
                    if found.is_some() {
                        return Err(Error::Parsing(
                            "[terms] query does not support multiple fields".to_owned(),
                        ));
                    }
                    found = Some((key, values));
                }
                Value::Object(_) => return Err(unknown_token(key, value)),
                scalar => {
                    if !common.take("terms", key, scalar)? {
                        return Err(unknown_token(key, value));
                    }
                }
            }
        }
        let Some((field, values)) = found else {
            return Err(Error::Parsing(
                "[terms] query requires a field name, followed by array of terms or a document lookup specification"
                    .to_owned(),
            ));
        };
        for value in values {
            match value {
                Value::Null => {
                    return Err(Error::Parsing("No value specified for terms query".to_owned()));
                }
                Value::Array(_) | Value::Object(_) => return Err(unknown_token(field, value)),
                _ => {}
            }
        }
        Ok(Self { field: field.to_owned(), values: values.clone(), common })
    }
}

fn unknown_token(key: &str, value: &Value) -> Error {
    Error::Parsing(format!("[terms] unknown token [{}] after [{key}]", token(value)))
}
