//! `metric_aggregation`: a figure of the values that a field has within a window, for each key, is too large or too small.
//!
//! Windows follow one another, and those with `min_doc_count` events are looked at, once at least. An event without a number
//! counts as an event; without any number there is no least, greatest, mean or percentile.
//!
//! State: of a key and window what the figure needs: numbers, for `cardinality` a hash of each value (at most 100,000), for
//! `percentiles` 256 values, and beyond that how many there are in stretches that are two per cent apart.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::codec::{Reader, Writer};
use super::min_cardinality::Distinct;
use super::panes::{Grid, Pane, Track};
use super::window_operator::{Sample, Verdict, WakeSchedule, WindowJudge};
use crate::definition::{Aggregation, Metric};
use crate::error::Result;
use crate::fields;
use crate::mutation::{Mutation, mutated};

/// Values that are told apart.
const MAX_DISTINCT: usize = 100_000;
/// Values that are kept as they are.
const MAX_EXACT: usize = 256;
/// Quotient of the ends of a stretch: so its middle is within one per cent.
const GROWTH: f64 = 1.02;

#[derive(Debug)]
pub(super) struct MetricAggregation {
    aggregation: Aggregation,
    member: String,
}

impl MetricAggregation {
    pub(super) fn new(aggregation: Aggregation) -> Self {
        Self { member: aggregation.member(), aggregation }
    }
}

/// Summary of the values of a window.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    events: u32,
    values: u32,
    /// The least, the greatest, or the sum: by what is asked for.
    figure: f64,
    more: Option<Box<MetricState>>,
}

#[derive(Debug)]
enum MetricState {
    Distinct(Distinct),
    /// Values in order.
    Exact(Vec<f64>),
    /// Number of values of each stretch, by its number.
    Stretches(BTreeMap<i32, u32>),
}

/// Returns the number of the stretch that a value is in: of those that are negative the numbers are, too.
fn stretch(value: f64) -> i32 {
    if value == 0.0 {
        return 0;
    }
    // 2^1024 is at 35,845: room for both signs, and nothing near zero is another sign's.
    let place = (value.abs().ln() / GROWTH.ln()).floor() as i32 + 40_000;
    if value > 0.0 { place } else { -place }
}

fn middle(stretch: i32) -> f64 {
    match stretch {
        0 => 0.0,
        place => f64::from(place.signum()) * GROWTH.powf(f64::from(place.abs() - 40_000) + 0.5),
    }
}

impl MetricState {
    fn add(&mut self, value: f64) {
        match self {
            Self::Distinct(_) => {}
            Self::Exact(values) => {
                let at = values.partition_point(|other| other.total_cmp(&value).is_le());
                values.insert(at, value);
                if values.len() > MAX_EXACT {
                    let mut stretches = BTreeMap::new();
                    for value in values {
                        *stretches.entry(stretch(*value)).or_default() += 1;
                    }
                    *self = Self::Stretches(stretches);
                }
            }
            Self::Stretches(stretches) => {
                let count: &mut u32 = stretches.entry(stretch(value)).or_default();
                *count = count.saturating_add(1);
            }
        }
    }

    /// The least value that so many per cent do not exceed.
    fn percentile(&self, percent: f64, values: u32) -> Option<f64> {
        let rank = (percent / 100.0 * f64::from(values)).ceil().max(1.0);
        match self {
            Self::Distinct(_) => None,
            Self::Exact(values) => values.get(rank as usize - 1).copied(),
            Self::Stretches(stretches) => {
                let mut before = 0.0;
                let reached = stretches.iter().find(|(_, count)| {
                    before += f64::from(**count);
                    before >= rank
                });
                reached.or_else(|| stretches.last_key_value()).map(|(stretch, _)| middle(*stretch))
            }
        }
    }
}

impl Pane for Numbers {
    fn is_empty(&self) -> bool {
        self.events == 0
    }

    fn heap(&self) -> usize {
        self.more.as_ref().map_or(0, |more| {
            32 + match &**more {
                MetricState::Distinct(distinct) => distinct.heap(),
                MetricState::Exact(values) => values.capacity() * 8,
                MetricState::Stretches(stretches) => stretches.len() * 16,
            }
        })
    }

