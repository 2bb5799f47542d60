//! Policies of refresh, flush and compaction of a shard: pure decisions over plain figures.

use std::ops::Range;

/// Facts about a stored segment that compaction looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentSize {
    /// Bytes of live rows, deleted ones discounted in proportion.
    pub(crate) live_bytes: u64,
    /// Rows, deleted ones included.
    pub(crate) rows: u32,
    /// Deleted rows.
    pub(crate) deleted: u32,
}

impl SegmentSize {
    fn live_rows(&self) -> u64 {
        u64::from(self.rows.saturating_sub(self.deleted))
    }
}

/// Segments of one tier that are merged together.
const TIER_WIDTH: usize = 8;
/// Segments are of a similar size where one is no more than so many times as large as the other.
const ALIKE: u64 = 4;
/// Segments smaller than this count as this large: tiny flushes share a tier.
const FLOOR_BYTES: u64 = 4 << 20;
/// Segments are not merged beyond this size.
const MAX_BYTES: u64 = 5 << 30;
/// Rows of a segment, at most; row numbers are 32 bits.
const MAX_ROWS: u64 = 1 << 30;
/// A segment with more deleted rows than this share is rewritten.
const MAX_DELETED_SHARE: f64 = 0.33;

/// Chooses adjacent segments to merge into one: `None` when the shape is good.
///
/// Tiered: the smallest run of [`TIER_WIDTH`] neighbours, at least half of them of similar size, goes first, so that each
/// row is rewritten about log8(size) times; neighbours only, so that segments stay in the order of
/// their sequence numbers. Where so many would exceed the greatest size, as many go as fit: the top
/// tier. What is half that size is finished, and merged no more.
pub(crate) fn choose_compaction(segments: &[SegmentSize]) -> Option<Range<usize>> {
    if let Some(at) = segments
        .iter()
        .position(|s| s.rows > 0 && f64::from(s.deleted) > f64::from(s.rows) * MAX_DELETED_SHARE)
    {
        return Some(at..at + 1);
    }
    let size = |s: &SegmentSize| s.live_bytes.max(FLOOR_BYTES);
    let mut best: Option<(u64, Range<usize>)> = None;
    for start in 0..segments.len() {
        let Some((run, bytes)) = longest_run(segments, start) else { continue };
        let window = &segments[run.clone()];
        let largest = window.iter().map(size).max().unwrap_or(0);
        let alike = 2 * window.iter().filter(|s| size(s) >= largest / ALIKE).count() >= window.len();
        if alike && best.as_ref().is_none_or(|(least, _)| bytes < *least) {
            best = Some((bytes, run));
        }
    }
    best.map(|(_, range)| range)
}

/// The segments from `start` on that may be merged, and their bytes: [`TIER_WIDTH`], or what fits into
/// the greatest segment where the next one does not.
fn longest_run(segments: &[SegmentSize], start: usize) -> Option<(Range<usize>, u64)> {
    let (mut end, mut bytes, mut rows) = (start, 0u64, 0u64);
    while end - start < TIER_WIDTH {
        let next = segments.get(end)?;
        if next.live_bytes >= MAX_BYTES / 2 || next.live_rows() >= MAX_ROWS / 2 {
            return None;
        }
        if bytes + next.live_bytes > MAX_BYTES || rows + next.live_rows() > MAX_ROWS {
            break;
        }
        (end, bytes, rows) = (end + 1, bytes + next.live_bytes, rows + next.live_rows());
    }
    Some((start..end, bytes))
}

/// Chooses what a force merge down to `max_segments` does next: the cheapest adjacent run. `fresh`
/// says which segments this merge itself has written: those are not written again only because rows of
/// them were deleted since.
pub(crate) fn choose_force_merge(
    segments: &[SegmentSize],
    fresh: &[bool],
    max_segments: usize,
) -> Option<Range<usize>> {
    let max_segments = max_segments.max(1);
    if segments.len() <= max_segments {
        let stale = |at: &usize| segments[*at].deleted > 0 && !fresh.get(*at).copied().unwrap_or(false);
        return (0..segments.len()).find(stale).map(|at| at..at + 1);
    }
    let width = segments.len() - max_segments + 1;
    (0..max_segments)
        .min_by_key(|&start| segments[start..start + width].iter().map(|s| s.live_bytes).sum::<u64>())
        .map(|start| start..start + width)
}

/// Pause after the first failure of a kind of work, in milliseconds; each further failure in a row doubles it.
const FIRST_PAUSE_MS: i64 = 2_000;

/// Returns the pause after so many failures in a row, in milliseconds, at most `longest_ms`.
pub(crate) fn pause_ms(failures: u32, longest_ms: i64) -> i64 {
    match failures.checked_sub(1) {
        None => 0,
        Some(doubled) => (FIRST_PAUSE_MS << doubled.min(16)).min(longest_ms),
    }
}

