//! The versions of ids in memory: the last operation on each id whose row no stored segment holds, and
//! tombstones.
//!
//! The map is cut into stripes, so that growing it or cleaning it up is many short pieces of work: gets
//! wait for the lock that guards it. An entry whose row was flushed says nothing any more
//! ([`Versions::flushed`]); it is taken for absent at once and removed later, stripe by stripe.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::state::Location;

/// Stripes of the map: with the million of ids beyond which a shard is flushed, some 4,000 ids each.
pub(super) const STRIPES: usize = 256;

/// The last operation on an id that is not in a stored segment, or a tombstone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VersionEntry {
    pub(crate) version: u64,
    pub(crate) seq_no: u64,
    pub(crate) primary_term: u64,
    /// Where the document is; `None` for a tombstone.
    pub(crate) location: Option<Location>,
    /// When it was deleted, for tombstones.
    pub(crate) deleted_at_ms: i64,
}

/// The versions of a shard's ids in memory.
#[derive(Debug)]
pub(crate) struct Versions {
    stripes: Vec<HashTable<(Box<str>, VersionEntry)>>,
    hasher: RandomState,
    /// Greatest key of a tail whose rows are in a stored segment, where their ids are found.
    flushed: Option<u64>,
}

impl Default for Versions {
    fn default() -> Self {
        let stripes = (0..STRIPES).map(|_| HashTable::new()).collect();
        Self { stripes, hasher: RandomState::default(), flushed: None }
    }
}

impl Versions {
    fn hash(&self, id: &str) -> (u64, usize) {
        let hash = self.hasher.hash_one(id);
        // The table itself goes by the upper and the lowest bits.
        (hash, (hash >> 32) as usize % STRIPES)
    }

    fn is_flushed(flushed: Option<u64>, entry: &VersionEntry) -> bool {
        entry.location.is_some_and(|location| Some(location.segment) <= flushed)
    }

    /// Finds what is known of an id.
    pub(crate) fn get(&self, id: &str) -> Option<&VersionEntry> {
        let (hash, stripe) = self.hash(id);
        let (_, entry) = self.stripes[stripe].find(hash, |(other, _)| **other == *id)?;
        (!Self::is_flushed(self.flushed, entry)).then_some(entry)
    }

    /// Remembers the last operation on an id.
    pub(crate) fn insert(&mut self, id: Box<str>, entry: VersionEntry) {
        let (hash, stripe) = self.hash(&id);
        let hasher = &self.hasher;
        let rehash = |(id, _): &(Box<str>, VersionEntry)| hasher.hash_one(&**id);
        match self.stripes[stripe].entry(hash, |(other, _)| *other == id, rehash) {
            Entry::Occupied(mut known) => known.get_mut().1 = entry,
            Entry::Vacant(place) => {
                place.insert((id, entry));
            }
        }
    }

    /// Counts the ids, those that are yet to be removed included.
    pub(crate) fn len(&self) -> usize {
        self.stripes.iter().map(HashTable::len).sum()
    }

    /// Takes note that the rows of all tails up to this key are in a stored segment. Keys of a shard's
    /// tails ascend, and a flush takes up all of them that are in memory.
    pub(crate) fn flushed(&mut self, key: u64) {
        self.flushed = self.flushed.max(Some(key));
    }

    /// Removes from one stripe what was flushed, and what `forget` says of the rest.
    pub(super) fn clean(&mut self, stripe: usize, forget: &dyn Fn(&VersionEntry) -> bool) {
        let flushed = self.flushed;
        let Some(table) = self.stripes.get_mut(stripe) else { return };
        table.retain(|(_, entry)| !Self::is_flushed(flushed, entry) && !forget(entry));
        if table.is_empty() {
            *table = HashTable::new();
        }
    }

    /// All entries that were not flushed.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &VersionEntry)> {
        let live = |(_, entry): &&(Box<str>, VersionEntry)| !Self::is_flushed(self.flushed, entry);
        self.stripes.iter().flatten().filter(live).map(|(id, entry)| (&**id, entry))
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
        assert_eq!((versions.len(), versions.iter().count()), (10_000, 6_667));
        for stripe in 0..STRIPES {
            versions.clean(stripe, &|entry| entry.location.is_none() && entry.version < 300);
        }
        assert_eq!(versions.len(), 6_667 - 100);
        assert!((300..10_000).all(|i| versions.get(&format!("{i}")).is_some() == before[i]));
        versions.insert("4".into(), entry(Some(2), 7));
        assert_eq!(versions.get("4").map(|e| e.version), Some(7));
    }
}
