//! `span_near`: spans that are near each other; `span_gap`: positions between them.

use std::fmt;

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::{Clause, Common, Parser, Query, Role, single_field, span};
use crate::json;

/// A `span_near` clause.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanNearQuery {
    /// The spans; at least one.
    pub clauses: Vec<Query>,
    /// Most positions between them, in all.
    pub slop: i32,
    /// `true` if they must be in this order.
    pub in_order: bool,
    /// Boost and name.
    pub common: Common,
}

impl Clause for SpanNearQuery {
    fn parse(parser: &mut Parser, fields: &Map<String, Value>) -> Result<Self> {
        const CLAUSE: &str = "span_near";
        let mut query = Self { clauses: Vec::new(), slop: 0, in_order: true, common: Common::default() };
        for (key, value) in fields {
            match (key.as_str(), value) {
                ("clauses", value) => query.clauses.extend(span::list(parser, CLAUSE, value)?),
                ("slop", Value::Number(_) | Value::String(_)) => query.slop = span::int(value)?,
                ("in_order", Value::Bool(_) | Value::String(_)) => query.in_order = json::boolean(value)?,
                _ => span::rest(&mut query.common, CLAUSE, key, value)?,
            }
        }
        match query.clauses.is_empty() {
            true => Err(Error::Parsing("span_near must include [clauses]".to_owned())),
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

/// A `span_gap` clause, which stands in a `span_near` only.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanGapQuery {
    /// Field path.
    pub field: String,
    /// So many positions.
    pub width: i32,
    /// Neither boost nor name.
    pub common: Common,
}

impl Clause for SpanGapQuery {
    fn parse(_: &mut Parser, fields: &Map<String, Value>) -> Result<Self> {
        let (field, value) = single_field("span_gap", fields)?;
        let width = span::int(value)?;
        if width < 0 {
            return Err(Error::IllegalArgument(format!(
                "[span_gap] width must be 0 or greater but was [{width}]"
            )));
        }
        Ok(Self { field: field.to_owned(), width, common: Common::default() })
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn is_span(&self) -> bool {
        true
    }
}
