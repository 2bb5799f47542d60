//! Counts of what a scan reads, for `EXPLAIN ANALYZE`: the rows that the index finds, and the pages of columns and sources that these are on.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use millrace_mapping::PathId;
use millrace_scoring::reader::SegmentReader;
use millrace_work::error::Result;
use parking_lot::Mutex;
use roaring::RoaringBitmap;

/// A column of a segment; none is that of the sources.
type SegmentColumn = (u32, Option<PathId>);

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

    /// Takes note of rows of a segment that the index found.
    pub(super) fn add_found(&self, rows: u64) {
        self.found.fetch_add(rows, Ordering::Relaxed);
    }

    /// Takes note of rows of a segment whose columns are read, and whose sources are if `sources`. Blocks; runs on a compute thread.
    pub(super) fn add_pages(
        &self,
        segment: u32,
        reader: &dyn SegmentReader,
        (columns, sources): (&[PathId], bool),
        rows: &RoaringBitmap,
    ) -> Result<()> {
        for column in columns {
            let pages = reader.pages(*column)?.into_iter().map(|page| page.rows);
            self.add_read((segment, Some(*column)), pages, rows);
        }
        if sources {
            self.add_read((segment, None), reader.source_pages()?.into_iter(), rows);
        }
        Ok(())
    }

    fn add_read(
        &self,
        column: SegmentColumn,
        pages: impl ExactSizeIterator<Item = Range<u32>>,
        rows: &RoaringBitmap,
    ) {
        let count = pages.len();
        let on_rows = pages.enumerate().filter(|(_, page)| rows.range_cardinality(page.clone()) > 0);
        let read: Vec<usize> = on_rows.map(|(at, _)| at).collect();
        let mut pages = self.pages.lock();
        pages.entry(column).or_insert((count, BTreeSet::new())).1.extend(read);
    }
}
