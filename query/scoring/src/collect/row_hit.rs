//! Rows that were found: where they are, which are better, and which are behind a point that was reached before.

use std::cmp::Ordering;

use crate::END;

/// Address of a row: the segment's number in the table, and the row in it. Addresses ascend in the order of index, shard,
/// segment, row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// Segment number.
    pub segment: u32,
    /// Row number.
    pub row: u32,
}

/// A row that was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowHit {
    /// Its score; 0 where scores are not computed.
    pub score: f32,
    /// Address of the row.
    pub address: Address,
}

impl Eq for RowHit {}

impl Ord for RowHit {
    /// Greater is worse: a lower score, and among equals a later address.
    fn cmp(&self, other: &Self) -> Ordering {
        other.score.total_cmp(&self.score).then_with(|| self.address.cmp(&other.address))
    }
}

impl PartialOrd for RowHit {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The point behind which a continued search goes on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cursor {
    /// Score of the last row, where the order is by score.
    pub score: Option<f32>,
    /// Address of the last row; all rows of that score are behind where absent.
    pub address: Option<Address>,
}

impl Cursor {
    /// First row of a segment that is behind it, [`END`] for none: rows before are skipped unseen where the order is theirs.
    pub fn start(&self, segment: u32) -> u32 {
        match (self.score, self.address) {
            (None, Some(last)) => match segment.cmp(&last.segment) {
                Ordering::Less => END,
                Ordering::Equal => last.row.saturating_add(1),
                Ordering::Greater => 0,
            },
            _ => 0,
        }
    }

    /// Returns whether a row is behind it.
    pub(super) fn passes(&self, score: f32, address: Address) -> bool {
        let behind = self.address.is_some_and(|last| address > last);
        match self.score {
            None => behind,
            Some(last) => match score.total_cmp(&last) {
                Ordering::Less => true,
                Ordering::Equal => behind,
                Ordering::Greater => false,
            },
        }
    }
}
