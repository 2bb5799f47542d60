//! The `standard` tokenizer: words by UAX #29, as Lucene's `StandardTokenizer` keeps them.
//!
//! Kept are segments with a letter, a digit or an ideograph, and emoji. Each Han ideograph and each
//! Hiragana character is a token; runs of Katakana, of Hangul, and of scripts written without
//! spaces (Thai, Lao, Khmer, Myanmar) are one token. A word longer than the limit is cut into
//! several tokens: like Lucene's scanner, which sees no further than its limit, segmentation starts
//! afresh behind the cut.
//!
//! Text is taken in runs between ASCII white space, where UAX #29 always breaks. A run of ASCII
//! goes through a table of six character classes, which is all that the rules distinguish there:
//! letters, digits and `_` join (WB5, WB8 to WB10, WB13a, WB13b); `:` joins two letters, `,` and
//! `;` join two digits, `.` and `'` join either (WB6, WB7, WB11, WB12); everything else breaks. The
//! tests compare the two ways on all short ASCII strings over one character of each class.

use unicode_segmentation::UnicodeSegmentation;

use super::emoji::is_emoji;
use super::{Emitter, Tokenizer, longer_than_utf16_units, prefix_of_utf16_units};
use crate::analysis::Token;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Standard {
    /// Longest token in UTF-16 code units.
    pub(crate) max_token_length: usize,
}

const OTHER: u8 = 0;
const LETTER: u8 = 1;
const DIGIT: u8 = 2;
const EXTEND: u8 = 3;
const MID_LETTER: u8 = 4;
const MID_NUMBER: u8 = 5;
const MID_BOTH: u8 = 6;

const CLASSES: [u8; 256] = {
    let mut classes = [OTHER; 256];
    let mut i = 0;
    while i < 128 {
        let c = i as u8;
        classes[i] = if c.is_ascii_alphabetic() {
            LETTER
        } else if c.is_ascii_digit() {
            DIGIT
        } else {
            match c {
                b'_' => EXTEND,
                b':' => MID_LETTER,
                b',' | b';' => MID_NUMBER,
                b'.' | b'\'' => MID_BOTH,
                _ => OTHER,
            }
        };
        i += 1;
    }
    classes
};

