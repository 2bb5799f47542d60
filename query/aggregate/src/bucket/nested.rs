//! `nested` and `reverse_nested`: from rows to the elements in them, and back.

use std::borrow::Cow;
use std::sync::Arc;

use millrace_dsl::aggs::{Nested, ReverseNested};
use millrace_work::QueryContext;
use millrace_work::error::{Error, Result};

use crate::batch::{Batch, Positions, Selection};
use crate::collector::{Collector, Reduction, ShardReader, SubCollectors, same};
use crate::compiler::{Compiler, Context};
use crate::metric::{Ordinals, moved};
use crate::ordinals::Counts;
use crate::result::{Outcome, Results, SingleBucket, SingleKind};
use crate::segment::SegmentContext;

/// A `nested` aggregation.
#[derive(Debug)]
pub(crate) struct NestedAggregation {
    /// Number of the scope around.
    outer: usize,
    /// Number of the scope of the elements.
    pub scope: usize,
    /// True if the elements lie in the rows of the scope around, not just in the same documents.
    is_below: bool,
}

/// A `reverse_nested` aggregation.
#[derive(Debug)]
pub(crate) struct ReverseNestedAggregation {
    /// Number of the scope of the elements.
    inner: usize,
    /// Number of the scope that is gone back to.
    pub scope: usize,
}

/// Adds the scope of a path.
pub(crate) fn enter(
    compiler: &mut Compiler<'_>,
    context: Context,
    nested: &Nested,
) -> Result<Arc<NestedAggregation>> {
    let path: Arc<str> = nested.path.as_str().into();
    for (at, index) in compiler.snapshot.indices.iter().enumerate() {
        if index.mapping.nested_id(&path).is_none() && index.mapping.is_object(&path) {
            let error = Error::Exception {
                kind: "aggregation_execution_exception",
                status: 500,
                reason: format!("[nested] nested path [{path}] is not nested"),
            };
            compiler.fail(at, error);
        }
    }
    let around = compiler.scope_at(context.scope).and_then(|scope| scope.path.as_deref());
    let is_below =
        around.is_none_or(|around| path.strip_prefix(around).is_some_and(|below| below.starts_with('.')));
    let scope = compiler.scope(context.scope, Some(path));
    Ok(Arc::new(NestedAggregation { outer: context.scope, scope, is_below }))
}

/// Finds the scope that is gone back to.
pub(crate) fn leave(
    compiler: &mut Compiler<'_>,
    context: Context,
    leave: &ReverseNested,
) -> Result<Arc<ReverseNestedAggregation>> {
    if context.scope == 0 {
        compiler.fail_all(Error::IllegalArgument(format!(
            "Reverse nested aggregation [{}] can only be used inside a [nested] aggregation",
            compiler.name()
        )));
        return Ok(Arc::new(ReverseNestedAggregation { inner: 0, scope: 0 }));
    }
    let Some(path) = &leave.path else {
        return Ok(Arc::new(ReverseNestedAggregation { inner: context.scope, scope: 0 }));
    };
    let mut at = context.scope;
    while let Some(scope) = compiler.scope_at(at) {
        if scope.path.as_deref() == Some(path) {
            return Ok(Arc::new(ReverseNestedAggregation { inner: context.scope, scope: at }));
        }
        if at == 0 {
            break;
        }
        at = scope.outer;
    }
    let known = compiler.snapshot.indices.iter().any(|index| index.mapping.nested_id(path).is_some());
    if !known {
        compiler.fail_all(Error::Exception {
            kind: "aggregation_execution_exception",
            status: 500,
            reason: format!("[reverse_nested] nested path [{path}] is not nested"),
        });
    }
    let scope = compiler.scope(0, Some(path.as_str().into()));
    Ok(Arc::new(ReverseNestedAggregation { inner: context.scope, scope }))
}

