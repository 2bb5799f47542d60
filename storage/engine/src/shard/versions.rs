//! The versions of ids in memory: the last operation on each id whose row no stored segment holds, and
//! tombstones.
//!
//! A large map is cut into stripes, so that growing it or cleaning it up is many short pieces of work: gets
//! wait for the lock that guards it. A shard without any has none allocated. An entry whose row was flushed says nothing any more
//! ([`Versions::flushed`]); it is taken for absent at once and removed later, stripe by stripe.

use std::hash::BuildHasher;
use std::ops::Range;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::state::Location;

/// Stripes of a large map: with the million of ids beyond which a shard is flushed, some 4,000 ids each.
const STRIPES: usize = 256;
/// Ids from which on a map is large.
const MANY: usize = 1_024;

/// The last operation on an id that is not in a stored segment, or a tombstone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VersionEntry {
    pub(crate) version: u64,
    pub(crate) seq_no: u64,
    pub(crate) primary_term: u64,
    /// Location of the document; `None` for a tombstone.
    pub(crate) location: Option<Location>,
    /// Time of the deletion, for tombstones.
    pub(crate) deleted_at_ms: i64,
}

/// The versions of a shard's ids in memory.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    /// None at first, then one, then all.
    stripes: Vec<Stripe>,
    hasher: RandomState,
    /// Greatest key of a tail whose rows are in a stored segment, where their ids are found.
    flushed: Option<u64>,
}

#[derive(Debug, Default)]
struct Stripe {
    entries: HashTable<(Box<str>, VersionEntry)>,
    /// Sequence number and time of its first tombstone, or of one that is gone since the last clean-up.
    first_tombstone: Option<(u64, i64)>,
    /// Greatest sequence number of a tombstone, or of one that is gone since the last clean-up.
    last_tombstone: u64,
    tombstones: usize,
}

impl Versions {
    /// The stripe of a hash, where there is any.
    fn stripe_of(&self, hash: u64) -> usize {
        // The table itself goes by the upper and the lowest bits.
        (hash >> 32) as usize % self.stripes.len().max(1)
    }

    fn is_flushed(flushed: Option<u64>, entry: &VersionEntry) -> bool {
        entry.location.is_some_and(|location| Some(location.segment) <= flushed)
    }

    /// Finds what is known of an id.
    pub(crate) fn get(&self, id: &str) -> Option<&VersionEntry> {
        let hash = self.hasher.hash_one(id);
        let (_, entry) =
            self.stripes.get(self.stripe_of(hash))?.entries.find(hash, |(other, _)| **other == *id)?;
        (!Self::is_flushed(self.flushed, entry)).then_some(entry)
    }

    /// Remembers the last operation on an id.
    pub(crate) fn insert(&mut self, id: Box<str>, entry: VersionEntry) {
        match self.stripes.len() {
            0 => self.stripes = vec![Stripe::default()],
            1 if self.stripes[0].entries.len() >= MANY => self.divide(),
            _ => {}
        }
        let hash = self.hasher.hash_one(&id);
        let at = self.stripe_of(hash);
        let stripe = &mut self.stripes[at];
        if entry.location.is_none() {
            let tombstone = (entry.seq_no, entry.deleted_at_ms);
            stripe.first_tombstone = stripe.first_tombstone.into_iter().chain([tombstone]).min();
            stripe.last_tombstone = stripe.last_tombstone.max(entry.seq_no);
            stripe.tombstones += 1;
        }
        let hasher = &self.hasher;
        let rehash = |(id, _): &(Box<str>, VersionEntry)| hasher.hash_one(&**id);
        match stripe.entries.entry(hash, |(other, _)| *other == id, rehash) {
            Entry::Occupied(mut known) => {
                let known = std::mem::replace(&mut known.get_mut().1, entry);
                stripe.tombstones -= usize::from(known.location.is_none());
            }
            Entry::Vacant(place) => {
                place.insert((id, entry));
            }
        }
    }

    /// Makes many stripes of the first.
    fn divide(&mut self) {
        let first = std::mem::take(&mut self.stripes);
        self.stripes.resize_with(STRIPES, Stripe::default);
        for (id, entry) in first.into_iter().flat_map(|stripe| stripe.entries) {
            self.insert(id, entry);
        }
    }

    /// Counts the ids, those that are yet to be removed included.
    pub(crate) fn len(&self) -> usize {
        self.stripes.iter().map(|stripe| stripe.entries.len()).sum()
    }

    /// Counts the tombstones.
    pub(super) fn tombstones(&self) -> usize {
        self.stripes.iter().map(|stripe| stripe.tombstones).sum()
    }

    /// Shows the tombstones of a stripe whose sequence numbers are in a range.
    pub(super) fn tombstones_of(
        &self,
        stripe: usize,
        range: &Range<u64>,
        mut each: impl FnMut(&str, &VersionEntry),
    ) {
        let stripe = self.stripes.get(stripe);
        let Some(stripe) = stripe.filter(|s| s.tombstones > 0 && s.last_tombstone >= range.start) else {
            return;
        };
        for (id, entry) in &stripe.entries {
            if entry.location.is_none() && range.contains(&entry.seq_no) {
                each(id, entry);
            }
        }
    }

