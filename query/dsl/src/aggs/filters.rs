//! `filters`: a bucket for each query.

use std::sync::Arc;

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::members::ErrorLabel;
use crate::json::token;
use crate::query::{self, Query};

/// Most queries of one aggregation.
const MAX_FILTERS: usize = 1_024;

/// A `filters` aggregation.
#[derive(Clone, Debug, PartialEq)]
pub struct Filters {
    /// The queries; named ones ordered by name.
    pub filters: Vec<NamedFilter>,
    /// `true` if they have names (and buckets are members of an object).
    pub keyed: bool,
    /// Key of the bucket of documents that no query matches; no such bucket where absent.
    pub other: Option<String>,
}

/// One query.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedFilter {
    /// Key of the bucket; the number where the queries have no names.
    pub key: String,
    /// The query.
    pub query: Arc<Query>,
}

impl Filters {
    pub(super) fn parse(part: ErrorLabel<'_>, members: &Map<String, Value>) -> Result<Self> {
        let (mut filters, mut keyed) = (Vec::new(), true);
        let (mut other, mut key_of_other) = (None, None);
        for (key, value) in members {
            match (key.as_str(), value) {
                ("other_bucket", Value::Bool(flag)) => other = Some(*flag),
                ("other_bucket_key", Value::String(text)) => key_of_other = Some(text.clone()),
                ("filters", Value::Object(named)) => {
                    keyed = true;
                    filters = NamedFilter::parse_all(named, false)?;
                }
                ("filters", Value::Array(items)) => {
                    keyed = false;
                    let queries: Result<Vec<NamedFilter>> = items
                        .iter()
                        .take(MAX_FILTERS + 1)
                        .enumerate()
                        .map(|(at, item)| {
                            Ok(NamedFilter { key: at.to_string(), query: Arc::new(query::parse(item)?) })
                        })
                        .collect();
                    filters = queries?;
                }
                _ => {
                    return Err(Error::Parsing(format!(
                        "Unknown key for a {} in [{}]: [{key}].",
                        token(value),
                        part.name
                    )));
                }
            }
        }
        if filters.is_empty() {
            return Err(Error::IllegalArgument("[filters] cannot be empty.".to_owned()));
        }
        if filters.len() > MAX_FILTERS {
            return Err(Error::IllegalArgument(format!(
                "[filters] has more than the [{MAX_FILTERS}] queries that are allowed"
            )));
        }
        // A key for the other bucket asks for it.
        let shown = other.unwrap_or(key_of_other.is_some());
        let other = shown.then(|| key_of_other.unwrap_or_else(|| "_other_".to_owned()));
        Ok(Self { filters, keyed, other })
    }
}

impl NamedFilter {
    /// Returns the query, to be changed.
    pub(super) fn query_mut(&mut self) -> &mut Query {
        Arc::make_mut(&mut self.query)
    }

    /// Parses named queries, ordered by name; `within` says that errors name the query.
    pub(super) fn parse_all(members: &Map<String, Value>, within: bool) -> Result<Vec<Self>> {
        if members.len() > MAX_FILTERS {
            return Err(Error::IllegalArgument(format!(
                "[filters] has more than the [{MAX_FILTERS}] queries that are allowed"
            )));
        }
        let named = members.iter().map(|(key, value)| {
            let query = query::parse(value).map_err(|error| match within {
                true => Error::unread_member("filters", key, error),
                false => error,
            })?;
            Ok(Self { key: key.clone(), query: Arc::new(query) })
        });
        let mut filters: Vec<Self> = named.collect::<Result<_>>()?;
        filters.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(filters)
    }
}
