//! The task that follows the change feed: frames are gathered for a moment, evaluated on a compute thread, and what rules raise is
//! committed before the next ones are. The task owns the state of rules, and lends it to changes and backfills between two frames,
//! and during pauses, reads and the storing of state ([`crate::state_owner`]).
//!
//! While that cannot be written nothing is evaluated: the lease holds the log, and after that a gap is told. A position
//! without alerts is stored now and then, never because of a frame of rules' own, which match nothing. Without rules
//! nobody follows, and writers hand nothing over.

use std::borrow::Borrow;
use std::sync::Arc;
use std::time::Duration;

use millrace_catalog::frame::AppliedFrame;
use millrace_engine::{Engine, FeedItem, FeedReader, RULES_READER};
use millrace_notifications::Notifications;
use millrace_query::filters::Batch;
use millrace_runtime::Instant;
use millrace_runtime::{Error, Mailbox, Priority, Result};
use tokio::sync::{Notify, watch};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout_at};

use crate::alert_chunks::Matches;
use crate::commit::Position;
use crate::frame_reader::{Step, bytes_of, rows_of};
use crate::snapshot::{SnapshotWriteGuard, Snapshots};
use crate::state::{Core, NextStep};
use crate::state_owner::{self, LeaseRequest, StateBorrower};
use crate::status_reporter::RuleStatusReporter;
use crate::store::Store;
use crate::{log_gap, recovery};

/// Time for which frames are gathered: many small ones are one batch.
const GATHERED: Duration = Duration::from_millis(20);
/// Frames that are gathered, and their operations: a runner that is behind takes several large ones before it waits for a write
/// again.
const MAX_FRAMES: usize = 4_096;
const MAX_ROWS: usize = 100_000;
/// Evaluation may run at most this many times longer than matching before a pending rule change forces a rematch.
const REMATCH_RATIO: u32 = 4;
/// Interval between two checks for due work.
const TICK: Duration = Duration::from_secs(1);
/// Interval at which the position is stored, where no alert takes it along. It is the heartbeat of rules that wait, and as such
/// far shorter than what counts as time in which the server was down.
const POSITION_EVERY: Duration = Duration::from_secs(5);
/// Interval at which state is stored, and the bound on its cost: storing pauses for so many times its duration.
const SNAPSHOT_EVERY: Duration = Duration::from_secs(10);
const SNAPSHOT_SHARE: u32 = 20;
/// Bytes of frames behind which state is stored sooner: so much has to be evaluated again at a start, twice at most. It is this
/// share of a small log: the last two snapshots hold it.
const SNAPSHOT_BYTES: u64 = 32 << 20;
const SNAPSHOT_LOG_SHARE: u64 = 10;
/// Time of evaluation behind which state is stored sooner, for the same reason: also where a process never lives long.
const SNAPSHOT_WORK: Duration = Duration::from_secs(2);
/// Interval at which `alert_status` is written, forgotten state is freed, and an idle lease is renewed.
const MINUTE: Duration = Duration::from_secs(60);
/// Wait before a failed write is tried again.
const RETRY: Duration = Duration::from_millis(500);

/// State that the runner and changes of rules share.
#[derive(Debug)]
pub(crate) struct RunnerState {
    pub(crate) engine: Arc<Engine>,
    pub(crate) accounts: Arc<millrace_accounts::Accounts>,
    /// Notifier; `None` where nothing is sent.
    pub(crate) notifications: Option<Notifications>,
    pub(crate) store: Store,
    pub(crate) snapshots: Snapshots,
    /// Asks the runner for the rules in memory.
    pub(crate) borrower: StateBorrower<Option<Core>>,
    pub(crate) status_reporter: RuleStatusReporter,
    /// Told when there may be a first rule.
    pub(crate) changed: Notify,
    /// Told when there may be a rule that has to catch up.
    pub(crate) backfill_requested: Notify,
    /// Told when rules have seen more of the feed.
    pub(crate) progressed: Notify,
    pub(crate) stopping: watch::Sender<bool>,
}

impl RunnerState {
    /// Tells the notifier that operations are committed, and whether there may be something to be sent.
    pub(crate) fn tell_committed(&self, position: &Position, rows: bool) {
        if let (Some(notifications), Some(next)) = (&self.notifications, position.next()) {
            notifications.committed(next, rows);
        }
    }
}

