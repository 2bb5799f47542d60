//! The tokens that an analyzer makes of a query's text.

use millrace_dsl::query::MAX_CLAUSES;
use millrace_mapping::analysis::Analyzer;
use millrace_work::error::{Error, Result};

/// Most tokens that are taken of a text: phrases may be longer than other clauses.
const MAX_TOKENS: usize = 16 * MAX_CLAUSES;

/// A token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    /// The term.
    pub term: String,
    /// Positions from the one before, or to the start for the first.
    pub increment: u32,
    /// Positions that it spans.
    pub length: u32,
}

/// The tokens of a text.
#[derive(Clone, Debug, Default)]
pub(super) struct Tokens {
    /// In order.
    pub list: Vec<Token>,
    /// `true` if the last one ends where the text does.
    pub to_the_end: bool,
    /// True if only positions count, not how many of them a token spans.
    pub by_position_only: bool,
}

impl Tokens {
    /// Analyzes a text.
    pub(super) fn new(analyzer: &Analyzer, text: &str) -> Result<Self> {
        let mut list: Vec<Token> = Vec::new();
        let (mut last, mut end) = (None, 0);
        analyzer.analyze(text, &mut |token| {
            // One more than allowed is kept, so that the excess is seen.
            if list.len() <= MAX_TOKENS {
                let increment = match last.replace(token.position) {
                    None => token.position.saturating_add(1),
                    Some(before) => token.position.saturating_sub(before),
                };
                list.push(Token {
                    term: token.text.clone(),
                    increment,
                    length: token.position_length.max(1),
                });
                end = token.end as usize;
            }
        });
        if list.len() > MAX_TOKENS {
            return Err(Error::TooManyClauses(MAX_TOKENS));
        }
        let to_the_end = end == text.encode_utf16().count();
        Ok(Self { list, to_the_end, by_position_only: analyzer.disables_graph() })
    }

    /// Returns true if tokens span several positions and are queried as a graph.
    pub(super) fn is_graph(&self) -> bool {
        !self.by_position_only && self.spans_positions()
    }

    /// Returns true if tokens span several positions.
    pub(super) fn spans_positions(&self) -> bool {
        self.list.iter().any(|token| token.length > 1)
    }

    /// Groups the terms by position: the position, and its terms.
    pub(super) fn by_position(&self) -> Vec<(u32, Vec<String>)> {
        let mut grouped: Vec<(u32, Vec<String>)> = Vec::new();
        let mut position = 0u32;
        for token in &self.list {
            position = position.saturating_add(token.increment);
            match grouped.last_mut() {
                Some((_, terms)) if token.increment == 0 => terms.push(token.term.clone()),
                _ => grouped.push((position, vec![token.term.clone()])),
            }
        }
        grouped
    }
}
