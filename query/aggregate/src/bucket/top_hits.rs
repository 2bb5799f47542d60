//! `top_hits`: the best documents of a bucket.
//!
//! While rows are collected the first of each bucket are kept by the bytes of their sort keys, which
//! compare as the keys do. Only what an answer shows is fetched: reducing leaves [`HitFetch`] behind, and
//! the number of each in the place of the hits.

use std::borrow::Cow;
use std::collections::BinaryHeap;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use bytes::Bytes;
use millrace_dsl::aggs::TopHits;
use millrace_matching::order::Order;
use millrace_matching::table::derived_key::DerivedKey;
use millrace_matching::table::keys::KeySource;
use millrace_matching::table::resolve::setting;
use millrace_scoring::collect::Address;
use millrace_search::searcher::{implied, shown};
use millrace_work::QueryContext;
use millrace_work::error::{Error, Result};

use crate::batch::{Batch, Selection};
use crate::collector::{Collector, Reduction, same};
use crate::compiler::{Compiler, Context};
use crate::hit_fetch::{HitFetch, TopHitsSpec, TopRow};
use crate::metric::DROPPED;
use crate::result::Outcome;

/// Most hits of a bucket where the index does not say.
const MAX_WINDOW: usize = 100;

/// Lets the aggregation meet the mappings.
pub(crate) fn compile(
    compiler: &mut Compiler<'_>,
    context: Context,
    hits: &TopHits,
) -> Result<Arc<TopHitsSpec>> {
    let body = &hits.body;
    let (from, size) = (body.from.unwrap_or(0), body.size.unwrap_or(3));
    let snapshot = Arc::clone(compiler.snapshot);
    for (at, index) in snapshot.indices.iter().enumerate() {
        let limit = setting(&index.meta, "index.max_inner_result_window", MAX_WINDOW);
        let window = from.saturating_add(size);
        if window > limit {
            let error = Error::IllegalArgument(format!(
                "Top hits result window is too large, the top hits aggregator [{}]'s from + size must be less than or equal to: [{limit}] but was [{window}]. This limit can be set by changing the [index.max_inner_result_window] index level setting.",
                compiler.name()
            ));
            compiler.fail(at, error);
        }
    }
    let path = compiler.scope_at(context.scope).and_then(|scope| scope.path.clone());
    let (order, failed) = Order::new(implied(&body.sort), &snapshot, compiler.now_ms)?;
    for (at, error) in failed {
        compiler.fail(at, error);
    }
    let mut slots = Vec::with_capacity(snapshot.indices.len());
    for at in 0..snapshot.indices.len() {
        let own = order.keys.iter().map(|key| {
            let source = key.sources.get(at).and_then(Option::as_ref);
            let source = source.filter(|source| !is_derived(source, path.is_some()))?;
            Some(compiler.slot(context, at, source.column))
        });
        slots.push(own.collect());
    }
    let scored = order.by_score() || body.track_scores;
    let mut shown = shown(body, &snapshot)?;
    if path.is_some() {
        // An element has the id of its document, and no sequence number of its own.
        (shown.id, shown.seq_no) = (true, false);
    }
    Ok(Arc::new(TopHitsSpec { shown, order, from, size, scored, path, slots }))
}

/// The rows of one bucket.
#[derive(Clone, Debug, Default)]
struct Top {
    total: u64,
    max_score: Option<f32>,
    heap: BinaryHeap<TopRow>,
}

impl Top {
    /// Keeps a row if it is one of the best, and counts the bytes that this takes and gives back.
    fn offer(&mut self, row: TopRow, limit: usize, bytes: &mut usize) {
        if self.heap.len() < limit {
            *bytes += row.bytes();
            self.heap.push(row);
        } else if let Some(mut worst) = self.heap.peek_mut()
            && row < *worst
        {
            *bytes = (*bytes + row.bytes()).saturating_sub(worst.bytes());
            *worst = row;
        }
    }
}

