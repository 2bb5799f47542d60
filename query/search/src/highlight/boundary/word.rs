//! Words: runs of letters and numbers with single marks inside, white space, kana, Han; every other
//! character for itself.

use super::class::{Category, category};
use super::{Cell, cells};

/// Property of a character for words. Punctuation has flags, since one mark can be several things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WordProperty {
    Letter,
    Digit,
    Mark,
    Danda,
    Han,
    Katakana,
    Hiragana,
    KanaMark,
    Space,
    CarriageReturn,
    LineEnd,
    Punctuation { in_word: bool, in_number: bool, before_number: bool, after_number: bool },
    Control,
}

pub(super) fn boundaries(text: &[u16], boundaries: &mut Vec<usize>) {
    let cells = cells(text, part);
    let scan = Scan(&cells);
    let mut at = 0;
    while at < cells.len() {
        at = scan.next(at);
        boundaries.push(cells[at - 1].end);
    }
    if boundaries.last() != Some(&text.len()) {
        boundaries.push(text.len());
    }
}

struct Scan<'a>(&'a [Cell<WordProperty>]);

impl Scan<'_> {
    fn at(&self, at: usize) -> Option<WordProperty> {
        self.0.get(at).map(|cell| cell.class)
    }

    fn run(&self, mut at: usize, fits: impl Fn(WordProperty) -> bool) -> usize {
        while self.at(at).is_some_and(&fits) {
            at += 1;
        }
        at
    }

    /// Returns where the piece that begins at a cell ends: the longest that any rule gives.
    fn next(&self, from: usize) -> usize {
        let mut end = from + 1;
        if let Some(WordProperty::Punctuation { before_number: true, .. }) = self.at(from) {
            end = end.max(self.words_and_numbers(from + 1, false));
        }
        end = end.max(self.words_and_numbers(from, true));
        let mut space = self.spaces(from);
        if self.at(space) == Some(WordProperty::CarriageReturn) {
            space += 1;
        }
        if self.at(space) == Some(WordProperty::LineEnd) {
            space += 1;
        }
        end = end.max(space);
        end = end.max(self.run(from, |part| matches!(part, WordProperty::Katakana | WordProperty::KanaMark)));
        end = end.max(self.run(from, |part| matches!(part, WordProperty::Hiragana | WordProperty::KanaMark)));
        end = end.max(self.run(from, |part| part == WordProperty::Han));
        if !matches!(
            self.at(from),
            Some(
                WordProperty::Mark
                    | WordProperty::Control
                    | WordProperty::CarriageReturn
                    | WordProperty::LineEnd
            ) | None
        ) {
            end = end.max(self.run(from + 1, |part| part == WordProperty::Mark));
        }
        end
    }

    /// White space with marks on it.
    fn spaces(&self, mut at: usize) -> usize {
        while self.at(at) == Some(WordProperty::Space) {
            at = self.run(at + 1, |part| part == WordProperty::Mark);
        }
        at
    }

    /// Words and numbers in turns, and a sign behind the last number.
    fn words_and_numbers(&self, from: usize, word_first: bool) -> usize {
        let mut at = from;
        if word_first {
            at = self.word(at);
        }
        loop {
            let number = self.number(at);
            if number == at {
                return at;
            }
            let word = self.word(number);
            if word == number {
                return match self.at(number) {
                    Some(WordProperty::Punctuation { after_number: true, .. }) => number + 1,
                    _ => number,
                };
            }
            at = word;
        }
    }

    fn word(&self, from: usize) -> usize {
        let mut at = self.based(from, WordProperty::Letter);
        if at == from {
            return at;
        }
        while let Some(WordProperty::Punctuation { in_word: true, .. }) = self.at(at) {
            let more = self.based(at + 1, WordProperty::Letter);
            if more == at + 1 {
                break;
            }
            at = more;
        }
        if self.at(at) == Some(WordProperty::Danda) { at + 1 } else { at }
    }

    fn number(&self, from: usize) -> usize {
        let mut at = self.based(from, WordProperty::Digit);
        if at == from {
            return at;
        }
        while let Some(WordProperty::Punctuation { in_number: true, .. }) = self.at(at) {
            let more = self.based(at + 1, WordProperty::Digit);
            if more == at + 1 {
                break;
            }
            at = more;
        }
        at
    }

    /// A run of characters of one class, each with marks on it.
    fn based(&self, mut at: usize, base: WordProperty) -> usize {
        while self.at(at) == Some(base) {
            at = self.run(at + 1, |part| part == WordProperty::Mark);
        }
        at
    }
}

fn part(c: char) -> Option<WordProperty> {
    let category = category(c);
    Some(match c {
        '\u{964}' | '\u{965}' => WordProperty::Danda,
        '\u{3005}' | '\u{4e00}'..='\u{9fa5}' | '\u{f900}'..='\u{fa2d}' => WordProperty::Han,
        '\u{30a1}'..='\u{30fa}' | '\u{30fd}' | '\u{30fe}' => WordProperty::Katakana,
        '\u{3041}'..='\u{3094}' | '\u{309d}' | '\u{309e}' => WordProperty::Hiragana,
        '\u{3099}'..='\u{309c}' | '\u{30fb}' | '\u{30fc}' => WordProperty::KanaMark,
        '\n' | '\u{c}' | '\u{2028}' | '\u{2029}' => WordProperty::LineEnd,
        '\r' => WordProperty::CarriageReturn,
        '\t' => WordProperty::Space,
        _ => match category {
            Category::Format if c != '\u{ad}' => return None,
            Category::Mark => WordProperty::Mark,
            Category::Space => WordProperty::Space,
            Category::Lower | Category::OtherLetter | Category::SpacingMark => WordProperty::Letter,
            Category::Number => WordProperty::Digit,
            Category::Control => WordProperty::Control,
            _ => WordProperty::Punctuation {
                in_word: matches!(category, Category::Dash | Category::Connector)
                    || matches!(c, '\u{ad}' | '\u{2027}' | '"' | '\'' | '.'),
                in_number: matches!(c, '"' | '\'' | ',' | '\u{66b}' | '.'),
                before_number: (category == Category::Currency && c != '\u{a2}') || matches!(c, '#' | '.'),
                after_number: matches!(c, '%' | '&' | '\u{a2}' | '\u{66a}' | '\u{2030}' | '\u{2031}'),
            },
        },
    })
}
