//! `top_hits`: the best documents of a bucket.

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::members::ErrorLabel;
use crate::body::SearchBody;
use crate::json::{self, token};

/// Hits that are shown where the request does not say.
const DEFAULT_SIZE: usize = 3;
/// Most hits, as `index.max_inner_result_window` has it by default.
const MAX_WINDOW: usize = 100;

/// A `top_hits` aggregation.
#[derive(Clone, Debug)]
pub struct TopHits {
    /// Content and order of the hits: `from` and `size` (0 and 3 by default) are set; never a query.
    pub body: SearchBody,
}

impl TopHits {
    pub(super) fn parse(part: ErrorLabel<'_>, members: &Map<String, Value>) -> Result<Self> {
        let (mut from, mut size, mut own) = (0, DEFAULT_SIZE, Map::new());
        for (key, value) in members {
            let count = || {
                let number = json::integer(value)?;
                usize::try_from(number).map_err(|_| {
                    Error::IllegalArgument(format!(
                        "[{key}] must be greater than or equal to 0. Found [{number}] in [{}]",
                        part.name
                    ))
                })
            };
            match key.as_str() {
                "from" => from = count()?,
                "size" => size = count()?,
                "_source"
                | "docvalue_fields"
                | "explain"
                | "fields"
                | "highlight"
                | "script_fields"
                | "seq_no_primary_term"
                | "sort"
                | "stored_fields"
                | "track_scores"
                | "version" => {
                    own.insert(key.clone(), value.clone());
                }
                _ => {
                    return Err(Error::Parsing(format!("Unknown key for a {} in [{key}].", token(value))));
                }
            }
        }
        let window = from.saturating_add(size);
        if window > MAX_WINDOW {
            return Err(Error::IllegalArgument(format!(
                "Top hits result window is too large, the top hits aggregator [{}]'s from + size must be less than or equal to: [{MAX_WINDOW}] but was [{window}]. This limit can be set by changing the [index.max_inner_result_window] index level setting.",
                part.name
            )));
        }
        let mut body = SearchBody::parse(&Value::Object(own))?;
        (body.from, body.size) = (Some(from), Some(size));
        Ok(Self { body })
    }
}
