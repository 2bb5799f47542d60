//! The task that writes audit events: one owner of what is being written.
//!
//! [`EventWriter`] takes what waits in the [`Queue`] and writes it to the index of its day. It gathers events for a second first, and
//! tries again with growing pauses while the store refuses. [`WriterMessage::Flush`] writes at once.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use millrace_catalog::metadata::{IndexMeta, IndicesOptions};
use millrace_engine::{Action as Operation, Engine, RefreshPolicy, Session, WriteOp};
use millrace_runtime::{Error as StoreError, EventHandler, Instant, Kind, Mailbox};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::event::Event;
use super::queue::Queue;
use super::{Config, index};
use crate::identity::Identity;

/// Events that are written at once.
const AT_ONCE: usize = 512;
/// Time for which events are gathered.
const GATHERING: Duration = Duration::from_secs(1);
/// Longest pause between tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Time that one write may wait for room.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Messages that wait for the writer, at most; at the bound, callers of a flush wait to ask for it.
pub(super) const MAILBOX_CAPACITY: usize = 16;

/// Message to the writer.
pub(super) enum WriterMessage {
    /// Write events as they come, from now on.
    Start,
    /// Write what was recorded so far; the answer is the store's.
    Flush(oneshot::Sender<Result<(), StoreError>>),
}

/// State of the task that writes.
pub(super) struct EventWriter {
    /// Not held: a task that is aborted lets go of what it has some time later, and nobody waits for that.
    engine: Weak<Engine>,
    identity: Arc<Identity>,
    config: Config,
    queue: Arc<Mutex<Queue>>,
    /// Events that are being written, the oldest first, each with how many were lost before it.
    batch: Vec<(Event, u64)>,
    /// `true` if events are written as they come.
    is_automatic: bool,
    /// Time of the next write; `None` while nothing waits.
    next_write: Option<Instant>,
    /// Pause behind a write that fails.
    pause: Duration,
}

impl EventHandler for EventWriter {
    type Message = WriterMessage;

    async fn handle(&mut self, message: WriterMessage) {
        match message {
            WriterMessage::Start => {
                self.is_automatic = true;
                if let Err(error) = self.remove_expired().await {
                    tracing::warn!(%error, "days of the audit could not be removed");
                }
            }
            WriterMessage::Flush(reply) => {
                let flushed = self.flush().await;
                // A caller that has gone away needs no answer.
                let _ = reply.send(flushed);
            }
        }
    }

    async fn run_due(&mut self) -> Option<Instant> {
        let due = self.next_write.filter(|_| self.is_automatic)?;
        if Instant::now() < due {
            return Some(due);
        }
        if let Err(error) = self.flush().await {
            if !self.is_stopping() {
                tracing::warn!(%error, pause_s = self.pause.as_secs(), "the audit is not written for now");
            }
            self.next_write = Some(Instant::now() + self.pause);
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        }
        self.next_write
    }

    fn wake(&mut self) {
        self.next_write.get_or_insert_with(|| Instant::now() + GATHERING);
    }

    fn is_stopping(&self) -> bool {
        self.engine.upgrade().is_none_or(|engine| engine.is_stopping())
    }

    /// Writes nothing: whoever ends the audit flushes it before.
    async fn drain(self, _mailbox: &mut Mailbox<WriterMessage>) {}
}

impl EventWriter {
    pub(super) fn new(
        engine: &Arc<Engine>,
        identity: Arc<Identity>,
        config: Config,
        queue: Arc<Mutex<Queue>>,
    ) -> Self {
        Self {
            engine: Arc::downgrade(engine),
            identity,
            config,
            queue,
            batch: Vec::new(),
            is_automatic: false,
            next_write: None,
            pause: GATHERING,
        }
    }

    fn engine(&self) -> Result<Arc<Engine>, StoreError> {
        self.engine.upgrade().ok_or_else(|| StoreError::Stopped("the store is closed".to_owned()))
    }

