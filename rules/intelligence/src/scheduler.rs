//! Runs rules by their schedules: at most two at a time, and never one twice at once.
//!
//! [`due`] says what is due; an event loop around it looks once a second. A rule that was due while the server was down, or while it ran still, runs
//! once, for the latest of those times. A time counts as seen to when its run has ended, so that one that the server did
//! not live to see the end of is made up for. Another loop fills in what became of predictions, one rule after another; a rule may run
//! meanwhile.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use millrace_runtime::{EventHandler, EventLoop, EventSender, Instant, Mailbox};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use crate::detectors::StoredDetector;
use crate::error::{Error, Result};
use crate::fill;
use crate::run::RunReport;
use crate::store::RuleDocument;
use crate::{IntelligenceContext, TURNS, spawn_uncancelled};

/// Interval between two checks for due runs.
const TICK: Duration = Duration::from_secs(1);
/// Messages of runs that wait for the loop, at most; at the bound, runs that begin or have ended wait to say so.
const MAILBOX_CAPACITY: usize = 256;
/// The place of a run stays empty for so many times as long as it took, but no longer than this: many of them one after another would slow
/// down what is ingested.
const PAUSE: u32 = 4;
const LONGEST_PAUSE: Duration = Duration::from_secs(600);
/// After how long a rule is tried again whose run could not be noted, or of whose predictions it could not be found out what became
/// of them; twice as long each time.
const AGAIN_MS: i64 = 60_000;
/// The longest of these times, of runs and of fills.
const MAX_RUN_AGAIN_MS: i64 = 600_000;
const MAX_FILL_AGAIN_MS: i64 = 3_600_000;
/// Message for a rule that cannot be set back.
const WAITS: &str = "an AI rule waits for a time that a clock was ahead to";

/// Times of the next runs of rules: computing one takes too long to be done for each rule each second.
#[derive(Debug, Default)]
struct UpcomingRuns(HashMap<String, NextRun>);

#[derive(Clone, Copy, Debug)]
struct NextRun {
    revision: u64,
    handled_ms: i64,
    /// `None` where the schedule never comes again.
    at_ms: Option<i64>,
}

impl UpcomingRuns {
    /// Returns whether a time of the schedule has come that was not seen to.
    fn has_come(&mut self, kept: &RuleDocument, now_ms: i64) -> bool {
        let (revision, handled_ms) = (kept.revision(), kept.handled_ms());
        let known = self.0.get(kept.id()).copied();
        let known = known.filter(|next| next.revision == revision && next.handled_ms == handled_ms);
        let next = known.unwrap_or_else(|| {
            let next = NextRun { revision, handled_ms, at_ms: kept.schedule().after(handled_ms) };
            self.0.insert(kept.id().to_owned(), next);
            next
        });
        next.at_ms.is_some_and(|at| at <= now_ms)
    }
}

/// Rules that failed in a way that another time may mend.
#[derive(Debug)]
struct FailureBackoff {
    rules: HashMap<String, Failure>,
    /// The longest that one waits.
    longest_ms: i64,
}

#[derive(Debug)]
struct Failure {
    revision: u64,
    tried_ms: i64,
    wait_ms: i64,
    reason: String,
}

impl FailureBackoff {
    fn waiting_up_to(longest_ms: i64) -> Self {
        Self { rules: HashMap::new(), longest_ms }
    }

    /// Drops rules that are deleted.
    fn keep_of(&mut self, shared: &IntelligenceContext) {
        self.rules.retain(|id, _| shared.store.document(id).is_some());
    }

    /// Returns whether a rule may be tried now: one that was saved anew need not wait.
    fn is_time(&self, id: &str, revision: u64, now_ms: i64) -> bool {
        let failed = self.rules.get(id).filter(|failed| failed.revision == revision);
        // A clock that was put back keeps none waiting.
        failed.is_none_or(|failed| !(0..failed.wait_ms).contains(&(now_ms - failed.tried_ms)))
    }

    /// Notes why a rule failed, and logs it with what that means where it is new.
    fn tell(&mut self, id: &str, revision: u64, now_ms: i64, error: &Error, what: &str) {
        if self.note(id, revision, now_ms, error.to_string()) {
            tracing::warn!(rule = id, %error, "{what}");
        }
    }

