//! From values to keys of buckets: as they are, rounded to an interval, or several together.
//!
//! A key is 64 bits: a number, or the number of a string, an address or a list of keys that a
//! [`KeyReader`] has given it. Equal values of a row make one key.

mod several;

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;

use arrow::array::AsArray;
use foldhash::fast::FixedState;
use millrace_time::Rounding;
use millrace_work::error::Result;

use super::batch::{Batch, Column, Positions, Selection};
use super::field::{MissingValue, ValueKind, Values};
use super::ordinals::{self, Interner, Numbers, Views};
use super::result::Key;
use super::term_filter::TermFilter;
use several::SeveralKeys;

/// Rule that gives rows their keys.
#[derive(Debug)]
pub(crate) struct KeyRule {
    /// The field.
    pub values: Values,
    /// Form of the keys.
    pub form: KeyForm,
    /// `true` if rows without a value have the key null.
    pub null: bool,
}

/// Form of keys that values make.
#[derive(Debug)]
pub(crate) enum KeyForm {
    /// RowKeys, where they are wanted.
    Terms(TermFilter),
    /// Multiples of an interval (and an offset), within bounds.
    Interval {
        /// Width.
        interval: f64,
        /// Offset of boundaries.
        offset: f64,
        /// Least and greatest key.
        bounds: Option<(f64, f64)>,
    },
    /// Beginnings of spans of time, within bounds.
    Dates {
        /// The spans.
        rounding: Rounding,
        /// Least and greatest key.
        bounds: Option<(i64, i64)>,
    },
}

/// Rows with their keys.
#[derive(Debug, Default)]
pub(crate) struct KeyedRows {
    /// Places of rows.
    pub positions: Vec<u32>,
    /// Bucket that was selected with each.
    pub parents: Vec<u32>,
    /// Keys.
    pub keys: Vec<u64>,
    /// `true` if these are all rows of the batch in order, each once.
    pub whole: bool,
    /// Places among the keys of those that are null, ascending.
    nulls: Vec<u32>,
    /// `true` if rows without a value have the key null.
    null: bool,
}

impl KeyedRows {
    fn clear(&mut self) {
        self.positions.clear();
        self.parents.clear();
        self.keys.clear();
        self.whole = false;
        self.nulls.clear();
    }

    #[inline]
    fn push(&mut self, position: u32, parent: u32, key: u64) {
        self.positions.push(position);
        self.parents.push(parent);
        self.keys.push(key);
    }

    fn push_null(&mut self, position: u32, parent: u32) {
        self.nulls.push(self.keys.len() as u32);
        self.push(position, parent, 0);
    }

    /// Estimates the bytes held.
    pub(crate) fn memory(&self) -> usize {
        self.nulls.capacity() * 4 + self.keys.capacity() * 16
    }
}

/// Numbers of addresses.
#[derive(Debug, Default)]
struct Addresses {
    list: Vec<[u8; 16]>,
    table: Numbers,
    hasher: FixedState,
}

impl Addresses {
    fn memory(&self) -> usize {
        self.list.capacity() * size_of::<[u8; 16]>() + self.table.memory()
    }

    fn id(&mut self, address: [u8; 16]) -> u32 {
        let hash = self.hasher.hash_one(address);
        let list = &self.list;
        if let Some(id) = self.table.find(hash, |id| list[id as usize] == address) {
            return id;
        }
        let id = self.list.len() as u32;
        self.list.push(address);
        self.table.insert(hash, id);
        id
    }
}

/// Gives rows keys.
#[derive(Debug)]
pub(crate) struct KeyReader {
    rule: Arc<KeyRule>,
    strings: Interner,
    addresses: Addresses,
    /// State of each string or address by its number: unknown, selected, not selected.
    wanted: Vec<u8>,
    /// Long texts of keys that were shown, which all buckets share.
    shown: RefCell<HashMap<u32, Arc<str>>>,
}

