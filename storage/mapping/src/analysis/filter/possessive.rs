//! The English possessive: drops a trailing `'s` (part of the `english` analyzer).

use super::{Filter, Stage, each};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct EnglishPossessive;

impl Filter for EnglishPossessive {
    fn stage<'a>(&'a self, next: Box<dyn Stage + 'a>) -> Box<dyn Stage + 'a> {
        each(
            |token| {
                let mut tail = token.text.char_indices().rev();
                if let (Some((_, 's' | 'S')), Some((at, '\'' | '\u{2019}' | '\u{ff07}'))) =
                    (tail.next(), tail.next())
                {
                    token.text.truncate(at);
                }
                true
            },
            next,
        )
    }
}
