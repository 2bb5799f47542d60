//! `constant_score`: a filter with one score.

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::{Clause, Common, Parser, Query, Role};

/// A `constant_score` clause.
#[derive(Clone, Debug, PartialEq)]
pub struct ConstantScoreQuery {
    /// Query that matches.
    pub filter: Query,
    /// Boost (the score) and name.
    pub common: Common,
}

impl Clause for ConstantScoreQuery {
    fn parse(parser: &mut Parser, fields: &Map<String, Value>) -> Result<Self> {
        let mut common = Common::default();
        let mut filter = None;
        for (key, value) in fields {
            match key.as_str() {
                "filter" if filter.is_some() => {
                    return Err(Error::Parsing(
                        "[constant_score] accepts only one 'filter' element.".to_owned(),
                    ));
                }
                "filter" if value.is_array() => {
                    return Err(Error::Parsing("unexpected token [START_ARRAY]".to_owned()));
                }
                "filter" => filter = Some(parser.query(value)?),
                _ if common.take("constant_score", key, value)? => {}
                _ => {
                    return Err(Error::Parsing(format!("[constant_score] query does not support [{key}]")));
                }
            }
        }
        let filter = filter
            .ok_or_else(|| Error::Parsing("[constant_score] requires a 'filter' element".to_owned()))?;
        Ok(Self { filter, common })
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn is_compound(&self) -> bool {
        true
    }

    fn parts(&self) -> Vec<(Role, &Query)> {
        vec![(Role::Matching, &self.filter)]
    }

    fn parts_mut(&mut self) -> Vec<&mut Query> {
        vec![&mut self.filter]
    }
}
