//! Filters by length: `length` drops tokens, `truncate` shortens them. Lengths are in UTF-16 units.

use super::{Filter, Stage, each};
use crate::analysis::tokenizer::prefix_of_utf16_units;

/// Keeps tokens within a range of lengths.
#[derive(Debug)]
pub(crate) struct Length {
    pub(crate) min: usize,
    pub(crate) max: usize,
}

impl Filter for Length {
    fn stage<'a>(&'a self, next: Box<dyn Stage + 'a>) -> Box<dyn Stage + 'a> {
        each(
            |token| {
                let length = token.text.chars().map(char::len_utf16).sum::<usize>();
                (self.min..=self.max).contains(&length)
            },
            next,
        )
    }
}

/// Cuts tokens to a length.
#[derive(Debug)]
pub(crate) struct Truncate {
    pub(crate) length: usize,
}

impl Filter for Truncate {
    fn stage<'a>(&'a self, next: Box<dyn Stage + 'a>) -> Box<dyn Stage + 'a> {
        each(
            |token| {
                let end = prefix_of_utf16_units(&token.text, self.length);
                token.text.truncate(end);
                true
            },
            next,
        )
    }
}
