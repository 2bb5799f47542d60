//! The skip list of a term's postings: a record for each full block of 128 rows.
//!
//! tantivy writes the last row, the widths of rows and frequencies, the number of positions of the block where they are
//! kept, and the encoded length and frequency of the row that scores best for the field's average length
//! ([`TextIndex::block_max_average`](super::TextIndex::block_max_average)).

use tantivy::directory::OwnedBytes;

use super::postings::{BLOCK, Record};

/// The records of a term.
#[derive(Clone)]
pub(super) struct Skips {
    records: OwnedBytes,
    record: Record,
}

impl Skips {
    /// Finds the records in the postings of a term with `doc_freq` rows, which are none where no block is full; `None`
    /// where they are not as expected, or not kept.
    pub(super) fn open(record: Record, doc_freq: u32, postings: &OwnedBytes) -> Option<Self> {
        if record == Record::Rows {
            return None;
        }
        if doc_freq < BLOCK {
            return Some(Self { records: OwnedBytes::empty(), record });
        }
        let (len, start) = read_vint(postings)?;
        let blocks = (doc_freq / BLOCK) as usize;
        let used = blocks.checked_mul(size(record)).filter(|used| *used <= len)?;
        let end = start.checked_add(used).filter(|end| *end <= postings.len())?;
        Some(Self { records: postings.slice(start..end), record })
    }

    /// Counts the full blocks.
    pub(super) fn len(&self) -> usize {
        self.records.len() / size(self.record)
    }

    /// Returns the last row of a full block.
    pub(super) fn last(&self, block: usize) -> u32 {
        self.number(block, 0)
    }

    /// Returns the number of positions in a full block; 0 where they are not kept.
    pub(super) fn positions(&self, block: usize) -> u32 {
        match self.record {
            Record::Positions => self.number(block, 6),
            _ => 0,
        }
    }

    /// Returns what no frequency in a full block exceeds: the greatest of its bit width, of frequencies less one.
    pub(super) fn most(&self, block: usize) -> u32 {
        1u32.checked_shl(self.records[block * size(self.record) + 5].into()).unwrap_or(u32::MAX)
    }

    /// Returns the encoded length and the frequency of the row of a full block that scores best; the frequency is 255 where
    /// it takes more than a byte.
    pub(super) fn best(&self, block: usize) -> (u8, u8) {
        let behind = (block + 1) * size(self.record);
        (self.records[behind - 2], self.records[behind - 1])
    }

    fn number(&self, block: usize, offset: usize) -> u32 {
        let at = block * size(self.record) + offset;
        self.records[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
    }
}

/// Bytes of a record: what is described above.
fn size(record: Record) -> usize {
    match record {
        Record::Positions => 12,
        _ => 8,
    }
}

/// Reads tantivy's variable-length integer: seven bits a byte, lowest first, the last byte marked.
fn read_vint(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut value = 0usize;
    for (at, byte) in bytes.iter().take(9).enumerate() {
        value |= usize::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 != 0 {
            return Some((value, at + 1));
        }
    }
    None
}
