//! Rules at work: they are kept as documents, follow the change feed, and their alerts are committed once each.
//!
//! [`Alerting`] is the way in. `millrace-api` hands it what users ask of rules; it reads the change feed of
//! `millrace-engine`, has `millrace-percolator` match documents with the rights of owners, and has the pure core in
//! `millrace-rules` decide which alerts there are. `docs/internals/rules.md` has the promises and the reasons.
//!
//! - [`store`]: rules as documents
//! - [`changes`]: what becomes of state when rules change
//! - [`definition_check`]: definitions as owners write them
//! - [`runner`], [`state`], [`commit`]: the feed followed, evaluated, and what is raised written with the position
//! - [`state_owner`]: the state in the hands of the runner, which lends it to changes and backfills
//! - [`alert_chunks`]: frames evaluated, and no more held of what is raised than is written at once
//! - [`snapshot`], [`recovery`]: state on disk, and the start
//! - [`reload`]: rules of a restore, taken up while the server runs
//! - [`frame_reader`], [`log_gap`]: frames read back from what is stored, where the log was cut
//! - [`backfill`]: rules that begin in the past
//! - [`replay`]: tests, dry runs and runs over what is stored
//! - [`recompute`]: what rules raise of the log, computed at once, for checks
//! - [`status`]: what people say of alerts, and tests of channels
//! - [`indices`], [`status_reporter`]: what is written beside alerts, and what is told of rules

mod alert_chunks;
mod backfill;
mod changes;
mod commit;
mod definition_check;
mod error;
mod frame_reader;
mod indices;
mod log_gap;
mod recompute;
mod recovery;
mod reload;
mod replay;
mod runner;
mod snapshot;
mod state;
mod state_owner;
mod status;
mod status_reporter;
mod store;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use millrace_accounts::Accounts;
use millrace_catalog::access::Principal;
use millrace_engine::Engine;
use millrace_notifications::Notifications;
use millrace_rules::engine::Rule;
use millrace_runtime::HistogramSnapshot;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use crate::runner::RunnerState;
use crate::snapshot::Snapshots;
use crate::state_owner::StateBorrower;
use crate::status_reporter::RuleStatusReporter;
use crate::store::{Store, StoredRule};

pub use error::{Error, Result};
pub use millrace_notifications::ChannelTestReport as NotifyTested;
pub use recompute::recompute;
pub use replay::{Alert, Difference, ReplayReport, ReplaySubject, ReplayedAlerts};
pub use status::AlertStatus;
pub use store::RULES_INDEX;

/// Rules at work; cheap to clone. They end with the last clone, as after a crash: [`Alerting::stop`] saves the next start work.
#[derive(Clone)]
pub struct Alerting {
    shared: Arc<RunnerState>,
    tasks: Arc<Tasks>,
}

impl fmt::Debug for Alerting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alerting").field("rules", &self.shared.store.all().len()).finish_non_exhaustive()
    }
}

/// Tasks that follow the feed and backfill rules.
struct Tasks(Mutex<Vec<JoinHandle<()>>>);

impl Drop for Tasks {
    fn drop(&mut self) {
        for task in self.0.lock().drain(..) {
            task.abort();
        }
    }
}

/// Figures of all rules at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuleFigures {
    /// Rules that are enabled.
    pub enabled: usize,
    /// Enabled rules that a failure paused.
    pub paused: usize,
    /// Enabled rules that do not watch all of their patterns.
    pub unwatched: usize,
    /// Time for which the oldest frame that is not evaluated has been waiting.
    pub lag: Duration,
    /// Times from the writes of frames to their evaluation.
    pub evaluation_lag: HistogramSnapshot,
    /// First frame that is not evaluated; 0 while nothing is.
    pub position: u64,
    /// End of the change feed: the frame behind the last one that readers can have.
    pub feed_end: u64,
}

/// Effect of a saved change on a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Its id.
    pub id: String,
    /// `true` if there was none before.
    pub created: bool,
    /// Effect on the rule's state, in words.
    pub message: String,
}

/// A rule that somebody may see, and how it is. What it says is written one at a time: a rule may be long, and there may be many.
pub struct Record {
    shared: Arc<RunnerState>,
    kept: Arc<StoredRule>,
    lag_ms: i64,
    now_ms: i64,
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record").field("rule", &self.kept.rule.id).finish_non_exhaustive()
    }
}

