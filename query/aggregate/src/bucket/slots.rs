//! Buckets of a fixed number: ranges, filters, and aggregations with one bucket.

use std::sync::Arc;

use millrace_work::QueryContext;
use millrace_work::error::{Error, Result};

use super::slot_rule::Rule;
use crate::batch::{Batch, Positions, Selection};
use crate::collector::{Collector, Reduction, ShardReader, SubCollectors, same};
use crate::metric::{DROPPED, Ordinals, moved};
use crate::ordinals::{Counts, NONE};
use crate::result::{Bucket, BucketsKind, Detail, Format, Key, Outcome, Results, SingleBucket, SingleKind};
use crate::segment::SegmentContext;
use crate::source::{Question, Sink, SourceQuery, all_of};

/// An aggregation with so many buckets.
#[derive(Debug)]
pub(crate) struct Slots {
    /// Number of buckets.
    pub slots: usize,
    /// Rule that assigns rows to buckets.
    pub rule: Rule,
    /// Specification of the answer.
    pub answer: Answer,
    /// Format of keys.
    pub format: Format,
}

/// Specification of the answer.
#[derive(Debug)]
pub(crate) enum Answer {
    /// One bucket.
    Single(SingleKind),
    Several {
        /// Key and detail of each, in their order.
        buckets: Vec<(Key, Detail)>,
        /// Kind of the aggregation.
        shape: BucketsKind,
        /// `true` if they are members of an object.
        keyed: bool,
        /// `true` if empty ones are shown.
        empty: bool,
    },
}

/// The state of an aggregation with a fixed number of buckets.
#[derive(Debug)]
pub(crate) struct SlotCollector {
    slots: Arc<Slots>,
    counts: Counts,
    subs: SubCollectors,
    positions: Vec<u32>,
    children: Vec<u32>,
    /// `true` if joining parts made more buckets than there are numbers.
    overflown: bool,
}

/// Bytes by which counters grow without a look at what queries may hold.
const UNASKED_BYTES: usize = 1 << 20;

impl SlotCollector {
    /// Makes an empty state.
    pub(crate) fn new(slots: &Arc<Slots>, subs: SubCollectors) -> Self {
        Self {
            slots: Arc::clone(slots),
            counts: Counts::default(),
            subs,
            positions: Vec::new(),
            children: Vec::new(),
            overflown: false,
        }
    }

    fn add(&mut self, child: u32, count: u64) {
        self.counts.add(child, count);
    }

    /// Makes counters for the buckets below all parents of a selection.
    ///
    /// # Errors
    /// [`Error::CircuitBreaking`] where these are more than there are numbers, or than queries may hold.
    fn make_room(&mut self, parents: Ordinals<'_>, work: &QueryContext) -> Result<()> {
        let last = match parents {
            Ordinals::One(parent) => (parent != NONE).then_some(parent),
            Ordinals::Each(parents) => parents.iter().copied().filter(|parent| *parent != NONE).max(),
        };
        let Some(last) = last else { return Ok(()) };
        let slots = self.slots.slots;
        let last = child(last, slots, slots.saturating_sub(1)).ok_or_else(|| too_many(slots))?;
        let wanted = last as usize + 1;
        let growth = wanted.saturating_sub(self.counts.len()) * size_of::<u64>();
        if growth > UNASKED_BYTES {
            // Given back at once: what states hold is accounted for as a whole.
            drop(work.part_of(growth)?);
        }
        self.counts.make_room(wanted);
        Ok(())
    }

    /// Returns the number of a bucket, of a parent that there is room for.
    fn child(&self, parent: u32, slot: usize) -> u32 {
        match parent {
            NONE => NONE,
            parent => child(parent, self.slots.slots, slot).unwrap_or(NONE),
        }
    }

    fn count(&self, child: u32) -> u64 {
        self.counts.of(child)
    }
}

/// Returns the number of a bucket among those below all parents; `None` where there are too many to be numbered.
fn child(parent: u32, slots: usize, slot: usize) -> Option<u32> {
    let number = (parent as usize).checked_mul(slots)?.checked_add(slot)?;
    u32::try_from(number).ok().filter(|number| *number < NONE)
}

