//! One rule at work: its operator, its silences, and its status.

use std::any::Any;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use super::alert_builder::{AlertBuilder, PendingFinding};
use super::operation_batch::OperationBatch;
use super::{Frame, MAX_DEPTH, Operation, Rule, SilenceOrder};
use crate::alert;
use crate::definition::Definition;
use crate::error::Result;
use crate::event::{Event, Origin};
use crate::mutation::{Mutation, mutated};
use crate::operator::codec::{Reader, Writer};
use crate::operator::key;
use crate::operator::realert::Silences;
use crate::operator::unobserved::{OwnUnobserved, TimeRange};
use crate::operator::window_operator::Sample;
use crate::operator::{
    Bounds, EventArrival, EventMoment, MAX_FINDINGS, OperatorStats, RuleOperator, Timing, Watermark,
};
use crate::time::Time;

/// Orders to be quiet that are in force at once.
const MAX_QUIET: usize = 1000;

/// Condition of a rule: active or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It does.
    Running,
    /// A user disabled it at this time.
    Disabled(Time),
    /// It failed.
    Paused {
        /// The first frame that it has not seen.
        frame: u64,
        /// Time at which that was written; unknown after a start, as it is not part of a snapshot.
        time: Option<Time>,
        /// Why.
        reason: String,
    },
}

/// Status of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Condition of the rule.
    pub condition: Condition,
    /// Time of the last frame that had events for it.
    pub last_event: Option<Time>,
    /// Time of the last frame in which it raised an alert.
    pub last_alert: Option<Time>,
    /// Alerts that were no events for it: their depth is at the bound.
    pub too_deep: u64,
    /// Events that came too late for any window, of a type that waits.
    pub too_late: u64,
    /// Events since the start whose time was further ahead of the clock than is allowed, and counted as that much ahead.
    pub ahead: u64,
    /// Alerts that its schedule has no minute for.
    pub outside_schedule: u64,
    /// Time at which a rule that waits for windows was first there, in times of frames.
    pub begun: Option<Time>,
    /// Size of its operator's memory.
    pub state: OperatorStats,
    /// Keys that `realert` remembers.
    pub silences: OperatorStats,
}

mod windows;

/// Events of a piece of a frame that a rule has taken and not evaluated yet. Rules have the events together: many take the same ones.
#[derive(Debug)]
struct PendingEvents {
    events: Arc<[Event]>,
    origin: Origin,
    /// Numbers of these events, each with a flag for a match of the second filter.
    places: Box<[(u32, bool)]>,
}

#[derive(Debug)]
pub(super) struct ActiveRule {
    pub(super) rule: Rule,
    pub(super) condition: Condition,
    work: RuleOperator,
    silences: Silences,
    watermark: Watermark,
    /// Time at which it was first there, in times of frames.
    begun: Option<Time>,
    lags: OwnUnobserved,
    pub(super) quiet: Vec<SilenceOrder>,
    /// The last frame of which it only learns. It is not part of a snapshot.
    learns_until: Option<u64>,
    /// Events of the frame that is being taken.
    pending: Vec<PendingEvents>,
    /// Those of a frame that is complete, in order, which are not evaluated yet, with their times.
    timed: VecDeque<(Time, Event, Origin, bool)>,
    /// Findings of the last evaluated event, where not all of them are raised.
    found: Option<PendingFinding>,
    /// Event time before the first of them, where that is taken into account already: windows that it closes are left.
    observed: Option<Time>,
    /// `true` if windows are left that are to be closed behind the events of the frame.
    closes: bool,
    last_event: Option<Time>,
    last_alert: Option<Time>,
    too_deep: u64,
    too_late: u64,
    outside: u64,
    /// Number of evictions that were reported.
    evictions_told: u64,
    /// Events of which alerts, or terms, were left out.
    cut_short: u64,
    /// Events that were too far ahead of the clock, since the start. It is not part of a snapshot.
    ahead: u64,
}

/// Returns whether a count has come to another power of two: a lasting problem is reported often enough by that.
fn doubles(before: u64, now: u64) -> bool {
    now > 0 && now.ilog2() >= before.checked_ilog2().map_or(0, |before| before + 1)
}

