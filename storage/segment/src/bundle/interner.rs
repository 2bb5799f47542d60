//! Distinct byte strings, numbered in order of appearance.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

/// Gives each distinct byte string a number; memory is bounded by what is put in.
#[derive(Default)]
pub(super) struct Interner {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    table: HashTable<u32>,
    hasher: FixedState,
}

impl Interner {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.table.clear();
    }

    /// Returns the number of `value`.
    #[inline]
    pub(super) fn intern(&mut self, value: &[u8]) -> u32 {
        let Self { bytes, ends, table, hasher } = self;
        let hash = hasher.hash_one(value);
        let get = |id: u32| slice(bytes, ends, id as usize);
        if let Some(&id) = table.find(hash, |&id| get(id) == value) {
            return id;
        }
        let id = u32::try_from(ends.len()).expect("a chunk has less than 4 GiB of values");
        table.insert_unique(hash, id, |&id| hasher.hash_one(get(id)));
        bytes.extend_from_slice(value);
        ends.push(bytes.len());
        id
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn get(&self, id: usize) -> &[u8] {
        slice(&self.bytes, &self.ends, id)
    }

    /// Returns the numbers in the byte order of their strings.
    pub(super) fn sorted(&self) -> Vec<u32> {
        sorted(self.len(), |id| self.get(id))
    }
}

fn slice<'a>(bytes: &'a [u8], ends: &[usize], id: usize) -> &'a [u8] {
    let start = if id == 0 { 0 } else { ends[id - 1] };
    &bytes[start..ends[id]]
}

/// Sorts `0..len` by byte strings. Eight bytes of each lie beside its number, which decides most
/// comparisons without a look at the string.
pub(super) fn sorted<'a>(len: usize, get: impl Fn(usize) -> &'a [u8]) -> Vec<u32> {
    let mut order: Vec<(u64, u32)> = (0..len)
        .map(|id| {
            let value = get(id);
            let mut prefix = [0; 8];
            let n = value.len().min(8);
            prefix[..n].copy_from_slice(&value[..n]);
            (u64::from_be_bytes(prefix), id as u32)
        })
        .collect();
    order.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| get(a.1 as usize).cmp(get(b.1 as usize))));
    order.into_iter().map(|(_, id)| id).collect()
}
