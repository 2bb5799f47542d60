//! The rows of segments that rules for documents show.
//!
//! A term that only hidden documents have must not tell of itself by being found, so the terms that a query stands for are chosen among
//! those of visible documents: [`RuledRows`] goes with each segment of an index that has rules, and expansions,
//! intervals and suggesters ask it. The rows are found when they are first asked for, and kept with the snapshot: one bit a row
//! at most. Rules come in order; a rule whose writer is bound by others, as an API key's query is, chooses among the documents that
//! the rules before it show.

use std::fmt;
use std::sync::{Arc, OnceLock};

use millrace_mapping::PathId;
use millrace_scoring::collect::row_set;
use millrace_scoring::functions::ShardFunctions;
use millrace_scoring::node::ResolvedPredicate;
use millrace_scoring::prepare::prepare;
use millrace_scoring::ruled_rows::{RowVisibility, RuledRows};
use millrace_scoring::source::Source;
use millrace_work::QueryContext;
use millrace_work::error::Result;
use roaring::RoaringBitmap;

use super::resolve::{IndexContext, resolve_under};
use super::statistics::Functions;
use crate::table::snapshot::{TableIndex, TableSegment, TableSnapshot};

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

/// A segment of a shard with rules.
struct RuledSegment {
    shard: Arc<RuledShard>,
    /// Place of the segment among those of the shard.
    at: usize,
}

impl fmt::Debug for RuledSegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuledSegment").field("at", &self.at).finish_non_exhaustive()
    }
}

impl RowVisibility for RuledSegment {
    fn visible_documents(&self, rules: usize, work: &QueryContext) -> Result<Option<Arc<RoaringBitmap>>> {
        self.shard.rows(self.at, rules, work)
    }
}

/// Gives each segment of a shard its visible rows by the rules of an index; `now_ms` is what `now` means in these.
pub fn attach_ruled_rows(index: &TableIndex, number: u32, now_ms: i64, segments: &mut [TableSegment]) {
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
        segment.ruled = Some(shard.of(at));
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
        RuledRows::new(Arc::new(RuledSegment { shard: Arc::clone(self), at }))
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
