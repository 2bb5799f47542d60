//! Sharing a table out: runs of rows for the partitions of an operator, and what those of one segment
//! have in common.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use millrace_scoring::collect::SegmentPass;
use millrace_scoring::condition::SharedCondition;
use millrace_scoring::node::ResolvedPredicate;
use millrace_scoring::prepare::prepare;
use millrace_scoring::scaled::Scaled;
use millrace_scoring::source::Source;
use millrace_segment::WINDOW_ROWS;
use millrace_work::QueryContext;
use millrace_work::error::{Error, Result};
use parking_lot::Mutex;

use super::statistics::Functions;
use crate::table::snapshot::{TableSegment, TableSnapshot};
use crate::table::state::TableState;

/// Least rows of a partition: below, another thread costs more than it does.
/// Debug builds cut as soon as they can, so that tests meet it.
const PARTITION_ROWS: u64 = if cfg!(debug_assertions) { 2 * WINDOW_ROWS as u64 } else { 50_000 };
/// Least rows of a piece that is cut off a segment.
const PIECE_ROWS: u64 = if cfg!(debug_assertions) { 1 } else { 8 } * WINDOW_ROWS as u64;

/// Consecutive rows of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowPartition {
    /// Number of the segment in the table.
    pub segment: u32,
    /// Its rows; those of a cut segment begin where a window does.
    pub rows: Range<u32>,
}

impl RowPartition {
    /// Returns whether these are all rows of the segment.
    pub fn is_whole(&self, segment: &TableSegment) -> bool {
        self.rows == (0..segment.reader.rows())
    }
}

/// Counts the segments of which there are parts.
pub fn count_segments(groups: &[Vec<RowPartition>]) -> usize {
    let segments: HashSet<u32> = groups.iter().flatten().map(|part| part.segment).collect();
    segments.len()
}

/// Granularity at which the rows of a table may be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionBoundary {
    /// Anywhere.
    Rows,
    /// Between shards.
    Shards,
}

/// Shares the segments of indices that are searched out among at most `partitions`, in order, about as many rows each.
pub fn share_out(
    segments: &[TableSegment],
    resolved: &[Option<ResolvedPredicate>],
    partitions: usize,
    cut: PartitionBoundary,
) -> Vec<Vec<RowPartition>> {
    let searched = segments
        .iter()
        .enumerate()
        .filter(|(_, segment)| matches!(resolved.get(segment.index), Some(Some(_))))
        .map(|(number, segment)| (number as u32, segment.shard, segment.reader.rows()));
    cut_rows(&searched.collect::<Vec<_>>(), partitions, cut)
}

/// Cuts segments, of which number, shard and rows are given.
fn cut_rows(
    segments: &[(u32, u32, u32)],
    partitions: usize,
    cut: PartitionBoundary,
) -> Vec<Vec<RowPartition>> {
    let rows: u64 = segments.iter().map(|(_, _, rows)| u64::from(*rows)).sum();
    let partitions = (partitions as u64).min(rows / PARTITION_ROWS + 1).max(1);
    let share = rows / partitions + 1;
    let mut groups: Vec<Vec<RowPartition>> = Vec::new();
    let (mut open, mut filled, mut last) = (Vec::new(), 0, None);
    for (segment, shard, rows) in segments.iter().copied() {
        let may_end = cut == PartitionBoundary::Rows || last.is_some_and(|last| last != shard);
        if filled >= share && may_end && (groups.len() as u64) + 1 < partitions {
            groups.push(std::mem::take(&mut open));
            filled = 0;
        }
        last = Some(shard);
        let mut from = 0;
        while cut == PartitionBoundary::Rows && (groups.len() as u64) + 1 < partitions {
            let (room, left) = (share.saturating_sub(filled), u64::from(rows - from));
            let to = from + (room as u32).min(rows - from) / WINDOW_ROWS * WINDOW_ROWS;
            if room < PIECE_ROWS || left < room + PIECE_ROWS || to == from {
                break;
            }
            open.push(RowPartition { segment, rows: from..to });
            groups.push(std::mem::take(&mut open));
            (from, filled) = (to, 0);
        }
        open.push(RowPartition { segment, rows: from..rows });
        filled += u64::from(rows - from);
    }
    groups.push(open);
    groups
}

/// A segment with the predicate made ready for it.
#[derive(Debug)]
pub struct OpenedSegment {
    /// The segment.
    pub source: Source,
    /// Condition that matches.
    pub prepared: SharedCondition,
}

impl OpenedSegment {
    /// Makes a pass over rows of the segment. The bound on matches does not hold without `bounded`.
    pub fn pass<'a>(
        &'a self,
        table: &'a TableState,
        segment: &'a TableSegment,
        rows: Range<u32>,
        bounded: bool,
    ) -> SegmentPass<'a> {
        SegmentPass {
            segment: self.source.number,
            rows: self.source.reader.rows(),
            range: rows,
            prepared: self.prepared.as_ref(),
            inverted: self.source.inverted.as_ref(),
            deleted: &segment.deleted,
            totals: &table.handle.totals,
            budget: table.handle.budgets.get(segment.shard as usize).filter(|_| bounded),
            stop: &table.handle.stop,
        }
    }

    /// Returns the error of the evaluation of the predicate, as the failure of the shard.
    pub fn failure(&self, snapshot: &TableSnapshot, segment: &TableSegment) -> Option<Error> {
        let error = self.prepared.failure()?;
        let meta = &snapshot.indices.get(segment.index)?.meta;
        let failure = error.into_shard_failure(&meta.name, &meta.uuid_text(), self.source.shard);
        Some(Error::SearchPhase { failures: vec![failure] })
    }
}

