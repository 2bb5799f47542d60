//! Filters about the keyword mark, which keeps stemmers off: `keyword_marker`, `keyword_repeat`,
//! `stemmer_override`.

use hashbrown::{HashMap, HashSet};
use millrace_runtime::{Error, Result};

use super::lowercase::lower;
use super::{Filter, InSynonyms, Stage, TextEnd, each};
use crate::analysis::Token;
use crate::analysis::pattern::JavaPattern;

/// Marks the words of a list, or those that a pattern matches.
#[derive(Debug)]
pub(crate) struct KeywordMarker {
    pub(crate) words: HashSet<String>,
    pub(crate) ignore_case: bool,
    pub(crate) pattern: Option<JavaPattern>,
}

impl Filter for KeywordMarker {
    fn stage<'a>(&'a self, next: Box<dyn Stage + 'a>) -> Box<dyn Stage + 'a> {
        each(
            |token| {
                let marked = match &self.pattern {
                    Some(pattern) => pattern.matches(&token.text),
                    None if self.ignore_case => {
                        self.words.contains(&token.text.chars().map(lower).collect::<String>())
                    }
                    None => self.words.contains(token.text.as_str()),
                };
                token.keyword |= marked;
                true
            },
            next,
        )
    }

    fn reports_keywords(&self) -> bool {
        true
    }
}

/// Hands on each token twice, first marked, then not.
#[derive(Debug)]
pub(crate) struct KeywordRepeat;

impl Filter for KeywordRepeat {
    fn stage<'a>(&'a self, next: Box<dyn Stage + 'a>) -> Box<dyn Stage + 'a> {
        Box::new(Repeat { next })
    }

    fn in_synonyms(&self) -> InSynonyms {
        InSynonyms::Refused
    }

    fn reports_keywords(&self) -> bool {
        true
    }
}

struct Repeat<'a> {
    next: Box<dyn Stage + 'a>,
}

impl Stage for Repeat<'_> {
    fn token(&mut self, token: &mut Token) {
        let mut again = token.clone();
        token.keyword = true;
        self.next.token(token);
        again.keyword = false;
        self.next.token(&mut again);
    }

    fn end(&mut self, end: TextEnd) -> TextEnd {
        self.next.end(end)
    }
}

/// Gives words their stems and marks them.
#[derive(Debug)]
pub(crate) struct StemmerOverride {
    stems: HashMap<String, String>,
}

impl StemmerOverride {
    /// Reads rules `word, word => stem`.
    pub(crate) fn new(rules: &[String]) -> Result<Self> {
        let mut stems = HashMap::new();
        for rule in rules {
            let invalid = || Error::IllegalArgument(format!("Invalid Keyword override Rule:{rule}"));
            let mut sides = rule.split("=>");
            let (Some(words), Some(stem), None) = (sides.next(), sides.next(), sides.next()) else {
                return Err(invalid());
            };
            let stem = stem.trim();
            if stem.is_empty() || stem.contains(',') {
                return Err(invalid());
            }
            for word in words.split(',') {
                let word = word.trim();
                if word.is_empty() {
                    return Err(invalid());
                }
                stems.entry(word.to_owned()).or_insert_with(|| stem.to_owned());
            }
        }
        Ok(Self { stems })
    }
}

impl Filter for StemmerOverride {
    fn stage<'a>(&'a self, next: Box<dyn Stage + 'a>) -> Box<dyn Stage + 'a> {
        each(
            |token| {
                if !token.keyword
                    && let Some(stem) = self.stems.get(token.text.as_str())
                {
                    token.text.clone_from(stem);
                    token.keyword = true;
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
