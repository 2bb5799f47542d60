//! Encoding of values as terms: the number of the path, then the value.
//!
//! The number comes first as 4 big-endian bytes, so the terms of a path lie together, in the order
//! of their values: strings as UTF-8, addresses as 16 bytes, booleans as one byte, `i64` as 8
//! big-endian bytes with the sign bit flipped, `u64` as 8 big-endian bytes. The path number
//! `0xFFFF_FFFF` belongs to no field: its terms are path numbers, and their rows are those that have
//! a value of the path.

use millrace_runtime::{Error, Result};

use crate::mapping::{PathId, Scalar};

/// Longest indexed value in bytes, as Lucene allows it.
pub const MAX_TERM_BYTES: usize = 32_766;

/// Longest value of a `wildcard` field in bytes. Lucene has no bound there, since it indexes pieces of the values; here
/// a dictionary keeps a state for each byte of a value while it is written.
pub const MAX_WILDCARD_BYTES: usize = 256 << 10;

/// The path number under which the names of present paths are terms.
const PRESENCE: u32 = u32::MAX;

/// Checks that a value can be a term; documents are checked before they are acknowledged.
///
/// # Errors
/// A value over [`MAX_TERM_BYTES`] is an illegal argument, in OpenSearch's words.
pub fn check_term(field: &str, value: &[u8]) -> Result<()> {
    if value.len() <= MAX_TERM_BYTES {
        return Ok(());
    }
    // Java shows bytes as signed numbers.
    let prefix: Vec<String> = value[..30].iter().map(|&byte| i8::from_ne_bytes([byte]).to_string()).collect();
    Err(Error::IllegalArgument(format!(
        "Document contains at least one immense term in field=\"{field}\" (whose UTF8 encoding is longer than \
         the max length {MAX_TERM_BYTES}), all of which were skipped. Please correct the analyzer to not produce \
         such terms. The prefix of the first immense term is: '[{}]...', original message: bytes can be at most \
         {MAX_TERM_BYTES} in length; got {}",
        prefix.join(", "),
        value.len()
    )))
}

/// Checks that a value of a `wildcard` field can be a term.
///
/// # Errors
/// A value over [`MAX_WILDCARD_BYTES`] is an illegal argument.
pub fn check_wildcard(field: &str, value: &[u8]) -> Result<()> {
    if value.len() <= MAX_WILDCARD_BYTES {
        return Ok(());
    }
    Err(Error::IllegalArgument(format!(
        "a value of the wildcard field [{field}] has {} bytes, more than {MAX_WILDCARD_BYTES}; set [ignore_above] in \
         its mapping to leave such values out of the index",
        value.len()
    )))
}

/// Starts a term of a path.
pub fn start(path: PathId, key: &mut Vec<u8>) {
    key.clear();
    key.extend_from_slice(&path.0.to_be_bytes());
}

/// Writes the whole term of a path and a value of its bytes.
pub fn write(path: PathId, value: &[u8], key: &mut Vec<u8>) {
    start(path, key);
    key.extend_from_slice(value);
}

/// Returns the term whose rows have a value of the path.
pub fn presence(path: PathId) -> [u8; 8] {
    let mut key = [0; 8];
    key[..4].copy_from_slice(&PRESENCE.to_be_bytes());
    key[4..].copy_from_slice(&path.0.to_be_bytes());
    key
}

/// Writes the term of a scalar; `None` for the kinds that are never terms.
pub fn scalar(path: PathId, value: &Scalar) -> Option<Vec<u8>> {
    let mut key = Vec::new();
    match value {
        Scalar::Str(text) => write(path, text.as_bytes(), &mut key),
        Scalar::I64(value) => write(path, &sortable(*value), &mut key),
        Scalar::U64(value) => write(path, &value.to_be_bytes(), &mut key),
        Scalar::Bool(value) => write(path, &[u8::from(*value)], &mut key),
        Scalar::Ip(value) => write(path, value, &mut key),
        Scalar::F64(_) | Scalar::GeoPoint { .. } => return None,
    }
    Some(key)
}

/// Encodes an integer so that byte order is number order.
pub fn sortable(value: i64) -> [u8; 8] {
    (value.cast_unsigned() ^ (1 << 63)).to_be_bytes()
}

/// Returns the path number of a term.
pub fn path_of(key: &[u8]) -> Option<u32> {
    key.first_chunk::<4>().map(|bytes| u32::from_be_bytes(*bytes))
}
