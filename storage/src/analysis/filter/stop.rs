//! The `stop` filter: drops words of a list, leaving gaps in the positions.

use hashbrown::HashSet;

use super::lowercase::apply;
use super::{Filter, Stage, each};
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
}

impl Stop {
    pub(crate) fn new(words: Vec<String>, ignore_case: bool) -> Self {
        let words = words.into_iter().map(|word| if ignore_case { lowered(word) } else { word }).collect();
        Self { words, ignore_case }
    }
}

fn lowered(word: String) -> String {
    let mut token = Token { text: word, ..Token::default() };
    apply(&mut token);
    token.text
}

impl Filter for Stop {
    fn stage<'a>(&'a self, next: Box<dyn Stage + 'a>) -> Box<dyn Stage + 'a> {
        each(
            |token| {
                if self.ignore_case {
                    !self.words.contains(&lowered(token.text.clone()))
                } else {
                    !self.words.contains(token.text.as_str())
                }
            },
            next,
        )
    }
}
