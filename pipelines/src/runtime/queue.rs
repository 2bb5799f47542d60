//! The queue between inputs and workers: bounded by the bytes of events, taken from in deliveries.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use millrace_ingest::budget::Reservation;
use millrace_ingest::{Ack, Batch};
use millrace_runtime::Instant;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, watch};

use super::generation::Generation;
use crate::graph::InputNode;

/// Most bytes of events that wait, by what inputs have reserved for them. What a single batch has beyond does not count.
pub(super) const MAX_BYTES: u64 = 32 << 20;
/// Bytes that an event counts for at least.
const EVENT: u64 = 1024;
/// Bytes of a permit of the room: permits are counted in 32 bits.
const PERMIT: u64 = 1024;

/// Events that are worth a write of their own: more are taken if they are there, but not waited for.
const WORTHWHILE: usize = 1_000;

/// A batch, the input that it comes from, and the graph that it is to go through.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) input: Arc<InputNode>,
    pub(super) generation: Arc<Generation>,
    pub(super) batch: Batch,
    /// `true` if no more comes for its graph.
    pub(super) is_last: bool,
    _permit: OwnedSemaphorePermit,
    _counted: CountedEvents,
}

/// Events that wait, counted off when dropped.
#[derive(Debug)]
struct CountedEvents(Arc<AtomicUsize>, usize);

impl Drop for CountedEvents {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::Relaxed);
    }
}

/// The inputs' end.
#[derive(Clone, Debug)]
pub(super) struct QueueSender {
    entries: mpsc::UnboundedSender<Entry>,
    permits: Arc<Semaphore>,
    events: Arc<AtomicUsize>,
    closed: Arc<watch::Sender<bool>>,
}

/// Outcome of sending a batch to the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendOutcome {
    Queued,
    Withdrawn,
    /// Nobody takes anything any more.
    Closed,
}

/// The workers' end.
#[derive(Debug)]
pub(super) struct Queue {
    entries: mpsc::UnboundedReceiver<Entry>,
    closed: watch::Receiver<bool>,
    /// Entry that was too much for the last delivery, or goes through another graph.
    held: Option<Entry>,
}

pub(super) fn queue() -> (QueueSender, Queue) {
    let (sender, entries) = mpsc::unbounded_channel();
    let permits = Arc::new(Semaphore::new(usize::try_from(MAX_BYTES / PERMIT).unwrap_or(usize::MAX)));
    let (close, closed) = watch::channel(false);
    let sender = QueueSender { entries: sender, permits, events: Arc::default(), closed: Arc::new(close) };
    (sender, Queue { entries, closed, held: None })
}

impl QueueSender {
    /// Waits for room and appends a batch, unless its source has withdrawn it by then. `generation` is asked for when there is room.
    pub(super) async fn send(
        &self,
        input: &Arc<InputNode>,
        batch: Batch,
        generation: impl Fn() -> Arc<Generation>,
    ) -> SendOutcome {
        let events = batch.events.len();
        let bytes = batch.held.bytes().max(EVENT * events as u64).clamp(PERMIT, MAX_BYTES);
        let permits = u32::try_from(bytes / PERMIT).unwrap_or(u32::MAX);
        let Ok(permits) = Arc::clone(&self.permits).acquire_many_owned(permits).await else {
            return SendOutcome::Closed;
        };
        if !batch.ack.accept() {
            return SendOutcome::Withdrawn;
        }
        self.events.fetch_add(events, Ordering::Relaxed);
        let counted = CountedEvents(Arc::clone(&self.events), events);
        let (input, generation) = (Arc::clone(input), generation());
        let entry = Entry { input, generation, batch, is_last: false, _permit: permits, _counted: counted };
        if self.entries.send(entry).is_ok() { SendOutcome::Queued } else { SendOutcome::Closed }
    }

    /// Appends an entry without events, which flushes filters. Returns `false` if the queue is closed.
    pub(super) fn flush(&self, input: &Arc<InputNode>, generation: Arc<Generation>, is_last: bool) -> bool {
        // It takes no room, and waits for none.
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_many_owned(0) else { return false };
        let batch =
            Batch { events: Vec::new(), position: None, ack: Ack::none(), held: Reservation::default() };
        let counted = CountedEvents(Arc::clone(&self.events), 0);
        let input = Arc::clone(input);
        let entry = Entry { input, generation, batch, is_last, _permit: permit, _counted: counted };
        self.entries.send(entry).is_ok()
    }

    /// Waits until the queue takes nothing more.
    pub(super) async fn closed(&self) {
        // The sender is this one's own.
        let _ = self.closed.subscribe().wait_for(|closed| *closed).await;
    }

    /// Takes nothing more: the queue holds the rest.
    pub(super) fn close(&self) {
        self.permits.close();
        self.closed.send_replace(true);
    }

    /// Events that wait.
    pub(super) fn events(&self) -> usize {
        self.events.load(Ordering::Relaxed)
    }
}

impl Queue {
    /// The next entry; `None` when the queue is closed and empty.
    async fn next(&mut self) -> Option<Entry> {
        tokio::select! {
            biased;
            next = self.entries.recv() => next,
            _ = self.closed.wait_for(|closed| *closed) => self.entries.try_recv().ok(),
        }
    }

    /// Takes batches of up to `size` events together, at least one batch, all for the same graph; `None` at the
    /// end. Where there are few, it waits up to `patience` for more, but not once a delivery has `ended` that was under way:
    /// who sends the next events may have waited for that.
    pub(super) async fn take(
        &mut self,
        size: usize,
        patience: Option<Duration>,
        ended: &Notify,
    ) -> Option<Vec<Entry>> {
        let first = match self.held.take() {
            Some(held) => held,
            None => self.next().await?,
        };
        let deadline = patience.map(|patience| Instant::now() + patience);
        let mut events = first.batch.events.len();
        let generation = Arc::clone(&first.generation);
        let mut delivery = vec![first];
        while events < size {
            let next = match (self.entries.try_recv(), deadline) {
                (Ok(next), _) => Some(next),
                (Err(mpsc::error::TryRecvError::Empty), Some(deadline)) if events < WORTHWHILE => {
                    tokio::select! {
                        biased;
                        next = self.next() => next,
                        () = ended.notified() => None,
                        () = tokio::time::sleep_until(deadline) => None,
                    }
                }
                (Err(_), _) => None,
            };
            let Some(next) = next else { break };
            if events + next.batch.events.len() > size || !Arc::ptr_eq(&next.generation, &generation) {
                self.held = Some(next);
                break;
            }
            events += next.batch.events.len();
            delivery.push(next);
        }
        Some(delivery)
    }
}
