//! Filters that map the characters of a token: `reverse`, `decimal_digit`, `cjk_width`,
//! `scandinavian_folding`, `scandinavian_normalization`.

use super::{Filter, Stage, each};
use crate::analysis::tokenizer::class::decimal_digit;

/// A filter that maps the text of each token.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Characters {
    /// The characters backwards.
    Reverse,
    /// Digits of all scripts become those of ASCII.
    DecimalDigit,
    /// Full-width ASCII becomes ASCII, half-width Katakana becomes full-width.
    CjkWidth,
    /// Scandinavian letters become those of one language: æÆ äÄ öÖ become åæø, `aa` becomes å.
    ScandinavianNormalization,
    /// Scandinavian letters become ASCII: å ä æ a, ö ø o, and the pairs aa ae ao oe oo.
    ScandinavianFolding,
}

impl Filter for Characters {
    fn stage<'a>(&'a self, next: Box<dyn Stage + 'a>) -> Box<dyn Stage + 'a> {
        each(
            |token| {
                match self {
                    Self::Reverse => token.text = token.text.chars().rev().collect(),
                    Self::DecimalDigit if token.text.is_ascii() => {}
                    Self::DecimalDigit => token.text = token.text.chars().map(to_ascii_digit).collect(),
                    Self::CjkWidth => token.text = wide(&token.text),
                    Self::ScandinavianNormalization => token.text = scandinavian(&token.text, false),
                    Self::ScandinavianFolding => token.text = scandinavian(&token.text, true),
                }
                true
            },
            next,
        )
    }

    fn is_normalizing(&self) -> bool {
        !matches!(self, Self::Reverse)
    }
}

fn to_ascii_digit(c: char) -> char {
    if c.is_ascii() {
        return c;
    }
    decimal_digit(c).and_then(|value| char::from_digit(value, 10)).unwrap_or(c)
}

/// Half-width Katakana and their marks, U+FF65 to U+FF9F, in full width.
const FULL_WIDTH: [char; 59] = [
    '・', 'ヲ', 'ァ', 'ィ', 'ゥ', 'ェ', 'ォ', 'ャ', 'ュ', 'ョ', 'ッ', 'ー', 'ア', 'イ', 'ウ', 'エ', 'オ',
    'カ', 'キ', 'ク', 'ケ', 'コ', 'サ', 'シ', 'ス', 'セ', 'ソ', 'タ', 'チ', 'ツ', 'テ', 'ト', 'ナ', 'ニ',
    'ヌ', 'ネ', 'ノ', 'ハ', 'ヒ', 'フ', 'ヘ', 'ホ', 'マ', 'ミ', 'ム', 'メ', 'モ', 'ヤ', 'ユ', 'ヨ', 'ラ',
    'リ', 'ル', 'レ', 'ロ', 'ワ', 'ン', '\u{3099}', '\u{309a}',
];

fn wide(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\u{ff01}'..='\u{ff5e}' => out.extend(char::from_u32(c as u32 - 0xfee0)),
            '\u{ff65}'..='\u{ff9f}' => {
                // A voiced mark joins the letter before where there is such a letter.
                let joined = match c {
                    '\u{ff9e}' => out.chars().next_back().and_then(voiced),
                    '\u{ff9f}' => out.chars().next_back().and_then(half_voiced),
                    _ => None,
                };
                match joined {
                    Some(joined) => {
                        out.pop();
                        out.push(joined);
                    }
                    None => out.push(FULL_WIDTH[c as usize - 0xff65]),
                }
            }
            _ => out.push(c),
        }
    }
    out
}

fn voiced(c: char) -> Option<char> {
    let step = match c {
        'ウ' => return Some('ヴ'),
        'ワ' => return Some('ヷ'),
        'ヲ' => return Some('ヺ'),
        'ヽ' => return Some('ヾ'),
        'カ' | 'キ' | 'ク' | 'ケ' | 'コ' | 'サ' | 'シ' | 'ス' | 'セ' | 'ソ' | 'タ' | 'チ' | 'ツ' | 'テ'
        | 'ト' | 'ハ' | 'ヒ' | 'フ' | 'ヘ' | 'ホ' => 1,
        _ => return None,
    };
    char::from_u32(c as u32 + step)
}

fn half_voiced(c: char) -> Option<char> {
    matches!(c, 'ハ' | 'ヒ' | 'フ' | 'ヘ' | 'ホ').then(|| char::from_u32(c as u32 + 2)).flatten()
}

fn scandinavian(text: &str, fold: bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        let next = characters.peek().copied();
        if fold {
            let (folded, pairs): (char, &[char]) = match c {
                'å' | 'ä' | 'æ' => ('a', &[]),
                'Å' | 'Ä' | 'Æ' => ('A', &[]),
                'ö' | 'ø' => ('o', &[]),
                'Ö' | 'Ø' => ('O', &[]),
                'a' | 'A' => (c, &['a', 'A', 'e', 'E', 'o', 'O']),
                'o' | 'O' => (c, &['e', 'E', 'o', 'O']),
                _ => (c, &[]),
            };
            out.push(folded);
            if next.is_some_and(|next| pairs.contains(&next)) {
                characters.next();
            }
            continue;
        }
        let (mapped, took) = match (c, next) {
            ('ä', _) => ('æ', false),
            ('Ä', _) => ('Æ', false),
            ('ö', _) => ('ø', false),
            ('Ö', _) => ('Ø', false),
            ('a', Some('a' | 'A' | 'o' | 'O')) => ('å', true),
            ('A', Some('a' | 'A' | 'o' | 'O')) => ('Å', true),
            ('a', Some('e' | 'E')) => ('æ', true),
            ('A', Some('e' | 'E')) => ('Æ', true),
            ('o', Some('e' | 'E' | 'o' | 'O')) => ('ø', true),
            ('O', Some('e' | 'E' | 'o' | 'O')) => ('Ø', true),
            _ => (c, false),
        };
        out.push(mapped);
        if took {
            characters.next();
        }
    }
    out
}
