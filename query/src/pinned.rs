//! What open contexts keep in memory: segments that were not flushed when they were taken, rows that are deleted or
//! listed in them.
//!
//! A snapshot that waits for its next page keeps its segments, also when the shard has flushed them. So whoever keeps one takes
//! it through [`Pins::hold`], which counts each part once, however many contexts have it, takes its bytes from
//! the memory of queries, and refuses what is more than its share of that. Files of stored segments are not
//! counted: they are mapped, and read from disk.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use parking_lot::Mutex;
use roaring::RoaringBitmap;

use crate::error::{Error, Result};
use crate::table::TableSnapshot;

/// The memory of all open contexts. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Pins(Arc<Mutex<Held>>);

#[derive(Debug)]
struct Held {
    parts: HashMap<Part, Holders>,
    reservation: MemoryReservation,
    limit: usize,
    refused: u64,
}

/// A part of a snapshot that lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Part {
    /// The segment of this number.
    Segment(u64),
    /// The set of rows at this address, which stays as long as somebody holds it.
    Rows(usize),
}

#[derive(Clone, Copy, Debug)]
struct Holders {
    count: usize,
    bytes: usize,
}

/// What contexts hold, and may hold, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinnedFigures {
    /// Held now.
    pub bytes: u64,
    /// Most that may be held.
    pub limit: u64,
    /// Contexts that were refused since start.
    pub refused: u64,
}

/// A snapshot that may be kept.
#[derive(Debug)]
pub(crate) struct Pinned {
    pub snapshot: Arc<TableSnapshot>,
    parts: Vec<Part>,
    pins: Pins,
}

impl Pins {
    /// Makes the memory of contexts: at most so many bytes of the pool's.
    pub(crate) fn new(pool: &Arc<dyn MemoryPool>, limit: usize) -> Self {
        let reservation = MemoryConsumer::new("open contexts").register(pool);
        Self(Arc::new(Mutex::new(Held { parts: HashMap::new(), reservation, limit, refused: 0 })))
    }

    /// Keeps a snapshot until the result is dropped.
    ///
    /// # Errors
    /// [`Error::CircuitBreaking`] where contexts may not hold so much.
    pub(crate) fn hold(&self, snapshot: &Arc<TableSnapshot>) -> Result<Pinned> {
        let mut wanted: HashMap<Part, usize> = HashMap::new();
        for segment in &snapshot.segments {
            if let Some((number, bytes)) = segment.reader.in_memory() {
                wanted.insert(Part::Segment(number), usize::try_from(bytes).unwrap_or(usize::MAX));
            }
            if !segment.deleted.is_empty() {
                let rows = Arc::as_ptr(&segment.deleted) as usize;
                wanted.insert(Part::Rows(rows), segment.deleted.serialized_size());
            }
        }
        if let Some(listed) = &snapshot.listed {
            let bytes = listed.values().map(RoaringBitmap::serialized_size).sum();
            wanted.insert(Part::Rows(Arc::as_ptr(listed) as usize), bytes);
        }
        let mut held = self.0.lock();
        held.take(&wanted)?;
        Ok(Pinned { snapshot: Arc::clone(snapshot), parts: wanted.into_keys().collect(), pins: self.clone() })
    }

    /// Notes that a context was refused for its memory.
    pub(crate) fn refused(&self) {
        self.0.lock().refused += 1;
    }

    pub(crate) fn figures(&self) -> PinnedFigures {
        let held = self.0.lock();
        PinnedFigures {
            bytes: held.reservation.size() as u64,
            limit: held.limit as u64,
            refused: held.refused,
        }
    }
}

impl Held {
    fn take(&mut self, wanted: &HashMap<Part, usize>) -> Result<()> {
        let unknown = wanted.iter().filter(|(part, _)| !self.parts.contains_key(part));
        let more = unknown.fold(0usize, |sum, (_, bytes)| sum.saturating_add(*bytes));
        let held = self.reservation.size();
        if held.saturating_add(more) > self.limit {
            return Err(Error::CircuitBreaking(format!(
                "open scrolls, points in time and cursors hold [{held}] bytes of [{}] in memory, and one more needs [{more}]; close those that are done",
                self.limit
            )));
        }
        self.reservation.try_grow(more)?;
        for (part, bytes) in wanted {
            self.parts.entry(*part).or_insert(Holders { count: 0, bytes: *bytes }).count += 1;
        }
        Ok(())
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let mut held = self.pins.0.lock();
        let mut freed = 0;
        for part in &self.parts {
            let Some(holders) = held.parts.get_mut(part) else { continue };
            holders.count -= 1;
            if holders.count == 0 {
                freed += holders.bytes;
                held.parts.remove(part);
            }
        }
        held.reservation.shrink(freed);
    }
}

#[cfg(test)]
mod tests {
    use datafusion::execution::memory_pool::GreedyMemoryPool;

    use super::*;
    use crate::score::fixture::Fixture;
    use crate::table::TableSegment;

    fn snapshot(deleted: &[&Arc<RoaringBitmap>]) -> Arc<TableSnapshot> {
        let of = |deleted: &&Arc<RoaringBitmap>| TableSegment {
            index: 0,
            shard: 0,
            reader: Fixture::new(&[]),
            deleted: Arc::clone(deleted),
        };
        Arc::new(TableSnapshot { segments: deleted.iter().map(of).collect(), ..TableSnapshot::default() })
    }

    #[test]
    fn what_several_hold_is_counted_once_and_given_back_by_the_last() {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(1 << 20));
        let (a, b): (Arc<RoaringBitmap>, Arc<RoaringBitmap>) =
            (Arc::new((0..100).step_by(3).collect()), Arc::new((0..1_000).step_by(3).collect()));
        let (small, large) = (a.serialized_size(), b.serialized_size());
        let pins = Pins::new(&pool, small + large);
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
    fn the_memory_of_queries_bounds_it_too() {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(100));
        let pins = Pins::new(&pool, usize::MAX);
        let rows: Arc<RoaringBitmap> = Arc::new((0..10_000).step_by(3).collect());
        assert_eq!(pins.hold(&snapshot(&[&rows])).unwrap_err().status(), 429);
        assert_eq!((pool.reserved(), pins.0.lock().parts.len()), (0, 0));
    }
}
