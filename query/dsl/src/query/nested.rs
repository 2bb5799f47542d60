//! `nested`: documents by the elements of a nested object, each taken by itself.

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::{Clause, Common, Parser, Query, Role, unsupported};
use crate::json;

/// A `nested` clause.
#[derive(Clone, Debug, PartialEq)]
pub struct NestedQuery {
    /// Path of the nested object.
    pub path: String,
    /// Query that an element must match.
    pub query: Query,
    /// Mode that combines the scores of a document's elements.
    pub score_mode: NestedScore,
    /// `true` if an unknown path matches nothing instead of being refused.
    pub ignore_unmapped: bool,
    /// Inner hits of matching elements, as requested.
    pub inner_hits: Option<Value>,
    /// Boost and name.
    pub common: Common,
}

/// Mode that combines the scores of a document's elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum NestedScore {
    #[default]
    Avg,
    Sum,
    Min,
    Max,
    /// 0 for all documents.
    None,
}

impl Clause for NestedQuery {
    fn parse(parser: &mut Parser, fields: &Map<String, Value>) -> Result<Self> {
        let mut common = Common::default();
        let (mut path, mut query, mut inner_hits) = (None, None, None);
        let (mut score_mode, mut ignore_unmapped) = (NestedScore::default(), false);
        for (key, value) in fields {
            match (key.as_str(), value) {
                ("query", Value::Object(_) | Value::Array(_)) => query = parser.last_query(value)?,
                ("inner_hits", Value::Object(_)) => inner_hits = Some(value.clone()),
                (_, Value::Object(_) | Value::Array(_)) => return Err(unsupported("nested", key)),
                ("path", value) => path = json::text(value),
                ("ignore_unmapped", value) => ignore_unmapped = json::boolean(value)?,
                ("score_mode", value) => {
                    score_mode = NestedScore::parse(&json::text(value).unwrap_or_default())?;
                }
                _ if common.take("nested", key, value)? => {}
                _ => return Err(unsupported("nested", key)),
            }
        }
        let missing = |what: &str| Error::IllegalArgument(format!("[nested] requires '{what}' field"));
        let path = path.ok_or_else(|| missing("path"))?;
        let query = query.ok_or_else(|| missing("query"))?;
        Ok(Self { path, query, score_mode, ignore_unmapped, inner_hits, common })
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn is_compound(&self) -> bool {
        true
    }

    fn parts(&self) -> Vec<(Role, &Query)> {
        vec![(Role::Enclosed, &self.query)]
    }

    fn parts_mut(&mut self) -> Vec<&mut Query> {
        vec![&mut self.query]
    }
}

impl NestedScore {
    fn parse(text: &str) -> Result<Self> {
        Ok(match text {
            "avg" => Self::Avg,
            "sum" => Self::Sum,
            "min" => Self::Min,
            "max" => Self::Max,
            "none" => Self::None,
            _ => {
                return Err(Error::IllegalArgument(format!("No score mode for child query [{text}] found")));
            }
        })
    }
}
