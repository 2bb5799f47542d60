//! Light stemmers of Finnish, Hungarian, Russian and Swedish (J. Savoy, "Light Stemming Approaches for the
//! French, Portuguese, German and Hungarian Languages", 2006), and those of both kinds of Norwegian that
//! Lucene has in their manner.

use super::light::{ends, swap};
use super::suffix::{Suffixes, cut};

/// The genitive, which several languages take off first.
fn cut_s(word: &mut Vec<char>) {
    if word.len() > 4 && word.ends_with(&['s']) {
        word.pop();
    }
}

fn is_vowel(c: char) -> bool {
    matches!(c, 'a' | 'e' | 'i' | 'o' | 'u' | 'y')
}

const SWEDISH: &Suffixes = &[
    (7, &["elser", "heten"]),
    (6, &["arne", "erna", "ande", "else", "aste", "orna", "aren"]),
    (5, &["are", "ast", "het"]),
    (4, &["ar", "er", "or", "en", "at", "te", "et"]),
    (3, &["t", "a", "e", "n"]),
];

pub(super) fn swedish(word: &mut Vec<char>) {
    cut_s(word);
    cut(word, SWEDISH);
}

const BOKMAAL: &Suffixes = &[
    (7, &["heter", "heten"]),
    (5, &["dom", "het"]),
    (7, &["elser", "elsen"]),
    (6, &["ende", "else", "este", "eren"]),
    (5, &["ere", "est", "ene"]),
    (4, &["er", "en", "et", "st", "te"]),
    (3, &["a", "e", "n"]),
];

const NYNORSK: &Suffixes = &[
    (7, &["heita"]),
    (8, &["heiter", "leiken", "leikar"]),
    (5, &["dom"]),
    (6, &["heit", "semd", "leik"]),
    (7, &["elser", "elsen"]),
    (6, &["ande", "else", "aste", "aren"]),
    (5, &["are", "ast", "ene", "ane"]),
    (4, &["er", "en", "et", "ar", "te"]),
    (3, &["a", "e", "n"]),
];

const BOKMAAL_NUMBER: &Suffixes = &[(5, &["ene"]), (4, &["er", "en", "et"]), (3, &["a", "e"])];
const NYNORSK_NUMBER: &Suffixes = &[(5, &["ene", "ane"]), (4, &["er", "en", "et", "ar"]), (3, &["a", "e"])];

pub(super) fn norwegian(word: &mut Vec<char>) {
    cut_s(word);
    cut(word, BOKMAAL);
}

pub(super) fn norwegian_minimal(word: &mut Vec<char>) {
    cut_s(word);
    cut(word, BOKMAAL_NUMBER);
}

pub(super) fn nynorsk(word: &mut Vec<char>) {
    cut_s(word);
    cut(word, NYNORSK);
}

pub(super) fn nynorsk_minimal(word: &mut Vec<char>) {
    cut_s(word);
    cut(word, NYNORSK_NUMBER);
}

#[rustfmt::skip]
const RUSSIAN: &Suffixes = &[
    (6, &["иями", "оями"]),
    (5, &[
        "иям", "иях", "оях", "ями", "оям", "оьв", "ами", "его", "ему", "ери", "ими", "ого", "ому", "ыми", "оев",
    ]),
    (4, &[
        "ая", "яя", "ях", "юю", "ах", "ею", "их", "ия", "ию", "ьв", "ою", "ую", "ям", "ых", "ея", "ам", "ем",
        "ей", "ём", "ев", "ий", "им", "ое", "ой", "ом", "ов", "ые", "ый", "ым", "ми",
    ]),
    (3, &["а", "е", "и", "о", "у", "й", "ы", "я", "ь"]),
];

pub(super) fn russian(word: &mut Vec<char>) {
    cut(word, RUSSIAN);
    if word.len() > 3 && matches!(word.as_slice(), [.., 'ь' | 'и'] | [.., 'н', 'н']) {
        word.pop();
    }
}

const HUNGARIAN_CASE: &Suffixes = &[
    (6, &["kent"]),
    (5, &["nak", "nek", "val", "vel", "ert", "rol", "ban", "ben", "bol", "nal", "nel", "hoz", "hez", "tol"]),
];
const HUNGARIAN_SHORT_CASE: &Suffixes =
    &[(4, &["at", "et", "ot", "va", "ve", "ra", "re", "ba", "be", "ul", "ig"])];

pub(super) fn hungarian(word: &mut Vec<char>) {
    for c in word.iter_mut() {
        *c = match *c {
            'á' => 'a',
            'ë' | 'é' => 'e',
            'í' => 'i',
            'ó' | 'ő' | 'õ' | 'ö' => 'o',
            'ú' | 'ű' | 'ũ' | 'û' | 'ü' => 'u',
            other => other,
        };
    }
    hungarian_case(word);
    hungarian_possessive(word);
    // The plural.
    let length = word.len();
    let plural = match word.as_slice() {
        [.., 'a' | 'o' | 'e', 'k'] if length > 4 => 2,
        [.., 'k'] if length > 3 => 1,
        _ => 0,
    };
    swap(word, plural, "");
    if word.len() > 3 && matches!(word.last(), Some('a' | 'e' | 'i' | 'o')) {
        word.pop();
    }
}

