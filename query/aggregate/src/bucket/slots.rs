//! Buckets of a fixed number: ranges, filters, and aggregations with one bucket.

use std::sync::Arc;

use arrow::array::AsArray;
use millrace_work::Work;
use millrace_work::error::{Error, Result};

use crate::batch::Positions;
use crate::batch::{Batch, Selection};
use crate::collector::{Collector, Reduction, ShardReader, Subs, same};
use crate::field::{Filled, ValueKind, Values};
use crate::metric::{DROPPED, Ordinals};
use crate::ordinals::NONE;
use crate::result::{
    Bucket, Buckets, Detail, Format, Key, Outcome, Results, Shape, SingleBucket, SingleKind,
};
use crate::segment::{RowBits, Rows, SegmentContext};
use crate::shortcut;

/// An aggregation with so many buckets.
#[derive(Debug)]
pub(crate) struct Slots {
    /// Number of buckets.
    pub slots: usize,
    /// Which rows belong to which.
    pub rule: Rule,
    /// What the answer is made with.
    pub answer: Answer,
    /// How keys are written.
    pub format: Format,
}

/// Which rows belong to which bucket.
#[derive(Debug)]
pub(crate) enum Rule {
    /// All rows to the one.
    All,
    /// Those of a filter.
    Filters {
        /// Numbers of filters.
        filters: Vec<usize>,
        /// Whether the last bucket is of those that no filter matches.
        other: bool,
    },
    /// Those of filters and of pairs of them, in the order 0, 0&1, 0&2, …, 1, 1&2, ….
    Pairs(Vec<usize>),
    /// Those without a value.
    Missing(Values),
    /// Those with a number from, and before.
    Numbers(Values, Vec<(f64, f64)>),
    /// Those with an address from, and before; open where absent.
    Addresses(Values, Vec<AddressRange>),
}

/// Addresses from one, and before another.
pub(crate) type AddressRange = (Option<[u8; 16]>, Option<[u8; 16]>);

/// What the answer is made with.
#[derive(Debug)]
pub(crate) enum Answer {
    /// One bucket.
    Single(SingleKind),
    /// Several.
    Several {
        /// Key and detail of each, in their order.
        buckets: Vec<(Key, Detail)>,
        /// Which aggregation it is.
        shape: Shape,
        /// Whether they are members of an object.
        keyed: bool,
        /// Whether empty ones are shown.
        empty: bool,
    },
}

/// Numbers that are compared with one bound after the other: they stay in the nearest cache.
const COMPARED_ROWS: usize = 1_024;

/// The state of an aggregation with a fixed number of buckets.
#[derive(Debug)]
pub(crate) struct SlotCollector {
    slots: Arc<Slots>,
    counts: Vec<u64>,
    subs: Subs,
    positions: Vec<u32>,
    children: Vec<u32>,
    /// Whether joining parts made more buckets than there are numbers.
    overflown: bool,
}

/// Bytes by which counters grow without a look at what queries may hold.
const UNASKED_BYTES: usize = 1 << 20;

impl SlotCollector {
    /// Makes an empty state.
    pub(crate) fn new(slots: &Arc<Slots>, subs: Subs) -> Self {
        Self {
            slots: Arc::clone(slots),
            counts: Vec::new(),
            subs,
            positions: Vec::new(),
            children: Vec::new(),
            overflown: false,
        }
    }

    /// Whether only counts are wanted.
    pub(crate) fn only_counts(&self) -> bool {
        self.subs.is_empty()
    }

    /// Adds documents to a bucket.
    pub(crate) fn add(&mut self, child: u32, count: u64) {
        let at = child as usize;
        if self.counts.len() <= at {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] += count;
    }

