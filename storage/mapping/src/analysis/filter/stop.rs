//! The `stop` filter: drops words of a list, leaving gaps in the positions.

use hashbrown::HashSet;

use super::lowercase::lower;
use super::{Filter, Stage, TextEnd, each};
use crate::analysis::Token;

/// Lucene's English stop words.
const ENGLISH: [&str; 33] = [
    "a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it", "no",
    "not", "of", "on", "or", "such", "that", "the", "their", "then", "there", "these", "they", "this", "to",
    "was", "will", "with",
];

/// Returns the words of `_english_`.
pub(crate) fn english_stop_words() -> Vec<String> {
    ENGLISH.iter().map(|word| (*word).to_owned()).collect()
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Stop {
    words: HashSet<String>,
    ignore_case: bool,
    /// `true` if a stop word that ends the text goes too: one that is being typed may become another.
    remove_trailing: bool,
}

impl Stop {
    pub(crate) fn new(words: Vec<String>, ignore_case: bool) -> Self {
        let words = words.into_iter().map(|word| if ignore_case { lowered(&word) } else { word }).collect();
        Self { words, ignore_case, remove_trailing: true }
    }

    /// Keeps a stop word at the end of the text.
    pub(crate) fn keeping_trailing(self) -> Self {
        Self { remove_trailing: false, ..self }
    }

    fn contains(&self, text: &str) -> bool {
        if self.ignore_case { self.words.contains(&lowered(text)) } else { self.words.contains(text) }
    }
}

fn lowered(word: &str) -> String {
    word.chars().map(lower).collect()
}

impl Filter for Stop {
    fn stage<'a>(&'a self, next: Box<dyn Stage + 'a>) -> Box<dyn Stage + 'a> {
        if self.remove_trailing {
            each(|token| !self.contains(&token.text), next)
        } else {
            Box::new(Trailing { stop: self, held: None, next })
        }
    }
}

/// Holds each stop word back until it is known whether the text ends with it.
struct Trailing<'a> {
    stop: &'a Stop,
    held: Option<Token>,
    next: Box<dyn Stage + 'a>,
}

impl Stage for Trailing<'_> {
    fn token(&mut self, token: &mut Token) {
        self.held = None;
        if self.stop.contains(&token.text) && !token.keyword {
            self.held = Some(token.clone());
        } else {
            self.next.token(token);
        }
    }

    fn end(&mut self, end: TextEnd) -> TextEnd {
        // Only a word that nothing parts from the end of the text can be going on.
        if let Some(mut token) = self.held.take()
            && token.end == end.offset
        {
            self.next.token(&mut token);
        }
        self.next.end(end)
    }
}
