//! Filters that cut a token at its ends: `trim`, `apostrophe`, `elision`, `classic`.

use hashbrown::HashSet;

use super::lowercase::lower;
use super::{Filter, Stage, each};
use crate::analysis::tokenizer::class::is_java_whitespace;

/// Drops white space at both ends.
#[derive(Debug)]
pub(crate) struct Trim;

impl Filter for Trim {
    fn stage<'a>(&'a self, next: Box<dyn Stage + 'a>) -> Box<dyn Stage + 'a> {
        each(
            |token| {
                let trimmed = token.text.trim_matches(is_java_whitespace);
                if trimmed.len() < token.text.len() {
                    token.text = trimmed.to_owned();
                }
                true
            },
            next,
        )
    }

    fn is_normalizing(&self) -> bool {
        true
    }
}

/// Drops an apostrophe and what follows it.
#[derive(Debug)]
pub(crate) struct Apostrophe;

impl Filter for Apostrophe {
    fn stage<'a>(&'a self, next: Box<dyn Stage + 'a>) -> Box<dyn Stage + 'a> {
        each(
            |token| {
                if let Some(at) = token.text.find(['\'', '\u{2019}']) {
                    token.text.truncate(at);
                }
                true
            },
            next,
        )
    }
}

/// Drops an elided article in front of an apostrophe.
#[derive(Debug)]
pub(crate) struct Elision {
    articles: HashSet<String>,
    ignore_case: bool,
}

impl Elision {
    pub(crate) fn new(articles: impl IntoIterator<Item = String>, ignore_case: bool) -> Self {
        let articles = articles.into_iter().map(|word| folded(&word, ignore_case)).collect();
        Self { articles, ignore_case }
    }
}

fn folded(word: &str, ignore_case: bool) -> String {
    if ignore_case { word.chars().map(lower).collect() } else { word.to_owned() }
}

impl Filter for Elision {
    fn stage<'a>(&'a self, next: Box<dyn Stage + 'a>) -> Box<dyn Stage + 'a> {
        each(
            |token| {
                if let Some((at, apostrophe)) =
                    token.text.char_indices().find(|(_, c)| matches!(c, '\'' | '\u{2019}'))
                    && self.articles.contains(&folded(&token.text[..at], self.ignore_case))
                {
                    token.text.drain(..at + apostrophe.len_utf8());
                }
                true
            },
            next,
        )
    }

    fn is_normalizing(&self) -> bool {
        true
    }
}

/// Drops a possessive `'s` and the dots of acronyms, as the `classic` tokenizer types them.
#[derive(Debug)]
pub(crate) struct ClassicTokens;

impl Filter for ClassicTokens {
    fn stage<'a>(&'a self, next: Box<dyn Stage + 'a>) -> Box<dyn Stage + 'a> {
        each(
            |token| {
                if token.kind == "<APOSTROPHE>" && token.text.len() >= 2 {
                    if token.text.ends_with("'s") || token.text.ends_with("'S") {
                        token.text.truncate(token.text.len() - 2);
                    }
                } else if token.kind == "<ACRONYM>" {
                    token.text.retain(|c| c != '.');
                }
                true
            },
            next,
        )
    }
}
