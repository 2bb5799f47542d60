//! Fuzziness: the distance of a term from the requested one, and the treatment of the terms found.

use millrace_work::error::{Error, Result};
use serde_json::Value;

use super::Rewrite;
use crate::json;

/// Edits that a term may be away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fuzziness {
    /// By the length of the term in characters: none below `low`, one below `high`, else two.
    Auto {
        /// Least length at which one edit is allowed.
        low: usize,
        /// Least length at which two edits are allowed.
        high: usize,
    },
    /// So many, 0 to 2.
    Edits(u8),
}

impl Fuzziness {
    /// `AUTO`.
    pub(crate) const AUTO: Self = Self::Auto { low: 3, high: 6 };

    /// Parses a number, its text, `AUTO`, or `AUTO:low,high`.
    pub fn parse(value: &Value) -> Result<Self> {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            other => {
                return Err(Error::IllegalArgument(format!(
                    "Can't parse fuzziness on token: [{}]",
                    json::token(other)
                )));
            }
        };
        let upper = text.to_uppercase();
        if upper == "AUTO" {
            return Ok(Self::AUTO);
        }
        if let Some(bounds) = upper.strip_prefix("AUTO:") {
            return Self::auto(&upper, bounds);
        }
        // More than two edits are taken for two, and a fraction for what is before its point.
        match upper.trim().parse::<f32>() {
            Ok(number) if number >= 0.0 => Ok(Self::Edits(number.min(2.0) as u8)),
            _ => Err(Error::IllegalArgument(format!("Invalid fuzziness value: {text}"))),
        }
    }

    fn auto(whole: &str, bounds: &str) -> Result<Self> {
        let parts: Vec<&str> = bounds.split(',').collect();
        let &[low, high] = parts.as_slice() else {
            return Err(Error::Parse("failed to find low and high distance values".to_owned()));
        };
        let number = |text: &str| {
            text.trim()
                .parse::<i32>()
                .map_err(|_| Error::Parse(format!("failed to parse [{whole}] as a \"auto:int,int\"")))
        };
        let (low, high) = (number(low)?, number(high)?);
        if low < 0 || high < 0 || low > high {
            return Err(Error::IllegalArgument(
                "fuzziness wrongly configured, must be: lowDistance > 0, highDistance > 0 and lowDistance <= highDistance "
                    .to_owned(),
            ));
        }
        Ok(Self::Auto { low: low as usize, high: high as usize })
    }

    /// Returns the edits allowed for a term.
    pub fn edits(self, term: &str) -> u8 {
        match self {
            Self::Edits(edits) => edits,
            Self::Auto { low, high } => {
                let length = term.chars().take(high).count();
                if length < low {
                    0
                } else if length < high {
                    1
                } else {
                    2
                }
            }
        }
    }
}

/// Options for near terms; the defaults are OpenSearch's.
#[derive(Clone, Debug, PartialEq)]
pub struct FuzzyOptions {
    /// Characters at the start that must be the same.
    pub prefix_length: usize,
    /// Most terms found.
    pub max_expansions: usize,
    /// `true` if two characters swapped are one edit.
    pub transpositions: bool,
    /// Rewrite of the terms; the best ones with blended frequencies where absent.
    pub rewrite: Option<Rewrite>,
}

impl Default for FuzzyOptions {
    fn default() -> Self {
        Self { prefix_length: 0, max_expansions: 50, transpositions: true, rewrite: None }
    }
}

/// Reads a count of at least `least`; `refusal` is what is said of a lesser one.
pub(super) fn count(value: &Value, least: usize, refusal: &str) -> Result<usize> {
    usize::try_from(json::integer(value)?)
        .ok()
        .filter(|count| *count >= least)
        .ok_or_else(|| Error::IllegalArgument(refusal.to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn forms_of_fuzziness() {
        let parse = |value| Fuzziness::parse(&value);
        assert_eq!(parse(json!("auto")).unwrap(), Fuzziness::AUTO);
        assert_eq!(parse(json!("AUTO:2,4")).unwrap(), Fuzziness::Auto { low: 2, high: 4 });
        assert_eq!(parse(json!(2)).unwrap(), Fuzziness::Edits(2));
        assert_eq!(parse(json!("1.0")).unwrap(), Fuzziness::Edits(1));
        assert_eq!(parse(json!(1.5)).unwrap(), Fuzziness::Edits(1));
        assert_eq!(parse(json!(3)).unwrap(), Fuzziness::Edits(2));
        for wrong in [json!(""), json!(-1), json!(true), json!("AUTO:1"), json!("AUTO:4,2"), json!("x")] {
            assert!(parse(wrong.clone()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn edits_go_by_characters() {
        assert_eq!(["ab", "abc", "äöüß€", "abcdef"].map(|term| Fuzziness::AUTO.edits(term)), [0, 1, 1, 2]);
        assert_eq!(Fuzziness::Edits(2).edits("a"), 2);
    }
}
