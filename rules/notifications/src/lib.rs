//! Alerts that reach people: an outbox committed with the alerts, and the channels that it is sent through.
//!
//! [`rows`] makes what an alert adds to the outbox, a row a channel; whoever commits the alert writes them in the same frame. A task
//! reads the rows that are due, sends them, and writes what became of them: at least once, under the same key each time. [`Notifications`]
//! is the way in. `docs/notifications.md` is the users' side.
//!
//! - [`outbox`]: rows, and the index they are in
//! - `sender`: which rows are sent when (`sender::lanes`, pure), the task, what is read and written
//! - `message`: what a notification says
//! - `channel`: mail, webhooks, commands, a file each
//! - [`OutboxFigures`]: figures for metrics
//! - [`allow`]: where notifications may go
//! - `secrets`: what rules name and do not have
//! - `check`: whether a rule's channels can be used

pub mod allow;
mod channel;
mod check;
mod config;
mod error;
mod figures;
mod message;
pub mod outbox;
mod secrets;
mod sender;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millrace_accounts::Accounts;
use millrace_engine::{Engine, Session};
use millrace_query::SearchService;
use millrace_rules::definition::Definition;
use millrace_rules::definition::notification::Channel;
use millrace_rules::hex;
use millrace_runtime::{EventLoop, EventSender, Mailbox};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::channel::Channels;
use crate::figures::OutboxCounters;
use crate::secrets::Secrets;
use crate::sender::SendCompletion;

pub use config::{Config, Smtp, SmtpTls};
pub use error::{Error, Result};
pub use figures::{NotificationDurations, OutboxFigures};
pub use outbox::{NotificationReason, rows};
pub use sender::{ChannelTestReport, StandaloneMessage};

/// Tests of channels at a time.
const TESTS: usize = 4;

/// Notifications at work; cheap to clone. They end with the last clone, as after a crash; [`Notifications::stop`] waits for what is under
/// way.
#[derive(Clone)]
pub struct Notifications {
    shared: Arc<NotifierState>,
    /// The loop that sends; `None` once it is to end.
    event_loop: Arc<Mutex<Option<EventLoop>>>,
}

impl fmt::Debug for Notifications {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notifications").finish_non_exhaustive()
    }
}

/// State that the task and its callers share.
pub(crate) struct NotifierState {
    pub(crate) engine: Arc<Engine>,
    pub(crate) session: Session,
    pub(crate) search: Arc<SearchService>,
    pub(crate) accounts: Arc<Accounts>,
    pub(crate) channels: Channels,
    pub(crate) secrets: Secrets,
    pub(crate) config: Config,
    /// Completed deliveries, and wake-ups where there are new rows.
    pub(crate) sender: EventSender<SendCompletion>,
    /// Frames before this one are evaluated, and what they raised is committed: their rows are not written again.
    pub(crate) committed: AtomicU64,
    pub(crate) figures: OutboxCounters,
    tests: Semaphore,
    fault: Mutex<Option<String>>,
}

impl NotifierState {
    /// Returns how long a notification is tried again, in milliseconds.
    pub(crate) fn give_up_ms(&self) -> i64 {
        i64::try_from(self.config.give_up_after.as_millis()).unwrap_or(i64::MAX)
    }

    /// Notes why nothing is sent, or that it is.
    pub(crate) fn set_fault(&self, fault: Option<String>) {
        let mut told = self.fault.lock();
        if let Some(fault) = fault.as_ref().filter(|fault| told.as_ref() != Some(fault)) {
            tracing::warn!(fault, "notifications do not go on");
        }
        *told = fault;
    }
}

impl Notifications {
    /// Begins to send what is in the outbox.
    ///
    /// # Errors
    /// A configuration that cannot be used.
    pub async fn start(
        engine: &Arc<Engine>,
        search: &Arc<SearchService>,
        accounts: &Arc<Accounts>,
        config: Config,
    ) -> Result<Self> {
        let channels = Channels::new(&config).await?;
        let session = Session::system(engine);
        let secrets = Secrets::new(engine, search, config.secret_key.as_ref());
        let (sender, mailbox) = Mailbox::with_capacity(sender::MAILBOX_CAPACITY);
        let shared = Arc::new(NotifierState {
            engine: Arc::clone(engine),
            session,
            search: Arc::clone(search),
            accounts: Arc::clone(accounts),
            channels,
            secrets,
            config,
            sender,
            committed: AtomicU64::new(0),
            figures: OutboxCounters::default(),
            tests: Semaphore::new(TESTS),
            fault: Mutex::new(None),
        });
        let event_loop = sender::spawn(&shared, mailbox);
        Ok(Self { shared, event_loop: Arc::new(Mutex::new(Some(event_loop))) })
    }

