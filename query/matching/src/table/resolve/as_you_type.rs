//! `search_as_you_type`: texts that its parts find sooner than the field itself.
//!
//! Neighbouring terms are a shingle of a part, and the start of a term, or of a shingle, is a term of the
//! part that has starts.

use millrace_dsl::query::{MAX_CLAUSES, Rewrite};
use millrace_mapping::analysis::{Token as Analyzed, shingles};
use millrace_mapping::{AsYouType, Field, FieldType};
use millrace_scoring::automaton::Pattern;
use millrace_scoring::node::Node;
use millrace_scoring::operands::Weight;
use millrace_work::error::Result;

use super::tokens::{Token, Tokens};
use super::{Resolver, Target};

/// Longest start of a term or a shingle that is a term, in UTF-16 code units.
const MAX_PREFIX: usize = 20;

impl<'a> Resolver<'a> {
    /// Makes the node of a phrase in a field that has shingles; `None` where the field itself is to be asked.
    pub(super) fn shingled_phrase(
        &mut self,
        target: &Target<'a>,
        tokens: &Tokens,
        slop: u32,
        expansions: Option<usize>,
        weight: Weight,
    ) -> Result<Option<Node>> {
        let FieldType::SearchAsYouType(kind) = target.field.field_type else { return Ok(None) };
        let places = tokens.by_position().len();
        let gaps = tokens.list.iter().any(|token| token.increment > 1);
        match (kind, expansions) {
            _ if slop > 0 => Ok(None),
            (AsYouType::Whole { max }, _) if places > 1 && !gaps => {
                let size = u8::try_from(places).unwrap_or(max).min(max);
                let Some(part) = self.part(target.field, Some(size)) else { return Ok(None) };
                let shingled = joined(tokens, size);
                match expansions {
                    None => self.phrase_of(&part, &shingled, 0, None, weight),
                    Some(_) => self.shingled_start(&part, &shingled, weight),
                }
            }
            (AsYouType::Part(_), Some(_)) if places == 1 => self.shingled_start(target, tokens, weight),
            _ => Ok(None),
        }
    }

    /// Makes the node of shingles of which the last is a start.
    fn shingled_start(&mut self, part: &Target<'a>, tokens: &Tokens, weight: Weight) -> Result<Option<Node>> {
        let places = tokens.by_position();
        if let [(_, starts)] = places.as_slice()
            && starts.iter().all(|start| is_short(start))
            && let Some(prefixes) = self.part(part.field, None)
        {
            return self.synonyms(&prefixes, starts, weight).map(Some);
        }
        if places.len() == 1 {
            return Ok(None);
        }
        self.phrase_of(part, tokens, 0, Some(MAX_CLAUSES), weight)
    }

    /// Makes the node of a start of terms; `None` where it is too long to be a term itself.
    pub(super) fn shingle_start(
        &mut self,
        target: &Target<'a>,
        start: &str,
        folded: bool,
        rewrite: Option<&Rewrite>,
        weight: Weight,
    ) -> Result<Option<Node>> {
        if start.is_empty() || !is_short(start) {
            return Ok(None);
        }
        let Some(prefixes) = self.part(target.field, None) else { return Ok(None) };
        let itself = prefixes.field.id == target.field.id;
        if folded {
            let pattern = Pattern::folded(start)?;
            return Ok(Some(self.pattern_node(&prefixes, String::new(), pattern, None, weight)));
        }
        // In the part itself, a start is a term like any other.
        let constant = matches!(rewrite, None | Some(Rewrite::ConstantScore | Rewrite::ConstantScoreBoolean));
        let scored = itself || !constant;
        Ok(Some(match scored {
            true => self.text_term(prefixes.field, start.to_owned(), weight),
            false => Node::Text { path: prefixes.field.id, term: start.to_owned(), weight },
        }))
    }

    /// Finds a part of the field that a field is or belongs to.
    fn part(&self, field: &Field, size: Option<u8>) -> Option<Target<'a>> {
        let field = self.index.mapping.as_you_type_part(field, size)?;
        Some(Target { field, inside: None })
    }
}

fn is_short(start: &str) -> bool {
    start.encode_utf16().count() <= MAX_PREFIX
}

/// Joins tokens to shingles.
fn joined(tokens: &Tokens, size: u8) -> Tokens {
    let mut position = 0u32;
    let mut analyzed = Vec::with_capacity(tokens.list.len());
    for (at, token) in tokens.list.iter().enumerate() {
        let increment = if at == 0 { token.increment.saturating_sub(1) } else { token.increment };
        position = position.saturating_add(increment);
        analyzed.push(Analyzed { text: token.term.clone(), position, ..Analyzed::default() });
    }
    let mut last = None;
    let list = shingles(&analyzed, size).into_iter().map(|shingle| {
        let increment = match last.replace(shingle.position) {
            None => shingle.position.saturating_add(1),
            Some(before) => shingle.position.saturating_sub(before),
        };
        Token { term: shingle.text, increment, length: 1 }
    });
    Tokens { list: list.collect(), ..*tokens }
}
