//! Rules that begin in the past: each catches up by itself, over what is stored, while the others go on with what arrives.
//!
//! A rule that is saved with a time to start from, and one of `new_term`, which has to know the terms of its window, is not asked
//! of what arrives at first. It has a core of its own that sees the frames read back in their order, muted where it is only to
//! remember. Once it is nearly where the others are, these are held for as long as the rest takes, and its state is taken over
//! between two frames: of all frames before that the rule has seen what is stored, all behind it it sees as they arrive, and
//! none twice.
//!
//! What it raises is written as it goes, under the ids that it has in any case. There is no position: after a crash, or a change of
//! the rule, it begins again, and what was written is there already. The document says that the rule catches up until a
//! snapshot with its state is durable; before that no start takes the state of it from a snapshot.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use millrace_notifications::Notifications;
use millrace_query::Work;
use millrace_rules::definition::{Definition, RuleType};
use millrace_rules::engine::{Engine as Rules, Rule};
use millrace_rules::{Bounds, Time, Timing};
use millrace_storage::{Error as StorageError, Priority};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::commit::{self, Pending};
use crate::error::{Error, Result};
use crate::matching::{Evaluable, Known, Matching};
use crate::reading::{Reading, Step};
use crate::replay::{Lived, can_begin};
use crate::runner::{Shared, keep_state};
use crate::state::{Core, roles_of, rows_of};
use crate::store::Kept;

/// Rules that catch up at a time, each of which may hold as much as a rule at work; others wait for their turn.
const AT_A_TIME: usize = 2;
/// A rest that took longer than this is not evaluated while the others are held, unless it never gets shorter.
const SHORT: Duration = Duration::from_millis(250);
/// How often the rest is evaluated while the others go on.
const MAX_ROUNDS: usize = 20;
/// How long a rule waits that could not go on.
const RETRY: Duration = Duration::from_secs(2);
/// How long what was raised waits that could not be written.
const WRITE_AGAIN: Duration = Duration::from_millis(500);

/// From when on a rule looks at what is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CatchUp {
    /// Frames that were written at this time, in milliseconds, and later ones are seen.
    pub(crate) seen_from: i64,
    /// Those of this time and later ones raise alerts; without it those behind the frame at which the rule was saved.
    pub(crate) raised_from: Option<i64>,
}

impl CatchUp {
    /// Decides what a new rule, or a new revision of one, has to see of what is stored.
    pub(crate) fn of(definition: &Definition, from: Option<i64>, now_ms: i64) -> Option<Self> {
        let window = match &definition.rule_type {
            RuleType::NewTerm { window, .. } => Some(window.ms()),
            _ => None,
        };
        if from.is_none() && window.is_none() {
            return None;
        }
        let seen_from = from.unwrap_or(now_ms).saturating_sub(window.unwrap_or(0));
        Some(Self { seen_from, raised_from: from })
    }

    /// Whether a frame only changes what is remembered.
    fn mutes(&self, rule: &Rule, frame: u64, time: Time) -> bool {
        match self.raised_from {
            Some(from) => time.ms() < from,
            None => frame <= rule.since,
        }
    }
}

/// How far a rule is that catches up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Time of the last frame that it has seen.
    pub(crate) at_ms: Option<i64>,
    /// Documents that it was asked of.
    pub(crate) documents: u64,
    /// Why it does not go on.
    pub(crate) error: Option<String>,
}

/// Has rules catch up that have to, until it is told to stop.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut stopping = shared.stopping.subscribe();
    let mut running: JoinSet<(String, Result<()>)> = JoinSet::new();
    let mut busy: HashSet<String> = HashSet::new();
    let mut later: HashMap<String, Instant> = HashMap::new();
    while !*stopping.borrow_and_update() && !shared.engine.is_stopping() {
        let wanted = shared.store.catching_up();
        shared.told.only_catching_up(&wanted);
        later.retain(|id, until| wanted.iter().any(|kept| kept.rule.id == *id) && *until > Instant::now());
        for kept in wanted {
            let id = kept.rule.id.clone();
            if running.len() == AT_A_TIME {
                break;
            }
            if busy.contains(&id) || later.contains_key(&id) {
                continue;
            }
            busy.insert(id.clone());
            let shared = Arc::clone(&shared);
            running.spawn(async move {
                let ended = catch_up(&shared, &kept).await;
                (id, ended)
            });
        }
        let next = later.values().min().copied();
        tokio::select! {
            _ = stopping.changed() => {}
            () = shared.catching_up.notified() => {}
            () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
            Some(ended) = running.join_next(), if !running.is_empty() => match ended {
                Ok((id, ended)) => {
                    busy.remove(&id);
                    if let Err(error) = ended {
                        tracing::warn!(rule = id, %error, "a rule does not catch up");
                        shared.told.catches_up(&id, |told| told.error = Some(error.to_string()));
                        later.insert(id, Instant::now() + RETRY);
                    }
                }
                Err(error) => {
                    tracing::error!(%error, "catching up has failed");
                    // Which it was is not known: none of those that are on their way is taken for busy for ever.
                    running.abort_all();
                    busy.clear();
                    running = JoinSet::new();
                    sleep(RETRY).await;
                }
            },
        }
    }
}