/// Texts of keys that are longer are shared by the buckets that have them; others are counted with each bucket.
const LONG_TEXT_BYTES: usize = 256;

impl KeyReader {
    /// Makes a reader that has seen nothing.
    pub(crate) fn new(rule: &Arc<KeyRule>) -> Self {
        Self {
            rule: Arc::clone(rule),
            strings: Interner::default(),
            addresses: Addresses::default(),
            wanted: Vec::new(),
            shown: RefCell::default(),
        }
    }

    /// Finds the keys of selected rows.
    pub(crate) fn expand(
        &mut self,
        batch: &Batch<'_>,
        selection: Selection<'_>,
        out: &mut KeyedRows,
    ) -> Result<()> {
        out.clear();
        let rule = Arc::clone(&self.rule);
        out.null = rule.null;
        let missing = self.missing(&rule).filter(|key| self.is_wanted(&rule, *key));
        let Some((place, column)) = rule.values.column(batch) else {
            let constant = rule.values.constant_in(batch.segment.index);
            let constant = constant.map(|text| u64::from(self.strings.id(text)));
            match constant.or(missing) {
                Some(key) if self.is_wanted(&rule, key) => {
                    selection.for_each(|at, parent| out.push(at, parent, key));
                }
                None if rule.null => selection.for_each(|at, parent| out.push_null(at, parent)),
                _ => return Ok(()),
            }
            out.whole = matches!(selection.positions, Positions::All(_));
            return Ok(());
        };
        match (&rule.form, place.kind) {
            (KeyForm::Dates { rounding, bounds }, ValueKind::Double) => {
                let values = column.doubles()?.values();
                let mut spans = rounding.cached();
                fill(column, selection, missing, out, |at| {
                    let key = spans.round(values[at] as i64);
                    bounds.is_none_or(|(least, most)| least <= key && key <= most).then_some(key as u64)
                });
            }
            (KeyForm::Dates { rounding, bounds }, _) => {
                let values = column.longs()?.values();
                let mut spans = rounding.cached();
                fill(column, selection, missing, out, |at| {
                    let key = spans.round(place.long(values[at]));
                    bounds.is_none_or(|(least, most)| least <= key && key <= most).then_some(key as u64)
                });
            }
            (KeyForm::Interval { interval, offset, bounds }, _) => {
                let values = column.doubles()?.values();
                fill(column, selection, missing, out, |at| {
                    interval_key(values[at], *interval, *offset, *bounds)
                });
            }
            (KeyForm::Terms(filter), ValueKind::Text) => {
                let strings = column.strings()?;
                let verbatim = place.is_verbatim(column)?;
                let mut views = Views::new(strings);
                if filter.is_open() && verbatim {
                    let own = &mut self.strings;
                    fill(column, selection, missing, out, |at| Some(u64::from(views.id(at, own))));
                } else {
                    fill(column, selection, missing, out, |at| {
                        let id = match verbatim {
                            true => views.id(at, &mut self.strings),
                            false => self.strings.id(place.string(strings.value(at))?),
                        };
                        self.is_wanted(&rule, u64::from(id)).then_some(u64::from(id))
                    });
                }
            }
            (KeyForm::Terms(_), ValueKind::Ip) => {
                let Some(addresses) = column.values.as_fixed_size_binary_opt() else { return Ok(()) };
                fill(column, selection, missing, out, |at| {
                    let id = u64::from(self.addresses.id(addresses.value(at).try_into().ok()?));
                    self.is_wanted(&rule, id).then_some(id)
                });
            }
            (KeyForm::Terms(filter), _) if rule.values.kind == Some(ValueKind::Double) => {
                let values = column.doubles()?.values();
                fill(column, selection, missing, out, |at| {
                    let key = double_key(values[at]);
                    (filter.is_open() || filter.number(key)).then_some(key)
                });
            }
            (KeyForm::Terms(filter), _) => {
                let values = column.longs()?.values();
                fill(column, selection, missing, out, |at| {
                    let key = place.long(values[at]) as u64;
                    (filter.is_open() || filter.number(key)).then_some(key)
                });
            }
        }
        Ok(())
    }

