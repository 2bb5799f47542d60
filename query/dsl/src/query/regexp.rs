//! `regexp`: values (on text fields: terms) that a regular expression describes, in Lucene's syntax.

use std::fmt;

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::{Clause, Common, Normalize, Parser, Rewrite, single};
use crate::json;

pub use millrace_mapping::automaton::Flags as RegexpFlags;

/// Parses the names of optional operators, joined by `|`.
pub fn flags(text: &str) -> Result<RegexpFlags> {
    if text.is_empty() {
        return Ok(RegexpFlags::ALL);
    }
    let mut flags = 0;
    for name in text.split('|').filter(|name| !name.is_empty()) {
        flags |= match name.to_uppercase().as_str() {
            "INTERSECTION" => RegexpFlags::INTERSECTION,
            "COMPLEMENT" => RegexpFlags::COMPLEMENT,
            "EMPTY" => RegexpFlags::EMPTY,
            "ANYSTRING" => RegexpFlags::ANYSTRING,
            "INTERVAL" => RegexpFlags::INTERVAL,
            "NONE" => RegexpFlags::NONE,
            "ALL" => RegexpFlags::ALL,
            _ => return Err(Error::IllegalArgument(format!("Unknown regexp flag [{name}]"))),
        }
        .0;
    }
    Ok(RegexpFlags(flags))
}

/// A `regexp` clause.
#[derive(Clone, Debug, PartialEq)]
pub struct RegexpQuery {
    /// Field path.
    pub field: String,
    /// The expression; it describes whole values.
    pub value: String,
    /// Normalization of the expression for the field's terms.
    pub normalize: Normalize,
    /// Optional operators.
    pub flags: RegexpFlags,
    /// `true` if ASCII letters match in either case.
    pub case_insensitive: bool,
    /// Bound of the work of making the expression's automaton.
    pub max_determinized_states: usize,
    /// Rewrite of the terms; one score for all where absent.
    pub rewrite: Option<Rewrite>,
    /// Boost and name.
    pub common: Common,
}

impl RegexpQuery {
    /// Default of `max_determinized_states`.
    pub const MAX_DETERMINIZED_STATES: usize = 10_000;
}

impl Clause for RegexpQuery {
    fn parse(_: &mut Parser, fields: &Map<String, Value>) -> Result<Self> {
        let (mut case_insensitive, mut rewrite) = (false, None);
        let (mut operators, mut states) = (RegexpFlags::ALL, Self::MAX_DETERMINIZED_STATES);
        let clause = single::parse("regexp", &["value"], fields, &mut |key, option| {
            match key {
                "flags" => operators = flags(&json::text(option).unwrap_or_default())?,
                "flags_value" => {
                    operators =
                        RegexpFlags(u32::try_from(json::integer(option)?).unwrap_or(RegexpFlags::ALL.0));
                }
                "max_determinized_states" => states = usize::try_from(json::integer(option)?).unwrap_or(0),
                "case_insensitive" => case_insensitive = json::boolean(option)?,
                "rewrite" => rewrite = Rewrite::option(option),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        let single::Single { field, value, common } = clause;
        Ok(Self {
            field,
            value,
            normalize: Normalize::Field,
            flags: operators,
            case_insensitive,
            max_determinized_states: states,
            rewrite,
            common,
        })
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = /{}/", self.field, self.value)
    }
}
