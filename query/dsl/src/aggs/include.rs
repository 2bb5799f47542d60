//! `include` and `exclude`: which terms make buckets.

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::members::ErrorLabel;
use crate::json;

/// Most values of a list.
const MAX_VALUES: usize = 65_536;

/// Selection of the terms that make buckets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IncludeExclude {
    /// Terms that do; all where absent.
    pub include: Option<Pattern>,
    /// Terms that do not, of these.
    pub exclude: Option<Pattern>,
    /// `(partition, of how many)`: only terms whose hash (Murmur3 x86 32 bits with seed 31 of bytes; of longs by
    /// `BitMixer`) is of that partition. Never with the others.
    pub partition: Option<(u32, u32)>,
}

/// A set of terms.
#[derive(Clone, Debug, PartialEq)]
pub enum Pattern {
    /// Those that a regular expression of Lucene's syntax matches.
    Regexp(String),
    /// A list: JSON strings, numbers or booleans.
    Values(Vec<Value>),
}

impl IncludeExclude {
    /// Takes `include` or `exclude`; returns whether the key was one of them.
    pub(super) fn take(&mut self, part: ErrorLabel<'_>, key: &str, value: &Value) -> Result<bool> {
        match key {
            "include" => match value {
                Value::Object(members) => {
                    self.partition = Some(partition(members).map_err(|error| part.unread(key, error))?);
                }
                _ => self.include = Some(Pattern::parse(part, key, value)?),
            },
            "exclude" => self.exclude = Some(Pattern::parse(part, key, value)?),
            _ => return Ok(false),
        }
        if self.partition.is_some() && (self.exclude.is_some() || self.include.is_some()) {
            return Err(part.refused(
                key,
                "Cannot specify any excludes when using a partition-based include".to_owned(),
            ));
        }
        let method = |pattern: &Pattern| match pattern {
            Pattern::Regexp(_) => "regex",
            Pattern::Values(_) => "set",
        };
        if let (Some(include), Some(exclude)) = (&self.include, &self.exclude)
            && method(include) != method(exclude)
        {
            let (include, exclude) = (method(include), method(exclude));
            let reason = format!("Cannot mix a {include}-based include with a {exclude}-based method");
            return Err(part.unread(key, Error::IllegalArgument(reason)));
        }
        Ok(true)
    }
}

impl Pattern {
    fn parse(part: ErrorLabel<'_>, key: &str, value: &Value) -> Result<Self> {
        match value {
            Value::String(text) => Ok(Self::Regexp(text.clone())),
            Value::Array(items) if items.len() > MAX_VALUES => Err(part.refused(
                key,
                format!("too many values: {} given, at most {MAX_VALUES} allowed", items.len()),
            )),
            Value::Array(items) => {
                if items.iter().any(|item| matches!(item, Value::Null | Value::Array(_) | Value::Object(_))) {
                    let reason = "Array elements in include/exclude clauses should be string values";
                    return Err(part.unread(key, Error::Parse(reason.to_owned())));
                }
                Ok(Self::Values(items.clone()))
            }
            other => Err(part.wrong_type(key, other)),
        }
    }
}

fn partition(members: &Map<String, Value>) -> Result<(u32, u32)> {
    let (mut partition, mut partitions) = (None, None);
    for (key, value) in members {
        match key.as_str() {
            "partition" => partition = Some(json::integer(value)?),
            "num_partitions" => partitions = Some(json::integer(value)?),
            other => {
                return Err(Error::Parse(format!("Unknown parameter in Include/Exclude clause: {other}")));
            }
        }
    }
    let missing = |name: &str| {
        Error::IllegalArgument(format!("Missing [{name}] parameter for partition-based include"))
    };
    let partition = partition.ok_or_else(|| missing("partition"))?;
    let partitions = partitions.ok_or_else(|| missing("num_partitions"))?;
    match (u32::try_from(partition), u32::try_from(partitions)) {
        (Ok(number), Ok(of)) if number < of => Ok((number, of)),
        _ => Err(Error::IllegalArgument(format!(
            "Partition must be >=0 and < numPartition which is {partitions}"
        ))),
    }
}
