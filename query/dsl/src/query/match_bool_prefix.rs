//! `match_bool_prefix`: the terms of an analyzed text, the last of which is the start of one.

use std::fmt;

use millrace_work::error::Result;
use serde_json::{Map, Value};

use super::match_::{fuzzy_option, minimum, text_query};
use super::{Clause, Common, Fuzziness, FuzzyOptions, Operator, Parser, unsupported};
use crate::json;
use crate::minimum_should_match::MinimumShouldMatch;

/// A `match_bool_prefix` clause.
#[derive(Clone, Debug, PartialEq)]
pub struct MatchBoolPrefixQuery {
    /// Field path.
    pub field: String,
    /// The text or value, a JSON scalar.
    pub query: Value,
    /// Operator between terms.
    pub operator: Operator,
    /// Number of terms that must match under [`Operator::Or`].
    pub minimum_should_match: Option<MinimumShouldMatch>,
    /// Analyzer instead of the field's search analyzer.
    pub analyzer: Option<String>,
    /// Edits that all terms but the last may be away, where they may.
    pub fuzziness: Option<Fuzziness>,
    /// Options for near terms.
    pub fuzzy: FuzzyOptions,
    /// `true` if a value that does not fit the field matches nothing instead of being refused.
    pub lenient: bool,
    /// Boost and name.
    pub common: Common,
}

impl MatchBoolPrefixQuery {
    /// Makes a clause with the defaults.
    pub fn new(field: &str, query: Value) -> Self {
        Self {
            field: field.to_owned(),
            query,
            operator: Operator::Or,
            minimum_should_match: None,
            analyzer: None,
            fuzziness: None,
            fuzzy: FuzzyOptions::default(),
            lenient: false,
            common: Common::default(),
        }
    }
}

impl Clause for MatchBoolPrefixQuery {
    fn parse(_: &mut Parser, fields: &Map<String, Value>) -> Result<Self> {
        const CLAUSE: &str = "match_bool_prefix";
        let (field, query, options) = text_query(CLAUSE, fields)?;
        let mut clause = Self::new(field, query);
        for (key, value) in options {
            let text = json::text(value).unwrap_or_default();
            match key {
                "operator" => clause.operator = Operator::parse(&text)?,
                "minimum_should_match" => clause.minimum_should_match = minimum(value)?,
                "analyzer" => clause.analyzer = Some(text),
                "fuzziness" => clause.fuzziness = Some(Fuzziness::parse(value)?),
                _ if fuzzy_option(CLAUSE, &mut clause.fuzzy, key, value)? => {}
                _ if clause.common.take(CLAUSE, key, value)? => {}
                _ => return Err(unsupported(CLAUSE, key)),
            }
        }
        Ok(clause)
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}*", self.field, self.query)
    }
}
