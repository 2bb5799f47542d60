//! Time of which a rule cannot tell that nothing happened: before it began, while the server was down, while its source lagged or
//! it did not run itself.

use super::codec::{Reader, Writer};
use super::panes::Grid;
use crate::error::Result;
use crate::mutation::{Mutation, mutated};
use crate::time::Time;

/// A stretch of time: from its beginning to before its end.
pub(crate) type TimeRange = (Time, Time);

/// Stretches of a rule that are remembered; beyond that two become one.
const MAX_LAGS: usize = 64;

/// Intervals that a rule itself did not observe.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnUnobserved {
    /// Time at which it began to see; `None` while it has seen nothing.
    pub(crate) origin: Option<Time>,
    stretches: Vec<TimeRange>,
}

impl OwnUnobserved {
    /// Notes a stretch.
    pub(crate) fn push(&mut self, from: Time, to: Time) {
        if from >= to || mutated(Mutation::LagsForgotten) {
            return;
        }
        match self.stretches.last_mut() {
            // They come in order, but for one that the clock has run into.
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => self.stretches.push((from, to)),
        }
        if self.stretches.len() > MAX_LAGS {
            let (_, to) = self.stretches.remove(1);
            if let Some(first) = self.stretches.first_mut() {
                first.1 = to;
            }
        }
    }

    pub(crate) fn encode(&self, lowest: Time, writer: &mut Writer) {
        writer.flag(self.origin.is_some());
        writer.time(self.origin.unwrap_or_default());
        let lasting = || self.stretches.iter().filter(|(_, to)| *to > lowest);
        writer.size(lasting().count());
        for (from, to) in lasting() {
            writer.time(*from);
            writer.time(*to);
        }
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let begun = reader.flag()?;
        let origin = reader.time()?;
        let mut lags = Self { origin: begun.then_some(origin), stretches: Vec::new() };
        for _ in 0..reader.count()? {
            lags.stretches.push((reader.time()?, reader.time()?));
        }
        Ok(lags)
    }
}

/// All of it, for one rule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnobservedIntervals<'a> {
    pub(crate) lags: &'a OwnUnobserved,
    /// Stretches in which the server was down, in order.
    pub(crate) absences: &'a [TimeRange],
}

impl UnobservedIntervals<'_> {
    /// Returns the end of a stretch that overlaps a window, as it is known at a time of the clock.
    fn overlapping(&self, from: Time, to: Time, clock: Time) -> Option<Time> {
        let Some(origin) = self.lags.origin else { return Some(to) };
        if from < origin && !mutated(Mutation::JudgedBeforeOrigin) {
            return Some(origin);
        }
        let absences = if mutated(Mutation::DowntimeForgotten) { &[][..] } else { self.absences };
        let known = absences.iter().filter(|(began, _)| *began < clock);
        let mut all = self.lags.stretches.iter().chain(known);
        all.find(|stretch| stretch.0 < to && from < stretch.1).map(|stretch| stretch.1)
    }

    /// Returns whether a window can be judged.
    pub(crate) fn sees(&self, grid: &Grid, end: i64, clock: Time) -> bool {
        let from = grid.begin(end.saturating_sub(grid.span));
        self.overlapping(from, grid.begin(end), clock).is_none()
    }

    /// The first window from `end` on that can be judged.
    pub(crate) fn next_seen(&self, grid: &Grid, mut end: i64, clock: Time) -> i64 {
        loop {
            let from = grid.begin(end.saturating_sub(grid.span));
            let Some(to) = self.overlapping(from, grid.begin(end), clock) else { return end };
            let next = grid.first_from(to).saturating_add(grid.span);
            if next <= end {
                return end;
            }
            end = next;
        }
    }
}