impl ActiveRule {
    pub(super) fn new(rule: Rule, now: Time, timing: &Timing, bounds: Bounds) -> Self {
        let condition = if rule.definition.enabled { Condition::Running } else { Condition::Disabled(now) };
        Self {
            work: RuleOperator::new(&rule.definition, timing, bounds),
            rule,
            condition,
            silences: Silences::new(bounds),
            watermark: Watermark::NEW,
            begun: None,
            lags: OwnUnobserved::default(),
            quiet: Vec::new(),
            learns_until: None,
            pending: Vec::new(),
            timed: VecDeque::new(),
            found: None,
            observed: None,
            closes: false,
            last_event: None,
            last_alert: None,
            too_deep: 0,
            too_late: 0,
            outside: 0,
            evictions_told: 0,
            cut_short: 0,
            ahead: 0,
        }
    }

    /// Enables or disables the rule; state of one that was disabled for longer than its window is forgotten.
    pub(super) fn enable(&mut self, enabled: bool, now: Time, timing: &Timing, bounds: Bounds) {
        match (&self.condition, enabled) {
            (Condition::Disabled(_), true) => {
                if self.restarts(&self.rule.definition, now) {
                    self.work = RuleOperator::new(&self.rule.definition, timing, bounds);
                    self.silences = Silences::new(bounds);
                    self.watermark = Watermark::NEW;
                    (self.begun, self.lags) = (None, OwnUnobserved::default());
                }
                self.was_away(now);
                self.condition = Condition::Running;
            }
            (Condition::Running | Condition::Paused { .. }, false) => {
                self.forget_pieces();
                self.condition = Condition::Disabled(now);
            }
            (Condition::Running | Condition::Paused { .. }, true) | (Condition::Disabled(_), false) => {}
        }
    }

    /// Returns whether the rule was disabled for so long that it has no state once it is enabled with a definition.
    pub(super) fn restarts(&self, definition: &Definition, now: Time) -> bool {
        let window = || self.work.window(&definition.rule_type).max(definition.realert.wait);
        matches!(self.condition, Condition::Disabled(since) if now.since(since) >= window())
    }

    /// Pauses the rule at a frame because of a fault in what it does. What it remembered may be half of something and is forgotten.
    pub(super) fn fail(
        &mut self,
        frame: u64,
        now: Time,
        panic: &(dyn Any + Send),
        timing: &Timing,
        bounds: Bounds,
    ) -> Operation {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or_default();
        let text = &text[..text.floor_char_boundary(500)];
        let reason = format!(
            "it has a fault of the server's, so it is paused; enabled again it begins with empty state: {text}"
        );
        self.work = RuleOperator::new(&self.rule.definition, timing, bounds);
        self.silences = Silences::new(bounds);
        self.watermark = Watermark::NEW;
        (self.begun, self.lags) = (None, OwnUnobserved::default());
        self.forget_pieces();
        self.condition = Condition::Paused { frame, time: Some(now), reason: reason.clone() };
        Operation::Problem { rule: self.rule.id.clone(), frame, reason }
    }

    /// Puts another operator in the place of the rule's.
    #[cfg(test)]
    pub(super) fn replace_operator(&mut self, operator: Box<dyn crate::operator::Operator>) {
        self.work = RuleOperator::Eager(operator);
    }

    pub(super) fn resume(&mut self, now: Time) {
        if matches!(self.condition, Condition::Paused { .. }) {
            self.condition = Condition::Running;
            self.was_away(now);
        }
    }

    /// Has it go on behind a frame of another log.
    pub(super) fn rebase(&mut self, position: u64, unobserved_until: Time) {
        (self.rule.since, self.learns_until) = (position, None);
        self.was_away(unobserved_until);
    }

    /// Notes that the rule did not see what came since its last event.
    fn was_away(&mut self, now: Time) {
        if !self.watermark.is_new() {
            self.lags.push(self.watermark.when_set(), now);
        }
    }

    pub(super) fn quiet(&mut self, quiet: SilenceOrder, now: Time) -> bool {
        self.quiet.retain(|order| now < order.until);
        let room = self.quiet.len() < MAX_QUIET;
        if room {
            self.quiet.push(quiet);
        }
        room
    }

    /// Has it only learn up to a frame.
    pub(super) fn learn(&mut self, until: u64) {
        self.learns_until = Some(until);
    }

    pub(super) fn forget_pieces(&mut self) {
        self.pending.clear();
        self.timed.clear();
        (self.found, self.observed, self.closes) = (None, None, false);
    }

