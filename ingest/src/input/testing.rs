//! A pipeline in place of the real one: takes batches and keeps positions as the store does.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};

use super::{BatchSize, Context, InputError, Positions};
use crate::batch::NotStored;
use crate::budget::Budget;
use crate::{Ack, Batch, Event, Location, Move, Options, Setting};

/// Options by name and value.
pub(crate) fn options(plugin: &str, given: &[(&str, OptionValue)]) -> Options {
    let at = Location { line: 1, column: 1 };
    let given = given.iter().map(|(name, value)| ((*name).to_owned(), at, value.0.clone()));
    Options::new(plugin, at, given)
}

/// A value of an option.
#[derive(Clone)]
pub(crate) struct OptionValue(pub(crate) Setting);

impl From<&str> for OptionValue {
    fn from(text: &str) -> Self {
        Self(Setting::Text(text.to_owned()))
    }
}

impl From<String> for OptionValue {
    fn from(text: String) -> Self {
        Self(Setting::Text(text))
    }
}

impl<const N: usize> From<[&str; N]> for OptionValue {
    fn from(texts: [&str; N]) -> Self {
        Self(Setting::Array(texts.iter().map(|text| Setting::Text((*text).to_owned())).collect()))
    }
}

impl<const N: usize> From<[(&str, &str); N]> for OptionValue {
    fn from(pairs: [(&str, &str); N]) -> Self {
        let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), Setting::Text((*value).to_owned()));
        Self(Setting::Hash(pairs.iter().map(pair).collect()))
    }
}

/// Position and owner epoch of a partition.
type StoredPartition = (Option<Bytes>, u64);

/// Stored positions, by source and partition.
#[derive(Debug, Default)]
pub(crate) struct StoredPositions(Mutex<BTreeMap<(String, String), StoredPartition>>);

impl StoredPositions {
    /// Compares and sets, as the store does.
    pub(crate) fn apply(&self, moved: &Move) -> Result<(), NotStored> {
        let mut stored = self.0.lock();
        let key = (moved.source.clone(), moved.partition.clone());
        let (position, epoch) = stored.get(&key).cloned().unwrap_or((None, 0));
        if position != moved.previous || epoch != moved.owner_epoch {
            return Err(NotStored::Moved);
        }
        if moved.new.is_empty() {
            stored.remove(&key);
        } else {
            stored.insert(key, (Some(moved.new.clone()), epoch));
        }
        Ok(())
    }
}

#[async_trait]
impl Positions for StoredPositions {
    async fn claim(&self, source: &str, partition: &str) -> Result<(Option<Bytes>, u64), InputError> {
        let mut stored = self.0.lock();
        let known = stored.entry((source.to_owned(), partition.to_owned())).or_default();
        known.1 += 1;
        Ok(known.clone())
    }

    async fn list(&self, source: &str) -> Result<Vec<(String, Bytes)>, InputError> {
        let stored = self.0.lock();
        let of = stored.iter().filter(|((of, _), _)| of == source);
        Ok(of.filter_map(|((_, part), (at, _))| Some((part.clone(), at.clone()?))).collect())
    }
}

/// The pipeline's side of a [`Context`].
pub(crate) struct Pipeline {
    sender: Option<mpsc::Sender<Batch>>,
    receiver: mpsc::Receiver<Batch>,
    pub(crate) stop: watch::Sender<bool>,
    pub(crate) stored: Arc<StoredPositions>,
    pub(crate) budget: Budget,
    /// Name of the input, and those of its siblings.
    pub(crate) names: Vec<&'static str>,
    /// Names of inputs that were stopped.
    pub(crate) former: Vec<&'static str>,
    /// Events stored.
    pub(crate) events: Vec<Event>,
}

impl Pipeline {
    pub(crate) fn new(queue: usize) -> Self {
        Self::with(queue, Arc::default())
    }

    /// A pipeline that begins with what another one has stored.
    pub(crate) fn with(queue: usize, stored: Arc<StoredPositions>) -> Self {
        let (sender, receiver) = mpsc::channel(queue);
        Self {
            sender: Some(sender),
            receiver,
            stop: watch::Sender::new(false),
            stored,
            budget: Budget::default(),
            names: vec!["test"],
            former: Vec::new(),
            events: Vec::new(),
        }
    }

    /// The context of an input; once.
    pub(crate) fn context(&mut self) -> Context {
        Context {
            batches: self.sender.take().unwrap(),
            source: Arc::from(self.names[0]),
            siblings: self.names[1..].iter().map(|name| Arc::from(*name)).collect(),
            former: self.former.iter().map(|name| Arc::from(*name)).collect(),
            positions: Arc::clone(&self.stored) as Arc<dyn Positions>,
            stopping: self.stop.subscribe(),
            batch_size: BatchSize::new(125),
            budget: self.budget.share(),
        }
    }

    /// Takes the next batch without storing it.
    pub(crate) async fn next(&mut self) -> Option<Batch> {
        self.receiver.recv().await
    }

    /// Stores a batch: events and position, or neither.
    pub(crate) fn store(&mut self, batch: Batch) -> Result<(), NotStored> {
        let Batch { events, position, ack, held: _held } = batch;
        let moved = position.map_or(Ok(()), |moved| self.stored.apply(&moved));
        if moved.is_ok() {
            self.events.extend(events);
        }
        ack.tell(moved.clone());
        moved
    }

    /// Takes the next batch and stores it.
    pub(crate) async fn take(&mut self) -> Option<Result<(), NotStored>> {
        let batch = self.next().await?;
        Some(self.store(batch))
    }

    /// Messages of the events stored.
    pub(crate) fn messages(&self) -> Vec<String> {
        let text = |event: &Event| event.fields()["message"].as_str().unwrap().to_owned();
        self.events.iter().map(text).collect()
    }
}

/// Refuses a batch.
pub(crate) fn refuse(batch: Batch, why: NotStored) {
    let ack: Ack = batch.ack;
    ack.tell(Err(why));
}