    /// The key of rows without a value.
    fn missing(&mut self, rule: &KeyRule) -> Option<u64> {
        let filled = rule.values.missing()?;
        match (&rule.form, filled) {
            (KeyForm::Dates { rounding, bounds }, MissingValue::Long(value)) => {
                let key = rounding.round(*value);
                bounds.is_none_or(|(least, most)| least <= key && key <= most).then_some(key as u64)
            }
            (KeyForm::Dates { rounding, .. }, MissingValue::Double(value)) => {
                Some(rounding.round(*value as i64) as u64)
            }
            (KeyForm::Interval { interval, offset, bounds }, MissingValue::Long(value)) => {
                interval_key(*value as f64, *interval, *offset, *bounds)
            }
            (KeyForm::Interval { interval, offset, bounds }, MissingValue::Double(value)) => {
                interval_key(*value, *interval, *offset, *bounds)
            }
            (_, MissingValue::Long(value)) => Some(*value as u64),
            (_, MissingValue::Double(value)) => Some(double_key(*value)),
            (_, MissingValue::Text(text)) => Some(u64::from(self.strings.id(text))),
            (_, MissingValue::Ip(address)) => Some(u64::from(self.addresses.id(*address))),
            (_, MissingValue::Point(..)) => None,
        }
    }

    fn is_wanted(&mut self, rule: &KeyRule, key: u64) -> bool {
        let KeyForm::Terms(filter) = &rule.form else { return true };
        if filter.is_open() {
            return true;
        }
        let of_text = match rule.values.kind {
            Some(ValueKind::Text) => true,
            Some(ValueKind::Ip) => false,
            _ => return filter.number(key),
        };
        let at = key as usize;
        if self.wanted.len() <= at {
            self.wanted.resize(at + 1, 0);
        }
        if self.wanted[at] == 0 {
            let wanted = match of_text {
                true => filter.text(self.strings.text(at as u32)),
                false => self.addresses.list.get(at).is_some_and(|address| filter.address(address)),
            };
            self.wanted[at] = if wanted { 1 } else { 2 };
        }
        self.wanted[at] == 1
    }

    /// Takes over a key of another reader of the same rule; `known` has those that were.
    pub(crate) fn adopt(&mut self, other: &Self, key: u64, known: &mut OrdinalMapping) -> u64 {
        let at = key as usize;
        match self.key_kind() {
            Some(ValueKind::Text) => known.or_insert(at, || self.strings.id(other.strings.text(key as u32))),
            Some(ValueKind::Ip) => match other.addresses.list.get(at) {
                Some(address) => known.or_insert(at, || self.addresses.id(*address)),
                None => key,
            },
            _ => key,
        }
    }

    /// Returns the key of a term of the dictionary, where it is wanted, and makes it where it has none.
    pub(crate) fn wanted_key(&mut self, kind: ValueKind, term: &[u8]) -> Option<u64> {
        let key = match kind {
            ValueKind::Text => u64::from(self.strings.id(std::str::from_utf8(term).ok()?)),
            ValueKind::Ip => u64::from(self.addresses.id(term.try_into().ok()?)),
            _ => term_key(kind, term)?,
        };
        self.wants(key).then_some(key)
    }

    /// Returns whether a key is wanted.
    pub(crate) fn wants(&mut self, key: u64) -> bool {
        let rule = Arc::clone(&self.rule);
        self.is_wanted(&rule, key)
    }

    fn key_kind(&self) -> Option<ValueKind> {
        match &self.rule.form {
            KeyForm::Terms(_) => self.rule.values.kind,
            KeyForm::Interval { .. } => Some(ValueKind::Double),
            KeyForm::Dates { .. } => Some(ValueKind::Long),
        }
    }

