//! `spike`: `spike_height` times as many events of a key within `timeframe` as in the timeframe before, or as few.
//!
//! Windows slide by a tenth of the timeframe. Both times have to be seen whole: from when the key came first, with
//! `alert_on_new_data` from when the rule began. With `field_value` the means of a field are compared in place of numbers.
//!
//! State: of a key how many events each pane has, and the sum of their values.

use serde_json::{Value, json};

use super::codec::{Reader, Writer};
use super::panes::{Grid, Pane, Track};
use super::window_operator::{Sample, Verdict, WakeSchedule, WindowJudge};
use crate::definition::{self, Direction};
use crate::error::Result;
use crate::fields;
use crate::mutation::{Mutation, mutated};

#[derive(Debug)]
pub(super) struct Spike(pub(super) definition::Spike);

/// Number of events, and the sum of their values where they have any.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CountAndSum<V> {
    events: u32,
    sum: V,
}

/// Type of the sum: nothing where events are counted only, which takes no memory.
pub(super) trait Sum: std::fmt::Debug + Default + Copy + Send + Sync {
    fn read(spike: &definition::Spike, sample: &Sample<'_>) -> Option<Self>;
    fn plus(self, other: Self) -> Self;
    /// Returns the level of a window for comparisons: a number of events, or the mean of their values.
    fn level(self, events: u64) -> Option<f64>;
    fn encode(self, writer: &mut Writer);
    fn decode(reader: &mut Reader<'_>) -> Result<Self>;
}

impl Sum for () {
    fn read(_: &definition::Spike, _: &Sample<'_>) -> Option<Self> {
        Some(())
    }

    fn plus(self, (): Self) {}

    fn level(self, events: u64) -> Option<f64> {
        Some(events as f64)
    }

    fn encode(self, _: &mut Writer) {}

    fn decode(_: &mut Reader<'_>) -> Result<Self> {
        Ok(())
    }
}

impl Sum for f64 {
    fn read(spike: &definition::Spike, sample: &Sample<'_>) -> Option<Self> {
        fields::number(&sample.event.source, spike.field_value.as_ref()?)
    }

    fn plus(self, other: Self) -> Self {
        self + other
    }

    fn level(self, events: u64) -> Option<f64> {
        // As in ElastAlert a mean of zero is no level: nothing is a multiple of it.
        (events > 0).then(|| self / events as f64).filter(|mean| *mean != 0.0)
    }

    fn encode(self, writer: &mut Writer) {
        writer.float(self);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        reader.float()
    }
}

impl<V: Sum> Pane for CountAndSum<V> {
    fn is_empty(&self) -> bool {
        self.events == 0
    }

    fn encode(&self, writer: &mut Writer) {
        writer.number(u64::from(self.events));
        self.sum.encode(writer);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let events = u32::try_from(reader.number()?).unwrap_or(u32::MAX);
        Ok(Self { events, sum: V::decode(reader)? })
    }
}

/// [`Spike`] by what it sums.
#[derive(Debug)]
pub(super) struct SummedSpike<V> {
    spike: Spike,
    sums: std::marker::PhantomData<V>,
}

impl<V> SummedSpike<V> {
    pub(super) fn new(spike: definition::Spike) -> Self {
        Self { spike: Spike(spike), sums: std::marker::PhantomData }
    }
}

impl<V: Sum> WindowJudge for SummedSpike<V> {
    type Pane = CountAndSum<V>;
    type Value = V;

    fn wakes(&self) -> WakeSchedule {
        WakeSchedule::WhileAny
    }

    fn read(&self, sample: &Sample<'_>) -> Option<V> {
        V::read(&self.spike.0, sample)
    }

    fn add(&self, pane: &mut CountAndSum<V>, value: &V) {
        pane.events = pane.events.saturating_add(1);
        pane.sum = pane.sum.plus(*value);
    }

    fn judge(&self, track: &Track<CountAndSum<V>>, grid: &Grid, end: i64) -> Option<Verdict> {
        let middle = end.saturating_sub(grid.per);
        let (before, current) =
            (sum(track, middle.saturating_sub(grid.per), middle), sum(track, middle, end));
        if before.0 == 0 && current.0 == 0 {
            return None;
        }
        let levels = before.1.level(before.0).zip(current.1.level(current.0));
        let counted = self.spike.0.field_value.is_none();
        let enough =
            !counted || (before.0 >= self.spike.0.threshold_ref && current.0 >= self.spike.0.threshold_cur);
        let spike =
            levels.filter(|_| enough).is_some_and(|(before, current)| self.spike.is_spike(before, current));
        let shown = |sum: (u64, V)| match counted {
            true => json!(sum.0),
            false => sum.1.level(sum.0).map_or(Value::Null, |level| json!(level)),
        };
        let added =
            vec![("spike_count".to_owned(), shown(current)), ("reference_count".to_owned(), shown(before))];
        Some(Verdict { holds: spike, count: current.0 as usize, added })
    }

    fn judges_new(&self) -> bool {
        self.spike.0.alert_on_new_data || mutated(Mutation::SpikeOfNewKeys)
    }
}

impl Spike {
    fn is_spike(&self, before: f64, current: f64) -> bool {
        let height = self.0.height;
        let up = current >= before * height;
        let down = current <= before / height;
        match self.0.direction {
            Direction::Up => up,
            Direction::Down => down,
            Direction::Both => up || (down && !mutated(Mutation::SpikeUpOnly)),
        }
    }
}

fn sum<V: Sum>(track: &Track<CountAndSum<V>>, from: i64, to: i64) -> (u64, V) {
    let of = |(events, sum): (u64, V), pane: &CountAndSum<V>| {
        (events + u64::from(pane.events), sum.plus(pane.sum))
    };
    track.panes(from, to).fold((0, V::default()), |so_far, (_, pane)| of(so_far, pane))
}
