//! `exists`: documents that have any value of a field, or of a field of an object.

use std::fmt;

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::{Clause, Common, Parser, unsupported};
use crate::json;

/// An `exists` clause.
#[derive(Clone, Debug, PartialEq)]
pub struct ExistsQuery {
    /// Field path, object path, or pattern with `*`.
    pub field: String,
    /// Boost and name.
    pub common: Common,
}

impl Clause for ExistsQuery {
    fn parse(_: &mut Parser, fields: &Map<String, Value>) -> Result<Self> {
        let mut common = Common::default();
        let mut field = None;
        for (key, value) in fields {
            match (key.as_str(), value) {
                (_, Value::Array(_) | Value::Object(_)) => {
                    return Err(Error::Parsing(format!(
                        "[exists] unknown token [{}] after [{key}]",
                        json::token(value)
                    )));
                }
                ("field", value) => field = json::text(value),
                _ if common.take("exists", key, value)? => {}
                _ => return Err(unsupported("exists", key)),
            }
        }
        match field {
            Some(field) if !field.is_empty() => Ok(Self { field, common }),
            _ => Err(Error::Parsing("[exists] must be provided with a [field]".to_owned())),
        }
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.field)
    }
}
