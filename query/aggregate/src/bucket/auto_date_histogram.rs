//! `auto_date_histogram`: about so many buckets, of the least interval that gives no more.
//!
//! Instants are collected by the least interval; when a bucket of the level above gets too many, all
//! are joined to those of the next coarser one. The answer chooses the interval by the first and last
//! instant, as OpenSearch does, and joins neighbours where a multiple of it is enough.

use std::sync::Arc;

use millrace_dsl::aggs::{AutoDateHistogram, MinimumInterval};
use millrace_time::{CalendarUnit, Interval, Rounding, Zone};
use millrace_work::QueryContext;
use millrace_work::error::Result;

use super::keyed::Candidate;
use crate::batch::{Batch, Positions, Selection};
use crate::collector::{Collector, Reduction, ShardReader, SubCollectors, same};
use crate::compiler::{Compiler, Context};
use crate::field::AcceptedTypes;
use crate::keys::{KeyForm, KeyReader, KeyRule, KeyedRows};
use crate::metric::{DROPPED, Ordinals, moved};
use crate::ordinals::{self, NONE};
use crate::result::{self, Bucket, Detail, Key, Outcome};

/// Intervals: unit, its letter, about how many milliseconds it has, and the multiples that buckets may span.
const UNITS: [(CalendarUnit, &str, i64, &[usize]); 6] = [
    (CalendarUnit::Second, "s", 1_000, &[1, 5, 10, 30]),
    (CalendarUnit::Minute, "m", 60_000, &[1, 5, 10, 30]),
    (CalendarUnit::Hour, "h", 3_600_000, &[1, 3, 12]),
    (CalendarUnit::Day, "d", 86_400_000, &[1, 7]),
    (CalendarUnit::Month, "M", 2_592_000_000, &[1, 3]),
    (CalendarUnit::Year, "y", 31_536_000_000, &[1, 5, 10, 20, 50, 100]),
];

/// Buckets of one bucket above, beyond which they are joined while rows are collected.
const MAX_KEPT: usize = 20_000;

/// The aggregation with its field.
#[derive(Debug)]
pub(crate) struct AutoDateHistogramSpec {
    auto: Arc<AutoDateHistogram>,
    /// Rule for keys: instants, rounded to milliseconds.
    pub rule: Arc<KeyRule>,
    zone: Zone,
    /// Place of the least interval.
    least: usize,
}

/// Lets the aggregation meet the mappings.
pub(crate) fn compile(
    compiler: &mut Compiler<'_>,
    context: Context,
    auto: &Arc<AutoDateHistogram>,
) -> Result<Arc<AutoDateHistogramSpec>> {
    let values = compiler.values(context, &auto.source, "auto_date_histogram", AcceptedTypes::Dates)?;
    let zone = auto.source.time_zone.unwrap_or(Zone::UTC);
    let least = match auto.minimum_interval {
        None | Some(MinimumInterval::Second) => 0,
        Some(MinimumInterval::Minute) => 1,
        Some(MinimumInterval::Hour) => 2,
        Some(MinimumInterval::Day) => 3,
        Some(MinimumInterval::Month) => 4,
        Some(MinimumInterval::Year) => 5,
    };
    let rounding = rounding(least, zone);
    let rule = Arc::new(KeyRule { values, form: KeyForm::Dates { rounding, bounds: None }, null: false });
    Ok(Arc::new(AutoDateHistogramSpec { auto: Arc::clone(auto), rule, zone, least }))
}

fn rounding(unit: usize, zone: Zone) -> Rounding {
    let (unit, ..) = UNITS[unit.min(UNITS.len() - 1)];
    Rounding { interval: Interval::Calendar(unit), zone, offset_ms: 0 }
}

/// The state.
#[derive(Debug)]
pub(crate) struct AutoCollector {
    shape: Arc<AutoDateHistogramSpec>,
    reader: KeyReader,
    /// Place of the interval by which instants are kept now.
    unit: usize,
    ordinals: ordinals::Ordinals,
    counts: ordinals::Counts,
    /// Number of buckets by bucket of the level above.
    kept: Vec<u32>,
    subs: SubCollectors,
    expanded: KeyedRows,
    children: Vec<u32>,
}

impl AutoCollector {
    /// Makes an empty state.
    pub(crate) fn new(shape: &Arc<AutoDateHistogramSpec>, subs: SubCollectors) -> Self {
        Self {
            shape: Arc::clone(shape),
            reader: KeyReader::new(&shape.rule),
            unit: shape.least,
            ordinals: ordinals::Ordinals::default(),
            counts: ordinals::Counts::default(),
            kept: Vec::new(),
            subs,
            expanded: KeyedRows::default(),
            children: Vec::new(),
        }
    }

