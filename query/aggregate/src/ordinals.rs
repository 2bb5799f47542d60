//! Numbers of buckets: a bucket is a key below a bucket of the level above, and gets the next number.
//!
//! [`Ordinals`] finds the number of a pair of parent and key; [`Interner`] gives strings numbers that
//! stand for them as keys. Both only grow while rows are collected, and tell their size so that the
//! operator can account for it.

use std::hash::BuildHasher;

use arrow::array::StringViewArray;
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable};

/// A parent that no bucket has: results of a bucket without documents.
pub(crate) const NONE: u32 = u32::MAX;

/// Keys below which numbers are looked up in a list, for the one parent of a top level.
const DENSE_KEYS: u64 = 1 << 20;

/// Numbers by the hash of what they stand for. 32 bits of it are kept, so that the table grows, and passes by what is
/// different, without looking at that.
#[derive(Debug, Default)]
pub(super) struct Numbers(HashTable<(u32, u32)>);

impl Numbers {
    /// Finds a number of a hash that is the `same`.
    #[inline]
    pub(super) fn find(&self, hash: u64, mut same: impl FnMut(u32) -> bool) -> Option<u32> {
        let own = Self::kept(hash);
        let found = self.0.find(Self::spread(own), |(hash, number)| *hash == own && same(*number));
        found.map(|(_, number)| *number)
    }

    /// Adds a number that is not there.
    #[inline]
    pub(super) fn insert(&mut self, hash: u64, number: u32) {
        let own = Self::kept(hash);
        self.0.insert_unique(Self::spread(own), (own, number), |(hash, _)| Self::spread(*hash));
    }

    /// Makes room for so many more.
    pub(super) fn reserve(&mut self, more: usize) {
        self.0.reserve(more, |(hash, _)| Self::spread(*hash));
    }

    /// Estimates the bytes held.
    pub(super) fn memory(&self) -> usize {
        self.0.capacity() * 9
    }

    fn kept(hash: u64) -> u32 {
        (hash >> 32) as u32
    }

    /// The table looks at both ends of a hash.
    fn spread(kept: u32) -> u64 {
        u64::from(kept).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// Counts by number.
#[derive(Debug, Default)]
pub(crate) struct Counts(Vec<u64>);

impl Counts {
    /// Adds to one.
    #[inline]
    pub(crate) fn add(&mut self, number: u32, count: u64) {
        let at = number as usize;
        self.make_room(at + 1);
        self.0[at] += count;
    }

    /// Makes room for so many.
    pub(crate) fn make_room(&mut self, numbers: usize) {
        if self.0.len() < numbers {
            self.0.resize(numbers, 0);
        }
    }

    /// Counts those up to the last that there is room for.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns one, 0 where nothing was added.
    pub(crate) fn of(&self, number: u32) -> u64 {
        self.0.get(number as usize).copied().unwrap_or(0)
    }

    /// Lists them by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, u64)> + Clone + '_ {
        (0..).zip(self.0.iter().copied())
    }

    /// Estimates the bytes held.
    pub(crate) fn memory(&self) -> usize {
        self.0.capacity() * size_of::<u64>()
    }
}

/// The buckets of one aggregation.
#[derive(Debug, Default)]
pub(crate) struct Ordinals {
    parents: Vec<u32>,
    keys: Vec<u64>,
    /// Number + 1 of small keys below parent 0.
    dense: Vec<u32>,
    table: Numbers,
    hasher: FixedState,
}

impl Ordinals {
    /// Returns the number of a bucket, a new one where there is none yet.
    #[inline]
    pub(crate) fn ordinal(&mut self, parent: u32, key: u64) -> u32 {
        if parent == 0 && key < DENSE_KEYS {
            let at = key as usize;
            if let Some(known) = self.dense.get(at)
                && *known > 0
            {
                return known - 1;
            }
            return self.add_dense(at);
        }
        self.hashed(parent, key)
    }

    #[cold]
    fn add_dense(&mut self, at: usize) -> u32 {
        if self.dense.len() <= at {
            self.dense.resize((at + 1).next_power_of_two(), 0);
        }
        let ordinal = self.push(0, at as u64);
        self.dense[at] = ordinal + 1;
        ordinal
    }

    fn push(&mut self, parent: u32, key: u64) -> u32 {
        // Accounted memory ends long before so many buckets.
        let ordinal = self.parents.len() as u32;
        self.parents.push(parent);
        self.keys.push(key);
        ordinal
    }

    fn hashed(&mut self, parent: u32, key: u64) -> u32 {
        let (parents, keys) = (&self.parents, &self.keys);
        let same = |at: u32| keys[at as usize] == key && parents[at as usize] == parent;
        let hash = self.hasher.hash_one((parent, key));
        if let Some(at) = self.table.find(hash, same) {
            return at;
        }
        let ordinal = self.push(parent, key);
        self.table.insert(hash, ordinal);
        ordinal
    }

    /// Counts buckets.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns the parent of a bucket.
    pub(crate) fn parent(&self, ordinal: u32) -> u32 {
        self.parents.get(ordinal as usize).copied().unwrap_or(NONE)
    }

    /// Returns the key of a bucket.
    pub(crate) fn key(&self, ordinal: u32) -> u64 {
        self.keys.get(ordinal as usize).copied().unwrap_or(0)
    }

