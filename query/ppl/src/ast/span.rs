//! Positions in the text.

use std::ops::Range;

/// A range of bytes of the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextSpan {
    /// The first byte.
    pub start: usize,
    /// The byte behind the last one.
    pub end: usize,
}

impl TextSpan {
    /// Makes the span of a range.
    #[must_use]
    pub fn new(range: Range<usize>) -> Self {
        Self { start: range.start, end: range.end }
    }

    /// Returns the text of the span.
    #[must_use]
    pub fn text(self, text: &str) -> &str {
        text.get(self.start..self.end).unwrap_or_default()
    }
}
