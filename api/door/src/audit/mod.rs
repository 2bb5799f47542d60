//! The audit: callers, actions and addresses, as documents of an index a day.
//!
//! Always told are logins and failed ones, refusals, and changes of users, roles, mappings, keys, tokens, passwords, cluster settings and ingest pipelines; with
//! [`Config::reads`] also what is read. The dispatcher follows a request with a [`AuditTrail`] and hands it over at its end
//! ([`Audit::done`]), which never waits: events go to a bounded queue ([`queue`]), a task ([`writer`]) writes them
//! within a second or two and tries again while the store refuses. What the queue has no place for is counted, and told in the next
//! document, in the log and in the figures of the node. Indices are made, and removed after their time, by the day ([`index`]); they are system
//! indices, which are read by who has an explicit privilege on them.

mod event;
mod index;
mod queue;
#[cfg(test)]
mod tests;
mod writer;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use millrace_catalog::access::{Action, Principal};
use millrace_engine::Engine;
use millrace_runtime::{Error as StoreError, EventLoop, EventSender, Mailbox};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::error::Error;
use crate::http::{Response, path};
use crate::identity::{Identity, NAME};
pub(crate) use event::AuditTrail;
use event::Event;
pub use event::{DeniedRule, HandlerNotes};
use queue::Queue;
pub use queue::QueueStats;
use writer::{EventWriter, MAILBOX_CAPACITY, WriterMessage};

/// Name that stands for the listener of a command.
const COMMAND: &str = "command";
/// Name that stands for the listener of the server's own work.
const SERVER: &str = "server";

/// Scope and retention of the audit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// `true` if it tells what is read, too.
    pub reads: bool,
    /// Time for which a day is kept.
    pub retention: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self { reads: false, retention: Duration::from_secs(90 * 24 * 60 * 60) }
    }
}

/// The audit of a node. Cheap to clone; without a store ([`Audit::default`]) it tells nothing.
#[derive(Clone, Debug, Default)]
pub struct Audit(Option<Arc<AuditState>>);

struct AuditState {
    engine: Arc<Engine>,
    config: Config,
    /// Requests add to it, and the writer takes from it; it is locked for moments.
    queue: Arc<Mutex<Queue>>,
    writer: EventSender<WriterMessage>,
    /// Ends with this.
    _running: EventLoop,
}

impl fmt::Debug for AuditState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuditState").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Audit {
    /// Makes the audit of a node. Nothing is written until [`Audit::start_writing`] or [`Audit::flush`].
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    pub fn new(engine: Arc<Engine>, identity: Arc<Identity>, config: Config) -> Self {
        let queue = Arc::<Mutex<Queue>>::default();
        let (sender, mailbox) = Mailbox::with_capacity(MAILBOX_CAPACITY);
        let writer = EventWriter::new(&engine, identity, config, Arc::clone(&queue));
        let running = EventLoop::spawn(writer, mailbox);
        Self(Some(Arc::new(AuditState { engine, config, queue, writer: sender, _running: running })))
    }

    /// Makes the audit of a command that changes a store which no server has. It removes no day: how long these are kept is the
    /// server's to know.
    ///
    /// # Errors
    /// The store's.
    pub async fn of_command(engine: &Arc<Engine>) -> Result<Self, Error> {
        let data_dir = engine.data_dir().to_owned();
        let identity = Identity::open(&**engine, NAME, NAME, data_dir, String::new()).await?;
        let config = Config { reads: false, retention: Duration::MAX };
        Ok(Self::new(Arc::clone(engine), Arc::new(identity), config))
    }

    /// Tells that a command has made the change that a request of this method makes; `segments` are those of its path.
    ///
    /// # Panics
    /// If there are none, or more than 64 KiB of them.
    pub fn command_changed(&self, method: Method, segments: &[&str]) {
        self.system_changed(COMMAND, Action::PutSecurity, method, segments);
    }

    /// Tells that the server itself has made the change that a request of this method and path makes, as policies of indices do.
    ///
    /// # Panics
    /// If there is no segment, or more than 64 KiB of them.
    pub fn server_changed(&self, action: Action, method: Method, segments: &[&str]) {
        self.system_changed(SERVER, action, method, segments);
    }

    fn system_changed(&self, listener: &'static str, action: Action, method: Method, segments: &[&str]) {
        let mut uri = String::new();
        for segment in segments {
            uri.push('/');
            path::encode(segment, &mut uri);
        }
        let request = http::Request::builder().method(method).uri(uri).body(());
        let (head, ()) = request.expect("some encoded segments are a path").into_parts();
        let mut trail = AuditTrail::new(&head, listener);
        trail.came_from(&Principal::system());
        trail.does(Some(action));
        trail.changes_security();
        self.tell(&trail, 200, false);
    }

    /// Tells the end of a request, if that is to be told. Never waits.
    pub(crate) fn done(&self, trail: &AuditTrail, result: &Result<Response, Error>) {
        match result {
            // Statements and deletions by query make the answers of their errors themselves.
            Ok(response) => self.tell(trail, response.status, trail.is_blocked()),
            Err(error) => self.ended(trail, error),
        }
    }

    /// Tells that a request was refused or failed, if that is to be told.
    pub(crate) fn ended(&self, trail: &AuditTrail, error: &Error) {
        // Blocks of indices and memory that is full are no matter of who asks.
        let blocked = matches!(error.error_type(), "cluster_block_exception" | "circuit_breaking_exception");
        self.tell(trail, error.status(), blocked || trail.is_blocked());
    }

    /// Tells that a request ended with a status, if that is to be told; `blocked` where everybody is refused.
    pub(crate) fn tell(&self, trail: &AuditTrail, status: u16, blocked: bool) {
        let Some(shared) = &self.0 else { return };
        let Some(outcome) = trail.outcome(status, blocked, shared.config.reads) else { return };
        shared.record(trail.event(outcome, status, shared.config.reads, shared.engine.clock().now_ms()));
    }

    /// Returns the numbers of waiting and lost events.
    pub fn figures(&self) -> QueueStats {
        self.0.as_ref().map(|shared| shared.queue.lock().figures()).unwrap_or_default()
    }

    /// Has events written as they come, until the store ends. Before, only [`Audit::flush`] writes.
    pub async fn start_writing(&self) {
        if let Some(shared) = &self.0 {
            // A writer that has ended has nothing to write any more.
            let _ = shared.writer.send(WriterMessage::Start).await;
        }
    }

    /// Writes what was told so far. What the store refuses for now is kept for the next time.
    ///
    /// # Errors
    /// The store's.
    pub async fn flush(&self) -> Result<(), StoreError> {
        match &self.0 {
            Some(shared) => shared.flush().await,
            None => Ok(()),
        }
    }
}

impl AuditState {
    /// Adds an event to the queue. Never waits.
    fn record(&self, event: Event) {
        self.queue.lock().add(event);
        self.writer.wake();
    }

    async fn flush(&self) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        // A writer that has ended drops the message, and so the reply.
        let _ = self.writer.send(WriterMessage::Flush(reply)).await;
        match answer.await {
            Ok(flushed) => flushed,
            Err(_) if self.queue.lock().figures().bytes == 0 => Ok(()),
            Err(_) => Err(StoreError::Stopped("the audit has ended".to_owned())),
        }
    }
}
