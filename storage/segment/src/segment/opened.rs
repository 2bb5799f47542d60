//! The opened forms of the files of stored segments: footers, bundles, sidecars.
//!
//! Who uses one holds it: a search for as long as it reads a segment, a write while it looks for ids. A segment itself
//! keeps a [`Slot`], by which a form that is open is found without a lock that others share, and nothing that keeps
//! it open. [`OpenedCache`] keeps the forms that were used last, so that the next search finds them.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use lru::LruCache;
use millrace_runtime::Result;
use parking_lot::Mutex;
use uuid::Uuid;

/// Bytes of opened forms that are kept beside those in use: 256 MiB.
const MAX_BYTES: usize = 256 << 20;
/// Opened forms that are kept beside those in use. Each may have a memory map, of which Linux allows a process 65,530.
const MAX_COUNT: usize = 32_768;
/// Bytes that an entry costs beside what it keeps, about: the entries here and of the kernel.
const ENTRY_BYTES: usize = 512;

/// A file of a segment.
pub(super) type FileKey = (Uuid, FileKind);

/// Kind of a segment's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum FileKind {
    /// `data.parquet`, of which the footer is kept.
    Data,
    /// `index.bundle`.
    Bundle,
    /// `ids`.
    Ids,
}

impl FileKind {
    pub(super) const ALL: [Self; 3] = [Self::Data, Self::Bundle, Self::Ids];
}

/// Time of the last use, by the clock of an [`OpenedCache`].
pub(super) type LastUse = Arc<AtomicU64>;

/// Slot through which a segment finds the opened form of a file while anybody keeps it.
pub(super) struct Slot<T> {
    opened: Mutex<Weak<T>>,
    /// One opens at a time.
    opening: Mutex<()>,
    used: LastUse,
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self { opened: Mutex::default(), opening: Mutex::default(), used: LastUse::default() }
    }
}

impl<T> fmt::Debug for Slot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("open", &(self.opened.lock().strong_count() > 0)).finish_non_exhaustive()
    }
}

impl<T> Slot<T> {
    /// Returns the time of the file's last use.
    pub(super) fn used(&self) -> &LastUse {
        &self.used
    }
}

/// Figures of a cache since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheFigures {
    /// Requests for what was there.
    pub hits: u64,
    /// Requests for what was not there.
    pub misses: u64,
    /// Bytes of what is there.
    pub bytes: u64,
    /// Bound on the bytes.
    pub limit: u64,
}

/// The opened forms that were used last, least recently used out first.
///
/// Bounded in bytes and in number. What is beyond is let go of, and lives on for as long as somebody uses it: forms in use come
/// on top of the bound. A use is noted in the file's [`Slot`] and looked at when room is needed, so that it costs no
/// lock here.
#[derive(Debug)]
pub struct OpenedCache {
    max_bytes: usize,
    max_count: usize,
    /// Counts what was opened.
    clock: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
    kept: Mutex<CacheEntry>,
}

#[derive(Debug)]
struct CacheEntry {
    entries: LruCache<FileKey, Entry>,
    bytes: usize,
}

struct Entry {
    _opened: Arc<dyn Any + Send + Sync>,
    bytes: usize,
    used: LastUse,
    /// The use that its place in the order stands for.
    seen: u64,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Default for OpenedCache {
    fn default() -> Self {
        Self::new(MAX_BYTES, MAX_COUNT)
    }
}

impl OpenedCache {
    pub(super) fn new(max_bytes: usize, max_count: usize) -> Self {
        let kept = Mutex::new(CacheEntry { entries: LruCache::unbounded(), bytes: 0 });
        let (hits, misses) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { max_bytes, max_count, clock: AtomicU64::new(1), hits, misses, kept }
    }

    /// Returns the opened form of a file, if anybody keeps it.
    pub(super) fn get<T>(&self, slot: &Slot<T>) -> Option<Arc<T>> {
        let opened = slot.opened.lock().upgrade()?;
        let now = self.clock.load(Ordering::Relaxed);
        if slot.used.load(Ordering::Relaxed) < now {
            slot.used.store(now, Ordering::Relaxed);
        }
        self.hits.fetch_add(1, Ordering::Relaxed);
        Some(opened)
    }

    /// Reads the figures of the cache.
    pub fn figures(&self) -> CacheFigures {
        let bytes = self.kept.lock().bytes as u64;
        let [hits, misses] = [&self.hits, &self.misses].map(|counter| counter.load(Ordering::Relaxed));
        CacheFigures { hits, misses, bytes, limit: self.max_bytes as u64 }
    }