impl Record {
    /// Writes the fields of the definition, and `id`, `enabled`, `last_run`, `last_alert`, `lag`, `error` and `notices`; of one
    /// that begins in the past `catching_up` says how far it is.
    pub fn value(&self) -> Value {
        self.shared.record(&self.kept, self.lag_ms, self.now_ms)
    }
}

impl Alerting {
    /// Loads the rules and goes on where they were: returns once they are known; a task evaluates the frames that they missed.
    ///
    /// # Errors
    /// The store's.
    pub async fn start(engine: &Arc<Engine>, accounts: &Arc<Accounts>) -> Result<Self> {
        Self::start_with(engine, accounts, None).await
    }

    /// Does so with what sends notifications of alerts; without it no alert is sent.
    ///
    /// # Errors
    /// The store's.
    pub async fn start_with(
        engine: &Arc<Engine>,
        accounts: &Arc<Accounts>,
        notifications: Option<Notifications>,
    ) -> Result<Self> {
        let (borrower, mailbox) = StateBorrower::new();
        let store = Store::load(engine).await?;
        let snapshots = Snapshots::new(engine);
        if store.has_restored(engine) {
            // Stored state is of the rules that these have replaced.
            snapshots.clear().await?;
        }
        let last_frame = recovery::last_frame(engine)?;
        match store.rebase_restored(engine, last_frame, last_frame).await {
            Ok(0) => {}
            Ok(rules) => tracing::info!(rules, "restored rules go on in this log"),
            Err(error) => tracing::error!(%error, "restored rules stay silent until the next start"),
        }
        let shared = Arc::new(RunnerState {
            engine: Arc::clone(engine),
            accounts: Arc::clone(accounts),
            notifications,
            store,
            snapshots,
            borrower,
            status_reporter: RuleStatusReporter::default(),
            changed: Notify::new(),
            backfill_requested: Notify::new(),
            progressed: Notify::new(),
            stopping: watch::Sender::new(false),
        });
        let tasks = [
            tokio::spawn(runner::run(Arc::clone(&shared), mailbox)),
            tokio::spawn(backfill::run(Arc::clone(&shared))),
        ];
        Ok(Self { shared, tasks: Arc::new(Tasks(Mutex::new(tasks.into()))) })
    }

    /// Ends evaluation behind a frame, and stores the state; or amid a frame of which very much is raised, which the next start
    /// evaluates anew.
    pub async fn stop(&self) {
        self.shared.stopping.send_replace(true);
        let tasks = std::mem::take(&mut *self.tasks.0.lock());
        for task in tasks {
            if let Err(error) = task.await {
                tracing::error!(%error, "following the feed for rules has failed");
            }
        }
    }

    /// Replaces the rules in memory by those that are stored, once a restore has replaced their index.
    ///
    /// # Errors
    /// The store's, and rules that cannot be changed now. Those of before then go on until the next start.
    pub async fn reload(&self) -> Result<()> {
        self.shared.reload().await
    }

    /// Lists the rules that the asker may see, by name.
    pub fn list(&self, asker: &Principal) -> Vec<Record> {
        let mut seen = self.shared.store.all();
        seen.retain(|kept| changes::may_see(asker, &kept.rule));
        seen.sort_by(|one, other| one.rule.definition.name.cmp(&other.rule.definition.name));
        let (lag_ms, now_ms) = self.now();
        let record = |kept| Record { shared: Arc::clone(&self.shared), kept, lag_ms, now_ms };
        seen.into_iter().map(record).collect()
    }