    /// Notes why a rule failed; returns whether that is new.
    fn note(&mut self, id: &str, revision: u64, now_ms: i64, reason: String) -> bool {
        let before = self.rules.remove(id).filter(|failed| failed.revision == revision);
        let wait_ms = before.as_ref().map_or(AGAIN_MS, |failed| (2 * failed.wait_ms).min(self.longest_ms));
        let is_new = before.is_none_or(|failed| failed.reason != reason);
        self.rules.insert(id.to_owned(), Failure { revision, tried_ms: now_ms, wait_ms, reason });
        is_new
    }
}

/// Returns the time of its schedule that a rule is to run for; `has_come` says whether there may be one.
pub(crate) fn due(kept: &RuleDocument, has_come: bool, now_ms: i64) -> Option<i64> {
    if !has_come || !kept.is_scheduled() {
        return None;
    }
    kept.schedule().latest(now_ms).filter(|due| *due > kept.handled_ms())
}

/// Starts the loops of schedules and of predictions' outcomes; both end as [`EventLoop::drain`] says, what runs comes to its end.
pub(crate) fn spawn(shared: &Arc<IntelligenceContext>) -> Vec<EventLoop> {
    let (sender, mailbox) = Mailbox::with_capacity(MAILBOX_CAPACITY);
    let scheduler = Scheduler {
        shared: Arc::clone(shared),
        sender,
        upcoming: UpcomingRuns::default(),
        queued: HashSet::new(),
        places: Arc::new(Semaphore::new(TURNS)),
        failing: FailureBackoff::waiting_up_to(MAX_RUN_AGAIN_MS),
        in_flight: 0,
        runs: JoinSet::new(),
        next_tick: Instant::now(),
    };
    let filler = Filler {
        shared: Arc::clone(shared),
        failing: FailureBackoff::waiting_up_to(MAX_FILL_AGAIN_MS),
        next_tick: Instant::now(),
    };
    let (_, no_messages) = Mailbox::with_capacity(1);
    vec![EventLoop::spawn(scheduler, mailbox), EventLoop::spawn(filler, no_messages)]
}

/// The loop of schedules: starts what is due.
struct Scheduler {
    shared: Arc<IntelligenceContext>,
    sender: EventSender<ScheduledRun>,
    upcoming: UpcomingRuns,
    /// Rules that wait for a place. They do not run yet: who asks for a run of one need not wait for that.
    queued: HashSet<String>,
    places: Arc<Semaphore>,
    failing: FailureBackoff,
    /// Scheduled runs that did not end yet, and their tasks: those that wait for a place end with the loop.
    in_flight: usize,
    runs: JoinSet<()>,
    next_tick: Instant,
}

/// A message of a scheduled run.
enum ScheduledRun {
    /// It has a place, and has begun.
    Begun(String),
    /// It has ended; `due_ms` is `None` where it was not to begin any more.
    Finished { id: String, due_ms: Option<i64>, outcome: Box<Result<RunReport>> },
}

impl EventHandler for Scheduler {
    type Message = ScheduledRun;

    async fn handle(&mut self, message: ScheduledRun) {
        match message {
            ScheduledRun::Begun(id) => drop(self.queued.remove(&id)),
            ScheduledRun::Finished { id, due_ms, outcome } => {
                self.in_flight -= 1;
                while self.runs.try_join_next().is_some() {}
                match due_ms {
                    Some(due_ms) => self.note_outcome(&id, due_ms, *outcome),
                    None => drop(self.queued.remove(&id)),
                }
            }
        }
    }

    async fn run_due(&mut self) -> Option<Instant> {
        if Instant::now() >= self.next_tick {
            self.start_due().await;
            self.next_tick = Instant::now() + TICK;
        }
        Some(self.next_tick)
    }

    fn is_stopping(&self) -> bool {
        self.shared.check_stopping().is_err()
    }

    async fn drain(mut self, mailbox: &mut Mailbox<ScheduledRun>) {
        while self.in_flight > 0 {
            match mailbox.receive().await {
                Some(message) => self.handle(message).await,
                None => break,
            }
        }
    }
}