    fn add(&mut self, parent: u32, key: u64, count: u64) -> u32 {
        let before = self.ordinals.len();
        let ordinal = self.ordinals.ordinal(parent, key);
        if self.ordinals.len() > before {
            let at = parent as usize;
            if self.kept.len() <= at {
                self.kept.resize(at + 1, 0);
            }
            self.kept[at] += 1;
        }
        self.counts.add(ordinal, count);
        ordinal
    }

    /// Joins buckets to those of a coarser interval; returns where each went.
    fn coarsen(&mut self, unit: usize) -> Vec<u32> {
        let ordinals = std::mem::take(&mut self.ordinals);
        let counts = std::mem::take(&mut self.counts);
        self.kept.clear();
        self.unit = unit;
        let rounding = rounding(unit, self.shape.zone);
        (0..ordinals.len() as u32)
            .map(|at| {
                let key = rounding.round(ordinals.key(at) as i64) as u64;
                self.add(ordinals.parent(at), key, counts.of(at))
            })
            .collect()
    }

    /// Joins buckets to those of a coarser interval, and what is collected below.
    fn join(&mut self, unit: usize, work: &QueryContext) -> Result<()> {
        let map = self.coarsen(unit);
        self.subs.remap(&map, work)
    }
}

impl Collector for AutoCollector {
    fn collect(&mut self, batch: &Batch<'_>, selection: Selection<'_>) -> Result<()> {
        let mut expanded = std::mem::take(&mut self.expanded);
        self.reader.expand(batch, selection, &mut expanded)?;
        let rounding = rounding(self.unit, self.shape.zone);
        let mut spans = rounding.cached();
        let mut children = std::mem::take(&mut self.children);
        children.clear();
        let mut positions = Vec::with_capacity(if expanded.whole { 0 } else { expanded.keys.len() });
        let mut last = None;
        for (at, (parent, key)) in expanded.parents.iter().zip(&expanded.keys).enumerate() {
            let key = spans.round(*key as i64) as u64;
            // Values of a row that were apart may be one key by the interval of now.
            let own = (expanded.positions.get(at), *parent, key);
            if last == Some(own) {
                continue;
            }
            last = Some(own);
            children.push(self.add(*parent, key, 1));
            if !expanded.whole {
                positions.extend(expanded.positions.get(at));
            }
        }
        let mut done = Ok(());
        if !self.subs.is_empty() && !children.is_empty() {
            let positions = match expanded.whole {
                true => Positions::All(children.len()),
                false => Positions::Some(&positions),
            };
            done = self.subs.collect(batch, Selection { positions, ordinals: Ordinals::Each(&children) });
        }
        (self.expanded, self.children) = (expanded, children);
        while self.unit + 1 < UNITS.len() && self.kept.iter().any(|kept| *kept as usize > MAX_KEPT) {
            // To its end: what was collected in time counts.
            self.join(self.unit + 1, &QueryContext::default())?;
        }
        done
    }

    fn fresh(&self) -> Box<dyn Collector> {
        Box::new(Self::new(&self.shape, self.subs.fresh()))
    }

    fn merge(&mut self, other: Box<dyn Collector>, map: Option<&[u32]>, work: &QueryContext) -> Result<()> {
        let Some(mut other) = same::<Self>(other) else { return Ok(()) };
        let unit = self.unit.max(other.unit);
        if self.unit < unit {
            self.join(unit, work)?;
        }
        if other.unit < unit {
            other.join(unit, work)?;
        }
        let mut children = Vec::with_capacity(other.ordinals.len());
        for ordinal in 0..other.ordinals.len() as u32 {
            let moved = moved(map, other.ordinals.parent(ordinal));
            let add = |parent| self.add(parent, other.ordinals.key(ordinal), other.counts.of(ordinal));
            children.push(moved.map_or(DROPPED, add));
        }
        self.subs.merge(other.subs, Some(&children), work)
    }

