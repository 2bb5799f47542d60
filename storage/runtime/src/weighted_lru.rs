//! Cache of values that are made once, within a bound over all of it.

use std::hash::Hash;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::{Mutex, MutexGuard};

use crate::Result;

/// Bytes that are kept where nothing else is said: 64 MiB.
pub const MAX_BYTES: usize = 64 << 20;
/// Bytes that an entry costs beside its value, about.
const ENTRY_BYTES: usize = 192;

/// A value that is kept; who asks for it gets a clone.
pub trait CachedValue: Clone {
    /// Counts the bytes of memory that it takes.
    fn heap_bytes(&self) -> usize;
}

/// A value, once it was made.
type Slot<V> = Arc<Mutex<Option<V>>>;

/// Values by key, least recently used out first.
///
/// Beyond the bound the oldest are let go of, and are made again when they are next asked for.
#[derive(Debug)]
pub struct KeptCache<K: Hash + Eq, V> {
    max_bytes: usize,
    kept: Mutex<CacheEntry<K, V>>,
}

#[derive(Debug)]
struct CacheEntry<K: Hash + Eq, V> {
    /// Each with the bytes that it stands for.
    slots: LruCache<K, (Slot<V>, usize)>,
    bytes: usize,
}

impl<K: Hash + Eq + Clone, V: CachedValue> Default for KeptCache<K, V> {
    fn default() -> Self {
        Self::new(MAX_BYTES)
    }
}

impl<K: Hash + Eq + Clone, V: CachedValue> KeptCache<K, V> {
    fn new(max_bytes: usize) -> Self {
        Self { max_bytes, kept: Mutex::new(CacheEntry { slots: LruCache::unbounded(), bytes: 0 }) }
    }

    /// Returns a value, if it is there.
    pub fn get(&self, key: &K) -> Option<V> {
        let slot = Arc::clone(&self.kept.lock().slots.get(key)?.0);
        slot.try_lock()?.clone()
    }

    /// Returns a value; whoever comes first makes it, the others wait.
    pub fn of(&self, key: K, make: impl FnOnce() -> Result<V>) -> Result<V> {
        let slot = self.slot(&key);
        let known = slot.lock();
        self.filled(&key, &slot, known, make)
    }

    /// Returns a value as [`KeptCache::of`] does; nothing while another makes it.
    pub fn try_of(&self, key: K, make: impl FnOnce() -> Result<V>) -> Result<Option<V>> {
        let slot = self.slot(&key);
        let Some(known) = slot.try_lock() else { return Ok(None) };
        self.filled(&key, &slot, known, make).map(Some)
    }

    fn filled(
        &self,
        key: &K,
        slot: &Slot<V>,
        mut known: MutexGuard<'_, Option<V>>,
        make: impl FnOnce() -> Result<V>,
    ) -> Result<V> {
        if let Some(known) = &*known {
            return Ok(known.clone());
        }
        let made = make()?;
        *known = Some(made.clone());
        drop(known);
        self.grow(key, slot, ENTRY_BYTES + made.heap_bytes());
        Ok(made)
    }

    fn slot(&self, key: &K) -> Slot<V> {
        let mut kept = self.kept.lock();
        if let Some((slot, _)) = kept.slots.get(key) {
            return Arc::clone(slot);
        }
        let slot = Slot::default();
        kept.slots.put(key.clone(), (Arc::clone(&slot), ENTRY_BYTES));
        kept.bytes += ENTRY_BYTES;
        kept.shrink(self.max_bytes);
        slot
    }

    /// Takes note of the bytes of a slot that is filled now.
    fn grow(&self, key: &K, slot: &Slot<V>, bytes: usize) {
        let mut kept = self.kept.lock();
        if let Some((known, of_slot)) = kept.slots.peek_mut(key)
            && Arc::ptr_eq(known, slot)
        {
            let before = std::mem::replace(of_slot, bytes);
            kept.bytes = kept.bytes + bytes - before;
            kept.shrink(self.max_bytes);
        }
    }
}

impl<K: Hash + Eq, V> CacheEntry<K, V> {
    fn shrink(&mut self, max_bytes: usize) {
        while self.bytes > max_bytes
            && let Some((_, (_, bytes))) = self.slots.pop_lru()
        {
            self.bytes -= bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value of so many bytes.
    #[derive(Clone, Debug, PartialEq)]
    struct SizedValue(usize);

    impl CachedValue for SizedValue {
        fn heap_bytes(&self) -> usize {
            self.0
        }
    }

    #[test]
    fn all_values_together_keep_their_bound() {
        let one = ENTRY_BYTES + 1_000;
        let cache = KeptCache::new(10 * one);
        let again = |number: u32| {
            let mut made = false;
            let make = || {
                made = true;
                Ok(SizedValue(1_000))
            };
            cache.of(number, make).unwrap();
            made
        };
        for number in 0..100 {
            assert!(again(number));
            assert!(!again(0), "{number}");
            assert!(cache.kept.lock().bytes <= 10 * one);
        }
        assert!(!again(99) && again(50));
        // What takes nothing is known to.
        for number in 1_000..2_000 {
            cache.of(number, || Ok(SizedValue(0))).unwrap();
        }
        let kept = cache.kept.lock();
        assert!(kept.bytes <= 10 * one && kept.slots.len() * ENTRY_BYTES == kept.bytes);
    }

    #[test]
    fn an_error_is_not_kept() {
        let cache = KeptCache::new(1 << 20);
        cache.of(0, || Err(crate::Error::Rejected("later".to_owned()))).unwrap_err();
        assert_eq!(cache.of(0, || Ok(SizedValue(1))).unwrap(), SizedValue(1));
    }
}
