//! One segment under aggregation: its rows, the rows of filters, the elements of nested paths.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use millrace_mapping::PathId;
use millrace_matching::table::{TableSegment, TableState};
use millrace_scoring::collect::{overlap, row_set};
use millrace_scoring::condition::RowCount;
use millrace_scoring::nested::{Elements, NestedNode};
use millrace_scoring::node::Node;
use millrace_scoring::prepare::prepare;
use millrace_scoring::source::Source;
use millrace_segment::{Nested, list_rows};
use millrace_work::QueryContext;
use millrace_work::error::{Error, Result};
use parking_lot::Mutex;
use roaring::RoaringBitmap;

use super::scan_plan::ScanPlan;

/// Rows of a segment.
#[derive(Debug)]
pub(crate) enum Rows {
    /// All of these, none of which is deleted: those of a segment, or of a part of it.
    All(Range<u32>),
    /// These.
    Some(RoaringBitmap),
}

impl Rows {
    /// Counts them.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::All(rows) => rows.len() as u64,
            Self::Some(rows) => rows.len(),
        }
    }

    /// Counts the bytes that they take.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::All(_) => 0,
            Self::Some(rows) => rows.serialized_size(),
        }
    }

    /// Returns the run from the first to the last of them.
    pub(crate) fn span(&self) -> Range<u32> {
        match self {
            Self::All(rows) => rows.clone(),
            Self::Some(rows) => rows.min().unwrap_or(0)..rows.max().map_or(0, |last| last + 1),
        }
    }

    /// Counts those of a run.
    pub(crate) fn count_in(&self, run: Range<u32>) -> u64 {
        match self {
            Self::All(rows) => overlap(rows, &run).len() as u64,
            Self::Some(rows) => rows.range_cardinality(run),
        }
    }

    /// Returns those of a run.
    pub(crate) fn within(&self, run: Range<u32>) -> RoaringBitmap {
        let mut own = RoaringBitmap::new();
        own.insert_range(run);
        self.restrict(&mut own);
        own
    }

    /// Lists those of a run.
    pub(crate) fn list(&self, run: Range<u32>) -> Vec<u32> {
        match self {
            Self::All(rows) => overlap(rows, &run).collect(),
            Self::Some(rows) => list_rows(rows, run),
        }
    }

    /// Returns whether a row is among them.
    pub(crate) fn contains(&self, row: u32) -> bool {
        match self {
            Self::All(rows) => rows.contains(&row),
            Self::Some(rows) => rows.contains(row),
        }
    }

    /// Keeps those of a set that are among them.
    pub(crate) fn restrict(&self, set: &mut RoaringBitmap) {
        match self {
            Self::All(rows) => {
                set.remove_range(..rows.start);
                set.remove_range(rows.end..);
            }
            Self::Some(rows) => *set &= rows,
        }
    }

    /// Returns whether the rows include the first of a segment, where they are all of it or of a part: counts of the whole
    /// segment belong there.
    pub(crate) fn lead(&self) -> Option<bool> {
        match self {
            Self::All(rows) => Some(rows.start == 0),
            Self::Some(_) => None,
        }
    }
}

/// A set of rows that is asked for single ones.
#[derive(Debug)]
pub(crate) struct RowBits(Vec<u64>);

impl RowBits {
    /// Counts the bytes of a set within so many rows.
    fn bytes(rows: u32) -> usize {
        (rows as usize / 64 + 1) * size_of::<u64>()
    }

    fn new(rows: u32) -> Self {
        Self(vec![0; rows as usize / 64 + 1])
    }

    fn insert(&mut self, row: u32) {
        if let Some(word) = self.0.get_mut(row as usize / 64) {
            *word |= 1 << (row % 64);
        }
    }

    /// Returns whether a row is among them.
    #[inline]
    pub(crate) fn contains(&self, row: u32) -> bool {
        self.0.get(row as usize / 64).is_some_and(|word| word >> (row % 64) & 1 == 1)
    }
}

/// The elements of a nested path as rows, and to which documents they belong.
type ElementSource = (Source, Arc<Nested>);

/// A segment while it is collected.
pub(crate) struct SegmentContext<'a> {
    /// Scopes and filters.
    pub plan: &'a ScanPlan,
    /// The table.
    pub table: &'a TableState,
    /// Number of the segment in the table.
    pub number: u32,
    /// Place of its index in the table.
    pub index: usize,
    /// Its documents.
    pub source: Source,
    sets: Arc<SegmentSets>,
}

/// Rows of filters and elements of nested paths, once they were asked for.
#[derive(Debug)]
pub(crate) struct SegmentSets {
    filters: Vec<OnceShared<RowBits>>,
    scopes: Vec<OnceShared<Option<ElementSource>>>,
    /// Holds the rows of filters.
    work: QueryContext,
}

impl SegmentSets {
    /// Makes those of a segment, none of which is known.
    pub(crate) fn new(plan: &ScanPlan, work: &QueryContext) -> Self {
        Self {
            work: work.part(),
            filters: plan.filters.iter().map(|_| OnceShared::default()).collect(),
            scopes: plan.scopes.iter().map(|_| OnceShared::default()).collect(),
        }
    }
}

/// Value that is made once, at its first use; concurrent callers wait for it.
#[derive(Debug)]
struct OnceShared<T> {
    made: OnceLock<T>,
    making: Mutex<()>,
}

