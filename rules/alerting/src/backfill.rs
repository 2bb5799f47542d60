//! Rules that begin in the past: each catches up by itself, over what is stored, while the others go on with what arrives.
//!
//! A rule that is saved with a time to start from, and one of `new_term`, which has to know the terms of its window, is not asked
//! of what arrives at first. It has a core of its own that sees the frames read back in their order, muted where it is only to
//! remember. Once it is nearly where the others are, these are held while it sees the rest, a second at most, and its state is taken over
//! between two frames: of all frames before that the rule has seen what is stored, all behind it it sees as they arrive, and
//! none twice.
//!
//! What it raises is written as it goes, also in the midst of a frame of which much is raised, under the ids that it has in any case.
//! There is no position: after a crash, or a change of the rule, it begins again, and what was written is there already. The document says that the rule catches up until a
//! snapshot with its state is durable; before that no start takes the state of it from a snapshot.
//!
//! One that is paused on the way ends there, and says why. Enabled, it begins anew. So does one that does not catch up while others wait
//! for their turn, once these have had it.

mod progress;
mod reading;
mod turns;

use std::collections::{HashMap, HashSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use millrace_notifications::Notifications;
use millrace_percolator::Matching;
use millrace_rules::engine::{Condition, Engine as Rules, Operation, Rule, SilenceOrder};
use millrace_rules::{Bounds, Time, Timing};
use millrace_runtime::Instant;
use millrace_runtime::{Error as StorageError, Priority};
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until};

pub(crate) use self::progress::{BackfillRange, Progress, RestoredHistory};
use self::progress::{MAX_ROUNDS, PauseDurations, remembers_earlier};
use self::turns::{BackfillSlots, WaitingRules};
use crate::alert_chunks::{AlertChunk, MAX_PENDING, Matches};
use crate::commit::{self, Pending};
use crate::error::{Error, Result};
use crate::frame_reader::Step;
use crate::replay::{LiveRuleKnowledge, can_begin};
use crate::runner::{RunnerState, keep_state, take_state};
use crate::state::{roles_of, rows_of};
use crate::store::StoredRule;

/// Rules that catch up at a time, each of which may hold as much as a rule at work; others wait for their turn.
const AT_A_TIME: usize = 2;
/// After a rest that took longer than this the others are not held for the next one, unless rests never get shorter.
const SHORT: Duration = Duration::from_millis(250);
/// For how long the others are held at most for a rest, the step at its end not counted, and for how many documents of it.
const MAX_HELD: Duration = Duration::from_secs(1);
const MAX_HELD_ROWS: usize = 20_000;
/// Bound on the pending operations that backfills hold: one write.
const MAX_HELD_PENDING: usize = 1_000;
/// Time after which a rule that could not go on tries again.
const RETRY: Duration = Duration::from_secs(2);
/// Time after which a failed write of raised alerts is tried again.
const WRITE_AGAIN: Duration = Duration::from_millis(500);

