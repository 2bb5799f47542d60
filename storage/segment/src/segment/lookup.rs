//! Lookup of documents by id in a stored segment: by its id sidecar, or by the page index of generated ids.

use arrow::array::{Array, AsArray};
use arrow::datatypes::UInt64Type;
use millrace_runtime::Result;
use roaring::RoaringBitmap;

use super::ids::{Fingerprint, Ids};
use super::range::Bounds;
use super::stored::StoredSegment;
use super::{DocumentLocation, layout};

impl StoredSegment {
    /// Finds the rows of an id.
    pub(crate) fn rows_of(&self, id: &str, fingerprint: Fingerprint) -> Result<RoaringBitmap> {
        if let Some(ids) = self.ids()? {
            return Ok(ids.find(fingerprint)?.into_iter().map(|entry| entry.row).collect());
        }
        self.generated_rows(id)
    }

    /// Finds the rows of an id and what a write needs to know of them; `ids` are the segment's.
    pub(crate) fn find(
        &self,
        ids: Option<&Ids>,
        id: &str,
        fingerprint: Fingerprint,
    ) -> Result<Vec<DocumentLocation>> {
        let Some(ids) = ids else { return self.find_generated(id) };
        let located = |e: super::ids::Entry| DocumentLocation {
            row: e.row,
            version: e.version,
            seq_no: e.seq_no,
            primary_term: e.primary_term,
        };
        Ok(ids.find(fingerprint)?.into_iter().map(located).collect())
    }

    /// Finds the row of a generated id by the page index of `_id`, whose order is the row order.
    fn generated_rows(&self, id: &str) -> Result<RoaringBitmap> {
        let mut found = RoaringBitmap::new();
        match &self.record.generated_ids {
            Some((least, greatest)) if least.as_str() <= id && id <= greatest.as_str() => {}
            _ => return Ok(found),
        }
        let Some(root) = self.named_root(layout::ID)? else { return Ok(found) };
        let mut candidates = RoaringBitmap::new();
        self.for_each_page(root, |rows, bounds, _| {
            if let Bounds::Bytes(min, max) = bounds
                && min <= id.as_bytes()
                && id.as_bytes() <= max
            {
                candidates.insert_range(rows);
            }
        })?;
        let mut rows = candidates.iter();
        self.read_named(&[layout::ID], Some(&candidates), |batch| {
            let ids = batch.column(0).as_string_view();
            for at in 0..ids.len() {
                let row = rows.next();
                if ids.value(at) == id {
                    found.extend(row);
                }
            }
            found.is_empty()
        })?;
        Ok(found)
    }

    fn find_generated(&self, id: &str) -> Result<Vec<DocumentLocation>> {
        let found = self.generated_rows(id)?;
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let mut located = Vec::new();
        let mut numbers = found.iter();
        self.read_named(&[layout::SEQ_NO, layout::VERSION, layout::PRIMARY_TERM], Some(&found), |batch| {
            let value = |name: &str, at| {
                batch.column_by_name(name).map_or(0, |a| a.as_primitive::<UInt64Type>().value(at))
            };
            for at in 0..batch.num_rows() {
                located.extend(numbers.next().map(|row| DocumentLocation {
                    row,
                    version: value(layout::VERSION, at),
                    seq_no: value(layout::SEQ_NO, at),
                    primary_term: value(layout::PRIMARY_TERM, at),
                }));
            }
            true
        })?;
        Ok(located)
    }
}