/// The state.
#[derive(Debug)]
pub(crate) struct TopHitsCollector {
    shape: Arc<TopHitsSpec>,
    tops: Vec<Top>,
    /// Bytes of the rows of all buckets.
    bytes: usize,
}

impl TopHitsCollector {
    /// Makes an empty state.
    pub(crate) fn new(shape: &Arc<TopHitsSpec>) -> Self {
        Self { shape: Arc::clone(shape), tops: Vec::new(), bytes: 0 }
    }

    /// Returns a bucket, and where the bytes of rows are counted.
    fn top(&mut self, parent: u32) -> (&mut Top, &mut usize) {
        let at = parent as usize;
        if self.tops.len() <= at {
            self.tops.resize(at + 1, Top::default());
        }
        (&mut self.tops[at], &mut self.bytes)
    }
}

/// Returns true if a key is made of more than a column of the rows; elements are themselves what a nested key looks for.
fn is_derived(source: &KeySource, elements: bool) -> bool {
    match &source.derived {
        None => false,
        Some(DerivedKey::Elements(_)) => !elements,
        Some(_) => true,
    }
}

/// Computes the column of a derived key for all rows of a batch.
fn derived(source: &KeySource, batch: &Batch<'_>) -> Result<Option<ArrayRef>> {
    let (Some(key), table) = (&source.derived, batch.segment.table) else { return Ok(None) };
    let mut documents = Cow::Borrowed(batch.rows);
    if batch.scope != 0
        && let Some((_, nested)) = batch.segment.scope(batch.scope)?
    {
        let document = |row: &u32| nested.parents().get(*row as usize).copied().unwrap_or(u32::MAX);
        documents = batch.rows.iter().map(document).collect();
    }
    key.values(source.column, &table.snapshot, batch.segment.number, &documents, &table.options.work)
}

/// Computes the sort keys of all rows of a batch.
fn keys(shape: &TopHitsSpec, batch: &Batch<'_>) -> Result<Vec<ArrayRef>> {
    let index = batch.segment.index;
    let slots = shape.slots.get(index).map_or(&[][..], Vec::as_slice);
    let rows = batch.rows.len();
    let mut keys = Vec::with_capacity(shape.order.keys.len());
    for (key, slot) in shape.order.keys.iter().zip(slots) {
        let source = key.sources.get(index).and_then(Option::as_ref);
        let array = match source.filter(|source| is_derived(source, shape.path.is_some())) {
            Some(source) => derived(source, batch)?,
            None => {
                let column = slot.and_then(|slot| batch.columns.get(slot)).and_then(Option::as_ref);
                column.map(|column| column.array())
            }
        };
        let array = array.filter(|array| *array.data_type() != DataType::Null);
        keys.push(key.compute(index, array.as_ref(), rows)?);
    }
    Ok(keys)
}

/// Returns the scores of the rows of a batch: elements have that of their document.
fn scores<'b>(batch: &Batch<'b>) -> Result<Cow<'b, [f32]>> {
    if batch.scope == 0 {
        return Ok(Cow::Borrowed(batch.scores.unwrap_or_default()));
    }
    let mut documents = batch.outer;
    while let Some(outer) = documents.and_then(|documents| documents.outer) {
        documents = Some(outer);
    }
    let known = documents.and_then(|documents| Some((documents.rows, documents.scores?)));
    let (Some((rows, scores)), Some((_, nested))) = (known, batch.segment.scope(batch.scope)?) else {
        return Ok(Cow::Borrowed(&[]));
    };
    let score = |element: &u32| {
        let document = nested.parents().get(*element as usize)?;
        scores.get(rows.binary_search(document).ok()?).copied()
    };
    Ok(batch.rows.iter().map(|element| score(element).unwrap_or(0.0)).collect())
}