    /// Makes counters for the buckets below all parents of a selection.
    ///
    /// # Errors
    /// [`Error::CircuitBreaking`] where these are more than there are numbers, or than queries may hold.
    fn make_room(&mut self, parents: Ordinals<'_>, work: &Work) -> Result<()> {
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
        if growth > 0 {
            self.counts.resize(wanted, 0);
        }
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
        self.counts.get(child as usize).copied().unwrap_or(0)
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
        if self.only_counts()
            && let Some((parent, counts)) = counted(&slots, batch, selection)?
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
        place(&slots, batch, selection, &mut |at, parent, slot| {
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

    fn shortcut(&mut self, segment: &SegmentContext<'_>, rows: &Rows) -> Result<bool> {
        let slots = Arc::clone(&self.slots);
        shortcut::slots(self, &slots, segment, rows)
    }

    fn fresh(&self) -> Box<dyn Collector> {
        Box::new(Self::new(&self.slots, self.subs.fresh()))
    }

    fn merge(&mut self, other: Box<dyn Collector>, map: Option<&[u32]>) {
        let Some(other) = same::<Self>(other) else { return };
        let slots = self.slots.slots;
        let mut children = Vec::with_capacity(other.counts.len());
        // Sub-aggregations may know buckets only up to the last with documents.
        for at in 0..other.counts.len() {
            let (parent, slot) = (at / slots, at % slots);
            let parent = match map {
                Some(map) => map.get(parent).copied().unwrap_or(DROPPED),
                None => parent as u32,
            };
            if parent == DROPPED {
                children.push(DROPPED);
                continue;
            }
            match child(parent, slots, slot) {
                Some(child) => {
                    self.add(child, other.counts[at]);
                    children.push(child);
                }
                None => {
                    self.overflown = true;
                    children.push(DROPPED);
                }
            }
        }
        self.overflown |= other.overflown;
        self.subs.merge(other.subs, Some(&children));
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
                    if matches!(shape, Shape::AdjacencyMatrix) {
                        shown.sort_by(|a, b| super::keyed::compare(&a.key, &b.key));
                    }
                    outcomes.push(Outcome::Buckets(Box::new(Buckets {
                        shape: shape.clone(),
                        keyed: *keyed,
                        buckets: shown,
                    })));
                }
                Ok(outcomes)
            }
        }
    }

    fn memory(&self) -> usize {
        self.counts.capacity() * 8
            + (self.positions.capacity() + self.children.capacity()) * 4
            + self.subs.memory()
    }

    fn end_shard(&mut self, segments: &mut dyn ShardReader) -> Result<()> {
        self.subs.end_shard(segments)
    }
}

/// Counts the rows of ranges of numbers, where each row of the batch has one number and all are of one bucket of the level above:
/// how many lie below each bound, as processors compare many numbers with one at once. `None` otherwise.
fn counted(slots: &Slots, batch: &Batch<'_>, selection: Selection<'_>) -> Result<Option<(u32, Vec<u64>)>> {
    let Selection { positions: Positions::All(_), ordinals: Ordinals::One(parent) } = selection else {
        return Ok(None);
    };
    let Rule::Numbers(values, ranges) = &slots.rule else { return Ok(None) };
    let Some((_, column)) = values.column(batch).filter(|(_, column)| parent != NONE && column.is_plain())
    else {
        return Ok(None);
    };
    let numbers = column.doubles()?.values();
    let mut bounds: Vec<f64> = ranges.iter().flat_map(|(from, to)| [*from, *to]).collect();
    bounds.sort_unstable_by(f64::total_cmp);
    bounds.dedup();
    let mut below = vec![0; bounds.len()];
    for chunk in numbers.chunks(COMPARED_ROWS) {
        for (bound, below) in bounds.iter().zip(&mut below) {
            *below += chunk.iter().map(|value| u64::from(value < bound)).sum::<u64>();
        }
    }
    let below = |bound: &f64| {
        let at = bounds.iter().position(|known| known == bound);
        at.map_or(0, |at| below[at])
    };
    let count = |(from, to): &(f64, f64)| below(to).saturating_sub(below(from));
    Ok(Some((parent, ranges.iter().map(count).collect())))
}

