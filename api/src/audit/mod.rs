//! The audit: who was refused, who changed what is about security, and what of it, as documents of `.audit-<day>`.
//!
//! [`Audit::record`] is called by the dispatcher and never waits: an [`Event`] goes into a bounded queue, and what finds no place
//! is counted. [`writer`] takes what has come within a second, joins what is the same, and writes it as the server itself. No
//! header, no parameter and no body is part of an event.

mod event;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millrace_storage::Engine;
use tokio::sync::{mpsc, oneshot};

pub(crate) use event::{Event, Outcome, Subject, is_audited};

/// Events that wait to be written; beyond it they are lost and counted.
const QUEUED: usize = 1_024;
/// Time that the shutdown gives to the last ones.
const FLUSH_TIME: Duration = Duration::from_secs(5);

/// What the writer is told.
#[derive(Debug)]
enum Message {
    Event(Box<Event>),
    /// Says when all before it is written.
    Flush(oneshot::Sender<()>),
}

/// The way into the audit. Cheap to clone; it ends with its last clone.
#[derive(Clone, Debug)]
pub(crate) struct Audit {
    queue: mpsc::Sender<Message>,
    lost: Arc<AtomicU64>,
}

impl Audit {
    /// Starts the task that writes.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub(crate) fn start(engine: &Arc<Engine>) -> Self {
        let (queue, events) = mpsc::channel(QUEUED);
        let lost = Arc::new(AtomicU64::new(0));
        tokio::spawn(writer::run(Arc::downgrade(engine), events, Arc::clone(&lost)));
        Self { queue, lost }
    }

    /// Takes note of an event; does not wait.
    pub(crate) fn record(&self, event: Event) {
        // What waits is bounded in bytes, too.
        if self.queue.try_send(Message::Event(Box::new(event.cut()))).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until what was recorded is written, for a while.
    pub(crate) async fn flush(&self) {
        let (done, told) = oneshot::channel();
        let flushed = async {
            if self.queue.send(Message::Flush(done)).await.is_ok() {
                // A writer that has ended has nothing left.
                let _ = told.await;
            }
        };
        if tokio::time::timeout(FLUSH_TIME, flushed).await.is_err() {
            tracing::warn!("the last events of the audit were not written in time");
        }
    }
}