/// A predicate, and the segments that it was made ready for.
#[derive(Debug)]
pub struct Openings {
    resolved: Vec<Option<ResolvedPredicate>>,
    functions: Functions,
    min_score: Option<f32>,
    work: QueryContext,
    /// Those that several partitions share, by number.
    shared: Vec<Mutex<Option<Arc<OpenedSegment>>>>,
}

impl Openings {
    /// Takes what matches in each index, with the least score of rows, for some work.
    pub fn new(
        snapshot: &TableSnapshot,
        resolved: Vec<Option<ResolvedPredicate>>,
        functions: Functions,
        min_score: Option<f32>,
        work: &QueryContext,
    ) -> Self {
        let shared = snapshot.segments.iter().map(|_| Mutex::default()).collect();
        Self { resolved, functions, min_score, work: work.clone(), shared }
    }

    /// Returns the matching predicate, by index.
    pub fn resolved(&self) -> &[Option<ResolvedPredicate>] {
        &self.resolved
    }

    /// Makes the predicate ready for the segment of a part, with scores where these are wanted, which is the same for all calls.
    /// `None` where the segment is not searched, or the work ends. Blocks.
    pub fn open(
        &self,
        snapshot: &TableSnapshot,
        part: &RowPartition,
        scores: bool,
    ) -> Result<Option<Arc<OpenedSegment>>> {
        let Some(segment) = snapshot.segments.get(part.segment as usize) else { return Ok(None) };
        let Some(Some(own)) = self.resolved.get(segment.index) else { return Ok(None) };
        let shared = self.shared.get(part.segment as usize).filter(|_| !part.is_whole(segment));
        let Some(cell) = shared else {
            return self.prepare(snapshot, part.segment, segment, own, scores);
        };
        let mut cell = cell.lock();
        if let Some(opened) = &*cell {
            return Ok(Some(Arc::clone(opened)));
        }
        cell.clone_from(&self.prepare(snapshot, part.segment, segment, own, scores)?);
        Ok(cell.clone())
    }

    fn prepare(
        &self,
        snapshot: &TableSnapshot,
        number: u32,
        segment: &TableSegment,
        own: &ResolvedPredicate,
        scores: bool,
    ) -> Result<Option<Arc<OpenedSegment>>> {
        let scored = scores || self.min_score.is_some() || own.node.scores_decide();
        let (index, shard) = (segment.index, segment.shard);
        let functions = self.functions.of(snapshot, &self.resolved, index, shard, scored, &self.work);
        let prepared = functions.and_then(|functions| {
            let source = Source { functions, ..snapshot.source(number, segment, &self.work)? };
            Ok((prepare(&own.node, &source, None)?, source))
        });
        let (prepared, source) = match prepared {
            Err(Error::TimedOut) => return Ok(None),
            prepared => prepared?,
        };
        let boost = snapshot.indices.get(segment.index).map_or(1.0, |index| index.boost);
        let prepared = match (boost, self.min_score) {
            (1.0, None) => prepared,
            (factor, least) => Arc::new(Scaled::new(prepared, factor, least, &self.work)),
        };
        Ok(Some(Arc::new(OpenedSegment { source, prepared })))
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    #[test]
    fn a_large_segment_is_shared() {
        let part = |segment, rows| RowPartition { segment, rows };
        assert_eq!(
            cut_rows(&[(3, 0, 90_000)], 2, PartitionBoundary::Rows),
            [vec![part(3, 0..40_960)], vec![part(3, 40_960..90_000)]]
        );
        assert_eq!(cut_rows(&[(3, 0, 90_000)], 2, PartitionBoundary::Shards), [vec![part(3, 0..90_000)]]);
        assert_eq!(cut_rows(&[(3, 0, 8_000)], 2, PartitionBoundary::Rows), [vec![part(3, 0..8_000)]]);
        assert_eq!(cut_rows(&[], 2, PartitionBoundary::Rows), [Vec::<RowPartition>::new()]);
    }

    #[test]
    fn every_row_is_in_one_part() {
        let mut random = StdRng::seed_from_u64(11);
        for round in 0..500 {
            let mut shard = 0;
            let mut segments = Vec::new();
            for number in 0..random.random_range(0..12) {
                shard += u32::from(random.random_bool(0.3));
                segments.push((number, shard, random.random_range(0..200_000)));
            }
            let cut = if round % 2 == 0 { PartitionBoundary::Rows } else { PartitionBoundary::Shards };
            let partitions = random.random_range(1..6);
            let groups = cut_rows(&segments, partitions, cut);
            assert!(groups.len() <= partitions, "{segments:?}");
            let mut parts = groups.iter().flatten().peekable();
            for (segment, _, rows) in &segments {
                let mut at = 0;
                while let Some(part) = parts.next_if(|part| part.segment == *segment) {
                    assert_eq!(part.rows.start, at, "{segments:?}");
                    assert_eq!(at % WINDOW_ROWS, 0, "{segments:?}");
                    at = part.rows.end;
                }
                assert_eq!(at, *rows, "{segments:?}");
            }
            assert!(parts.next().is_none());
            let shard = |part: Option<&RowPartition>| part.map(|part| segments[part.segment as usize].1);
            for pair in groups.windows(2).filter(|_| cut == PartitionBoundary::Shards) {
                assert_ne!(shard(pair[0].last()), shard(pair[1].first()), "{segments:?}");
            }
        }
    }
}
