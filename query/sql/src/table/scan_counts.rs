//! Counts of what a scan reads, for `EXPLAIN ANALYZE`: the rows that the index finds, and the pages of columns that these are on.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};

use millrace_mapping::PathId;
use millrace_scoring::reader::SegmentReader;
use millrace_work::error::Result;
use parking_lot::Mutex;
use roaring::RoaringBitmap;

/// A column of a segment.
type SegmentColumn = (u32, PathId);

/// Pages of a column in a segment: how many there are, and those that hold a row that was found.
type ColumnPages = (usize, BTreeSet<usize>);

/// Counts of one scan.
#[derive(Debug, Default)]
pub(crate) struct ScanCounts {
    found: AtomicU64,
    pages: Mutex<HashMap<SegmentColumn, ColumnPages>>,
}

impl ScanCounts {
    /// Returns how many rows the index found.
    pub(crate) fn found(&self) -> u64 {
        self.found.load(Ordering::Relaxed)
    }

    /// Returns how many pages were read, of how many.
    pub(crate) fn pages(&self) -> (u64, u64) {
        let pages = self.pages.lock();
        let read = pages.values().map(|(_, read)| read.len() as u64).sum();
        (read, pages.values().map(|(held, _)| *held as u64).sum())
    }

    /// Takes note of rows of a segment whose columns are read. Blocks; runs on a compute thread.
    pub(super) fn add(
        &self,
        segment: u32,
        reader: &dyn SegmentReader,
        columns: &[PathId],
        rows: &RoaringBitmap,
    ) -> Result<()> {
        self.found.fetch_add(rows.len(), Ordering::Relaxed);
        for column in columns {
            let bounds = reader.pages(*column)?;
            let on_rows = bounds.iter().enumerate().filter(|(_, page)| {
                let range = &page.rows;
                !range.is_empty() && rows.range_cardinality(range.clone()) > 0
            });
            let read: Vec<usize> = on_rows.map(|(at, _)| at).collect();
            let mut pages = self.pages.lock();
            let own = pages.entry((segment, *column)).or_insert((bounds.len(), BTreeSet::new()));
            own.1.extend(read);
        }
        Ok(())
    }
}
