//! Common interface of all kinds of clauses, before they are lowered for an index.

use std::fmt;

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::size::written;
use super::{Lookup, Parser, Query};
use crate::json::{self, token};

/// Members that every clause may carry.
#[derive(Clone, Debug, PartialEq)]
pub struct Common {
    /// Factor of the score.
    pub boost: f32,
    /// Name under which a hit reports that it matched this clause.
    pub name: Option<String>,
}

impl Default for Common {
    fn default() -> Self {
        Self { boost: 1.0, name: None }
    }
}

impl Common {
    /// Takes `boost` or `_name`; returns whether the key was one of them.
    pub(super) fn take(&mut self, clause: &str, key: &str, value: &Value) -> Result<bool> {
        match key {
            "boost" => self.boost = json::boost(clause, value)?,
            "_name" => {
                self.name = Some(json::text(value).ok_or_else(|| {
                    Error::Parsing(format!("[{clause}] unknown token [{}] after [_name]", token(value)))
                })?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// The part that a clause has in the one around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Its matches are matches of the clause around it.
    Matching,
    /// So it is, for elements of the document or under functions: highlighters take no phrases out of it.
    Enclosed,
    /// It lowers the scores of what another clause matches.
    Lowering,
    /// Its matches are left out, or scored otherwise.
    Apart,
    /// It is a part of what the clause around it asks as a whole.
    Inner,
}

/// A kind of clause. [`Query`] holds one of any kind, and passes the methods on.
pub trait Clause: Clone + fmt::Debug + PartialEq {
    /// Parses what stands behind the clause's name.
    ///
    /// # Errors
    /// A member that is unknown, missing, or has a value that it cannot have.
    fn parse(parser: &mut Parser, fields: &Map<String, Value>) -> Result<Self>;

    /// Returns boost and name.
    fn common(&self) -> &Common;

    /// Writes what is asked, as plans show it.
    fn write(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }

    /// Returns whether it is made of other clauses and means nothing without them.
    fn is_compound(&self) -> bool {
        false
    }

    /// Lists the clauses below it.
    fn parts(&self) -> Vec<(Role, &Query)> {
        Vec::new()
    }

    /// Lists the clauses below it, to change them.
    fn parts_mut(&mut self) -> Vec<&mut Query> {
        Vec::new()
    }

    /// Returns whether it finds spans, and may stand in clauses about these.
    fn is_span(&self) -> bool {
        false
    }

    /// Lists the documents that it takes values from, where a search is of some indices.
    fn lookups(&self, _searched: &[&str]) -> Vec<Lookup> {
        Vec::new()
    }

    /// Takes the values of those documents.
    fn fill(&mut self, _searched: &[&str], _values: &mut dyn FnMut(&Lookup) -> Vec<Value>) {}

    /// Estimates the bytes that it takes without its name and the clauses below it.
    fn bytes(&self) -> usize {
        match self.is_compound() || !self.parts().is_empty() {
            true => 0,
            false => written(self),
        }
    }
}

/// Writes the first values of a list and how many more there are.
pub(super) fn listed<T: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    values: impl ExactSizeIterator<Item = T>,
) -> fmt::Result {
    const SHOWN: usize = 4;
    let count = values.len();
    f.write_str("[")?;
    for (at, value) in values.take(SHOWN).enumerate() {
        write!(f, "{}{value}", if at > 0 { ", " } else { "" })?;
    }
    if count > SHOWN {
        write!(f, ", … {} more", count - SHOWN)?;
    }
    f.write_str("]")
}
