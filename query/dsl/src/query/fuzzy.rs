//! `fuzzy`: values (on text fields: terms) a few edits away from one.

use std::fmt;

use millrace_work::error::Result;
use serde_json::{Map, Value};

use super::{Clause, Common, Fuzziness, FuzzyOptions, Normalize, Parser, Rewrite, fuzziness, single};
use crate::json;

/// A `fuzzy` clause.
#[derive(Clone, Debug, PartialEq)]
pub struct FuzzyQuery {
    /// Field path.
    pub field: String,
    /// The term asked for.
    pub value: String,
    /// Normalization of the term for the field's terms.
    pub normalize: Normalize,
    /// Edits allowed.
    pub fuzziness: Fuzziness,
    /// Options for near terms.
    pub options: FuzzyOptions,
    /// Boost and name.
    pub common: Common,
}

impl Clause for FuzzyQuery {
    fn parse(_: &mut Parser, fields: &Map<String, Value>) -> Result<Self> {
        let mut distance = Fuzziness::AUTO;
        let mut options = FuzzyOptions::default();
        let clause = single::parse("fuzzy", &["value", "term"], fields, &mut |key, option| {
            match key {
                "fuzziness" => distance = Fuzziness::parse(option)?,
                "prefix_length" => {
                    options.prefix_length = fuzziness::count(option, 0, "prefixLength cannot be negative.")?
                }
                "max_expansions" => {
                    options.max_expansions = fuzziness::count(option, 1, "maxExpansions must be positive.")?
                }
                "transpositions" => options.transpositions = json::boolean(option)?,
                "rewrite" => options.rewrite = Rewrite::option(option),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        let single::Single { field, value, common } = clause;
        Ok(Self { field, value, normalize: Normalize::Field, fuzziness: distance, options, common })
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}~", self.field, self.value)
    }
}
