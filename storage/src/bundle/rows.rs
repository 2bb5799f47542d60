//! The rows of many terms, as one set.

use std::io;
use std::ops::Bound;

use roaring::RoaringBitmap;
use tantivy::InvertedIndexReader;
use tantivy::postings::{BlockSegmentPostings, TermInfo};
use tantivy::schema::IndexRecordOption;

/// Collects rows: a list while they are few, a bit a row beyond.
struct Union {
    rows: u32,
    list: Vec<u32>,
    bits: Vec<u8>,
}

impl Union {
    fn extend(&mut self, rows: &[u32]) {
        if self.bits.is_empty() {
            if self.list.len() + rows.len() <= self.rows as usize / 32 {
                return self.list.extend_from_slice(rows);
            }
            self.bits = vec![0; (self.rows as usize).div_ceil(8)];
            for row in std::mem::take(&mut self.list) {
                self.set(row);
            }
        }
        for &row in rows {
            self.set(row);
        }
    }

    fn set(&mut self, row: u32) {
        if let Some(byte) = self.bits.get_mut(row as usize / 8) {
            *byte |= 1 << (row % 8);
        }
    }

    fn finish(mut self) -> RoaringBitmap {
        if self.bits.is_empty() {
            self.list.sort_unstable();
            self.list.dedup();
            RoaringBitmap::from_sorted_iter(self.list).expect("a sorted list without repetition ascends")
        } else {
            RoaringBitmap::from_lsb0_bytes(0, &self.bits)
        }
    }
}

/// Visits the terms of a dictionary within bounds; `each` returns whether to go on.
pub(super) fn visit(
    reader: &InvertedIndexReader,
    from: Bound<&[u8]>,
    to: Bound<&[u8]>,
    mut each: impl FnMut(&[u8], &TermInfo) -> io::Result<bool>,
) -> io::Result<()> {
    let mut range = reader.terms().range();
    range = match from {
        Bound::Included(key) => range.ge(key),
        Bound::Excluded(key) => range.gt(key),
        Bound::Unbounded => range,
    };
    range = match to {
        Bound::Included(key) => range.le(key),
        Bound::Excluded(key) => range.lt(key),
        Bound::Unbounded => range,
    };
    let mut terms = range.into_stream()?;
    while terms.advance() {
        if !each(terms.key(), terms.value())? {
            break;
        }
    }
    Ok(())
}

/// Returns the rows of all terms within bounds, of `rows` rows in all.
pub(super) fn union(
    reader: &InvertedIndexReader,
    from: Bound<&[u8]>,
    to: Bound<&[u8]>,
    rows: u32,
) -> io::Result<RoaringBitmap> {
    let mut union = Union { rows, list: Vec::new(), bits: Vec::new() };
    let mut cursor: Option<BlockSegmentPostings> = None;
    visit(reader, from, to, |_, info| {
        let blocks = match &mut cursor {
            Some(blocks) => {
                reader.reset_block_postings_from_terminfo(info, blocks)?;
                blocks
            }
            None => cursor.insert(reader.read_block_postings_from_terminfo(info, IndexRecordOption::Basic)?),
        };
        while !blocks.docs().is_empty() {
            union.extend(blocks.docs());
            blocks.advance();
        }
        Ok(true)
    })?;
    Ok(union.finish())
}

/// Returns the least byte string above all that start with `prefix`.
pub(super) fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != 0xff)?;
    let mut after = prefix[..=last].to_vec();
    after[last] += 1;
    Some(after)
}
