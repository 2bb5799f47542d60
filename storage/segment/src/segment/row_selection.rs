//! Row selection of a Parquet file: rows of a segment as row groups and as ranges within these. Readers of stored segments take it.

use parquet::arrow::arrow_reader::{ArrowReaderMetadata, RowSelection};
use roaring::RoaringBitmap;

/// Returns the row groups that hold selected rows, and the selection within them.
pub(super) fn select_rows(
    metadata: &ArrowReaderMetadata,
    rows: &RoaringBitmap,
) -> (Vec<usize>, RowSelection) {
    let mut groups = Vec::new();
    let mut ranges: Vec<std::ops::Range<usize>> = Vec::new();
    let mut base = 0u32; // first row of the group in the segment
    let mut chosen = 0usize; // rows of the chosen groups before this one
    for (group, meta) in metadata.metadata().row_groups().iter().enumerate() {
        let count = u32::try_from(meta.num_rows()).unwrap_or(0);
        let end = base.saturating_add(count);
        let before = ranges.len();
        let mut runs = rows.range(base..end);
        while let Some(run) = runs.next_range() {
            let at = |row: &u32| chosen + (row - base) as usize;
            let (start, end) = (at(run.start()), at(run.end()) + 1);
            match ranges.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => ranges.push(start..end),
            }
        }
        // A range that continues from the group before counts as this group's too.
        if ranges.len() > before || ranges.last().is_some_and(|last| last.end > chosen) {
            groups.push(group);
            chosen += count as usize;
        }
        base = end;
    }
    let selection = RowSelection::from_consecutive_ranges(ranges.into_iter(), chosen);
    (groups, selection)
}