    fn encode(&self, writer: &mut Writer) {
        writer.number(u64::from(self.events));
        writer.number(u64::from(self.values));
        writer.float(self.figure);
        match self.more.as_deref() {
            None => writer.number(0),
            Some(MetricState::Distinct(distinct)) => {
                writer.number(1);
                distinct.encode(writer);
            }
            Some(MetricState::Exact(values)) => {
                writer.number(2);
                writer.size(values.len());
                values.iter().for_each(|value| writer.float(*value));
            }
            Some(MetricState::Stretches(stretches)) => {
                writer.number(3);
                writer.size(stretches.len());
                for (stretch, count) in stretches {
                    writer.time(crate::time::Time::from_ms(i64::from(*stretch)));
                    writer.number(u64::from(*count));
                }
            }
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let number = |reader: &mut Reader<'_>| Ok(u32::try_from(reader.number()?).unwrap_or(u32::MAX));
        let (events, values, figure) = (number(reader)?, number(reader)?, reader.float()?);
        let more = match reader.number()? {
            0 => None,
            1 => Some(MetricState::Distinct(Distinct::decode(reader)?)),
            2 => {
                let count = reader.count()?;
                Some(MetricState::Exact((0..count).map(|_| reader.float()).collect::<Result<_>>()?))
            }
            _ => {
                let mut stretches = BTreeMap::new();
                for _ in 0..reader.count()? {
                    let stretch = reader.time()?.ms().clamp(-100_000, 100_000) as i32;
                    stretches.insert(stretch, number(reader)?);
                }
                Some(MetricState::Stretches(stretches))
            }
        };
        Ok(Self { events, values, figure, more: more.map(Box::new) })
    }
}

/// Parts of an event that the metric reads.
pub(super) enum MetricInput {
    Numbers(Vec<f64>),
    Hashes(Vec<u64>),
    Count(u32),
}

impl WindowJudge for MetricAggregation {
    type Pane = Numbers;
    type Value = MetricInput;

    fn wakes(&self) -> WakeSchedule {
        WakeSchedule::WithEvents
    }

    fn read(&self, sample: &Sample<'_>) -> Option<MetricInput> {
        let (source, field) = (&sample.event.source, &self.aggregation.field);
        Some(match self.aggregation.metric {
            Metric::Cardinality => MetricInput::Hashes(
                fields::texts(source, field).iter().map(|text| fields::hash(text)).collect(),
            ),
            Metric::ValueCount => MetricInput::Count(fields::values(source, field).len() as u32),
            _ => MetricInput::Numbers(fields::numbers(source, field)),
        })
    }

    fn add(&self, pane: &mut Numbers, value: &MetricInput) {
        pane.events = pane.events.saturating_add(1);
        match value {
            MetricInput::Count(count) => pane.values = pane.values.saturating_add(*count),
            MetricInput::Hashes(hashes) => {
                let more =
                    pane.more.get_or_insert_with(|| Box::new(MetricState::Distinct(Distinct::default())));
                if let MetricState::Distinct(distinct) = &mut **more {
                    hashes.iter().for_each(|hash| distinct.add(*hash, MAX_DISTINCT));
                }
            }
            MetricInput::Numbers(numbers) => {
                for number in numbers {
                    let first = pane.values == 0;
                    pane.values = pane.values.saturating_add(1);
                    match self.aggregation.metric {
                        Metric::Min if !first => pane.figure = pane.figure.min(*number),
                        Metric::Max if !first => pane.figure = pane.figure.max(*number),
                        Metric::Min | Metric::Max => pane.figure = *number,
                        Metric::Percentile(_) => {
                            let more =
                                pane.more.get_or_insert_with(|| Box::new(MetricState::Exact(Vec::new())));
                            more.add(*number);
                        }
                        _ => pane.figure += number,
                    }
                }
            }
        }
    }

    fn judge(&self, track: &Track<Numbers>, grid: &Grid, end: i64) -> Option<Verdict> {
        let (_, pane) = track.panes(end.saturating_sub(grid.span), end).next()?;
        if u64::from(pane.events) < self.aggregation.min_doc_count && !mutated(Mutation::DocCountForgotten) {
            return None;
        }
        let there = pane.values > 0;
        let figure = match self.aggregation.metric {
            Metric::Min | Metric::Max => there.then_some(pane.figure)?,
            Metric::Avg => there.then(|| pane.figure / f64::from(pane.values))?,
            Metric::Sum => pane.figure,
            Metric::ValueCount => f64::from(pane.values),
            Metric::Cardinality => match pane.more.as_deref() {
                Some(MetricState::Distinct(distinct)) => distinct.count() as f64,
                _ => 0.0,
            },
            Metric::Percentile(percent) => pane.more.as_ref()?.percentile(percent, pane.values)?,
        };
        let Aggregation { max, min, .. } = self.aggregation;
        let reached = mutated(Mutation::ThresholdReached);
        let holds = max.is_some_and(|max| figure > max || (reached && figure >= max))
            || min.is_some_and(|min| figure < min);
        let shown = match self.aggregation.metric {
            Metric::ValueCount | Metric::Cardinality => json!(figure as u64),
            _ => json!(figure),
        };
        let added: Vec<(String, Value)> = vec![(self.member.clone(), shown)];
        Some(Verdict { holds, count: pane.events as usize, added })
    }
}