impl<T> Default for OnceShared<T> {
    fn default() -> Self {
        Self { made: OnceLock::new(), making: Mutex::new(()) }
    }
}

impl<T> OnceShared<T> {
    fn get(&self, make: impl FnOnce() -> Result<T>) -> Result<&T> {
        if let Some(made) = self.made.get() {
            return Ok(made);
        }
        let _making = self.making.lock();
        match self.made.get() {
            Some(made) => Ok(made),
            None => {
                let made = make()?;
                Ok(self.made.get_or_init(|| made))
            }
        }
    }
}

impl<'a> SegmentContext<'a> {
    /// Checks that somebody waits for the work. Where only its time is over, what was collected counts, so a batch is finished.
    ///
    /// # Errors
    /// [`Error::TimedOut`].
    pub(crate) fn check_cancelled(&self) -> Result<()> {
        let stop = &self.table.handle.stop;
        if stop.requested() && !stop.timed_out() { Err(Error::TimedOut) } else { Ok(()) }
    }

    /// Opens a segment, of which `sets` has what is known so far.
    pub(crate) fn new(
        plan: &'a ScanPlan,
        table: &'a TableState,
        number: u32,
        segment: &TableSegment,
        sets: Arc<SegmentSets>,
    ) -> Result<Self> {
        let source = table.snapshot.source(number, segment, &table.options.work)?;
        Ok(Self { plan, table, number, index: segment.index, source, sets })
    }

    /// Returns the rows of a scope.
    pub(crate) fn scope(&self, scope: usize) -> Result<Option<&(Source, Arc<Nested>)>> {
        let (Some(once), Some(known)) = (self.sets.scopes.get(scope), self.plan.scopes.get(scope)) else {
            return Ok(None);
        };
        let found = once.get(|| match known.nested_in(self.index) {
            Some(path) => Elements::source(&self.source, path),
            None => Ok(None),
        })?;
        Ok(found.as_ref())
    }

    /// Returns the rows of a filter, numbered as in the scope that it is for.
    pub(crate) fn filter(&self, filter: usize) -> Result<Option<&RowBits>> {
        let (Some(once), Some(known)) = (self.sets.filters.get(filter), self.plan.filters.get(filter)) else {
            return Ok(None);
        };
        let found = once.get(|| {
            let Some(Some(resolved)) = known.resolved.get(self.index) else { return Ok(RowBits::new(0)) };
            let snapshot = &self.table.snapshot;
            let shard = snapshot.segments.get(self.number as usize).map_or(0, |segment| segment.shard);
            let functions = known.functions.of(
                snapshot,
                &known.resolved,
                self.index,
                shard,
                resolved.node.scores_decide(),
                &self.table.options.work,
            )?;
            let source = Source { functions, ..self.source.clone() };
            match (&resolved.node, known.scope) {
                (node, 0) => rows_of(node, &source, &self.sets.work),
                (Node::Nested(nested), _) => elements_of(nested, &source, &self.sets.work),
                _ => Ok(RowBits::new(0)),
            }
        })?;
        Ok(Some(found))
    }

    /// Counts the documents of a filter, where nothing is deleted and the index knows the number.
    pub(crate) fn known_count(&self, filter: usize) -> Result<Option<u64>> {
        let Some(known) = self.plan.filters.get(filter).filter(|known| known.scope == 0) else {
            return Ok(None);
        };
        let Some(Some(resolved)) = known.resolved.get(self.index) else { return Ok(Some(0)) };
        if !resolved.expansions.is_empty() || resolved.node.scores_decide() {
            return Ok(None);
        }
        let source = &Source { work: self.source.work.part(), ..self.source.clone() };
        let prepared = prepare(&resolved.node, source, None)?;
        let rows = self.source.reader.rows();
        let (inverted, deleted) = (self.source.inverted.as_ref(), &RoaringBitmap::new());
        prepared.known_count(&RowCount { inverted, rows, deleted, all: true })
    }
}

/// Returns numbers of some rows of columns from decoded pages, where all are kept so.
pub(crate) fn numbers(
    source: &Source,
    columns: &[PathId],
    rows: &RoaringBitmap,
) -> Result<Option<Vec<arrow::array::ArrayRef>>> {
    Ok(columns.iter().map(|column| source.reader.numbers(*column, rows)).collect::<Result<_, _>>()?)
}

/// Finds the rows of a filter, which are held by `work`; the other memory of finding them is given back.
fn rows_of(node: &Node, source: &Source, work: &QueryContext) -> Result<RowBits> {
    let rows = source.reader.rows();
    work.hold(RowBits::bytes(rows))?;
    let source = &Source { work: source.work.part(), ..source.clone() };
    let prepared = prepare(node, source, None)?;
    let mut found = RowBits::new(rows);
    let set = row_set(prepared.as_ref(), source.inverted.as_ref(), rows, &source.work)?;
    set.iter().for_each(|row| found.insert(row));
    match prepared.failure() {
        Some(error) => Err(error),
        None => Ok(found),
    }
}

fn elements_of(nested: &NestedNode, source: &Source, work: &QueryContext) -> Result<RowBits> {
    let Some(path) = nested.chain.first() else { return Ok(RowBits::new(0)) };
    match Elements::source(source, *path)? {
        Some((inner, _)) => rows_of(&nested.inner, &inner, work),
        None => Ok(RowBits::new(0)),
    }
}
