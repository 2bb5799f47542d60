//! How well the rows of a term can score, block by block: read from the skip list of its postings.
//!
//! tantivy writes a record for each full block of 128 rows: the last row, widths, the positions of
//! the block where they are kept, and the encoded length and frequency of the row that scores best
//! for the field's average length ([`TextIndex::block_max_average`](super::TextIndex)).

use super::postings::Record;
use super::text_index::TextIndex;

/// Rows of a full block.
const BLOCK: u32 = 128;
/// The code of frequencies that take more than a byte.
const MANY: u8 = u8::MAX;

/// A run of rows of a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Impact {
    /// The last row; `u32::MAX` for the last run.
    pub last: u32,
    /// Length of the field in the row that scores best.
    pub length: u32,
    /// Frequency of the term in that row; `u32::MAX` where it is not known.
    pub freq: u32,
}

/// Reads the runs of a term from its postings; `None` where they are none, or not as expected.
pub(super) fn read(record: Record, doc_freq: u32, postings: &[u8]) -> Option<Vec<Impact>> {
    let (size, length_at) = match record {
        Record::Rows => return None,
        Record::Frequencies => (8, 6),
        Record::Positions => (12, 10),
    };
    if doc_freq < BLOCK {
        return None;
    }
    let (skip_len, start) = read_vint(postings)?;
    let blocks = (doc_freq / BLOCK) as usize;
    let skips = postings.get(start..start.checked_add(skip_len)?)?;
    if skips.len() < blocks * size {
        return None;
    }
    let mut impacts = Vec::with_capacity(blocks + 1);
    for record in skips.chunks_exact(size).take(blocks) {
        let freq = match record[length_at + 1] {
            MANY => u32::MAX,
            freq => freq.into(),
        };
        impacts.push(Impact {
            last: u32::from_le_bytes(*record.first_chunk::<4>()?),
            length: TextIndex::decode_norm(record[length_at]),
            freq,
        });
    }
    // What is left fills no block, and is not described.
    impacts.push(Impact { last: u32::MAX, length: 0, freq: u32::MAX });
    Some(impacts)
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
