//! Timings of aggregations, for `profile`: a collector around each measures it, shard by shard.
//!
//! As in OpenSearch, the time of an aggregation contains that of the ones below it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millrace_runtime::Instant;
use millrace_work::QueryContext;
use millrace_work::error::{Result, cut_short};
use serde_json::{Map, Value, json};

use super::batch::{Batch, Selection};
use super::collector::{Collector, Reduction, ShardReader, same};
use super::result::Outcome;
use super::segment::SegmentContext;
use super::source::SourceQuery;

/// Longest name of an aggregation that is told for each shard, in bytes.
const MAX_NAME_BYTES: usize = 1 << 10;

/// The parts of OpenSearch's breakdown.
const BREAKDOWN: [&str; 6] =
    ["build_aggregation", "build_leaf_collector", "collect", "initialize", "post_collection", "reduce"];

/// A time and how often it was spent.
#[derive(Debug, Default)]
struct TimeAndCount {
    nanos: AtomicU64,
    times: AtomicU64,
}

impl TimeAndCount {
    fn add(&self, since: Instant) {
        let nanos = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
        self.times.fetch_add(1, Ordering::Relaxed);
    }

    fn read(&self) -> (u64, u64) {
        (self.nanos.load(Ordering::Relaxed), self.times.load(Ordering::Relaxed))
    }
}

/// Timings of one aggregation.
#[derive(Debug)]
pub(crate) struct Timings {
    /// Collecting batches of rows, by shard of the search.
    collect: Vec<TimeAndCount>,
    /// Adding what sources know without a pass over rows, by shard.
    ask: Vec<TimeAndCount>,
    /// Time of decisions at the end of a shard; over all shards.
    end: TimeAndCount,
    /// Merging the states of partitions.
    merge: TimeAndCount,
    /// Making the results.
    build: TimeAndCount,
}

impl Timings {
    /// Makes empty measurements of so many shards.
    pub(crate) fn new(shards: u32) -> Arc<Self> {
        let all = || (0..shards).map(|_| TimeAndCount::default()).collect();
        Arc::new(Self {
            collect: all(),
            ask: all(),
            end: TimeAndCount::default(),
            merge: TimeAndCount::default(),
            build: TimeAndCount::default(),
        })
    }

    /// Renders what was measured of a shard.
    pub(crate) fn render(&self, shard: usize, kind: &str, name: &str, children: Vec<Value>) -> Value {
        let read = |spent: &[TimeAndCount]| spent.get(shard).map_or((0, 0), TimeAndCount::read);
        let (collect, ask) = (read(&self.collect), read(&self.ask));
        // What all shards share is told of the first.
        let shared = |spent: &TimeAndCount| if shard == 0 { spent.read() } else { (0, 0) };
        let (build, end, merge) = (shared(&self.build), shared(&self.end), shared(&self.merge));
        let mut breakdown = Map::new();
        for part in BREAKDOWN {
            let (nanos, times) = match part {
                "collect" => collect,
                "build_leaf_collector" => ask,
                "build_aggregation" => build,
                "post_collection" => end,
                "reduce" => merge,
                _ => (0, 0),
            };
            breakdown.insert(part.into(), json!(nanos));
            breakdown.insert(format!("{part}_count"), json!(times));
        }
        let total: u64 = [collect, ask, build, end, merge].iter().map(|(nanos, _)| nanos).sum();
        let mut shown = Map::new();
        shown.insert("type".into(), json!(kind));
        shown.insert("description".into(), json!(cut_short(name.to_owned(), MAX_NAME_BYTES)));
        shown.insert("time_in_nanos".into(), json!(total));
        shown.insert("breakdown".into(), Value::Object(breakdown));
        if !children.is_empty() {
            shown.insert("children".into(), json!(children));
        }
        Value::Object(shown)
    }
}

/// A collector that is measured.
#[derive(Debug)]
pub(crate) struct ProfiledCollector {
    inner: Box<dyn Collector>,
    timings: Arc<Timings>,
}

impl ProfiledCollector {
    /// Measures a collector.
    pub(crate) fn new(inner: Box<dyn Collector>, timings: &Arc<Timings>) -> Self {
        Self { inner, timings: Arc::clone(timings) }
    }
}

fn shard(segment: &SegmentContext<'_>) -> usize {
    let segment = segment.table.snapshot.segments.get(segment.number as usize);
    segment.map_or(0, |segment| segment.shard as usize)
}

impl Collector for ProfiledCollector {
    fn collect(&mut self, batch: &Batch<'_>, selection: Selection<'_>) -> Result<()> {
        let since = Instant::now();
        let done = self.inner.collect(batch, selection);
        if let Some(spent) = self.timings.collect.get(shard(batch.segment)) {
            spent.add(since);
        }
        done
    }

    fn ask(&mut self, segment: &SegmentContext<'_>, answer: &mut SourceQuery<'_>) -> Result<bool> {
        let since = Instant::now();
        let done = self.inner.ask(segment, answer);
        if let Some(spent) = self.timings.ask.get(shard(segment)) {
            spent.add(since);
        }
        done
    }

    fn fresh(&self) -> Box<dyn Collector> {
        Box::new(Self::new(self.inner.fresh(), &self.timings))
    }

    fn merge(&mut self, other: Box<dyn Collector>, map: Option<&[u32]>, work: &QueryContext) -> Result<()> {
        let Some(other) = same::<Self>(other) else { return Ok(()) };
        let since = Instant::now();
        let merged = self.inner.merge(other.inner, map, work);
        self.timings.merge.add(since);
        merged
    }

    fn reduce(&mut self, parents: &[u32], reduction: &mut Reduction<'_>) -> Result<Vec<Outcome>> {
        let since = Instant::now();
        let done = self.inner.reduce(parents, reduction);
        self.timings.build.add(since);
        done
    }

    fn memory(&self) -> usize {
        self.inner.memory()
    }

    fn end_shard(&mut self, segments: &mut dyn ShardReader) -> Result<()> {
        let since = Instant::now();
        let done = self.inner.end_shard(segments);
        self.timings.end.add(since);
        done
    }
}
