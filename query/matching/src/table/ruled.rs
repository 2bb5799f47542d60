//! The rows of segments that rules for documents show.
//!
//! A term that only hidden documents have must not tell of itself by being found, so the terms that a query stands for are chosen among
//! those of visible documents: [`RuledRows`] goes with each segment of an index that has rules (`target`), and expansions,
//! intervals and suggesters ask it. The rows are found when they are first asked for, and kept with the snapshot: one bit a row
//! at most. Rules come in order; a rule whose writer is bound by others, as an API key's query is, chooses among the documents that
//! the rules before it show.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

use millrace_mapping::{PathId, Scalar};
use millrace_segment::Nested;
use millrace_work::QueryContext;
use millrace_work::error::Result;
use roaring::RoaringBitmap;
use tantivy::TERMINATED;
use tantivy::postings::Postings;

use super::node::ResolvedPredicate;
use super::resolve::{IndexContext, resolve_under};
use super::statistics::Functions;
use super::{TableIndex, TableSegment, TableSnapshot};
use crate::automaton::CancellablePattern;
use crate::score::collect::row_set;
use crate::score::functions::ShardFunctions;
use crate::score::prepare::{Source, prepare};
use crate::score::reader::InvertedIndex;

/// The segments of a shard of which rules show some documents only.
struct RuledShard {
    index: TableIndex,
    /// Number in the index.
    number: u32,
    now_ms: i64,
    segments: Vec<TableSegment>,
    rules: Vec<OnceLock<Arc<PreparedRule>>>,
    /// Visible rows of each segment, by how many of the rules show them.
    rows: Vec<Vec<OnceLock<Arc<RoaringBitmap>>>>,
}

/// A rule with the terms that it stands for in the shard.
struct PreparedRule {
    resolved: ResolvedPredicate,
    functions: Arc<ShardFunctions>,
}

/// The visible rows of a segment.
#[derive(Clone)]
pub struct RuledRows {
    shard: Arc<RuledShard>,
    /// Place of the segment among those of the shard.
    at: usize,
    /// The elements that are rows; documents where absent.
    elements: Option<Arc<Nested>>,
}

impl fmt::Debug for RuledRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuledRows").field("at", &self.at).finish_non_exhaustive()
    }
}

impl RuledRows {
    /// Gives each segment of a shard its visible rows by the rules of an index; `now_ms` is what `now` means in these.
    pub(crate) fn attach(index: &TableIndex, number: u32, now_ms: i64, segments: &mut [TableSegment]) {
        let rules = index.seen.documents.len();
        if rules == 0 {
            return;
        }
        let cells = || (0..rules).map(|_| OnceLock::new()).collect();
        let shard = Arc::new(RuledShard {
            index: index.clone(),
            number,
            now_ms,
            segments: segments.to_vec(),
            rules: (0..rules).map(|_| OnceLock::new()).collect(),
            rows: segments.iter().map(|_| cells()).collect(),
        });
        for (at, segment) in segments.iter_mut().enumerate() {
            segment.ruled = Some(Self { shard: Arc::clone(&shard), at, elements: None });
        }
    }

    /// Sees the elements of a nested path as rows.
    pub(crate) fn of_elements(&self, nested: &Arc<Nested>) -> Self {
        Self { elements: Some(Arc::clone(nested)), ..self.clone() }
    }

    /// Finds the rows that the first rules show; all rules where there are fewer, every row where no rule is among them. Blocks.
    ///
    /// # Errors
    /// What a rule cannot be asked of the index, files that cannot be read, more rows than queries may hold.
    pub fn rows(&self, rules: usize, work: &QueryContext) -> Result<Option<Arc<RoaringBitmap>>> {
        let rows = self.shard.rows(self.at, rules, work)?;
        let (Some(documents), Some(nested)) = (&rows, &self.elements) else { return Ok(rows) };
        let elements = (0..).zip(nested.parents()).filter(|(_, parent)| documents.contains(**parent));
        let elements = elements.map(|(element, _)| element).collect();
        work.hold_rows(&elements)?;
        Ok(Some(Arc::new(elements)))
    }
}

impl TableSegment {
    /// Finds the rows that the first rules for documents show, or of a nested path the elements; every one where absent. Blocks.
    ///
    /// # Errors
    /// Those of [`RuledRows::rows`].
    pub fn visible(
        &self,
        rules: usize,
        nested: Option<PathId>,
        work: &QueryContext,
    ) -> Result<Option<Arc<RoaringBitmap>>> {
        let Some(ruled) = &self.ruled else { return Ok(None) };
        match nested.map(|path| self.reader.nested(path)).transpose()?.flatten() {
            None => ruled.rows(rules, work),
            Some(nested) => ruled.of_elements(&nested).rows(rules, work),
        }
    }
}