    /// Returns whether a clean-up finds anything to remove in a stripe, apart from tombstones that are not to be found by their
    /// time.
    pub(super) fn needs_cleaning(&self, stripe: usize, oldest_ms: i64) -> bool {
        self.stripes.get(stripe).is_some_and(|stripe| {
            stripe.entries.len() > stripe.tombstones
                || stripe.first_tombstone.is_some_and(|(_, deleted_at_ms)| deleted_at_ms <= oldest_ms)
        })
    }

    /// Counts the stripes as of now.
    pub(super) fn stripes(&self) -> usize {
        self.stripes.len()
    }

    /// Sequence number and time of the first tombstone, or of one that is gone since the last clean-up.
    pub(super) fn first_tombstone(&self) -> Option<(u64, i64)> {
        self.stripes.iter().filter_map(|stripe| stripe.first_tombstone).min()
    }

    /// Takes note that the rows of all tails up to this key are in a stored segment. Keys of a shard's
    /// tails ascend, and a flush takes up all of them that are in memory.
    pub(crate) fn flushed(&mut self, key: u64) {
        self.flushed = self.flushed.max(Some(key));
    }

    /// Removes from one stripe what was flushed, and what `forget` says of the rest.
    pub(super) fn clean(&mut self, stripe: usize, forget: &dyn Fn(&VersionEntry) -> bool) {
        let flushed = self.flushed;
        let Some(stripe) = self.stripes.get_mut(stripe) else { return };
        stripe.entries.retain(|(_, entry)| !Self::is_flushed(flushed, entry) && !forget(entry));
        (stripe.first_tombstone, stripe.last_tombstone, stripe.tombstones) = (None, 0, 0);
        for (_, entry) in stripe.entries.iter().filter(|(_, entry)| entry.location.is_none()) {
            let tombstone = (entry.seq_no, entry.deleted_at_ms);
            stripe.first_tombstone = stripe.first_tombstone.into_iter().chain([tombstone]).min();
            stripe.last_tombstone = stripe.last_tombstone.max(entry.seq_no);
            stripe.tombstones += 1;
        }
        if stripe.entries.is_empty() {
            stripe.entries = HashTable::new();
        } else if stripe.entries.capacity() > 4 * stripe.entries.len() {
            // What a burst of deletions took is given back.
            let hasher = &self.hasher;
            stripe.entries.shrink_to_fit(|(id, _)| hasher.hash_one(&**id));
        }
        if self.stripes.iter().all(|stripe| stripe.entries.is_empty()) {
            self.stripes = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(segment: Option<u64>, version: u64) -> VersionEntry {
        let location = segment.map(|segment| Location { segment, row: 0 });
        VersionEntry { version, seq_no: version, primary_term: 1, location, deleted_at_ms: 0 }
    }

    #[test]
    fn what_was_flushed_is_absent_before_it_is_removed() {
        let mut versions = Versions::default();
        for i in 0..10_000u64 {
            versions.insert(format!("{i}").into(), entry((i % 3 > 0).then_some(i % 3), i));
        }
        versions.flushed(1);
        let found = |versions: &Versions| -> Vec<bool> {
            (0..10_000).map(|i| versions.get(&format!("{i}")).is_some()).collect()
        };
        let before = found(&versions);
        assert!((0..10_000).all(|i| before[i] == (i % 3 != 1)));
        assert_eq!((versions.len(), versions.tombstones()), (10_000, 3_334));
        assert_eq!(versions.first_tombstone(), Some((0, 0)));
        for stripe in 0..STRIPES {
            versions.clean(stripe, &|entry| entry.location.is_none() && entry.version < 300);
        }
        assert_eq!(versions.first_tombstone(), Some((300, 0)));
        assert_eq!(versions.len(), 6_667 - 100);
        assert!((300..10_000).all(|i| versions.get(&format!("{i}")).is_some() == before[i]));
        assert_eq!(versions.tombstones(), 3_334 - 100);
        let mut found = Vec::new();
        for stripe in 0..STRIPES {
            versions.tombstones_of(stripe, &(400..410), |_, entry| found.push(entry.seq_no));
        }
        found.sort_unstable();
        assert_eq!(found, [402, 405, 408]);
        versions.insert("402".into(), entry(Some(2), 7));
        assert_eq!(versions.tombstones(), 3_334 - 101);
        versions.insert("4".into(), entry(Some(2), 7));
        assert_eq!(versions.get("4").map(|e| e.version), Some(7));
    }

    #[test]
    fn few_ids_take_one_stripe_and_none_take_nothing() {
        let mut versions = Versions::default();
        assert!(versions.get("a").is_none() && versions.stripes() == 0);
        for i in 0..=MANY as u64 {
            assert_eq!(versions.stripes(), usize::from(i > 0));
            versions.insert(format!("{i}").into(), entry(None, i + 7));
        }
        assert_eq!((versions.stripes(), versions.len()), (STRIPES, MANY + 1));
        assert_eq!(versions.first_tombstone(), Some((7, 0)));
        assert!((0..=MANY as u64).all(|i| versions.get(&format!("{i}")).map(|e| e.version) == Some(i + 7)));
        (0..STRIPES).for_each(|stripe| versions.clean(stripe, &|_| true));
        assert_eq!((versions.stripes(), versions.first_tombstone()), (0, None));
    }
}