/// A rule that catches up.
struct Own<'a> {
    shared: &'a Shared,
    kept: &'a Arc<Kept>,
    from: CatchUp,
    /// `None` while a step is on its way.
    evaluating: Option<(Matching, Rules)>,
    /// What is to be written.
    pending: VecDeque<Pending>,
    /// The first frame that it has not seen.
    next: u64,
}

/// Whether a rule went on to the end of what it was to see.
#[derive(PartialEq, Eq)]
enum Went {
    On,
    /// It is another one by now, or gone, or the server ends.
    Away,
}

/// Has a rule catch up and go live. It ends early where the rule has become another one.
async fn catch_up(shared: &Shared, kept: &Arc<Kept>) -> Result<()> {
    let Some(from) = kept.catching_up else { return Ok(()) };
    shared.told.catches_up(&kept.rule.id, |told| *told = Progress::default());
    let rule = Rule { since: 0, ..kept.rule.clone() };
    let (mut rules, mut matching) =
        (Rules::new(Timing::default(), Bounds::default()), Matching::new(&shared.engine, &shared.accounts));
    let lived = Lived::of(shared, &rule.id).await;
    matching.put(&rule);
    let window = rule.definition.timeframe().ms();
    rules.put(rule);
    rules.set_absences(lived.absences);
    // Else it begins with what it sees first.
    if can_begin(from.seen_from, lived.now, window) {
        rules.begin(Time::from_ms(from.seen_from));
    }
    for quiet in &kept.quiet {
        rules.quiet(&kept.rule.id, quiet.clone());
    }
    let evaluating = Some((matching, rules));
    let mut own = Own { shared, kept, from, evaluating, pending: VecDeque::new(), next: 0 };
    let mut round = 0;
    loop {
        let began = Instant::now();
        // Asked first: an index that is made later has nothing before it.
        let Some(until) = own.reached().await else { return Ok(()) };
        // At first only what may match is read; later there is little, and looking for it would take longer.
        if own.see(until, round == 0).await? == Went::Away {
            return Ok(());
        }
        round += 1;
        if began.elapsed() > SHORT && round < MAX_ROUNDS {
            continue;
        }
        match own.go_live().await? {
            Live::Yes | Live::Away => return Ok(()),
            Live::Later => sleep(WRITE_AGAIN).await,
        }
    }
}

/// Whether a rule is live.
enum Live {
    Yes,
    Away,
    /// The others are not where they can be joined.
    Later,
}

