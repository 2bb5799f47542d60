//! A rule that waits for windows, at work: its event time, its unobserved intervals, and its closed windows.

use super::ActiveRule;
use crate::engine::Condition;
use crate::engine::alert_builder::{AlertBuilder, OfWindows};
use crate::engine::operation_batch::OperationBatch;
use crate::mutation::{Mutation, mutated};
use crate::operator::unobserved::{TimeRange, UnobservedIntervals};
use crate::operator::window_operator::{JudgeContext, Sample, WindowOperator};
use crate::operator::{RuleOperator, Timing, key};
use crate::time::{Span, Time};

impl ActiveRule {
    /// For how long a window waits behind its end.
    pub(super) fn delay(&self, timing: &Timing) -> Span {
        if mutated(Mutation::CloseEarly) {
            return Span::ZERO;
        }
        self.rule.definition.delay.unwrap_or(timing.delay)
    }

    /// Returns whether it waits for windows.
    pub(in crate::engine) fn is_waiting(&self) -> bool {
        matches!(self.work, RuleOperator::Waiting(_)) && self.condition == Condition::Running
    }

    /// Notes the first time at which it is there.
    pub(in crate::engine) fn begin(&mut self, now: Time) {
        self.begun.get_or_insert(now);
    }

    /// Returns whether it was there before.
    pub(in crate::engine) fn has_begun(&self) -> bool {
        self.begun.is_some() || matches!(self.work, RuleOperator::Eager(_))
    }

    /// Returns the time of its next work if no event comes, in times of frames.
    pub(in crate::engine) fn alarm(&self, timing: &Timing, absences: &[TimeRange]) -> Option<Time> {
        let RuleOperator::Waiting(waiting) = &self.work else { return None };
        if self.condition != Condition::Running {
            return None;
        }
        if self.lags.origin.is_none() {
            return self.begun.filter(|_| waiting.looks_always()).map(|begun| begun.plus(timing.idle));
        }
        let ends = waiting.due()?.plus(self.delay(timing));
        Some(self.watermark.reaches(ends, timing, absences))
    }

    /// Closes the windows that are over at the time of a frame, before its events, until there is enough to be written. Tells whether
    /// that was all.
    pub(in crate::engine) fn pass(
        &mut self,
        frame: u64,
        now: Time,
        timing: &Timing,
        absences: &[TimeRange],
        part: &mut OperationBatch,
    ) -> bool {
        if !self.is_waiting() {
            return true;
        }
        // Nothing has come since it began: that, too, is absence.
        if let RuleOperator::Waiting(waiting) = &mut self.work
            && self.lags.origin.is_none()
            && waiting.looks_always()
            && let Some(begun) = self.begun
            && now >= begun.plus(timing.idle)
        {
            self.watermark.observe(begun, begun, timing, absences);
            self.lags.origin = Some(begun);
            waiting.begin(begun);
        }
        self.close(frame, now, timing, absences, part)
    }

    /// Takes an event, unless there is enough to be written of what it closes: it has to be given again then, before any other. Tells
    /// whether it was taken.
    pub(super) fn count(
        &mut self,
        frame: u64,
        sample: &Sample<'_>,
        now: Time,
        timing: &Timing,
        absences: &[TimeRange],
        part: &mut OperationBatch,
    ) -> bool {
        let RuleOperator::Waiting(waiting) = &mut self.work else { return true };
        let observed = self.observed.take().filter(|_| !mutated(Mutation::ObserveAgain));
        let before = match observed {
            Some(before) => before,
            None => {
                let before = self.watermark.greatest(now, timing, absences);
                if !self.watermark.is_new() && sample.time < waiting.grid().floor(before) {
                    self.too_late += 1;
                    return true;
                }
                if self.watermark.lags_behind(sample.time, now, timing) {
                    self.lags.push(self.watermark.when_set(), sample.time);
                }
                self.watermark.observe(sample.time, now, timing, absences);
                if self.lags.origin.is_none() {
                    self.lags.origin = Some(sample.time);
                    waiting.begin(sample.time);
                }
                before
            }
        };
        let after = self.watermark.greatest(now, timing, absences);
        if self.closing(after, timing) > self.closed()
            && !(self.settle(frame, now, timing, absences, part)
                && self.close(frame, now, timing, absences, part))
        {
            self.observed = Some(before);
            return false;
        }
        let definition = &self.rule.definition;
        let keys = key::keys(&sample.event.source, &definition.query_key, definition.skips_missing_key());
        if let RuleOperator::Waiting(waiting) = &mut self.work {
            waiting.event(sample, &keys, before, after);
        }
        true
    }

    /// The window up to which all are over.
    fn closing(&self, greatest: Time, timing: &Timing) -> i64 {
        match &self.work {
            RuleOperator::Waiting(waiting) => waiting.grid().number(greatest.minus(self.delay(timing))),
            RuleOperator::Eager(_) => i64::MIN,
        }
    }

    fn closed(&self) -> i64 {
        match &self.work {
            RuleOperator::Waiting(waiting) => waiting.closed(),
            RuleOperator::Eager(_) => i64::MIN,
        }
    }

    /// Looks again at windows that late events belong to, until there is enough to be written. Tells whether that was all.
    pub(super) fn settle(
        &mut self,
        frame: u64,
        now: Time,
        timing: &Timing,
        absences: &[TimeRange],
        part: &mut OperationBatch,
    ) -> bool {
        self.look(frame, timing, absences, part, &|_| now, &mut |waiting, looking| waiting.settle(looking))
    }

    /// Closes the windows that are over, until there is enough to be written. Tells whether that was all.
    pub(super) fn close(
        &mut self,
        frame: u64,
        now: Time,
        timing: &Timing,
        absences: &[TimeRange],
        part: &mut OperationBatch,
    ) -> bool {
        if self.watermark.is_new() {
            return true;
        }
        let number = self.closing(self.watermark.greatest(now, timing, absences), timing);
        let (watermark, delay) = (self.watermark, self.delay(timing));
        let clock = move |end: Time| watermark.reaches(end.plus(delay), timing, absences);
        self.look(frame, timing, absences, part, &clock, &mut |waiting, looking| {
            waiting.close(number, looking)
        })
    }

    fn look(
        &mut self,
        frame: u64,
        timing: &Timing,
        absences: &[TimeRange],
        part: &mut OperationBatch,
        clock: &dyn Fn(Time) -> Time,
        look: &mut dyn FnMut(&mut dyn WindowOperator, &mut JudgeContext<'_>) -> bool,
    ) -> bool {
        let RuleOperator::Waiting(waiting) = &mut self.work else { return true };
        let raising = AlertBuilder {
            rule: &self.rule,
            silences: &mut self.silences,
            quiet: &self.quiet,
            last_alert: &mut self.last_alert,
            outside: &mut self.outside,
            learns: self.learns_until.is_some_and(|until| frame <= until),
            frame,
            part,
        };
        let mut out = OfWindows { raising, watermark: self.watermark, timing, absences };
        let unobserved = UnobservedIntervals { lags: &self.lags, absences };
        look(&mut **waiting, &mut JudgeContext { unobserved, clock, out: &mut out })
    }
}
