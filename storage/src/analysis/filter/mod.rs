//! Token filters: what becomes of tokens behind the tokenizer.
//!
//! A [`Filter`] is the configured, shared part; for each text it makes a [`Stage`], which may drop,
//! change, add or hold back tokens before it hands them to the next stage. Positions are absolute,
//! so a stage that drops a token leaves a gap by doing nothing.

mod ascii_folding;
mod length;
pub(crate) mod lowercase;
mod porter;
mod possessive;
mod stop;
mod unique;

use std::fmt::Debug;

use super::Token;

pub(crate) use ascii_folding::AsciiFolding;
pub(crate) use length::{Length, Truncate};
pub(crate) use lowercase::Lowercase;
pub(crate) use porter::PorterStem;
#[cfg(test)]
pub(crate) use porter::stem as porter_stem;
pub(crate) use possessive::EnglishPossessive;
pub(crate) use stop::{Stop, english_stop_words};
pub(crate) use unique::Unique;

/// A configured token filter.
pub(crate) trait Filter: Debug + Send + Sync {
    /// Makes the stage for one text, in front of `next`.
    fn stage<'a>(&'a self, next: Box<dyn Stage + 'a>) -> Box<dyn Stage + 'a>;

    /// Whether this is plain lower-casing, which an analyzer can do in place.
    fn is_lowercase(&self) -> bool {
        false
    }

    /// Whether a normalizer may use it: it maps each token to one token, character by character.
    fn is_normalizing(&self) -> bool {
        false
    }
}

/// A filter at work on one text.
pub(crate) trait Stage {
    /// Takes a token.
    fn token(&mut self, token: &mut Token);
    /// Ends the text, which took `positions`; returns how many it takes behind this stage.
    fn end(&mut self, positions: u32) -> u32;
}

/// A stage that looks at each token by itself: `keep` may change it and says whether it stays.
struct Each<'a, F> {
    keep: F,
    next: Box<dyn Stage + 'a>,
}

impl<F: FnMut(&mut Token) -> bool> Stage for Each<'_, F> {
    fn token(&mut self, token: &mut Token) {
        if (self.keep)(token) {
            self.next.token(token);
        }
    }

    fn end(&mut self, positions: u32) -> u32 {
        self.next.end(positions)
    }
}

fn each<'a>(keep: impl FnMut(&mut Token) -> bool + 'a, next: Box<dyn Stage + 'a>) -> Box<dyn Stage + 'a> {
    Box::new(Each { keep, next })
}