impl RunnerState {
    /// Returns whether rules, or the server, are to end.
    pub(crate) fn is_stopping(&self) -> bool {
        *self.stopping.borrow() || self.engine.is_stopping()
    }
}

/// Why the feed is not followed any more.
#[derive(Debug, PartialEq, Eq)]
enum FeedEnd {
    Stopping,
    NoRules,
}

/// Times of the last maintenance work of each kind.
pub(crate) struct MaintenanceTimes {
    position: Instant,
    snapshot: Instant,
    snapshot_took: Duration,
    /// Bytes that were evaluated since the last snapshot.
    pub(crate) bytes: usize,
    /// Time that it took.
    pub(crate) worked: Duration,
    minute: Instant,
}

/// The runner's hold of the rules in memory. They are `None` while there are no rules, or they are not there again after a fault.
pub(crate) type StateOwner = state_owner::StateOwner<Option<Core>>;
/// The rules in memory, lent to who changes or backfills rules.
pub(crate) type StateLease = state_owner::StateLease<Option<Core>>;

impl StateOwner {
    /// Takes the rules for a job that gives them back.
    ///
    /// # Errors
    /// There are none.
    pub(crate) fn take(&mut self) -> Result<Core> {
        self.state.take().ok_or_else(no_state)
    }

    /// Returns the rules.
    ///
    /// # Errors
    /// There are none.
    pub(crate) fn core(&mut self) -> Result<&mut Core> {
        self.state.as_mut().ok_or_else(no_state)
    }
}

fn no_state() -> Error {
    Error::Internal("the state of rules is gone".to_owned())
}

/// Follows the feed while there are rules, until it is told to stop.
pub(crate) async fn run(shared: Arc<RunnerState>, mailbox: Mailbox<LeaseRequest<Option<Core>>>) {
    let store = Arc::clone(&shared);
    // Without rules there is nothing to be changed but what is stored.
    let is_changeable =
        move |core: &Option<Core>| core.as_ref().map_or_else(|| store.store.is_empty(), Core::can_be_changed);
    let mut owner = StateOwner::new(&shared.borrower, mailbox, is_changeable);
    let mut stopping = shared.stopping.subscribe();
    while !*stopping.borrow_and_update() && !shared.engine.is_stopping() {
        let ended = follow(&shared, &mut owner).await;
        let wait = match ended {
            Ok(FeedEnd::Stopping) => return,
            Ok(FeedEnd::NoRules) => None,
            Err(_) if shared.engine.is_stopping() => return,
            Err(error) => {
                shared.status_reporter.set_fault(Some(format!("rules are not evaluated: {error}")));
                owner.state = None;
                Some(RETRY)
            }
        };
        let wake_up = async {
            tokio::select! {
                _ = stopping.changed() => {}
                () = shared.changed.notified(), if wait.is_none() => {}
                () = sleep(wait.unwrap_or_default()), if wait.is_some() => {}
            }
        };
        owner.lend_during(wake_up).await;
    }
}

/// Follows the feed from where state is.
async fn follow(shared: &RunnerState, owner: &mut StateOwner) -> Result<FeedEnd> {
    if is_over(shared, owner).await? {
        return Ok(FeedEnd::NoRules);
    }
    let mut reader = recovery::recover(shared, owner).await?;
    shared.progressed.notify_waiters();
    shared.status_reporter.set_fault(None);
    let mut stopping = shared.stopping.subscribe();
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let now = Instant::now();
    let mut done = MaintenanceTimes {
        position: now,
        snapshot: now,
        snapshot_took: Duration::ZERO,
        bytes: 0,
        worked: Duration::ZERO,
        minute: now,
    };
    loop {
        if *stopping.borrow_and_update() {
            stop(shared, owner).await?;
            return Ok(FeedEnd::Stopping);
        }
        let event = async {
            tokio::select! {
                _ = stopping.changed() => FeedEvent::Stopping,
                item = reader.next() => FeedEvent::Item(item),
                _ = ticks.tick() => FeedEvent::Tick,
            }
        };
        match owner.lend_during(event).await {
            FeedEvent::Stopping => {}
            FeedEvent::Item(item) => match item? {
                FeedItem::Gap { from, to } => {
                    log_gap::read_back(shared, owner, from..to, &mut done).await?;
                }
                FeedItem::Frame(first) => {
                    let (frames, behind) = gather(&mut reader, first).await?;
                    evaluate(shared, owner, Step::new(frames), &mut done).await?;
                    if let Some((from, to)) = behind {
                        log_gap::read_back(shared, owner, from..to, &mut done).await?;
                    }
                }
            },
            FeedEvent::Tick => {
                if shared.store.is_empty() && is_over(shared, owner).await? {
                    return Ok(FeedEnd::NoRules);
                }
            }
        }
        run_maintenance(shared, owner, &mut done).await?;
    }
}

