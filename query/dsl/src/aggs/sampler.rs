//! `sampler`: only the best documents of each shard.

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::members::ErrorLabel;

/// A `sampler` aggregation.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampler {
    /// Most documents of a shard, by score; 100 by default.
    pub shard_size: usize,
}

impl Sampler {
    pub(super) fn parse(part: ErrorLabel<'_>, members: &Map<String, Value>) -> Result<Self> {
        let mut sampler = Self { shard_size: 100 };
        for (key, value) in members {
            match (key.as_str(), value) {
                ("shard_size", Value::Number(_)) => {
                    sampler.shard_size = usize::try_from(part.int(key, value)?).map_err(|_| {
                        Error::IllegalArgument("[shard_size] must not be negative".to_owned())
                    })?;
                }
                _ => {
                    return Err(Error::Parsing(format!(
                        "Unsupported property \"{key}\" for aggregation \"{}",
                        part.name
                    )));
                }
            }
        }
        Ok(sampler)
    }
}
