//! One rule at work: its operator, what is silent, and how it is.

use std::any::Any;

use super::{Frame, MAX_DEPTH, Operation, Quiet, Rule};
use crate::alert::{self, Author};
use crate::error::Result;
use crate::event::{Event, Origin};
use crate::mutation::{Mutation, mutated};
use crate::operator::codec::{Reader, Writer};
use crate::operator::key::{self, Key};
use crate::operator::realert::Silences;
use crate::operator::{self, Arrival, Bounds, Figures, Finding, Moment, Operator, Timing, Watermark};
use crate::time::Time;

/// Orders to be quiet that are in force at once.
const MAX_QUIET: usize = 1000;

/// Whether a rule runs.
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
        /// Why.
        reason: String,
    },
}

/// How a rule is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Whether it runs.
    pub condition: Condition,
    /// Time of the last frame that had events for it.
    pub last_event: Option<Time>,
    /// Time of the last frame in which it raised an alert.
    pub last_alert: Option<Time>,
    /// Alerts that were no events for it: their depth is at the bound.
    pub too_deep: u64,
    /// What its operator remembers.
    pub state: Figures,
    /// Keys that `realert` remembers.
    pub silences: Figures,
}

#[derive(Debug)]
pub(super) struct Running {
    pub(super) rule: Rule,
    pub(super) condition: Condition,
    operator: Box<dyn Operator>,
    silences: Silences,
    watermark: Watermark,
    quiet: Vec<Quiet>,
    /// Events of the frame that is being taken.
    pending: Vec<(Event, Origin)>,
    last_event: Option<Time>,
    last_alert: Option<Time>,
    too_deep: u64,
    /// How many keys that had to go were told of.
    evictions_told: u64,
}

impl Running {
    pub(super) fn new(rule: Rule, now: Time, bounds: Bounds) -> Self {
        let condition = if rule.definition.enabled { Condition::Running } else { Condition::Disabled(now) };
        Self {
            operator: operator::operator(&rule.definition.rule_type, bounds),
            rule,
            condition,
            silences: Silences::new(bounds),
            watermark: Watermark::NEW,
            quiet: Vec::new(),
            pending: Vec::new(),
            last_event: None,
            last_alert: None,
            too_deep: 0,
            evictions_told: 0,
        }
    }

    /// Enables or disables the rule; state of one that was disabled for longer than its window is forgotten.
    pub(super) fn enable(&mut self, enabled: bool, now: Time, bounds: Bounds) {
        match (&self.condition, enabled) {
            (Condition::Disabled(since), true) => {
                let definition = &self.rule.definition;
                let window = operator::window(&definition.rule_type).max(definition.realert.wait);
                if now.since(*since) >= window {
                    self.operator = operator::operator(&definition.rule_type, bounds);
                    self.silences = Silences::new(bounds);
                    self.watermark = Watermark::NEW;
                }
                self.condition = Condition::Running;
            }
            (Condition::Running | Condition::Paused { .. }, false) => {
                self.pending.clear();
                self.condition = Condition::Disabled(now);
            }
            (Condition::Running | Condition::Paused { .. }, true) | (Condition::Disabled(_), false) => {}
        }
    }

    /// Pauses the rule at a frame because of a fault in what it does. What it remembered may be half of something and is forgotten.
    pub(super) fn fail(&mut self, frame: u64, panic: &(dyn Any + Send), bounds: Bounds) -> Operation {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or_default();
        let text = &text[..text.floor_char_boundary(500)];
        let reason = format!(
            "it has a fault of the server's, so it is paused; enabled again it begins with empty state: {text}"
        );
        self.operator = operator::operator(&self.rule.definition.rule_type, bounds);
        self.silences = Silences::new(bounds);
        self.watermark = Watermark::NEW;
        self.pending.clear();
        self.condition = Condition::Paused { frame, reason: reason.clone() };
        Operation::Problem { rule: self.rule.id.clone(), frame, reason }
    }

