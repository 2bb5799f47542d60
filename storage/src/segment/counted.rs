//! What was counted of columns of stored segments: rows by minute, rows by value. Counted once and kept, within a bound over
//! all segments.

use std::sync::Arc;

use arrow::array::{AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use lru::LruCache;
use parking_lot::Mutex;
use uuid::Uuid;

use super::Segment;
use super::minutes::Minutes;
use super::tally::Tally;
use crate::Result;
use crate::mapping::PathId;

/// Bytes of counts that are kept: 64 MiB.
const MAX_BYTES: usize = 64 << 20;
/// Bytes that an entry costs beside its counts, about.
const ENTRY_BYTES: usize = 192;
/// Bytes of the counts of one column of a segment, at most: whatever has more is not counted.
pub(super) const MAX_COUNTS_BYTES: usize = MAX_BYTES / 8;

/// What is counted of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum What {
    /// Rows by minute.
    Minutes,
    /// Rows by value.
    Values,
}

/// Counts of a column.
#[derive(Clone, Debug)]
pub(super) enum Counts {
    /// Rows by minute.
    Minutes(Arc<Minutes>),
    /// Rows by value.
    Values(Arc<Tally>),
    /// There are too many to be counted.
    TooMany,
}

impl Counts {
    fn bytes(&self) -> usize {
        ENTRY_BYTES
            + match self {
                Self::Minutes(minutes) => minutes.heap_bytes(),
                Self::Values(tally) => tally.heap_bytes(),
                Self::TooMany => 0,
            }
    }
}

/// A column of a segment, and what is counted of it.
pub(super) type CountKey = (Uuid, PathId, What);

/// The counts of a column, once they were made.
type Slot = Arc<Mutex<Option<Counts>>>;

/// Counts of columns, least recently used out first.
///
/// Beyond the bound the oldest are let go of, and are counted again when they are next asked for.
#[derive(Debug)]
pub(crate) struct CountCache {
    max_bytes: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug)]
struct Kept {
    /// Each with the bytes that it stands for.
    slots: LruCache<CountKey, (Slot, usize)>,
    bytes: usize,
}

impl Default for CountCache {
    fn default() -> Self {
        Self::new(MAX_BYTES)
    }
}

impl CountCache {
    fn new(max_bytes: usize) -> Self {
        Self { max_bytes, kept: Mutex::new(Kept { slots: LruCache::unbounded(), bytes: 0 }) }
    }

    /// Returns the counts of a column; whoever comes first counts, the others wait.
    pub(super) fn of(&self, key: CountKey, count: impl FnOnce() -> Result<Counts>) -> Result<Counts> {
        let slot = self.slot(key);
        let mut known = slot.lock();
        if let Some(known) = &*known {
            return Ok(known.clone());
        }
        let counts = count()?;
        *known = Some(counts.clone());
        drop(known);
        self.grow(key, &slot, counts.bytes());
        Ok(counts)
    }

    fn slot(&self, key: CountKey) -> Slot {
        let mut kept = self.kept.lock();
        if let Some((slot, _)) = kept.slots.get(&key) {
            return Arc::clone(slot);
        }
        let slot = Slot::default();
        kept.slots.put(key, (Arc::clone(&slot), ENTRY_BYTES));
        kept.bytes += ENTRY_BYTES;
        kept.shrink(self.max_bytes);
        slot
    }

    /// Takes note of the bytes of a slot that is filled now.
    fn grow(&self, key: CountKey, slot: &Slot, bytes: usize) {
        let mut kept = self.kept.lock();
        if let Some((known, of_slot)) = kept.slots.peek_mut(&key)
            && Arc::ptr_eq(known, slot)
        {
            let before = std::mem::replace(of_slot, bytes);
            kept.bytes = kept.bytes + bytes - before;
            kept.shrink(self.max_bytes);
        }
    }
}

impl Kept {
    fn shrink(&mut self, max_bytes: usize) {
        while self.bytes > max_bytes
            && let Some((_, (_, bytes))) = self.slots.pop_lru()
        {
            self.bytes -= bytes;
        }
    }
}

impl Segment {
    /// Shows the values of a column of integers or times, of which no row has several, batch by batch until `each` returns
    /// false; tells whether it never did.
    pub(super) fn all_integers(
        &self,
        column: PathId,
        mut each: impl FnMut(&Int64Array) -> bool,
    ) -> Result<bool> {
        let mut all = Ok(true);
        self.scan_blocking(&[column], None, |batch| {
            all = batch.columns.iter().try_fold(true, |all, values| {
                Ok(all && each(cast(values, &DataType::Int64)?.as_primitive::<Int64Type>()))
            });
            matches!(all, Ok(true))
        })?;
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_counts_together_keep_their_bound() {
        let tally = || Counts::Values(Arc::new(Tally::new((0..100).map(|value| (value, 1)))));
        let one = tally().bytes();
        let cache = CountCache::new(10 * one);
        let key = |number| (Uuid::from_u128(number), PathId(0), What::Values);
        let again = |number| {
            let mut counted = false;
            let count = || {
                counted = true;
                Ok(tally())
            };
            cache.of(key(number), count).unwrap();
            counted
        };
        for number in 0..100 {
            assert!(again(number));
            assert!(!again(0), "{number}");
            assert!(cache.kept.lock().bytes <= 10 * one);
        }
        assert!(!again(99) && again(50));
        // What is too many is known to be.
        for number in 1_000..2_000 {
            cache.of(key(number), || Ok(Counts::TooMany)).unwrap();
        }
        let kept = cache.kept.lock();
        assert!(kept.bytes <= 10 * one && kept.slots.len() * ENTRY_BYTES == kept.bytes);
    }

    #[test]
    fn an_error_is_not_kept() {
        let cache = CountCache::default();
        let key = (Uuid::nil(), PathId(0), What::Minutes);
        cache.of(key, || Err(crate::Error::Rejected("later".to_owned()))).unwrap_err();
        assert!(matches!(cache.of(key, || Ok(Counts::TooMany)), Ok(Counts::TooMany)));
    }
}
