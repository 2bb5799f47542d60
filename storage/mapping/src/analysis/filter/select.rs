//! Filters that drop tokens: `keep`, `keep_types`, `limit`, `remove_duplicates`.

use hashbrown::HashSet;

use super::lowercase::lower;
use super::{Filter, Stage, TextEnd, each};
use crate::analysis::Token;

/// Keeps the words of a list.
#[derive(Debug)]
pub(crate) struct KeepWords {
    pub(crate) words: HashSet<String>,
    pub(crate) ignore_case: bool,
}

impl Filter for KeepWords {
    fn stage<'a>(&'a self, next: Box<dyn Stage + 'a>) -> Box<dyn Stage + 'a> {
        each(
            |token| {
                if self.ignore_case {
                    self.words.contains(&token.text.chars().map(lower).collect::<String>())
                } else {
                    self.words.contains(token.text.as_str())
                }
            },
            next,
        )
    }
}

/// Keeps, or drops, the tokens of some types.
#[derive(Debug)]
pub(crate) struct KeepTypes {
    pub(crate) types: HashSet<String>,
    pub(crate) include: bool,
}

impl Filter for KeepTypes {
    fn stage<'a>(&'a self, next: Box<dyn Stage + 'a>) -> Box<dyn Stage + 'a> {
        each(|token| self.types.contains(token.kind) == self.include, next)
    }
}

/// Keeps the first tokens.
#[derive(Debug)]
pub(crate) struct Limit {
    pub(crate) count: usize,
}

impl Filter for Limit {
    fn stage<'a>(&'a self, next: Box<dyn Stage + 'a>) -> Box<dyn Stage + 'a> {
        Box::new(Limiting { left: self.count, after: 0, next })
    }
}

struct Limiting<'a> {
    left: usize,
    /// Position behind the last token kept.
    after: u32,
    next: Box<dyn Stage + 'a>,
}

impl Stage for Limiting<'_> {
    fn token(&mut self, token: &mut Token) {
        if let Some(left) = self.left.checked_sub(1) {
            self.left = left;
            self.after = token.position + 1;
            self.next.token(token);
        }
    }

    fn end(&mut self, end: TextEnd) -> TextEnd {
        // What lies behind the limit is not read.
        let positions = if self.left == 0 { self.after } else { end.positions };
        self.next.end(TextEnd { positions, ..end })
    }
}

/// Drops a token that another at its position repeats.
#[derive(Debug)]
pub(crate) struct RemoveDuplicates;

impl Filter for RemoveDuplicates {
    fn stage<'a>(&'a self, next: Box<dyn Stage + 'a>) -> Box<dyn Stage + 'a> {
        let mut position = None;
        let mut seen: HashSet<String> = HashSet::new();
        each(
            move |token: &mut Token| {
                if position != Some(token.position) {
                    position = Some(token.position);
                    seen.clear();
                }
                seen.insert(token.text.clone())
            },
            next,
        )
    }
}
