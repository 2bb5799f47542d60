//! `matrix_stats`: moments of several fields and their correlations.

use std::collections::BTreeMap;

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::members::ErrorLabel;
use crate::json::{self, token};

/// Most fields of one aggregation: their products are kept for each bucket.
const MAX_FIELDS: usize = 100;

/// A `matrix_stats` aggregation.
#[derive(Clone, Debug, PartialEq)]
pub struct MatrixStats {
    /// The fields, in order and each once.
    pub fields: Vec<String>,
    /// Values that stand for missing ones, by field.
    pub missing: BTreeMap<String, f64>,
    /// Mode that picks one of several values.
    pub mode: MatrixMode,
}

/// Mode that picks one of several values of a document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum MatrixMode {
    #[default]
    Avg,
    Min,
    Max,
    Sum,
    Median,
}

impl MatrixStats {
    pub(super) fn parse(part: ErrorLabel<'_>, members: &Map<String, Value>) -> Result<Self> {
        let unexpected = |key: &str, value: &Value| {
            Error::Parsing(format!("Unexpected token {} [{key}] in [{}].", token(value), part.name))
        };
        let mut matrix = Self { fields: Vec::new(), missing: BTreeMap::new(), mode: MatrixMode::default() };
        for (key, value) in members {
            match (key.as_str(), value) {
                ("fields", Value::String(field)) => matrix.fields = vec![field.clone()],
                ("fields", Value::Array(items)) => {
                    matrix.fields = items
                        .iter()
                        .map(|item| json::text(item).ok_or_else(|| unexpected(key, item)))
                        .collect::<Result<_>>()?;
                }
                ("missing", Value::Object(defaults)) => {
                    for (field, value) in defaults {
                        matrix.missing.insert(field.clone(), part.double(key, value)?);
                    }
                }
                ("mode", Value::String(mode)) => {
                    matrix.mode = match mode.to_ascii_lowercase().as_str() {
                        "avg" => MatrixMode::Avg,
                        "min" => MatrixMode::Min,
                        "max" => MatrixMode::Max,
                        "sum" => MatrixMode::Sum,
                        "median" => MatrixMode::Median,
                        _ => return Err(Error::IllegalArgument(format!("Illegal sort mode: {mode}"))),
                    };
                }
                _ => return Err(unexpected(key, value)),
            }
        }
        matrix.fields.sort_unstable();
        matrix.fields.dedup();
        if matrix.fields.len() > MAX_FIELDS {
            return Err(Error::IllegalArgument(format!(
                "too many [fields] in [{}]: {} given, at most {MAX_FIELDS} allowed",
                part.name,
                matrix.fields.len()
            )));
        }
        let places = (matrix.fields.len() * 4 / 3 + 1).next_power_of_two().max(16) as u32;
        matrix.fields.sort_by_key(|field| place(field, places));
        Ok(matrix)
    }
}

/// The place of a field in a hash map of Java with so many places: OpenSearch computes and answers in their order.
fn place(field: &str, places: u32) -> u32 {
    let hash = field.encode_utf16().fold(0u32, |hash, unit| hash.wrapping_mul(31).wrapping_add(unit.into()));
    (hash ^ (hash >> 16)) & (places - 1)
}
