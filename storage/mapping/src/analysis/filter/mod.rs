//! Token filters: what becomes of tokens behind the tokenizer.
//!
//! A [`Filter`] is the configured, shared part; for each text it makes a [`Stage`], which may drop,
//! change, add or hold back tokens before it hands them to the next stage. Positions are absolute,
//! so a stage that drops a token leaves a gap by doing nothing.

mod affix;
mod ascii_folding;
mod case;
mod characters;
mod cjk_bigram;
mod common_grams;
mod decompound;
mod fingerprint;
mod fixed_shingle;
mod flatten_graph;
mod grams;
mod keywords;
mod length;
pub(crate) mod lowercase;
mod min_hash;
mod multiplexer;
mod pattern;
mod payload;
mod porter;
mod possessive;
mod select;
mod shingle;
mod stop;
mod subwords;
mod synonym;
mod unique;
mod word_delimiter;

use std::fmt::Debug;
use std::sync::Arc;

use super::Token;

pub(crate) use affix::{Apostrophe, ClassicTokens, Elision, Trim};
pub(crate) use ascii_folding::AsciiFolding;
pub(crate) use case::{LowercaseLanguage, Uppercase};
pub(crate) use characters::Characters;
pub(crate) use cjk_bigram::CjkBigram;
pub(crate) use common_grams::CommonGrams;
pub(crate) use decompound::Decompounder;
pub(crate) use fingerprint::Fingerprint;
pub(crate) use fixed_shingle::FixedShingle;
pub(crate) use flatten_graph::FlattenGraph;
pub(crate) use grams::{Edge, Grams, growth as gram_growth};
pub(crate) use keywords::{KeywordMarker, KeywordRepeat, StemmerOverride};
pub(crate) use length::{Length, Truncate};
pub(crate) use lowercase::Lowercase;
pub(crate) use min_hash::MinHash;
pub(crate) use multiplexer::Multiplexer;
pub(crate) use pattern::{PatternCapture, PatternReplaceTokens};
pub(crate) use payload::{DelimitedPayload, Encoding, TypeAsPayload};
pub(crate) use porter::PorterStem;
#[cfg(test)]
pub(crate) use porter::stem as porter_stem;
pub(crate) use possessive::EnglishPossessive;
pub(crate) use select::{KeepTypes, KeepWords, Limit, RemoveDuplicates};
pub(crate) use shingle::Shingle;
pub(crate) use stop::{Stop, english_stop_words};
pub(crate) use subwords::{WordBoundaries, types as subword_types};
pub(crate) use synonym::Synonyms;
pub(crate) use unique::Unique;
pub(crate) use word_delimiter::WordDelimiter;

/// A configured token filter.
pub(crate) trait Filter: Debug + Send + Sync {
    /// Makes the stage for one text, in front of `next`.
    fn stage<'a>(&'a self, next: Box<dyn Stage + 'a>) -> Box<dyn Stage + 'a>;

    /// Returns whether this is plain lower-casing, which an analyzer can do in place.
    fn is_lowercase(&self) -> bool {
        false
    }

    /// Returns whether a normalizer may use it: it maps each token to one token, character by character.
    fn is_normalizing(&self) -> bool {
        false
    }

    /// Returns whether it looks at the keyword mark, which `_analyze` then shows.
    fn reports_keywords(&self) -> bool {
        false
    }

    /// Returns true if queries take the tokens by position alone, although some span several positions: each of
    /// several lengths stands beside the others, so that paths through them explode.
    fn disables_graph(&self) -> bool {
        false
    }

    /// Bytes that it may make of a byte of a token: one where it makes no more tokens than it takes.
    fn growth(&self) -> usize {
        1
    }

    /// Returns the neighbouring tokens that it joins, if it does.
    fn shingles(&self) -> Option<Shingles> {
        None
    }

    /// Returns its substitute where the terms of synonym rules are analyzed.
    fn in_synonyms(&self) -> InSynonyms {
        InSynonyms::Same
    }
}

/// Neighbouring tokens that a filter joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shingles {
    /// Fewest tokens.
    pub min: usize,
    /// Most tokens.
    pub max: usize,
    /// `true` if single tokens stay.
    pub single: bool,
}

/// Substitute of a filter where the terms of synonym rules are analyzed.
#[derive(Clone, Debug)]
pub(crate) enum InSynonyms {
    /// The filter itself.
    Same,
    /// Nothing.
    Nothing,
    /// Another filter.
    Other(Arc<dyn Filter>),
    /// It puts tokens beside or into each other, so that a rule would have no single meaning.
    Refused,
}

/// End of a text.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TextEnd {
    /// Positions that it took, removed tokens included.
    pub(crate) positions: u32,
    /// Offset of the end in the text that was given, in UTF-16 code units.
    pub(crate) offset: u32,
    /// True if tokens were left out, since too much would come of the text.
    pub(crate) cut: bool,
}

/// A filter at work on one text.
pub(crate) trait Stage {
    /// Takes a token.
    fn token(&mut self, token: &mut Token);
    /// Ends the text; returns how it ends behind this stage.
    fn end(&mut self, end: TextEnd) -> TextEnd;
}

/// A stage that looks at each token by itself: `keep` may change it and says whether it stays.
struct PerTokenStage<'a, F> {
    keep: F,
    next: Box<dyn Stage + 'a>,
}

impl<F: FnMut(&mut Token) -> bool> Stage for PerTokenStage<'_, F> {
    fn token(&mut self, token: &mut Token) {
        if (self.keep)(token) {
            self.next.token(token);
        }
    }

    fn end(&mut self, end: TextEnd) -> TextEnd {
        self.next.end(end)
    }
}

/// A stage that holds all tokens of a text back and hands on what `run` makes of them and of the
/// number of positions. It holds as many tokens as the text has.
struct BufferingStage<'a, F> {
    tokens: Vec<Token>,
    run: F,
    next: Box<dyn Stage + 'a>,
}

impl<F: FnMut(Vec<Token>, TextEnd) -> (Vec<Token>, TextEnd)> Stage for BufferingStage<'_, F> {
    fn token(&mut self, token: &mut Token) {
        self.tokens.push(token.clone());
    }

    fn end(&mut self, end: TextEnd) -> TextEnd {
        let (tokens, end) = (self.run)(std::mem::take(&mut self.tokens), end);
        for mut token in tokens {
            self.next.token(&mut token);
        }
        self.next.end(end)
    }
}

fn whole<'a>(
    run: impl FnMut(Vec<Token>, TextEnd) -> (Vec<Token>, TextEnd) + 'a,
    next: Box<dyn Stage + 'a>,
) -> Box<dyn Stage + 'a> {
    Box::new(BufferingStage { tokens: Vec::new(), run, next })
}

/// The position increments of tokens in a row, as Lucene counts them.
#[derive(Debug, Default)]
struct Increments {
    last: Option<u32>,
}

impl Increments {
    fn of(&mut self, token: &Token) -> u32 {
        let increment = match self.last {
            None => token.position + 1,
            Some(last) => token.position.saturating_sub(last),
        };
        self.last = Some(token.position);
        increment
    }
}

fn each<'a>(keep: impl FnMut(&mut Token) -> bool + 'a, next: Box<dyn Stage + 'a>) -> Box<dyn Stage + 'a> {
    Box::new(PerTokenStage { keep, next })
}
