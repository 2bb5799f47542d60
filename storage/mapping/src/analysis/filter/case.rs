//! Case: the `lowercase` filter for Greek, Irish and Turkish, and the `uppercase` filter.

use super::lowercase::lower;
use super::{Filter, Stage, each};

/// Languages that lower-case letters in their own way.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LowercaseLanguage {
    /// Accents vanish, the final sigma becomes the other.
    Greek,
    /// An eclipsis before a capital vowel is parted by a hyphen.
    Irish,
    /// The dotted and the dotless i are two letters.
    Turkish,
}

impl Filter for LowercaseLanguage {
    fn stage<'a>(&'a self, next: Box<dyn Stage + 'a>) -> Box<dyn Stage + 'a> {
        each(
            |token| {
                token.text = match self {
                    Self::Greek => token.text.chars().map(greek).collect(),
                    Self::Irish => irish(&token.text),
                    Self::Turkish => turkish(&token.text),
                };
                true
            },
            next,
        )
    }

    fn is_normalizing(&self) -> bool {
        true
    }
}

fn greek(c: char) -> char {
    match c {
        'ς' => 'σ',
        'Ά' | 'ά' => 'α',
        'Έ' | 'έ' => 'ε',
        'Ή' | 'ή' => 'η',
        'Ί' | 'Ϊ' | 'ί' | 'ϊ' | 'ΐ' => 'ι',
        'Ύ' | 'Ϋ' | 'ύ' | 'ϋ' | 'ΰ' => 'υ',
        'Ό' | 'ό' => 'ο',
        'Ώ' | 'ώ' => 'ω',
        '\u{3a2}' => 'ς',
        _ => lower(c),
    }
}

fn irish(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next();
    let second = characters.next();
    let mut out = String::with_capacity(text.len() + 1);
    let mut rest = text;
    if let (Some(first @ ('n' | 't')), Some('A' | 'E' | 'I' | 'O' | 'U' | 'Á' | 'É' | 'Í' | 'Ó' | 'Ú')) =
        (first, second)
    {
        out.push(first);
        out.push('-');
        rest = &text[1..];
    }
    out.extend(rest.chars().map(lower));
    out
}

fn turkish(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    let mut after_i = false;
    while let Some(c) = characters.next() {
        if after_i {
            match c {
                // The dot above of a decomposed capital has been taken by the `i`.
                '\u{307}' => continue,
                c if unicode_normalization::char::is_combining_mark(c) => {}
                _ => after_i = false,
            }
        }
        match c {
            'I' => {
                after_i = true;
                let dotted = characters
                    .clone()
                    .take_while(|&c| unicode_normalization::char::is_combining_mark(c))
                    .any(|c| c == '\u{307}');
                out.push(if dotted { 'i' } else { 'ı' });
            }
            _ => out.push(lower(c)),
        }
    }
    out
}

/// The `uppercase` filter: character by character, as Java's `Character.toUpperCase`.
#[derive(Debug)]
pub(crate) struct Uppercase;

impl Filter for Uppercase {
    fn stage<'a>(&'a self, next: Box<dyn Stage + 'a>) -> Box<dyn Stage + 'a> {
        each(
            |token| {
                token.text = token.text.chars().map(upper).collect();
                true
            },
            next,
        )
    }

    fn is_normalizing(&self) -> bool {
        true
    }
}

/// Characters whose capital is several stay, but for the Greek ones with a subscript that have one.
fn upper(c: char) -> char {
    let mut mapped = c.to_uppercase();
    match (mapped.next(), mapped.next()) {
        (Some(single), None) => single,
        _ => match c {
            '\u{1f80}'..='\u{1f87}' | '\u{1f90}'..='\u{1f97}' | '\u{1fa0}'..='\u{1fa7}' => {
                char::from_u32(c as u32 + 8).unwrap_or(c)
            }
            '\u{1fb3}' | '\u{1fc3}' | '\u{1ff3}' => char::from_u32(c as u32 + 9).unwrap_or(c),
            _ => c,
        },
    }
}
