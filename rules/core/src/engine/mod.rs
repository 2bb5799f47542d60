//! Many rules over the change feed: the synchronous core.
//!
//! Whoever reads the feed hands over its frames in order, whole or in pieces of any size ([`Frame`]), with a [`Matcher`] that
//! knows which rules' filters match which events. Back come [`Operation`]s, to be committed in one frame together with the
//! position. There is no clock and no randomness here: the same frames give the same operations, byte for byte, however
//! they are cut. `docs/internals/rules.md` has the reasons.
//!
//! After a crash [`Engine::restore`] takes the state of a snapshot; the frames behind it are given again, and up to the
//! committed position they change state and answer nothing.

mod active_rule;
mod alert_builder;
mod operation_batch;
mod snapshot;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use serde_json::Value;

use self::active_rule::ActiveRule;
pub use self::active_rule::{Condition, Status};
#[cfg(test)]
pub(crate) use self::operation_batch::AT_ONCE;
use self::operation_batch::OperationBatch;
use crate::definition::Definition;
use crate::event::{Event, Origin};
use crate::mutation::{Mutation, mutated};
use crate::operator::{Bounds, Timing};
use crate::time::Time;

/// Depth at which an alert is no event any more: of rules that watch alerts of rules that watch alerts.
pub const MAX_DEPTH: u8 = 4;

/// A rule that runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Its id.
    pub id: String,
    /// Its revision: another one begins with empty state.
    pub revision: u64,
    /// The last frame that it does not see.
    pub since: u64,
    /// Owner of the rule.
    pub owner: String,
    /// Definition of the rule.
    pub definition: Definition,
}

/// A frame of the feed, or a piece of one.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Its number, in the order of the log.
    pub number: u64,
    /// The time that was recorded with it.
    pub time: Time,
    /// Writer of the frame.
    pub origin: Origin,
    /// Events, in any order.
    pub events: Vec<Event>,
    /// `true` if no piece of the frame follows.
    pub complete: bool,
}

/// Events that a rule's filter matches.
#[derive(Clone, Debug)]
pub struct RuleMatches {
    /// Id of the rule.
    pub rule: String,
    /// Places in [`Frame::events`], each once; or why the filter cannot be asked.
    pub outcome: Result<Vec<usize>, String>,
    /// Those of the places that match the rule's second filter, too, where its type has one (`match_bucket_filter`).
    pub second: Vec<usize>,
}

/// Matcher of events with the filters of rules, index patterns and rights included.
pub trait Matcher {
    /// Tells which events of a piece the rules match; rules without a match may be left out.
    fn matches(&mut self, frame: &Frame) -> Vec<RuleMatches>;
}

/// A user's order to raise no alerts of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SilenceOrder {
    /// The key as alerts show it; all keys without one.
    pub key: Option<String>,
    /// The last frame that it does not concern.
    pub since: u64,
    /// Frames of this time and later ones are not concerned either.
    pub until: Time,
}

/// Something to be written.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// A document of `alert`, created.
    Alert {
        /// Id of the rule.
        rule: String,
        /// `_id` of the document.
        id: String,
        /// The document.
        document: Value,
    },
    /// A document of `alert_silence`, replaced.
    Silence {
        /// Id of the rule.
        rule: String,
        /// `_id` of the document.
        id: String,
        /// The document.
        document: Value,
    },
    /// Late events changed what an alert says: members of `document` take the place of those of the alert. It never has
    /// `status`, `alert_sent` or who changed the alert, and never makes one: where the alert is gone nothing happens.
    Revision {
        /// Id of the rule.
        rule: String,
        /// `_id` of the alert.
        id: String,
        /// The members that are different now.
        document: Value,
    },
    /// The condition that an alert told of has ended: once an alert, and only of rules with `recovery`.
    Recovery {
        /// Id of the rule.
        rule: String,
        /// `_id` of the alert.
        id: String,
        /// The key as the alert shows it.
        key: String,
        /// The end of the window without the condition.
        time: Time,
    },
    /// Something for `alert_error`.
    Problem {
        /// Id of the rule.
        rule: String,
        /// The frame at which it happened.
        frame: u64,
        /// Reason for the problem.
        reason: String,
    },
}

