//! `span_containing` and `span_within`: spans with others in them, and spans within others.

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::{Clause, Common, Parser, Query, Role, span};

/// Spans and others inside of them; `WITHIN` says that the inner ones are found, else the outer ones are.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanEnclosureQuery<const WITHIN: bool> {
    /// The outer.
    pub big: Query,
    /// The inner.
    pub little: Query,
    /// Boost and name.
    pub common: Common,
}

/// A `span_containing` clause.
pub type SpanContainingQuery = SpanEnclosureQuery<false>;

/// A `span_within` clause.
pub type SpanWithinQuery = SpanEnclosureQuery<true>;

impl<const WITHIN: bool> Clause for SpanEnclosureQuery<WITHIN> {
    fn parse(parser: &mut Parser, fields: &Map<String, Value>) -> Result<Self> {
        let clause = if WITHIN { "span_within" } else { "span_containing" };
        let mut common = Common::default();
        let (mut big, mut little) = (None, None);
        for (key, value) in fields {
            let slot = match (key.as_str(), value) {
                ("big", Value::Object(_)) => &mut big,
                ("little", Value::Object(_)) => &mut little,
                _ => {
                    span::rest(&mut common, clause, key, value)?;
                    continue;
                }
            };
            let owner = format!("{clause} [{key}]");
            *slot = Some(span::inner(parser, (clause, key), &owner, value)?);
        }
        let missing = |what: &str| Error::Parsing(format!("{clause} must include [{what}]"));
        let big = big.ok_or_else(|| missing("big"))?;
        let little = little.ok_or_else(|| missing("little"))?;
        Ok(Self { big, little, common })
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn is_span(&self) -> bool {
        true
    }

    fn parts(&self) -> Vec<(Role, &Query)> {
        vec![(Role::Inner, &self.big), (Role::Inner, &self.little)]
    }

    fn parts_mut(&mut self) -> Vec<&mut Query> {
        vec![&mut self.big, &mut self.little]
    }
}
