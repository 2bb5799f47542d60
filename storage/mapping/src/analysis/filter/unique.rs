//! The `unique` filter: drops repeated tokens. Unlike other removals it leaves no gap, as in Lucene.

use hashbrown::HashSet;

use super::{Filter, Stage, TextEnd};
use crate::analysis::Token;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Unique {
    pub(crate) only_on_same_position: bool,
}

impl Filter for Unique {
    fn stage<'a>(&'a self, next: Box<dyn Stage + 'a>) -> Box<dyn Stage + 'a> {
        Box::new(UniqueStage {
            only_on_same_position: self.only_on_same_position,
            seen: HashSet::new(),
            last: None,
            dropped: 0,
            next,
        })
    }
}

struct UniqueStage<'a> {
    only_on_same_position: bool,
    /// Bounded by the tokens of one text.
    seen: HashSet<String>,
    /// Position of the token before, as it came in.
    last: Option<u32>,
    /// Positions that dropped tokens would have taken.
    dropped: u32,
    next: Box<dyn Stage + 'a>,
}

impl Stage for UniqueStage<'_> {
    fn token(&mut self, token: &mut Token) {
        let increment = self.last.map_or(token.position + 1, |last| token.position - last);
        self.last = Some(token.position);
        if self.only_on_same_position && increment > 0 {
            self.seen.clear();
        }
        let duplicate =
            !self.seen.insert(token.text.clone()) && (!self.only_on_same_position || increment == 0);
        if duplicate {
            self.dropped += increment;
        } else {
            token.position -= self.dropped;
            self.next.token(token);
        }
    }

    fn end(&mut self, end: TextEnd) -> TextEnd {
        self.next.end(TextEnd { positions: end.positions - self.dropped, ..end })
    }
}
