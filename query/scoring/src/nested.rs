//! Elements of nested paths: searched as rows of their own, joined to the rows that they are in.
//!
//! [`Elements`] shows the elements of a path as a segment, so that a predicate over them is prepared
//! and scored by the same machinery as one over documents. [`ToParent`] joins what matches to the
//! enclosing rows: documents or, in a nested clause within a nested clause, elements of the outer path.
//! [`matching_elements`] tells which elements of a document matched, for `inner_hits`.

use std::sync::Arc;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use millrace_dsl::query::NestedScore;
use millrace_mapping::PathId;
use millrace_segment::{ColumnBatch, Nested, PageBounds, RowParts, StoredRow, ValueRange};
use millrace_work::error::{Error, Result};
use roaring::RoaringBitmap;

use crate::condition::{Condition, SharedCondition};
use crate::match_all::MatchNoneScorer;
use crate::metadata_columns;
use crate::metadata_columns::is_metadata_column;
use crate::node::Node;
use crate::prepare::prepare;
use crate::reader::{InvertedIndex, SegmentReader};
use crate::source::Source;
use crate::{BoxScorer, END, Scorer};

/// The elements of a nested path as a segment.
#[derive(Clone, Debug)]
pub struct Elements {
    root: Arc<dyn SegmentReader>,
    nested: Arc<Nested>,
}

impl Elements {
    /// Shows the elements of a path of the segment `root`.
    pub fn new(root: Arc<dyn SegmentReader>, nested: Arc<Nested>) -> Self {
        Self { root, nested }
    }

    /// Makes the source of predicates over the elements of a path; `None` where there are none.
    pub fn source(of: &Source, path: PathId) -> Result<Option<(Source, Arc<Nested>)>> {
        let Some(nested) = of.reader.nested(path)? else { return Ok(None) };
        let reader = Arc::new(Self::new(Arc::clone(&of.reader), Arc::clone(&nested)));
        let inverted = reader.inverted()?;
        let ruled = of.ruled.as_ref().map(|ruled| ruled.of_elements(&nested));
        Ok(Some((Source { reader, inverted, ruled, ..of.clone() }, nested)))
    }
}

impl SegmentReader for Elements {
    fn rows(&self) -> u32 {
        self.nested.elements()
    }

    fn in_memory(&self) -> Option<(u64, u64)> {
        self.root.in_memory()
    }

    fn row_bytes(&self) -> u64 {
        self.root.row_bytes()
    }

    fn inverted(&self) -> millrace_runtime::Result<Arc<dyn InvertedIndex>> {
        let bundle: Arc<dyn InvertedIndex> = Arc::clone(self.nested.bundle()) as Arc<_>;
        Ok(bundle)
    }

    fn range_rows(
        &self,
        column: PathId,
        range: &ValueRange,
        among: Option<&RoaringBitmap>,
    ) -> millrace_runtime::Result<RoaringBitmap> {
        self.nested.range_rows_blocking(column, range, among)
    }

    /// An element has the id of its document.
    fn id_rows(&self, ids: &[String]) -> millrace_runtime::Result<RoaringBitmap> {
        let mut elements = RoaringBitmap::new();
        for row in self.root_reader().id_rows(ids)? {
            elements.insert_range(self.nested.elements_of(row));
        }
        Ok(elements)
    }

    fn read(
        &self,
        columns: &[PathId],
        rows: Option<RoaringBitmap>,
        sink: &mut dyn FnMut(ColumnBatch) -> bool,
    ) -> millrace_runtime::Result<()> {
        let plain = |columns: &[PathId], rows, sink: &mut dyn FnMut(ColumnBatch) -> bool| {
            self.nested.scan_blocking(columns, rows, sink)
        };
        metadata_columns::read(self, columns, rows, sink, Box::new(plain))
    }

    fn scan(
        &self,
        columns: &[PathId],
        rows: Option<RoaringBitmap>,
    ) -> BoxStream<'static, millrace_runtime::Result<ColumnBatch>> {
        let mut batches = Vec::new();
        let read = self.nested.scan_blocking(columns, rows, |batch| {
            batches.push(Ok(batch));
            true
        });
        batches.extend(read.err().map(Err));
        stream::iter(batches).boxed()
    }

    fn bounds(&self, column: PathId) -> PageBounds {
        match is_metadata_column(column) {
            true => metadata_columns::bounds(self),
            false => self.nested.column_bounds(column),
        }
    }

    fn pages(&self, column: PathId) -> millrace_runtime::Result<Vec<PageBounds>> {
        Ok(vec![self.bounds(column)])
    }

    /// Reads the documents of elements; the numbers are those of the elements.
    fn fetch(&self, rows: &[u32], wanted: RowParts) -> millrace_runtime::Result<Vec<StoredRow>> {
        let parents = self.nested.parents();
        let mut documents: Vec<u32> =
            rows.iter().filter_map(|row| parents.get(*row as usize)).copied().collect();
        documents.dedup();
        let stored = self.root_reader().fetch(&documents, wanted)?;
        let of = |element: &u32| {
            let document = parents.get(*element as usize)?;
            let found = stored.iter().find(|stored| stored.row == *document)?;
            Some(StoredRow { row: *element, ..found.clone() })
        };
        Ok(rows.iter().filter_map(of).collect())
    }

    fn nested(&self, path: PathId) -> millrace_runtime::Result<Option<Arc<Nested>>> {
        self.root.nested(path)
    }

    fn documents(&self) -> Option<&dyn SegmentReader> {
        Some(self.root_reader())
    }
}

