//! Turns findings into alerts, unless a silence, the schedule or `realert` suppresses their key.

use std::collections::VecDeque;

use super::operation_batch::OperationBatch;
use super::{Operation, Rule, SilenceOrder};
use crate::alert::{self, Author};
use crate::event::Event;
use crate::mutation::{Mutation, mutated};
use crate::operator::key::Key;
use crate::operator::realert::{Silence, Silences};
use crate::operator::unobserved::TimeRange;
use crate::operator::window_operator::{ClosedWindow, Outcome};
use crate::operator::{EventMoment, Finding, Timing, Watermark};
use crate::time::{Span, Time};

/// Findings of an event that are not raised yet.
#[derive(Debug)]
pub(super) struct PendingFinding {
    pub(super) findings: VecDeque<Finding>,
    pub(super) event: Event,
    pub(super) moment: EventMoment,
}

/// A rule that raises alerts at a frame.
pub(super) struct AlertBuilder<'a> {
    pub(super) rule: &'a Rule,
    pub(super) silences: &'a mut Silences,
    pub(super) quiet: &'a [SilenceOrder],
    pub(super) last_alert: &'a mut Option<Time>,
    pub(super) outside: &'a mut u64,
    /// `true` if it only learns: nothing is raised then, and so nothing silenced.
    pub(super) learns: bool,
    pub(super) frame: u64,
    pub(super) part: &'a mut OperationBatch,
}

impl AlertBuilder<'_> {
    fn author(&self) -> Author<'_> {
        Author {
            id: &self.rule.id,
            revision: self.rule.revision,
            owner: &self.rule.owner,
            definition: &self.rule.definition,
        }
    }

    /// Decides whether an alert of a key is raised: `None` where it is not, else until when the key is silent now.
    #[allow(clippy::option_option, reason = "not raised, and not silenced, are two things")]
    fn admit(
        &mut self,
        key: &Key,
        time: Time,
        minute: Time,
        now: Time,
        moment: EventMoment,
    ) -> Option<Option<Silence>> {
        if self.learns {
            return None;
        }
        let mut orders = self.quiet.iter().filter(|order| self.frame > order.since && now < order.until);
        if orders.any(|order| order.key.as_ref().is_none_or(|named| *named == key.to_string())) {
            return None;
        }
        let schedule = self.rule.definition.schedule.as_ref();
        if schedule.is_some_and(|schedule| !schedule.covers(minute.ms()))
            && !mutated(Mutation::ScheduleForgotten)
        {
            *self.outside += 1;
            return None;
        }
        self.silences.raise(key, time, self.rule.definition.realert, moment)
    }

    fn push(
        &mut self,
        id: String,
        document: serde_json::Value,
        key: &Key,
        silence: Option<Silence>,
        now: Time,
    ) {
        let rule = self.rule.id.clone();
        self.part.push(Operation::Alert { rule, id, document });
        if let Some(silence) = silence {
            let document = alert::silence(self.author(), key, silence, now);
            let id = alert::silence_identity(self.author(), key);
            self.part.push(Operation::Silence { rule: self.rule.id.clone(), id, document });
        }
        *self.last_alert = Some(now);
    }

    /// Raises what was found at an event, until there is enough to be written; returns what is left.
    pub(super) fn raise(&mut self, mut found: PendingFinding, now: Time) -> Option<PendingFinding> {
        while !self.part.is_full() {
            let finding = found.findings.pop_front()?;
            self.find(&finding, &found.event, now, found.moment);
        }
        (!found.findings.is_empty()).then_some(found)
    }

    fn find(&mut self, finding: &Finding, trigger: &Event, now: Time, moment: EventMoment) {
        let Some(silence) = self.admit(&finding.key, finding.time, finding.time, now, moment) else { return };
        let id = alert::identity(self.author(), &finding.identity, trigger);
        let document = alert::document(self.author(), &id, finding, trigger, now);
        self.push(id, document, &finding.key, silence, now);
    }
}

/// The same of windows.
pub(super) struct OfWindows<'a> {
    pub(super) raising: AlertBuilder<'a>,
    pub(super) watermark: Watermark,
    pub(super) timing: &'a Timing,
    pub(super) absences: &'a [TimeRange],
}

impl Outcome for OfWindows<'_> {
    fn recovers(&self) -> bool {
        self.raising.rule.definition.recovery
    }

    fn alert(&mut self, closing: ClosedWindow<'_>) -> bool {
        let greatest = self.watermark.greatest(closing.clock, self.timing, self.absences);
        let moment = EventMoment { watermark: greatest.minus(self.timing.lateness) };
        // The end is not of the window any more: the minute is that of its last moment.
        let minute = closing.end.minus(Span::from_ms(1));
        let admitted = self.raising.admit(closing.key, closing.end, minute, closing.clock, moment);
        let Some(silence) = admitted else { return false };
        let id = alert::window_identity(self.raising.author(), closing.key, closing.start);
        let document = alert::window_document(self.raising.author(), &id, &closing);
        self.raising.push(id, document, closing.key, silence, closing.clock);
        true
    }

    fn revise(&mut self, closing: ClosedWindow<'_>) {
        let id = alert::window_identity(self.raising.author(), closing.key, closing.start);
        let document = alert::revision(self.raising.author(), &closing);
        let rule = self.raising.rule.id.clone();
        self.raising.part.push(Operation::Revision { rule, id, document });
    }

    fn recover(&mut self, key: &Key, start: Time, end: Time) {
        let id = alert::window_identity(self.raising.author(), key, start);
        let rule = self.raising.rule.id.clone();
        self.raising.part.push(Operation::Recovery { rule, id, key: key.to_string(), time: end });
    }

    fn is_full(&self) -> bool {
        self.raising.part.is_full()
    }
}
