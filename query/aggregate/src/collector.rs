//! Collector: the common steps of aggregations over documents are collect, merge, reduce.
//!
//! A [`Collector`] keeps the state of one aggregation for all buckets of the level above at once, by
//! their numbers; so a tree of aggregations is as many collectors as it has nodes, however many buckets
//! there are. A collector of buckets numbers its own, and hands rows down with these numbers.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use millrace_scoring::collect::Address;
use millrace_work::QueryContext;
use millrace_work::error::{Error, Result};

use super::backgrounds::Background;
use super::batch::{Batch, Selection};
use super::hit_fetch::HitFetch;
use super::result::{Entry, Header, Outcome, Results};
use super::segment::SegmentContext;
use super::source::SourceQuery;

/// The state of one aggregation.
pub(crate) trait Collector: Any + Debug + Send {
    /// Adds rows.
    ///
    /// # Errors
    /// Values that the aggregation refuses.
    fn collect(&mut self, batch: &Batch<'_>, selection: Selection<'_>) -> Result<()>;

    /// Makes an empty state of the same aggregation.
    fn fresh(&self) -> Box<dyn Collector>;

    /// Asks what it needs to know of rows of a segment, where they are all of the first bucket, and has the answer added;
    /// whether there was one. Otherwise it has to see the rows.
    ///
    /// # Errors
    /// As those of the answer.
    fn ask(&mut self, _segment: &SegmentContext<'_>, _answer: &mut SourceQuery<'_>) -> Result<bool> {
        Ok(false)
    }

    /// Adds the state of another part of the documents; `map` has the number here of each bucket of the level above
    /// there, or [`super::metric::DROPPED`]. Without it they are the same.
    ///
    /// # Errors
    /// [`Error::TimedOut`] once nobody waits for the work: both states are spent then.
    fn merge(&mut self, other: Box<dyn Collector>, map: Option<&[u32]>, work: &QueryContext) -> Result<()>;

    /// Makes the results of buckets of the level above; [`super::ordinals::NONE`] stands for a bucket without documents.
    ///
    /// # Errors
    /// Too many buckets.
    fn reduce(&mut self, parents: &[u32], reduction: &mut Reduction<'_>) -> Result<Vec<Outcome>>;

    /// Estimates the bytes held.
    fn memory(&self) -> usize;

    /// Ends a shard: decisions for each shard by itself are made now.
    ///
    /// # Errors
    /// As [`Collector::collect`].
    fn end_shard(&mut self, _segments: &mut dyn ShardReader) -> Result<()> {
        Ok(())
    }
}

/// Feeds rows of a shard once more.
pub(crate) trait ShardReader {
    /// Calls `each` with batches of rows, which ascend.
    ///
    /// # Errors
    /// Files that cannot be read.
    fn read(&mut self, rows: &[Address], each: &mut dyn FnMut(&Batch<'_>) -> Result<()>) -> Result<()>;
}

/// Bytes of a bucket before it is written, but for a long key's text and its results.
const BUCKET_BYTES: usize = 768;
/// Bytes of a result before it is written.
const RESULT_BYTES: usize = 256;
/// Bytes of a result that is added to a bucket.
pub(crate) const ADDED_RESULT_BYTES: usize = size_of::<Entry>() + RESULT_BYTES;

/// Context in which results are made.
pub(crate) struct Reduction<'a> {
    /// Most buckets of an answer.
    pub max_buckets: u64,
    /// Buckets made so far.
    pub made: u64,
    /// Counts over other documents than those that match.
    pub backgrounds: &'a [Background],
    /// Rows that hits are to be fetched for, a list for each outcome of `top_hits`.
    pub hits: Vec<HitFetch>,
    /// Paths to the values that an order compares, where results only serve the order. Nothing beside them is made, because some
    /// states are spent by it and the answer needs them.
    pub only: Option<Vec<Vec<String>>>,
    /// Holds what is made of the states.
    pub work: QueryContext,
}

impl Reduction<'_> {
    /// Counts buckets of the answer and accounts for them, as they are made.
    ///
    /// # Errors
    /// More than are allowed, or than queries may hold; nobody waits for them any more.
    pub(crate) fn made(&mut self, buckets: usize, subs: usize) -> Result<()> {
        self.made = self.made.saturating_add(buckets as u64);
        if self.made > self.max_buckets {
            return Err(Error::TooManyBuckets { limit: self.max_buckets, made: self.made });
        }
        self.work.check()?;
        self.hold(buckets.saturating_mul(BUCKET_BYTES + subs * RESULT_BYTES))
    }