impl Collector for TopHitsCollector {
    fn collect(&mut self, batch: &Batch<'_>, selection: Selection<'_>) -> Result<()> {
        let shape = Arc::clone(&self.shape);
        let (rows, number) = (batch.rows.len(), batch.segment.number);
        let scores = scores(batch)?;
        let score_of = |at: u32| scores.get(at as usize).copied().unwrap_or(0.0);
        let keys = keys(&shape, batch)?;
        let (numbers, own) = (batch.rows.iter().copied(), (0..rows as u32).map(score_of));
        let encoded = shape.order.encoder()?.of_segment(number, numbers, &keys, own)?;
        let limit = shape.from.saturating_add(shape.size);
        selection.for_each(|at, parent| {
            let score = score_of(at);
            let (top, bytes) = self.top(parent);
            top.total += 1;
            if shape.scored {
                top.max_score = Some(top.max_score.map_or(score, |most| most.max(score)));
            }
            let own = encoded.row(at as usize);
            let full = top.heap.len() >= limit;
            if full && top.heap.peek().is_none_or(|worst| own.as_ref() >= &*worst.key) {
                return;
            }
            let address = Address { segment: number, row: batch.rows[at as usize] };
            let sort = shape
                .order
                .explicit
                .then(|| shape.order.render(&keys, at as usize, batch.segment.index, score, address));
            top.offer(TopRow { key: own.as_ref().into(), address, score, sort }, limit, bytes);
        });
        Ok(())
    }

    fn fresh(&self) -> Box<dyn Collector> {
        Box::new(Self::new(&self.shape))
    }

    fn merge(&mut self, other: Box<dyn Collector>, map: Option<&[u32]>, work: &QueryContext) -> Result<()> {
        let Some(other) = same::<Self>(other) else { return Ok(()) };
        let limit = self.shape.from.saturating_add(self.shape.size);
        for (at, theirs) in other.tops.into_iter().enumerate() {
            let parent = map.map_or(at as u32, |map| map.get(at).copied().unwrap_or(DROPPED));
            if parent == DROPPED {
                continue;
            }
            work.check()?;
            let (own, bytes) = self.top(parent);
            own.total += theirs.total;
            own.max_score = match (own.max_score, theirs.max_score) {
                (Some(own), Some(theirs)) => Some(own.max(theirs)),
                (own, theirs) => own.or(theirs),
            };
            theirs.heap.into_iter().for_each(|row| own.offer(row, limit, bytes));
        }
        Ok(())
    }

    fn reduce(&mut self, parents: &[u32], reduction: &mut Reduction<'_>) -> Result<Vec<Outcome>> {
        let mut outcomes = Vec::with_capacity(parents.len());
        for parent in parents {
            let top = self.tops.get_mut(*parent as usize).map(std::mem::take).unwrap_or_default();
            let rows = top.heap.into_sorted_vec();
            let rows: Vec<TopRow> = rows.into_iter().skip(self.shape.from).take(self.shape.size).collect();
            // The states are gone when hits are fetched.
            reduction.work.hold(rows.iter().map(TopRow::bytes).sum())?;
            outcomes.push(Outcome::TopHits { number: reduction.hits.len(), text: Bytes::new() });
            let shows_best = !self.shape.order.explicit || self.shape.scored;
            reduction.hits.push(HitFetch {
                shape: Arc::clone(&self.shape),
                rows,
                total: top.total,
                max_score: top.max_score.filter(|_| shows_best),
            });
        }
        Ok(outcomes)
    }

    fn memory(&self) -> usize {
        self.bytes + self.tops.capacity() * size_of::<Top>()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bytes_of_rows_follow_what_is_kept() {
        let row = |key: u8, text: usize| TopRow {
            key: Box::new([key]),
            address: Address { segment: 0, row: u32::from(key) },
            score: 0.0,
            sort: Some(json!(["x".repeat(text)])),
        };
        let (mut top, mut bytes) = (Top::default(), 0);
        for (key, text) in [(5, 10_000), (3, 10), (9, 500_000), (2, 20), (1, 1_000), (7, 70_000)] {
            top.offer(row(key, text), 2, &mut bytes);
        }
        assert_eq!(bytes, row(1, 1_000).bytes() + row(2, 20).bytes());
        assert!((1_020..2_000).contains(&bytes), "{bytes}");
    }
}