/// The rules at work.
#[derive(Debug)]
pub struct Engine {
    rules: BTreeMap<String, ActiveRule>,
    timing: Timing,
    bounds: Bounds,
    position: Option<u64>,
    now: Time,
    /// The frame of which not all pieces have come.
    open: Option<u64>,
    /// Rules with events of that frame that they have not evaluated.
    waiting: BTreeSet<String>,
    /// Rules with windows that are over at the time of that frame, in the order in which they are closed.
    ringing: VecDeque<String>,
    /// The frame that rules evaluate, all of which has come, and whether it is complete; that to come, where time passes without one.
    amid: Option<(u64, bool)>,
    /// Problem reports that go out with that frame.
    problems: Vec<Operation>,
    muted: Option<u64>,
    /// Times at which waiting rules need a look if they get no event.
    alarms: BTreeSet<(Time, String)>,
    /// Those alarms by rule.
    rings: BTreeMap<String, Time>,
    /// Rules that wait and have not seen the time yet.
    new: BTreeSet<String>,
    /// Rules that wait for windows.
    waits: BTreeSet<String>,
    /// Times at which the server was down, as far as they matter.
    absences: Vec<(Time, Time)>,
    /// `true` if that is told by times of frames.
    tells_absences: bool,
}

/// Step of a rule at a frame, until the write batch is full; returns whether that was all.
type Step = fn(&mut ActiveRule, u64, Time, &Timing, &[(Time, Time)], &mut OperationBatch) -> bool;

/// Absences that are remembered.
const MAX_ABSENCES: usize = 256;

impl Engine {
    /// Makes an engine without rules.
    pub fn new(timing: Timing, bounds: Bounds) -> Self {
        Self {
            rules: BTreeMap::new(),
            timing,
            bounds,
            position: None,
            now: Time::from_ms(i64::MIN),
            open: None,
            waiting: BTreeSet::new(),
            ringing: VecDeque::new(),
            amid: None,
            problems: Vec::new(),
            muted: None,
            alarms: BTreeSet::new(),
            rings: BTreeMap::new(),
            new: BTreeSet::new(),
            waits: BTreeSet::new(),
            absences: Vec::new(),
            tells_absences: true,
        }
    }

    /// Takes the times at which the server was down from [`Self::absences`] of another engine, in place of telling them by frames:
    /// of those that rules match only, there are gaps that mean nothing.
    pub fn set_absences(&mut self, absences: Vec<(Time, Time)>) {
        self.absences = absences;
        self.tells_absences = false;
    }

    /// Returns when the server was down, as far as rules that wait for windows have noticed: the latest 256 times.
    pub fn absences(&self) -> &[(Time, Time)] {
        &self.absences
    }

    /// Returns whether there are rules that wait for windows: then the log needs a frame in each [`Timing::heartbeat`].
    pub fn has_waiting(&self) -> bool {
        !self.waits.is_empty()
    }

    /// Returns the greatest time of a frame.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Adds a rule or puts it in the place of the one of its id, whose state stays where the revision is the same. Returns the
    /// last frame that the rule does not see: where pieces of a frame are there already, that frame.
    pub fn put(&mut self, mut rule: Rule) -> u64 {
        match self.rules.get_mut(&rule.id) {
            Some(running) if running.rule.revision == rule.revision => {
                rule.since = running.rule.since;
                let enabled = rule.definition.enabled;
                let since = rule.since;
                let id = rule.id.clone();
                running.rule = rule;
                running.enable(enabled, self.now, &self.timing, self.bounds);
                self.changed(&id);
                since
            }
            _ => {
                rule.since = rule.since.max(self.open.unwrap_or(0));
                let (id, since) = (rule.id.clone(), rule.since);
                let mut running = ActiveRule::new(rule, self.now, &self.timing, self.bounds);
                // Who asked for silence did not ask for that of a revision.
                if let Some(before) = self.rules.remove(&id) {
                    running.quiet = before.quiet;
                }
                self.rules.insert(id.clone(), running);
                self.changed(&id);
                since
            }
        }
    }