impl Elements {
    /// Returns the segment of documents, from within however many nested paths.
    fn root_reader(&self) -> &dyn SegmentReader {
        self.root.documents().unwrap_or(self.root.as_ref())
    }
}

/// Mapping from elements to their rows.
#[derive(Clone, Debug)]
enum Join {
    Document(Arc<Nested>),
    /// The element of the path right outside.
    Outer(Arc<Nested>),
    /// The element of a path further outside.
    Further(Arc<Vec<u32>>),
}

impl Join {
    /// Joins the elements of the first path of `chain` to what the last one lies in, or to documents.
    fn new(source: &Source, nested: &Arc<Nested>, chain: &[PathId], to_document: bool) -> Result<Self> {
        if to_document {
            return Ok(Self::Document(Arc::clone(nested)));
        }
        let mut join = Self::Outer(Arc::clone(nested));
        for path in chain.iter().skip(1) {
            let Some(outer) = source.reader.nested(*path)? else { break };
            let places = outer.outer().unwrap_or(outer.parents());
            let through = |element: &u32| places.get(*element as usize).copied().unwrap_or(END);
            join = Self::Further(Arc::new(join.places().iter().map(through).collect()));
        }
        Ok(join)
    }

    /// The row of each element, ascending.
    fn places(&self) -> &[u32] {
        match self {
            Self::Document(nested) => nested.parents(),
            Self::Outer(nested) => nested.outer().unwrap_or(nested.parents()),
            Self::Further(places) => places,
        }
    }

    /// The elements of some rows, where these are few.
    fn elements_of(&self, rows: &RoaringBitmap) -> Option<RoaringBitmap> {
        let places = self.places();
        if rows.len() > places.len() as u64 / 8 {
            return None;
        }
        let mut elements = RoaringBitmap::new();
        for row in rows {
            let start = places.partition_point(|place| *place < row);
            let end = start + places[start..].partition_point(|place| *place == row);
            elements.insert_range(start as u32..end as u32);
        }
        Some(elements)
    }
}

/// A condition on the elements of a path.
#[derive(Debug)]
struct NestedCondition {
    /// Condition on elements.
    inner: SharedCondition,
    inverted: Arc<dyn InvertedIndex>,
    elements: u32,
    join: Join,
    mode: NestedScore,
}

/// A nested clause as a mapping understands it.
#[derive(Clone, Debug)]
pub struct NestedNode {
    /// The path, and the nested paths around it from the inside out, as far as the enclosing clause's.
    pub chain: Vec<PathId>,
    /// `true` if elements are joined to documents, not to elements of an enclosing clause's path.
    pub to_document: bool,
    /// Condition on elements.
    pub inner: Node,
    /// Mode that combines the scores of a row's elements.
    pub mode: NestedScore,
}

/// Prepares a nested clause; `among` are the only rows that matter, where known.
pub(super) fn prepare_nested(
    node: &NestedNode,
    source: &Source,
    among: Option<&RoaringBitmap>,
) -> Result<SharedCondition> {
    let Some(path) = node.chain.first() else { return Ok(Arc::new(MatchNoneScorer)) };
    let Some((inner_source, nested)) = Elements::source(source, *path)? else {
        return Ok(Arc::new(MatchNoneScorer));
    };
    let join = Join::new(source, &nested, &node.chain, node.to_document)?;
    let among = among.and_then(|rows| join.elements_of(rows));
    let inner = prepare(&node.inner, &inner_source, among.as_ref())?;
    Ok(Arc::new(NestedCondition {
        inner,
        inverted: inner_source.inverted,
        elements: nested.elements(),
        join,
        mode: node.mode,
    }))
}

impl Condition for NestedCondition {
    fn scorer<'a>(&'a self, _inverted: &'a dyn InvertedIndex, _rows: u32) -> Result<BoxScorer<'a>> {
        let elements = self.inner.scorer(self.inverted.as_ref(), self.elements)?;
        Ok(Box::new(ToParent::new(elements, self.join.places(), self.mode)))
    }
    fn by_scorer(&self) -> bool {
        true
    }
    fn failure(&self) -> Option<Error> {
        self.inner.failure()
    }
}

/// Rows with a matching element, scored by their elements' scores.
struct ToParent<'a> {
    elements: BoxScorer<'a>,
    /// Row of each element, ascending.
    places: &'a [u32],
    mode: NestedScore,
    doc: u32,
    /// Score of the current row, once asked for; the elements are behind it then.
    score: Option<f32>,
}

impl<'a> ToParent<'a> {
    /// Starts at the first row with a matching element.
    fn new(elements: BoxScorer<'a>, places: &'a [u32], mode: NestedScore) -> Self {
        let mut join = Self { elements, places, mode, doc: END, score: None };
        join.seek_match();
        join
    }