    /// Returns the opened form of a file, made by `open`, which tells the bytes that it takes, where nobody keeps it.
    /// Whoever comes meanwhile waits.
    pub(super) fn get_or_open<T: Send + Sync + 'static>(
        &self,
        slot: &Slot<T>,
        key: FileKey,
        open: impl FnOnce() -> Result<(T, usize)>,
    ) -> Result<Arc<T>> {
        // Who opens may wait for the network.
        let _one = match slot.opening.try_lock() {
            Some(one) => one,
            None => millrace_runtime::wait_for_network(|| slot.opening.lock())?,
        };
        if let Some(opened) = self.get(slot) {
            return Ok(opened);
        }
        self.misses.fetch_add(1, Ordering::Relaxed);
        let (opened, bytes) = open()?;
        let opened = Arc::new(opened);
        *slot.opened.lock() = Arc::downgrade(&opened);
        self.keep(key, Arc::clone(&opened) as Arc<dyn Any + Send + Sync>, bytes, &slot.used);
        Ok(opened)
    }

    fn keep(&self, key: FileKey, opened: Arc<dyn Any + Send + Sync>, bytes: usize, used: &LastUse) {
        let seen = self.clock.fetch_add(1, Ordering::Relaxed);
        used.store(seen, Ordering::Relaxed);
        let bytes = bytes + ENTRY_BYTES;
        // Unmapping a file takes its time.
        let mut let_go = Vec::new();
        {
            let mut kept = self.kept.lock();
            kept.bytes += bytes;
            if let Some(before) =
                kept.entries.put(key, Entry { _opened: opened, bytes, used: Arc::clone(used), seen })
            {
                kept.bytes -= before.bytes;
                let_go.push(before);
            }
            let mut chances = kept.entries.len();
            while (kept.bytes > self.max_bytes || kept.entries.len() > self.max_count)
                && let Some((key, mut entry)) = kept.entries.pop_lru()
            {
                let used = entry.used.load(Ordering::Relaxed);
                if used > entry.seen && chances > 0 {
                    chances -= 1;
                    entry.seen = used;
                    kept.entries.put(key, entry);
                    continue;
                }
                kept.bytes -= entry.bytes;
                let_go.push(entry);
            }
        }
    }

    /// Keeps the opened form of a file no longer.
    pub(super) fn forget(&self, key: FileKey) {
        let entry = {
            let mut kept = self.kept.lock();
            let entry = kept.entries.pop(&key);
            kept.bytes -= entry.as_ref().map_or(0, |entry| entry.bytes);
            entry
        };
        drop(entry);
    }

    /// Counts what is kept, and its bytes.
    #[cfg(test)]
    pub(super) fn kept(&self) -> (usize, usize) {
        let kept = self.kept.lock();
        (kept.entries.len(), kept.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u128) -> FileKey {
        (Uuid::from_u128(number), FileKind::Bundle)
    }

    #[test]
    fn the_least_recently_used_go_first_and_those_in_use_live_on() {
        let cache = OpenedCache::new(usize::MAX, 4);
        let slots: Vec<Slot<u128>> = (0..10).map(|_| Slot::default()).collect();
        let open = |number: usize| {
            cache.get_or_open(&slots[number], key(number as u128), || Ok((number as u128, 1)))
        };
        let held = open(0).unwrap();
        for number in 1..10 {
            drop(open(number).unwrap());
            // Used by whoever asks for it.
            assert!(cache.get(&slots[1]).is_some());
            assert_eq!(cache.kept().0, (number + 1).min(4));
        }
        let open_now: Vec<usize> = (0..10).filter(|number| cache.get(&slots[*number]).is_some()).collect();
        assert_eq!(open_now, [0, 1, 7, 8, 9]);
        drop(held);
        assert!(cache.get(&slots[0]).is_none());
        assert_eq!(*open(0).unwrap(), 0);
        cache.forget(key(0));
        assert!(cache.get(&slots[0]).is_none());
    }

    #[test]
    fn bytes_are_bounded() {
        let cache = OpenedCache::new(10 * (1_000 + ENTRY_BYTES), usize::MAX);
        for number in 0..100 {
            cache.get_or_open(&Slot::<u8>::default(), key(number), || Ok((7, 1_000))).unwrap();
        }
        assert_eq!(cache.kept(), (10, 10 * (1_000 + ENTRY_BYTES)));
        cache.get_or_open(&Slot::<u8>::default(), key(7), || Ok((7, 1 << 30))).unwrap();
        assert_eq!(cache.kept(), (0, 0));
    }

    #[test]
    fn one_of_many_opens() {
        let (cache, slot, opened) = (OpenedCache::default(), Slot::default(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let open = || Ok((opened.fetch_add(1, Ordering::Relaxed), 1));
                    assert_eq!(*cache.get_or_open(&slot, key(1), open).unwrap(), 0);
                });
            }
        });
        assert_eq!(opened.load(Ordering::Relaxed), 1);
    }
}
