//! Keys of several sources: every combination of the keys of a row is one.

use std::cmp::Ordering;
use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;
use millrace_work::error::Result;

use super::{KeyReader, KeyedRows, OrdinalMapping};
use crate::batch::{Batch, Selection};
use crate::metric::Ordinals;
use crate::ordinals::Numbers;
use crate::result::Key;

/// Numbers of lists of keys.
#[derive(Debug, Default)]
struct Tuples {
    width: usize,
    keys: Vec<u64>,
    table: Numbers,
    hasher: FixedState,
    /// Number + 1 of lists of small keys, none of them null, by their bits one behind the other.
    dense: Vec<u32>,
}

/// Bits of all the keys of a list whose number is looked up by them.
const DENSE_BITS: usize = 16;

fn hash_of(hasher: &FixedState, tuple: &[u64]) -> u64 {
    let mut hasher = hasher.build_hasher();
    tuple.iter().for_each(|key| hasher.write_u64(*key));
    hasher.finish()
}

impl Tuples {
    fn id(&mut self, tuple: &[u64]) -> u32 {
        let (keys, width) = (&self.keys, self.width);
        let of = |id: u32| &keys[id as usize * width..(id as usize + 1) * width];
        let hash = hash_of(&self.hasher, tuple);
        if let Some(id) = self.table.find(hash, |id| of(id) == tuple) {
            return id;
        }
        let id = (self.keys.len() / self.width.max(1)) as u32;
        self.keys.extend_from_slice(tuple);
        self.table.insert(hash, id);
        id
    }

    /// As [`Self::id`], for a list of `count` keys of which none is null.
    #[inline]
    fn id_of_keys(&mut self, tuple: &[u64], count: usize) -> u32 {
        let bits = DENSE_BITS / count.max(1);
        let (mut at, mut all) = (0, 0);
        for key in &tuple[..count] {
            at = at << bits | key;
            all |= key;
        }
        if all >> bits != 0 {
            return self.id(tuple);
        }
        self.dense.resize(1 << DENSE_BITS, 0);
        let at = at as usize;
        if self.dense[at] == 0 {
            self.dense[at] = self.id(tuple) + 1;
        }
        self.dense[at] - 1
    }

    fn tuple(&self, id: u64) -> &[u64] {
        let start = id as usize * self.width;
        self.keys.get(start..start + self.width).unwrap_or_default()
    }
}

/// Returns whether a key of a list is null.
fn is_null(tuple: &[u64], width: usize, place: usize) -> bool {
    tuple.get(width + place / 64).is_some_and(|word| word >> (place % 64) & 1 == 1)
}

/// Keys of several sources.
#[derive(Debug)]
pub(crate) struct SeveralKeys {
    readers: Vec<KeyReader>,
    tuples: Tuples,
    parts: Vec<KeyedRows>,
}

impl SeveralKeys {
    /// Joins the keys of readers.
    pub(super) fn new(readers: Vec<KeyReader>) -> Self {
        let width = readers.len();
        let parts = readers.iter().map(|_| KeyedRows::default()).collect();
        // Behind the keys it stands which of them are null.
        let tuples = Tuples { width: width + width.div_ceil(64), ..Tuples::default() };
        Self { readers, tuples, parts }
    }

