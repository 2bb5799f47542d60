//! Resources that open contexts keep. In memory: segments that were not flushed at their opening, rows that are deleted or listed
//! in them, queries of scrolls. On disk: files of segments that were replaced meanwhile.
//!
//! A snapshot that waits for its next page keeps its segments, also when the shard has flushed them. So whoever keeps one takes
//! it through [`PinnedMemory::hold`], which counts each part once, however many contexts have it, takes its bytes from
//! the memory of queries, and refuses what is more than its share of that. Files of stored segments take no memory: they
//! are mapped, and read from disk.
//!
//! Files that are still in use by their shard cost nothing either. Those that compaction has replaced, and those of
//! deleted indices, are kept for contexts alone. They are counted, each segment once, when somebody asks ([`PinnedMemory::figures`]), and
//! while they take more than what is free beside them ([`may_keep_more`]) no scroll or point in time is opened. What is
//! open is not ended for that: it pins no more than the files that there were when it was opened, and ends in its time.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use millrace_segment::StoredFiles;
use millrace_work::error::{Error, Result};
use parking_lot::Mutex;
use roaring::RoaringBitmap;

use crate::table::snapshot::TableSnapshot;

/// The memory of all open contexts. Clones share it.
#[derive(Clone, Debug)]
pub struct PinnedMemory(Arc<Mutex<PinReservation>>);

#[derive(Debug)]
struct PinReservation {
    parts: HashMap<PinnedPart, PinHolders>,
    reservation: MemoryReservation,
    limit: usize,
    refused: u64,
    /// Stored segments by number, with how many contexts have them.
    files: HashMap<u64, (StoredFiles, usize)>,
}

/// A part of a snapshot that lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum PinnedPart {
    /// The segment of this number.
    Segment(u64),
    /// The set of rows at this address, which stays as long as somebody holds it.
    Rows(usize),
}

#[derive(Clone, Copy, Debug)]
struct PinHolders {
    count: usize,
    bytes: usize,
}

/// Bytes that contexts hold, and may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinnedFigures {
    /// Held now.
    pub bytes: u64,
    /// Most that may be held.
    pub limit: u64,
    /// Contexts that were refused since start.
    pub refused: u64,
    /// Bytes of files of replaced segments that are kept for contexts.
    pub replaced: u64,
}

/// Bytes of replaced segments that contexts may always keep.
const KEPT_ALWAYS: u64 = 1 << 30;

/// Returns whether one more context may keep files, where so many bytes are kept of replaced segments and so many are free: no
/// more than half of what there would be without them.
pub fn may_keep_more(replaced: u64, free: u64) -> bool {
    replaced <= KEPT_ALWAYS.max(free)
}

impl PinnedFigures {
    /// Returns whether so much is kept that it depends on what is free whether there may be more.
    pub fn keeps_much(&self) -> bool {
        self.replaced > KEPT_ALWAYS
    }
}

/// A snapshot that may be kept.
#[derive(Debug)]
pub struct PinnedSnapshot {
    /// The snapshot.
    pub snapshot: Arc<TableSnapshot>,
    parts: Vec<PinnedPart>,
    /// Numbers of the stored segments.
    files: Vec<u64>,
    /// Bytes of what is to be asked of it.
    asked: usize,
    pins: PinnedMemory,
}

impl PinnedMemory {
    /// Makes the memory of contexts: at most so many bytes of the pool's.
    pub fn new(pool: &Arc<dyn MemoryPool>, limit: usize) -> Self {
        let reservation = MemoryConsumer::new("open contexts").register(pool);
        Self(Arc::new(Mutex::new(PinReservation {
            parts: HashMap::new(),
            reservation,
            limit,
            refused: 0,
            files: HashMap::new(),
        })))
    }

    /// Keeps a snapshot until the result is dropped.
    ///
    /// # Errors
    /// [`Error::CircuitBreaking`] where contexts may not hold so much.
    pub fn hold(&self, snapshot: &Arc<TableSnapshot>) -> Result<PinnedSnapshot> {
        self.hold_with(snapshot, 0)
    }

    /// Keeps a snapshot, as [`PinnedMemory::hold`] does, and beside it so many bytes of what is to be asked of it.
    ///
    /// # Errors
    /// As [`PinnedMemory::hold`].
    pub fn hold_with(&self, snapshot: &Arc<TableSnapshot>, asked: usize) -> Result<PinnedSnapshot> {
        let wanted = wanted(snapshot);
        let mut stored: HashMap<u64, StoredFiles> = HashMap::new();
        for files in snapshot.segments.iter().filter_map(|segment| segment.reader.stored_files()) {
            stored.insert(files.key, files);
        }
        let mut held = self.0.lock();
        held.take(&wanted, asked)?;
        let (parts, files) = (wanted.into_keys().collect(), stored.keys().copied().collect());
        for (number, own) in stored {
            held.files.entry(number).or_insert((own, 0)).1 += 1;
        }
        drop(held);
        Ok(PinnedSnapshot { snapshot: Arc::clone(snapshot), parts, files, asked, pins: self.clone() })
    }

    /// Returns whether a snapshot may be kept, with so many bytes of what is to be asked of it, once its segments in memory are
    /// files.
    pub fn fits_flushed(&self, snapshot: &TableSnapshot, asked: usize) -> bool {
        let mut wanted = wanted(snapshot);
        wanted.retain(|part, _| !matches!(part, PinnedPart::Segment(_)));
        self.0.lock().check(&wanted, asked).is_ok()
    }

    /// Notes that a context was refused for its memory.
    pub fn refused(&self) {
        self.0.lock().refused += 1;
    }

