//! `weighted_avg`: the mean of a field's values, each weighted by another field's.

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::members::ErrorLabel;
use super::multi_terms::field_config;

/// A `weighted_avg` aggregation.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightedAvg {
    /// Field of the values.
    pub value: String,
    /// Value that stands for a missing one.
    pub value_missing: Option<Value>,
    /// Field of the weights; a document has at most one.
    pub weight: String,
    /// Weight that stands for a missing one.
    pub weight_missing: Option<Value>,
    /// Format of the result.
    pub format: Option<String>,
}

impl WeightedAvg {
    pub(super) fn parse(part: ErrorLabel<'_>, members: &Map<String, Value>) -> Result<Self> {
        let (mut value, mut weight, mut format) = (None, None, None);
        for (key, member) in members {
            let config = || match member {
                Value::Object(_) => {
                    field_config(part.name, member).map(Some).map_err(|error| part.unread(key, error))
                }
                other => Err(part.wrong_type(key, other)),
            };
            match key.as_str() {
                "value" => value = config()?,
                "weight" => weight = config()?,
                "format" => format = Some(part.text(key, member)?),
                // Has an effect on unmapped fields only, which have no values.
                "value_type" => {
                    part.text(key, member)?;
                }
                _ => return Err(part.unknown(key, &["format", "value", "value_type", "weight"])),
            }
        }
        let missing = |name: &str| {
            Error::IllegalArgument(format!("Could not find field name [{name}] in multiValuesSource"))
        };
        let value = value.ok_or_else(|| missing("value"))?;
        let weight = weight.ok_or_else(|| missing("weight"))?;
        Ok(Self {
            value: value.field.ok_or_else(|| missing("value"))?,
            value_missing: value.missing,
            weight: weight.field.ok_or_else(|| missing("weight"))?,
            weight_missing: weight.missing,
            format,
        })
    }
}
