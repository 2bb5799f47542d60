//! `span_containing` and `span_within`: spans with others in them, and spans within others.

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::{Clause, Common, Parser, Query, Role, span};

/// Spans and what is looked for inside of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Enclosure {
    /// The outer.
    pub big: Query,
    /// The inner.
    pub little: Query,
    /// Boost and name.
    pub common: Common,
}

/// A `span_containing` clause: the outer spans are found.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanContainingQuery(pub Enclosure);

/// A `span_within` clause: the inner spans are found.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanWithinQuery(pub Enclosure);

impl Enclosure {
    fn parse(clause: &str, parser: &mut Parser, fields: &Map<String, Value>) -> Result<Self> {
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

    fn parts(&self) -> Vec<(Role, &Query)> {
        vec![(Role::Inner, &self.big), (Role::Inner, &self.little)]
    }

    fn parts_mut(&mut self) -> Vec<&mut Query> {
        vec![&mut self.big, &mut self.little]
    }
}

impl Clause for SpanContainingQuery {
    fn parse(parser: &mut Parser, fields: &Map<String, Value>) -> Result<Self> {
        Enclosure::parse("span_containing", parser, fields).map(Self)
    }

    fn common(&self) -> &Common {
        &self.0.common
    }

    fn is_span(&self) -> bool {
        true
    }

    fn parts(&self) -> Vec<(Role, &Query)> {
        self.0.parts()
    }

    fn parts_mut(&mut self) -> Vec<&mut Query> {
        self.0.parts_mut()
    }
}

impl Clause for SpanWithinQuery {
    fn parse(parser: &mut Parser, fields: &Map<String, Value>) -> Result<Self> {
        Enclosure::parse("span_within", parser, fields).map(Self)
    }

    fn common(&self) -> &Common {
        &self.0.common
    }

    fn is_span(&self) -> bool {
        true
    }

    fn parts(&self) -> Vec<(Role, &Query)> {
        self.0.parts()
    }

    fn parts_mut(&mut self) -> Vec<&mut Query> {
        self.0.parts_mut()
    }
}