impl Tokenizer for Standard {
    fn tokenize(&self, text: &str, sink: &mut dyn FnMut(&mut Token)) -> u32 {
        let mut out = Emitter::new(text, sink);
        let bytes = text.as_bytes();
        let mut at = 0;
        while at < bytes.len() {
            if is_space(bytes[at]) {
                at += 1;
                continue;
            }
            let start = at;
            let mut any = 0u8;
            while at < bytes.len() && !is_space(bytes[at]) {
                any |= bytes[at];
                at += 1;
            }
            if any < 0x80 {
                self.ascii_run(text, start, at, &mut out);
            } else {
                self.unicode_run(text, start, at, &mut out);
            }
        }
        out.next_position
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

impl Standard {
    #[inline]
    fn ascii_run(&self, text: &str, start: usize, end: usize, out: &mut Emitter<'_>) {
        let bytes = text.as_bytes();
        let class = |at: usize| CLASSES[bytes[at] as usize];
        let mut at = start;
        while at < end {
            let mut previous = class(at);
            if !(LETTER..=EXTEND).contains(&previous) {
                at += 1;
                continue;
            }
            let word = at;
            let limit = end.min(word.saturating_add(self.max_token_length));
            let mut has_word_character = previous != EXTEND;
            at += 1;
            while at < limit {
                let current = class(at);
                if (LETTER..=EXTEND).contains(&current) {
                    has_word_character |= current != EXTEND;
                    previous = current;
                    at += 1;
                } else if current >= MID_LETTER && at + 1 < limit && {
                    let next = class(at + 1);
                    next == previous
                        && ((next == LETTER && current != MID_NUMBER)
                            || (next == DIGIT && current != MID_LETTER))
                } {
                    at += 2;
                } else {
                    break;
                }
            }
            if has_word_character {
                out.emit(text, word, at);
            }
        }
    }

    fn unicode_run(&self, text: &str, start: usize, end: usize, out: &mut Emitter<'_>) {
        let mut at = start;
        // An open run of a script without spaces: UAX #29 breaks at each of its letters.
        let mut complex: Option<usize> = None;
        'restart: while at < end {
            for segment in text[at..end].split_word_bounds() {
                let joins = segment.chars().next().is_some_and(is_complex_context);
                if let Some(run) = complex
                    && (!joins
                        || longer_than_utf16_units(&text[run..at + segment.len()], self.max_token_length))
                {
                    out.emit(text, run, at);
                    complex = None;
                }
                if joins {
                    complex = complex.or(Some(at));
                    at += segment.len();
                    continue;
                }
                if longer_than_utf16_units(segment, self.max_token_length) {
                    let window = &segment[..prefix_of_utf16_units(segment, self.max_token_length)];
                    let first = window.split_word_bounds().next().unwrap_or(window);
                    if is_token(first) {
                        out.emit(text, at, at + first.len());
                    }
                    at += first.len();
                    continue 'restart;
                }
                if is_token(segment) {
                    out.emit(text, at, at + segment.len());
                }
                at += segment.len();
            }
        }
        if let Some(run) = complex {
            out.emit(text, run, at);
        }
    }
}

/// Whether a UAX #29 segment is a token.
fn is_token(segment: &str) -> bool {
    segment.chars().any(|c| c.is_alphabetic() || (c.is_numeric() && !is_other_number(c))) || is_emoji(segment)
}

/// Characters of scripts written without spaces (`Line_Break=Complex_Context`).
fn is_complex_context(c: char) -> bool {
    matches!(c,
        '\u{0e01}'..='\u{0e3a}' | '\u{0e40}'..='\u{0e4e}' | '\u{0e81}'..='\u{0ece}'
        | '\u{0edc}'..='\u{0edf}' | '\u{1000}'..='\u{103f}' | '\u{1050}'..='\u{108f}'
        | '\u{109a}'..='\u{109f}' | '\u{1780}'..='\u{17d3}' | '\u{17d7}' | '\u{17dc}'..='\u{17dd}'
        | '\u{1950}'..='\u{1974}' | '\u{1980}'..='\u{19c9}' | '\u{1a20}'..='\u{1a5e}'
        | '\u{1a60}'..='\u{1a7c}' | '\u{1aa0}'..='\u{1aad}' | '\u{a9e0}'..='\u{a9ef}'
        | '\u{a9fa}'..='\u{a9fe}' | '\u{aa60}'..='\u{aac2}' | '\u{aadb}'..='\u{aadf}')
}

/// Numbers that are not digits (superscripts, fractions, circled numbers): `Word_Break=Other`.
fn is_other_number(c: char) -> bool {
    matches!(c,
        '\u{b2}'..='\u{b3}' | '\u{b9}' | '\u{bc}'..='\u{be}' | '\u{9f4}'..='\u{9f9}'
        | '\u{b72}'..='\u{b77}' | '\u{bf0}'..='\u{bf2}' | '\u{c78}'..='\u{c7e}'
        | '\u{d58}'..='\u{d5e}' | '\u{d70}'..='\u{d78}' | '\u{f2a}'..='\u{f33}'
        | '\u{1369}'..='\u{137c}' | '\u{17f0}'..='\u{17f9}' | '\u{19da}' | '\u{2070}'..='\u{2089}'
        | '\u{2150}'..='\u{215f}' | '\u{2189}' | '\u{2460}'..='\u{249b}' | '\u{24ea}'..='\u{24ff}'
        | '\u{2776}'..='\u{2793}' | '\u{2cfd}' | '\u{3192}'..='\u{3195}' | '\u{3220}'..='\u{3229}'
        | '\u{3248}'..='\u{324f}' | '\u{3251}'..='\u{325f}' | '\u{3280}'..='\u{3289}'
        | '\u{32b1}'..='\u{32bf}' | '\u{a830}'..='\u{a835}' | '\u{1f100}'..='\u{1f10c}')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both ways of cutting agree on every ASCII string of up to five characters, one a class and a
    /// few that break, at several limits.
    #[test]
    fn ascii_table_equals_unicode_rules() {
        const ALPHABET: &[u8] = b"aZ1_:,;.'\"-";
        for max_token_length in [2, 3, 255] {
            let standard = Standard { max_token_length };
            for length in 1..=5u32 {
                for number in 0..ALPHABET.len().pow(length) {
                    let mut rest = number;
                    let text: String = (0..length)
                        .map(|_| {
                            let c = ALPHABET[rest % ALPHABET.len()];
                            rest /= ALPHABET.len();
                            char::from(c)
                        })
                        .collect();
                    let run = |unicode: bool| {
                        let mut words = Vec::new();
                        let mut sink =
                            |token: &mut Token| words.push((token.start, token.end, token.position));
                        let mut out = Emitter::new(&text, &mut sink);
                        if unicode {
                            standard.unicode_run(&text, 0, text.len(), &mut out);
                        } else {
                            standard.ascii_run(&text, 0, text.len(), &mut out);
                        }
                        words
                    };
                    assert_eq!(run(false), run(true), "{text:?} at {max_token_length}");
                }
                // The longest strings at one limit are enough.
                if length == 4 && max_token_length != 255 {
                    break;
                }
            }
        }
    }
}