    /// Takes into account that a rule is another one.
    fn changed(&mut self, id: &str) {
        match self.rules.get(id).is_some_and(|running| running.rule.definition.rule_type.is_waiting()) {
            true => self.waits.insert(id.to_owned()),
            false => self.waits.remove(id),
        };
        match self.rules.get(id).is_some_and(|running| !running.has_begun()) {
            true => self.new.insert(id.to_owned()),
            false => self.new.remove(id),
        };
        self.set_alarm(id);
    }

    fn set_alarm(&mut self, id: &str) {
        let next = self.rules.get(id).and_then(|running| running.alarm(&self.timing, &self.absences));
        if self.rings.get(id).copied() == next {
            return;
        }
        if let Some(before) = self.rings.remove(id) {
            self.alarms.remove(&(before, id.to_owned()));
        }
        if let Some(next) = next {
            self.rings.insert(id.to_owned(), next);
            self.alarms.insert((next, id.to_owned()));
        }
    }

    /// Returns whether a rule was disabled for so long that it begins without state if it is enabled now, as it is given.
    pub fn restarts(&self, rule: &Rule) -> bool {
        self.rules.get(&rule.id).is_some_and(|running| running.restarts(&rule.definition, self.now))
    }

    /// Returns whether no frame is there in part.
    pub fn is_between_frames(&self) -> bool {
        self.open.is_none()
    }

    /// Takes a rule over with its state from an engine that has seen the same frames; `since` is the last of them. Returns
    /// whether it has that rule.
    pub fn adopt(&mut self, other: &mut Self, id: &str, since: u64) -> bool {
        let Some(mut running) = other.rules.remove(id) else { return false };
        running.rule.since = since;
        self.rules.insert(id.to_owned(), running);
        self.changed(id);
        // Where nothing was seen yet, there was nothing to be seen up to there.
        self.position.get_or_insert(since);
        true
    }

    /// Has the rules, with their state, go on behind a frame of another log. Time since the last frame counts as unobserved up to
    /// `unobserved_until`.
    pub fn rebase(&mut self, position: u64, unobserved_until: Time) {
        self.forget_pieces();
        (self.position, self.muted) = (Some(position), None);
        let ids: Vec<String> = self.rules.keys().cloned().collect();
        for id in ids {
            if let Some(running) = self.rules.get_mut(&id) {
                running.rebase(position, unobserved_until);
            }
            self.changed(&id);
        }
    }

    /// Removes a rule with its state.
    pub fn remove(&mut self, id: &str) -> bool {
        let was_there = self.rules.remove(id).is_some();
        self.changed(id);
        was_there
    }

    /// Lets a rule that was paused run again, from the next frame on, with the state that it had.
    pub fn resume(&mut self, id: &str) {
        if let Some(running) = self.rules.get_mut(id) {
            running.resume(self.now);
            self.changed(id);
        }
    }

    /// Makes a rule quiet; returns whether there is such a rule with room for it: at most 1,000 orders are in force at once.
    pub fn quiet(&mut self, id: &str, quiet: SilenceOrder) -> bool {
        self.rules.get_mut(id).is_some_and(|running| running.quiet(quiet, self.now))
    }

    /// Runs muted up to a frame: its operations and those before are committed. State changes as if they were not.
    pub fn mute(&mut self, until: u64) {
        self.muted = Some(until);
    }

    /// Has the rules that there are only learn up to a frame: they remember what they see, and raise no alert. Unlike where
    /// it is muted ([`Self::mute`]), none was raised, so none silences a key. What is wrong is told all the same.
    pub fn learn(&mut self, until: u64) {
        for running in self.rules.values_mut() {
            running.learn(until);
        }
    }

