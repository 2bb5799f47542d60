//! `span_first`: spans near the start of a field.

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::{Clause, Common, Parser, Query, Role, span};

/// A `span_first` clause.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanFirstQuery {
    /// Query of the spans.
    pub inner: Query,
    /// Position at which it must have ended.
    pub end: i32,
    /// Boost and name.
    pub common: Common,
}

impl Clause for SpanFirstQuery {
    fn parse(parser: &mut Parser, fields: &Map<String, Value>) -> Result<Self> {
        const CLAUSE: &str = "span_first";
        let mut common = Common::default();
        let (mut inner, mut end) = (None, None);
        for (key, value) in fields {
            match (key.as_str(), value) {
                ("match", Value::Object(_)) => {
                    inner = Some(span::inner(parser, (CLAUSE, key), "span_first [match]", value)?);
                }
                ("end", Value::Number(_) | Value::String(_)) => end = Some(span::int(value)?),
                _ => span::rest(&mut common, CLAUSE, key, value)?,
            }
        }
        let missing = |what: &str| Error::Parsing(format!("span_first must have {what}"));
        let inner = inner.ok_or_else(|| missing("[match] span query clause"))?;
        let end = end.ok_or_else(|| missing("[end] set for it"))?;
        match end >= 0 {
            true => Ok(Self { inner, end, common }),
            false => Err(Error::IllegalArgument("parameter [end] needs to be positive.".to_owned())),
        }
    }

    fn common(&self) -> &Common {
        &self.common
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
