//! Filters that take a regular expression: `pattern_replace` and `pattern_capture`.

use super::{Filter, Stage, TextEnd, each};
use crate::analysis::Token;
use crate::analysis::pattern::{JavaPattern, Replacement};

/// Replaces what a pattern matches.
#[derive(Debug)]
pub(crate) struct PatternReplaceTokens {
    pub(crate) pattern: JavaPattern,
    pub(crate) replacement: Replacement,
    pub(crate) all: bool,
}

impl Filter for PatternReplaceTokens {
    fn stage<'a>(&'a self, next: Box<dyn Stage + 'a>) -> Box<dyn Stage + 'a> {
        each(
            |token| {
                if let Some(replaced) = self.pattern.replace(&token.text, &self.replacement, self.all) {
                    token.text = replaced;
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

/// Adds a token for each group that a pattern captures.
#[derive(Debug)]
pub(crate) struct PatternCapture {
    pub(crate) patterns: Vec<JavaPattern>,
    pub(crate) preserve_original: bool,
}

/// Most tokens that one is made into; captures beyond it are left out.
const MAX_CAPTURES: usize = 10_000;

impl Filter for PatternCapture {
    fn stage<'a>(&'a self, next: Box<dyn Stage + 'a>) -> Box<dyn Stage + 'a> {
        Box::new(Capture { filter: self, next })
    }
}

struct Capture<'a> {
    filter: &'a PatternCapture,
    next: Box<dyn Stage + 'a>,
}

impl Stage for Capture<'_> {
    fn token(&mut self, token: &mut Token) {
        // Start, pattern, group: Lucene takes the earliest, then the first pattern, then its groups.
        let mut found: Vec<(usize, usize, usize, usize)> = Vec::new();
        let length = token.text.len();
        for (nth, pattern) in self.filter.patterns.iter().enumerate() {
            let mut matches = pattern.captures_all(&token.text);
            while matches.find_next().is_some() {
                for group in 1..=pattern.groups() {
                    let Some(part) = matches.group(group) else { continue };
                    let whole = part == (0..length);
                    if !(part.is_empty() || self.filter.preserve_original && whole) {
                        found.push((part.start, nth, found.len(), part.end));
                    }
                }
                if found.len() >= MAX_CAPTURES {
                    break;
                }
            }
        }
        found.sort_unstable();
        let mut copy = token.clone();
        if self.filter.preserve_original || found.is_empty() {
            self.next.token(&mut copy);
        }
        for (start, _, _, end) in found {
            copy.clone_from(token);
            copy.text.clear();
            copy.text.push_str(&token.text[start..end]);
            self.next.token(&mut copy);
        }
    }

    fn end(&mut self, end: TextEnd) -> TextEnd {
        self.next.end(end)
    }
}