/// Event that the runner waits for.
enum FeedEvent {
    Stopping,
    Item(Result<FeedItem>),
    Tick,
}

/// Returns whether there are no rules; then nothing is held for them any more.
async fn is_over(shared: &RunnerState, owner: &mut StateOwner) -> Result<bool> {
    // Who saves the first rule borrows the state, too, and it is not lent here.
    if !shared.store.is_empty() {
        return Ok(false);
    }
    owner.state = None;
    let storing = shared.snapshots.storing().await;
    on_files(shared, move || storing.clear()).await?;
    shared.engine.release_lease(RULES_READER).await?;
    shared.progressed.notify_waiters();
    Ok(true)
}

/// Takes the frames that come within a moment, as many as are held at once; those behind a gap are not among them.
async fn gather(
    reader: &mut FeedReader,
    first: Arc<AppliedFrame>,
) -> Result<(Vec<Arc<AppliedFrame>>, Option<(u64, u64)>)> {
    let until = Instant::now() + GATHERED;
    let (mut rows, mut bytes) = (rows_of(&first), bytes_of(&first));
    let mut frames = vec![first];
    while rows < MAX_ROWS && bytes < Batch::MAX_BYTES && frames.len() < MAX_FRAMES {
        match timeout_at(until, reader.next()).await {
            Err(_) => break,
            Ok(item) => match item? {
                FeedItem::Gap { from, to } => return Ok((frames, Some((from, to)))),
                FeedItem::Frame(frame) => {
                    rows += rows_of(&frame);
                    bytes += bytes_of(&frame);
                    frames.push(frame);
                }
            },
        }
    }
    Ok((frames, None))
}

/// Evaluates frames and commits what rules raise.
pub(crate) async fn evaluate(
    shared: &RunnerState,
    owner: &mut StateOwner,
    step: Step,
    done: &mut MaintenanceTimes,
) -> Result<()> {
    done.bytes += step.frames.iter().map(|frame| bytes_of(frame)).sum::<usize>();
    let mut rest = Some(step);
    while let Some(step) = rest {
        rest = evaluate_some(shared, owner, step, done).await?;
        // What is left is evaluated at the next start.
        if *shared.stopping.borrow() {
            break;
        }
        if rest.is_some() {
            run_maintenance(shared, owner, done).await?;
        }
    }
    Ok(())
}

