//! `inner_hits`: hits below a hit, with options of their own.

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::body::{self, SearchBody};
use super::collapse::Collapse;
use super::json::{self, token};

/// Hits shown where the definition does not say.
const DEFAULT_SIZE: usize = 3;

/// Members of a definition.
const KNOWN: &[&str] = &[
    "_source",
    "collapse",
    "docvalue_fields",
    "explain",
    "fields",
    "from",
    "highlight",
    "ignore_unmapped",
    "name",
    "script_fields",
    "seq_no_primary_term",
    "size",
    "sort",
    "stored_fields",
    "track_scores",
    "version",
];

/// One definition.
#[derive(Clone, Debug, Default)]
pub struct InnerHits {
    /// Name under which the hits are shown.
    pub name: Option<String>,
    /// `true` if a path that an index does not have is no error.
    pub ignore_unmapped: bool,
    /// Content and order of the hits; never with a query.
    pub body: SearchBody,
    /// Groups of the inner hits.
    pub collapse: Option<Box<Collapse>>,
}

impl InnerHits {
    /// Parses a definition.
    pub fn parse(value: &Value) -> Result<Self> {
        let members = value.as_object().ok_or_else(|| {
            json::content(format!("[inner_hits] Expected START_OBJECT but was: {}", token(value)))
        })?;
        let mut inner = Self::default();
        let mut own = Map::new();
        for (key, value) in members {
            match key.as_str() {
                "name" => inner.name = Some(json::text(value).ok_or_else(|| wrong_type(key, value))?),
                "ignore_unmapped" => inner.ignore_unmapped = json::boolean(value)?,
                "from" => inner.body.from = Some(count(key, value)?),
                "size" => inner.body.size = Some(count(key, value)?),
                "collapse" => {
                    let collapse = Collapse::parse(value)?;
                    if !collapse.inner_hits.is_empty() {
                        return Err(Error::Parsing("Invalid token in the inner collapse".to_owned()));
                    }
                    inner.collapse = Some(Box::new(collapse));
                }
                other if KNOWN.contains(&other) => {
                    own.insert(key.clone(), value.clone());
                }
                other => {
                    return Err(json::content(format!(
                        "[inner_hits] unknown field [{other}]{}",
                        json::did_you_mean(other, KNOWN)
                    )));
                }
            }
        }
        let (from, size) = (inner.body.from, inner.body.size);
        inner.body = SearchBody::parse(&Value::Object(own))?;
        inner.body.from = from;
        inner.body.size = Some(size.unwrap_or(DEFAULT_SIZE));
        Ok(inner)
    }
}

fn count(key: &str, value: &Value) -> Result<usize> {
    let number = json::integer(value)?;
    match key {
        "from" => body::from(number).map_err(|_| illegal(key)),
        _ => body::size(number).map_err(|_| illegal(key)),
    }
}

fn illegal(key: &str) -> Error {
    Error::IllegalArgument(format!("illegal {key} value, at least 0 or higher"))
}

fn wrong_type(key: &str, value: &Value) -> Error {
    json::content(format!("[inner_hits] {key} doesn't support values of type: {}", token(value)))
}
