//! The `classic` tokenizer: the grammar of Lucene's first standard tokenizer, which knows acronyms,
//! companies, mail addresses, host names and product numbers.
//!
//! It knows the letters and digits of the Basic Multilingual Plane as of Unicode 3.0. The list of letters beside
//! this file was read off OpenSearch 2.19.3, whose `_analyze` was asked for every character.

use std::sync::LazyLock;

use regex::Regex;

use super::{Emitter, Tokenizer, longer_than_utf16_units};
use crate::analysis::Token;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Classic {
    /// Longest token in UTF-16 code units; longer ones are left out.
    pub(crate) max_token_length: usize,
}

/// Ranges of letters, ascending.
static LETTERS: LazyLock<Vec<(char, char)>> = LazyLock::new(|| {
    let character = |hex: &str| u32::from_str_radix(hex, 16).ok().and_then(char::from_u32);
    let range = |range: &str| range.split_once('-').and_then(|(a, b)| Some((character(a)?, character(b)?)));
    include_str!("classic_letters.txt").split_whitespace().filter_map(range).collect()
});

/// Ranges of digits, ascending.
const DIGITS: [(char, char); 20] = [
    ('0', '9'),
    ('\u{660}', '\u{669}'),
    ('\u{6f0}', '\u{6f9}'),
    ('\u{966}', '\u{96f}'),
    ('\u{9e6}', '\u{9ef}'),
    ('\u{a66}', '\u{a6f}'),
    ('\u{ae6}', '\u{aef}'),
    ('\u{b66}', '\u{b6f}'),
    ('\u{be7}', '\u{bef}'),
    ('\u{c66}', '\u{c6f}'),
    ('\u{ce6}', '\u{cef}'),
    ('\u{d66}', '\u{d6f}'),
    ('\u{e50}', '\u{e59}'),
    ('\u{ed0}', '\u{ed9}'),
    ('\u{f20}', '\u{f29}'),
    ('\u{1040}', '\u{1049}'),
    ('\u{1369}', '\u{1371}'),
    ('\u{17e0}', '\u{17e9}'),
    ('\u{1810}', '\u{1819}'),
    ('\u{ff10}', '\u{ff19}'),
];

fn is_in(c: char, ranges: &[(char, char)]) -> bool {
    let at = ranges.partition_point(|(first, _)| *first <= c);
    at > 0 && c <= ranges[at - 1].1
}

/// Ranges as the inside of a class of a regular expression.
fn class(ranges: &[(char, char)]) -> String {
    ranges
        .iter()
        .map(|(first, last)| format!(r"\x{{{:x}}}-\x{{{:x}}}", *first as u32, *last as u32))
        .collect()
}

/// Types and patterns in the order in which they win where they match as much.
static RULES: LazyLock<Vec<(&'static str, Regex)>> = LazyLock::new(|| {
    let (letters, digits) = (class(&LETTERS), class(&DIGITS));
    let letter = format!("[{letters}]");
    let alpha = format!("{letter}+");
    let word = format!(r"[{letters}{digits}\x{{0e00}}-\x{{0e59}}]+");
    let digits = format!("[{letters}{digits}]*[{digits}][{letters}{digits}]*");
    let p = "[-_/.,]";
    [
        ("<ALPHANUM>", word.clone()),
        ("<APOSTROPHE>", format!("{alpha}(?:'{alpha})+")),
        ("<ACRONYM>", format!(r"{letter}\.(?:{letter}\.)+")),
        ("<COMPANY>", format!("{alpha}[&@]{alpha}")),
        ("<EMAIL>", format!(r"{word}(?:[-._]{word})*@{word}(?:[-.]{word})+")),
        ("<HOST>", format!(r"{word}(?:\.{word})+")),
        ("<NUM>", format!("{word}{p}{digits}")),
        ("<NUM>", format!("{digits}{p}{word}")),
        ("<NUM>", format!("{word}(?:{p}{digits}{p}{word})+")),
        ("<NUM>", format!("{digits}(?:{p}{word}{p}{digits})+")),
        ("<NUM>", format!("{word}{p}{digits}(?:{p}{word}{p}{digits})+")),
        ("<NUM>", format!("{digits}{p}{word}(?:{p}{digits}{p}{word})+")),
        ("<ACRONYM_DEP>", format!(r"{word}\.(?:{word}\.)+")),
    ]
    .into_iter()
    .map(|(kind, pattern)| (kind, Regex::new(&format!("^(?:{pattern})")).expect("the pattern is constant")))
    .collect()
});

fn is_cj(c: char) -> bool {
    matches!(c, '\u{3040}'..='\u{312f}' | '\u{31f0}'..='\u{31ff}' | '\u{3300}'..='\u{337f}'
        | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{ff65}'..='\u{ff9f}')
}

impl Tokenizer for Classic {
    fn tokenize(&self, text: &str, sink: &mut dyn FnMut(&mut Token)) -> u32 {
        let mut out = Emitter::new(text, sink);
        let mut at = 0;
        while let Some(c) = text[at..].chars().next() {
            if is_cj(c) {
                out.emit_as(text, at, at + c.len_utf8(), "<CJ>");
                at += c.len_utf8();
                continue;
            }
            if !is_in(c, &LETTERS) && !is_in(c, &DIGITS) && !('\u{e00}'..='\u{e59}').contains(&c) {
                at += c.len_utf8();
                continue;
            }
            let rest = &text[at..];
            // No token has white space in it: patterns need not see further.
            let run = &rest[..rest.find(char::is_whitespace).unwrap_or(rest.len())];
            let mut best: Option<(usize, &'static str)> = None;
            for (kind, rule) in RULES.iter() {
                if let Some(found) = rule.find(run)
                    && best.is_none_or(|(length, _)| found.end() > length)
                {
                    best = Some((found.end(), kind));
                }
            }
            let Some((length, kind)) = best else {
                at += c.len_utf8();
                continue;
            };
            let end = at + length;
            if longer_than_utf16_units(&text[at..end], self.max_token_length) {
                out.skip();
            } else if kind == "<ACRONYM_DEP>" {
                // Lucene drops the last dot from the token, and not from its offsets.
                out.emit_shortened(text, at..end - 1, end, "<HOST>");
            } else {
                out.emit_as(text, at, end, kind);
            }
            at = end;
        }
        out.next_position
    }
}