    /// Compares keys: numbers by value, texts and addresses by their bytes.
    fn compare(&self, a: u64, b: u64) -> Ordering {
        match self.key_kind() {
            Some(ValueKind::Text) => {
                self.strings.text(a as u32).as_bytes().cmp(self.strings.text(b as u32).as_bytes())
            }
            Some(ValueKind::Ip) => {
                self.addresses.list.get(a as usize).cmp(&self.addresses.list.get(b as usize))
            }
            Some(ValueKind::Double) => f64::from_bits(a).total_cmp(&f64::from_bits(b)),
            Some(ValueKind::Unsigned) => a.cmp(&b),
            _ => (a as i64).cmp(&(b as i64)),
        }
    }

    /// Shows a key.
    pub(crate) fn key(&self, key: u64) -> Key {
        match self.key_kind() {
            Some(ValueKind::Text) => Key::Text(self.text(key as u32)),
            Some(ValueKind::Ip) => {
                self.addresses.list.get(key as usize).map_or(Key::Null, |address| Key::Ip(*address))
            }
            Some(ValueKind::Double) => Key::Double(f64::from_bits(key)),
            Some(ValueKind::Unsigned) => Key::Unsigned(key),
            _ => Key::Long(key as i64),
        }
    }

    /// Shows the text of a key.
    fn text(&self, key: u32) -> Arc<str> {
        let text = self.strings.text(key);
        if text.len() <= LONG_TEXT_BYTES {
            return text.into();
        }
        Arc::clone(self.shown.borrow_mut().entry(key).or_insert_with(|| text.into()))
    }

    /// Counts the bytes of the long texts that were shown.
    pub(crate) fn shown_bytes(&self) -> usize {
        self.shown.borrow().values().map(|text| text.len()).sum()
    }

    /// Estimates the bytes held.
    pub(crate) fn memory(&self) -> usize {
        self.strings.memory() + self.addresses.memory() + self.wanted.capacity()
    }
}

/// The numbers that strings or addresses of another reader have been given.
#[derive(Debug, Default)]
pub(crate) struct OrdinalMapping(Vec<u32>);

impl OrdinalMapping {
    /// Returns the number of the other's `at`th, which `make` tells where nobody has asked before.
    fn or_insert(&mut self, at: usize, make: impl FnOnce() -> u32) -> u64 {
        if self.0.len() <= at {
            self.0.resize((at + 1).next_power_of_two(), ordinals::NONE);
        }
        if self.0[at] == ordinals::NONE {
            self.0[at] = make();
        }
        u64::from(self.0[at])
    }
}

/// Calls `key` with the places of the values of selected rows, and keeps what it returns, each once a row.
#[inline]
fn fill(
    column: &Column,
    selection: Selection<'_>,
    missing: Option<u64>,
    out: &mut KeyedRows,
    mut key: impl FnMut(usize) -> Option<u64>,
) {
    if column.is_plain() {
        selection.for_each(|at, parent| {
            if let Some(key) = key(at as usize) {
                out.push(at, parent, key);
            }
        });
        out.whole = matches!(selection.positions, Positions::All(len) if len == out.keys.len());
        return;
    }
    let mut own: Vec<u64> = Vec::new();
    selection.for_each(|at, parent| {
        let row = column.row(at as usize);
        match row.len() {
            0 => match missing {
                Some(missing) => out.push(at, parent, missing),
                None if out.null => out.push_null(at, parent),
                None => {}
            },
            1 => {
                if let Some(key) = key(row.start) {
                    out.push(at, parent, key);
                }
            }
            _ => {
                own.clear();
                own.extend(row.filter_map(&mut key));
                own.sort_unstable();
                own.dedup();
                own.iter().for_each(|key| out.push(at, parent, *key));
            }
        }
    });
}

