//! How far event time has come for a rule.
//!
//! The time of an event counts as at most that of its frame and the allowed skew: one event with a clock that is wrong, or
//! that lies, must not make its key deaf until then. The watermark is the greatest such time, less the allowed lateness. While no event comes it goes on with the time of frames, after a minute in which it waits. It never goes
//! back, and it uses no clock: replay gives the same. Eager rules use it to forget, for nothing else.

use super::codec::{Reader, Writer};
use crate::error::Result;
use crate::mutation::{Mutation, mutated};
use crate::time::{Span, Time};

/// What event time is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How far ahead of its frame the time of an event counts.
    pub skew: Span,
    /// How late an event may be and find all that it counts together with.
    pub lateness: Span,
    /// How long input may be silent before the watermark goes on without it.
    pub idle: Span,
}

impl Default for Timing {
    fn default() -> Self {
        Self { skew: Span::from_secs(300), lateness: Span::from_secs(3600), idle: Span::from_secs(60) }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Watermark {
    at: Time,
    /// The frame's time when it was set.
    set: Time,
}

impl Watermark {
    pub(crate) const NEW: Self = Self { at: Time::from_ms(i64::MIN), set: Time::from_ms(i64::MIN) };

    /// Where it is at the time of a frame.
    pub(crate) fn at(self, now: Time, timing: &Timing) -> Time {
        if self.at == Self::NEW.at {
            return self.at;
        }
        self.at.plus(now.since(self.set).minus(timing.idle).max(Span::ZERO))
    }

    /// Takes an event into account, whose time is not beyond the skew.
    pub(crate) fn observe(&mut self, time: Time, now: Time, timing: &Timing) {
        let lateness = if mutated(Mutation::ForgetEarly) { Span::ZERO } else { timing.lateness };
        self.at = self.at(now, timing).max(time.minus(lateness));
        self.set = now;
    }

    pub(crate) fn encode(self, writer: &mut Writer) {
        let shown = if mutated(Mutation::SnapshotWithoutWatermark) { Self::NEW } else { self };
        writer.time(shown.at);
        writer.time(shown.set);
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        Ok(Self { at: reader.time()?, set: reader.time()? })
    }
}

/// The moment at which an operator sees an event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// How far event time had come before the event.
    pub(crate) watermark: Time,
}

impl Moment {
    /// When a key is forgotten whose latest event is of `latest`: the window later, also where the event came late, so that
    /// those which are as late find it.
    pub(crate) fn deadline(self, latest: Time, window: Span) -> Time {
        latest.max(self.watermark).plus(window)
    }
}
