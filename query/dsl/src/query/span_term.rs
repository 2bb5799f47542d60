//! `span_term`: the occurrences of a term.

use std::fmt;

use millrace_work::error::Result;
use serde_json::{Map, Value};

use super::{Clause, Common, Parser, TermQuery, term};

/// A `span_term` clause.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanTermQuery(pub TermQuery);

impl Clause for SpanTermQuery {
    fn parse(_: &mut Parser, fields: &Map<String, Value>) -> Result<Self> {
        term::parse("span_term", fields, false).map(Self)
    }

    fn common(&self) -> &Common {
        &self.0.common
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write(f)
    }

    fn is_span(&self) -> bool {
        true
    }
}