fn hungarian_case(word: &mut Vec<char>) {
    if cut(word, HUNGARIAN_CASE) {
        return;
    }
    if word.len() > 5
        && let [.., one, other, 'a' | 'e', 'l'] = word.as_slice()
        && one == other
        && !is_vowel(*one)
    {
        return swap(word, 3, "");
    }
    if cut(word, HUNGARIAN_SHORT_CASE) || word.len() <= 4 {
        return;
    }
    let count = match word.as_slice() {
        [.., before, 'o' | 'e', 'n'] if !is_vowel(*before) => 2,
        [.., 't' | 'n'] => 1,
        [.., one, other, 'a' | 'e'] if one == other && !is_vowel(*one) => 2,
        _ => 0,
    };
    swap(word, count, "");
}

fn hungarian_possessive(word: &mut Vec<char>) {
    let length = word.len();
    let vowel = |c: &char| is_vowel(*c);
    let count = match word.as_slice() {
        [.., c, 'a' | 'o', 't', 'o', 'k'] | [.., c, 'e', 't', 'e', 'k'] if length > 6 && !vowel(c) => 4,
        [.., 'i', 't', 'e' | 'o', 'k'] if length > 6 => 4,
        [.., c, 'u', 'n', 'k'] | [.., c, 't', 'o' | 'e', 'k'] if length > 5 && !vowel(c) => 3,
        [.., c, 'j', 'u', 'k'] if length > 5 && vowel(c) => 3,
        [.., 'i', 'n', 'k'] if length > 5 => 3,
        [.., c, 'a' | 'e' | 'o', 'm' | 'd'] | [.., c, 'u', 'k'] if length > 4 && !vowel(c) => 2,
        [.., c, 'n', 'k'] | [.., c, 'j', 'a' | 'e'] if length > 4 && vowel(c) => 2,
        [.., 'i', 'm' | 'd' | 'k'] if length > 4 => 2,
        [.., c, 'a' | 'e'] if length > 3 && !vowel(c) => 1,
        [.., c, 'm' | 'd'] if length > 3 && vowel(c) => 1,
        [.., 'i'] if length > 3 => 1,
        _ => 0,
    };
    swap(word, count, "");
}

pub(super) fn finnish(word: &mut Vec<char>) {
    if word.len() < 4 {
        return;
    }
    for c in word.iter_mut() {
        *c = match *c {
            'ä' | 'å' => 'a',
            'ö' => 'o',
            other => other,
        };
    }
    while word.len() > 8 && (ends(word, "kin") || ends(word, "ko")) {
        let count = if ends(word, "kin") { 3 } else { 2 };
        swap(word, count, "");
    }
    cut(word, &[(11, &["dellinen", "dellisuus"])]);
    if word.len() > 5 && ends(word, "aa") {
        swap(word, 1, "");
    } else {
        cut(word, &[(5, &["lla", "tse", "sti", "ni"])]);
    }
    finnish_case(word);
    finnish_letters(word);
}

fn finnish_case(word: &mut Vec<char>) {
    let length = word.len();
    let (count, tail) = match word.as_slice() {
        [.., 'n', 'n', 'e', 'n'] if length > 8 => (4, "s"),
        [.., 'n', 't', 'e', 'n', 'a'] if length > 8 => (5, "s"),
        [.., 't', 't', 'e', 'n'] if length > 8 => (4, ""),
        [.., 'e', 'i', 'd', 'e', 'n'] if length > 8 => (5, ""),
        [.., 'n' | 's' | 't', 'e', 'e', 'n'] | [.., 'n', 'i', 'i', 'n'] | [.., 'i', 'n', 'e', 'n']
            if length > 6 =>
        {
            (4, "")
        }
        [.., 'h', c, 'n'] if length > 6 && is_vowel(*c) => (3, ""),
        [.., 'd', 'e', 'n'] if length > 6 => (3, "s"),
        [.., 'k', 's', 'e', 'n'] if length > 6 => (4, "s"),
        [.., 's', 's' | 't', 'a'] | [.., 'l', 'l' | 't', 'a'] | [.., 't', 't', 'a'] if length > 6 => (3, ""),
        [.., 'k', 's', 'i'] | [.., 'l', 'l', 'e'] if length > 6 => (3, ""),
        [.., 'n', 'a' | 'e'] if length > 5 => (2, ""),
        [.., 'n', 'e', 'i'] if length > 5 => (3, ""),
        [.., 'j' | 't', 'a'] if length > 4 => (2, ""),
        [.., 'a'] if length > 4 => (1, ""),
        [.., c, 'n'] if length > 4 && is_vowel(*c) => (2, ""),
        [.., 'n'] if length > 4 => (1, ""),
        _ => (0, ""),
    };
    swap(word, count, tail);
}

fn finnish_letters(word: &mut Vec<char>) {
    if word.len() > 5 && ends(word, "hde") {
        swap(word, 3, "ksi");
    }
    if !cut(word, &[(4, &["ei", "at"])]) {
        cut(word, &[(3, &["t", "s", "j", "e", "a", "i"])]);
    }
    cut(word, &[(8, &["e", "o", "u"])]);
    if word.len() > 4 {
        cut(word, &[(0, &["i"])]);
        if word.len() > 4 {
            word.dedup_by(|next, before| next == before && matches!(before, 'k' | 'p' | 't'));
        }
    }
}
