//! `span_not`: spans that are not near others.

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::{Clause, Common, Parser, Query, Role, span};

/// A `span_not` clause.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanNotQuery {
    /// Query of the spans.
    pub include: Query,
    /// Query of the spans that they must not overlap.
    pub exclude: Query,
    /// Positions before it that must be free as well.
    pub before: i32,
    /// Positions behind it that must be free as well.
    pub behind: i32,
    /// Boost and name.
    pub common: Common,
}

impl Clause for SpanNotQuery {
    fn parse(parser: &mut Parser, fields: &Map<String, Value>) -> Result<Self> {
        const CLAUSE: &str = "span_not";
        let mut common = Common::default();
        let (mut include, mut exclude) = (None, None);
        let (mut around, mut before, mut behind) = (None, None, None);
        for (key, value) in fields {
            let slot = match (key.as_str(), value) {
                ("include", Value::Object(_)) => &mut include,
                ("exclude", Value::Object(_)) => &mut exclude,
                ("dist", Value::Number(_) | Value::String(_)) => {
                    around = Some(span::int(value)?);
                    continue;
                }
                ("pre", Value::Number(_) | Value::String(_)) => {
                    before = Some(span::int(value)?);
                    continue;
                }
                ("post", Value::Number(_) | Value::String(_)) => {
                    behind = Some(span::int(value)?);
                    continue;
                }
                _ => {
                    span::rest(&mut common, CLAUSE, key, value)?;
                    continue;
                }
            };
            let owner = format!("{CLAUSE} [{key}]");
            *slot = Some(span::inner(parser, (CLAUSE, key), &owner, value)?);
        }
        let refused = |what: &str| Error::Parsing(format!("span_not {what}"));
        let include = include.ok_or_else(|| refused("must have [include] span query clause"))?;
        let exclude = exclude.ok_or_else(|| refused("must have [exclude] span query clause"))?;
        if around.is_some() && (before.is_some() || behind.is_some()) {
            return Err(refused("can either use [dist] or [pre] & [post] (or none)"));
        }
        let of = |own: Option<i32>| own.or(around).unwrap_or(0).max(0);
        Ok(Self { include, exclude, before: of(before), behind: of(behind), common })
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn is_span(&self) -> bool {
        true
    }

    fn parts(&self) -> Vec<(Role, &Query)> {
        vec![(Role::Inner, &self.include), (Role::Inner, &self.exclude)]
    }

    fn parts_mut(&mut self) -> Vec<&mut Query> {
        vec![&mut self.include, &mut self.exclude]
    }
}