/// Facts that a shard's refresh depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RefreshFacts {
    /// `true` if anything is unpublished.
    pub(crate) dirty: bool,
    /// `true` if somebody waits for it (`refresh=wait_for`).
    pub(crate) waited_for: bool,
    /// `index.refresh_interval` in milliseconds; negative: never by itself.
    pub(crate) interval_ms: i64,
    /// `true` if the interval was set by the user: then it holds without searches, too.
    pub(crate) explicit: bool,
    /// Milliseconds since the last refresh.
    pub(crate) since_refresh_ms: i64,
    /// Milliseconds since the last search.
    pub(crate) since_search_ms: i64,
    /// `index.search.idle.after` in milliseconds: without a search for so long, the next one refreshes.
    pub(crate) idle_after_ms: i64,
}

/// Decides in how many milliseconds a refresh is due, 0 for now; `None` for never, as things are.
pub(crate) fn refresh_in_ms(facts: &RefreshFacts) -> Option<i64> {
    if !facts.dirty {
        return None;
    }
    if facts.interval_ms < 0 {
        return facts.waited_for.then_some(0);
    }
    let active = facts.explicit || facts.waited_for || facts.since_search_ms < facts.idle_after_ms;
    if !active {
        return None;
    }
    // A clock that was set back must not hold up refreshes.
    match facts.since_refresh_ms {
        ..0 => Some(0),
        since => Some(facts.interval_ms.saturating_sub(since).max(0)),
    }
}

/// Facts that a shard's flush depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlushFacts {
    /// Bytes of unflushed documents.
    pub(crate) bytes: u64,
    /// Bytes that start a flush.
    pub(crate) max_bytes: u64,
    /// Milliseconds since the oldest unflushed operation came, if there is any.
    pub(crate) age_ms: Option<i64>,
    /// Age that starts a flush.
    pub(crate) max_age_ms: i64,
    /// `true` if there is too much besides bytes.
    pub(crate) crowded: bool,
}

