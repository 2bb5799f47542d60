//! Columns under construction: appending, interning of strings, and undoing a document that failed.

use std::hash::BuildHasher;

use hashbrown::HashTable;
use millrace_runtime::{Error, Result};

use super::chunk::{Column, Strings, Values};
use crate::mapping::{ColumnKind, PathId};

/// Most bytes of distinct strings in one column: Arrow's views count in 31 bits.
const MAX_STRING_BYTES: usize = i32::MAX as usize;

/// Finds the key of a string in a dictionary. Entries are (part of the hash, key), so that growing the
/// table reads no string again.
#[derive(Clone, Debug, Default)]
pub(super) struct Interner {
    table: HashTable<(u32, u32)>,
    hasher: foldhash::fast::RandomState,
}

/// Spreads half of a hash over 64 bits, as the table wants it.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

impl Interner {
    fn hash(&self, value: &[u8]) -> u32 {
        let hash = self.hasher.hash_one(value);
        (hash ^ (hash >> 32)) as u32
    }

    /// Returns the key of a string, adding it to the dictionary where it is new.
    ///
    /// # Errors
    /// [`Error::TooLarge`] where the dictionary is full.
    pub(super) fn intern(&mut self, strings: &mut Strings, value: &[u8]) -> Result<u32> {
        let hash = self.hash(value);
        let found = self.table.find(spread(hash), |(h, key)| *h == hash && strings.get(*key) == value);
        if let Some((_, key)) = found {
            return Ok(*key);
        }
        if value.len() > MAX_STRING_BYTES - strings.bytes.len() {
            return Err(Error::TooLarge(format!(
                "distinct strings of a column exceed {MAX_STRING_BYTES} bytes in one request"
            )));
        }
        let key = strings.ends.len() as u32;
        strings.bytes.extend_from_slice(value);
        strings.ends.push(strings.bytes.len() as u32);
        self.table.insert_unique(spread(hash), (hash, key), |(h, _)| spread(*h));
        Ok(key)
    }

    /// Forgets the strings from a key on.
    fn truncate(&mut self, strings: &mut Strings, distinct: usize) {
        for key in distinct as u32..strings.ends.len() as u32 {
            let hash = self.hash(strings.get(key));
            if let Ok(entry) = self.table.find_entry(spread(hash), |(_, k)| *k == key) {
                entry.remove();
            }
        }
        strings.ends.truncate(distinct);
        strings.bytes.truncate(strings.ends.last().map_or(0, |end| *end as usize));
    }
}

#[derive(Debug)]
struct Slot {
    column: Column,
    interner: Interner,
    /// The document that last touched it, counted from 1.
    touched: u32,
}

/// State of a column before the current document touched it.
#[derive(Clone, Copy, Debug)]
struct Undo {
    slot: u32,
    len: usize,
    distinct: usize,
}

/// The columns of a chunk under construction.
#[derive(Debug, Default)]
pub(super) struct Columns {
    slots: Vec<Slot>,
    /// Slot of each path number, plus one; 0 where it has none.
    slot_of: Vec<u32>,
    undo: Vec<Undo>,
    /// The current document, counted from 1.
    document: u32,
    row: u32,
}

impl Columns {
    /// Starts a document, whose first row is `row`.
    pub(super) fn begin(&mut self, document: u32, row: u32) {
        self.document = document + 1;
        self.row = row;
        self.undo.clear();
    }

    /// Goes on to another row of the current document.
    pub(super) fn go_to(&mut self, row: u32) {
        self.row = row;
    }

    /// Removes everything that the current document has appended.
    pub(super) fn rollback(&mut self) {
        for undo in self.undo.drain(..) {
            let slot = &mut self.slots[undo.slot as usize];
            slot.column.rows.truncate(undo.len);
            slot.column.values.truncate(undo.len);
            if let Values::Str(strings) = &mut slot.column.values {
                slot.interner.truncate(strings, undo.distinct);
            }
            slot.touched = 0;
        }
    }

    /// Ends construction: the columns with values, ascending by id.
    pub(super) fn finish(self) -> Vec<Column> {
        let mut columns: Vec<Column> =
            self.slots.into_iter().map(|slot| slot.column).filter(|column| !column.rows.is_empty()).collect();
        columns.sort_unstable_by_key(|column| column.id);
        for column in &mut columns {
            column.rows.shrink_to_fit();
            column.values.shrink();
        }
        columns
    }

