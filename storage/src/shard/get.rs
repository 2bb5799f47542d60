//! Reading a document by its id: what was written last, or what searches see.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::Shard;
use super::state::{Location, Probed, State};
use crate::Result;
use crate::segment::{Fingerprint, MemChunk, RowParts, Segment, StoredRow};

/// Times that a get asks segments that came into being while it asked others, before it has the
/// last of them asked under the lock.
const ATTEMPTS: usize = 4;

/// Where a document was found: what holds its row stays there however the shard goes on.
enum Place {
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
            Some(Place::Tail(chunk, row)) => Ok(Some(tail_row(&chunk, row))),
            Some(Place::Segment(segment, row)) => Ok(segment.fetch_blocking(&[row], RowParts::ALL)?.pop()),
        }
    }

    fn locate(&self, id: &str) -> Result<Option<Place>> {
        let mut probed = Probed::default();
        for attempt in 0.. {
            let state = self.state.read();
            state.check()?;
            let found = match state.find_unflushed(id) {
                Some(found) => Some(found),
                None => {
                    // Files are read without the lock, and only where memory does not know the id.
                    let unprobed = state.unprobed(&probed);
                    if !unprobed.is_empty() && attempt < ATTEMPTS {
                        drop(state);
                        probed.ask(&unprobed, std::iter::once(id));
                        continue;
                    }
                    state.find(id, &probed)?
                }
            };
            return Ok(found.and_then(|found| found.location).and_then(|location| place(&state, location)));
        }
        Ok(None)
    }

    fn get_published(&self, id: &str) -> Result<Option<StoredRow>> {
        let fingerprint = Fingerprint::of(id);
        for view in self.view().iter().rev() {
            for located in view.segment.find(id, fingerprint)? {
                if !view.deleted.contains(located.row) {
                    return Ok(view.segment.fetch_blocking(&[located.row], RowParts::ALL)?.pop());
                }
            }
        }
        Ok(None)
    }
}

fn place(state: &State, location: Location) -> Option<Place> {
    if let Some(tail) = state.frozen.iter().chain([&state.tail]).find(|tail| tail.key == location.segment) {
        return tail.chunk_of(location.row).map(|(chunk, row)| Place::Tail(Arc::clone(chunk), row));
    }
    let found = state.segments.iter().find(|s| s.segment.key() == location.segment)?;
    Some(Place::Segment(Arc::clone(&found.segment), location.row))
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
