//! `span_multi`: the occurrences of the terms that another clause finds.

use std::fmt;

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::{Clause, Common, Parser, Query, Role, span, unsupported};

/// A `span_multi` clause.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanMultiQuery {
    /// Query of the terms: a prefix, a pattern, nearness, or a range.
    pub inner: Query,
    /// Path of the field that it names.
    pub field: String,
    /// Boost and name.
    pub common: Common,
}

impl Clause for SpanMultiQuery {
    fn parse(parser: &mut Parser, fields: &Map<String, Value>) -> Result<Self> {
        const CLAUSE: &str = "span_multi";
        let mut common = Common::default();
        let mut inner = None;
        for (key, value) in fields {
            match (key.as_str(), value) {
                ("match", Value::Object(_)) => inner = Some(parser.query(value)?),
                (_, Value::Object(_)) => return Err(unsupported(CLAUSE, key)),
                // Lists are passed over, as in OpenSearch.
                (_, Value::Array(_)) => {}
                _ => span::rest(&mut common, CLAUSE, key, value)?,
            }
        }
        let refused = |what: &str| Error::Parsing(format!("[span_multi] {what}"));
        let inner = inner.ok_or_else(|| refused("must have [match] multi term query clause"))?;
        let field = match &inner {
            Query::Prefix(query) => query.field.clone(),
            Query::Wildcard(query) => query.field.clone(),
            Query::Regexp(query) => query.field.clone(),
            Query::Fuzzy(query) => query.field.clone(),
            Query::Range(query) => query.field.clone(),
            _ => return Err(refused("[match] must be of type multi term query")),
        };
        Ok(Self { inner, field, common })
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.inner)
    }

    fn is_span(&self) -> bool {
        true
    }

    fn parts(&self) -> Vec<(Role, &Query)> {
        vec![(Role::Inner, &self.inner)]
    }

    fn parts_mut(&mut self) -> Vec<&mut Query> {
        vec![&mut self.inner]
    }
}
