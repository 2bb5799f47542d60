//! The `asciifolding` filter: letters, digits and punctuation outside ASCII become what they look
//! like in it (é to e, ß to ss, “ to ").
//!
//! The table beside this file is that of Lucene's `ASCIIFoldingFilter`: each line has a folding and the
//! characters that it stands for. It was read off OpenSearch 2.19.3, whose `_analyze` was asked for every
//! character from U+0080 to U+1FFFF.

use std::sync::{Arc, LazyLock};

use super::{Filter, InSynonyms, Stage, TextEnd};
use crate::analysis::Token;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct AsciiFolding {
    /// `true` if a folded token is followed by its original at the same position.
    pub(crate) preserve_original: bool,
}

impl Filter for AsciiFolding {
    fn stage<'a>(&'a self, next: Box<dyn Stage + 'a>) -> Box<dyn Stage + 'a> {
        Box::new(Folding { preserve_original: self.preserve_original, folded: String::new(), next })
    }

    fn is_normalizing(&self) -> bool {
        !self.preserve_original
    }

    fn in_synonyms(&self) -> InSynonyms {
        if self.preserve_original {
            InSynonyms::Other(Arc::new(Self { preserve_original: false }))
        } else {
            InSynonyms::Same
        }
    }
}

struct Folding<'a> {
    preserve_original: bool,
    folded: String,
    next: Box<dyn Stage + 'a>,
}

impl Stage for Folding<'_> {
    fn token(&mut self, token: &mut Token) {
        if token.text.is_ascii() {
            return self.next.token(token);
        }
        self.folded.clear();
        for c in token.text.chars() {
            fold(c, &mut self.folded);
        }
        if self.folded == token.text {
            return self.next.token(token);
        }
        std::mem::swap(&mut self.folded, &mut token.text);
        if self.preserve_original {
            let mut original = token.clone();
            original.text = std::mem::take(&mut self.folded);
            self.next.token(token);
            return self.next.token(&mut original);
        }
        self.next.token(token);
    }

    fn end(&mut self, end: TextEnd) -> TextEnd {
        self.next.end(end)
    }
}

fn fold(c: char, out: &mut String) {
    if c.is_ascii() {
        return out.push(c);
    }
    match TABLE.binary_search_by_key(&c, |(from, _)| *from) {
        Ok(at) => out.push_str(TABLE[at].1),
        Err(_) => out.push(c),
    }
}

/// The characters that are folded, ascending, and their foldings.
static TABLE: LazyLock<Vec<(char, &str)>> = LazyLock::new(|| {
    let lines = include_str!("ascii_folding.txt").lines().filter_map(|line| line.split_once('\t'));
    let mut table: Vec<(char, &str)> =
        lines.flat_map(|(folded, from)| from.chars().map(move |c| (c, folded))).collect();
    table.sort_unstable_by_key(|(from, _)| *from);
    table
});
