//! `multi_terms`: a bucket for each combination of values of several fields.

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::members::ErrorLabel;
use super::order::BucketOrder;
use super::source::{AcceptedMembers, ValuesSource};
use super::terms::{CollectMode, Thresholds};
use crate::json::{content, token};

/// Members of the aggregation.
const KNOWN: &[&str] = &[
    "collect_mode",
    "min_doc_count",
    "order",
    "shard_min_doc_count",
    "shard_size",
    "show_term_doc_count_error",
    "size",
    "terms",
];

/// Most sources.
const MAX_TERMS: usize = 64;

/// A `multi_terms` aggregation.
#[derive(Clone, Debug, PartialEq)]
pub struct MultiTerms {
    /// Sources of values: at least two.
    pub terms: Vec<ValuesSource>,
    /// Order of buckets.
    pub order: BucketOrder,
    /// Bounds on the number of buckets, and on their documents.
    pub thresholds: Thresholds,
    /// `true` if each bucket shows `doc_count_error_upper_bound`.
    pub show_error: bool,
    /// `collect_mode`; both give the same answer.
    pub collect_mode: Option<CollectMode>,
}

impl MultiTerms {
    pub(super) fn parse(part: ErrorLabel<'_>, members: &Map<String, Value>) -> Result<Self> {
        let mut multi = Self {
            terms: Vec::new(),
            order: BucketOrder::count_descending(),
            thresholds: Thresholds::new(10, 1),
            show_error: false,
            collect_mode: None,
        };
        for (key, value) in members {
            match key.as_str() {
                "terms" => multi.terms = terms(part, key, value)?,
                "order" => multi.order = BucketOrder::parse(part, key, value)?,
                "show_term_doc_count_error" => multi.show_error = part.boolean(key, value)?,
                "collect_mode" => multi.collect_mode = Some(CollectMode::parse(part, key, value)?),
                _ if multi.thresholds.take(part, key, value)? => {}
                _ => return Err(part.unknown(key, KNOWN)),
            }
        }
        if multi.terms.is_empty() {
            return Err(Error::IllegalArgument("Required [terms]".to_owned()));
        }
        multi.thresholds = multi.thresholds.consistent();
        Ok(multi)
    }
}

fn terms(part: ErrorLabel<'_>, key: &str, value: &Value) -> Result<Vec<ValuesSource>> {
    let Value::Array(items) = value else { return Err(part.wrong_type(key, value)) };
    let sources: Result<Vec<ValuesSource>> =
        items.iter().take(MAX_TERMS + 1).map(|item| field_config(part.name, item)).collect();
    let sources = sources.map_err(|error| part.unread(key, error))?;
    match sources.len() {
        number @ 0..=1 => {
            let advice = if number == 1 { " Use terms aggregation for single term aggregation" } else { "" };
            Err(part.refused(
                key,
                format!(
                    "multi term aggregation must has at least 2 terms. Found [{number}] in [{}]{advice}",
                    part.name
                ),
            ))
        }
        number if number > MAX_TERMS => {
            Err(part.refused(key, format!("multi term aggregation has more than {MAX_TERMS} terms")))
        }
        _ => Ok(sources),
    }
}

/// Parses what one of several fields reads.
pub(super) fn field_config(name: &str, value: &Value) -> Result<ValuesSource> {
    let part = ErrorLabel { kind: "field_config", name };
    let Value::Object(members) = value else {
        return Err(content(format!("[field_config] Expected START_OBJECT but was: {}", token(value))));
    };
    let mut source = ValuesSource::default();
    for (key, value) in members {
        if !source.take(part, AcceptedMembers::FormatAndZone, key, value)? {
            return Err(part.unknown(key, AcceptedMembers::FormatAndZone.known()));
        }
    }
    if source.field.is_none() {
        return Err(Error::IllegalArgument(
            "[field] and [script] cannot both be null.  Please specify one or the other.".to_owned(),
        ));
    }
    Ok(source)
}
