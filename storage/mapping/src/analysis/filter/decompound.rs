//! The `dictionary_decompounder` filter: the words of a dictionary within a word, beside it.

use hashbrown::HashSet;

use super::{Filter, InSynonyms, Stage, TextEnd};
use crate::analysis::Token;
use crate::analysis::filter::lowercase::lower;

/// See the [module](self). Lengths are UTF-16 code units.
#[derive(Debug)]
pub(crate) struct Decompounder {
    words: HashSet<String>,
    ignore_case: bool,
    min_word_size: usize,
    min_subword_size: usize,
    max_subword_size: usize,
    only_longest_match: bool,
}

impl Decompounder {
    /// Looks for `words`, which are in lower case where case is ignored; for none that is longer than
    /// the longest of them, so that long words take linear time.
    pub(crate) fn new(words: HashSet<String>, ignore_case: bool) -> Self {
        let longest = words.iter().map(|word| word.encode_utf16().count()).max().unwrap_or(0);
        Self {
            words,
            ignore_case,
            min_word_size: 5,
            min_subword_size: 2,
            max_subword_size: longest,
            only_longest_match: false,
        }
    }

    /// Looks into words of a least length only, for words of these lengths.
    pub(crate) fn with_sizes(self, word: usize, least: usize, most: usize) -> Self {
        let max_subword_size = self.max_subword_size.min(most);
        Self { min_word_size: word, min_subword_size: least, max_subword_size, ..self }
    }

    /// Of the words that begin at a place, takes the longest alone.
    pub(crate) fn only_longest_match(self, only_longest_match: bool) -> Self {
        Self { only_longest_match, ..self }
    }
}

impl Filter for Decompounder {
    fn stage<'a>(&'a self, next: Box<dyn Stage + 'a>) -> Box<dyn Stage + 'a> {
        Box::new(Decompounding { filter: self, next })
    }

    fn in_synonyms(&self) -> InSynonyms {
        InSynonyms::Nothing
    }
}

struct Decompounding<'a> {
    filter: &'a Decompounder,
    next: Box<dyn Stage + 'a>,
}

impl Decompounder {
    /// The parts of a word as ranges of bytes.
    fn parts(&self, word: &str) -> Vec<(usize, usize)> {
        let fold = |c: char| if self.ignore_case { lower(c) } else { c };
        let folded: String = word.chars().map(fold).collect();
        // Where characters begin, and the end: in bytes of the word, bytes of the folded word, code units.
        let mut bounds = Vec::with_capacity(word.len() + 1);
        let (mut at, mut folded_at, mut units) = (0, 0, 0);
        for c in word.chars() {
            bounds.push((at, folded_at, units));
            at += c.len_utf8();
            folded_at += fold(c).len_utf8();
            units += c.len_utf16();
        }
        bounds.push((at, folded_at, units));
        let mut parts = Vec::new();
        for (number, (start, folded_start, from)) in bounds.iter().enumerate() {
            let mut longest = None;
            for (end, folded_end, to) in &bounds[number..] {
                let length = to - from;
                if length > self.max_subword_size {
                    break;
                }
                if length < self.min_subword_size || !self.words.contains(&folded[*folded_start..*folded_end])
                {
                    continue;
                }
                if self.only_longest_match {
                    longest = Some((*start, *end));
                } else {
                    parts.push((*start, *end));
                }
            }
            parts.extend(longest);
        }
        parts
    }
}

impl Stage for Decompounding<'_> {
    fn token(&mut self, token: &mut Token) {
        let long_enough = token.text.encode_utf16().count() >= self.filter.min_word_size;
        let parts = if long_enough { self.filter.parts(&token.text) } else { Vec::new() };
        if parts.is_empty() {
            return self.next.token(token);
        }
        let whole = token.clone();
        self.next.token(token);
        for (start, end) in parts {
            let mut part = Token { text: whole.text[start..end].to_owned(), ..whole.clone() };
            self.next.token(&mut part);
        }
    }

    fn end(&mut self, end: TextEnd) -> TextEnd {
        self.next.end(end)
    }
}