/// Decides in how many milliseconds a flush is due, 0 for now; `None` where there is nothing to flush.
pub(crate) fn flush_in_ms(facts: &FlushFacts) -> Option<i64> {
    if facts.crowded || (facts.bytes > 0 && facts.bytes >= facts.max_bytes) {
        return Some(0);
    }
    facts.age_ms.map(|age| facts.max_age_ms.saturating_sub(age).max(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(mib: &[u64]) -> Vec<SegmentSize> {
        mib.iter().map(|m| SegmentSize { live_bytes: m << 20, rows: 1000, deleted: 0 }).collect()
    }

    #[test]
    fn few_segments_are_left_alone() {
        assert_eq!(choose_compaction(&sizes(&[20; 7])), None);
        assert_eq!(choose_compaction(&[]), None);
    }

    #[test]
    fn the_smallest_run_goes_first_and_stays_adjacent() {
        let mut shape = sizes(&[160; 8]);
        shape.extend(sizes(&[20; 8]));
        assert_eq!(choose_compaction(&shape), Some(8..16));
    }

    #[test]
    fn a_large_segment_does_not_drag_along_with_small_ones() {
        assert_eq!(choose_compaction(&sizes(&[4000, 20, 20, 20, 20, 20, 20, 20])), None);
    }

    #[test]
    fn many_deletions_force_a_rewrite() {
        let mut shape = sizes(&[20, 20]);
        shape[1].deleted = 400;
        assert_eq!(choose_compaction(&shape), Some(1..2));
    }

    #[test]
    fn a_steady_stream_is_rewritten_logarithmically() {
        let (mut shape, mut rewritten) = (Vec::new(), 0u64);
        for _ in 0..512 {
            shape.extend(sizes(&[10]));
            while let Some(range) = choose_compaction(&shape) {
                let bytes = shape[range.clone()].iter().map(|s| s.live_bytes).sum();
                rewritten += bytes;
                shape.splice(range, [SegmentSize { live_bytes: bytes, rows: 1000, deleted: 0 }]);
            }
        }
        assert!(shape.len() <= 24, "{} segments left", shape.len());
        assert!(rewritten <= 4 * ((512 * 10) << 20), "rewrote {} MiB", rewritten >> 20);
    }

    #[test]
    fn sizes_that_vary_are_one_tier() {
        // Flushes are never of one size, wherever the bounds of tiers lie.
        for least in [3, 9, 12, 30, 33, 90] {
            let (mut shape, mut rewritten) = (Vec::new(), 0u64);
            let flushes: Vec<u64> = (0..400).map(|at| least + at * 7 % (least + 1)).collect();
            for flush in &flushes {
                shape.extend(sizes(&[*flush]));
                while let Some(range) = choose_compaction(&shape) {
                    let bytes = shape[range.clone()].iter().map(|s| s.live_bytes).sum();
                    rewritten += bytes;
                    shape.splice(range, [SegmentSize { live_bytes: bytes, rows: 1000, deleted: 0 }]);
                }
            }
            assert!(shape.len() <= 24, "{} segments left of {least} MiB", shape.len());
            assert!(rewritten <= 4 * (flushes.iter().sum::<u64>() << 20), "rewrote {} MiB", rewritten >> 20);
        }
    }

    #[test]
    fn force_merge_reaches_the_count() {
        let mut shape = sizes(&[50, 10, 10, 10, 70]);
        while let Some(range) = choose_force_merge(&shape, &[], 2) {
            let bytes = shape[range.clone()].iter().map(|s| s.live_bytes).sum();
            shape.splice(range, [SegmentSize { live_bytes: bytes, rows: 1, deleted: 0 }]);
        }
        assert_eq!(shape.len(), 2);
    }

    #[test]
    fn force_merge_writes_a_segment_once_however_many_deletions_follow() {
        let mut shape = sizes(&[50, 10]);
        shape[1].deleted = 3;
        assert_eq!(choose_force_merge(&shape, &[false, false], 2), Some(1..2));
        assert_eq!(choose_force_merge(&shape, &[false, true], 2), None);
        assert_eq!(choose_force_merge(&shape, &[false, true], 1), Some(0..2));
    }

    #[test]
    fn the_top_tier_is_merged_as_far_as_it_fits_and_no_further() {
        assert_eq!(choose_compaction(&sizes(&[700; 8])), Some(0..7));
        assert_eq!(choose_compaction(&sizes(&[700; 7])), None);
        assert_eq!(choose_compaction(&sizes(&[2000; 3])), Some(0..2));
        assert_eq!(choose_compaction(&sizes(&[4900, 700, 4900, 3000])), None);
        // A stream that never ends: segments of the greatest size, and few others.
        let (mut shape, mut rewritten) = (Vec::new(), 0u64);
        for _ in 0..600 {
            shape.extend(sizes(&[87]));
            while let Some(range) = choose_compaction(&shape) {
                let bytes = shape[range.clone()].iter().map(|s| s.live_bytes).sum();
                rewritten += bytes;
                shape.splice(range, [SegmentSize { live_bytes: bytes, rows: 1000, deleted: 0 }]);
            }
        }
        let small = shape.iter().filter(|s| s.live_bytes < MAX_BYTES / 2).count();
        assert!(small <= 15, "{small} segments left to merge");
        assert!(shape.iter().all(|s| s.live_bytes <= MAX_BYTES));
        assert!(rewritten <= 3 * ((600 * 87) << 20), "rewrote {} MiB", rewritten >> 20);
    }

    #[test]
    fn an_idle_index_waits_for_its_first_search() {
        let facts = RefreshFacts {
            dirty: true,
            waited_for: false,
            interval_ms: 1_000,
            explicit: false,
            since_refresh_ms: 5_000,
            since_search_ms: 40_000,
            idle_after_ms: 30_000,
        };
        assert_eq!(refresh_in_ms(&facts), None);
        assert_eq!(refresh_in_ms(&RefreshFacts { idle_after_ms: 40_001, ..facts }), Some(0));
        let searched = RefreshFacts { since_search_ms: 10, ..facts };
        assert_eq!(refresh_in_ms(&searched), Some(0));
        assert_eq!(refresh_in_ms(&RefreshFacts { since_refresh_ms: 400, ..searched }), Some(600));
        assert_eq!(refresh_in_ms(&RefreshFacts { since_refresh_ms: -400, ..searched }), Some(0));
        assert_eq!(refresh_in_ms(&RefreshFacts { explicit: true, ..facts }), Some(0));
        assert_eq!(refresh_in_ms(&RefreshFacts { waited_for: true, ..facts }), Some(0));
        assert_eq!(refresh_in_ms(&RefreshFacts { dirty: false, waited_for: true, ..facts }), None);
        assert_eq!(refresh_in_ms(&RefreshFacts { interval_ms: -1, ..searched }), None);
        assert_eq!(refresh_in_ms(&RefreshFacts { interval_ms: -1, waited_for: true, ..facts }), Some(0));
    }

    #[test]
    fn what_fails_again_and_again_is_tried_less_and_less_often() {
        let pauses: Vec<i64> = (0..8).map(|failures| pause_ms(failures, 60_000)).collect();
        assert_eq!(pauses, [0, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]);
        assert_eq!(pause_ms(u32::MAX, 60_000), 60_000);
    }

    #[test]
    fn a_flush_is_due_by_size_by_crowding_or_by_age() {
        let facts =
            FlushFacts { bytes: 10, max_bytes: 100, age_ms: Some(3_000), max_age_ms: 10_000, crowded: false };
        assert_eq!(flush_in_ms(&facts), Some(7_000));
        assert_eq!(flush_in_ms(&FlushFacts { age_ms: Some(10_000), ..facts }), Some(0));
        assert_eq!(flush_in_ms(&FlushFacts { bytes: 100, ..facts }), Some(0));
        assert_eq!(flush_in_ms(&FlushFacts { crowded: true, ..facts }), Some(0));
        assert_eq!(flush_in_ms(&FlushFacts { bytes: 0, age_ms: None, ..facts }), None);
        assert_eq!(flush_in_ms(&FlushFacts { bytes: 0, max_bytes: 0, age_ms: None, ..facts }), None);
    }
}