    /// Writes what waits. What the store refuses for now stays for the next time.
    async fn flush(&mut self) -> Result<(), StoreError> {
        loop {
            if self.batch.is_empty() {
                let (events, lost) = self.queue.lock().take();
                if lost > 0 {
                    tracing::warn!(lost, "events of the audit were lost");
                }
                self.batch.extend(events.into_iter().map(|event| (event, 0)));
                match self.batch.first_mut() {
                    Some((_, before)) => *before = lost,
                    None => {
                        (self.next_write, self.pause) = (None, GATHERING);
                        return Ok(());
                    }
                }
            }
            self.write_some().await?;
        }
    }

    /// Writes the first events. Those that are written, or never can be, are gone then.
    async fn write_some(&mut self) -> Result<(), StoreError> {
        let session = Session::system(&self.engine()?);
        let some = self.batch.len().min(AT_ONCE);
        let chosen = self.batch.get(..some).unwrap_or_default();
        let days: BTreeSet<String> = chosen.iter().map(|(event, _)| index::name(event.time_ms)).collect();
        let ops = chosen.iter().map(|(event, lost)| operation(event, *lost, &self.identity)).collect();
        for day in days {
            self.create_day(&day).await?;
        }
        let results = session.write(ops, RefreshPolicy::None, TIMEOUT).await?;
        let (mut stays, mut waits) = (Vec::new(), None);
        for (place, result) in results.into_iter().enumerate() {
            match result {
                Ok(_) => stays.push(false),
                // It was written before.
                Err(error) if error.kind() == Kind::Conflict => stays.push(false),
                Err(error) if is_transient(&error) => {
                    stays.push(true);
                    waits = Some(error);
                }
                Err(error) => {
                    stays.push(false);
                    let lost = self.batch.get(place).map_or(0, |(event, lost)| event.count + lost);
                    tracing::error!(%error, lost, "the audit could not be written");
                    self.queue.lock().lose(lost);
                }
            }
        }
        let mut stays = stays.into_iter();
        self.batch.retain(|_| stays.next().unwrap_or(true));
        waits.map_or(Ok(()), Err)
    }

    /// Makes the index of a day where it is missing, and removes those that have had their time and are not held.
    async fn create_day(&self, day: &str) -> Result<(), StoreError> {
        if !self.engine()?.make_own_index(day, &index::body()).await? {
            return Ok(());
        }
        if let Err(error) = self.remove_expired().await {
            tracing::warn!(%error, "days of the audit could not be removed");
        }
        Ok(())
    }

    async fn remove_expired(&self) -> Result<(), StoreError> {
        let session = Session::system(&self.engine()?);
        let now_ms = session.clock().now_ms();
        let metadata = session.metadata();
        let is_expired = |meta: &&Arc<IndexMeta>| {
            index::is_expired(&meta.name, now_ms, self.config.retention) && !metadata.is_held(meta)
        };
        let expired: Vec<String> =
            metadata.indices().filter(is_expired).map(|meta| meta.name.to_string()).collect();
        for name in expired {
            let options = IndicesOptions::open_and_closed();
            session.change(|metadata| metadata.delete_indices(&name, &options, now_ms)).await?;
            tracing::info!(index = name, "removed a day of the audit");
        }
        Ok(())
    }
}

fn operation(event: &Event, lost: u64, identity: &Identity) -> WriteOp {
    WriteOp::new(
        index::name(event.time_ms),
        Some(event.id.clone()),
        Operation::Create(event.document(identity, lost).to_string().into()),
    )
}

/// Returns whether another try may do: an index that is gone is made again, a closed one may be opened.
fn is_transient(error: &StoreError) -> bool {
    use Kind::{Forbidden, NotFound, Overloaded, Unavailable};
    matches!(error.kind(), Overloaded | Unavailable | Forbidden | NotFound)
        || matches!(error, StoreError::IndexClosed { .. })
}