/// Returns, for each element of a scope, its row in another that lies around it: ascending.
fn places<'s>(segment: &'s SegmentContext<'_>, inner: usize, outer: usize) -> Result<Option<Cow<'s, [u32]>>> {
    let Some((_, nested)) = segment.scope(inner)? else { return Ok(None) };
    let wanted = match outer {
        0 => return Ok(Some(Cow::Borrowed(nested.parents()))),
        outer => match segment.scope(outer)? {
            Some((_, outer)) => outer.path(),
            None => return Ok(None),
        },
    };
    if nested.path() == wanted {
        return Ok(Some(Cow::Owned((0..nested.elements()).collect())));
    }
    let mapping = segment.table.snapshot.indices.get(segment.index).map(|index| &index.mapping);
    let around = |path| {
        let mapping = mapping?;
        let (above, _) = mapping.nested_path_of(path)?.rsplit_once('.')?;
        mapping.nested_id(mapping.nested_path(above)?)
    };
    let Some(first) = nested.outer() else { return Ok(None) };
    let mut found = Cow::Borrowed(first);
    let mut at = around(nested.path());
    while let Some(path) = at {
        if path == wanted {
            return Ok(Some(found));
        }
        let Some(step) = segment.source.reader.nested(path)? else { return Ok(None) };
        let Some(places) = step.outer() else { return Ok(None) };
        let through = |element: &u32| places.get(*element as usize).copied().unwrap_or(u32::MAX);
        found = Cow::Owned(found.iter().map(through).collect());
        at = around(path);
    }
    Ok(None)
}

/// The state of a `nested` aggregation.
#[derive(Debug)]
pub(crate) struct EnterCollector {
    enter: Arc<NestedAggregation>,
    single: Single,
}

/// The state of a `reverse_nested` aggregation.
#[derive(Debug)]
pub(crate) struct LeaveCollector {
    leave: Arc<ReverseNestedAggregation>,
    single: Single,
}

/// One bucket below each of the level above, with the same number.
#[derive(Debug)]
pub(crate) struct Single {
    counts: Counts,
    /// The collectors below.
    pub subs: SubCollectors,
}

impl Single {
    /// Makes an empty state.
    pub(crate) fn new(subs: SubCollectors) -> Self {
        Self { counts: Counts::default(), subs }
    }

    /// Adds documents.
    pub(crate) fn add(&mut self, parent: u32, count: u64) {
        self.counts.add(parent, count);
    }

    /// Merges another.
    ///
    /// # Errors
    /// As [`Collector::merge`].
    pub(crate) fn merge(&mut self, other: Self, map: Option<&[u32]>, work: &QueryContext) -> Result<()> {
        for (at, count) in other.counts.iter() {
            if let Some(parent) = moved(map, at) {
                self.add(parent, count);
            }
        }
        self.subs.merge(other.subs, map, work)
    }

    /// Makes the results.
    pub(crate) fn reduce(
        &mut self,
        kind: SingleKind,
        parents: &[u32],
        reduction: &mut Reduction<'_>,
    ) -> Result<Vec<Outcome>> {
        let results = self.subs.reduce(parents, reduction)?;
        let single = |(parent, subs): (&u32, Results)| {
            Outcome::Single(Box::new(SingleBucket { kind, doc_count: self.counts.of(*parent), subs }))
        };
        Ok(parents.iter().zip(results).map(single).collect())
    }

    /// Estimates the bytes held.
    pub(crate) fn memory(&self) -> usize {
        self.counts.memory() + self.subs.memory()
    }

    /// Feeds pairs of row and bucket of another scope, which need not be in order.
    fn feed(
        &mut self,
        scope: usize,
        mut pairs: Vec<(u32, u32)>,
        distinct: bool,
        batch: &Batch<'_>,
    ) -> Result<()> {
        if distinct {
            pairs.sort_unstable();
            pairs.dedup();
        } else if !pairs.is_sorted() {
            pairs.sort_unstable();
        }
        for (_, parent) in &pairs {
            self.add(*parent, 1);
        }
        if self.subs.is_empty() || pairs.is_empty() {
            return Ok(());
        }
        let ordinals: Vec<u32> = pairs.iter().map(|(_, parent)| *parent).collect();
        let ordinals = Ordinals::Each(&ordinals);
        let mut around = batch.outer;
        while let Some(known) = around {
            if known.scope == scope {
                let place = |(row, _): &(u32, u32)| known.rows.binary_search(row).map_or(0, |at| at as u32);
                let positions: Vec<u32> = pairs.iter().map(place).collect();
                let positions = Positions::Some(&positions);
                return self.subs.collect(known, Selection { positions, ordinals });
            }
            around = known.outer;
        }
        let mut rows: Vec<u32> = Vec::with_capacity(pairs.len());
        let mut positions: Vec<u32> = Vec::with_capacity(pairs.len());
        for (row, _) in &pairs {
            if rows.last() != Some(row) {
                rows.push(*row);
            }
            positions.push(rows.len() as u32 - 1);
        }
        let positions = match positions.len() == rows.len() {
            true => Positions::All(rows.len()),
            false => Positions::Some(&positions),
        };
        let subs = &mut self.subs;
        batch.segment.with_rows(scope, &rows, None, Some(batch), &mut |inner| {
            subs.collect(inner, Selection { positions, ordinals })
        })
    }
}

