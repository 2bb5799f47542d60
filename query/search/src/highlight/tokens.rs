//! The tokens of a field's values, as indexing made them.

use millrace_mapping::analysis::Analyzer;
use millrace_mapping::{Field, Mapping};

/// Separator of several values; it is in no token.
pub(super) const SEPARATOR: u16 = 0;

/// Distance of the positions of one value from those of the next.
const POSITION_GAP: u32 = 100;

/// A token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    /// The term.
    pub term: String,
    /// Its position.
    pub position: u32,
    /// Start, in UTF-16 code units of the whole text.
    pub start: usize,
    /// End, in the same units.
    pub end: usize,
}

/// Cuts a field's values into tokens.
#[derive(Clone, Copy, Debug)]
pub(super) enum Tokenizer<'a> {
    Analyzer(&'a Analyzer),
    /// A value is one token, normalized before.
    Whole,
}

impl<'a> Tokenizer<'a> {
    /// Finds how a field was indexed.
    pub(super) fn new(mapping: &'a Mapping, field: &Field) -> Self {
        match mapping.analyzers().get(&field.analyzer) {
            Some(analyzer) if field.field_type.is_text() => Self::Analyzer(analyzer),
            _ => Self::Whole,
        }
    }

    /// Returns whether values are cut at all.
    pub(super) fn cuts(self) -> bool {
        matches!(self, Self::Analyzer(_))
    }

    /// Lists the tokens of a text, whose values are separated by [`SEPARATOR`]. Of each value, tokens
    /// that start behind `limit` are left out.
    pub(super) fn tokens(self, text: &[u16], limit: Option<i64>) -> Vec<Token> {
        let mut tokens: Vec<Token> = Vec::new();
        let mut base = 0;
        let mut first_position = 0;
        for value in text.split(|unit| *unit == SEPARATOR) {
            let value_text = String::from_utf16_lossy(value);
            let mut next_position = first_position;
            let mut add = |term: &str, position: u32, start: usize, end: usize| {
                next_position = next_position.max(first_position + position + 1);
                if limit.is_none_or(|limit| start as i64 <= limit) {
                    tokens.push(Token {
                        term: term.to_owned(),
                        position: first_position + position,
                        start: base + start,
                        end: base + end.min(value.len()),
                    });
                }
            };
            match self {
                Self::Analyzer(analyzer) => {
                    analyzer.analyze(&value_text, &mut |token| {
                        add(&token.text, token.position, token.start as usize, token.end as usize);
                    });
                }
                Self::Whole if value.is_empty() => {}
                Self::Whole => add(&value_text, 0, 0, value.len()),
            }
            first_position = next_position + POSITION_GAP;
            base += value.len() + 1;
        }
        tokens
    }
}
