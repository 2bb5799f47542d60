//! `cardinality` below a minimum: fewer than `min_cardinality` values of a field within `timeframe`, for each key.
//!
//! Windows follow one another. They are looked at as those of `flatline`: a key that does not come any more has no values.
//!
//! State: of a key and window a hash of each value, of as many as are enough.

use std::collections::BTreeSet;

use super::codec::{Reader, Writer};
use super::panes::{Grid, Pane, Track};
use super::window_operator::{Sample, Verdict, WakeSchedule, WindowJudge};
use crate::error::{Error, Result};
use crate::fields;
use crate::mutation::{Mutation, mutated};

#[derive(Debug)]
pub(super) struct MinCardinality {
    pub(super) field: String,
    pub(super) min: usize,
}

/// Different values, as hashes.
#[derive(Debug, Default)]
pub(super) struct Distinct(BTreeSet<u64>);

impl Distinct {
    /// Takes a value; of more than `most` no more are told apart.
    pub(super) fn add(&mut self, hash: u64, most: usize) {
        if self.0.len() < most {
            self.0.insert(hash);
        }
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// Says it by the number of values alone, so that it is the same after a start.
    pub(super) fn heap(&self) -> usize {
        self.0.len() * 16
    }

    pub(super) fn encode(&self, writer: &mut Writer) {
        writer.size(self.0.len());
        for hash in &self.0 {
            writer.float(f64::from_bits(*hash));
        }
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let count = reader.count()?;
        let hashes = (0..count).map(|_| Ok(reader.float()?.to_bits())).collect::<Result<Vec<u64>>>()?;
        match hashes.is_sorted() {
            true => Ok(Self(hashes.into_iter().collect())),
            false => Err(Error::Corrupt("values are not in order")),
        }
    }
}

/// Values of a window, and its events.
#[derive(Debug, Default)]
pub(super) struct Values {
    events: u32,
    distinct: Distinct,
}

impl Pane for Values {
    fn is_empty(&self) -> bool {
        self.events == 0
    }

    fn heap(&self) -> usize {
        self.distinct.heap()
    }

    fn encode(&self, writer: &mut Writer) {
        writer.number(u64::from(self.events));
        self.distinct.encode(writer);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let events = u32::try_from(reader.number()?).unwrap_or(u32::MAX);
        Ok(Self { events, distinct: Distinct::decode(reader)? })
    }
}

impl WindowJudge for MinCardinality {
    type Pane = Values;
    type Value = Vec<u64>;

    fn wakes(&self) -> WakeSchedule {
        WakeSchedule::Always
    }

    fn read(&self, sample: &Sample<'_>) -> Option<Vec<u64>> {
        let values = fields::texts(&sample.event.source, &self.field);
        (!values.is_empty()).then(|| values.iter().map(|value| fields::hash(value)).collect())
    }

    fn add(&self, pane: &mut Values, hashes: &Vec<u64>) {
        pane.events = pane.events.saturating_add(1);
        for hash in hashes {
            pane.distinct.add(*hash, self.min);
        }
    }

    fn judge(&self, track: &Track<Values>, grid: &Grid, end: i64) -> Option<Verdict> {
        let found = track.panes(end.saturating_sub(grid.span), end).next().map(|(_, pane)| pane);
        let values = found.map_or(0, |pane| pane.distinct.count());
        let holds = if mutated(Mutation::CardinalityEnough) { values <= self.min } else { values < self.min };
        let added = vec![("cardinality".to_owned(), values.into())];
        Some(Verdict { holds, count: found.map_or(0, |pane| pane.events as usize), added })
    }
}
