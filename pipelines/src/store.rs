//! Interface of a pipeline to the store: it commits events with the positions of their sources, and reads these positions.
//!
//! `millrace-pipeline-store` makes a [`Store`] of the engine. [`Volatile`] stands in where a pipeline is tried in the foreground without a store.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use millrace_catalog::access::Principal;
use millrace_catalog::operation::{DeadLetter, SourceWrite, WriteOp, WriteOutcome};
use millrace_ingest::Event;
use millrace_ingest::dead_letter::{DeadLetterFilter, Limits, Page, StoredDeadLetter};
use millrace_ingest::output::IndexTemplate;
use millrace_runtime::{Error, Result};
use parking_lot::Mutex;

/// Plugin that refused an event.
#[derive(Clone, Copy, Debug)]
pub struct Sender<'a> {
    /// Pipeline.
    pub pipeline: &'a str,
    /// Id of the plugin.
    pub plugin: &'a str,
    /// `true` if the event is a dead letter already, whose place the new one takes.
    pub again: bool,
}

/// Outcome of ingest pipelines for an operation.
#[derive(Debug)]
pub enum OutputVerdict {
    /// It is to be written so.
    Write(WriteOp),
    /// A pipeline dropped it.
    Dropped,
    /// A pipeline failed, for this reason.
    Failed(String),
}

/// Takes the operations of outputs through ingest pipelines: those that outputs name, else those of indices.
#[async_trait]
pub trait OutputPipelines: fmt::Debug + Send + Sync {
    /// Returns whether an index has pipelines.
    fn concerns(&self, index: &str) -> bool;

    /// Applies the pipelines; one verdict an operation.
    ///
    /// # Errors
    /// The pipelines cannot be read for now.
    async fn apply(&self, requests: Vec<(WriteOp, Option<Arc<str>>)>) -> Result<Vec<OutputVerdict>, String>;
}

/// Ends when what was written is durable, with one result an operation.
pub type Durable = BoxFuture<'static, Result<Vec<Result<WriteOutcome>>>>;