impl Scheduler {
    /// Starts a run of each rule whose time has come.
    async fn start_due(&mut self) {
        let shared = Arc::clone(&self.shared);
        let now_ms = shared.engine.clock().now_ms();
        self.upcoming.0.retain(|id, _| shared.store.document(id).is_some());
        self.failing.keep_of(&shared);
        for kept in shared.store.documents() {
            let (id, revision) = (kept.id(), kept.revision());
            if shared.is_running(id) || !self.failing.is_time(id, revision, now_ms) {
                continue;
            }
            if kept.handled_ms() > now_ms {
                if let Err(error) = set_back(&shared, id, now_ms).await {
                    self.failing.tell(id, revision, now_ms, &error, WAITS);
                }
                continue;
            }
            let has_come = self.upcoming.has_come(&kept, now_ms);
            if due(&kept, has_come, now_ms).is_none() || !self.queued.insert(id.to_owned()) {
                continue;
            }
            self.in_flight += 1;
            let (sender, places, id) = (self.sender.clone(), Arc::clone(&self.places), id.to_owned());
            let scheduled = run(Arc::clone(&shared), id.clone(), places, sender.clone());
            self.runs.spawn(async move {
                // One that panics ends like any other. Aborted with the loop, this aborts the run.
                let mut task = JoinSet::new();
                task.spawn(scheduled);
                let (due_ms, outcome) = match task.join_next().await {
                    Some(Ok(ended)) => ended,
                    Some(Err(error)) => {
                        tracing::error!(%error, "a run of an AI rule has failed");
                        (None, Ok(RunReport::default()))
                    }
                    None => (None, Ok(RunReport::default())),
                };
                // Nobody is there where the loop was dropped.
                let _ = sender.send(ScheduledRun::Finished { id, due_ms, outcome: Box::new(outcome) }).await;
            });
        }
    }

    /// Notes what became of a run that was due at a time.
    fn note_outcome(&mut self, id: &str, due_ms: i64, outcome: Result<RunReport>) {
        let now_ms = self.shared.engine.clock().now_ms();
        let failed = "a scheduled run of an AI rule failed";
        match (outcome, self.shared.store.document(id)) {
            (Err(Error::NotFound(_)), _) | (_, None) => {}
            // It would be due again at once.
            (Err(error), Some(kept)) if kept.handled_ms() < due_ms => {
                self.failing.tell(id, kept.revision(), now_ms, &error, failed);
            }
            (outcome, Some(_)) => {
                self.failing.rules.remove(id);
                // What goes wrong stands on the record.
                if let Err(error) = outcome {
                    tracing::warn!(rule = id, %error, "{failed}");
                }
            }
        }
    }
}

/// Has a rule run, and filled in, again whose time was seen to by a clock that was ahead.
///
/// # Errors
/// The store's.
async fn set_back(shared: &IntelligenceContext, id: &str, now_ms: i64) -> Result<()> {
    let set = match shared.store.detector(id) {
        Some(_) => {
            let back = |kept: &mut StoredDetector| kept.state.handled_ms = kept.state.handled_ms.min(now_ms);
            shared.store.note_detector(id, back).await
        }
        None => shared.store.note(id, |kept| kept.state.set_back(now_ms)).await,
    };
    match set {
        Err(Error::NotFound(_)) => Ok(()),
        noted => noted,
    }
}

/// The place of a run of a schedule. A run that comes to no end leaves it at once.
pub(crate) struct RunSlotGuard(OwnedSemaphorePermit);

impl RunSlotGuard {
    /// Leaves it to others after a pause, behind a run that took so long. A server that stops does not wait for it.
    pub(crate) fn leave(self, took: Duration) {
        let (Self(permit), pause) = (self, took.saturating_mul(PAUSE).min(LONGEST_PAUSE));
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            drop(permit);
        });
    }
}

