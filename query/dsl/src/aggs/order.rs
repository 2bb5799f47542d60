//! `order`: how buckets are ordered.

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::members::ErrorLabel;
use super::path::Path;
use crate::json::token;

/// Most criteria of an order.
const MAX_CRITERIA: usize = 64;

/// The order of buckets: criteria, the first that tells two apart decides. Never empty; the last is always
/// by key, so that ties are broken.
#[derive(Clone, Debug, PartialEq)]
pub struct BucketOrder(pub Vec<PathOrder>);

/// One criterion.
#[derive(Clone, Debug, PartialEq)]
pub struct PathOrder {
    /// Compared value.
    pub by: OrderBy,
    /// `true` if less comes first.
    pub ascending: bool,
}

/// Value that a criterion compares.
#[derive(Clone, Debug, PartialEq)]
pub enum OrderBy {
    /// The key (`_key`, `_term`, `_time`).
    Key,
    /// The number of documents.
    Count,
    /// A sub-aggregation's value.
    Path {
        /// Names of sub-aggregations, outermost first: all but the last are single-bucket ones.
        names: Vec<String>,
        /// Value of the last one: `avg` of `stats.avg`, `95` of `p[95]` or `p.95`; `value` of a metric and `doc_count` of a
        /// bucket where absent.
        property: Option<String>,
    },
}

impl BucketOrder {
    /// By count, greatest first.
    pub(crate) fn count_descending() -> Self {
        Self::completed(vec![PathOrder { by: OrderBy::Count, ascending: false }])
    }

    /// By key, least first.
    pub(crate) fn key_ascending() -> Self {
        Self(vec![PathOrder { by: OrderBy::Key, ascending: true }])
    }

    /// Adds the criterion that breaks ties.
    fn completed(mut criteria: Vec<PathOrder>) -> Self {
        if criteria.last().is_none_or(|last| last.by != OrderBy::Key) {
            criteria.push(PathOrder { by: OrderBy::Key, ascending: true });
        }
        Self(criteria)
    }

    /// Parses the value of `order`: an object, or a list of objects.
    pub(super) fn parse(part: ErrorLabel<'_>, key: &str, value: &Value) -> Result<Self> {
        let criteria: Result<Vec<PathOrder>> = match value {
            Value::Object(members) => criterion(members).map(|one| vec![one]),
            Value::Array(items) if items.is_empty() => Err(Error::Exception {
                kind: "index_out_of_bounds_exception",
                status: 400,
                reason: "Index 0 out of bounds for length 0".to_owned(),
            }),
            Value::Array(items) if items.len() > MAX_CRITERIA => Err(Error::IllegalArgument(format!(
                "too many elements in [order]: {} given, at most {MAX_CRITERIA} allowed",
                items.len()
            ))),
            Value::Array(items) => items
                .iter()
                .map(|item| {
                    criterion(item.as_object().ok_or_else(|| {
                        Error::Parsing(format!("Unexpected token [{}] for [order]", token(item)))
                    })?)
                })
                .collect(),
            other => return Err(part.wrong_type(key, other)),
        };
        criteria.map(Self::completed).map_err(|error| part.unread(key, error))
    }
}

/// Parses one criterion; of several members the last counts.
fn criterion(members: &Map<String, Value>) -> Result<PathOrder> {
    let mut found = None;
    for (key, value) in members {
        let Value::String(direction) = value else {
            return Err(Error::Parsing(format!("Unexpected token [{}] for [order]", token(value))));
        };
        let ascending = match direction.to_ascii_lowercase().as_str() {
            "asc" => true,
            "desc" => false,
            _ => return Err(Error::Parsing(format!("Unknown order direction [{direction}]"))),
        };
        found = Some((key, ascending));
    }
    let Some((key, ascending)) = found else {
        return Err(Error::Parsing("Must specify at least one field for [order]".to_owned()));
    };
    let by = match key.as_str() {
        "_key" | "_term" | "_time" => OrderBy::Key,
        "_count" => OrderBy::Count,
        path => {
            let elements = Path::parse(path)?.0;
            let property = elements.last().and_then(|last| last.key.clone());
            OrderBy::Path { names: elements.into_iter().map(|element| element.name).collect(), property }
        }
    };
    Ok(PathOrder { by, ascending })
}
