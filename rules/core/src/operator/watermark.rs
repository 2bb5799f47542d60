//! Progress of event time for a rule.
//!
//! The time of an event counts as at most that of its frame and the allowed skew: one event with a clock that is wrong, or
//! that lies, must not make its key deaf until then. Event time is the greatest such time. While no event comes it goes on with
//! the time of frames, after a minute in which it waits. It never goes back, and it uses no clock: replay gives the same.
//!
//! Eager rules use it to forget: what is older than it by the allowed lateness, for nothing else. Types that wait close windows by
//! it. For these it also waits for a minute when the server was down: what piled up meanwhile comes first.

use super::codec::{Reader, Writer};
use super::unobserved::TimeRange;
use crate::error::Result;
use crate::mutation::{Mutation, mutated};
use crate::time::{Span, Time};

/// Tolerances of event time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Bound on the lead of an event's time over its frame.
    pub skew: Span,
    /// Bound on the lateness of an event that still finds all that it counts together with.
    pub lateness: Span,
    /// Time of silent input after which the watermark goes on without it.
    pub idle: Span,
    /// Time that a window waits for events behind its end, unless its rule says otherwise.
    pub delay: Span,
    /// While there are rules that wait for windows the log has a frame in each such time: where it has none, the server was
    /// down.
    pub heartbeat: Span,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            skew: Span::from_secs(300),
            lateness: Span::from_secs(3600),
            idle: Span::from_secs(60),
            delay: Span::from_secs(10),
            heartbeat: Span::from_secs(30),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Watermark {
    /// The greatest event time, as far as it had come when it was set.
    greatest: Time,
    /// The frame's time when it was set.
    set: Time,
}

impl Watermark {
    pub(crate) const NEW: Self = Self { greatest: Time::from_ms(i64::MIN), set: Time::from_ms(i64::MIN) };

    /// Returns whether there was no event yet.
    pub(crate) fn is_new(self) -> bool {
        self.greatest == Self::NEW.greatest
    }

    /// Event time at the time of a frame; the least time there is without an event.
    pub(crate) fn greatest(self, now: Time, timing: &Timing, absences: &[TimeRange]) -> Time {
        if self.is_new() {
            return self.greatest;
        }
        let mut now = now;
        for (from, to) in absences.iter().rev().take_while(|(_, to)| *to > self.set) {
            if now > *from && now < to.plus(timing.idle) {
                now = *from;
            }
        }
        if mutated(Mutation::IdleWaits) {
            return self.greatest;
        }
        self.greatest.plus(now.since(self.set).minus(timing.idle).max(Span::ZERO))
    }

    /// Returns the time at which event time reaches `time`, if no event comes before.
    pub(crate) fn reaches(self, time: Time, timing: &Timing, absences: &[TimeRange]) -> Time {
        if time <= self.greatest {
            return self.set;
        }
        let mut at = self.set.plus(timing.idle).plus(time.since(self.greatest));
        let first = absences.partition_point(|(_, to)| *to <= self.set);
        for (from, to) in absences.iter().skip(first) {
            if at > *from && at < to.plus(timing.idle) {
                at = to.plus(timing.idle);
            }
        }
        at
    }

    /// Returns the horizon of eager rules at the time of a frame: they forget events before that.
    pub(crate) fn at(self, now: Time, timing: &Timing) -> Time {
        if self.is_new() {
            return self.greatest;
        }
        let lateness = if mutated(Mutation::ForgetEarly) { Span::ZERO } else { timing.lateness };
        self.greatest(now, timing, &[]).minus(lateness)
    }

    /// Takes an event into account, whose time is not beyond the skew.
    pub(crate) fn observe(&mut self, time: Time, now: Time, timing: &Timing, absences: &[TimeRange]) {
        self.greatest = self.greatest(now, timing, absences).max(time);
        self.set = now;
    }

    /// Tells whether an event is further on than the time that has passed: then those before it were late.
    pub(crate) fn lags_behind(self, time: Time, now: Time, timing: &Timing) -> bool {
        !self.is_new() && time.since(self.greatest) > now.since(self.set).plus(timing.idle)
    }

    /// The greatest event time when the last event came.
    pub(crate) fn when_set(self) -> Time {
        self.greatest
    }

    pub(crate) fn encode(self, writer: &mut Writer) {
        let shown = if mutated(Mutation::SnapshotWithoutWatermark) { Self::NEW } else { self };
        writer.time(shown.greatest);
        writer.time(shown.set);
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        Ok(Self { greatest: reader.time()?, set: reader.time()? })
    }
}

/// The moment at which an operator sees an event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventMoment {
    /// Progress of event time before the event, less the allowed lateness.
    pub(crate) watermark: Time,
}

impl EventMoment {
    /// Returns the time at which a key is forgotten whose latest event is of `latest`. That is a window later, also where the
    /// event came late, so that equally late events find it.
    pub(crate) fn deadline(self, latest: Time, window: Span) -> Time {
        latest.max(self.watermark).plus(window)
    }
}