    /// Takes the events of a piece that match; tells whether there are any to be evaluated. `events` are those of the piece.
    pub(super) fn take(
        &mut self,
        frame: &Frame,
        events: &Arc<[Event]>,
        outcome: Result<Vec<usize>, String>,
        second: &[usize],
        problems: &mut Vec<Operation>,
    ) -> bool {
        if self.condition != Condition::Running || frame.number <= self.rule.since {
            return false;
        }
        match outcome {
            Ok(places) => {
                let second: HashSet<usize> = second.iter().copied().collect();
                let admitted = places.into_iter().filter_map(|place| {
                    let admits = self.admits(events.get(place)?, frame.origin);
                    admits.then_some((u32::try_from(place).ok()?, second.contains(&place)))
                });
                let places: Box<[_]> = admitted.collect();
                if !places.is_empty() {
                    self.pending.push(PendingEvents {
                        events: Arc::clone(events),
                        origin: frame.origin,
                        places,
                    });
                }
            }
            Err(reason) => {
                self.forget_pieces();
                let time = Some(frame.time);
                self.condition = Condition::Paused { frame: frame.number, time, reason: reason.clone() };
                problems.push(Operation::Problem { rule: self.rule.id.clone(), frame: frame.number, reason });
            }
        }
        !self.pending.is_empty()
    }

    /// Tells whether a document that matches is an event for the rule.
    fn admits(&self, event: &Event, origin: Origin) -> bool {
        let definition = &self.rule.definition;
        let creation = event.created || definition.include_updates || mutated(Mutation::CountUpdates);
        creation && (definition.allow_alerts || !is_alert(event, origin))
    }

    /// Evaluates the events of a frame that is complete, until there is enough to be written. Tells whether that was all.
    pub(super) fn evaluate(
        &mut self,
        frame: u64,
        now: Time,
        timing: &Timing,
        absences: &[TimeRange],
        part: &mut OperationBatch,
    ) -> bool {
        if !self.pending.is_empty() {
            self.last_event = Some(now);
            if !self.pass(frame, now, timing, absences, part) {
                return false;
            }
            self.order(now);
        } else if self.timed.is_empty() && self.found.is_none() && !self.closes {
            return true;
        }
        while !part.is_full() {
            if let Some(found) = self.found.take() {
                self.raise(found, frame, now, part);
                continue;
            }
            let Some((time, event, origin, second)) = self.timed.pop_front() else { break };
            let depth = if is_alert(&event, origin) { event.depth() } else { 0 };
            if depth >= MAX_DEPTH {
                self.too_deep += 1;
                continue;
            }
            // The least time of all means that there was none yet.
            let latest = now.plus(timing.skew);
            self.ahead += u64::from(time > latest);
            let time = time.min(latest).max(Time::from_ms(i64::MIN + 1));
            match self.work {
                RuleOperator::Eager(_) => self.decide(frame, event, time, depth, now, timing, part),
                RuleOperator::Waiting(_) => {
                    let sample = Sample { event: &event, time, second, depth };
                    if !self.count(frame, &sample, now, timing, absences, part) {
                        self.timed.push_front((time, event, origin, second));
                        return false;
                    }
                }
            }
        }
        if self.found.is_some() || !self.timed.is_empty() {
            return false;
        }
        if let RuleOperator::Waiting(_) = self.work {
            self.closes = !(self.settle(frame, now, timing, absences, part)
                && self.close(frame, now, timing, absences, part));
            if self.closes {
                return false;
            }
        }
        self.tell_evictions(frame, part);
        true
    }

    /// Puts the events of a frame that is complete in order. One rule at a time has events of its own then.
    fn order(&mut self, now: Time) {
        let field = &self.rule.definition.timestamp_field;
        let counts_seconds = self.rule.definition.counts_seconds();
        let mut pending: Vec<(Time, Event, Origin, bool)> = Vec::new();
        for PendingEvents { events, origin, places } in std::mem::take(&mut self.pending) {
            pending.extend(places.iter().filter_map(|(place, second)| {
                let event = events.get(*place as usize)?.clone();
                Some((event.time(field, counts_seconds, now), event, origin, *second))
            }));
        }
        if !mutated(Mutation::ArrivalOrder) {
            pending.sort_by(|(one, a, ..), (other, b, ..)| {
                one.cmp(other)
                    .then_with(|| a.uuid.cmp(&b.uuid))
                    .then((a.shard, a.seq_no).cmp(&(b.shard, b.seq_no)))
            });
        }
        // A piece that came twice.
        if !mutated(Mutation::CountPiecesTwice) {
            pending.dedup_by(|(_, one, ..), (_, other, ..)| {
                one.uuid == other.uuid && (one.shard, one.seq_no) == (other.shard, other.seq_no)
            });
        }
        self.timed = pending.into();
    }

