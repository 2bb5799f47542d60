//! How far a term may be from the one that is asked for, and what is done with the terms found.

use serde_json::Value;

use super::Rewrite;
use crate::dsl::json;
use crate::error::{Error, Result};

/// Edits that a term may be away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fuzziness {
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
    pub(crate) fn parse(value: &Value) -> Result<Self> {
        let text = json::text(value).unwrap_or_default();
        if text.is_empty() {
            return Err(Error::IllegalArgument("fuzziness cannot be null or empty.".to_owned()));
        }
        let upper = text.to_uppercase();
        if upper == "AUTO" {
            return Ok(Self::AUTO);
        }
        if let Some(bounds) = upper.strip_prefix("AUTO:") {
            return Self::auto(&upper, bounds);
        }
        let number: f32 = upper
            .trim()
            .parse()
            .map_err(|_| Error::IllegalArgument(format!("fuzziness cannot be [{text}].")))?;
        if number % 1.0 > 0.0 {
            return Err(Error::IllegalArgument(format!(
                "fuzziness needs to be one of 0.0, 1.0 or 2.0 but was {number}"
            )));
        }
        match number {
            0.0 => Ok(Self::Edits(0)),
            1.0 => Ok(Self::Edits(1)),
            2.0 => Ok(Self::Edits(2)),
            _ => Err(Error::IllegalArgument(format!(
                "Valid edit distances are [0, 1, 2] but was [{}]",
                number as i64
            ))),
        }
    }

    fn auto(whole: &str, bounds: &str) -> Result<Self> {
        let parts: Vec<&str> = bounds.split(',').collect();
        let &[low, high] = parts.as_slice() else {
            return Err(Error::Parsing(format!(
                "failed to find low and high distance values from [{whole}]"
            )));
        };
        let number = |text: &str| {
            text.trim()
                .parse::<i32>()
                .map_err(|_| Error::Parsing(format!("failed to parse [{whole}] as a \"auto:int,int\"")))
        };
        let (low, high) = (number(low)?, number(high)?);
        if low < 0 || high < 0 || low > high {
            return Err(Error::IllegalArgument(format!(
                "fuzziness wrongly configured, must be: lowDistance > 0, highDistance > 0 and lowDistance <= highDistance "
            )));
        }
        Ok(Self::Auto { low: low as usize, high: high as usize })
    }

    /// Returns the edits allowed for a term.
    pub(crate) fn edits(self, term: &str) -> u8 {
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

/// How terms near another are found; the defaults are OpenSearch's.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FuzzyOptions {
    /// Characters at the start that must be the same.
    pub prefix_length: usize,
    /// Most terms found.
    pub max_expansions: usize,
    /// Whether two characters swapped are one edit.
    pub transpositions: bool,
    /// What the terms become; the best ones with blended frequencies where absent.
    pub rewrite: Option<Rewrite>,
}

impl Default for FuzzyOptions {
    fn default() -> Self {
        Self { prefix_length: 0, max_expansions: 50, transpositions: true, rewrite: None }
    }
}

/// Reads a whole number that must not be negative.
pub(super) fn count(name: &str, value: &Value) -> Result<usize> {
    let number = json::integer(value)?;
    usize::try_from(number)
        .map_err(|_| Error::IllegalArgument(format!("{name} cannot be negative, found [{number}]")))
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
        for wrong in [json!(""), json!(3), json!(1.5), json!("AUTO:1"), json!("AUTO:4,2"), json!("x")] {
            assert!(parse(wrong.clone()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn edits_go_by_characters() {
        assert_eq!(["ab", "abc", "äöüß€", "abcdef"].map(|term| Fuzziness::AUTO.edits(term)), [0, 1, 1, 2]);
        assert_eq!(Fuzziness::Edits(2).edits("a"), 2);
    }
}
