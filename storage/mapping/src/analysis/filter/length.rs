//! Filters by length: `length` drops tokens, `truncate` shortens them. Lengths are in UTF-16 units.

use super::{Filter, Stage, each};

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
                if token.keyword {
                    return true;
                }
                let mut left = self.length;
                let beyond = token.text.char_indices().find(|(_, c)| {
                    let rest = left.checked_sub(c.len_utf16());
                    left = rest.unwrap_or(left);
                    rest.is_none()
                });
                if let Some((end, _)) = beyond {
                    token.text.truncate(end);
                    if left > 0 {
                        // Half of a surrogate pair, which the index of Lucene holds as this.
                        token.text.push(char::REPLACEMENT_CHARACTER);
                    }
                }
                true
            },
            next,
        )
    }

    fn reports_keywords(&self) -> bool {
        true
    }
}