    /// Tells of keys that had to go.
    fn tell_evictions(&mut self, frame: u64, part: &mut OperationBatch) {
        let evicted = self.work.figures().evicted + self.silences.figures().evicted;
        if doubles(self.evictions_told, evicted) {
            self.evictions_told = evicted;
            let reason = format!(
                "its state is at the bound: {evicted} keys with the oldest events were forgotten before their time so far; \
                 a narrower filter, another query_key or a shorter timeframe needs less"
            );
            part.push(Operation::Problem { rule: self.rule.id.clone(), frame, reason });
        }
    }

    /// Tells of alerts that were too many for one event, and of terms of one that were not looked at.
    fn tell_left_out(&mut self, frame: u64, more: usize, part: &mut OperationBatch) {
        if more == 0 {
            return;
        }
        let before = self.cut_short;
        self.cut_short += 1;
        if doubles(before, self.cut_short) {
            let reason = format!(
                "an event has so many terms, or new terms under its keys, that only {MAX_FINDINGS} of its alerts are raised, and only \
                 the first terms are looked at: {more} of its alerts and terms were left out, and some of {} events so far; fewer \
                 composite fields, or another query_key, make fewer",
                self.cut_short
            );
            part.push(Operation::Problem { rule: self.rule.id.clone(), frame, reason });
        }
    }

    /// Takes an event of a type that decides when one comes.
    #[allow(clippy::too_many_arguments, reason = "an event and its moment")]
    fn decide(
        &mut self,
        frame: u64,
        event: Event,
        time: Time,
        depth: u8,
        now: Time,
        timing: &Timing,
        part: &mut OperationBatch,
    ) {
        let definition = &self.rule.definition;
        let moment = EventMoment { watermark: self.watermark.at(now, timing) };
        self.watermark.observe(time, now, timing, &[]);
        let keys = key::keys(&event.source, &definition.query_key, definition.skips_missing_key());
        if keys.is_empty() {
            return;
        }
        let arrival =
            EventArrival { event: &event, time, body: alert::body(&event.source, definition), depth };
        let RuleOperator::Eager(operator) = &mut self.work else { return };
        let findings = operator.event(&arrival, &keys, moment).into();
        let left_out = operator.left_out();
        if !self.learns(frame) {
            self.tell_left_out(frame, left_out, part);
        }
        self.raise(PendingFinding { findings, event, moment }, frame, now, part);
    }

    /// Raises what was found at an event, until there is enough to be written.
    fn raise(&mut self, found: PendingFinding, frame: u64, now: Time, part: &mut OperationBatch) {
        let learns = self.learns(frame);
        let mut raising = AlertBuilder {
            rule: &self.rule,
            silences: &mut self.silences,
            quiet: &self.quiet,
            last_alert: &mut self.last_alert,
            outside: &mut self.outside,
            learns,
            frame,
            part,
        };
        self.found = raising.raise(found, now).filter(|_| !mutated(Mutation::ForgetFound));
    }

    /// Returns whether it only learns of a frame.
    fn learns(&self, frame: u64) -> bool {
        self.learns_until.is_some_and(|until| frame <= until)
    }

    /// Returns the horizon of forgetting: for rules that wait, downtime of the server does not count.
    fn forgets_before(&self, now: Time, timing: &Timing, absences: &[TimeRange]) -> Time {
        match self.work {
            RuleOperator::Eager(_) => self.watermark.at(now, timing),
            RuleOperator::Waiting(_) => self.watermark.greatest(now, timing, absences).minus(timing.lateness),
        }
    }

