//! `span_or`: spans of any clause.

use std::fmt;

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::{Clause, Common, Parser, Query, Role, span};

/// A `span_or` clause.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanOrQuery {
    /// The clauses; at least one.
    pub clauses: Vec<Query>,
    /// Boost and name.
    pub common: Common,
}

impl Clause for SpanOrQuery {
    fn parse(parser: &mut Parser, fields: &Map<String, Value>) -> Result<Self> {
        const CLAUSE: &str = "span_or";
        let mut query = Self { clauses: Vec::new(), common: Common::default() };
        for (key, value) in fields {
            match key.as_str() {
                "clauses" => query.clauses.extend(span::list(parser, CLAUSE, value)?),
                _ => span::rest(&mut query.common, CLAUSE, key, value)?,
            }
        }
        match query.clauses.is_empty() {
            true => Err(Error::Parsing("span_or must include [clauses]".to_owned())),
            false => Ok(query),
        }
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} spans", self.clauses.len())
    }

    fn is_span(&self) -> bool {
        true
    }

    fn parts(&self) -> Vec<(Role, &Query)> {
        self.clauses.iter().map(|clause| (Role::Inner, clause)).collect()
    }

    fn parts_mut(&mut self) -> Vec<&mut Query> {
        self.clauses.iter_mut().collect()
    }
}