    /// Shows one as [`Record::value`] does.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn show(&self, asker: &Principal, id: &str) -> Result<Value> {
        let kept = self.shared.seen(asker, id)?;
        let (lag_ms, now_ms) = self.now();
        Ok(self.shared.record(&kept, lag_ms, now_ms))
    }

    /// Saves a rule: a new one, or one in the place of that with its id or name. It runs with the asker's rights from then on.
    ///
    /// # Errors
    /// A definition that cannot be used, by its field; a filter that no index of the pattern can be asked;
    /// [`Error::Conflict`] for the id of one rule and the name of another; the store's. Nothing has changed then.
    pub async fn change(&self, asker: &Principal, body: Value) -> Result<Changed> {
        self.shared.change(asker, body, None).await
    }

    /// Saves a rule that begins in the past: with what was written from a time on, in milliseconds since the epoch. A rule that is
    /// there begins a new revision. It raises alerts of what is stored in the background, and goes on with what arrives then.
    ///
    /// # Errors
    /// As [`Alerting::change`]; a time to come.
    pub async fn change_from(&self, asker: &Principal, body: Value, from_ms: i64) -> Result<Changed> {
        self.shared.change(asker, body, Some(from_ms)).await
    }

    /// Deletes a rule with its state; its alerts stay.
    ///
    /// # Errors
    /// [`Error::NotFound`], the store's.
    pub async fn delete(&self, asker: &Principal, id: &str) -> Result<()> {
        self.shared.delete(asker, id).await
    }

    /// Enables or disables a rule; enabling lets one that was paused by a failure go on.
    ///
    /// # Errors
    /// [`Error::NotFound`], the store's.
    pub async fn enable(&self, asker: &Principal, id: &str, enabled: bool) -> Result<()> {
        self.shared.enable(asker, id, enabled).await
    }

    /// Has a rule raise no alerts of a key, or of any, until a time in milliseconds since the epoch.
    ///
    /// # Errors
    /// [`Error::NotFound`], too many such orders, a time that is over, the store's.
    pub async fn silence(
        &self,
        asker: &Principal,
        id: &str,
        key: Option<String>,
        until_ms: i64,
    ) -> Result<()> {
        self.shared.silence(asker, id, key, until_ms).await
    }

    /// Returns a rule as it runs, for replay.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn rule(&self, asker: &Principal, id: &str) -> Result<Rule> {
        Ok(self.shared.seen(asker, id)?.rule.clone())
    }

    /// Returns the notifier.
    pub fn notifications(&self) -> Option<&Notifications> {
        self.shared.notifications.as_ref()
    }

    /// Sets the status of an alert, with the author; a note may say more.
    ///
    /// # Errors
    /// [`Error::NoAlert`] where there is no such alert, or none that the asker may see; the store's.
    pub async fn set_status(
        &self,
        asker: &Principal,
        alert: &str,
        status: AlertStatus,
        note: Option<String>,
    ) -> Result<()> {
        self.shared.set_status(asker, alert, status, note).await
    }

    /// Sends a sample through the channels of a rule, stored or written, or an alert that is given in its place.
    ///
    /// # Errors
    /// [`Error::NotFound`]; a definition that cannot be used; as many tests under way as may be.
    pub async fn notify_test(
        &self,
        asker: &Principal,
        tested: ReplaySubject,
        alert: Option<Value>,
    ) -> Result<Vec<NotifyTested>> {
        self.shared.notify_test(asker, tested, alert).await
    }

    /// For how long the oldest frame that is not evaluated has been waiting, and the time, both in milliseconds.
    fn now(&self) -> (i64, i64) {
        let engine = &self.shared.engine;
        (self.shared.status_reporter.lag_ms(engine), engine.clock().now_ms())
    }

    /// Reads the figures of all rules.
    pub fn figures(&self) -> RuleFigures {
        let (lag_ms, _) = self.now();
        let enabled = self.shared.store.all().iter().filter(|rule| rule.rule.definition.enabled).count();
        let is_enabled =
            |id: &str| self.shared.store.get(id).is_some_and(|kept| kept.rule.definition.enabled);
        let (paused, unwatched) = self.shared.status_reporter.count_unwatched(is_enabled);
        let lag = Duration::from_millis(u64::try_from(lag_ms).unwrap_or(0));
        let evaluation_lag = self.shared.status_reporter.evaluation_lag();
        let position = self.shared.status_reporter.position();
        // A log that is not open has no end to follow.
        let feed_end = self.shared.engine.feed_end().unwrap_or(position);
        RuleFigures { enabled, paused, unwatched, lag, evaluation_lag, position, feed_end }
    }

    /// Tells why rules are not evaluated, or their alerts not written; nothing where all is well.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = self.shared.status_reporter.faults();
        let store = &self.shared.store;
        faults.extend(
            self.shared
                .status_reporter
                .describe_unwatched(|id| store.get(id).is_some_and(|kept| kept.rule.definition.enabled)),
        );
        faults.extend(self.shared.store.unreadable());
        faults.extend(self.shared.notifications.iter().flat_map(Notifications::faults));
        faults
    }
}
