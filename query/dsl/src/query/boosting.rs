//! `boosting`: the matches of one clause, with less score where another matches too.

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::{Clause, Common, Parser, Query, Role, unsupported};
use crate::json;

/// A `boosting` clause.
#[derive(Clone, Debug, PartialEq)]
pub struct BoostingQuery {
    /// Query that must match, and scores.
    pub positive: Query,
    /// Query that lowers the score.
    pub negative: Query,
    /// Factor of the score where `negative` matches.
    pub negative_boost: f32,
    /// Boost and name.
    pub common: Common,
}

impl Clause for BoostingQuery {
    fn parse(parser: &mut Parser, fields: &Map<String, Value>) -> Result<Self> {
        let mut common = Common::default();
        let (mut positive, mut negative, mut negative_boost) = (None, None, None);
        for (key, value) in fields {
            match (key.as_str(), value) {
                ("positive", Value::Object(_) | Value::Array(_)) => positive = parser.last_query(value)?,
                ("negative", Value::Object(_) | Value::Array(_)) => negative = parser.last_query(value)?,
                (_, Value::Object(_) | Value::Array(_)) => return Err(unsupported("boosting", key)),
                ("negative_boost", value) => negative_boost = Some(json::float(value)?),
                _ if common.take("boosting", key, value)? => {}
                _ => return Err(unsupported("boosting", key)),
            }
        }
        let missing = |what: &str| Error::Parsing(format!("[boosting] query requires {what}"));
        let positive = positive.ok_or_else(|| missing("'positive' query to be set'"))?;
        let negative = negative.ok_or_else(|| missing("'negative' query to be set'"))?;
        let negative_boost = negative_boost
            .filter(|boost| *boost >= 0.0)
            .ok_or_else(|| missing("'negative_boost' to be set to be a positive value'"))?;
        Ok(Self { positive, negative, negative_boost, common })
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn is_compound(&self) -> bool {
        true
    }

    fn parts(&self) -> Vec<(Role, &Query)> {
        vec![(Role::Matching, &self.positive), (Role::Lowering, &self.negative)]
    }

    fn parts_mut(&mut self) -> Vec<&mut Query> {
        vec![&mut self.positive, &mut self.negative]
    }
}
