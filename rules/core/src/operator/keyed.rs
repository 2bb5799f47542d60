//! State by key, bounded in number, bytes and time.
//!
//! Each key has a deadline in event time. Once the watermark has reached it the key is forgotten: whether its state is
//! still in memory then changes nothing. Where a rule has more keys or bytes than its bounds allow, those with the
//! earliest deadlines are forgotten before their time, and counted: of 200,000 keys that are seen now the one whose events
//! are the oldest goes first.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::OperatorStats;
use super::codec::{Reader, Writer};
use super::key::Key;
use crate::error::{Error, Result};
use crate::mutation::{Mutation, mutated};
use crate::time::Time;

/// Bounds on the memory of one operator of one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Keys.
    pub keys: usize,
    /// Bytes of keys and their state, as an estimate of the memory that they take.
    pub bytes: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { keys: 200_000, bytes: 256 << 20 }
    }
}

/// State of one key.
pub(crate) trait State: fmt::Debug + Send + Sync + Sized {
    /// The bytes that it takes.
    fn bytes(&self) -> usize;
    fn encode(&self, writer: &mut Writer);
    fn decode(reader: &mut Reader<'_>) -> Result<Self>;
}

/// Memory of an operator, independent of the content of its keys.
pub(crate) trait Memory: fmt::Debug + Send + Sync {
    /// Frees the state of keys that are forgotten.
    fn purge(&mut self, watermark: Time);

    /// Writes the state of keys that are not forgotten.
    fn encode(&self, watermark: Time, writer: &mut Writer);

    /// Reads what [`Self::encode`] wrote.
    fn decode(&mut self, reader: &mut Reader<'_>) -> Result<()>;

    /// Returns the number of keys, their bytes, and the number of early evictions.
    fn figures(&self) -> OperatorStats;
}

#[derive(Debug)]
struct KeyEntry<S> {
    state: S,
    deadline: Time,
    bytes: usize,
}

/// State of all keys of an operator.
#[derive(Debug)]
pub(crate) struct KeyedState<S> {
    entries: BTreeMap<Key, KeyEntry<S>>,
    order: BTreeSet<(Time, Key)>,
    bytes: usize,
    bounds: Bounds,
    evicted: u64,
}

impl<S: State> KeyedState<S> {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self { entries: BTreeMap::new(), order: BTreeSet::new(), bytes: 0, bounds, evicted: 0 }
    }

    /// Takes a key's state out, unless it is forgotten.
    pub(crate) fn take(&mut self, key: &Key, watermark: Time) -> Option<S> {
        let kept = self.remove(key)?;
        (watermark < kept.deadline || mutated(Mutation::NeverForget)).then_some(kept.state)
    }

    /// Puts a key's state in; others go where it does not fit.
    pub(crate) fn put(&mut self, key: Key, state: S, deadline: Time, watermark: Time) {
        self.remove(&key);
        self.purge(watermark);
        let bytes = key.bytes() + state.bytes();
        self.bytes += bytes;
        self.order.insert((deadline, key.clone()));
        self.entries.insert(key, KeyEntry { state, deadline, bytes });
        while self.entries.len() > self.bounds.keys || self.bytes > self.bounds.bytes {
            let Some((_, first)) = self.order.first().cloned() else { break };
            self.remove(&first);
            self.evicted += 1;
        }
    }

    fn remove(&mut self, key: &Key) -> Option<KeyEntry<S>> {
        let (key, kept) = self.entries.remove_entry(key)?;
        self.bytes -= kept.bytes;
        self.order.remove(&(kept.deadline, key));
        Some(kept)
    }
}

impl<S: State> Memory for KeyedState<S> {
    fn purge(&mut self, watermark: Time) {
        if mutated(Mutation::NeverForget) {
            return;
        }
        while let Some((deadline, key)) = self.order.first()
            && *deadline <= watermark
        {
            let key = key.clone();
            self.remove(&key);
        }
    }

    fn figures(&self) -> OperatorStats {
        OperatorStats { keys: self.entries.len(), bytes: self.bytes, evicted: self.evicted }
    }

    fn encode(&self, watermark: Time, writer: &mut Writer) {
        let lasting = || self.order.iter().filter(|(deadline, _)| watermark < *deadline);
        writer.number(self.evicted);
        writer.size(lasting().count());
        for (deadline, key) in lasting() {
            if let Some(kept) = self.entries.get(key) {
                writer.time(*deadline);
                key.encode(writer);
                kept.state.encode(writer);
            }
        }
    }

    fn decode(&mut self, reader: &mut Reader<'_>) -> Result<()> {
        let evicted = reader.number()?;
        for _ in 0..reader.count()? {
            let deadline = reader.time()?;
            let key = Key::decode(reader)?;
            if self.entries.contains_key(&key) {
                return Err(Error::Corrupt("a key is there twice"));
            }
            let state = S::decode(reader)?;
            // Deadlines are in order, so that bounds which are smaller now keep the latest ones.
            self.put(key, state, deadline, Time::from_ms(i64::MIN));
        }
        self.evicted = evicted.max(self.evicted);
        Ok(())
    }
}