impl EnterCollector {
    /// Makes an empty state.
    pub(crate) fn new(enter: &Arc<NestedAggregation>, subs: SubCollectors) -> Self {
        Self { enter: Arc::clone(enter), single: Single::new(subs) }
    }
}

impl Collector for EnterCollector {
    fn collect(&mut self, batch: &Batch<'_>, selection: Selection<'_>) -> Result<()> {
        let outer = if self.enter.is_below { self.enter.outer } else { 0 };
        let Some(places) = places(batch.segment, self.enter.scope, outer)? else { return Ok(()) };
        // Elements of another path are those of the document, and belong to its first row that is selected.
        let documents = match self.enter.is_below {
            true => None,
            false => self::places(batch.segment, self.enter.outer, 0)?,
        };
        let mut last: Option<(u32, u32)> = None;
        let mut pairs: Vec<(u32, u32)> = Vec::new();
        selection.for_each(|at, parent| {
            let mut row = batch.rows[at as usize];
            if let Some(documents) = &documents {
                let Some(document) = documents.get(row as usize) else { return };
                if last.is_some_and(|(first, of)| of == *document && first != row) {
                    return;
                }
                last = Some((row, *document));
                row = *document;
            }
            let start = places.partition_point(|place| *place < row);
            let mut element = start;
            while places.get(element) == Some(&row) {
                pairs.push((element as u32, parent));
                element += 1;
            }
        });
        self.single.feed(self.enter.scope, pairs, false, batch)
    }

    fn fresh(&self) -> Box<dyn Collector> {
        Box::new(Self::new(&self.enter, self.single.subs.fresh()))
    }

    fn merge(&mut self, other: Box<dyn Collector>, map: Option<&[u32]>, work: &QueryContext) -> Result<()> {
        match same::<Self>(other) {
            Some(other) => self.single.merge(other.single, map, work),
            None => Ok(()),
        }
    }

    fn reduce(&mut self, parents: &[u32], reduction: &mut Reduction<'_>) -> Result<Vec<Outcome>> {
        self.single.reduce(SingleKind::Nested, parents, reduction)
    }

    fn memory(&self) -> usize {
        self.single.memory()
    }

    fn end_shard(&mut self, segments: &mut dyn ShardReader) -> Result<()> {
        self.single.subs.end_shard(segments)
    }
}

impl LeaveCollector {
    /// Makes an empty state.
    pub(crate) fn new(leave: &Arc<ReverseNestedAggregation>, subs: SubCollectors) -> Self {
        Self { leave: Arc::clone(leave), single: Single::new(subs) }
    }
}

impl Collector for LeaveCollector {
    fn collect(&mut self, batch: &Batch<'_>, selection: Selection<'_>) -> Result<()> {
        let Some(places) = places(batch.segment, self.leave.inner, self.leave.scope)? else { return Ok(()) };
        let mut pairs: Vec<(u32, u32)> = Vec::with_capacity(selection.len());
        selection.for_each(|at, parent| {
            if let Some(row) = places.get(batch.rows[at as usize] as usize) {
                pairs.push((*row, parent));
            }
        });
        self.single.feed(self.leave.scope, pairs, true, batch)
    }

    fn fresh(&self) -> Box<dyn Collector> {
        Box::new(Self::new(&self.leave, self.single.subs.fresh()))
    }

    fn merge(&mut self, other: Box<dyn Collector>, map: Option<&[u32]>, work: &QueryContext) -> Result<()> {
        match same::<Self>(other) {
            Some(other) => self.single.merge(other.single, map, work),
            None => Ok(()),
        }
    }

    fn reduce(&mut self, parents: &[u32], reduction: &mut Reduction<'_>) -> Result<Vec<Outcome>> {
        self.single.reduce(SingleKind::ReverseNested, parents, reduction)
    }

    fn memory(&self) -> usize {
        self.single.memory()
    }

    fn end_shard(&mut self, segments: &mut dyn ShardReader) -> Result<()> {
        self.single.subs.end_shard(segments)
    }
}