    /// Puts another operator in the place of the rule's.
    #[cfg(test)]
    pub(super) fn replace_operator(&mut self, operator: Box<dyn Operator>) {
        self.operator = operator;
    }

    pub(super) fn resume(&mut self) {
        if matches!(self.condition, Condition::Paused { .. }) {
            self.condition = Condition::Running;
        }
    }

    pub(super) fn quiet(&mut self, quiet: Quiet, now: Time) -> bool {
        self.quiet.retain(|order| now < order.until);
        let room = self.quiet.len() < MAX_QUIET;
        if room {
            self.quiet.push(quiet);
        }
        room
    }

    pub(super) fn forget_pieces(&mut self) {
        self.pending.clear();
    }

    /// Takes the events of a piece that match; tells whether there are any to be evaluated.
    pub(super) fn take(
        &mut self,
        frame: &Frame,
        outcome: Result<Vec<usize>, String>,
        problems: &mut Vec<Operation>,
    ) -> bool {
        if self.condition != Condition::Running || frame.number <= self.rule.since {
            return false;
        }
        match outcome {
            Ok(places) => {
                for event in places.into_iter().filter_map(|place| frame.events.get(place)) {
                    if self.admits(event, frame.origin) {
                        self.pending.push((event.clone(), frame.origin));
                    }
                }
            }
            Err(reason) => {
                self.pending.clear();
                self.condition = Condition::Paused { frame: frame.number, reason: reason.clone() };
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

    /// Evaluates the events of a frame that is complete.
    pub(super) fn evaluate(
        &mut self,
        frame: u64,
        now: Time,
        timing: &Timing,
        operations: &mut Vec<Operation>,
    ) {
        if self.pending.is_empty() {
            return;
        }
        self.last_event = Some(now);
        let pending = std::mem::take(&mut self.pending);
        let field = &self.rule.definition.timestamp_field;
        let mut pending: Vec<_> =
            pending.into_iter().map(|(event, origin)| (event.time(field, now), event, origin)).collect();
        if !mutated(Mutation::ArrivalOrder) {
            pending.sort_by(|(one, a, _), (other, b, _)| {
                one.cmp(other)
                    .then_with(|| a.uuid.cmp(&b.uuid))
                    .then((a.shard, a.seq_no).cmp(&(b.shard, b.seq_no)))
            });
        }
        // A piece that came twice.
        if !mutated(Mutation::CountPiecesTwice) {
            pending.dedup_by(|(_, one, _), (_, other, _)| {
                one.uuid == other.uuid && (one.shard, one.seq_no) == (other.shard, other.seq_no)
            });
        }
        for (time, event, origin) in pending {
            let depth = if is_alert(&event, origin) { event.depth() } else { 0 };
            if depth >= MAX_DEPTH {
                self.too_deep += 1;
                continue;
            }
            let definition = &self.rule.definition;
            let time = time.min(now.plus(timing.skew));
            let moment = Moment { watermark: self.watermark.at(now, timing) };
            self.watermark.observe(time, now, timing);
            let keys = key::keys(&event.source, &definition.query_key, definition.skips_missing_key());
            if keys.is_empty() {
                continue;
            }
            let arrival =
                Arrival { event: &event, time, body: alert::body(&event.source, definition), depth };
            for finding in self.operator.event(&arrival, &keys, moment) {
                self.raise(frame, &finding, &event, now, moment, operations);
            }
        }
        let evicted = self.operator.figures().evicted + self.silences.figures().evicted;
        // At each power of two: a bound that is hit all the time is told often enough.
        if evicted > 0 && evicted.ilog2() >= self.evictions_told.checked_ilog2().map_or(0, |told| told + 1) {
            self.evictions_told = evicted;
            let reason = format!(
                "its state is at the bound: {evicted} keys with the oldest events were forgotten before their time so far; \
                 a narrower filter, another query_key or a shorter timeframe needs less"
            );
            operations.push(Operation::Problem { rule: self.rule.id.clone(), frame, reason });
        }
    }

    fn raise(
        &mut self,
        frame: u64,
        finding: &Finding,
        trigger: &Event,
        now: Time,
        moment: Moment,
        operations: &mut Vec<Operation>,
    ) {
        if self.is_quiet(frame, &finding.key, now) {
            return;
        }
        let realert = self.rule.definition.realert;
        let Some(silence) = self.silences.raise(&finding.key, finding.time, realert, moment) else { return };
        let rule = &self.rule;
        let author = Author {
            id: &rule.id,
            revision: rule.revision,
            owner: &rule.owner,
            definition: &rule.definition,
        };
        let id = alert::identity(author, &finding.identity, trigger);
        let document = alert::document(author, &id, finding, trigger, now);
        operations.push(Operation::Alert { rule: rule.id.clone(), id, document });
        if let Some(silence) = silence {
            let document = alert::silence(author, &finding.key, silence, now);
            let id = alert::silence_identity(author, &finding.key);
            operations.push(Operation::Silence { rule: rule.id.clone(), id, document });
        }
        self.last_alert = Some(now);
    }

    fn is_quiet(&self, frame: u64, key: &Key, now: Time) -> bool {
        let mut orders = self.quiet.iter().filter(|order| frame > order.since && now < order.until);
        orders.any(|order| order.key.as_ref().is_none_or(|named| *named == key.to_string()))
    }

    pub(super) fn tick(&mut self, now: Time, timing: &Timing) {
        let watermark = self.watermark.at(now, timing);
        self.operator.tick(watermark);
        self.silences.tick(watermark);
    }

    pub(super) fn status(&self) -> Status {
        Status {
            condition: self.condition.clone(),
            last_event: self.last_event,
            last_alert: self.last_alert,
            too_deep: self.too_deep,
            state: self.operator.figures(),
            silences: self.silences.figures(),
        }
    }

    pub(super) fn encode(&self, now: Time, timing: &Timing, writer: &mut Writer) {
        match &self.condition {
            Condition::Running => writer.number(0),
            Condition::Disabled(since) => {
                writer.number(1);
                writer.time(*since);
            }
            Condition::Paused { frame, reason } => {
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
        writer.number(self.too_deep);
        writer.number(self.evictions_told);
        let watermark = self.watermark.at(now, timing);
        self.operator.encode(watermark, writer);
        self.silences.encode(watermark, writer);
    }

    /// Reads what [`Self::encode`] wrote into a rule that is new.
    pub(super) fn decode(&mut self, bytes: &[u8]) -> Result<()> {
        use crate::error::Error;
        let reader = &mut Reader::new(bytes);
        self.condition = match reader.number()? {
            0 => Condition::Running,
            1 => Condition::Disabled(reader.time()?),
            2 => Condition::Paused { frame: reader.number()?, reason: reader.text()?.to_owned() },
            _ => return Err(Error::Corrupt("a rule is in no known condition")),
        };
        self.watermark = Watermark::decode(reader)?;
        for _ in 0..reader.count()?.min(MAX_QUIET) {
            let keyed = reader.flag()?;
            let key = reader.text()?.to_owned();
            let (since, until) = (reader.number()?, reader.time()?);
            self.quiet.push(Quiet { key: keyed.then_some(key), since, until });
        }
        for time in [&mut self.last_event, &mut self.last_alert] {
            let there = reader.flag()?;
            let read = reader.time()?;
            *time = there.then_some(read);
        }
        self.too_deep = reader.number()?;
        self.evictions_told = reader.number()?;
        self.operator.decode(reader)?;
        self.silences.decode(reader)?;
        std::mem::replace(reader, Reader::new(&[])).finish()
    }
}

/// Tells whether a document is an alert, whoever wrote it: one that is copied keeps its depth.
fn is_alert(event: &Event, origin: Origin) -> bool {
    origin == Origin::Rule || &*event.index == "alert"
}
