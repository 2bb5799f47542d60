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

use unicode_properties::{GeneralCategoryGroup, UnicodeGeneralCategory};
use unicode_segmentation::UnicodeSegmentation;

use super::class::decimal_digit;
use super::emoji::{emoji_behind, is_emoji, is_flag};
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
        let mut at = 0;
        while let Some((start, end)) = next_run(text, at) {
            self.run(text, start, end, &mut |start, end, kind| out.emit_as(text, start, end, kind));
            at = end;
        }
        out.next_position
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// Finds the first stretch at or behind `at` without ASCII white space.
#[inline]
pub(super) fn next_run(text: &str, at: usize) -> Option<(usize, usize)> {
    let bytes = text.as_bytes();
    let start = at + bytes.get(at..)?.iter().position(|&byte| !is_space(byte))?;
    let length = bytes[start..].iter().position(|&byte| is_space(byte));
    Some((start, length.map_or(bytes.len(), |length| start + length)))
}

impl Standard {
    /// Hands the bounds and types of the words between two places, without white space between them, to
    /// `out`.
    #[inline]
    pub(super) fn run(
        &self,
        text: &str,
        start: usize,
        end: usize,
        out: &mut impl FnMut(usize, usize, &'static str),
    ) {
        if text.as_bytes()[start..end].is_ascii() {
            self.ascii_run(text, start, end, out);
        } else {
            self.unicode_run(text, start, end, out);
        }
    }

    #[inline]
    fn ascii_run(
        &self,
        text: &str,
        start: usize,
        end: usize,
        out: &mut impl FnMut(usize, usize, &'static str),
    ) {
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
            let mut has_letter = previous == LETTER;
            let mut has_digit = previous == DIGIT;
            at += 1;
            while at < limit {
                let current = class(at);
                if (LETTER..=EXTEND).contains(&current) {
                    has_letter |= current == LETTER;
                    has_digit |= current == DIGIT;
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
            if has_letter || has_digit {
                out(word, at, if has_letter { "<ALPHANUM>" } else { "<NUM>" });
            }
        }
    }

    fn unicode_run(
        &self,
        text: &str,
        start: usize,
        end: usize,
        out: &mut impl FnMut(usize, usize, &'static str),
    ) {
        let mut at = start;
        // An open run of a script without spaces, and its code units: UAX #29 breaks at each of its letters.
        let mut complex: Option<(usize, usize)> = None;
        // A segment that is longer than this is cut anyway, so that a long word is not read to its end at each cut.
        let stretch = self.max_token_length.max(64).saturating_mul(16);
        'restart: while at < end {
            let near = text.floor_char_boundary(end.min(at.saturating_add(stretch)));
            for segment in text[at..near].split_word_bounds() {
                if near < end
                    && at + segment.len() == near
                    && !longer_than_utf16_units(segment, self.max_token_length)
                {
                    // The segment may go on.
                    continue 'restart;
                }
                let joins = segment.chars().next().is_some_and(is_complex_context);
                if joins {
                    let (mut run, mut units) = complex.unwrap_or((at, 0));
                    at += segment.len();
                    units += segment.chars().map(char::len_utf16).sum::<usize>();
                    while units > self.max_token_length {
                        let cut = run + prefix_of_utf16_units(&text[run..at], self.max_token_length);
                        out(run, cut, SOUTHEAST_ASIAN);
                        units -= text[run..cut].chars().map(char::len_utf16).sum::<usize>();
                        run = cut;
                        if !text[run..at].starts_with(is_complex_context) {
                            // Marks that any script may have are no token alone.
                            (at, complex) = (run, None);
                            continue 'restart;
                        }
                    }
                    complex = Some((run, units));
                    continue;
                }
                if let Some((run, _)) = complex.take() {
                    out(run, at, SOUTHEAST_ASIAN);
                }
                if !is_token(segment)
                    && let Some(mark) = segment.find(is_complex_context)
                {
                    // Lucene passes over the character alone that is no token: the mark on it begins a run.
                    at += mark;
                    continue 'restart;
                }
                if longer_than_utf16_units(segment, self.max_token_length) {
                    let window = &segment[..prefix_of_utf16_units(segment, self.max_token_length)];
                    let first = window.split_word_bounds().next().unwrap_or(window);
                    if is_token(first) {
                        out(at, at + first.len(), kind_of(first));
                    }
                    at += first.len();
                    continue 'restart;
                }
                // A word keeps the joiners; behind what is no token they go with the emoji.
                let word = match emoji_behind(segment) {
                    Some((joiners, emoji)) if !is_emoji(segment) || is_flag(segment) => {
                        if is_token(&segment[..joiners]) { emoji } else { joiners }
                    }
                    _ => segment.len(),
                };
                for part in [&segment[..word], &segment[word..]] {
                    if is_token(part) {
                        out(at, at + part.len(), kind_of(part));
                    }
                    at += part.len();
                }
            }
        }
        if let Some((run, _)) = complex {
            out(run, at, SOUTHEAST_ASIAN);
        }
    }
}

const SOUTHEAST_ASIAN: &str = "<SOUTHEAST_ASIAN>";

/// The type of a token.
fn kind_of(segment: &str) -> &'static str {
    let first = segment.chars().next().unwrap_or_default();
    match first {
        '\u{2e80}'..='\u{2fd5}'
        | '\u{3007}'
        | '\u{3021}'..='\u{3029}'
        | '\u{3038}'..='\u{303a}'
        | '\u{3400}'..='\u{4dbf}'
        | '\u{4e00}'..='\u{9fff}'
        | '\u{f900}'..='\u{faff}'
        | '\u{16ff0}'..='\u{16ff1}'
        | '\u{20000}'..='\u{3ffff}' => return "<IDEOGRAPHIC>",
        '\u{3041}'..='\u{3096}'
        | '\u{309d}'..='\u{309f}'
        | '\u{1b001}'..='\u{1b11f}'
        | '\u{1b150}'..='\u{1b152}'
        | '\u{1f200}' => {
            return "<HIRAGANA>";
        }
        _ => {}
    }
    if is_emoji(segment) {
        return "<EMOJI>";
    }
    let mut letters = segment.chars().filter(|&c| is_word_letter(c));
    match letters.next() {
        None => "<NUM>",
        Some(c)
            if is_hangul(c)
                && segment.chars().all(|c| is_hangul(c) || !(is_word_letter(c) || is_word_digit(c)))
                && !segment.contains('_') =>
        {
            "<HANGUL>"
        }
        Some(c)
            if is_katakana(c)
                && segment.chars().all(|c| is_katakana(c) || !(is_word_letter(c) || is_word_digit(c)))
                && !segment.contains('_') =>
        {
            "<KATAKANA>"
        }
        Some(_) => "<ALPHANUM>",
    }
}

fn is_hangul(c: char) -> bool {
    matches!(c, '\u{1100}'..='\u{11ff}' | '\u{302e}'..='\u{302f}' | '\u{3131}'..='\u{318e}' | '\u{3200}'..='\u{321e}'
        | '\u{3260}'..='\u{327e}' | '\u{a960}'..='\u{a97c}' | '\u{ac00}'..='\u{d7a3}' | '\u{d7b0}'..='\u{d7fb}'
        | '\u{ffa0}'..='\u{ffdc}')
}

fn is_katakana(c: char) -> bool {
    matches!(c, '\u{3031}'..='\u{3035}' | '\u{309b}'..='\u{309c}' | '\u{30a0}'..='\u{30fa}' | '\u{30fc}'..='\u{30ff}'
        | '\u{31f0}'..='\u{31ff}' | '\u{32d0}'..='\u{32fe}' | '\u{3300}'..='\u{3357}' | '\u{ff66}'..='\u{ff9d}'
        | '\u{1b000}' | '\u{1b164}'..='\u{1b167}')
}

/// Returns whether a UAX #29 segment is a token.
fn is_token(segment: &str) -> bool {
    segment.chars().any(|c| is_word_letter(c) || is_word_digit(c)) || is_emoji(segment)
}

/// Letters, ideographs and the symbols that Unicode takes for such when it cuts words; not the marks on
/// letters, and not the scripts whose ideographs it leaves alone.
fn is_word_letter(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_alphabetic();
    }
    if !c.is_alphabetic() {
        return matches!(c, '\u{2c2}'..='\u{2c5}' | '\u{2d2}'..='\u{2d7}' | '\u{2de}'..='\u{2df}' | '\u{2ed}'
            | '\u{2ef}'..='\u{2ff}' | '\u{55b}'..='\u{55c}' | '\u{55e}' | '\u{5f3}' | '\u{2e80}'..='\u{2e99}'
            | '\u{2e9b}'..='\u{2ef3}' | '\u{2f00}'..='\u{2fd5}' | '\u{309b}'..='\u{309c}' | '\u{30a0}'
            | '\u{32d0}'..='\u{32fe}' | '\u{3300}'..='\u{3357}' | '\u{a720}'..='\u{a721}'
            | '\u{a789}'..='\u{a78a}' | '\u{ab5b}' | '\u{1f200}');
    }
    match c {
        '\u{80}'..='\u{344}' | '\u{370}'..='\u{482}' | '\u{3041}'..='\u{fb1d}' | '\u{fb1f}'..='\u{ff9d}' => {
            !matches!(c, '\u{a674}'..='\u{a67b}' | '\u{a69e}'..='\u{a69f}' | '\u{a800}'..='\u{abff}')
                || !is_mark(c)
        }
        '\u{3006}'
        | '\u{fb1e}'
        | '\u{ff9e}'..='\u{ff9f}'
        | '\u{17000}'..='\u{18d08}'
        | '\u{1b170}'..='\u{1b2fb}' => false,
        _ => !is_mark(c),
    }
}

fn is_mark(c: char) -> bool {
    c.general_category_group() == GeneralCategoryGroup::Mark
}

fn is_word_digit(c: char) -> bool {
    c == '\u{66b}' || (c.is_numeric() && decimal_digit(c).is_some())
}

/// Characters of scripts written without spaces (`Line_Break=Complex_Context`).
fn is_complex_context(c: char) -> bool {
    matches!(c,
        '\u{0e01}'..='\u{0e3a}' | '\u{0e40}'..='\u{0e4e}' | '\u{0e81}'..='\u{0e82}' | '\u{0e84}'
        | '\u{0e86}'..='\u{0e8a}' | '\u{0e8c}'..='\u{0ea3}' | '\u{0ea5}' | '\u{0ea7}'..='\u{0ebd}'
        | '\u{0ec0}'..='\u{0ec4}' | '\u{0ec6}' | '\u{0ec8}'..='\u{0ecd}'
        | '\u{0edc}'..='\u{0edf}' | '\u{1000}'..='\u{103f}' | '\u{1050}'..='\u{108f}'
        | '\u{109a}'..='\u{109f}' | '\u{1780}'..='\u{17d3}' | '\u{17d7}' | '\u{17dc}'..='\u{17dd}'
        | '\u{1950}'..='\u{196d}' | '\u{1970}'..='\u{1974}' | '\u{1980}'..='\u{19ab}' | '\u{19b0}'..='\u{19c9}' | '\u{19da}' | '\u{19de}'..='\u{19df}' | '\u{1a20}'..='\u{1a5e}'
        | '\u{1a60}'..='\u{1a7c}' | '\u{1aa0}'..='\u{1aad}' | '\u{a9e0}'..='\u{a9ef}'
        | '\u{a9fa}'..='\u{a9fe}' | '\u{aa60}'..='\u{aac2}' | '\u{aadb}'..='\u{aadf}' | '\u{11700}'..='\u{1171a}'
        | '\u{1171d}'..='\u{1172b}' | '\u{1173a}'..='\u{1173b}' | '\u{1173f}')
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
                        let mut out = |start, end, kind| words.push((start, end, kind));
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