    #[inline]
    fn slot(&mut self, id: PathId, kind: ColumnKind) -> &mut Slot {
        let at = id.0 as usize;
        if at >= self.slot_of.len() {
            self.slot_of.resize((at + 1).next_power_of_two(), 0);
        }
        if self.slot_of[at] == 0 {
            self.slots.push(Slot {
                column: Column { id, kind, rows: Vec::new(), values: Values::empty(kind) },
                interner: Interner::default(),
                touched: 0,
            });
            self.slot_of[at] = self.slots.len() as u32;
        }
        let slot_at = self.slot_of[at] - 1;
        let slot = &mut self.slots[slot_at as usize];
        if slot.column.kind != kind {
            // A failed document had a new field of that number, which now goes to another: all of the
            // former's values were undone with it.
            debug_assert!(slot.column.rows.is_empty());
            slot.column.kind = kind;
            slot.column.values = Values::empty(kind);
            slot.interner = Interner::default();
        }
        if slot.touched != self.document {
            slot.touched = self.document;
            let distinct = match &slot.column.values {
                Values::Str(strings) => strings.ends.len(),
                _ => 0,
            };
            self.undo.push(Undo { slot: slot_at, len: slot.column.rows.len(), distinct });
        }
        slot
    }

    /// Counts the values that a column has in the current row.
    pub(super) fn count(&self, id: PathId) -> usize {
        let at = self.slot_of.get(id.0 as usize).copied().unwrap_or(0);
        let slot = (at as usize).checked_sub(1).and_then(|at| self.slots.get(at));
        slot.map_or(0, |slot| slot.column.rows.iter().rev().take_while(|row| **row == self.row).count())
    }

    /// Lists the strings that a column has in the current row, the last first.
    pub(super) fn strings(&self, id: PathId) -> impl Iterator<Item = &[u8]> {
        let at = self.slot_of.get(id.0 as usize).copied().unwrap_or(0);
        let slot = (at as usize).checked_sub(1).and_then(|at| self.slots.get(at));
        let column = slot.and_then(|slot| match &slot.column.values {
            Values::Str(strings) => Some((&slot.column.rows, strings)),
            _ => None,
        });
        column.into_iter().flat_map(|(rows, strings)| {
            let values = rows.iter().zip(&strings.keys).rev();
            values.take_while(|(row, _)| **row == self.row).map(|(_, key)| strings.get(*key))
        })
    }

    /// Appends a string to the current row.
    #[inline]
    pub(super) fn push_str(&mut self, id: PathId, value: &[u8]) -> Result<()> {
        let row = self.row;
        let slot = self.slot(id, ColumnKind::Str);
        if let Values::Str(strings) = &mut slot.column.values {
            // Logs repeat themselves from line to line.
            let key = match strings.keys.last() {
                Some(last) if strings.get(*last) == value => *last,
                _ => slot.interner.intern(strings, value)?,
            };
            strings.keys.push(key);
            slot.column.rows.push(row);
        }
        Ok(())
    }

    #[inline]
    pub(super) fn push_i64(&mut self, id: PathId, kind: ColumnKind, value: i64) {
        let row = self.row;
        let slot = self.slot(id, kind);
        if let Values::I64(values) = &mut slot.column.values {
            values.push(value);
            slot.column.rows.push(row);
        }
    }

    #[inline]
    pub(super) fn push_u64(&mut self, id: PathId, value: u64) {
        let row = self.row;
        let slot = self.slot(id, ColumnKind::U64);
        if let Values::U64(values) = &mut slot.column.values {
            values.push(value);
            slot.column.rows.push(row);
        }
    }

    #[inline]
    pub(super) fn push_f64(&mut self, id: PathId, kind: ColumnKind, value: f64) {
        let row = self.row;
        let slot = self.slot(id, kind);
        if let Values::F64(values) = &mut slot.column.values {
            values.push(value);
            slot.column.rows.push(row);
        }
    }

    #[inline]
    pub(super) fn push_bool(&mut self, id: PathId, value: bool) {
        let row = self.row;
        let slot = self.slot(id, ColumnKind::Bool);
        if let Values::Bool(values) = &mut slot.column.values {
            values.push(value);
            slot.column.rows.push(row);
        }
    }

    #[inline]
    pub(super) fn push_ip(&mut self, id: PathId, value: [u8; 16]) {
        let row = self.row;
        let slot = self.slot(id, ColumnKind::Ip);
        if let Values::Ip(values) = &mut slot.column.values {
            values.push(value);
            slot.column.rows.push(row);
        }
    }

    #[inline]
    pub(super) fn push_point(&mut self, id: PathId, value: [f64; 2]) {
        let row = self.row;
        let slot = self.slot(id, ColumnKind::GeoPoint);
        if let Values::GeoPoint(values) = &mut slot.column.values {
            values.push(value);
            slot.column.rows.push(row);
        }
    }
}
