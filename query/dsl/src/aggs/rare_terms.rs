//! `rare_terms`: values that few documents have, rarest first.

use millrace_work::error::Result;
use serde_json::{Map, Value};

use super::include::IncludeExclude;
use super::members::ErrorLabel;
use super::source::{AcceptedMembers, ValuesSource};

/// Members of the aggregation.
const KNOWN: &[&str] = &[
    "exclude",
    "field",
    "format",
    "include",
    "max_doc_count",
    "missing",
    "precision",
    "script",
    "value_type",
];

/// A `rare_terms` aggregation.
#[derive(Clone, Debug, PartialEq)]
pub struct RareTerms {
    /// Source of values.
    pub source: ValuesSource,
    /// Selection of the terms that make buckets.
    pub include: IncludeExclude,
    /// Most documents of a bucket, 1 to 100.
    pub max_doc_count: u64,
    /// Accuracy that OpenSearch would give its filter. Counts here are exact.
    pub precision: f64,
}

impl RareTerms {
    pub(super) fn parse(part: ErrorLabel<'_>, members: &Map<String, Value>) -> Result<Self> {
        let mut rare = Self {
            source: ValuesSource::default(),
            include: IncludeExclude::default(),
            max_doc_count: 1,
            precision: 0.001,
        };
        for (key, value) in members {
            match key.as_str() {
                "max_doc_count" => {
                    let number = part.long(key, value)?;
                    rare.max_doc_count = match number {
                        1..=100 => number as u64,
                        101.. => {
                            let reason = format!("[max_doc_count] must be smallerthan 100in [{}]", part.name);
                            return Err(part.refused(key, reason));
                        }
                        _ => {
                            let reason = format!(
                                "[max_doc_count] must be greater than 0. Found [{number}] in [{}]",
                                part.name
                            );
                            return Err(part.refused(key, reason));
                        }
                    };
                }
                "precision" => {
                    rare.precision = part.double(key, value)?;
                    if rare.precision < 0.00001 {
                        return Err(part.refused(key, "[precision] must be greater than 0.00001".to_owned()));
                    }
                }
                _ if rare.include.take(part, key, value)? => {}
                _ if rare.source.take(part, AcceptedMembers::Format, key, value)? => {}
                _ => return Err(part.unknown(key, KNOWN)),
            }
        }
        rare.source = rare.source.required(part)?;
        Ok(rare)
    }
}
