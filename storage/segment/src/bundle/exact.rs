//! Exact values: every distinct value of a column is a term.
//!
//! Columns of strings arrive dictionary-encoded, others are encoded here; either way a row costs a
//! counting-sort step and no hashing of strings, and a distinct value costs its place in the sort
//! and in the dictionary.

use std::borrow::Cow;
use std::hash::Hash;
use std::io;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use millrace_mapping::PathId;
use millrace_mapping::document::{Column, Strings, Values};
use millrace_mapping::term::{self, MAX_WILDCARD_BYTES};
use millrace_runtime::{Error, Result};

use super::fields::FieldSpec;
use super::interner::sorted;
use super::postings::PostingsWriter;
use super::{Indexing, MAX_DISTINCT_NUMBERS, is_low_cardinality};

/// A column as distinct values and a key a value.
struct Dictionary<'a> {
    bytes: Cow<'a, [u8]>,
    ends: Cow<'a, [u32]>,
    keys: Cow<'a, [u32]>,
}

impl Dictionary<'_> {
    fn len(&self) -> usize {
        self.ends.len()
    }

    fn get(&self, key: usize) -> &[u8] {
        let start = if key == 0 { 0 } else { self.ends[key - 1] as usize };
        &self.bytes[start..self.ends[key] as usize]
    }
}

/// Values of a column that became terms.
pub(super) enum IndexedValues {
    /// All: the rows of the field are the rows of the column.
    All,
    /// The field's rows, where some values were left out.
    Rows(Vec<u32>),
    /// None: the values are too many to be terms.
    TooMany,
}

/// Writes the terms of an exact or integer field. Writes nothing and says so where the integers of
/// the column are too many.
pub(super) fn write<W: io::Write>(
    spec: &FieldSpec<'_>,
    column: &Column,
    rows: u32,
    out: &mut PostingsWriter<W>,
) -> Result<IndexedValues> {
    let dictionary = match &column.values {
        Values::Str(strings) => of_strings(strings),
        Values::Bool(values) => Dictionary {
            bytes: Cow::Borrowed(&[0, 1]),
            ends: Cow::Borrowed(&[1, 2]),
            keys: values.iter().map(|&value| u32::from(value)).collect(),
        },
        Values::Ip(values) => match encode(values, usize::MAX, |value| *value) {
            Some(dictionary) => dictionary,
            None => return Ok(IndexedValues::TooMany),
        },
        Values::I64(values) => match encode(values, MAX_DISTINCT_NUMBERS, |value| term::sortable(*value)) {
            Some(dictionary) => dictionary,
            None => return Ok(IndexedValues::TooMany),
        },
        Values::U64(values) => match encode(values, MAX_DISTINCT_NUMBERS, |value| value.to_be_bytes()) {
            Some(dictionary) => dictionary,
            None => return Ok(IndexedValues::TooMany),
        },
        Values::F64(_) | Values::GeoPoint(_) => {
            return Err(Error::Internal(format!("values of [{}] cannot be terms", spec.path)));
        }
    };
    let Indexing::Exact { ignore_above } = spec.indexing else {
        if !is_low_cardinality(dictionary.len(), column.rows.len(), rows) {
            return Ok(IndexedValues::TooMany);
        }
        write_terms(spec, &column.rows, &dictionary, None, out)?;
        return Ok(IndexedValues::All);
    };
    let left_out = ignore_above.and_then(|limit| longer_than(&dictionary, limit));
    write_terms(spec, &column.rows, &dictionary, left_out.as_deref(), out)?;
    Ok(match left_out {
        None => IndexedValues::All,
        Some(left_out) => {
            let mut kept: Vec<u32> = (0..column.rows.len())
                .filter(|&at| !left_out[dictionary.keys[at] as usize])
                .map(|at| column.rows[at])
                .collect();
            kept.dedup();
            IndexedValues::Rows(kept)
        }
    })
}

fn of_strings(strings: &Strings) -> Dictionary<'_> {
    Dictionary {
        bytes: Cow::Borrowed(&strings.bytes),
        ends: Cow::Borrowed(&strings.ends),
        keys: Cow::Borrowed(&strings.keys),
    }
}

