//! Bounds on the scores of a term's rows, block by block.

use super::skips::Skips;
use super::text_index::TextIndex;

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
    /// Bound on the frequencies of the run.
    pub most: u32,
}

/// Lists the runs of a term; `None` where they are none.
pub(super) fn list(skips: &Skips) -> Option<Vec<Impact>> {
    let blocks = skips.len();
    if blocks == 0 {
        return None;
    }
    let mut impacts = Vec::with_capacity(blocks + 1);
    impacts.extend((0..blocks).map(|block| {
        let (length, freq) = skips.best(block);
        Impact {
            last: skips.last(block),
            length: TextIndex::decode_norm(length),
            freq: if freq == MANY { u32::MAX } else { freq.into() },
            most: skips.most(block),
        }
    }));
    // What is left fills no block, and is not described.
    impacts.push(Impact { last: u32::MAX, length: 0, freq: u32::MAX, most: u32::MAX });
    Some(impacts)
}