/// Has rules catch up that have to, until it is told to stop.
pub(crate) async fn run(shared: Arc<RunnerState>) {
    let mut stopping = shared.stopping.subscribe();
    let mut running: JoinSet<(String, Result<()>)> = JoinSet::new();
    let mut busy: HashSet<String> = HashSet::new();
    let mut later: HashMap<String, Instant> = HashMap::new();
    let (mut turns, waiting) = (BackfillSlots::default(), Arc::new(WaitingRules::default()));
    while !*stopping.borrow_and_update() && !shared.engine.is_stopping() {
        let wanted = shared.store.backfilled_rules();
        shared.status_reporter.retain_backfills(&wanted);
        let wants = |id: &str| wanted.iter().any(|kept| kept.rule.id == id);
        later.retain(|id, until| wants(id) && *until > Instant::now());
        turns.only(wants);
        let can_begin = |kept: &&Arc<StoredRule>| {
            let id = &kept.rule.id;
            !busy.contains(id) && !later.contains_key(id) && !shared.status_reporter.is_paused(id)
        };
        let wanting: Vec<Arc<StoredRule>> = wanted.iter().filter(can_begin).cloned().collect();
        let free = AT_A_TIME.saturating_sub(running.len());
        let (begin, wait) = turns.give(wanting, free, |kept| kept.rule.id.as_str());
        waiting.set(wait.len());
        for kept in wait {
            shared.status_reporter.catches_up(&kept.rule.id, |told| told.waits = true);
        }
        for kept in begin {
            let id = kept.rule.id.clone();
            busy.insert(id.clone());
            let (shared, waiting) = (Arc::clone(&shared), Arc::clone(&waiting));
            running.spawn(async move {
                // A fault in what one does stops no other.
                let ended = AssertUnwindSafe(catch_up(&shared, &kept, &waiting)).catch_unwind().await;
                (id, ended.unwrap_or_else(|_| Err(interrupted())))
            });
        }
        let next = later.values().min().copied();
        tokio::select! {
            _ = stopping.changed() => {}
            () = shared.backfill_requested.notified() => {}
            () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
            Some(ended) = running.join_next(), if !running.is_empty() => match ended {
                Ok((id, ended)) => {
                    busy.remove(&id);
                    if let Err(error) = ended {
                        tracing::warn!(rule = id, %error, "a rule does not catch up");
                        shared.status_reporter.catches_up(&id, |told| told.error = Some(error.to_string()));
                        later.insert(id, Instant::now() + RETRY);
                    }
                }
                Err(error) => {
                    tracing::error!(%error, "catching up has failed");
                    // Which it was is not known: none of those that are on their way is taken for busy for ever.
                    end(&shared, std::mem::take(&mut running)).await;
                    busy.clear();
                    sleep(RETRY).await;
                }
            },
        }
    }
    end(&shared, running).await;
}

/// Ends rules that are on their way. Who goes live holds the rules: ended there, one would be live by its document and its state, and not be
/// asked.
async fn end(shared: &RunnerState, mut running: JoinSet<(String, Result<()>)>) {
    // A runner that has ended lends nothing, and so nobody goes live.
    let _lease = shared.borrower.lease().await;
    running.abort_all();
}

/// A rule that catches up.
struct BackfillingRule<'a> {
    shared: &'a RunnerState,
    kept: &'a Arc<StoredRule>,
    from: BackfillRange,
    /// `None` while a step is on its way.
    evaluating: Option<(Matching, Rules)>,
    /// Matches of a step that are evaluated once the raised alerts are written.
    left: Matches,
    /// Operations that are to be written.
    pending: VecDeque<Pending>,
    /// The first frame that it has not seen.
    next: u64,
    /// At which it is evaluated: others wait for it while they are held.
    priority: Priority,
    /// Orders to be quiet that it knows of.
    quiet: Vec<SilenceOrder>,
    /// Why it is paused.
    paused: Option<String>,
    /// `true` while it sees the documents of a snapshot, whose frames are of another log.
    is_restoring: bool,
    /// Message about rests that do not get shorter.
    lags: Option<String>,
}

/// Result of a step of a backfill: whether the rule saw all that it has to see.
#[derive(PartialEq, Eq)]
enum BackfillOutcome {
    On,
    /// It is another one by now, or gone, or the server ends; or it is paused.
    Away,
}

