//! `rank_feature`: documents score by a number that the index keeps for it.

use std::fmt;

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::{Clause, Common, Parser};
use crate::json;

const CLAUSE: &str = "rank_feature";
/// OpenSearch's name of the clause in errors about its members.
const PARSER: &str = "feature";

/// A `rank_feature` clause.
#[derive(Clone, Debug, PartialEq)]
pub struct RankFeatureQuery {
    /// Field path; of a `rank_features` field, the feature comes behind it.
    pub field: String,
    /// Function from the number to the score.
    pub function: FeatureFunction,
    /// Boost and name.
    pub common: Common,
}

/// A function of a feature's number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FeatureFunction {
    /// `n / (n + pivot)`; about the mean where the pivot is absent.
    Saturation(Option<f32>),
    /// `ln(scale + n)`.
    Log(f32),
    /// `n^exponent / (n^exponent + pivot^exponent)`.
    Sigmoid {
        /// Number with half of the score.
        pivot: f32,
        /// Steepness of the curve.
        exponent: f32,
    },
    /// `n`.
    Linear,
}

impl Clause for RankFeatureQuery {
    fn parse(_: &mut Parser, fields: &Map<String, Value>) -> Result<Self> {
        let mut common = Common::default();
        let (mut field, mut function) = (None, None);
        for (key, value) in fields {
            match key.as_str() {
                "field" => field = json::text(value),
                "saturation" | "log" | "sigmoid" | "linear" => {
                    if function.is_some() {
                        return Err(json::content(
                            "Failed to build [feature] after last required field arrived".to_owned(),
                        ));
                    }
                    function = Some(FeatureFunction::parse(key, json::object(CLAUSE, value)?)?);
                }
                _ if common.take(CLAUSE, key, value)? => {}
                _ => return Err(Error::unknown_member(PARSER, key)),
            }
        }
        Ok(Self {
            field: field.ok_or_else(|| Error::IllegalArgument("Required [field]".to_owned()))?,
            function: function.unwrap_or(FeatureFunction::Saturation(None)),
            common,
        })
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.field)
    }
}

impl FeatureFunction {
    fn parse(kind: &str, options: &Map<String, Value>) -> Result<Self> {
        let number = |key: &str| options.get(key).map(json::float).transpose();
        let required = |key: &str| {
            number(key)?.ok_or_else(|| Error::Content {
                reason: format!("[{PARSER}] failed to parse field [{kind}]"),
                cause: Some(Box::new(Error::IllegalArgument(format!("Required [{key}]")))),
            })
        };
        let known: &[&str] = match kind {
            "saturation" => &["pivot"],
            "log" => &["scaling_factor"],
            "sigmoid" => &["pivot", "exponent"],
            _ => &[],
        };
        if let Some(unknown) = options.keys().find(|key| !known.contains(&key.as_str())) {
            return Err(Error::unknown_member(kind, unknown));
        }
        Ok(match kind {
            "saturation" => Self::Saturation(number("pivot")?),
            "log" => Self::Log(required("scaling_factor")?),
            "sigmoid" => Self::Sigmoid { pivot: required("pivot")?, exponent: required("exponent")? },
            _ => Self::Linear,
        })
    }

    /// Refuses numbers that a function cannot work with.
    ///
    /// # Errors
    /// Such a number is an illegal argument.
    pub fn check(self) -> Result<()> {
        let positive = |name: &str, number: f32| match number > 0.0 && number.is_finite() {
            true => Ok(()),
            false => Err(Error::IllegalArgument(format!("{name} must be > 0, got: {number:?}"))),
        };
        match self {
            Self::Saturation(Some(pivot)) => positive("pivot", pivot),
            Self::Sigmoid { pivot, exponent } => {
                positive("pivot", pivot)?;
                positive("exp", exponent)
            }
            Self::Log(scale) if scale.is_nan() || scale < 1.0 => {
                Err(Error::IllegalArgument(format!("scalingFactor must be >= 1, got: {scale:?}")))
            }
            _ => Ok(()),
        }
    }

    /// Makes the score of a number; `mean` stands for a pivot that is absent.
    pub fn score(self, number: f32, mean: f32) -> f32 {
        match self {
            Self::Saturation(pivot) => {
                let pivot = pivot.unwrap_or(mean);
                1.0 - pivot / (number + pivot)
            }
            Self::Log(scale) => f64::from(scale + number).ln() as f32,
            Self::Sigmoid { pivot, exponent } => {
                let pivot = f64::from(pivot).powf(exponent.into());
                (1.0 - pivot / (f64::from(number).powf(exponent.into()) + pivot)) as f32
            }
            Self::Linear => number,
        }
    }
}
