//! Keys: the values of `query_key` under which an event counts.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::codec::{Reader, Writer};
use crate::error::Result;
use crate::fields;
use crate::mutation::{Mutation, mutated};

/// Keys under which one event counts at most; of composite keys with more combinations the first ones.
pub(crate) const MAX_KEYS: usize = 64;

/// Values of the parts of a key; `None` where the event has no value. Without parts: the key of all events.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key(Arc<[Option<Box<str>>]>);

impl Key {
    pub(crate) fn new(parts: impl IntoIterator<Item = Option<Box<str>>>) -> Self {
        Self(parts.into_iter().collect())
    }

    /// The key with more parts behind it.
    pub(crate) fn with(&self, parts: &[Option<Box<str>>]) -> Self {
        Self(self.0.iter().chain(parts).cloned().collect())
    }

    pub(crate) fn parts(&self) -> &[Option<Box<str>>] {
        &self.0
    }

    /// The bytes that it takes, with what a map needs for it.
    pub(crate) fn bytes(&self) -> usize {
        self.0.iter().map(|part| 16 + part.as_ref().map_or(0, |text| text.len())).sum::<usize>() + 128
    }

    pub(crate) fn encode(&self, writer: &mut Writer) {
        writer.size(self.0.len());
        for part in self.0.iter() {
            writer.flag(part.is_some());
            if let Some(text) = part {
                writer.text(text);
            }
        }
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let parts = reader.count()?;
        (0..parts)
            .map(|_| Ok(if reader.flag()? { Some(reader.text()?.into()) } else { None }))
            .collect::<Result<_>>()
            .map(Self)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, part) in self.0.iter().enumerate() {
            let separator = if at == 0 { "" } else { ", " };
            write!(f, "{separator}{}", part.as_deref().unwrap_or("(missing)"))?;
        }
        Ok(())
    }
}

/// Values of several fields together.
pub(crate) type Combination = Vec<Option<Box<str>>>;

/// The first `most` combinations of the values of several fields, each once; `None` stands for a missing value.
pub(crate) fn combinations(of: impl Iterator<Item = Vec<Box<str>>>, most: usize) -> Vec<Combination> {
    let mut combinations = vec![Vec::new()];
    for values in of {
        let mut values: Vec<_> = values.into_iter().map(Some).collect();
        if values.is_empty() {
            values.push(None);
        }
        if mutated(Mutation::FirstValueOnly) {
            values.truncate(1);
        }
        let longer = combinations.iter().flat_map(|head: &Combination| {
            values.iter().map(|value| head.iter().chain([value]).cloned().collect::<Combination>())
        });
        combinations = longer.take(most).collect();
    }
    combinations
}

/// The keys under which an event counts: one a value, that of all events without `query_key`, none where a value is
/// missing and `skip_missing` is set.
pub(crate) fn keys(source: &Value, query_key: &[String], skip_missing: bool) -> Vec<Key> {
    let skip = skip_missing || mutated(Mutation::SkipMissingKey);
    let values = query_key.iter().map(|field| fields::texts(source, field));
    let combinations = combinations(values, MAX_KEYS).into_iter();
    combinations.filter(|parts| !skip || parts.iter().all(Option::is_some)).map(Key::new).collect()
}
