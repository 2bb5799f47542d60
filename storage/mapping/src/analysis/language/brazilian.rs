//! The stemmer for Brazilian Portuguese: suffixes by the regions of a word, in the form that Lucene
//! gives it.

use super::light::{ends, swap};
use crate::analysis::tokenizer::class::is_letter;

/// Suffixes of nouns and adjectives that must lie in R2, and what stands for them.
#[rustfmt::skip]
const NOUNS: [(&str, &str); 42] = [
    ("uciones", "u"), ("imentos", ""), ("amentos", ""), ("adores", ""), ("adoras", ""), ("logias", "logias"),
    ("encias", "ente"), ("amente", ""), ("idades", ""), ("acoes", ""), ("imento", ""), ("amento", ""),
    ("adora", ""), ("ismos", ""), ("istas", ""), ("logia", "log"), ("ucion", "u"), ("encia", "ente"),
    ("mente", ""), ("idade", ""), ("acao", ""), ("ezas", ""), ("icos", ""), ("icas", ""), ("ismo", ""),
    ("avel", ""), ("ivel", ""), ("ista", ""), ("osos", ""), ("osas", ""), ("ador", ""), ("ivas", ""),
    ("ivos", ""), ("iras", "ir"), ("eza", ""), ("ico", ""), ("ica", ""), ("oso", ""), ("osa", ""),
    ("iva", ""), ("ivo", ""), ("ira", "ir"),
];

/// Suffixes of verbs that must lie in RV, longest first.
#[rustfmt::skip]
const VERBS: [&str; 110] = [
    "issemos", "essemos", "assemos", "ariamos", "eriamos", "iriamos", "iremos", "eremos", "aremos", "avamos",
    "iramos", "eramos", "aramos", "asseis", "esseis", "isseis", "arieis", "erieis", "irieis", "irmos", "iamos",
    "armos", "ermos", "areis", "ereis", "ireis", "asses", "esses", "isses", "astes", "assem", "essem", "issem",
    "ardes", "erdes", "irdes", "ariam", "eriam", "iriam", "arias", "erias", "irias", "estes", "istes", "aveis",
    "aria", "eria", "iria", "asse", "esse", "isse", "aste", "este", "iste", "arei", "erei", "irei", "aram",
    "eram", "iram", "avam", "arem", "erem", "irem", "ando", "endo", "indo", "arao", "erao", "irao", "adas",
    "idas", "aras", "eras", "iras", "avas", "ares", "eres", "ires", "ados", "idos", "amos", "emos", "imos",
    "ieis", "ada", "ida", "ara", "era", "ira", "iam", "ado", "ido", "ias", "ais", "eis", "ear", "ia", "ei",
    "am", "em", "ar", "er", "ir", "as", "es", "is", "eu", "iu", "ou",
];

fn is_vowel(c: char) -> bool {
    matches!(c, 'a' | 'e' | 'i' | 'o' | 'u')
}

/// Returns the region behind the first other letter that follows a vowel.
fn region(word: &[char]) -> Option<&[char]> {
    let last = word.len().checked_sub(1)?;
    let vowel = word[..last].iter().position(|&c| is_vowel(c))?;
    let other = word[vowel..last].iter().position(|&c| !is_vowel(c))? + vowel;
    Some(&word[other + 1..])
}

/// Returns the region of a verb's endings.
fn verb_region(word: &[char]) -> Option<&[char]> {
    let last = word.len().checked_sub(1)?;
    let after =
        |found: &dyn Fn(char) -> bool| (2..last).find(|&at| found(word[at])).map(|at| &word[at + 1..]);
    if last > 0
        && !is_vowel(word[1])
        && let Some(region) = after(&is_vowel)
    {
        return Some(region);
    }
    if last > 1
        && is_vowel(word[0])
        && is_vowel(word[1])
        && let Some(region) = after(&|c| !is_vowel(c))
    {
        return Some(region);
    }
    (last > 2).then(|| &word[3..])
}

pub(super) fn stem(word: &mut Vec<char>) {
    let mut changed: Vec<char> = word
        .iter()
        .collect::<String>()
        .to_lowercase()
        .chars()
        .map(|c| match c {
            'á' | 'â' | 'ã' => 'a',
            'é' | 'ê' => 'e',
            'í' => 'i',
            'ó' | 'ô' | 'õ' => 'o',
            'ú' | 'ü' => 'u',
            'ç' => 'c',
            'ñ' => 'n',
            c => c,
        })
        .collect();
    let is_mark = |c: &char| matches!(c, '"' | '\'' | '-' | ',' | ';' | '.' | '?' | '!');
    if changed.len() >= 2 && is_mark(&changed[0]) {
        changed.remove(0);
    }
    if changed.len() >= 2 && changed.last().is_some_and(is_mark) {
        changed.pop();
    }
    if changed.len() < 3 || changed.len() >= 30 {
        return;
    }
    if changed.iter().all(|&c| is_letter(c)) {
        stem_letters(&mut changed);
    }
    *word = changed;
}

fn stem_letters(word: &mut Vec<char>) {
    let whole = word.clone();
    let r1 = region(&whole);
    let r2 = r1.and_then(region);
    let rv = verb_region(&whole);
    let lies = |region: Option<&[char]>, suffix: &str| region.is_some_and(|region| ends(region, suffix));
    let noun = NOUNS.iter().find(|(suffix, _)| match *suffix {
        "amente" => lies(r1, suffix),
        "iras" => lies(rv, suffix) && ends(word, "eiras"),
        "ira" => lies(rv, suffix) && ends(word, "eira"),
        _ => lies(r2, suffix),
    });
    let mut altered = false;
    if let Some((suffix, tail)) = noun {
        swap(word, suffix.len(), tail);
        altered = true;
    } else if let Some(suffix) = VERBS.iter().find(|suffix| lies(rv, suffix)) {
        // The original takes another suffix off than `ira`, which never fits.
        if *suffix != "ira" {
            swap(word, suffix.len(), "");
        }
        altered = true;
    }
    let take = |word: &mut Vec<char>, suffix: &str| {
        if ends(word, suffix) {
            swap(word, suffix.len(), "");
        }
    };
    if altered {
        if lies(rv, "ci") {
            take(word, "i");
        }
    } else if let Some(suffix) = ["os", "a", "i", "o"].into_iter().find(|suffix| lies(rv, suffix)) {
        take(word, suffix);
    }
    if lies(rv, "e") {
        take(word, "e");
        if lies(rv, "gue") {
            take(word, "u");
        } else if lies(rv, "cie") {
            take(word, "i");
        }
    }
}
