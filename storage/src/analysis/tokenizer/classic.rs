//! The `classic` tokenizer: the grammar of Lucene's first standard tokenizer, which knows acronyms,
//! companies, mail addresses, host names and product numbers.

use std::sync::LazyLock;

use regex::Regex;

use super::class::{decimal_digit, is_letter};
use super::{Emitter, Tokenizer, longer_than_utf16_units};
use crate::analysis::Token;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Classic {
    /// Longest token in UTF-16 code units; longer ones are left out.
    pub(crate) max_token_length: usize,
}

/// Types and patterns in the order in which they win where they match as much.
static RULES: LazyLock<Vec<(&'static str, Regex)>> = LazyLock::new(|| {
    const LETTER: &str = r"[\p{L}--[\x{3040}-\x{318f}\x{3100}-\x{312f}\x{31f0}-\x{31ff}\x{3300}-\x{337f}\x{3400}-\x{4dbf}\x{4e00}-\x{9fff}\x{f900}-\x{faff}\x{ff65}-\x{ff9f}]]";
    let alpha = format!("{LETTER}+");
    let word = format!(r"(?:{LETTER}|[\p{{Nd}}\x{{0e00}}-\x{{0e59}}])+");
    let digits = format!(r"(?:{LETTER}|\p{{Nd}})*\p{{Nd}}(?:{LETTER}|\p{{Nd}})*");
    let p = "[-_/.,]";
    [
        ("<ALPHANUM>", word.clone()),
        ("<APOSTROPHE>", format!("{alpha}(?:'{alpha})+")),
        ("<ACRONYM>", format!(r"{LETTER}\.(?:{LETTER}\.)+")),
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
    matches!(c, '\u{3040}'..='\u{318f}' | '\u{31f0}'..='\u{31ff}' | '\u{3300}'..='\u{337f}'
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
            if !is_letter(c) && decimal_digit(c).is_none() && !('\u{e00}'..='\u{e59}').contains(&c) {
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
                out.emit_as(text, at, end - 1, "<HOST>");
            } else {
                out.emit_as(text, at, end, kind);
            }
            at = end;
        }
        out.next_position
    }
}
