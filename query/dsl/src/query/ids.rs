//! `ids`: documents by their ids.

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::Common;
use crate::json;

/// An `ids` clause.
#[derive(Clone, Debug, PartialEq)]
pub struct IdsQuery {
    /// The ids, without repetition.
    pub values: Vec<String>,
    /// Boost and name.
    pub common: Common,
}

impl IdsQuery {
    pub(super) fn parse(fields: &Map<String, Value>) -> Result<Self> {
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
}