fn too_many(slots: usize) -> Error {
    Error::CircuitBreaking(format!(
        "[{slots}] buckets below each of the buckets above are more than [{NONE}]; ask for fewer of either"
    ))
}

impl Collector for SlotCollector {
    fn collect(&mut self, batch: &Batch<'_>, selection: Selection<'_>) -> Result<()> {
        let slots = Arc::clone(&self.slots);
        if matches!(slots.rule, Rule::All) {
            selection.for_each(|_, parent| self.add(parent, 1));
            return self.subs.collect(batch, selection);
        }
        self.make_room(selection.ordinals, &batch.segment.table.options.work)?;
        if self.subs.is_empty()
            && let Some((parent, counts)) = slots.rule.counted(batch, selection)?
        {
            for (slot, count) in counts.into_iter().enumerate() {
                self.add(self.child(parent, slot), count);
            }
            return Ok(());
        }
        let (mut positions, mut children) =
            (std::mem::take(&mut self.positions), std::mem::take(&mut self.children));
        positions.clear();
        children.clear();
        slots.rule.place(batch, selection, &mut |at, parent, slot| {
            let child = self.child(parent, slot);
            self.add(child, 1);
            positions.push(at);
            children.push(child);
        })?;
        let done = match positions.is_empty() {
            true => Ok(()),
            false => {
                let positions = Positions::Some(&positions);
                self.subs.collect(batch, Selection { positions, ordinals: Ordinals::Each(&children) })
            }
        };
        (self.positions, self.children) = (positions, children);
        done
    }

    fn ask(&mut self, _segment: &SegmentContext<'_>, answer: &mut SourceQuery<'_>) -> Result<bool> {
        let slots = Arc::clone(&self.slots);
        match &slots.rule {
            _ if !self.subs.is_empty() => Ok(false),
            Rule::All => answer(&Question::Count, self),
            Rule::Filters { filters, other: false } => answer(&Question::Filters(filters), self),
            Rule::Numbers(values, ranges) => answer(&Question::Ranges(values, ranges), self),
            _ => Ok(false),
        }
    }

    fn fresh(&self) -> Box<dyn Collector> {
        Box::new(Self::new(&self.slots, self.subs.fresh()))
    }

    fn merge(&mut self, other: Box<dyn Collector>, map: Option<&[u32]>, work: &QueryContext) -> Result<()> {
        let Some(other) = same::<Self>(other) else { return Ok(()) };
        let slots = self.slots.slots;
        let mut children = Vec::with_capacity(other.counts.len());
        // Sub-aggregations may know buckets only up to the last with documents.
        for at in 0..other.counts.len() {
            let (parent, slot) = (at / slots, at % slots);
            let Some(parent) = moved(map, parent as u32) else {
                children.push(DROPPED);
                continue;
            };
            match child(parent, slots, slot) {
                Some(child) => {
                    self.add(child, other.counts.of(at as u32));
                    children.push(child);
                }
                None => {
                    self.overflown = true;
                    children.push(DROPPED);
                }
            }
        }
        self.overflown |= other.overflown;
        self.subs.merge(other.subs, Some(&children), work)
    }

