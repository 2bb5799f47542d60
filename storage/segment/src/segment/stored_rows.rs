//! Rows as they were stored: identity, versions and source. Searches read these of their hits, a few at a time.

use millrace_runtime::{Priority, Result};
use roaring::RoaringBitmap;

use super::memory::stored_row;
use super::stored::StoredSegment;
use super::{Kind, RowParts, Segment, StoredRow, layout};

impl Segment {
    /// Reads metadata of rows on the calling thread; see [`Segment::fetch`].
    pub fn fetch_blocking(&self, rows: &[u32], wanted: RowParts) -> Result<Vec<StoredRow>> {
        match &*self.kind {
            Kind::Memory(memory) => Ok(memory.fetch(rows, wanted.source)),
            Kind::Stored(stored) => in_order(rows, |distinct| stored.fetch(distinct, wanted)),
        }
    }

    /// Reads the sources of a few rows and nothing beside them, in the order given, on the calling thread.
    ///
    /// # Errors
    /// Corrupt files, an unreachable object store.
    pub fn sources_blocking(&self, rows: &[u32]) -> Result<Vec<StoredRow>> {
        match &*self.kind {
            Kind::Memory(memory) => Ok(memory.fetch(rows, true)),
            Kind::Stored(stored) => in_order(rows, |distinct| stored.sources(distinct)),
        }
    }

    /// Reads metadata (and the source where asked) of a few rows, in the order given.
    pub async fn fetch(&self, rows: &[u32], wanted: RowParts) -> Result<Vec<StoredRow>> {
        let (this, rows) = (self.clone(), rows.to_vec());
        self.compute.run(Priority::Foreground, move || this.fetch_blocking(&rows, wanted)).await
    }
}

impl StoredSegment {
    /// Reads metadata (and the source) of a few rows, ascending and without repetition.
    pub(crate) fn fetch(&self, rows: &RoaringBitmap, wanted: RowParts) -> Result<Vec<StoredRow>> {
        let mut names = vec![layout::ID, layout::ROUTING, layout::IGNORED];
        let mut constants = [None; 2];
        if wanted.versions {
            constants = *self.constants()?;
            names.push(layout::SEQ_NO);
            for (name, constant) in [layout::VERSION, layout::PRIMARY_TERM].into_iter().zip(constants) {
                if constant.is_none() {
                    names.push(name);
                }
            }
        }
        if wanted.source {
            names.push(layout::SOURCE);
        }
        let mut found = Vec::with_capacity(usize::try_from(rows.len()).unwrap_or(0));
        let mut numbers = rows.iter();
        self.read_named(&names, Some(rows), |batch| {
            for at in 0..batch.num_rows() {
                let number = numbers.next().unwrap_or(u32::MAX);
                let mut row = stored_row(batch, at, number, wanted.source);
                row.version = constants[0].unwrap_or(row.version);
                row.primary_term = constants[1].unwrap_or(row.primary_term);
                found.push(row);
            }
            true
        })?;
        Ok(found)
    }

    /// Reads the sources of a few rows, ascending and without repetition, and nothing beside them.
    pub(crate) fn sources(&self, rows: &RoaringBitmap) -> Result<Vec<StoredRow>> {
        let mut found = Vec::with_capacity(usize::try_from(rows.len()).unwrap_or(0));
        let mut numbers = rows.iter();
        self.read_named(&[layout::SOURCE], Some(rows), |batch| {
            for (at, number) in (0..batch.num_rows()).zip(numbers.by_ref()) {
                found.push(stored_row(batch, at, number, true));
            }
            true
        })?;
        Ok(found)
    }
}

/// Reads rows, each once and ascending, and returns them in the order given.
fn in_order(
    rows: &[u32],
    read: impl FnOnce(&RoaringBitmap) -> Result<Vec<StoredRow>>,
) -> Result<Vec<StoredRow>> {
    let distinct: RoaringBitmap = rows.iter().copied().collect();
    let found = read(&distinct)?;
    if rows.is_sorted() && distinct.len() == rows.len() as u64 {
        return Ok(found);
    }
    let place = |row: &u32| found.binary_search_by_key(row, |r| r.row).ok();
    Ok(rows.iter().filter_map(|row| Some(found[place(row)?].clone())).collect())
}
