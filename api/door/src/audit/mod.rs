//! The audit: callers, actions and addresses, as documents of an index a day.
//!
//! Always told are logins and failed ones, refusals, and changes of users, roles, mappings, keys, tokens, passwords and cluster settings; with
//! [`Config::reads`] also what is read. The dispatcher follows a request with a [`AuditTrail`] and hands it over at its end
//! ([`Audit::done`]), which never waits: events go to a bounded queue ([`queue`]), a task ([`Audit::run`]) writes them
//! within a second or two and tries again while the store refuses. What the queue has no place for is counted, and told in the next
//! document, in the log and in the figures of the node. Indices are made, and removed after their time, by the day ([`index`]); they are system
//! indices, which are read by who has an explicit privilege on them.

mod event;
mod index;
mod queue;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use millrace_catalog::access::{Action, Principal};
use millrace_catalog::metadata::IndicesOptions;
use millrace_engine::{Action as Operation, Engine, RefreshPolicy, Session, WriteOp};
use millrace_runtime::{Error as StoreError, Kind};
use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, Notify};

use crate::error::Error;
use crate::http::{Response, path};
use crate::identity::{Identity, NAME};
pub(crate) use event::AuditTrail;
use event::Event;
pub use event::{DeniedRule, HandlerNotes};
use queue::Queue;
pub use queue::QueueStats;

/// Events that are written at once.
const AT_ONCE: usize = 512;
/// Time for which events are gathered.
const GATHERING: Duration = Duration::from_secs(1);
/// Longest pause between tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Name that stands for the listener of a command.
const COMMAND: &str = "command";
/// Time that one write may wait for room.
const TIMEOUT: Duration = Duration::from_secs(10);

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
    identity: Arc<Identity>,
    config: Config,
    queue: Mutex<Queue>,
    /// Told of each event.
    wake: Notify,
    /// Events that are being written, the oldest first, each with how many were lost before it.
    writing: AsyncMutex<Vec<(Event, u64)>>,
}

impl fmt::Debug for AuditState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Audit {
    /// Makes the audit of a node. Nothing is written until [`Audit::run`] or [`Audit::flush`].
    pub fn new(engine: Arc<Engine>, identity: Arc<Identity>, config: Config) -> Self {
        Self(Some(Arc::new(AuditState {
            engine,
            identity,
            config,
            queue: Mutex::default(),
            wake: Notify::new(),
            writing: AsyncMutex::default(),
        })))
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
        let mut uri = String::new();
        for segment in segments {
            uri.push('/');
            path::encode(segment, &mut uri);
        }
        let request = http::Request::builder().method(method).uri(uri).body(());
        let (head, ()) = request.expect("some encoded segments are a path").into_parts();
        let mut trail = AuditTrail::new(&head, COMMAND);
        trail.came_from(&Principal::system());
        trail.does(Some(Action::PutSecurity));
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

    /// Writes events until the store ends.
    pub async fn run(self) {
        let Some(shared) = &self.0 else { return };
        if let Err(error) = shared.remove_expired().await {
            tracing::warn!(%error, "days of the audit could not be removed");
        }
        loop {
            shared.wake.notified().await;
            let mut pause = GATHERING;
            tokio::time::sleep(pause).await;
            while let Err(error) = shared.flush().await {
                if shared.engine.is_stopping() {
                    return;
                }
                tracing::warn!(%error, pause_s = pause.as_secs(), "the audit is not written for now");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
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
    fn record(&self, event: Event) {
        self.queue.lock().add(event);
        self.wake.notify_one();
    }

    async fn flush(&self) -> Result<(), StoreError> {
        let mut writing = self.writing.lock().await;
        loop {
            if writing.is_empty() {
                let (events, lost) = self.queue.lock().take();
                if lost > 0 {
                    tracing::warn!(lost, "events of the audit were lost");
                }
                writing.extend(events.into_iter().map(|event| (event, 0)));
                match writing.first_mut() {
                    Some((_, told)) => *told = lost,
                    None => return Ok(()),
                }
            }
            let some = writing.len().min(AT_ONCE);
            self.write(&mut writing, some).await?;
        }
    }

    /// Writes the first events. Those that are written, or never can be, are gone then.
    async fn write(&self, writing: &mut Vec<(Event, u64)>, some: usize) -> Result<(), StoreError> {
        let session = Session::system(&self.engine);
        let chosen = writing.get(..some).unwrap_or_default();
        let days: BTreeSet<String> = chosen.iter().map(|(event, _)| index::name(event.time_ms)).collect();
        for day in days {
            self.make(&day).await?;
        }
        let ops = chosen.iter().map(|(event, lost)| operation(event, *lost, &self.identity)).collect();
        let results = session.write(ops, RefreshPolicy::None, TIMEOUT).await?;
        let (mut stays, mut waits) = (Vec::new(), None);
        for (place, result) in results.into_iter().enumerate() {
            match result {
                Ok(_) => stays.push(false),
                // It was written before.
                Err(error) if error.kind() == Kind::Conflict => stays.push(false),
                Err(error) if passes(&error) => {
                    stays.push(true);
                    waits = Some(error);
                }
                Err(error) => {
                    stays.push(false);
                    let lost = writing.get(place).map_or(0, |(event, lost)| event.count + lost);
                    tracing::error!(%error, lost, "the audit could not be written");
                    self.queue.lock().lose(lost);
                }
            }
        }
        let mut stays = stays.into_iter();
        writing.retain(|_| stays.next().unwrap_or(true));
        waits.map_or(Ok(()), Err)
    }

    /// Makes the index of a day where it is missing, and removes those that have had their time.
    async fn make(&self, day: &str) -> Result<(), StoreError> {
        if !self.engine.make_own_index(day, &index::body()).await? {
            return Ok(());
        }
        if let Err(error) = self.remove_expired().await {
            tracing::warn!(%error, "days of the audit could not be removed");
        }
        Ok(())
    }

    async fn remove_expired(&self) -> Result<(), StoreError> {
        let session = Session::system(&self.engine);
        let now_ms = session.clock().now_ms();
        let is_expired = |name: &str| index::is_expired(name, now_ms, self.config.retention);
        let metadata = session.metadata();
        let expired: Vec<String> =
            metadata.indices().map(|meta| meta.name.to_string()).filter(|name| is_expired(name)).collect();
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
fn passes(error: &StoreError) -> bool {
    use Kind::{Forbidden, NotFound, Overloaded, Unavailable};
    matches!(error.kind(), Overloaded | Unavailable | Forbidden | NotFound)
        || matches!(error, StoreError::IndexClosed { .. })
}