/// Evaluates frames until somebody waits to change rules, or they are to be stopped, and returns what is left of them.
async fn evaluate_some(
    shared: &RunnerState,
    owner: &mut StateOwner,
    step: Step,
    done: &mut MaintenanceTimes,
) -> Result<Option<Step>> {
    // No batch begins before a change that waits.
    owner.lend_queued().await;
    let mut core = owner.take()?;
    let (now_ms, time_ms) = (shared.engine.clock().now_ms(), step.frames.last().map(|frame| frame.time_ms));
    let compute = shared.engine.compute();
    let job = move || {
        let matches = Matches::new(&mut core.matching, &step);
        Ok((core, step, matches))
    };
    let began = Instant::now();
    let (mut core, step, mut matches) = compute.run(Priority::Follow, job).await?;
    let (found, took) = (Instant::now(), began.elapsed());
    done.worked += took;
    loop {
        let (has_pending_change, stopping) = (owner.has_pending_change(), shared.stopping.subscribe());
        let change_waits = move || found.elapsed() >= took * REMATCH_RATIO && has_pending_change();
        let ends_early = move || *stopping.borrow() || change_waits();
        let job = move || {
            let next = core.evaluate(&mut matches, now_ms, ends_early);
            Ok((core, matches, next))
        };
        let (began, next);
        began = Instant::now();
        (core, matches, next) = compute.run(Priority::Follow, job).await?;
        done.worked += began.elapsed();
        shared.status_reporter.update(&mut core, time_ms.filter(|_| next == NextStep::Frames));
        owner.state = Some(core);
        shared.progressed.notify_waiters();
        let evaluated = match next {
            NextStep::Frames => step.frames.len(),
            NextStep::Early { left } => step.frames.len().saturating_sub(left),
            NextStep::Rest => 0,
        };
        shared.status_reporter.record_evaluation_lag(&step, evaluated, shared.engine.clock().now_ms());
        commit(shared, owner, done).await?;
        match next {
            NextStep::Frames => return Ok(None),
            NextStep::Early { left } => return Ok(Some(step.last(left))),
            NextStep::Rest => {}
        }
        // The rest of a frame is not waited for: the position is before it, no state is stored, and the next start evaluates it anew.
        if *shared.stopping.borrow() {
            return Ok(None);
        }
        owner.lend_queued().await;
        core = owner.take()?;
    }
}

/// Writes what is pending, or the position where that is due.
pub(crate) async fn commit(
    shared: &RunnerState,
    owner: &mut StateOwner,
    done: &mut MaintenanceTimes,
) -> Result<()> {
    let core = owner.core()?;
    let is_behind = core.has_matched && core.position.next().is_none_or(|stored| stored < core.next);
    // Rules that wait for windows go by the times of frames, also while nothing comes: without any the server was down.
    let is_behind = is_behind || core.rules.has_waiting();
    if core.pending.is_empty() && !(is_behind && done.position.elapsed() >= POSITION_EVERY) {
        return Ok(());
    }
    if core.pending.is_empty() {
        done.position = Instant::now();
        match core.position.commit(&shared.engine, &mut core.pending, core.next).await {
            Ok(()) => core.has_matched = false,
            Err(error @ Error::PositionMoved { .. }) => return Err(error),
            // Nobody waits for it: what keeps it from being written keeps alerts, too, and is told then.
            Err(error) => tracing::debug!(%error, "the position of rules was not stored"),
        }
        return Ok(());
    }
    core.has_matched = false;
    done.position = Instant::now();
    write_pending(shared, owner).await
}

/// Writes what is pending, however long that takes, or until rules are to be stopped. While that fails who changes rules gets by,
/// unless some of a batch of frames is evaluated and some is not.
pub(crate) async fn write_pending(shared: &RunnerState, owner: &mut StateOwner) -> Result<()> {
    let mut stopping = shared.stopping.subscribe();
    loop {
        let core = owner.core()?;
        if core.pending.is_empty() {
            shared.status_reporter.set_fault(None);
            return Ok(());
        }
        shared.status_reporter.set_writing(true);
        let written = core.position.commit(&shared.engine, &mut core.pending, core.next).await;
        shared.status_reporter.set_writing(false);
        match written {
            Ok(()) => {
                shared.tell_committed(&core.position, true);
                continue;
            }
            Err(error @ Error::PositionMoved { .. }) => return Err(error),
            Err(error) if shared.engine.is_stopping() => return Err(error),
            Err(error) => {
                let reason = format!("alerts cannot be written, so rules are not evaluated: {error}");
                shared.status_reporter.set_fault(Some(reason));
            }
        }
        if *stopping.borrow_and_update() {
            return Ok(());
        }
        let pause = async {
            tokio::select! {
                _ = stopping.changed() => {}
                () = sleep(RETRY) => {}
            }
        };
        owner.lend_during(pause).await;
    }
}

