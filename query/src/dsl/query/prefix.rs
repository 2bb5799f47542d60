//! `prefix`: values (on text fields: terms) that start with a string, with one score.

use serde_json::{Map, Value};

use super::{Common, single_field, unsupported};
use crate::dsl::json;
use crate::error::{Error, Result};

/// A `prefix` clause.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PrefixQuery {
    /// Field path.
    pub field: String,
    /// What values start with.
    pub value: String,
    /// Whether letters match in either case.
    pub case_insensitive: bool,
    /// Boost and name.
    pub common: Common,
}

impl PrefixQuery {
    pub(super) fn parse(fields: &Map<String, Value>) -> Result<Self> {
        let mut common = Common::default();
        let mut rest = Map::new();
        for (key, value) in fields {
            if !(key == "_name" && !value.is_object() && common.take("prefix", key, value)?) {
                rest.insert(key.clone(), value.clone());
            }
        }
        let (field, body) = single_field("prefix", &rest)?;
        let (mut value, mut case_insensitive) = (None, false);
        match body {
            Value::Object(options) => {
                for (key, option) in options {
                    match key.as_str() {
                        "value" | "prefix" => value = json::text(option),
                        "case_insensitive" => case_insensitive = json::boolean(option)?,
                        "rewrite" => rewrite(option)?,
                        _ if common.take("prefix", key, option)? => {}
                        _ => return Err(unsupported("prefix", key)),
                    }
                }
            }
            scalar => value = json::text(scalar),
        }
        let value = value.ok_or_else(|| Error::IllegalArgument("value cannot be null".to_owned()))?;
        Ok(Self { field: field.to_owned(), value, case_insensitive, common })
    }
}

/// Accepts the ways of rewriting that give every match one score; the others would change scores.
fn rewrite(value: &Value) -> Result<()> {
    match value.as_str() {
        Some("constant_score" | "constant_score_boolean" | "constant_score_blended") => Ok(()),
        _ => Err(Error::IllegalArgument(format!(
            "Failed to parse rewrite_method [{}]",
            json::text(value).unwrap_or_default()
        ))),
    }
}
