//! `significant_terms`: values that are more frequent among the matching documents than elsewhere.

use std::sync::Arc;

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::include::IncludeExclude;
use super::members::ErrorLabel;
use super::source::{AcceptedMembers, ValuesSource};
use super::terms::{Thresholds, execution_hint};
use crate::json::{content, token};
use crate::query::{self, Query};

/// A `significant_terms` aggregation.
#[derive(Clone, Debug, PartialEq)]
pub struct SignificantTerms {
    /// Source of values.
    pub source: ValuesSource,
    /// Selection of the terms that make buckets.
    pub include: IncludeExclude,
    /// Bounds on the number of buckets, and on their documents.
    pub thresholds: Thresholds,
    /// Heuristic that scores terms.
    pub heuristic: Heuristic,
    /// Filter of the background; all documents where absent.
    pub background_filter: Option<Arc<Query>>,
}

/// Heuristic for the significance of a term.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Heuristic {
    Jlh,
    MutualInformation { include_negatives: bool, background_is_superset: bool },
    ChiSquare { include_negatives: bool, background_is_superset: bool },
    Gnd { background_is_superset: bool },
    Percentage,
}

impl SignificantTerms {
    pub(super) fn parse(part: ErrorLabel<'_>, members: &Map<String, Value>) -> Result<Self> {
        let mut significant = Self {
            source: ValuesSource::default(),
            include: IncludeExclude::default(),
            thresholds: Thresholds::new(10, 3),
            heuristic: Heuristic::Jlh,
            background_filter: None,
        };
        for (key, value) in members {
            match key.as_str() {
                "background_filter" => {
                    if !value.is_object() {
                        return Err(part.wrong_type(key, value));
                    }
                    let query = query::parse(value).map_err(|error| part.unread(key, error))?;
                    significant.background_filter = Some(Arc::new(query));
                }
                "execution_hint" => execution_hint(part, key, value)?,
                "script_heuristic" => {
                    return Err(Error::Parsing(
                        "[significant_terms] [script_heuristic] is not supported: there are no scripts"
                            .to_owned(),
                    ));
                }
                _ if significant.include.take(part, key, value)? => {}
                _ if significant.thresholds.take(part, key, value)? => {}
                _ if significant.source.take(part, AcceptedMembers::Format, key, value)? => {}
                _ => match Heuristic::parse(part, key, value)? {
                    Some(heuristic) => significant.heuristic = heuristic,
                    None => return Err(Error::unknown_member(part.kind, key)),
                },
            }
        }
        significant.source = significant.source.required(part)?;
        significant.thresholds = significant.thresholds.consistent();
        Ok(significant)
    }
}

impl Heuristic {
    /// Parses a heuristic; `None` where there is none of that name.
    fn parse(part: ErrorLabel<'_>, key: &str, value: &Value) -> Result<Option<Self>> {
        let known: (&'static str, &[&str]) = match key {
            "jlh" => ("jlh", &[]),
            "mutual_information" => ("mutual_information", &["include_negatives", "background_is_superset"]),
            "chi_square" => ("chi_square", &["include_negatives", "background_is_superset"]),
            "gnd" => ("gnd", &["background_is_superset"]),
            "percentage" => ("percentage", &[]),
            _ => return Ok(None),
        };
        let own = ErrorLabel { kind: known.0, name: part.name };
        let Value::Object(members) = value else {
            return Err(content(format!("[{key}] Expected START_OBJECT but was: {}", token(value))));
        };
        let (mut include_negatives, mut background_is_superset) = (false, true);
        for (option, value) in members {
            if !known.1.contains(&option.as_str()) {
                return Err(own.unknown(option, known.1));
            }
            match option.as_str() {
                "include_negatives" => include_negatives = own.boolean(option, value)?,
                _ => background_is_superset = own.boolean(option, value)?,
            }
        }
        Ok(Some(match key {
            "jlh" => Self::Jlh,
            "mutual_information" => Self::MutualInformation { include_negatives, background_is_superset },
            "chi_square" => Self::ChiSquare { include_negatives, background_is_superset },
            "gnd" => Self::Gnd { background_is_superset },
            _ => Self::Percentage,
        }))
    }
}
