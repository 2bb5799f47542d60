//! Lookup of documents by id in a stored segment: by its id sidecar, or by the page index of generated ids.

use arrow::array::{Array, AsArray};
use arrow::datatypes::UInt64Type;
use millrace_runtime::Result;
use roaring::RoaringBitmap;

use super::ids::{Entry, Fingerprint, Ids};
use super::range::Bounds;
use super::stored::StoredSegment;
use super::{DocumentLocation, Kind, Segment, layout};

impl Segment {
    /// Finds the rows of an id on the calling thread, which may block on a remote store.
    pub fn find(&self, id: &str, fingerprint: Fingerprint) -> Result<Vec<DocumentLocation>> {
        match &*self.kind {
            Kind::Memory(memory) => Ok(memory.find(id)),
            Kind::Stored(stored) => stored.find(stored.ids()?.as_deref(), id, fingerprint),
        }
    }

    /// Finds the rows of many ids on the calling thread, each with the place of its id; pages that ids share are read once.
    ///
    /// # Errors
    /// Corrupt files, an unreachable object store.
    pub fn find_all(&self, ids: &[(&str, Fingerprint)]) -> Result<Vec<(usize, DocumentLocation)>> {
        match &*self.kind {
            Kind::Memory(memory) => {
                let located = |(place, (id, _)): (usize, &(&str, Fingerprint))| {
                    memory.find(id).into_iter().map(move |located| (place, located))
                };
                Ok(ids.iter().enumerate().flat_map(located).collect())
            }
            Kind::Stored(stored) => stored.find_all(stored.ids()?.as_deref(), ids),
        }
    }
}

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
        let found = self.find_all(ids, &[(id, fingerprint)])?;
        Ok(found.into_iter().map(|(_, located)| located).collect())
    }

    /// Finds the rows of many ids, each with the place of its id. Pages of generated ids are read once for all of them.
    pub(crate) fn find_all(
        &self,
        ids: Option<&Ids>,
        wanted: &[(&str, Fingerprint)],
    ) -> Result<Vec<(usize, DocumentLocation)>> {
        let Some(ids) = ids else { return self.find_generated(wanted) };
        let mut found = Vec::with_capacity(wanted.len());
        for (place, (_, fingerprint)) in wanted.iter().enumerate() {
            found.extend(ids.find(*fingerprint)?.into_iter().map(|entry| {
                let Entry { row, version, seq_no, primary_term, .. } = entry;
                (place, DocumentLocation { row, version, seq_no, primary_term })
            }));
        }
        Ok(found)
    }

    /// Finds the row of a generated id.
    fn generated_rows(&self, id: &str) -> Result<RoaringBitmap> {
        let found = self.rows_of_generated(&[(id, Fingerprint::new(id))])?;
        Ok(found.into_iter().map(|(row, _)| row).collect())
    }

    /// Finds the rows of generated ids by the page index of `_id`, whose order is the row order: ascending, each with the place of its id.
    fn rows_of_generated(&self, wanted: &[(&str, Fingerprint)]) -> Result<Vec<(u32, usize)>> {
        let Some((least, greatest)) = &self.record.generated_ids else { return Ok(Vec::new()) };
        let bounds = least.as_str()..=greatest.as_str();
        let mut sorted: Vec<(&str, usize)> =
            wanted.iter().enumerate().map(|(place, (id, _))| (*id, place)).collect();
        sorted.retain(|(id, _)| bounds.contains(id));
        sorted.sort_unstable();
        let Some(root) = self.named_root(layout::ID)?.filter(|_| !sorted.is_empty()) else {
            return Ok(Vec::new());
        };
        let mut candidates = RoaringBitmap::new();
        self.for_each_page(root, |rows, bounds, _| {
            if let Bounds::Bytes(min, max) = bounds {
                let first = sorted.partition_point(|(id, _)| id.as_bytes() < min);
                if sorted.get(first).is_some_and(|(id, _)| id.as_bytes() <= max) {
                    candidates.insert_range(rows);
                }
            }
        })?;
        let (mut rows, mut found) = (candidates.iter(), Vec::with_capacity(sorted.len()));
        self.read_named(&[layout::ID], Some(&candidates), |batch| {
            let ids = batch.column(0).as_string_view();
            for (at, row) in (0..ids.len()).zip(rows.by_ref()) {
                let id = ids.value(at);
                let first = sorted.partition_point(|(wanted, _)| *wanted < id);
                let same = sorted[first..].iter().take_while(|(wanted, _)| *wanted == id);
                found.extend(same.map(|(_, place)| (row, *place)));
            }
            true
        })?;
        Ok(found)
    }

    fn find_generated(&self, wanted: &[(&str, Fingerprint)]) -> Result<Vec<(usize, DocumentLocation)>> {
        let found = self.rows_of_generated(wanted)?;
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let rows: RoaringBitmap = found.iter().map(|(row, _)| *row).collect();
        let constants = *self.constants()?;
        let mut names = vec![layout::SEQ_NO];
        for (name, constant) in [layout::VERSION, layout::PRIMARY_TERM].into_iter().zip(constants) {
            if constant.is_none() {
                names.push(name);
            }
        }
        let (mut numbers, mut found) = (rows.iter(), found.into_iter().peekable());
        let mut located = Vec::with_capacity(found.len());
        self.read_named(&names, Some(&rows), |batch| {
            let value = |name: &str, at| {
                batch.column_by_name(name).map_or(0, |a| a.as_primitive::<UInt64Type>().value(at))
            };
            for (at, row) in (0..batch.num_rows()).zip(numbers.by_ref()) {
                let location = DocumentLocation {
                    row,
                    version: constants[0].unwrap_or_else(|| value(layout::VERSION, at)),
                    seq_no: value(layout::SEQ_NO, at),
                    primary_term: constants[1].unwrap_or_else(|| value(layout::PRIMARY_TERM, at)),
                };
                while let Some((_, place)) = found.next_if(|(of, _)| *of == row) {
                    located.push((place, location));
                }
            }
            true
        })?;
        Ok(located)
    }
}
