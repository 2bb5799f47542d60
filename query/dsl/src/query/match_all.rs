//! `match_all` and `match_none`: every document, with one score, and none.

use std::fmt;

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::{Clause, Common, Parser};

/// A `match_all` clause.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MatchAllQuery {
    /// Boost and name.
    pub common: Common,
}

impl Clause for MatchAllQuery {
    fn parse(_: &mut Parser, fields: &Map<String, Value>) -> Result<Self> {
        Ok(Self { common: only_common("match_all", fields)? })
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("*")
    }
}

/// A `match_none` clause.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MatchNoneQuery {
    /// Boost and name.
    pub common: Common,
}

impl Clause for MatchNoneQuery {
    fn parse(_: &mut Parser, fields: &Map<String, Value>) -> Result<Self> {
        Ok(Self { common: only_common("match_none", fields)? })
    }

    fn common(&self) -> &Common {
        &self.common
    }
}

fn only_common(clause: &str, fields: &Map<String, Value>) -> Result<Common> {
    let mut common = Common::default();
    for (key, value) in fields {
        if !common.take(clause, key, value)? {
            return Err(Error::Parsing(format!("[{clause}] unknown field [{key}]")));
        }
    }
    Ok(common)
}