    fn reduce(&mut self, parents: &[u32], reduction: &mut Reduction<'_>) -> Result<Vec<Outcome>> {
        let slots = Arc::clone(&self.slots);
        if self.overflown {
            return Err(too_many(slots.slots));
        }
        match &slots.answer {
            Answer::Single(kind) => {
                let results = self.subs.reduce(parents, reduction)?;
                let single = |(parent, subs): (&u32, Results)| {
                    Outcome::Single(Box::new(SingleBucket {
                        kind: *kind,
                        doc_count: self.count(*parent),
                        subs,
                    }))
                };
                Ok(parents.iter().zip(results).map(single).collect())
            }
            Answer::Several { buckets, shape, keyed, empty } => {
                let mut chosen: Vec<Vec<(usize, u32)>> = Vec::with_capacity(parents.len());
                for parent in parents {
                    let all = (0..slots.slots).map(|slot| (slot, self.child(*parent, slot)));
                    chosen.push(all.filter(|(_, child)| *empty || self.count(*child) > 0).collect());
                    reduction.made(chosen.last().map_or(0, Vec::len), self.subs.0.len())?;
                }
                let ordinals: Vec<u32> = chosen.iter().flatten().map(|(_, child)| *child).collect();
                let mut results = self.subs.reduce(&ordinals, reduction)?.into_iter();
                let mut outcomes = Vec::with_capacity(parents.len());
                for list in chosen {
                    let mut shown = Vec::with_capacity(list.len());
                    for (slot, child) in list {
                        let subs = results.next().unwrap_or_default();
                        let Some((key, detail)) = buckets.get(slot) else { continue };
                        shown.push(Bucket {
                            key: key.clone(),
                            doc_count: self.count(child),
                            detail: detail.clone(),
                            subs,
                        });
                    }
                    if matches!(shape, BucketsKind::AdjacencyMatrix) {
                        shown.sort_by(|a, b| a.key.compare(&b.key));
                    }
                    outcomes.push(Outcome::buckets(shape.clone(), *keyed, shown));
                }
                Ok(outcomes)
            }
        }
    }

    fn memory(&self) -> usize {
        self.counts.memory() + (self.positions.capacity() + self.children.capacity()) * 4 + self.subs.memory()
    }

    fn end_shard(&mut self, segments: &mut dyn ShardReader) -> Result<()> {
        self.subs.end_shard(segments)
    }
}

impl Sink for SlotCollector {
    fn group(&mut self, slot: u64, rows: u64) -> Result<()> {
        self.add(self.child(0, slot as usize), rows);
        Ok(())
    }

    fn batch(&mut self, batch: &Batch<'_>) -> Result<()> {
        self.collect(batch, all_of(batch))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool};

    use super::*;

    fn collector(slots: usize) -> SlotCollector {
        let answer = Answer::Single(SingleKind::Filter);
        let slots = Slots { slots, rule: Rule::Pairs(Vec::new()), answer, format: Format::default() };
        SlotCollector::new(&Arc::new(slots), SubCollectors::default())
    }

    #[test]
    fn buckets_of_different_parents_never_share_a_number() {
        assert_eq!(child(7, 100, 99), Some(799));
        assert_eq!(child(u32::MAX / 100, 100, 94), Some(NONE - 1));
        assert_eq!(child(u32::MAX / 100, 100, 95), None);
        assert_eq!((child(1 << 31, 2, 0), child(NONE - 1, usize::MAX, 1)), (None, None));
    }

    #[test]
    fn room_is_asked_for_before_it_is_taken() {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(16 << 20));
        let work = QueryContext::new(&pool);
        let mut small = collector(1_000);
        small.make_room(Ordinals::Each(&[3, NONE, 1_000]), &work).unwrap();
        assert_eq!((small.counts.len(), pool.reserved()), (1_001_000, 0));
        for parent in [4_000, 4_000_000] {
            let error = small.make_room(Ordinals::One(parent), &work).unwrap_err();
            assert_eq!((error.status(), error.error_type().as_str()), (429, "circuit_breaking_exception"));
        }
        small.make_room(Ordinals::One(NONE), &work).unwrap();
        assert_eq!(small.counts.len(), 1_001_000);
    }

    #[test]
    fn parts_that_together_have_too_many_buckets_are_refused() {
        let (mut all, mut part) = (collector(100), collector(100));
        part.add(101, 5);
        let work = QueryContext::default();
        all.merge(Box::new(part), Some(&[0, u32::MAX / 100 + 1]), &work).unwrap();
        assert!(all.overflown && all.counts.len() <= 100);
        let mut joined = collector(100);
        joined.merge(Box::new(all), None, &work).unwrap();
        assert!(joined.overflown);
    }
}