    fn reduce(&mut self, parents: &[u32], reduction: &mut Reduction<'_>) -> Result<Vec<Outcome>> {
        // Buckets of the answer are joined ones: numbered anew, with what is below them.
        let by_parent = self.ordinals.by_parent();
        let mut map = vec![DROPPED; self.ordinals.len()];
        let mut chosen: Vec<(Vec<Candidate>, String)> = Vec::with_capacity(parents.len());
        let mut numbered = 0;
        for parent in parents {
            let mut own: Vec<(i64, u32)> =
                by_parent.of(*parent).iter().map(|at| (self.ordinals.key(*at) as i64, *at)).collect();
            own.sort_unstable();
            let plan = Plan::choose(&self.shape, self.unit, own.first(), own.last());
            let mut candidates: Vec<Candidate> = Vec::new();
            for (start, end) in plan.spans() {
                reduction.made(1, self.subs.0.len())?;
                let (start, end) = (&start, &end);
                let mut candidate = Candidate::empty(Key::Long(*start));
                let from = own.partition_point(|(key, _)| key < start);
                for (_, at) in own[from..].iter().take_while(|(key, _)| key < end) {
                    if candidate.ordinal == NONE {
                        candidate.ordinal = numbered;
                        numbered += 1;
                    }
                    map[*at as usize] = candidate.ordinal;
                    candidate.doc_count += self.counts.of(*at);
                }
                candidates.push(candidate);
            }
            chosen.push((candidates, plan.interval));
        }
        self.subs.remap(&map, &reduction.work)?;
        let ordinals: Vec<u32> =
            chosen.iter().flat_map(|(list, _)| list.iter().map(|candidate| candidate.ordinal)).collect();
        let mut results = self.subs.reduce(&ordinals, reduction)?.into_iter();
        let mut outcomes = Vec::with_capacity(parents.len());
        for (candidates, interval) in chosen {
            let mut buckets = Vec::with_capacity(candidates.len());
            for candidate in candidates {
                buckets.push(Bucket {
                    key: candidate.key,
                    doc_count: candidate.doc_count,
                    detail: Detail::None,
                    subs: results.next().unwrap_or_default(),
                });
            }
            let shape = result::BucketsKind::AutoDateHistogram { interval: interval.into() };
            outcomes.push(Outcome::buckets(shape, false, buckets));
        }
        Ok(outcomes)
    }

    fn memory(&self) -> usize {
        self.reader.memory()
            + self.ordinals.memory()
            + self.counts.memory()
            + self.kept.capacity() * 4
            + self.expanded.memory()
            + self.children.capacity() * 4
            + self.subs.memory()
    }

    fn end_shard(&mut self, segments: &mut dyn ShardReader) -> Result<()> {
        self.subs.end_shard(segments)
    }
}

/// The buckets of an answer.
struct Plan {
    rounding: Rounding,
    /// Number of intervals of a bucket.
    multiple: usize,
    /// The first and the last instant; none without documents.
    ends: Option<(i64, i64)>,
    /// The interval's name.
    interval: String,
}

impl Plan {
    /// Walks over the beginning of each bucket, and of what is behind it.
    fn spans(&self) -> impl Iterator<Item = (i64, i64)> + '_ {
        self.ends.into_iter().flat_map(|(first, last)| {
            let starts = self.rounding.starts(self.rounding.round(first)).step_by(self.multiple);
            let mut starts = starts.peekable();
            std::iter::from_fn(move || {
                let start = starts.next_if(|start| *start <= last)?;
                Some((start, starts.peek().copied().unwrap_or(i64::MAX)))
            })
        })
    }

    fn choose(
        shape: &AutoDateHistogramSpec,
        unit: usize,
        first: Option<&(i64, u32)>,
        last: Option<&(i64, u32)>,
    ) -> Self {
        let wanted = shape.auto.buckets.max(1);
        let (Some((first, _)), Some((last, _))) = (first, last) else {
            return Self {
                rounding: rounding(unit, shape.zone),
                multiple: 1,
                ends: None,
                interval: format!("1{}", UNITS[shape.least].1),
            };
        };
        let mut unit = unit;
        // The least interval of which a permitted multiple gives no more buckets than wanted.
        while unit + 1 < UNITS.len() {
            let (_, _, width, multiples) = UNITS[unit];
            let most = wanted * multiples.last().copied().unwrap_or(1);
            if last.saturating_sub(*first) / width <= most as i64
                && count(&rounding(unit, shape.zone), *first, *last, most) <= most
            {
                break;
            }
            unit += 1;
        }
        let rounding = rounding(unit, shape.zone);
        let (_, letter, _, multiples) = UNITS[unit];
        let most = wanted * multiples.last().copied().unwrap_or(1);
        let all = count(&rounding, *first, *last, most);
        let multiple = multiples
            .iter()
            .copied()
            .find(|multiple| (all as f64 / *multiple as f64).ceil() <= wanted as f64);
        let multiple = multiple.or(multiples.last().copied()).unwrap_or(1);
        let interval = format!("{multiple}{letter}");
        Self { rounding, multiple, ends: Some((*first, *last)), interval }
    }
}

/// Counts the spans from one instant to another, up to about a limit.
fn count(rounding: &Rounding, first: i64, last: i64, limit: usize) -> usize {
    let starts = rounding.starts(rounding.round(first)).take_while(|start| *start <= last);
    starts.take(limit.saturating_add(1)).count()
}
