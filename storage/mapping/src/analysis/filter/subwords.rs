//! Cutting a word at its delimiters and where its letters change, for the `word_delimiter` filters.

use millrace_runtime::{Error, Result};
use unicode_properties::{GeneralCategory, UnicodeGeneralCategory};

pub(super) const LOWER: u8 = 1;
pub(super) const UPPER: u8 = 2;
pub(super) const DIGIT: u8 = 4;
pub(super) const DELIMITER: u8 = 8;
pub(super) const ALPHA: u8 = LOWER | UPPER;
const ALPHANUMERIC: u8 = ALPHA | DIGIT;

/// Boundaries at which words are cut.
#[derive(Clone, Debug)]
pub(crate) struct WordBoundaries {
    pub(crate) on_case_change: bool,
    pub(crate) on_numerics: bool,
    pub(crate) stem_possessive: bool,
    /// Characters of another class than their own.
    pub(crate) types: Vec<(char, u8)>,
}

/// Reads rules `$ => DIGIT`.
pub(crate) fn types(rules: &[String]) -> Result<Vec<(char, u8)>> {
    rules
        .iter()
        .map(|rule| {
            let invalid = || Error::IllegalArgument(format!("Invalid Mapping Rule : [{rule}]"));
            let (from, to) = rule.rsplit_once("=>").ok_or_else(invalid)?;
            let from = crate::analysis::char_filter::unescape(from.trim())?;
            let mut characters = from.chars();
            let (Some(c), None) = (characters.next(), characters.next()) else {
                return Err(Error::IllegalArgument(format!(
                    "Invalid Mapping Rule : [{rule}]. Only a single character is allowed."
                )));
            };
            let class = match to.trim() {
                "LOWER" => LOWER,
                "UPPER" => UPPER,
                "ALPHA" => ALPHA,
                "DIGIT" => DIGIT,
                "ALPHANUM" => ALPHANUMERIC,
                "SUBWORD_DELIM" => DELIMITER,
                _ => {
                    return Err(Error::IllegalArgument(format!(
                        "Invalid Mapping Rule : [{rule}]. Illegal type."
                    )));
                }
            };
            Ok((c, class))
        })
        .collect()
}

impl WordBoundaries {
    fn class(&self, unit: u16) -> u8 {
        let Some(c) = char::from_u32(u32::from(unit)) else { return ALPHANUMERIC };
        if let Some((_, class)) = self.types.iter().rev().find(|(of, _)| *of == c) {
            return *class;
        }
        use GeneralCategory as G;
        // Lucene's table of the first 256 characters holds only without rules.
        if unit < 256 && self.types.is_empty() {
            return if c.is_lowercase() {
                LOWER
            } else if c.is_uppercase() {
                UPPER
            } else if c.is_ascii_digit() {
                DIGIT
            } else {
                DELIMITER
            };
        }
        match c.general_category() {
            G::UppercaseLetter => UPPER,
            G::LowercaseLetter => LOWER,
            G::TitlecaseLetter
            | G::ModifierLetter
            | G::OtherLetter
            | G::NonspacingMark
            | G::EnclosingMark
            | G::SpacingMark => ALPHA,
            G::DecimalNumber | G::LetterNumber | G::OtherNumber => DIGIT,
            _ => DELIMITER,
        }
    }

    fn breaks(&self, last: u8, class: u8) -> bool {
        if class & last != 0 {
            return false;
        }
        let (alpha, last_alpha) = (class & ALPHA != 0, last & ALPHA != 0);
        if !self.on_case_change && last_alpha && alpha {
            return false;
        }
        if last & UPPER != 0 && alpha {
            return false;
        }
        let numeric = (last_alpha && class & DIGIT != 0) || (last & DIGIT != 0 && alpha);
        self.on_numerics || !numeric
    }
}

/// A part of a word.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subword {
    pub(super) start: usize,
    pub(super) end: usize,
    /// Its class; letters are `ALPHA`.
    pub(super) class: u8,
}

/// The parts of a word.
pub(super) struct Subwords {
    pub(super) parts: Vec<Subword>,
    /// The word is one part between delimiters.
    pub(super) single: bool,
}

/// Cuts a word of UTF-16 code units.
pub(super) fn cut(word: &[u16], cuts: &WordBoundaries) -> Subwords {
    let class = |at: usize| cuts.class(word[at]);
    let mut first = 0;
    while first < word.len() && class(first) & DELIMITER != 0 {
        first += 1;
    }
    let mut last = word.len();
    while last > first && class(last - 1) & DELIMITER != 0 {
        last -= 1;
    }
    let possessive = |at: usize| {
        cuts.stem_possessive
            && at > 2
            && word[at - 2] == u16::from(b'\'')
            && (word[at - 1] == u16::from(b's') || word[at - 1] == u16::from(b'S'))
            && class(at - 3) & ALPHA != 0
            && (at == last || class(at) & DELIMITER != 0)
    };
    let final_possessive = possessive(last);
    let mut parts = Vec::new();
    let mut at = 0;
    let mut skip = false;
    loop {
        if skip {
            at += 2;
            skip = false;
        }
        while at < last && class(at) & DELIMITER != 0 {
            at += 1;
        }
        if at >= last {
            break;
        }
        let start = at;
        let mut before = class(start);
        at += 1;
        while at < last {
            let now = class(at);
            if cuts.breaks(before, now) {
                break;
            }
            before = now;
            at += 1;
        }
        if at + 1 < last && possessive(at + 2) {
            skip = true;
        }
        let class = match class(start) {
            LOWER | UPPER => ALPHA,
            other => other,
        };
        parts.push(Subword { start, end: at, class });
    }
    let end = if final_possessive { last - 2 } else { last };
    let single = parts.first().is_some_and(|part| part.start == first && part.end == end);
    Subwords { parts, single }
}