    /// Returns the last frame that state has seen whole.
    pub fn position(&self) -> Option<u64> {
        self.position
    }

    /// Takes a frame or a piece of one, and returns what is to be written when the frame is complete. A frame that state has
    /// seen is passed over.
    pub fn frame(&mut self, frame: &Frame, matcher: &mut dyn Matcher) -> Vec<Operation> {
        let mut operations = self.begin_frame(frame, matcher);
        while self.is_amid() {
            operations.append(&mut self.go_on());
        }
        operations
    }

    /// Does the same, but returns only some of what is to be written where that is much: the rest comes of [`Self::go_on`], for as long
    /// as [`Self::is_amid`]. No other frame may come before.
    pub fn begin_frame(&mut self, frame: &Frame, matcher: &mut dyn Matcher) -> Vec<Operation> {
        let seen = self.position.is_some_and(|position| frame.number <= position);
        if seen && !mutated(Mutation::TakeFramesTwice) {
            return Vec::new();
        }
        if self.open.is_none_or(|open| open != frame.number) {
            // What is left of another frame was never whole: it comes again.
            self.forget_pieces();
            self.open = Some(frame.number);
        }
        // Also without events: that a filter cannot be asked is to be heard.
        if !matches!(frame.origin, Origin::Restore | Origin::System) {
            let mut events: Option<Arc<[Event]>> = None;
            for matched in matcher.matches(frame) {
                let Some(running) = self.rules.get_mut(&matched.rule) else { continue };
                let events = events.get_or_insert_with(|| frame.events.as_slice().into());
                if running.take(frame, events, matched.outcome, &matched.second, &mut self.problems) {
                    self.waiting.insert(matched.rule);
                }
            }
        }
        if !frame.complete && !mutated(Mutation::EvaluatePieces) {
            return Vec::new();
        }
        let part = OperationBatch::new(std::mem::take(&mut self.problems));
        self.pass(frame.time);
        if !self.new.is_empty() {
            self.begin_new(frame.number);
        }
        self.amid = Some((frame.number, frame.complete));
        self.evaluate(part)
    }

    /// Forgets the pieces of a frame that is not complete: it comes again from its first one. One that is complete goes on.
    pub fn forget_pieces(&mut self) {
        if self.is_amid() {
            return;
        }
        for id in std::mem::take(&mut self.waiting) {
            if let Some(running) = self.rules.get_mut(&id) {
                running.forget_pieces();
            }
        }
        self.open = None;
    }

    /// Returns whether there is more of a frame to be written, or of time that has passed: [`Self::go_on`] returns it.
    pub fn is_amid(&self) -> bool {
        self.amid.is_some()
    }

    /// Returns more of what is to be written; nothing where there is none.
    pub fn go_on(&mut self) -> Vec<Operation> {
        self.evaluate(OperationBatch::default())
    }

    /// Has rules close windows and evaluate the frame that is complete, until there is enough to be written.
    fn evaluate(&mut self, mut part: OperationBatch) -> Vec<Operation> {
        let Some((frame, complete)) = self.amid else { return part.into_operations() };
        let rung = self.ring(frame, &mut part);
        while rung && let Some(id) = self.waiting.first().cloned() {
            if self.have(&id, frame, &mut part, ActiveRule::evaluate) {
                self.waiting.remove(&id);
            }
            if part.is_full() {
                break;
            }
        }
        if rung && self.waiting.is_empty() {
            self.amid = None;
            if complete {
                self.open = None;
                self.position = Some(frame);
            }
        }
        let muted = self.muted.is_some_and(|until| frame <= until) && !mutated(Mutation::NotMuted);
        if muted { Vec::new() } else { part.into_operations() }
    }

    /// Takes time into account that has passed without a frame, and returns what rules that wait for windows raise by then. Frames
    /// that follow have no earlier time. Whether and how often it is called changes no operation, only when it comes: windows
    /// are the same, and their alerts have the time at which they closed. So nothing needs to be known of it after a crash.
    pub fn advance(&mut self, time: Time) -> Vec<Operation> {
        let mut operations = self.begin_advance(time);
        while self.is_amid() {
            operations.append(&mut self.go_on());
        }
        operations
    }