    pub(super) fn tick(&mut self, now: Time, timing: &Timing, absences: &[TimeRange]) {
        let watermark = self.forgets_before(now, timing, absences);
        match &mut self.work {
            RuleOperator::Eager(operator) => operator.tick(watermark),
            RuleOperator::Waiting(waiting) => waiting.tick(self.watermark.greatest(now, timing, absences)),
        }
        self.silences.tick(watermark);
    }

    pub(super) fn status(&self) -> Status {
        Status {
            condition: self.condition.clone(),
            last_event: self.last_event,
            last_alert: self.last_alert,
            too_deep: self.too_deep,
            too_late: self.too_late,
            ahead: self.ahead,
            outside_schedule: self.outside,
            begun: self.begun,
            state: self.work.figures(),
            silences: self.silences.figures(),
        }
    }

    pub(super) fn encode(&self, now: Time, timing: &Timing, absences: &[TimeRange], writer: &mut Writer) {
        match &self.condition {
            Condition::Running => writer.number(0),
            Condition::Disabled(since) => {
                writer.number(1);
                writer.time(*since);
            }
            Condition::Paused { frame, reason, .. } => {
                writer.number(2);
                writer.number(*frame);
                writer.text(reason);
            }
        }
        self.watermark.encode(writer);
        let lasting = || self.quiet.iter().filter(|order| now < order.until);
        writer.size(lasting().count());
        for order in lasting() {
            writer.flag(order.key.is_some());
            writer.text(order.key.as_deref().unwrap_or_default());
            writer.number(order.since);
            writer.time(order.until);
        }
        for time in [self.last_event, self.last_alert] {
            writer.flag(time.is_some());
            writer.time(time.unwrap_or_default());
        }
        for number in [self.too_deep, self.too_late, self.outside, self.evictions_told] {
            writer.number(number);
        }
        let watermark = self.forgets_before(now, timing, absences);
        match &self.work {
            RuleOperator::Eager(operator) => operator.encode(watermark, writer),
            RuleOperator::Waiting(waiting) => {
                writer.flag(self.begun.is_some());
                writer.time(self.begun.unwrap_or_default());
                let greatest = self.watermark.greatest(now, timing, absences);
                let grid = waiting.grid();
                self.lags.encode(grid.begin(grid.lowest(greatest)), writer);
                waiting.encode(greatest, grid.number(greatest.minus(self.delay(timing))), writer);
            }
        }
        self.silences.encode(watermark, writer);
        writer.number(self.cut_short);
    }

    /// Reads what [`Self::encode`] wrote into a rule that is new.
    pub(super) fn decode(&mut self, bytes: &[u8]) -> Result<()> {
        use crate::error::Error;
        let reader = &mut Reader::new(bytes);
        self.condition = match reader.number()? {
            0 => Condition::Running,
            1 => Condition::Disabled(reader.time()?),
            2 => Condition::Paused { frame: reader.number()?, time: None, reason: reader.text()?.to_owned() },
            _ => return Err(Error::Corrupt("a rule is in no known condition")),
        };
        self.watermark = Watermark::decode(reader)?;
        for _ in 0..reader.count()?.min(MAX_QUIET) {
            let keyed = reader.flag()?;
            let key = reader.text()?.to_owned();
            let (since, until) = (reader.number()?, reader.time()?);
            self.quiet.push(SilenceOrder { key: keyed.then_some(key), since, until });
        }
        for time in [&mut self.last_event, &mut self.last_alert] {
            let there = reader.flag()?;
            let read = reader.time()?;
            *time = there.then_some(read);
        }
        for number in [&mut self.too_deep, &mut self.too_late, &mut self.outside, &mut self.evictions_told] {
            *number = reader.number()?;
        }
        match &mut self.work {
            RuleOperator::Eager(operator) => operator.decode(reader)?,
            RuleOperator::Waiting(waiting) => {
                let begun = reader.flag()?;
                let time = reader.time()?;
                self.begun = begun.then_some(time);
                self.lags = OwnUnobserved::decode(reader)?;
                waiting.decode(reader)?;
            }
        }
        self.silences.decode(reader)?;
        // What was written before this was counted ends here.
        self.cut_short = if reader.is_empty() { 0 } else { reader.number()? };
        std::mem::replace(reader, Reader::new(&[])).finish()
    }
}

/// Returns whether a document is an alert, of any writer: one that is copied keeps its depth.
fn is_alert(event: &Event, origin: Origin) -> bool {
    origin == Origin::Rule || &*event.index == "alert"
}
