//! Number of rows that are read with their sources at once: as many as a few megabytes hold.
//!
//! What rows take is known once they are there, and what is beside them is not accounted for until then. So reading
//! begins with few rows, or with fewer where those of the segment are large on average, and goes on by what it has found.

use millrace_segment::{RowParts, StoredRow};
use millrace_work::QueryContext;
use millrace_work::error::Result;

use crate::reader::SegmentReader;

/// Most rows that are read at once with their sources, and without.
const MOST_ROWS: usize = 1_000;
const BARE_ROWS: usize = 8_192;
/// Most rows that are read at once while none has been seen.
const FIRST_ROWS: usize = 64;
/// Largest growth of the number of rows from one read to the next.
const GROWTH: usize = 8;
/// Bytes of sources that are read at once, about.
const STEP_BYTES: usize = 4 << 20;

/// Bytes of a row beside its texts.
const ROW_BYTES: usize = size_of::<StoredRow>() + 64;

/// Counts the bytes of a row.
fn bytes_of_row(row: &StoredRow) -> usize {
    ROW_BYTES + row.id.len() + row.source.len()
}

/// Reads rows of a segment, which ascend, and gives them to `each` in steps that are small where sources are large.
///
/// # Errors
/// Files that cannot be read, what `each` says, [`Error::TimedOut`](millrace_work::error::Error::TimedOut) once the work should end.
pub fn in_steps(
    reader: &dyn SegmentReader,
    mut rows: &[u32],
    parts: RowParts,
    work: &QueryContext,
    mut each: impl FnMut(Vec<StoredRow>, usize) -> Result<()>,
) -> Result<()> {
    let mut steps = Steps::new(reader, parts.source);
    while !rows.is_empty() {
        work.check()?;
        let stored = reader.fetch(steps.next(&mut rows), parts)?;
        let bytes = stored.iter().map(bytes_of_row).sum();
        steps.took(stored.len(), bytes);
        each(stored, bytes)?;
    }
    Ok(())
}

/// The steps in which rows of a segment are read.
#[derive(Debug)]
struct Steps {
    rows: usize,
    /// Bytes of a row, on average over the segment.
    row_bytes: usize,
    sources: bool,
}

impl Steps {
    /// Begins to read rows, with their sources or without.
    fn new(reader: &dyn SegmentReader, sources: bool) -> Self {
        let row_bytes = usize::try_from(reader.row_bytes()).unwrap_or(usize::MAX);
        Self::of(row_bytes, sources)
    }

    fn of(row_bytes: usize, sources: bool) -> Self {
        let rows = if sources { fitting(row_bytes).min(FIRST_ROWS) } else { BARE_ROWS };
        Self { rows, row_bytes, sources }
    }

    /// Cuts off the rows that are read next.
    fn next<'r>(&self, rows: &mut &'r [u32]) -> &'r [u32] {
        let (next, rest) = rows.split_at(self.rows.min(rows.len()));
        *rows = rest;
        next
    }

    /// Notes what rows took.
    fn took(&mut self, rows: usize, bytes: usize) {
        if self.sources && rows > 0 {
            let next = fitting(self.row_bytes.max(bytes / rows));
            self.rows = next.min(self.rows.saturating_mul(GROWTH));
        }
    }
}

/// Returns how many rows of so many bytes are a step.
fn fitting(row_bytes: usize) -> usize {
    (STEP_BYTES / row_bytes.max(1)).clamp(1, MOST_ROWS)
}

#[cfg(test)]
mod tests {
    use crate::steps::*;

    #[test]
    fn steps_grow_while_rows_are_small_and_shrink_when_they_are_not() {
        let rows: Vec<u32> = (0..5_000).collect();
        let mut left = rows.as_slice();
        let mut reading = Steps::of(100, true);
        let mut read = |bytes: usize| {
            let some = reading.next(&mut left).len();
            reading.took(some, some * bytes);
            some
        };
        assert_eq!(
            [read(200), read(200), read(200), read(1 << 20), read(9 << 20), read(200)],
            [64, 512, 1_000, 1_000, 4, 1]
        );
        assert_eq!([read(200), read(200)], [8, 64]);
    }

    #[test]
    fn averages_and_what_is_wanted_decide_the_first() {
        assert_eq!((Steps::of(1 << 20, true).rows, Steps::of(1 << 20, false).rows), (4, BARE_ROWS));
        assert_eq!(Steps::of(usize::MAX, true).rows, 1);
    }
}
