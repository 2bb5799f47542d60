//! Reading a document by its id: what was written last, or what searches see.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use millrace_runtime::Result;
use millrace_segment::{Fingerprint, MemChunk, RowParts, Segment, StoredRow};
use roaring::RoaringBitmap;

use super::Shard;
use super::state::{Location, State};

/// Source of a document: the holder of its row stays there however the shard goes on.
enum DocumentSource {
    Tail(Arc<MemChunk>, u32),
    Segment(Arc<Segment>, u32),
}

impl Shard {
    /// Reads a document; `realtime` sees unrefreshed writes. Blocks, so compute threads call it.
    pub(crate) fn get(&self, id: &str, realtime: bool) -> Result<Option<StoredRow>> {
        self.counters.get.fetch_add(1, Ordering::Relaxed);
        if !realtime {
            self.check()?;
            return self.get_published(id);
        }
        match self.locate(id)? {
            None => Ok(None),
            Some(DocumentSource::Tail(chunk, row)) => Ok(Some(tail_row(&chunk, row))),
            Some(DocumentSource::Segment(segment, row)) => {
                Ok(segment.fetch_blocking(&[row], RowParts::ALL)?.pop())
            }
        }
    }

    fn locate(&self, id: &str) -> Result<Option<DocumentSource>> {
        let fingerprint = Fingerprint::new(id);
        // Stored segments and the id's rows in each. They are read without the lock, and only where memory
        // does not know the id. A segment that cannot be read matters if it is the one.
        let mut asked: HashMap<u64, Result<RoaringBitmap>> = HashMap::new();
        loop {
            let unasked: Vec<Arc<Segment>> = {
                let state = self.state.read();
                state.check()?;
                if let Some(found) = state.find_unflushed(id)
                    && !state.is_doubtful(&found)
                {
                    return Ok(found.location.and_then(|location| place(&state, location)));
                }
                let stored = || state.segments.iter().rev().filter(|s| s.segment.as_stored().is_some());
                let unasked = stored().filter(|s| !asked.contains_key(&s.segment.key()));
                let unasked: Vec<_> = unasked.map(|s| Arc::clone(&s.segment)).collect();
                if unasked.is_empty() {
                    for s in stored() {
                        let Some(rows) = asked.remove(&s.segment.key()) else { continue };
                        if let Some(row) = rows?.iter().find(|row| !s.live.contains(*row)) {
                            return Ok(Some(DocumentSource::Segment(Arc::clone(&s.segment), row)));
                        }
                    }
                    return Ok(None);
                }
                unasked
            };
            // Once more for those that come into being meanwhile, which are few.
            for segment in unasked {
                asked.insert(segment.key(), segment.rows_of(id, fingerprint));
            }
        }
    }

    fn get_published(&self, id: &str) -> Result<Option<StoredRow>> {
        let fingerprint = Fingerprint::new(id);
        for view in self.view().iter().rev() {
            let rows = view.segment.rows_of(id, fingerprint)?;
            if let Some(row) = rows.iter().find(|row| !view.deleted.contains(*row)) {
                return Ok(view.segment.fetch_blocking(&[row], RowParts::ALL)?.pop());
            }
        }
        Ok(None)
    }
}

fn place(state: &State, location: Location) -> Option<DocumentSource> {
    if let Some(tail) = state.frozen.iter().chain([&state.tail]).find(|tail| tail.key == location.segment) {
        return tail.chunk_of(location.row).map(|(chunk, row)| DocumentSource::Tail(Arc::clone(chunk), row));
    }
    let found = state.segments.iter().find(|s| s.segment.key() == location.segment)?;
    Some(DocumentSource::Segment(Arc::clone(&found.segment), location.row))
}

fn tail_row(chunk: &MemChunk, row: u32) -> StoredRow {
    let at = row as usize;
    StoredRow {
        row,
        id: String::from_utf8_lossy(chunk.ids.borrow(at)).into_owned(),
        version: chunk.versions[at],
        seq_no: chunk.seq_nos[at],
        primary_term: chunk.primary_term,
        routing: chunk.routings.as_ref().and_then(|r| r[at].clone()),
        source: Bytes::copy_from_slice(chunk.sources.borrow(at)),
        ignored: chunk
            .chunk
            .ignored
            .iter()
            .filter(|(ignored, _)| *ignored == row)
            .map(|(_, path)| path.to_string())
            .collect(),
    }
}
