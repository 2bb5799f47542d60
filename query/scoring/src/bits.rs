//! The bits of a window of rows, and row sets made of them.

use millrace_segment::{WINDOW_ROWS, WindowBits};
use roaring::RoaringBitmap;

/// Up to so many rows of a window are looked up one by one.
pub(super) const FEW: u32 = 24;

/// Rows of a set that are listed at a time.
const LISTED_ROWS: usize = 128;

/// No row of a window.
pub(super) const NO_ROWS: WindowBits = [0; WINDOW_ROWS as usize / 64];

/// The bits of so many first rows.
pub(super) fn up_to(rows: u32) -> WindowBits {
    let mut bits = [u64::MAX; WINDOW_ROWS as usize / 64];
    for (at, word) in bits.iter_mut().enumerate() {
        let own = rows.saturating_sub(at as u32 * 64).min(64);
        *word = if own == 0 { 0 } else { u64::MAX >> (64 - own) };
    }
    bits
}

/// Counts bits.
pub(super) fn count(bits: &WindowBits) -> u32 {
    bits.iter().map(|word| word.count_ones()).sum()
}

/// Returns whether no bit is set.
pub(super) fn is_empty(bits: &WindowBits) -> bool {
    bits.iter().fold(0, |any, word| any | word) == 0
}

/// Clears the bits of all rows but the given ones.
pub(super) fn restrict(first: u32, bits: &mut WindowBits, rows: &RoaringBitmap) {
    let end = first.saturating_add(WINDOW_ROWS);
    if count(bits) <= FEW {
        retain(first, bits, |row| rows.contains(row));
    } else if !rows.contains_range(first..end) {
        let mut wanted = NO_ROWS;
        let (mut rows, mut chunk) = (rows.range(first..end), [0; LISTED_ROWS]);
        loop {
            let listed = rows.next_many(&mut chunk);
            if listed.is_empty() {
                break;
            }
            listed.iter().for_each(|row| set(&mut wanted, *row - first));
        }
        intersect(bits, &wanted);
    }
}

/// Clears the bits of the given rows.
pub(super) fn clear(first: u32, bits: &mut WindowBits, rows: &RoaringBitmap) {
    for row in rows.range(first..first.saturating_add(WINDOW_ROWS)) {
        let at = row - first;
        if let Some(word) = bits.get_mut(at as usize / 64) {
            *word &= !(1 << (at % 64));
        }
    }
}

/// Clears the bits of those rows that are not to be kept.
pub(super) fn retain(first: u32, bits: &mut WindowBits, mut keeps: impl FnMut(u32) -> bool) {
    for (at, word) in bits.iter_mut().enumerate() {
        let mut left = *word;
        while left != 0 {
            let bit = left.trailing_zeros();
            if !keeps(first + at as u32 * 64 + bit) {
                *word &= !(1 << bit);
            }
            left &= left - 1;
        }
    }
}

/// Sets the bit of a row, counted from the first of the window.
pub(super) fn set(bits: &mut WindowBits, at: u32) {
    if let Some(word) = bits.get_mut(at as usize / 64) {
        *word |= 1 << (at % 64);
    }
}

/// Returns whether the bit of a row is set, counted from the first of the window.
pub(super) fn has(bits: &WindowBits, at: u32) -> bool {
    bits.get(at as usize / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
}

/// Keeps the bits that are also set in others.
pub(super) fn intersect(bits: &mut WindowBits, with: &WindowBits) {
    bits.iter_mut().zip(with).for_each(|(word, with)| *word &= with);
}

/// Clears the bits that are set in others.
pub(super) fn subtract(bits: &mut WindowBits, without: &WindowBits) {
    bits.iter_mut().zip(without).for_each(|(word, without)| *word &= !without);
}

/// Sets the bits that are set in others.
pub(super) fn unite(bits: &mut WindowBits, with: &WindowBits) {
    bits.iter_mut().zip(with).for_each(|(word, with)| *word |= with);
}

/// Returns the first set bit at or behind one.
pub(super) fn first_from(bits: &WindowBits, from: u32) -> Option<u32> {
    let start = from as usize / 64;
    bits.iter().enumerate().skip(start).find_map(|(at, word)| {
        let word = if at == start { word & (u64::MAX << (from % 64)) } else { *word };
        (word != 0).then(|| at as u32 * 64 + word.trailing_zeros())
    })
}

/// Lists the rows whose bits are set, from one on.
pub(super) fn rows_from(first: u32, bits: &WindowBits, from: u32) -> impl Iterator<Item = u32> {
    let from = from.saturating_sub(first);
    let words = bits.iter().enumerate().skip(from as usize / 64);
    words.flat_map(move |(at, word)| {
        let start = at as u32 * 64;
        let mut left = word & (u64::MAX << from.saturating_sub(start));
        std::iter::from_fn(move || {
            let row = first + start + left.trailing_zeros();
            (left != 0).then(|| {
                left &= left - 1;
                row
            })
        })
    })
}

/// Makes a row set of windows that come in order.
#[derive(Default)]
pub(super) struct SetBuilder {
    found: RoaringBitmap,
    len: u64,
    /// Windows of one container, and its number.
    container: u32,
    words: Vec<u64>,
}

/// Rows of a container of a row set.
const CONTAINER: u32 = 1 << 16;

impl SetBuilder {
    /// Adds a window.
    pub(super) fn add(&mut self, first: u32, bits: &WindowBits) {
        self.len += u64::from(count(bits));
        if first / CONTAINER != self.container {
            self.flush();
            self.container = first / CONTAINER;
        }
        let at = (first % CONTAINER / 64) as usize;
        if self.words.len() < at {
            self.words.resize(at, 0);
        }
        self.words.extend_from_slice(bits);
    }

    /// Counts the rows so far.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    fn flush(&mut self) {
        let first = self.container * CONTAINER;
        let rows: u32 = self.words.iter().map(|word| word.count_ones()).sum();
        if rows > CONTAINER / 32 {
            let bytes: Vec<u8> = self.words.iter().flat_map(|word| word.to_le_bytes()).collect();
            self.found |= RoaringBitmap::from_lsb0_bytes(first, &bytes);
        } else {
            for (at, word) in self.words.iter().enumerate() {
                let mut word = *word;
                while word != 0 {
                    // Rows ascend, so each goes behind the last.
                    let _ = self.found.try_push(first + at as u32 * 64 + word.trailing_zeros());
                    word &= word - 1;
                }
            }
        }
        self.words.clear();
    }

    /// Returns the rows.
    pub(super) fn finish(mut self) -> RoaringBitmap {
        self.flush();
        self.found
    }
}
