//! Phrases of single terms in many short rows: a word of bits a row says where each term stands, and what is left of them,
//! moved to where the phrase begins, is where it does.

use millrace_segment::{WINDOW_ROWS, WindowBits};
use millrace_work::error::Result;

use crate::bits::{NO_ROWS, has, intersect, unite};
use crate::phrase::PhrasePosition;
use crate::positions::{RowPositions, WindowWords};
use crate::reader::TextReader;

/// Rows of a window that have all terms, from which on it is worth it: the positions of all rows that have any are read.
pub(super) const MANY: u32 = WINDOW_ROWS / 8;

/// Starts of a phrase in the rows of a window.
pub(super) struct PhraseWindows {
    /// The positions of each place, and how far behind the beginning it is.
    places: Vec<(Box<dyn RowPositions>, u32)>,
    /// The window by its first row, and the bits where the phrase begins in each row.
    first: Option<u32>,
    starts: Box<WindowWords>,
    /// Rows of which that is not told: they have more positions than bits.
    beyond: WindowBits,
    own: Box<WindowWords>,
}

impl PhraseWindows {
    /// Opens places; `None` where one has several terms or lies too far behind the first.
    pub(super) fn open(places: &[PhrasePosition], text: &dyn TextReader) -> Result<Option<Self>> {
        let mut opened = Vec::with_capacity(places.len());
        for place in places {
            let ([term], 0..u64::BITS) = (place.fixed(), place.offset) else { return Ok(None) };
            let Some(positions) = text.positions(term)? else { return Ok(None) };
            opened.push((positions, place.offset));
        }
        let words = || Box::new([0; WINDOW_ROWS as usize]);
        Ok(Some(Self { places: opened, first: None, starts: words(), beyond: NO_ROWS, own: words() }))
    }

    /// Goes to a window, and clears the bits of rows that do not have the phrase; tells whether it can. Windows do not
    /// descend.
    pub(super) fn find(&mut self, first: u32, rows: &mut WindowBits) -> bool {
        self.starts.fill(u64::MAX);
        self.beyond = NO_ROWS;
        for (positions, offset) in &mut self.places {
            self.own.fill(0);
            if !positions.fill(first, &mut self.own, &mut self.beyond) {
                return false;
            }
            self.starts.iter_mut().zip(&*self.own).for_each(|(starts, own)| *starts &= own >> *offset);
        }
        let mut found = NO_ROWS;
        for (found, starts) in found.iter_mut().zip(self.starts.chunks(u64::BITS as usize)) {
            *found = starts.iter().rev().fold(0, |found, starts| found << 1 | u64::from(*starts != 0));
        }
        unite(&mut found, &self.beyond);
        intersect(rows, &found);
        self.first = Some(first);
        true
    }

    /// Counts the phrase in a row, where its window was looked at and tells.
    pub(super) fn frequency(&self, row: u32) -> Option<u32> {
        let at = row.checked_sub(self.first?).filter(|at| !has(&self.beyond, *at))?;
        self.starts.get(at as usize).map(|starts| starts.count_ones())
    }
}