impl Own<'_> {
    /// Whether the rule is still this one, and the server goes on.
    fn is_wanted(&self) -> bool {
        let now = self.shared.store.get(&self.kept.rule.id);
        let same = |now: Arc<Kept>| now.rule == self.kept.rule && now.catching_up == self.kept.catching_up;
        now.is_some_and(same) && !*self.shared.stopping.borrow() && !self.shared.engine.is_stopping()
    }

    /// Returns the first frame that the others have not seen, once they are at work; `None` where nobody waits any more.
    async fn reached(&self) -> Option<u64> {
        loop {
            if !self.is_wanted() {
                return None;
            }
            if let Some(core) = self.shared.core.lock().await.as_ref() {
                return Some(core.next);
            }
            tokio::select! {
                () = self.shared.advanced.notified() => {}
                () = sleep(WRITE_AGAIN) => {}
            }
        }
    }

    /// Sees what is stored of the frames before one, and writes what the rule raises.
    async fn see(&mut self, until: u64, choose: bool) -> Result<Went> {
        if until <= self.next {
            return Ok(Went::On);
        }
        let mut reading = self.begin(until, choose).await?;
        while let Some(step) = reading.next().await? {
            self.evaluate(step).await?;
            if self.write().await? == Went::Away {
                return Ok(Went::Away);
            }
        }
        if reading.end() < until {
            let reason = format!("frame {} is not there yet", reading.end());
            return Err(Error::Storage(StorageError::Internal(reason)));
        }
        self.next = until;
        Ok(Went::On)
    }

    async fn begin(&mut self, until: u64, choose: bool) -> Result<Reading> {
        let engine = &self.shared.engine;
        let (mut matching, rules) = self.evaluating.take().ok_or_else(interrupted)?;
        let (frames, times) = (self.next..until, self.from.seen_from..i64::MAX);
        let work = Work::default();
        // Who goes away stops the choosing of rows, too.
        let _ends = work.until_dropped();
        let of_choice = work.clone();
        let find = move || {
            let found = match choose {
                true => {
                    let (indices, choice) = matching.stored(&of_choice);
                    (indices, Some(choice))
                }
                false => (matching.watched(), None),
            };
            Ok((matching, rules, found))
        };
        let (matching, rules, (indices, choice)) = engine.compute().run(Priority::Background, find).await?;
        self.evaluating = Some((matching, rules));
        let reading = match choice {
            Some(choice) => engine.read_back_chosen(&indices, frames, times.clone(), &choice).await?,
            None => engine.read_back(&indices, frames).await?,
        };
        Ok(Reading::begin(reading, times).await?)
    }

    async fn evaluate(&mut self, step: Step) -> Result<()> {
        let (mut matching, mut rules) = self.evaluating.take().ok_or_else(interrupted)?;
        let (kept, from, now_ms) = (Arc::clone(self.kept), self.from, self.shared.engine.clock().now_ms());
        let notifies = self.shared.notifications.as_ref().map(Notifications::give_up_ms);
        let (at_ms, documents) = (step.frames.last().map(|frame| frame.time_ms), step.rows as u64);
        let job = move || {
            let (mut pending, mut last) = (Vec::new(), 0);
            for (at, Evaluable { mut frame, matched }) in matching.run(&step.frames).into_iter().enumerate() {
                frame.complete = step.completes(at);
                last = frame.number;
                if from.mutes(&kept.rule, frame.number, frame.time) {
                    rules.mute(frame.number);
                }
                let operations = rules.frame(&frame, &mut Known(matched));
                for (place, operation) in operations.into_iter().enumerate() {
                    let roles = roles_of(&rules, &operation);
                    // Of what was there before the rule nobody is told. That these frames may be seen again is said by the number.
                    let rows = match frame.number > kept.rule.since {
                        true => rows_of(&rules, &operation, 0, now_ms, notifies),
                        false => Vec::new(),
                    };
                    pending.push(Pending::of(operation, frame.number, place, now_ms, roles).with_rows(rows));
                }
            }
            for (place, (rule, reason)) in matching.take_told().into_iter().enumerate() {
                let problem = millrace_rules::engine::Operation::Problem { rule, frame: last, reason };
                let roles = roles_of(&rules, &problem);
                pending.push(Pending::of(problem, last, place + 1_000_000, now_ms, roles));
            }
            rules.tick();
            Ok((matching, rules, pending))
        };
        let (matching, rules, mut pending) =
            self.shared.engine.compute().run(Priority::Background, job).await?;
        self.evaluating = Some((matching, rules));
        // A start or a change of the rule begins again: what was raised before was told.
        commit::tell_no_more(&self.shared.engine, &mut pending).await;
        self.pending.extend(pending);
        self.shared.told.catches_up(&self.kept.rule.id, |told| {
            told.at_ms = at_ms.or(told.at_ms);
            told.documents += documents;
            told.error = None;
        });
        Ok(())
    }

    /// Writes what the rule has raised, however long that takes.
    async fn write(&mut self) -> Result<Went> {
        loop {
            if !self.is_wanted() {
                return Ok(Went::Away);
            }
            match commit::beside(&self.shared.engine, &mut self.pending).await {
                Ok(_) => {
                    self.shared
                        .notifications
                        .iter()
                        .for_each(|notifications| notifications.committed(0, true));
                    return Ok(Went::On);
                }
                Err(error) => {
                    let reason = format!("alerts cannot be written: {error}");
                    self.shared.told.catches_up(&self.kept.rule.id, |told| told.error = Some(reason));
                }
            }
            sleep(WRITE_AGAIN).await;
        }
    }

    /// Sees the rest while the others are held, and hands the rule over to them.
    async fn go_live(&mut self) -> Result<Live> {
        let mut held = self.shared.held().await?;
        if !self.is_wanted() {
            return Ok(Live::Away);
        }
        let Some(core) = held.as_mut().filter(|core| core.can_be_joined()) else { return Ok(Live::Later) };
        let until = core.next;
        if until < self.next {
            return Ok(Live::Later);
        }
        let mut reading = self.begin(until, false).await?;
        while let Some(step) = reading.next().await? {
            self.evaluate(step).await?;
        }
        if reading.end() < until {
            return Ok(Live::Later);
        }
        self.next = until;
        // Where it cannot be written the others are not held for it.
        if commit::beside(&self.shared.engine, &mut self.pending).await.is_err() {
            drop(held);
            return match self.write().await? {
                Went::On => Ok(Live::Later),
                Went::Away => Ok(Live::Away),
            };
        }
        let Some(now) = self.shared.store.get(&self.kept.rule.id) else { return Ok(Live::Away) };
        let since = until.saturating_sub(1);
        let (_, mut own) = self.evaluating.take().ok_or_else(interrupted)?;
        for quiet in now.quiet.iter().filter(|quiet| !self.kept.quiet.contains(quiet)) {
            own.quiet(&now.rule.id, quiet.clone());
        }
        let rule = Rule { since, ..now.rule.clone() };
        if !core.rules.adopt(&mut own, &rule.id, since) {
            return Err(interrupted());
        }
        let taken = move || {
            let taken = held.as_ref().and_then(Core::snapshot);
            Ok((held, taken))
        };
        let (mut held, taken) = self.shared.engine.compute().run(Priority::Follow, taken).await?;
        // Its state is durable before the document says that it is there.
        let stored = match taken {
            Some((position, bytes)) => keep_state(self.shared, position, bytes).await,
            None => Err(StorageError::Internal("there is no state of rules".to_owned())),
        };
        let put = Kept { rule: rule.clone(), catching_up: None, ..Kept::clone(&now) };
        let stored = match stored {
            Ok(()) => self.shared.store.put(put).await.map(drop),
            Err(error) => Err(error.into()),
        };
        let Some(core) = held.as_mut() else { return Ok(Live::Away) };
        if let Err(error) = stored {
            core.rules.remove(&rule.id);
            return Err(error);
        }
        core.ask(&rule);
        core.touched.insert(rule.id.clone());
        self.shared.told.update(core, None);
        self.shared.told.no_longer_catches_up(&rule.id);
        tracing::info!(rule = rule.id, frame = until, "a rule that caught up is live");
        Ok(Live::Yes)
    }
}

