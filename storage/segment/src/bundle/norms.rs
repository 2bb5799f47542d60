//! Field lengths a row ("norms"): one byte each, in Lucene's encoding (`SmallFloat.intToByte4`),
//! which tantivy's table equals.
//!
//! A field that most rows have is stored as a byte a row, 0 where a row has no token of it. A sparse
//! one is stored as the ascending numbers of its rows and then their bytes, so that a thousand rare
//! fields do not cost a thousand bytes a row.

use millrace_runtime::{Error, Result};
use tantivy::directory::{FileSlice, OwnedBytes};
use tantivy::fieldnorm::FieldNormReader;

/// Bytes that a row costs in the sparse form.
const SPARSE_ROW_BYTES: usize = 5;

/// Location of a field's norms in the norms section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Location {
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) sparse: bool,
}

/// Appends the norms of a field, given as a byte a row, in the smaller form.
pub(super) fn append(ids: &[u8], section: &mut Vec<u8>) -> Location {
    let offset = section.len() as u64;
    let present = ids.iter().filter(|&&id| id != 0).count();
    let sparse = present * SPARSE_ROW_BYTES < ids.len();
    if sparse {
        let rows = || ids.iter().enumerate().filter(|(_, id)| **id != 0);
        section.reserve(present * SPARSE_ROW_BYTES);
        for (row, _) in rows() {
            section.extend_from_slice(&(row as u32).to_le_bytes());
        }
        section.extend(rows().map(|(_, id)| id));
    } else {
        section.extend_from_slice(ids);
    }
    Location { offset, len: section.len() as u64 - offset, sparse }
}

/// Shows a byte a row to tantivy's serializer.
pub(super) fn lengths(ids: Vec<u8>) -> Result<FieldNormReader> {
    FieldNormReader::open(FileSlice::from(ids)).map_err(|error| Error::Internal(format!("norms: {error}")))
}

/// The norms of a field, for reading.
#[derive(Clone)]
pub(super) enum Norms {
    Absent,
    Dense(OwnedBytes),
    Sparse { rows: OwnedBytes, ids: OwnedBytes },
}

impl Norms {
    /// Reads norms; `bytes` is what `location` names. `None` where the size cannot be.
    pub(super) fn open(bytes: OwnedBytes, location: &Location, rows: u32) -> Option<Self> {
        if location.sparse {
            let present = bytes.len() / SPARSE_ROW_BYTES;
            (present * SPARSE_ROW_BYTES == bytes.len()).then(|| {
                let (rows, ids) = bytes.split(present * 4);
                Self::Sparse { rows, ids }
            })
        } else {
            (bytes.len() == rows as usize).then_some(Self::Dense(bytes))
        }
    }

    /// Returns the encoded length of a row, 0 where it has no token.
    #[inline]
    pub(super) fn id(&self, row: u32) -> u8 {
        match self {
            Self::Absent => 0,
            Self::Dense(ids) => ids.get(row as usize).copied().unwrap_or(0),
            Self::Sparse { rows, ids } => {
                let (rows, _) = rows.as_chunks::<4>();
                match rows.binary_search_by_key(&row, |bytes| u32::from_le_bytes(*bytes)) {
                    Ok(at) => ids[at],
                    Err(_) => 0,
                }
            }
        }
    }

    /// Returns the encoded lengths of all rows where they are kept a byte a row.
    pub(super) fn dense(&self) -> Option<&[u8]> {
        match self {
            Self::Dense(ids) => Some(ids),
            Self::Absent | Self::Sparse { .. } => None,
        }
    }

    /// Calls `each` with every row that has tokens and its encoded length, ascending.
    pub(super) fn for_each(&self, mut each: impl FnMut(u32, u8)) {
        match self {
            Self::Absent => {}
            Self::Dense(ids) => {
                for (row, &id) in ids.iter().enumerate().filter(|(_, id)| **id != 0) {
                    each(row as u32, id);
                }
            }
            Self::Sparse { rows, ids } => {
                for (row, &id) in rows.as_chunks::<4>().0.iter().zip(ids.iter()) {
                    each(u32::from_le_bytes(*row), id);
                }
            }
        }
    }
}