    /// Does the same, but returns only some of what is raised where that is much, as [`Self::begin_frame`] does.
    pub fn begin_advance(&mut self, time: Time) -> Vec<Operation> {
        // A frame on its way may be an earlier one.
        if time <= self.now || self.open.is_some() {
            return Vec::new();
        }
        self.pass(time);
        self.amid = Some((self.position.map_or(0, |position| position + 1), false));
        self.evaluate(OperationBatch::default())
    }

    /// Has the rules that there are begin at a time, where no frame was seen yet; else they begin at the first frame that they see.
    pub fn begin(&mut self, time: Time) {
        if self.position.is_none() && self.now < time {
            self.now = time;
            self.begin_new(u64::MAX);
        }
    }

    fn begin_new(&mut self, frame: u64) {
        for id in std::mem::take(&mut self.new) {
            match self.rules.get_mut(&id) {
                Some(running) if frame > running.rule.since => {
                    running.begin(self.now);
                    self.set_alarm(&id);
                }
                Some(_) => {
                    self.new.insert(id);
                }
                None => {}
            }
        }
    }

    /// Lets time pass, and notes which rules have windows that are over.
    fn pass(&mut self, time: Time) {
        let before = self.now;
        // A clock that was set back makes no time pass twice.
        self.now = before.max(time);
        let away = before > Time::from_ms(i64::MIN) && self.now.since(before) > self.timing.heartbeat;
        if away && self.tells_absences && self.has_waiting() {
            match self.absences.last_mut() {
                Some(last) if last.1 == before => last.1 = self.now,
                _ => self.absences.push((before, self.now)),
            }
            let more = self.absences.len().saturating_sub(MAX_ABSENCES);
            self.absences.drain(..more);
        }
        let ringing = self.alarms.iter().take_while(|(at, _)| *at <= self.now);
        self.ringing = ringing.map(|(_, id)| id.clone()).collect();
    }

    /// Closes windows that are over, until there is enough to be written. Tells whether that was all.
    fn ring(&mut self, frame: u64, part: &mut OperationBatch) -> bool {
        while let Some(id) = self.ringing.front().cloned() {
            if !self.have(&id, frame, part, ActiveRule::pass) {
                return false;
            }
            self.ringing.pop_front();
        }
        true
    }

    /// Has a rule do its part at a frame, and tells whether that was all. A fault in what one rule does stops no other.
    fn have(&mut self, id: &str, frame: u64, part: &mut OperationBatch, step: Step) -> bool {
        let mut is_done = true;
        if let Some(running) = self.rules.get_mut(id) {
            let before = part.len();
            let (now, timing, absences) = (self.now, &self.timing, &self.absences);
            let work = || step(running, frame, now, timing, absences, part);
            match catch_unwind(AssertUnwindSafe(work)) {
                Ok(done) => is_done = done,
                Err(panic) => {
                    part.truncate(before);
                    part.push(running.fail(frame, now, &*panic, timing, self.bounds));
                }
            }
        }
        self.set_alarm(id);
        is_done
    }

    /// Frees what is forgotten at the time of the last frame; it changes no operation to come.
    pub fn tick(&mut self) {
        // Windows that are still to be closed are older than its time says.
        if self.is_amid() {
            return;
        }
        for running in self.rules.values_mut() {
            running.tick(self.now, &self.timing, &self.absences);
        }
    }

    /// Tells how a rule is.
    pub fn status(&self, id: &str) -> Option<Status> {
        self.rules.get(id).map(ActiveRule::status)
    }

    /// Returns a rule.
    pub fn rule(&self, id: &str) -> Option<&Rule> {
        self.rules.get(id).map(|running| &running.rule)
    }

    /// Returns the rules, by id.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.rules.values().map(|running| &running.rule)
    }
}
