//! `ids`: documents by their ids.

use std::fmt;

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::clause::listed;
use super::size::STRING_BYTES;
use super::{Clause, Common, Parser};
use crate::json;

/// An `ids` clause.
#[derive(Clone, Debug, PartialEq)]
pub struct IdsQuery {
    /// The ids, without repetition.
    pub values: Vec<String>,
    /// Boost and name.
    pub common: Common,
}

impl Clause for IdsQuery {
    fn parse(_: &mut Parser, fields: &Map<String, Value>) -> Result<Self> {
        let mut common = Common::default();
        let mut values = Vec::new();
        for (key, value) in fields {
            match key.as_str() {
                "values" => {
                    values = json::strings(value).ok_or_else(|| {
                        Error::Parsing(format!(
                            "[ids] values doesn't support values of type: {}",
                            json::token(value)
                        ))
                    })?;
                }
                // Indices have one type; the parameter lives on in old clients.
                "type" => {}
                _ if common.take("ids", key, value)? => {}
                _ => return Err(Error::Parsing(format!("[ids] unknown field [{key}]"))),
            }
        }
        values.sort_unstable();
        values.dedup();
        Ok(Self { values, common })
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("_id in ")?;
        listed(f, self.values.iter())
    }

    fn bytes(&self) -> usize {
        self.values.iter().map(|id| STRING_BYTES + id.capacity()).sum()
    }
}
