//! `realert`: after an alert a key is silent for a while, in event time.
//!
//! An alert of a time before `until` of its key is not raised, late ones included. `exponential_realert` doubles the while
//! with each alert that follows soon, up to itself, and halves it again for each while that passes quietly, by
//! ElastAlert's formula with event time for its clock.

use super::codec::{Reader, Writer};
use super::key::Key;
use super::keyed::{Bounds, KeyedState, Memory, State};
use super::{EventMoment, OperatorStats};
use crate::definition::Realert;
use crate::error::Result;
use crate::mutation::{Mutation, mutated};
use crate::time::{Span, Time};

/// Until when a key is silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Silence {
    pub(crate) until: Time,
    pub(crate) exponent: u32,
}

impl State for Silence {
    fn bytes(&self) -> usize {
        16
    }

    fn encode(&self, writer: &mut Writer) {
        writer.time(self.until);
        writer.number(u64::from(self.exponent));
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let until = reader.time()?;
        Ok(Self { until, exponent: u32::try_from(reader.number()?).unwrap_or(u32::MAX).min(62) })
    }
}

/// Silent keys of a rule.
#[derive(Debug)]
pub(crate) struct Silences(KeyedState<Silence>);

impl Silences {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self(KeyedState::new(bounds))
    }

    /// Decides about an alert of `time`: `None` where its key is silent, else until when it is silent from now on, if at
    /// all.
    #[allow(clippy::option_option, reason = "silent, and not silenced, are two things")]
    pub(crate) fn raise(
        &mut self,
        key: &Key,
        time: Time,
        realert: Realert,
        moment: EventMoment,
    ) -> Option<Option<Silence>> {
        if realert.wait <= Span::ZERO || mutated(Mutation::ForgetRealert) {
            return Some(None);
        }
        let key = if mutated(Mutation::RealertWithoutKey) { Key::default() } else { key.clone() };
        let before = self.0.take(&key, moment.watermark);
        let silent = before.is_some_and(|silence| time < silence.until);
        let next = match before {
            Some(silence) if silent => silence,
            _ => next(before, time, realert),
        };
        // By then the exponent has come down to 0.
        let decayed = next.until.plus(realert.wait.doubled(next.exponent + 1));
        let deadline = decayed.max(moment.watermark.plus(realert.wait));
        self.0.put(key, next, deadline, moment.watermark);
        if silent { None } else { Some(Some(next)) }
    }

    pub(crate) fn tick(&mut self, watermark: Time) {
        self.0.purge(watermark);
    }

    pub(crate) fn encode(&self, watermark: Time, writer: &mut Writer) {
        if mutated(Mutation::SnapshotWithoutRealert) {
            return KeyedState::<Silence>::new(Bounds::default()).encode(watermark, writer);
        }
        self.0.encode(watermark, writer);
    }

    pub(crate) fn decode(&mut self, reader: &mut Reader<'_>) -> Result<()> {
        self.0.decode(reader)
    }

    pub(crate) fn figures(&self) -> OperatorStats {
        self.0.figures()
    }
}

fn next(before: Option<Silence>, time: Time, realert: Realert) -> Silence {
    let plain = Silence { until: time.plus(realert.wait), exponent: 0 };
    let (Some(Silence { until, mut exponent }), Some(most)) = (before, realert.at_most) else { return plain };
    if mutated(Mutation::ConstantRealert) {
        return plain;
    }
    let mut quiet = time.since(until);
    if quiet < realert.wait.doubled(exponent) {
        exponent += 1;
    } else {
        while exponent > 0 && quiet > realert.wait.doubled(exponent) {
            quiet = quiet.minus(realert.wait.doubled(exponent));
            exponent -= 1;
        }
    }
    let wait = realert.wait.doubled(exponent);
    if wait >= most {
        Silence { until: time.plus(most), exponent: exponent.saturating_sub(1) }
    } else {
        Silence { until: time.plus(wait), exponent }
    }
}