    /// Lists the buckets of each parent.
    pub(crate) fn by_parent(&self) -> Children {
        let parents = self.parents.iter().max().map_or(0, |most| *most as usize + 1);
        let mut starts = vec![0_u32; parents + 1];
        for parent in &self.parents {
            starts[*parent as usize + 1] += 1;
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut next = starts.clone();
        let mut children = vec![0; self.parents.len()];
        for (ordinal, parent) in self.parents.iter().enumerate() {
            let place = &mut next[*parent as usize];
            children[*place as usize] = ordinal as u32;
            *place += 1;
        }
        Children { starts, children }
    }

    /// Estimates the bytes held.
    pub(crate) fn memory(&self) -> usize {
        self.parents.capacity() * 12 + self.dense.capacity() * 4 + self.table.memory()
    }
}

/// The buckets of each parent.
#[derive(Debug, Default)]
pub(crate) struct Children {
    starts: Vec<u32>,
    children: Vec<u32>,
}

impl Children {
    /// Counts the parents.
    pub(crate) fn parents(&self) -> u32 {
        (self.starts.len() as u32).saturating_sub(1)
    }

    /// Lists those of a parent in the order in which they came.
    pub(crate) fn of(&self, parent: u32) -> &[u32] {
        let at = parent as usize;
        match (self.starts.get(at), at.checked_add(1).and_then(|at| self.starts.get(at))) {
            (Some(start), Some(end)) => self.children.get(*start as usize..*end as usize).unwrap_or_default(),
            _ => &[],
        }
    }
}

/// Longest string that a view holds itself.
const INLINE: u32 = 12;

/// Numbers of strings.
#[derive(Debug, Default)]
pub(crate) struct Interner {
    bytes: String,
    ends: Vec<usize>,
    table: Numbers,
    /// Numbers of strings that are their own view.
    views: HashMap<u128, u32, FixedState>,
    hasher: FixedState,
}

impl Interner {
    /// Returns the number of a string, a new one where there is none yet.
    pub(crate) fn id(&mut self, text: &str) -> u32 {
        let hash = self.hasher.hash_one(text);
        let (bytes, ends) = (&self.bytes, &self.ends);
        if let Some(id) = self.table.find(hash, |id| string(bytes, ends, id) == text) {
            return id;
        }
        let id = self.ends.len() as u32;
        self.bytes.push_str(text);
        self.ends.push(self.bytes.len());
        self.table.insert(hash, id);
        id
    }

    /// Returns the string of a number.
    pub(crate) fn text(&self, id: u32) -> &str {
        string(&self.bytes, &self.ends, id)
    }

    /// Estimates the bytes held.
    pub(crate) fn memory(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * 8 + self.table.memory() + self.views.capacity() * 33
    }
}

fn string<'a>(bytes: &'a str, ends: &[usize], id: u32) -> &'a str {
    let at = id as usize;
    let start = at.checked_sub(1).and_then(|before| ends.get(before)).copied().unwrap_or(0);
    ends.get(at).and_then(|end| bytes.get(start..*end)).unwrap_or_default()
}

/// Finds the numbers of the strings of one array: equal views are looked up once.
#[derive(Debug)]
pub(crate) struct Views<'a> {
    array: &'a StringViewArray,
    /// Numbers of strings that lie in the array's buffers.
    long: HashMap<u128, u32, FixedState>,
    /// Number of lookups there.
    sought: usize,
    last: Option<(u128, u32)>,
}

/// Strings after which it is seen whether some are known again.
const SAMPLED_VIEWS: usize = 2_048;

impl<'a> Views<'a> {
    /// Looks at an array.
    pub(crate) fn new(array: &'a StringViewArray) -> Self {
        Self { array, long: HashMap::default(), sought: 0, last: None }
    }

    /// Returns the number of the string at a place.
    #[inline]
    pub(crate) fn id(&mut self, at: usize, strings: &mut Interner) -> u32 {
        let view = self.array.views()[at];
        if let Some((last, id)) = self.last
            && last == view
        {
            return id;
        }
        let inline = view as u32 <= INLINE;
        // Where most lie apart, to look for them costs more than it saves.
        if !inline && self.sought >= SAMPLED_VIEWS && self.long.len() > self.sought / 2 {
            let id = strings.id(self.array.value(at));
            self.last = Some((view, id));
            return id;
        }
        self.sought += usize::from(!inline);
        let known = match inline {
            true => strings.views.get(&view),
            false => self.long.get(&view),
        };
        let id = match known {
            Some(id) => *id,
            None => {
                let id = strings.id(self.array.value(at));
                match inline {
                    true => strings.views.insert(view, id),
                    false => self.long.insert(view, id),
                };
                id
            }
        };
        self.last = Some((view, id));
        id
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Array;

    use super::*;

    #[test]
    fn buckets_are_numbered_by_parent_and_key() {
        let mut ordinals = Ordinals::default();
        let pairs = [(0, 5), (0, 7), (1, 5), (0, 5), (0, u64::MAX), (1, 5), (3, 0)];
        let numbers: Vec<u32> = pairs.iter().map(|(parent, key)| ordinals.ordinal(*parent, *key)).collect();
        assert_eq!(numbers, [0, 1, 2, 0, 3, 2, 4]);
        assert_eq!((ordinals.parent(2), ordinals.key(2)), (1, 5));
        let children = ordinals.by_parent();
        assert_eq!(children.of(0), [0, 1, 3]);
        assert_eq!(children.of(1), [2]);
        assert!(children.of(2).is_empty() && children.of(NONE).is_empty());
    }

    #[test]
    fn strings_keep_their_numbers_over_arrays() {
        let mut strings = Interner::default();
        let long = "a string that no view holds itself";
        let first = StringViewArray::from(vec!["b", long, "b", ""]);
        let second = StringViewArray::from(vec![long, "", "c"]);
        let mut ids = Vec::new();
        for array in [&first, &second] {
            let mut views = Views::new(array);
            ids.extend((0..array.len()).map(|at| views.id(at, &mut strings)));
        }
        assert_eq!(ids, [0, 1, 0, 2, 1, 2, 3]);
        assert_eq!(strings.text(1), long);
        assert_eq!(strings.ends.len(), 4);
    }
}