/// Has a rule catch up and go live. It ends early where the rule has become another one, or does not catch up while others wait.
async fn catch_up(shared: &RunnerState, kept: &Arc<StoredRule>, waiting: &WaitingRules) -> Result<()> {
    let Some(from) = kept.backfill else { return Ok(()) };
    shared.status_reporter.catches_up(&kept.rule.id, |told| *told = Progress::default());
    let restored = from.restored.filter(|_| !remembers_earlier(&kept.rule.definition));
    let since = restored.map_or(0, |restored| restored.since);
    let rule = Rule { since, ..kept.rule.clone() };
    let (mut rules, mut matching) = (
        Rules::new(Timing::default(), Bounds::default()),
        Matching::new(&shared.engine, &shared.accounts, Priority::Background),
    );
    let lived = LiveRuleKnowledge::new(shared, &rule.id).await;
    matching.put(&rule);
    let window = rule.definition.timeframe().ms();
    rules.put(rule);
    rules.set_absences(lived.absences);
    // Else it begins with what it sees first.
    if from.restored.is_none() && can_begin(from.seen_from, lived.now, window) {
        rules.begin(Time::from_ms(from.seen_from));
    }
    let mut own = BackfillingRule {
        shared,
        kept,
        from,
        evaluating: Some((matching, rules)),
        left: Matches::default(),
        pending: VecDeque::new(),
        next: 0,
        priority: Priority::Background,
        quiet: Vec::new(),
        paused: None,
        is_restoring: false,
        lags: None,
    };
    if let Some(restored) = from.restored
        && own.see_restored(restored).await? == BackfillOutcome::Away
    {
        return Ok(());
    }
    let (mut round, mut is_first, mut rests) = (0, true, PauseDurations::default());
    loop {
        // Nothing is left to be written here. Its state would be one more to be held while others catch up.
        if own.lags.is_some() && waiting.take_one() {
            tracing::info!(rule = kept.rule.id, "a rule that does not catch up lets others do so first");
            return Ok(());
        }
        let began = Instant::now();
        // Asked first: an index that is made later has nothing before it.
        let Some(until) = own.reached().await else { return Ok(()) };
        // At first only what may match is read; later there is little, and looking for it would take longer.
        if own.see(until, is_first).await? == BackfillOutcome::Away {
            return Ok(());
        }
        round += 1;
        let took = began.elapsed();
        if took > SHORT {
            // The first is no rest.
            if !std::mem::take(&mut is_first) {
                own.tell_lag(rests.note(took));
            }
            if round < MAX_ROUNDS {
                continue;
            }
        }
        is_first = false;
        match own.go_live().await? {
            LiveTransition::Yes | LiveTransition::Away => return Ok(()),
            LiveTransition::TooLong => {
                round = 0;
                own.tell_lag(rests.note(MAX_HELD));
                // The others get on meanwhile.
                sleep(SHORT).await;
            }
            LiveTransition::Later => sleep(WRITE_AGAIN).await,
        }
    }
}

/// Result of the attempt to make a rule live.
enum LiveTransition {
    Yes,
    Away,
    /// The rest is too long for the others to be held.
    TooLong,
    /// The others are not where they can be joined.
    Later,
}