/// Encodes values of fixed width; gives up beyond `most` distinct ones.
fn encode<T: Eq + Hash + Copy, const N: usize>(
    values: &[T],
    most: usize,
    bytes_of: impl Fn(&T) -> [u8; N],
) -> Option<Dictionary<'static>> {
    let mut ids: HashMap<T, u32, FixedState> = HashMap::default();
    let mut bytes = Vec::new();
    let mut ends = Vec::new();
    let mut keys = Vec::with_capacity(values.len());
    // Runs are common (status codes, sorted input): they need no look-up.
    let mut last: Option<(T, u32)> = None;
    for value in values {
        if let Some((known, key)) = last
            && known == *value
        {
            keys.push(key);
            continue;
        }
        let next = ids.len() as u32;
        let key = *ids.entry(*value).or_insert(next);
        if key == next {
            if next as usize >= most {
                return None;
            }
            bytes.extend_from_slice(&bytes_of(value));
            ends.push(u32::try_from(bytes.len()).ok()?);
        }
        last = Some((*value, key));
        keys.push(key);
    }
    Some(Dictionary { bytes: bytes.into(), ends: ends.into(), keys: keys.into() })
}

/// Marks the values over `limit` UTF-16 code units; `None` where there are none.
fn longer_than(dictionary: &Dictionary<'_>, limit: usize) -> Option<Vec<bool>> {
    let mut marks: Option<Vec<bool>> = None;
    for key in 0..dictionary.len() {
        let value = dictionary.get(key);
        // A code unit takes at least one byte of UTF-8.
        if value.len() > limit && utf16_units(value) > limit {
            marks.get_or_insert_with(|| vec![false; dictionary.len()])[key] = true;
        }
    }
    marks
}

/// Counts UTF-16 code units: one a leading byte, two where four bytes follow it.
fn utf16_units(utf8: &[u8]) -> usize {
    utf8.iter().map(|&byte| usize::from(byte & 0xc0 != 0x80) + usize::from(byte >= 0xf0)).sum()
}

fn write_terms<W: io::Write>(
    spec: &FieldSpec<'_>,
    rows: &[u32],
    dictionary: &Dictionary<'_>,
    left_out: Option<&[bool]>,
    out: &mut PostingsWriter<W>,
) -> Result<()> {
    let grouped = RowsByKey::new(&dictionary.keys, rows, dictionary.len());
    let mut key_bytes = Vec::new();
    term::start(spec.id, &mut key_bytes);
    for key in sorted(dictionary.len(), |key| dictionary.get(key)) {
        let key = key as usize;
        let of_key = grouped.rows_of(key);
        if of_key.is_empty() || left_out.is_some_and(|left_out| left_out[key]) {
            continue;
        }
        let value = dictionary.get(key);
        if value.len() > MAX_WILDCARD_BYTES {
            // Refused when it is parsed. It gets here only where the mapping has come to index values
            // that were accepted before: those are found by their columns alone.
            continue;
        }
        key_bytes.truncate(4);
        key_bytes.extend_from_slice(value);
        write_rows(&key_bytes, of_key, out)?;
    }
    Ok(())
}

/// Writes one term with ascending rows, repeated ones once.
fn write_rows<W: io::Write>(key: &[u8], rows: &[u32], out: &mut PostingsWriter<W>) -> Result<()> {
    out.begin(rows.len() as u32);
    let mut last = None;
    for &row in rows {
        if last != Some(row) {
            out.push(row, 1, &[]);
            last = Some(row);
        }
    }
    out.end(key).map_err(super::build::unwritable)
}

/// Writes the term that says which rows have a value of the path.
pub(super) fn write_presence<W: io::Write>(
    path: PathId,
    rows: &[u32],
    out: &mut PostingsWriter<W>,
) -> Result<()> {
    write_rows(&term::presence(path), rows, out)
}

/// Rows by key, ascending: a counting sort.
struct RowsByKey {
    starts: Vec<u32>,
    rows: Vec<u32>,
}

impl RowsByKey {
    fn new(keys: &[u32], rows: &[u32], distinct: usize) -> Self {
        let mut starts = vec![0u32; distinct + 1];
        for &key in keys {
            starts[key as usize + 1] += 1;
        }
        for key in 0..distinct {
            starts[key + 1] += starts[key];
        }
        let mut grouped = vec![0u32; keys.len()];
        // Filling moves each start to its end: to the start of the next.
        for (&key, &row) in keys.iter().zip(rows) {
            let slot = &mut starts[key as usize];
            grouped[*slot as usize] = row;
            *slot += 1;
        }
        Self { starts, rows: grouped }
    }

    fn rows_of(&self, key: usize) -> &[u32] {
        let start = if key == 0 { 0 } else { self.starts[key - 1] as usize };
        &self.rows[start..self.starts[key] as usize]
    }
}