    /// Begins no more, and waits for what is under way, a few seconds at most.
    pub async fn stop(&self) {
        let event_loop = self.event_loop.lock().take();
        if let Some(event_loop) = event_loop
            && let Err(error) = event_loop.drain().await
        {
            tracing::error!(%error, "sending notifications has failed");
        }
    }

    /// Notes that rows may have been written, and the first frame whose alerts are not all committed.
    pub fn committed(&self, next: u64, rows: bool) {
        self.shared.committed.fetch_max(next, Ordering::Release);
        if rows {
            self.shared.sender.wake();
        }
    }

    /// Returns how long a notification is tried again, in milliseconds.
    pub fn give_up_ms(&self) -> i64 {
        self.shared.give_up_ms()
    }

    /// Checks what of a rule's channels is wrong whatever the server's configuration: templates, addresses,
    /// accounts.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the field.
    pub fn check(&self, definition: &Definition) -> Result<()> {
        check::check(&self.shared, definition)
    }

    /// Tells why channels of a rule cannot send as the server is configured: options with the reason.
    pub fn warnings(&self, definition: &Definition) -> Vec<(String, String)> {
        definition
            .notification
            .channels
            .iter()
            .filter_map(|channel| Some((channel.name.clone(), check::warning(&self.shared, channel)?)))
            .collect()
    }

    /// Sends a sample through each channel of a rule, or all of them through an alert that is given, and tells what became of each.
    /// Nothing is written.
    ///
    /// # Errors
    /// [`Error::Busy`] where as many tests are under way as may be.
    pub async fn test(
        &self,
        definition: &Definition,
        alert: Option<Value>,
        asker: &str,
    ) -> Result<Vec<ChannelTestReport>> {
        let Ok(_turn) = self.shared.tests.try_acquire() else {
            return Err(Error::Busy(format!("{TESTS} tests of channels are under way; try again later")));
        };
        Ok(sender::test(&self.shared, definition, alert, asker).await)
    }

    /// Posts a message that belongs to no alert, once. `webhook` are options of the method `webhook`.
    ///
    /// # Errors
    /// The reason why the message was not sent.
    pub async fn post(
        &self,
        message: &StandaloneMessage,
        webhook: &serde_json::Map<String, Value>,
    ) -> Result<(), String> {
        sender::post(&self.shared, message, webhook).await
    }

    /// Stores a secret under a name, in the place of one that was there; `hosts` are where it may be sent, one at least.
    ///
    /// # Errors
    /// [`Error::Invalid`]; [`Error::NoKey`]; the store's.
    pub async fn put_secret(&self, name: &str, value: &str, hosts: Vec<String>, by: &str) -> Result<bool> {
        self.shared.secrets.put(name, value, hosts, by).await
    }

    /// Lists the secrets, without their values: `name`, `hosts`, `by`, `@timestamp`.
    ///
    /// # Errors
    /// The store's.
    pub async fn secrets(&self) -> Result<Vec<Value>> {
        self.shared.secrets.list().await
    }

    /// Removes a secret; returns whether it was there.
    ///
    /// # Errors
    /// The store's.
    pub async fn delete_secret(&self, name: &str) -> Result<bool> {
        self.shared.secrets.delete(name).await
    }

    /// Reads the figures of notifications. The sender counts those that wait every few seconds.
    pub fn figures(&self) -> OutboxFigures {
        self.shared.figures.figures(self.shared.engine.clock().now_ms())
    }

    /// Tells why nothing is sent; nothing where all is well.
    pub fn faults(&self) -> Vec<String> {
        self.shared.fault.lock().clone().into_iter().collect()
    }
}

/// Returns the identity of a channel wherever it has to be told from others: its method and options.
pub(crate) fn identity(channel: &Channel) -> String {
    let options = serde_json::to_string(&channel.options).unwrap_or_default();
    hash(&[&format!("{}\u{0}{options}", channel.method.name())])
}

/// A hash of texts, each behind its length: 160 bits of SHA-256.
pub(crate) fn hash(texts: &[&str]) -> String {
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    for text in texts {
        context.update(&(text.len() as u64).to_be_bytes());
        context.update(text.as_bytes());
    }
    hex(&context.finish().as_ref()[..20])
}