fn interrupted() -> Error {
    Error::Storage(StorageError::Internal("catching up was interrupted".to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn definition(options: serde_json::Value) -> Definition {
        let mut rule = json!({"name": "r", "index": "i"});
        rule.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
        Definition::parse(&rule).unwrap()
    }

    #[test]
    fn terms_are_learned_over_their_window_and_alerts_raised_from_the_time_that_is_said() {
        let any = definition(json!({"type": "any"}));
        let terms = definition(json!({"type": "new_term", "fields": ["a"], "terms_window_size": "1h"}));
        let hour = 3_600_000;
        let of = |seen_from, raised_from| Some(CatchUp { seen_from, raised_from });
        assert_eq!(CatchUp::of(&any, None, 10 * hour), None);
        assert_eq!(CatchUp::of(&any, Some(hour), 10 * hour), of(hour, Some(hour)));
        assert_eq!(CatchUp::of(&terms, None, 10 * hour), of(9 * hour, None));
        assert_eq!(CatchUp::of(&terms, Some(5 * hour), 10 * hour), of(4 * hour, Some(5 * hour)));
        let rule = |since| Rule {
            id: "r".to_owned(),
            revision: 1,
            since,
            owner: "ann".to_owned(),
            definition: any.clone(),
        };
        let mutes =
            |from: Option<CatchUp>, frame, ms| from.unwrap().mutes(&rule(7), frame, Time::from_ms(ms));
        assert!(mutes(of(0, Some(5)), 9, 4) && !mutes(of(0, Some(5)), 1, 5));
        assert!(mutes(of(0, None), 7, 99) && !mutes(of(0, None), 8, 0));
    }
}