    /// Finds the keys of selected rows.
    pub(super) fn expand(
        &mut self,
        batch: &Batch<'_>,
        selection: Selection<'_>,
        out: &mut KeyedRows,
    ) -> Result<()> {
        out.clear();
        // Each pair of row and bucket is a bucket of its own to the parts, so that they can be joined.
        let numbers: Vec<u32> = (0..selection.len() as u32).collect();
        let numbered = Selection { positions: selection.positions, ordinals: Ordinals::Each(&numbers) };
        for (reader, part) in self.readers.iter_mut().zip(&mut self.parts) {
            reader.expand(batch, numbered, part)?;
        }
        let mut tuple = vec![0; self.tuples.width];
        let one_each = |part: &KeyedRows| part.whole && part.nulls.is_empty();
        if self.parts.iter().all(one_each) {
            let (parts, tuples) = (&self.parts, &mut self.tuples);
            let mut number = 0;
            selection.for_each(|position, parent| {
                for (key, part) in tuple.iter_mut().zip(parts) {
                    *key = part.keys.get(number).copied().unwrap_or_default();
                }
                number += 1;
                out.push(position, parent, u64::from(tuples.id_of_keys(&tuple, parts.len())));
            });
            out.whole = true;
            return Ok(());
        }
        let mut at = vec![0; self.parts.len()];
        let mut ends = at.clone();
        let (parts, tuples) = (&self.parts, &mut self.tuples);
        let mut number = 0;
        selection.for_each(|position, parent| {
            for (place, part) in parts.iter().enumerate() {
                at[place] = ends[place];
                while part.parents.get(ends[place]) == Some(&number) {
                    ends[place] += 1;
                }
            }
            number += 1;
            let starts = at.clone();
            if starts.iter().zip(&ends).any(|(start, end)| start == end) {
                return;
            }
            loop {
                tuple[parts.len()..].fill(0);
                for (place, part) in parts.iter().enumerate() {
                    tuple[place] = part.keys[at[place]];
                    if part.nulls.binary_search(&(at[place] as u32)).is_ok() {
                        tuple[parts.len() + place / 64] |= 1 << (place % 64);
                    }
                }
                out.push(position, parent, u64::from(tuples.id(&tuple)));
                // The last source turns fastest.
                let mut place = parts.len();
                loop {
                    let Some(before) = place.checked_sub(1) else { return };
                    place = before;
                    at[place] += 1;
                    if at[place] < ends[place] {
                        break;
                    }
                    at[place] = starts[place];
                }
            }
        });
        Ok(())
    }

    /// Takes over keys of another: returns what each is here.
    pub(super) fn adopt(&mut self, other: &Self, keys: impl Iterator<Item = u64>) -> Vec<u64> {
        let width = self.readers.len();
        let mut known: Vec<OrdinalMapping> = self.readers.iter().map(|_| OrdinalMapping::default()).collect();
        let mut tuple = Vec::with_capacity(self.tuples.width);
        // Most of many are new: what two threads have met of a few, both have.
        let more = keys.size_hint().0;
        self.tuples.keys.reserve(more * self.tuples.width);
        self.tuples.table.reserve(more);
        let own = keys.map(|key| {
            tuple.clear();
            tuple.extend_from_slice(other.tuples.tuple(key));
            let readers = self.readers.iter_mut().zip(&other.readers).zip(&mut known);
            for (place, ((reader, other), known)) in readers.enumerate() {
                if !is_null(&tuple, width, place) {
                    tuple[place] = reader.adopt(other, tuple[place], known);
                }
            }
            u64::from(self.tuples.id(&tuple))
        });
        own.collect()
    }

    /// Compares keys, source by source; null comes first.
    pub(super) fn compare(&self, a: u64, b: u64) -> Ordering {
        let (a, b, width) = (self.tuples.tuple(a), self.tuples.tuple(b), self.readers.len());
        let part = |(place, reader): (usize, &KeyReader)| match (
            is_null(a, width, place),
            is_null(b, width, place),
            a.get(place).zip(b.get(place)),
        ) {
            (false, false, Some((a, b))) => reader.compare(*a, *b),
            (a, b, _) => b.cmp(&a),
        };
        let mut parts = self.readers.iter().enumerate().map(part);
        parts.find(|found| found.is_ne()).unwrap_or(Ordering::Equal)
    }

    /// Shows a key.
    pub(super) fn key(&self, key: u64) -> Key {
        let (tuple, width) = (self.tuples.tuple(key), self.readers.len());
        let part = |(place, reader): (usize, &KeyReader)| match is_null(tuple, width, place) {
            true => Key::Null,
            false => tuple.get(place).map_or(Key::Null, |key| reader.key(*key)),
        };
        Key::List(self.readers.iter().enumerate().map(part).collect())
    }

    /// Estimates the bytes held.
    pub(super) fn shown_bytes(&self) -> usize {
        self.readers.iter().map(KeyReader::shown_bytes).sum()
    }

    pub(super) fn memory(&self) -> usize {
        self.readers.iter().map(KeyReader::memory).sum::<usize>()
            + self.tuples.keys.capacity() * 8
            + self.tuples.table.memory()
            + self.tuples.dense.capacity() * 4
            + self.parts.iter().map(KeyedRows::memory).sum::<usize>()
    }
}
