//! `distance_feature`: documents score by how near a date or a point is to an origin.

use std::fmt;

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::{Clause, Common, Parser};
use crate::json::{self, token};

/// A `distance_feature` clause.
#[derive(Clone, Debug, PartialEq)]
pub struct DistanceFeatureQuery {
    /// Field path.
    pub field: String,
    /// A date or a point, as the field's type reads it.
    pub origin: Value,
    /// The distance at which half of the boost is left.
    pub pivot: String,
    /// Boost and name.
    pub common: Common,
}

impl Clause for DistanceFeatureQuery {
    fn parse(_: &mut Parser, fields: &Map<String, Value>) -> Result<Self> {
        const CLAUSE: &str = "distance_feature";
        let mut common = Common::default();
        let (mut field, mut origin, mut pivot) = (None, None, None);
        for (key, value) in fields {
            match (key.as_str(), value) {
                ("origin", Value::Bool(_) | Value::Null) => {
                    return Err(unfit(CLAUSE, key, value));
                }
                ("origin", value) => origin = Some(value.clone()),
                ("field" | "pivot", value) => {
                    let text = json::text(value).ok_or_else(|| unfit(CLAUSE, key, value))?;
                    match key.as_str() {
                        "field" => field = Some(text),
                        _ => pivot = Some(text),
                    }
                }
                _ if common.take(CLAUSE, key, value)? => {}
                _ => return Err(Error::unknown_member(CLAUSE, key)),
            }
        }
        let required = |name: &str| Error::IllegalArgument(format!("Required [{name}]"));
        Ok(Self {
            field: field.ok_or_else(|| required("field"))?,
            origin: origin.ok_or_else(|| required("origin"))?,
            pivot: pivot.ok_or_else(|| required("pivot"))?,
            common,
        })
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} near {} by {}", self.field, self.origin, self.pivot)
    }
}

fn unfit(clause: &str, key: &str, value: &Value) -> Error {
    json::content(format!("[{clause}] {key} doesn't support values of type: {}", token(value)))
}