/// Calls `each` with rows, their bucket of the level above, and the number of each bucket here.
fn place(
    slots: &Slots,
    batch: &Batch<'_>,
    selection: Selection<'_>,
    each: &mut dyn FnMut(u32, u32, usize),
) -> Result<()> {
    match &slots.rule {
        Rule::All => selection.for_each(|at, parent| each(at, parent, 0)),
        Rule::Filters { filters, other } => {
            let bits = bits(batch, filters)?;
            selection.for_each(|at, parent| {
                let row = batch.rows[at as usize];
                let mut any = false;
                for (slot, _) in bits.iter().enumerate().filter(|(_, bits)| bits.contains(row)) {
                    any = true;
                    each(at, parent, slot);
                }
                if *other && !any {
                    each(at, parent, bits.len());
                }
            });
        }
        Rule::Pairs(filters) => {
            let bits = bits(batch, filters)?;
            selection.for_each(|at, parent| {
                let row = batch.rows[at as usize];
                let mut slot = 0;
                for (first, own) in bits.iter().enumerate() {
                    if !own.contains(row) {
                        slot += bits.len() - first;
                        continue;
                    }
                    each(at, parent, slot);
                    slot += 1;
                    for other in &bits[first + 1..] {
                        if other.contains(row) {
                            each(at, parent, slot);
                        }
                        slot += 1;
                    }
                }
            });
        }
        Rule::Missing(values) => {
            if values.constant_in(batch.segment.index).is_some() || values.missing().is_some() {
                return Ok(());
            }
            match values.column(batch) {
                None => selection.for_each(|at, parent| each(at, parent, 0)),
                Some((place, column)) if place.kind == ValueKind::Text && !place.is_verbatim(column)? => {
                    let strings = column.strings()?;
                    selection.for_each(|at, parent| {
                        if !column.row(at as usize).any(|at| place.string(strings.value(at)).is_some()) {
                            each(at, parent, 0);
                        }
                    });
                }
                Some((_, column)) => selection.for_each(|at, parent| {
                    if column.row(at as usize).is_empty() {
                        each(at, parent, 0);
                    }
                }),
            }
        }
        Rule::Numbers(values, ranges) => {
            let mut one = |at: u32, parent: u32, own: &[f64]| {
                for (slot, (from, to)) in ranges.iter().enumerate() {
                    if own.iter().any(|value| from <= value && value < to) {
                        each(at, parent, slot);
                    }
                }
            };
            let filled = match values.missing() {
                Some(Filled::Long(value)) => Some(*value as f64),
                Some(Filled::Double(value)) => Some(*value),
                _ => None,
            };
            let filled = filled.as_slice();
            match values.column(batch) {
                None => selection.for_each(|at, parent| one(at, parent, filled)),
                Some((_, column)) => {
                    let numbers = column.doubles()?.values();
                    selection.for_each(|at, parent| {
                        let row = column.row(at as usize);
                        one(at, parent, if row.is_empty() { filled } else { &numbers[row] });
                    });
                }
            }
        }
        Rule::Addresses(values, ranges) => {
            let within = |address: &[u8], (from, to): &AddressRange| {
                from.as_ref().is_none_or(|from| address >= from.as_slice())
                    && to.as_ref().is_none_or(|to| address < to.as_slice())
            };
            let filled = match values.missing() {
                Some(Filled::Ip(address)) => Some(*address),
                _ => None,
            };
            let column = values.column(batch);
            let addresses =
                column.and_then(|(_, column)| Some((column, column.values.as_fixed_size_binary_opt()?)));
            selection.for_each(|at, parent| {
                let row = addresses.map_or(0..0, |(column, _)| column.row(at as usize));
                for (slot, range) in ranges.iter().enumerate() {
                    let found = match (row.is_empty(), addresses) {
                        (false, Some((_, addresses))) => {
                            row.clone().any(|at| within(addresses.value(at), range))
                        }
                        _ => filled.as_ref().is_some_and(|address| within(address, range)),
                    };
                    if found {
                        each(at, parent, slot);
                    }
                }
            });
        }
    }
    Ok(())
}

fn bits<'b>(batch: &'b Batch<'_>, filters: &[usize]) -> Result<Vec<&'b RowBits>> {
    let mut found = Vec::with_capacity(filters.len());
    for filter in filters {
        found.extend(batch.segment.filter(*filter)?);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool};

    use super::*;

    fn collector(slots: usize) -> SlotCollector {
        let answer = Answer::Single(SingleKind::Filter);
        let slots = Slots { slots, rule: Rule::Pairs(Vec::new()), answer, format: Format::default() };
        SlotCollector::new(&Arc::new(slots), Subs::default())
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
        let work = Work::new(&pool);
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
        all.merge(Box::new(part), Some(&[0, u32::MAX / 100 + 1]));
        assert!(all.overflown && all.counts.len() <= 100);
        let mut joined = collector(100);
        joined.merge(Box::new(all), None);
        assert!(joined.overflown);
    }
}
