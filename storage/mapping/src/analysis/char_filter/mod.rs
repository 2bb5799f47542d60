//! Character filters: what becomes of a text before the tokenizer.
//!
//! A filter that changes the length of a text says how offsets in its output lead back to its input
//! ([`Corrections`]), so that tokens point into the text that was given.

mod html;
mod mapping;
mod pattern;

use std::fmt::Debug;

pub(crate) use html::HtmlStrip;
pub(crate) use mapping::{Mapping, unescape};
pub(crate) use pattern::PatternReplace;

/// Replaces the markup of HTML in a text as the character filter `html_strip` does.
pub fn strip_html(text: &str) -> String {
    HtmlStrip::new(Vec::new()).apply(text, usize::MAX).0
}

/// Bytes that a character filter may add to a text, beyond as many as the text has.
const MAX_ADDED: usize = 1 << 20;

/// Returns the bytes that replacements may make of a text of so many: what is replaced by more could grow a document to any
/// size long after it was acknowledged.
pub(crate) fn most_bytes(text: usize) -> usize {
    text.saturating_mul(2).saturating_add(MAX_ADDED)
}

/// A configured character filter.
pub(crate) trait CharFilter: Debug + Send + Sync {
    /// Returns the text as it goes on, and the way back. It ends behind `most` bytes, which the corrections tell.
    fn apply(&self, text: &str, most: usize) -> (String, Corrections);

    /// Bytes that it may make of a byte.
    fn growth(&self) -> usize {
        1
    }

    /// Returns whether a normalizer may use it.
    fn is_normalizing(&self) -> bool {
        false
    }
}

/// Distances of offsets in a filtered text from those in the text before, in UTF-16 code units.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Corrections {
    /// Offsets in the filtered text, ascending, and the difference from there on.
    steps: Vec<(u32, i64)>,
    /// `true` if the filtered text ends before it should, since it would be too long.
    cut: bool,
}

impl Corrections {
    /// From `offset` on, the text before is `difference` further.
    fn add(&mut self, offset: u32, difference: i64) {
        match self.steps.last_mut() {
            Some(last) if last.0 == offset => last.1 = difference,
            _ => self.steps.push((offset, difference)),
        }
    }

    /// The difference at the end of what was filtered so far.
    fn last_difference(&self) -> i64 {
        self.steps.last().map_or(0, |step| step.1)
    }

    /// Returns whether the filtered text ends before it should.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut
    }

    /// Leads an offset back.
    pub(crate) fn correct(&self, offset: u32) -> u32 {
        let at = self.steps.partition_point(|step| step.0 <= offset);
        let difference = if at == 0 { 0 } else { self.steps[at - 1].1 };
        u32::try_from((i64::from(offset) + difference).max(0)).unwrap_or(u32::MAX)
    }
}

/// UTF-16 code units of a text.
fn units(text: &str) -> u32 {
    u32::try_from(text.chars().map(char::len_utf16).sum::<usize>()).unwrap_or(u32::MAX)
}
