//! Boundaries of the sentences and words of a text, as `java.text.BreakIterator` cuts them.
//!
//! OpenSearch's highlighters cut their fragments with the JDK's iterators, whose rules are older than
//! and different from those of Unicode's annex 29. [`Boundaries`] holds the boundaries of one text.
//! Positions are UTF-16 code units, as everything that highlighting measures.

mod class;
mod sentence;
mod word;

/// Unit that a text is cut into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Sentences.
    Sentence,
    /// Words, and what is between them.
    Word,
    /// The text as one piece.
    Whole,
}

/// The boundaries of a text, its start and its end included.
#[derive(Clone, Debug, Default)]
pub(crate) struct Boundaries {
    places: Vec<usize>,
    /// Places that the JDK takes for boundaries of sentences when it looks for one backwards, each with
    /// the place that it must have passed. A full stop is one where what follows can only begin a
    /// sentence, though the sentence may go on when read forwards.
    resumptions: Vec<(usize, usize)>,
}

impl Boundaries {
    /// Cuts a text.
    pub(crate) fn new(text: &[u16], unit: Unit) -> Self {
        let mut boundaries = vec![0];
        let mut resumptions = Vec::new();
        match unit {
            Unit::Sentence => sentence::boundaries(text, &mut boundaries, &mut resumptions),
            Unit::Word => word::boundaries(text, &mut boundaries),
            Unit::Whole if text.is_empty() => {}
            Unit::Whole => boundaries.push(text.len()),
        }
        Self { places: boundaries, resumptions }
    }

    /// Returns the first boundary behind a position.
    pub(crate) fn following(&self, position: usize) -> Option<usize> {
        self.places.get(self.places.partition_point(|boundary| *boundary <= position)).copied()
    }

    /// Returns the last boundary before a position.
    pub(crate) fn preceding(&self, position: usize) -> Option<usize> {
        let at = self.places.partition_point(|boundary| *boundary < position);
        at.checked_sub(1).and_then(|at| self.places.get(at)).copied()
    }

    /// Returns where a search backwards from a position for a sentence's boundary goes on forwards, if
    /// that is none.
    pub(crate) fn resumption(&self, position: usize) -> Option<usize> {
        let at = self.resumptions.partition_point(|(_, passed)| *passed < position);
        at.checked_sub(1).and_then(|at| self.resumptions.get(at)).map(|(place, _)| *place)
    }
}

/// A character with the marks behind it that no boundary comes before.
#[derive(Clone, Copy, Debug)]
struct Cell<C> {
    class: C,
    end: usize,
}

/// Classifies the characters of a text; those of no class belong to the one before them, or at the
/// start of the text to the one behind them.
fn cells<C: Copy>(text: &[u16], class_of: impl Fn(char) -> Option<C>) -> Vec<Cell<C>> {
    let mut cells: Vec<Cell<C>> = Vec::with_capacity(text.len());
    let mut end = 0;
    for c in char::decode_utf16(text.iter().copied()) {
        let c = c.unwrap_or(char::REPLACEMENT_CHARACTER);
        end += c.len_utf16();
        match (class_of(c), cells.last_mut()) {
            (Some(class), _) => cells.push(Cell { class, end }),
            (None, Some(last)) => last.end = end,
            (None, None) => {}
        }
    }
    cells
}

#[cfg(test)]
mod tests;
