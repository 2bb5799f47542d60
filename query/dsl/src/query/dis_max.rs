//! `dis_max`: any of several clauses; the best of their scores counts, the others by a share.

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::{Clause, Common, Parser, Query, Role, unsupported};
use crate::json;

/// A `dis_max` clause.
#[derive(Clone, Debug, PartialEq)]
pub struct DisMaxQuery {
    /// The clauses; with none nothing matches.
    pub queries: Vec<Query>,
    /// Share of the other scores, from 0 to 1.
    pub tie_breaker: f32,
    /// Boost and name.
    pub common: Common,
}

impl Clause for DisMaxQuery {
    fn parse(parser: &mut Parser, fields: &Map<String, Value>) -> Result<Self> {
        let mut query = Self { queries: Vec::new(), tie_breaker: 0.0, common: Common::default() };
        let mut given = false;
        for (key, value) in fields {
            match (key.as_str(), value) {
                ("queries", Value::Object(_)) => {
                    given = true;
                    query.queries.push(parser.query(value)?);
                }
                ("queries", Value::Array(clauses)) => {
                    given = true;
                    if clauses.is_empty() {
                        parser.query(value)?;
                    }
                    for clause in clauses {
                        query.queries.push(parser.query(clause)?);
                    }
                }
                (_, Value::Object(_) | Value::Array(_)) => return Err(unsupported("dis_max", key)),
                ("tie_breaker", value) => query.tie_breaker = json::float(value)?,
                _ if query.common.take("dis_max", key, value)? => {}
                _ => return Err(unsupported("dis_max", key)),
            }
        }
        if !given {
            return Err(Error::Parsing(
                "[dis_max] requires 'queries' field with at least one clause".to_owned(),
            ));
        }
        Ok(query)
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn is_compound(&self) -> bool {
        true
    }

    fn parts(&self) -> Vec<(Role, &Query)> {
        self.queries.iter().map(|clause| (Role::Matching, clause)).collect()
    }

    fn parts_mut(&mut self) -> Vec<&mut Query> {
        self.queries.iter_mut().collect()
    }
}