impl RuledShard {
    fn rows(
        self: &Arc<Self>,
        at: usize,
        rules: usize,
        work: &QueryContext,
    ) -> Result<Option<Arc<RoaringBitmap>>> {
        let Some(last) = rules.min(self.rules.len()).checked_sub(1) else { return Ok(None) };
        let (Some(segment), Some(cell)) =
            (self.segments.get(at), self.rows.get(at).and_then(|cells| cells.get(last)))
        else {
            return Ok(None);
        };
        if let Some(known) = cell.get() {
            return Ok(Some(Arc::clone(known)));
        }
        let before = self.rows(at, last, work)?;
        let rule = self.rule(last, work)?;
        let source = Source {
            number: 0,
            shard: self.number,
            reader: Arc::clone(&segment.reader),
            inverted: segment.reader.inverted()?,
            functions: Arc::clone(&rule.functions),
            ruled: Some(self.of(at)),
            work: work.part(),
        };
        let prepared = prepare(&rule.resolved.node, &source, None)?;
        let mut rows = match prepared.row_set() {
            Some(rows) => rows.clone(),
            None => row_set(prepared.as_ref(), source.inverted.as_ref(), source.reader.rows(), work)?,
        };
        if let Some(error) = prepared.failure() {
            return Err(error);
        }
        rows -= segment.deleted.as_ref();
        if let Some(before) = before {
            rows &= before.as_ref();
        }
        work.check()?;
        work.hold_rows(&rows)?;
        Ok(Some(Arc::clone(cell.get_or_init(|| Arc::new(rows)))))
    }

    fn of(self: &Arc<Self>, at: usize) -> RuledRows {
        RuledRows { shard: Arc::clone(self), at, elements: None }
    }

    /// Prepares a rule: its own terms are chosen among the documents that the rules before it show.
    fn rule(self: &Arc<Self>, place: usize, work: &QueryContext) -> Result<Arc<PreparedRule>> {
        let (Some(cell), Some(rule)) = (self.rules.get(place), self.index.seen.documents.get(place)) else {
            return Err(millrace_work::error::Error::Execution("a rule is not there".to_owned()));
        };
        if let Some(known) = cell.get() {
            return Ok(Arc::clone(known));
        }
        let context = IndexContext { meta: &self.index.meta, mapping: &rule.mapping, now_ms: self.now_ms };
        let resolved = resolve_under(&rule.predicate, context, place)?;
        let index = TableIndex { mapping: Arc::clone(&rule.mapping), filter: None, ..self.index.clone() };
        let segments = self.segments.iter().enumerate();
        let segments = segments.map(|(at, segment)| TableSegment {
            index: 0,
            shard: 0,
            ruled: Some(self.of(at)),
            ..segment.clone()
        });
        let snapshot = TableSnapshot {
            indices: vec![index],
            segments: segments.collect(),
            shards: 1,
            ..TableSnapshot::default()
        };
        let scored = resolved.node.scores_decide();
        let resolved = [Some(resolved)];
        let functions = Functions::new(1, false).of(&snapshot, &resolved, 0, 0, scored, work)?;
        let [Some(resolved)] = resolved else {
            return Err(millrace_work::error::Error::Execution("a rule is not resolved".to_owned()));
        };
        let prepared = Arc::new(PreparedRule { resolved, functions });
        Ok(Arc::clone(cell.get_or_init(|| prepared)))
    }
}

/// The terms of a field in a segment, as far as rows that are visible have them.
#[derive(Clone, Copy)]
pub struct VisibleTerms<'a> {
    /// The index of the segment, or of elements.
    pub inverted: &'a dyn InvertedIndex,
    /// The field.
    pub path: PathId,
    /// Whether terms are those of a text.
    pub text: bool,
    /// The visible rows; all where absent.
    pub rows: Option<&'a RoaringBitmap>,
}

impl fmt::Debug for VisibleTerms<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VisibleTerms").field("path", &self.path).finish_non_exhaustive()
    }
}

impl VisibleTerms<'_> {
    /// Opens the rows with a term, hidden ones included.
    ///
    /// # Errors
    /// Files that cannot be read.
    pub fn postings(&self, term: &str) -> Result<Option<Box<dyn Postings>>> {
        Ok(match self.text {
            true => self.inverted.text(self.path).map(|text| text.postings(term)).transpose()?.flatten(),
            false => self.inverted.exact(self.path, &Scalar::Str(term.to_owned()))?,
        })
    }

    /// Calls `each` with the terms of a pattern and how many visible rows have them, ascending, until it breaks; terms that no
    /// visible row has are left out.
    ///
    /// # Errors
    /// Files that cannot be read.
    pub fn for_each(
        &self,
        pattern: CancellablePattern<'_>,
        each: &mut dyn FnMut(&str, u64) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut failed = None;
        let mut visit = |term: &str, count: u32| {
            let Some(rows) = self.rows else { return each(term, count.into()) };
            match self.postings(term) {
                Ok(postings) => match postings.map_or(0, |postings| sum_within(postings, rows, |_| 1)) {
                    0 => ControlFlow::Continue(()),
                    count => each(term, count),
                },
                Err(error) => {
                    failed = Some(error);
                    ControlFlow::Break(())
                }
            }
        };
        match self.text {
            false => self.inverted.for_each_match(self.path, pattern, &mut visit)?,
            true => {
                if let Some(text) = self.inverted.text(self.path) {
                    text.for_each_match(pattern, &mut visit)?;
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }
}

/// Adds up the weights of those postings that are among some rows.
pub fn sum_within(
    mut postings: Box<dyn Postings>,
    rows: &RoaringBitmap,
    weight: impl Fn(&dyn Postings) -> u64,
) -> u64 {
    let mut sum = 0;
    let mut wanted = rows.iter();
    let mut row = postings.doc();
    while row != TERMINATED {
        // Both go on to where the other one is.
        wanted.advance_to(row);
        match wanted.next() {
            None => break,
            Some(next) if next == row => {
                sum += weight(postings.as_ref());
                row = postings.advance();
            }
            Some(next) => {
                row = postings.seek(next);
                if row == next {
                    sum += weight(postings.as_ref());
                    row = postings.advance();
                }
            }
        }
    }
    sum
}