impl BackfillingRule<'_> {
    /// Returns whether the rule is still this one, and the server goes on.
    fn is_wanted(&self) -> bool {
        let now = self.shared.store.get(&self.kept.rule.id);
        let same = |now: Arc<StoredRule>| now.rule == self.kept.rule && now.backfill == self.kept.backfill;
        now.is_some_and(same) && !self.shared.is_stopping()
    }

    /// Returns the first frame that the others have not seen, once they are at work; `None` where nobody waits any more.
    async fn reached(&self) -> Option<u64> {
        loop {
            if !self.is_wanted() {
                return None;
            }
            if let Ok(lease) = self.shared.borrower.lease().await
                && let Some(core) = lease.as_ref()
            {
                return Some(core.next);
            }
            tokio::select! {
                () = self.shared.progressed.notified() => {}
                () = sleep(WRITE_AGAIN) => {}
            }
        }
    }

    /// Takes the orders to be quiet that were given since.
    fn new_orders(&mut self) -> Vec<SilenceOrder> {
        let Some(now) = self.shared.store.get(&self.kept.rule.id) else { return Vec::new() };
        let new: Vec<SilenceOrder> =
            now.quiet.iter().filter(|quiet| !self.quiet.contains(quiet)).cloned().collect();
        self.quiet.clone_from(&now.quiet);
        new
    }

    /// Tells that rests do not get shorter, or that they do.
    fn tell_lag(&mut self, lags: Option<String>) {
        self.lags.clone_from(&lags);
        self.shared.status_reporter.catches_up(&self.kept.rule.id, |told| told.error = lags);
    }

    /// Tells why it is paused, unless it is another one by now.
    async fn tell_paused(&mut self) {
        // Who changes rules borrows them, too.
        let _lease = self.shared.borrower.lease().await;
        if self.is_wanted() {
            let reason = self.paused.take();
            tracing::warn!(rule = self.kept.rule.id, reason, "a rule was paused while it caught up");
            self.shared.status_reporter.catches_up(&self.kept.rule.id, |told| {
                (told.error, told.paused) = (reason, true);
            });
        }
    }

    /// Evaluates a step, or what is left of one, until there is enough to be written.
    async fn evaluate(&mut self, step: Option<Step>) -> Result<()> {
        let (mut matching, mut rules) = self.evaluating.take().ok_or_else(interrupted)?;
        let mut left = std::mem::take(&mut self.left);
        let (kept, from, now_ms) = (Arc::clone(self.kept), self.from, self.shared.engine.clock().now_ms());
        let notifies = self.shared.notifications.as_ref().map(Notifications::give_up_ms);
        let orders = self.new_orders();
        let (priority, is_restoring) = (self.priority, self.is_restoring);
        let documents = step.as_ref().map_or(0, |step| step.rows as u64);
        let job = move || {
            let id = &kept.rule.id;
            for order in orders {
                rules.quiet(id, order);
            }
            matching.set_priority(priority);
            let mut pending = Vec::new();
            if let Some(step) = step {
                left = Matches::new(&mut matching, &step);
                let frame = step.frames.last().map_or(0, |frame| frame.number);
                for (place, (rule, reason)) in matching.take_told().into_iter().enumerate() {
                    let problem = Operation::Problem { rule, frame, reason };
                    let roles = roles_of(&rules, &problem);
                    pending.push(Pending::from_operation(problem, frame, place + 1_000_000, now_ms, roles));
                }
            }
            let (mut bytes, mut at_ms, mut paused) = (0, None, None);
            while bytes < MAX_PENDING {
                if !is_restoring
                    && let Some(next) = left.next_frame()
                    && from.mutes(&kept.rule, next.frame.number, next.frame.time)
                {
                    rules.learn(next.frame.number);
                }
                let Some(AlertChunk { frame, time, before, operations, ends }) = left.evaluate(&mut rules)
                else {
                    break;
                };
                for (place, operation) in (before..).zip(operations) {
                    let roles = roles_of(&rules, &operation);
                    // Of what was there before the rule nobody is told. That these frames may be seen again is said by the number.
                    let rows = match is_restoring || frame > kept.rule.since {
                        true => rows_of(&rules, &operation, 0, now_ms, notifies),
                        false => Vec::new(),
                    };
                    let raised =
                        Pending::from_operation(operation, frame, place, now_ms, roles).with_rows(rows);
                    bytes += raised.bytes;
                    pending.push(raised);
                }
                if !ends {
                    continue;
                }
                at_ms = Some(time.ms());
                // What it tells comes with the end of a frame.
                if let Some(Condition::Paused { reason, .. }) =
                    rules.status(id).map(|status| status.condition)
                {
                    paused = Some(reason);
                    matching.remove(id);
                    left = Matches::default();
                    break;
                }
            }
            rules.tick();
            Ok((matching, rules, left, pending, at_ms, paused))
        };
        let ran = self.shared.engine.compute().run(priority, job).await?;
        let (matching, rules, left, pending, at_ms, paused) = ran;
        if let Some(seen) = rules.position() {
            self.next = self.next.max(seen + 1);
        }
        self.evaluating = Some((matching, rules));
        self.left = left;
        self.pending.extend(pending);
        self.paused = paused;
        let lags = self.lags.clone();
        self.shared.status_reporter.catches_up(&self.kept.rule.id, |told| {
            told.at_ms = at_ms.or(told.at_ms);
            told.documents += documents;
            told.error = lags;
        });
        Ok(())
    }

    /// Writes what the rule has raised, and evaluates what is left of a step, until all of that is done.
    async fn finish(&mut self) -> Result<BackfillOutcome> {
        loop {
            if self.write().await? == BackfillOutcome::Away {
                return Ok(BackfillOutcome::Away);
            }
            if self.paused.is_some() {
                self.tell_paused().await;
                return Ok(BackfillOutcome::Away);
            }
            if self.left.is_empty() {
                return Ok(BackfillOutcome::On);
            }
            self.evaluate(None).await?;
        }
    }

    /// Writes what the rule has raised, however long that takes.
    async fn write(&mut self) -> Result<BackfillOutcome> {
        loop {
            if !self.is_wanted() {
                return Ok(BackfillOutcome::Away);
            }
            match commit::commit_beside_feed(&self.shared.engine, &mut self.pending).await {
                Ok(_) => {
                    self.shared
                        .notifications
                        .iter()
                        .for_each(|notifications| notifications.committed(0, true));
                    return Ok(BackfillOutcome::On);
                }
                Err(error) => {
                    let reason = format!("alerts cannot be written: {error}");
                    self.shared
                        .status_reporter
                        .catches_up(&self.kept.rule.id, |told| told.error = Some(reason));
                }
            }
            sleep(WRITE_AGAIN).await;
        }
    }

    /// Sees the rest while the others are held, and hands the rule over to them.
    async fn go_live(&mut self) -> Result<LiveTransition> {
        let mut held = match self.shared.held().await {
            // The others do not get on; this one has seen what it has.
            Err(Error::Storage(StorageError::Rejected(_))) => return Ok(LiveTransition::Later),
            held => held?,
        };
        if !self.is_wanted() {
            return Ok(LiveTransition::Away);
        }
        let Some(core) = held.as_mut().filter(|core| core.can_be_joined()) else {
            return Ok(LiveTransition::Later);
        };
        let until = core.next;
        // Live it raises alerts of all that it sees: of what it only is to learn the others have none to come.
        if until < self.next || until <= self.kept.rule.since {
            return Ok(LiveTransition::Later);
        }
        self.priority = Priority::Follow;
        let saw = self.see_rest(until).await;
        self.priority = Priority::Background;
        if !saw? {
            drop(held);
            return match self.finish().await? {
                BackfillOutcome::On => Ok(LiveTransition::TooLong),
                BackfillOutcome::Away => Ok(LiveTransition::Away),
            };
        }
        // Where it cannot be written the others are not held for it.
        if commit::commit_beside_feed(&self.shared.engine, &mut self.pending).await.is_err() {
            drop(held);
            return match self.write().await? {
                BackfillOutcome::On => Ok(LiveTransition::Later),
                BackfillOutcome::Away => Ok(LiveTransition::Away),
            };
        }
        let Some(now) = self.shared.store.get(&self.kept.rule.id) else { return Ok(LiveTransition::Away) };
        let since = until.saturating_sub(1);
        let orders = self.new_orders();
        let (_, mut own) = self.evaluating.take().ok_or_else(interrupted)?;
        for order in orders {
            own.quiet(&now.rule.id, order);
        }
        let rule = Rule { since, ..now.rule.clone() };
        if !core.rules.adopt(&mut own, &rule.id, since) {
            return Err(interrupted());
        }
        let (mut held, taken) = take_state(self.shared, held, Priority::Follow).await?;
        // Its state is durable before the document says that it is there.
        let stored = match taken {
            Some(taken) => keep_state(self.shared, taken).await,
            None => Err(StorageError::Internal("there is no state of rules".to_owned())),
        };
        let put = StoredRule { rule: rule.clone(), backfill: None, ..StoredRule::clone(&now) };
        let stored = match stored {
            Ok(()) => self.shared.store.put(put).await.map(drop),
            Err(error) => Err(error.into()),
        };
        let Some(core) = held.as_mut() else { return Ok(LiveTransition::Away) };
        if let Err(error) = stored {
            core.rules.remove(&rule.id);
            return Err(error);
        }
        core.ask(&rule);
        core.touched.insert(rule.id.clone());
        self.shared.status_reporter.update(core, None);
        self.shared.status_reporter.no_longer_catches_up(&rule.id);
        tracing::info!(rule = rule.id, frame = until, "a rule that caught up is live");
        Ok(LiveTransition::Yes)
    }
}

fn interrupted() -> Error {
    Error::Storage(StorageError::Internal("catching up was interrupted".to_owned()))
}
