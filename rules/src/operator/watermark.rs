//! How far event time has come for a rule.
//!
//! The watermark is the greatest event time seen, clamped to the time of the frame and the allowed skew, less the allowed
//! lateness. While no event comes it goes on with the time of frames, after a minute in which it waits. It never goes
//! back, and it uses no clock: replay gives the same. Eager rules use it to forget, for nothing else.

use super::codec::{Reader, Writer};
use crate::error::Result;
use crate::mutation::{Mutation, mutated};
use crate::time::{Span, Time};

/// What event time is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How far an event may be ahead of its frame and still move the watermark.
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

    /// Takes an event into account.
    pub(crate) fn observe(&mut self, time: Time, now: Time, timing: &Timing) {
        let clamped = time.min(now.plus(timing.skew));
        let lateness = if mutated(Mutation::ForgetEarly) { Span::ZERO } else { timing.lateness };
        self.at = self.at(now, timing).max(clamped.minus(lateness));
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
    /// The time of the frame and the allowed skew.
    pub(crate) limit: Time,
}

impl Moment {
    /// When a key is forgotten whose latest event is of `latest`: the window later, also where the event came late, so that
    /// those which are as late find it. A time beyond the skew keeps no key longer.
    pub(crate) fn deadline(self, latest: Time, window: Span) -> Time {
        latest.min(self.limit).max(self.watermark).plus(window)
    }
}