/// Reads a term of the dictionary as the bits of a key; `None` of texts and addresses.
pub(crate) fn term_key(kind: ValueKind, term: &[u8]) -> Option<u64> {
    match (kind, term) {
        (ValueKind::Long, [flag]) => Some(u64::from(*flag)),
        (ValueKind::Long, bytes) => {
            let bytes: [u8; 8] = bytes.try_into().ok()?;
            Some(u64::from_be_bytes(bytes) ^ (1 << 63))
        }
        (ValueKind::Unsigned, bytes) => Some(u64::from_be_bytes(bytes.try_into().ok()?)),
        _ => None,
    }
}

/// The bits of a number, one form for both zeros.
fn double_key(value: f64) -> u64 {
    if value == 0.0 { 0 } else { value.to_bits() }
}

/// The key of a number's multiple of an interval, where it is within bounds.
pub(crate) fn interval_key(
    value: f64,
    interval: f64,
    offset: f64,
    bounds: Option<(f64, f64)>,
) -> Option<u64> {
    let number = ((value - offset) / interval).floor();
    let key = number * interval + offset;
    bounds.is_none_or(|(least, most)| least <= key && key <= most).then(|| double_key(key))
}

/// Gives rows keys of one or several sources.
#[derive(Debug)]
pub(crate) enum RowKeys {
    One(KeyReader),
    /// Of several: every combination of a row's keys.
    Several(SeveralKeys),
}

impl RowKeys {
    /// Makes readers of rules.
    pub(crate) fn new(rules: &[Arc<KeyRule>], list: bool) -> Self {
        let mut readers: Vec<KeyReader> = rules.iter().map(KeyReader::new).collect();
        match (list, readers.len(), readers.pop()) {
            (false, 1, Some(only)) => Self::One(only),
            (_, _, last) => {
                readers.extend(last);
                Self::Several(SeveralKeys::new(readers))
            }
        }
    }

    /// Finds the keys of selected rows.
    pub(crate) fn expand(
        &mut self,
        batch: &Batch<'_>,
        selection: Selection<'_>,
        out: &mut KeyedRows,
    ) -> Result<()> {
        match self {
            Self::One(reader) => reader.expand(batch, selection, out),
            Self::Several(several) => several.expand(batch, selection, out),
        }
    }

    /// Takes over keys of another: returns what each is here.
    pub(crate) fn adopt(&mut self, other: &Self, keys: impl Iterator<Item = u64>) -> Vec<u64> {
        match (self, other) {
            (Self::One(reader), Self::One(other)) => {
                let mut known = OrdinalMapping::default();
                keys.map(|key| reader.adopt(other, key, &mut known)).collect()
            }
            (Self::Several(several), Self::Several(other)) => several.adopt(other, keys),
            _ => keys.collect(),
        }
    }

    /// Compares keys as [`Key::compare`] compares what they show.
    pub(crate) fn compare(&self, a: u64, b: u64) -> Ordering {
        match self {
            Self::One(reader) => reader.compare(a, b),
            Self::Several(several) => several.compare(a, b),
        }
    }

    /// Shows a key.
    pub(crate) fn key(&self, key: u64) -> Key {
        match self {
            Self::One(reader) => reader.key(key),
            Self::Several(several) => several.key(key),
        }
    }

    /// Counts the bytes of the long texts that were shown.
    pub(crate) fn shown_bytes(&self) -> usize {
        match self {
            Self::One(reader) => reader.shown_bytes(),
            Self::Several(several) => several.shown_bytes(),
        }
    }

    /// Returns the reader of one source.
    pub(crate) fn one(&mut self) -> Option<&mut KeyReader> {
        match self {
            Self::One(reader) => Some(reader),
            Self::Several(_) => None,
        }
    }

    /// Estimates the bytes held.
    pub(crate) fn memory(&self) -> usize {
        match self {
            Self::One(reader) => reader.memory(),
            Self::Several(several) => several.memory(),
        }
    }
}
