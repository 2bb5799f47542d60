//! `span_field_masking`: spans of one field that pass for those of another.

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::{Clause, Common, Parser, Query, Role, span};
use crate::json;

/// A `span_field_masking` clause.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanFieldMaskingQuery {
    /// Query of the spans.
    pub inner: Query,
    /// Path of the field for whose spans these pass.
    pub field: String,
    /// Boost and name.
    pub common: Common,
}

impl Clause for SpanFieldMaskingQuery {
    fn parse(parser: &mut Parser, fields: &Map<String, Value>) -> Result<Self> {
        const CLAUSE: &str = "span_field_masking";
        let mut common = Common::default();
        let (mut inner, mut field) = (None, None);
        for (key, value) in fields {
            match (key.as_str(), value) {
                ("query", Value::Object(_)) => {
                    inner = Some(span::inner(parser, (CLAUSE, key), "[span_field_masking] query", value)?);
                }
                ("field", Value::Number(_) | Value::String(_) | Value::Bool(_)) => field = json::text(value),
                _ => span::rest(&mut common, CLAUSE, key, value)?,
            }
        }
        let missing = |what: &str| Error::Parsing(format!("span_field_masking must have {what}"));
        let inner = inner.ok_or_else(|| missing("[query] span query clause"))?;
        match field.ok_or_else(|| missing("[field] set for it"))? {
            field if field.is_empty() => {
                Err(Error::IllegalArgument("field name is null or empty".to_owned()))
            }
            field => Ok(Self { inner, field, common }),
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