/// Does what is due.
pub(crate) async fn run_maintenance(
    shared: &RunnerState,
    owner: &mut StateOwner,
    done: &mut MaintenanceTimes,
) -> Result<()> {
    owner.lend_queued().await;
    if done.minute.elapsed() >= MINUTE {
        done.minute = Instant::now();
        match shared.store.look_again().await {
            Ok(found) => found.into_iter().for_each(|kept| shared.begin(&mut owner.state, &kept)),
            Err(error) => tracing::warn!(%error, "what is no rule was not looked at again"),
        }
        let now_ms = shared.engine.clock().now_ms();
        let mut core = owner.take()?;
        let tick = move || {
            core.rules.tick();
            core.tell_activity(now_ms);
            Ok(core)
        };
        owner.state = Some(shared.engine.compute().run(Priority::Follow, tick).await?);
        if let Some(lease) = shared.engine.lease(RULES_READER) {
            shared.engine.move_lease(RULES_READER, lease.position)?;
        }
        commit(shared, owner, done).await?;
    }
    if done.position.elapsed() >= POSITION_EVERY {
        commit(shared, owner, done).await?;
    }
    let apart = SNAPSHOT_EVERY.max(done.snapshot_took * SNAPSHOT_SHARE);
    let enough = SNAPSHOT_BYTES.min(shared.engine.wal_max_bytes() / SNAPSHOT_LOG_SHARE);
    let is_much = done.bytes as u64 >= enough || done.worked >= SNAPSHOT_WORK;
    let is_due = done.snapshot.elapsed() >= apart
        || (is_much && done.snapshot.elapsed() >= done.snapshot_took * SNAPSHOT_SHARE);
    if is_due && done.bytes > 0 {
        let began = Instant::now();
        match store_state(shared, owner).await {
            Ok(true) => (done.bytes, done.worked) = (0, Duration::ZERO),
            Ok(false) => {}
            // Those of before are still there, and hold the log.
            Err(error) => tracing::warn!(%error, "the state of rules was not stored"),
        }
        (done.snapshot, done.snapshot_took) = (Instant::now(), began.elapsed());
    }
    Ok(())
}

/// Stores the state and moves the lease behind what no start needs any more; returns whether there was something to store.
///
/// # Errors
/// The disk's.
async fn store_state(shared: &RunnerState, owner: &mut StateOwner) -> Result<bool> {
    let core = Some(owner.take()?);
    let (core, taken) = take_state(shared, core, Priority::Follow).await?;
    owner.state = core;
    let Some(taken) = taken else { return Ok(false) };
    owner.lend_during(keep_state(shared, taken)).await?;
    Ok(true)
}

/// The state as it was, to be stored before any that is taken later.
pub(crate) struct StateSnapshot {
    /// The last frame that it has seen.
    position: u64,
    bytes: Vec<u8>,
    storing: SnapshotWriteGuard,
}

/// Takes the state, once none is stored; `None` while something of it is not written.
///
/// # Errors
/// That the server is stopping.
pub(crate) async fn take_state<H: Borrow<Option<Core>> + Send + 'static>(
    shared: &RunnerState,
    held: H,
    priority: Priority,
) -> Result<(H, Option<StateSnapshot>)> {
    let storing = shared.snapshots.storing().await;
    let take = move || {
        let core: &Option<Core> = held.borrow();
        let taken = core.as_ref().and_then(Core::snapshot);
        Ok((held, taken.map(|(position, bytes)| StateSnapshot { position, bytes, storing })))
    };
    shared.engine.compute().run(priority, take).await
}

/// Stores state that was taken.
///
/// # Errors
/// The disk's.
pub(crate) async fn keep_state(shared: &RunnerState, taken: StateSnapshot) -> Result<()> {
    let needed = on_files(shared, move || taken.storing.write(taken.position, &taken.bytes)).await?;
    // Given up where the last rule was deleted meanwhile.
    if shared.engine.lease(RULES_READER).is_some() {
        shared.engine.move_lease(RULES_READER, needed)?;
    }
    Ok(())
}

/// Stores what there is to be stored at the end.
async fn stop(shared: &RunnerState, owner: &mut StateOwner) -> Result<()> {
    store_state(shared, owner).await.map(drop)
}

/// Runs a job that changes files; with or without a waiting caller, the directory is the engine's until it has ended.
async fn on_files<T: Send + 'static>(
    shared: &RunnerState,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let engine = Arc::clone(&shared.engine);
    blocking(move || {
        let done = work();
        drop(engine);
        done
    })
    .await
}

/// Runs what reads or writes files.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(Error::Internal(error.to_string())))
}
