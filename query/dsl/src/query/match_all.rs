//! `match_all`: every document, with one score.

use millrace_work::error::Result;
use serde_json::{Map, Value};

use super::{Common, only_common};

/// A `match_all` clause.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MatchAllQuery {
    /// Boost and name.
    pub common: Common,
}

impl MatchAllQuery {
    pub(super) fn parse(fields: &Map<String, Value>) -> Result<Self> {
        Ok(Self { common: only_common("match_all", fields)? })
    }
}