/// Runs a rule once there is a place; returns the time that it ran for, if it did, and what became of it.
async fn run(
    shared: Arc<IntelligenceContext>,
    id: String,
    places: Arc<Semaphore>,
    sender: EventSender<ScheduledRun>,
) -> (Option<i64>, Result<RunReport>) {
    let none = (None, Ok(RunReport::default()));
    // Without one the server stops.
    let Ok(place) = shared.one_of(&places).await else { return none };
    // What it was queued for may be past: it may have been changed, or run by hand, meanwhile.
    let now_ms = shared.engine.clock().now_ms();
    let due_ms = shared.store.document(&id).and_then(|kept| due(&kept, true, now_ms));
    let Some((due_ms, running)) = due_ms.zip(shared.begin(&id)) else { return none };
    let _ = sender.send(ScheduledRun::Begun(id)).await;
    let outcome = shared.run_uncancelled(running, Some((due_ms, RunSlotGuard(place)))).await;
    (Some(due_ms), outcome)
}

/// The loop that fills in what is over of all rules' predictions, one rule after another.
struct Filler {
    shared: Arc<IntelligenceContext>,
    failing: FailureBackoff,
    next_tick: Instant,
}

impl EventHandler for Filler {
    type Message = Infallible;

    async fn handle(&mut self, message: Infallible) {
        match message {}
    }

    async fn run_due(&mut self) -> Option<Instant> {
        if Instant::now() >= self.next_tick {
            self.fill_all().await;
            self.next_tick = Instant::now() + TICK;
        }
        Some(self.next_tick)
    }

    fn is_stopping(&self) -> bool {
        self.shared.check_stopping().is_err()
    }

    async fn drain(self, _: &mut Mailbox<Infallible>) {}
}

impl Filler {
    async fn fill_all(&mut self) {
        let (shared, failing) = (&self.shared, &mut self.failing);
        failing.keep_of(shared);
        for listed in shared.store.all() {
            let now_ms = shared.engine.clock().now_ms();
            // Those before it may have taken their time.
            let Some(kept) = shared.store.get(&listed.id) else { continue };
            if kept.state.filled_ms.is_some_and(|filled| filled > now_ms) {
                if failing.is_time(&kept.id, kept.state.revision, now_ms)
                    && let Err(error) = set_back(shared, &kept.id, now_ms).await
                {
                    failing.tell(&kept.id, kept.state.revision, now_ms, &error, WAITS);
                }
                continue;
            }
            let is_pending = fill::pending(&kept, now_ms).is_some()
                && failing.is_time(&kept.id, kept.state.revision, now_ms);
            if !is_pending || shared.check_stopping().is_err() {
                continue;
            }
            let (filler, id) = (Arc::clone(shared), kept.id.clone());
            // One that panics keeps no other from being filled in.
            let filled = spawn_uncancelled(async move { filler.fill(&id).await });
            match filled.await {
                Ok(true) => drop(failing.rules.remove(&kept.id)),
                // Somebody else does that, or it runs.
                Ok(false) => {}
                Err(error) => {
                    failing.tell(
                        &kept.id,
                        kept.state.revision,
                        now_ms,
                        &error,
                        "what became of predictions was not filled in",
                    );
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_is_tried_ever_more_seldom_and_told_once() {
        let (id, mut revision) = ("r", 1);
        let mut failing = FailureBackoff::waiting_up_to(MAX_FILL_AGAIN_MS);
        let mut now_ms = 1_000_000;
        assert!(failing.is_time(id, revision, now_ms));
        let mut waits = Vec::new();
        for time in 0..8 {
            let is_new = failing.note(id, revision, now_ms, "gone".to_owned());
            assert_eq!(is_new, time == 0);
            let wait =
                (1..=60).find(|minute| failing.is_time(id, revision, now_ms + minute * 60_000)).unwrap();
            now_ms += wait * 60_000;
            waits.push(wait);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert!(failing.note(id, revision, now_ms, "refused".to_owned()));
        assert!(!failing.is_time(id, revision, now_ms) && failing.is_time(id, revision, now_ms - 1));
        revision = 2;
        assert!(
            failing.is_time(id, revision, now_ms) && failing.note(id, revision, now_ms, "refused".to_owned())
        );
        assert!(failing.is_time(id, revision, now_ms + 60_000));
    }
}