    /// Accounts for bytes that results need until they are written. The text accounts for itself.
    ///
    /// # Errors
    /// More than queries may hold.
    pub(crate) fn hold(&self, bytes: usize) -> Result<()> {
        self.work.hold(bytes)
    }

    /// Looks whether there is room for bytes that are needed for moments.
    ///
    /// # Errors
    /// As [`Reduction::hold`].
    pub(crate) fn room_for(&self, bytes: usize) -> Result<()> {
        self.work.part_of(bytes).map(drop)
    }
}

/// A collector below another, with what its results are called.
#[derive(Debug)]
pub(crate) struct SubCollector {
    /// Name, meta, format.
    pub header: Arc<Header>,
    /// Its state.
    pub collector: Box<dyn Collector>,
}

/// Collectors beside each other.
#[derive(Debug, Default)]
pub(crate) struct SubCollectors(pub Vec<SubCollector>);

impl SubCollectors {
    /// Returns whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds rows to all.
    pub(crate) fn collect(&mut self, batch: &Batch<'_>, selection: Selection<'_>) -> Result<()> {
        self.0.iter_mut().try_for_each(|sub| sub.collector.collect(batch, selection))
    }

    /// Merges the states of the same collectors.
    ///
    /// # Errors
    /// As [`Collector::merge`].
    pub(crate) fn merge(&mut self, others: Self, map: Option<&[u32]>, work: &QueryContext) -> Result<()> {
        for (sub, other) in self.0.iter_mut().zip(others.0) {
            work.check()?;
            sub.collector.merge(other.collector, map, work)?;
        }
        Ok(())
    }

    /// Merges the states of the same collectors to the end, as where their rows go on to be collected.
    pub(crate) fn merge_all(&mut self, others: Self, map: &[u32]) {
        let merged = self.merge(others, Some(map), &QueryContext::default());
        debug_assert!(merged.is_ok(), "the work is never told to stop");
    }

    /// Makes empty states of the same aggregations.
    pub(crate) fn fresh(&self) -> Self {
        let fresh = |sub: &SubCollector| SubCollector {
            header: Arc::clone(&sub.header),
            collector: sub.collector.fresh(),
        };
        Self(self.0.iter().map(fresh).collect())
    }

    /// Joins buckets: `map` has the new number of each.
    ///
    /// # Errors
    /// As [`Collector::merge`].
    pub(crate) fn remap(&mut self, map: &[u32], work: &QueryContext) -> Result<()> {
        let old = std::mem::replace(self, self.fresh());
        self.merge(old, Some(map), work)
    }

    /// Makes the results of buckets, those of them that [`Reduction::only`] leads to.
    pub(crate) fn reduce(&mut self, buckets: &[u32], reduction: &mut Reduction<'_>) -> Result<Vec<Results>> {
        reduction.hold(buckets.len() * (size_of::<Results>() + self.0.len() * size_of::<Entry>()))?;
        let mut results: Vec<Results> = Vec::new();
        results.resize_with(buckets.len(), || Results(Vec::with_capacity(self.0.len())));
        let only = reduction.only.take();
        for sub in &mut self.0 {
            if let Some(paths) = &only {
                let below = paths.iter().filter_map(|path| path.split_first());
                let below = below.filter(|(name, _)| **name == *sub.header.name);
                let below: Vec<Vec<String>> = below.map(|(_, rest)| rest.to_vec()).collect();
                if below.is_empty() {
                    continue;
                }
                reduction.only = Some(below);
            }
            let outcomes = sub.collector.reduce(buckets, reduction)?;
            for (results, outcome) in results.iter_mut().zip(outcomes) {
                results.0.push(Entry { header: Arc::clone(&sub.header), outcome });
            }
        }
        reduction.only = only;
        Ok(results)
    }

    /// Estimates the bytes held.
    pub(crate) fn memory(&self) -> usize {
        self.0.iter().map(|sub| sub.collector.memory()).sum()
    }

    /// Ends a shard.
    pub(crate) fn end_shard(&mut self, segments: &mut dyn ShardReader) -> Result<()> {
        self.0.iter_mut().try_for_each(|sub| sub.collector.end_shard(segments))
    }
}

/// Takes a collector as what it is.
pub(crate) fn same<T: Collector>(other: Box<dyn Collector>) -> Option<Box<T>> {
    let other: Box<dyn Any> = other;
    let own = other.downcast().ok();
    debug_assert!(own.is_some(), "collectors of one aggregation are of one type");
    own
}