/// Durable truth as pipelines see it.
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync {
    /// Prepares what pipelines need there.
    ///
    /// # Errors
    /// The store's.
    async fn open(&self) -> Result<()> {
        Ok(())
    }

    /// Executes operations and moves positions in one frame once `ready` has ended: all preparation comes before. What events ask
    /// for is done with the rights of the writer. Returns when the next write may follow, which is before it is durable.
    ///
    /// # Errors
    /// [`Error::PositionMoved`] and what passes by itself; nothing was written then.
    async fn write(
        &self,
        writer: &Principal,
        write: SourceWrite,
        replace: DeadLetter,
        timeout: Duration,
        ready: BoxFuture<'_, ()>,
    ) -> Result<Durable>;

    /// Puts the template of an output, unless one of its name is there that stays.
    ///
    /// # Errors
    /// The store's.
    async fn put_template(&self, _template: &IndexTemplate) -> Result<()> {
        Ok(())
    }

    /// Returns the ingest pipelines of the store's indices, where it has some.
    fn output_pipelines(&self) -> Option<&Arc<dyn OutputPipelines>> {
        None
    }

    /// Takes a part of a source over: its position and the epoch of its new owner.
    ///
    /// # Errors
    /// The store's.
    async fn claim(&self, pipeline: &str, source: &str, partition: &str) -> Result<(Option<Bytes>, u64)>;

    /// Parts of a source with a position.
    fn positions(&self, pipeline: &str, source: &str) -> Vec<(String, Bytes)>;

    /// Dead letters, the oldest first.
    ///
    /// # Errors
    /// The store's.
    async fn dead_letters(&self, _wanted: DeadLetterFilter<'_>) -> Result<Page> {
        Ok(Page::default())
    }

    /// Sets the limits of a pipeline's dead letters.
    fn limit_dead_letters(&self, _pipeline: &str, _limits: Limits) {}

    /// Waits until dead letters are to be looked after, and does it.
    ///
    /// # Errors
    /// The store's.
    async fn maintain_dead_letters(&self) -> Result<()> {
        std::future::pending().await
    }

    /// Stores the operation that a letter holds with the rights of the writer, in one frame with its removal.
    ///
    /// # Errors
    /// Why it stays.
    async fn replay(
        &self,
        _writer: &Principal,
        letter: &StoredDeadLetter,
    ) -> std::result::Result<(), String> {
        Err(format!("there are no letters here, so none has the id [{}]", letter.id))
    }

    /// The operation that stores an event that ends as a dead letter; `None` where there is no place for it, and it
    /// was logged.
    fn letter(&self, event: &Event, reason: &str, sender: Sender<'_>) -> Option<WriteOp>;

    /// The operation that takes the place of one that is refused for good; `None` where it is only to be left out.
    fn letter_in_place_of(&self, op: &WriteOp, error: &Error, sender: Sender<'_>) -> Option<WriteOp>;
}

/// A store that forgets: positions are kept in memory, dead letters are logged.
#[derive(Debug, Default)]
pub struct Volatile {
    positions: Mutex<HashMap<PartitionKey, (Option<Bytes>, u64)>>,
}

/// Pipeline, source, partition.
type PartitionKey = (String, String, String);

#[async_trait]
impl Store for Volatile {
    async fn write(
        &self,
        _writer: &Principal,
        SourceWrite { ops, own, moves }: SourceWrite,
        _replace: DeadLetter,
        _timeout: Duration,
        ready: BoxFuture<'_, ()>,
    ) -> Result<Durable> {
        ready.await;
        let mut positions = self.positions.lock();
        let mut moved = HashMap::new();
        for delta in moves {
            let part = (delta.pipeline, delta.source, delta.partition);
            let have = moved.get(&part).or_else(|| positions.get(&part)).cloned().unwrap_or((None, 0));
            if have != (delta.previous, delta.owner_epoch) {
                let (pipeline, source_id, partition) = part;
                return Err(Error::PositionMoved { pipeline, source_id, partition });
            }
            let new = Some(delta.new).filter(|new| !new.is_empty());
            moved.insert(part, (new, delta.owner_epoch));
        }
        positions.extend(moved);
        let refused = |op: WriteOp| Err(Error::IndexNotFound { index: op.index.to_string() });
        let results = ops.into_iter().chain(own).map(refused).collect();
        Ok(async { Ok(results) }.boxed())
    }

    async fn claim(&self, pipeline: &str, source: &str, partition: &str) -> Result<(Option<Bytes>, u64)> {
        let part = (pipeline.to_owned(), source.to_owned(), partition.to_owned());
        let mut positions = self.positions.lock();
        let (position, epoch) = positions.entry(part).or_default();
        *epoch += 1;
        Ok((position.clone(), *epoch))
    }

    fn positions(&self, pipeline: &str, source: &str) -> Vec<(String, Bytes)> {
        let positions = self.positions.lock();
        let of_source = positions.iter().filter(|((p, s, _), _)| p == pipeline && s == source);
        of_source
            .filter_map(|((_, _, part), (position, _))| Some((part.clone(), position.clone()?)))
            .collect()
    }

    fn letter(&self, event: &Event, reason: &str, sender: Sender<'_>) -> Option<WriteOp> {
        let mut json = Vec::new();
        event.write_json(&mut json);
        let event = String::from_utf8_lossy(&json);
        tracing::warn!(pipeline = sender.pipeline, plugin = sender.plugin, reason, %event, "an event ends here");
        None
    }

    fn letter_in_place_of(&self, op: &WriteOp, error: &Error, sender: Sender<'_>) -> Option<WriteOp> {
        let Sender { pipeline, plugin, .. } = sender;
        tracing::warn!(pipeline, plugin, index = %op.index, %error, "an operation is refused");
        None
    }
}
