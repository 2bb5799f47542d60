//! The `lowercase` filter: character by character, as Java's `Character.toLowerCase`.

use super::{Filter, Stage, each};
use crate::analysis::Token;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Lowercase;

impl Filter for Lowercase {
    fn stage<'a>(&'a self, next: Box<dyn Stage + 'a>) -> Box<dyn Stage + 'a> {
        each(
            |token| {
                apply(token);
                true
            },
            next,
        )
    }

    fn is_lowercase(&self) -> bool {
        true
    }

    fn is_normalizing(&self) -> bool {
        true
    }
}

/// Lower-cases a token in place; allocates only where a letter outside ASCII changes.
#[inline]
pub(crate) fn apply(token: &mut Token) {
    if token.text.is_ascii() {
        token.text.make_ascii_lowercase();
    } else if token.text.chars().any(|c| lower(c) != c) {
        token.text = token.text.chars().map(lower).collect();
    }
}

/// Java maps one character to one: of a longer mapping, the first counts.
pub(crate) fn lower(c: char) -> char {
    c.to_lowercase().next().unwrap_or(c)
}