    fn place(&self, element: u32) -> u32 {
        self.places.get(element as usize).copied().unwrap_or(END)
    }

    fn seek_match(&mut self) -> u32 {
        self.score = None;
        self.doc = self.place(self.elements.doc());
        self.doc
    }
}

impl Scorer for ToParent<'_> {
    fn doc(&self) -> u32 {
        self.doc
    }
    fn advance(&mut self) -> u32 {
        match self.doc {
            END => END,
            doc => self.seek(doc + 1),
        }
    }
    fn seek(&mut self, target: u32) -> u32 {
        if self.doc >= target {
            return self.doc;
        }
        let element = self.elements.doc();
        if self.place(element) < target {
            let rest = self.places.get(element as usize..).unwrap_or_default();
            let skipped = rest.partition_point(|place| *place < target);
            self.elements.seek(element.saturating_add(skipped as u32));
        }
        self.seek_match()
    }
    fn score(&mut self) -> f32 {
        if let Some(score) = self.score {
            return score;
        }
        let (mut joined, mut count) = (0.0_f32, 0_u32);
        if self.mode != NestedScore::None {
            while self.place(self.elements.doc()) == self.doc && self.doc != END {
                let score = self.elements.score();
                joined = match (self.mode, count) {
                    (_, 0) => score,
                    (NestedScore::Min, _) => joined.min(score),
                    (NestedScore::Max, _) => joined.max(score),
                    _ => joined + score,
                };
                count += 1;
                self.elements.advance();
            }
            if self.mode == NestedScore::Avg && count > 0 {
                joined /= count as f32;
            }
        }
        self.score = Some(joined);
        joined
    }
    fn max_score(&self) -> f32 {
        match self.mode {
            NestedScore::None => 0.0,
            // A row may have any number of elements.
            NestedScore::Sum if self.elements.max_score() > 0.0 => f32::INFINITY,
            // Averages are rounded.
            NestedScore::Avg => self.elements.max_score() * 1.000_01,
            _ => self.elements.max_score(),
        }
    }
    fn cost(&self) -> u64 {
        self.elements.cost()
    }
}

/// An element that matches a nested clause.
#[derive(Clone, Debug, PartialEq)]
pub struct MatchingElement {
    /// Its number in the segment.
    pub element: u32,
    /// Its place in the array it is in, and before it those of the elements around it, from the
    /// outside in: the offsets of `_nested`.
    pub ordinals: Vec<u32>,
    /// Its score.
    pub score: f32,
}

/// Finds which elements of each of a few rows match a nested clause: best scores first, among equals
/// in the order of the document. `node` is the clause resolved ([`Node::Nested`]); rows are documents,
/// or elements of the path of `source` for a clause within a clause. Scores need the shard's functions
/// in `source`. Blocks; runs on a compute thread.
pub fn matching_elements(
    node: &NestedNode,
    source: &Source,
    rows: &[u32],
) -> Result<Vec<Vec<MatchingElement>>> {
    let mut found = vec![Vec::new(); rows.len()];
    let Some(path) = node.chain.first() else { return Ok(found) };
    let Some((inner_source, nested)) = Elements::source(source, *path)? else { return Ok(found) };
    let join = Join::new(source, &nested, &node.chain, node.to_document)?;
    let places = join.places();
    let mut outer = Vec::new();
    for path in node.chain.iter().skip(1) {
        outer.extend(source.reader.nested(*path)?);
    }
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_unstable_by_key(|at| rows[*at]);
    let wanted: RoaringBitmap = rows.iter().copied().collect();
    let inner = prepare(&node.inner, &inner_source, join.elements_of(&wanted).as_ref())?;
    let mut scorer = inner.scorer(inner_source.inverted.as_ref(), nested.elements())?;
    for at in order {
        let start = places.partition_point(|place| *place < rows[at]);
        let mut element = scorer.seek(start as u32);
        while element != END && places.get(element as usize) == Some(&rows[at]) {
            let ordinals = nested_ordinals(&nested, &outer, element);
            found[at].push(MatchingElement { element, ordinals, score: scorer.score() });
            element = scorer.advance();
        }
        found[at].sort_by(|a, b| b.score.total_cmp(&a.score).then(a.element.cmp(&b.element)));
    }
    match inner.failure() {
        None => Ok(found),
        Some(error) => Err(error),
    }
}

/// Returns the place of an element in its array, and before it those of the elements around it, whose paths are
/// `outer`, from the inside out.
pub fn nested_ordinals(nested: &Arc<Nested>, outer: &[Arc<Nested>], element: u32) -> Vec<u32> {
    let (mut ordinals, mut inside) = (vec![nested.ordinal(element)], (nested, element));
    for outer in outer {
        let Some(around) = inside.0.outer().and_then(|outer| outer.get(inside.1 as usize)) else { break };
        ordinals.push(outer.ordinal(*around));
        inside = (outer, *around);
    }
    ordinals.reverse();
    ordinals
}
