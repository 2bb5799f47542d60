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

/// A configured character filter.
pub(crate) trait CharFilter: Debug + Send + Sync {
    /// Returns the text as it goes on, and the way back.
    fn apply(&self, text: &str) -> (String, Corrections);

    /// Whether a normalizer may use it.
    fn is_normalizing(&self) -> bool {
        false
    }
}

/// How far offsets in a filtered text are from those in the text before, in UTF-16 code units.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Corrections {
    /// Offsets in the filtered text, ascending, and the difference from there on.
    steps: Vec<(u32, i64)>,
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