    /// Returns the held bytes, and their bound.
    pub fn figures(&self) -> PinnedFigures {
        let held = self.0.lock();
        PinnedFigures {
            bytes: held.reservation.size() as u64,
            limit: held.limit as u64,
            refused: held.refused,
            replaced: held.replaced(),
        }
    }
}

/// The parts of a snapshot that take memory, and how much.
fn wanted(snapshot: &TableSnapshot) -> HashMap<PinnedPart, usize> {
    let mut wanted = HashMap::new();
    for segment in &snapshot.segments {
        if let Some((number, bytes)) = segment.reader.in_memory() {
            wanted.insert(PinnedPart::Segment(number), usize::try_from(bytes).unwrap_or(usize::MAX));
        }
        if !segment.deleted.is_empty() {
            let rows = Arc::as_ptr(&segment.deleted) as usize;
            wanted.insert(PinnedPart::Rows(rows), segment.deleted.serialized_size());
        }
    }
    if let Some(listed) = &snapshot.listed {
        let bytes = listed.values().map(RoaringBitmap::serialized_size).sum();
        wanted.insert(PinnedPart::Rows(Arc::as_ptr(listed) as usize), bytes);
    }
    wanted
}

impl PinReservation {
    /// Counts the bytes of files that nobody but contexts keeps.
    fn replaced(&self) -> u64 {
        let files = self.files.values().filter(|(files, _)| files.are_replaced());
        files.fold(0, |sum, (files, _)| sum.saturating_add(files.bytes))
    }

    /// Returns the bytes that come on top with what is wanted.
    fn check(&self, wanted: &HashMap<PinnedPart, usize>, asked: usize) -> Result<usize> {
        let unknown = wanted.iter().filter(|(part, _)| !self.parts.contains_key(part));
        let more = unknown.fold(asked, |sum, (_, bytes)| sum.saturating_add(*bytes));
        let held = self.reservation.size();
        if held.saturating_add(more) > self.limit {
            return Err(Error::CircuitBreaking(format!(
                "open scrolls, points in time and cursors hold [{held}] bytes of [{}] in memory, and one more needs [{more}]; close those that are done",
                self.limit
            )));
        }
        Ok(more)
    }

    fn take(&mut self, wanted: &HashMap<PinnedPart, usize>, asked: usize) -> Result<()> {
        self.reservation.try_grow(self.check(wanted, asked)?)?;
        for (part, bytes) in wanted {
            self.parts.entry(*part).or_insert(PinHolders { count: 0, bytes: *bytes }).count += 1;
        }
        Ok(())
    }
}

impl Drop for PinnedSnapshot {
    fn drop(&mut self) {
        let mut held = self.pins.0.lock();
        let mut freed = self.asked;
        for part in &self.parts {
            let Some(holders) = held.parts.get_mut(part) else { continue };
            holders.count -= 1;
            if holders.count == 0 {
                freed += holders.bytes;
                held.parts.remove(part);
            }
        }
        held.reservation.shrink(freed);
        for number in &self.files {
            let Some((_, count)) = held.files.get_mut(number) else { continue };
            *count -= 1;
            if *count == 0 {
                held.files.remove(number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use datafusion::execution::memory_pool::GreedyMemoryPool;
    use millrace_scoring::fixture::Fixture;

    use super::*;
    use crate::table::snapshot::TableSegment;

    fn snapshot(deleted: &[&Arc<RoaringBitmap>]) -> Arc<TableSnapshot> {
        let of = |deleted: &&Arc<RoaringBitmap>| TableSegment {
            index: 0,
            shard: 0,
            reader: Fixture::new(&[]),
            deleted: Arc::clone(deleted),
            ruled: None,
        };
        Arc::new(TableSnapshot { segments: deleted.iter().map(of).collect(), ..TableSnapshot::default() })
    }

    #[test]
    fn what_several_hold_is_counted_once_and_given_back_by_the_last() {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(1 << 20));
        let (a, b): (Arc<RoaringBitmap>, Arc<RoaringBitmap>) =
            (Arc::new((0..100).step_by(3).collect()), Arc::new((0..1_000).step_by(3).collect()));
        let (small, large) = (a.serialized_size(), b.serialized_size());
        let pins = PinnedMemory::new(&pool, small + large);
        let first = pins.hold(&snapshot(&[&a])).unwrap();
        let second = pins.hold(&snapshot(&[&a, &b])).unwrap();
        assert_eq!(pool.reserved(), small + large);
        let one_more = Arc::new(RoaringBitmap::from_iter([7]));
        let error = pins.hold(&snapshot(&[&one_more])).unwrap_err();
        assert_eq!((error.status(), error.error_type().as_str()), (429, "circuit_breaking_exception"));
        drop(first);
        assert_eq!(pins.figures().bytes as usize, small + large);
        drop(second);
        assert_eq!((pool.reserved(), pins.0.lock().parts.len()), (0, 0));
        pins.hold(&snapshot(&[&one_more])).unwrap();
    }

    #[test]
    fn replaced_files_may_take_half_of_the_space_or_a_little() {
        assert!(may_keep_more(KEPT_ALWAYS, 0) && !may_keep_more(KEPT_ALWAYS + 1, 0));
        assert!(may_keep_more(5 << 30, 5 << 30) && !may_keep_more(5 << 30, (5 << 30) - 1));
    }

    #[test]
    fn the_memory_of_queries_bounds_it_too() {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(100));
        let pins = PinnedMemory::new(&pool, usize::MAX);
        let rows: Arc<RoaringBitmap> = Arc::new((0..10_000).step_by(3).collect());
        assert_eq!(pins.hold(&snapshot(&[&rows])).unwrap_err().status(), 429);
        assert_eq!((pool.reserved(), pins.0.lock().parts.len()), (0, 0));
    }
}
