//! The light stemmers of J. Savoy ("Light Stemming Approaches for the French, Portuguese, German and
//! Hungarian Languages", 2006; "Report on CLEF-2001 Experiments"; with L. Dolamic, "Indexing and
//! stemming approaches for the Czech language", 2009), in the form that Lucene gives them.

/// Returns whether a word ends so.
pub(super) fn ends(word: &[char], suffix: &str) -> bool {
    let mut at = word.len();
    suffix.chars().rev().all(|c| {
        at = match at.checked_sub(1) {
            Some(at) => at,
            None => return false,
        };
        word[at] == c
    })
}

/// Takes `count` characters off the end and puts others there.
pub(super) fn swap(word: &mut Vec<char>, count: usize, tail: &str) {
    word.truncate(word.len().saturating_sub(count));
    word.extend(tail.chars());
}

/// The vowel below an accent, as these stemmers take it.
fn bare(c: char) -> char {
    match c {
        'à' | 'á' | 'â' | 'ä' => 'a',
        'ò' | 'ó' | 'ô' | 'ö' => 'o',
        'è' | 'é' | 'ê' | 'ë' => 'e',
        'ù' | 'ú' | 'û' | 'ü' => 'u',
        'ì' | 'í' | 'î' | 'ï' => 'i',
        _ => c,
    }
}

fn strip(word: &mut [char], map: impl Fn(char) -> char) {
    for c in word {
        *c = map(*c);
    }
}

/// German: umlauts, then inflection, then the degrees of comparison.
pub(super) fn german(word: &mut Vec<char>) {
    strip(word, |c| if matches!(c, 'è' | 'é' | 'ê' | 'ë') { c } else { bare(c) });
    let before_s = |c: char| matches!(c, 'b' | 'd' | 'f' | 'g' | 'h' | 'k' | 'l' | 'm' | 'n' | 't');
    let length = word.len();
    let first = match word.as_slice() {
        [.., 'e', 'r', 'n'] if length > 5 => 3,
        [.., 'e', 'm' | 'n' | 'r' | 's'] if length > 4 => 2,
        [.., 'e'] if length > 3 => 1,
        [.., c, 's'] if length > 3 && before_s(*c) => 1,
        _ => 0,
    };
    word.truncate(length - first);
    let length = word.len();
    let second = match word.as_slice() {
        [.., 'e', 's', 't'] if length > 5 => 3,
        [.., 'e', 'r' | 'n'] if length > 4 => 2,
        [.., c, 's', 't'] if length > 4 && before_s(*c) => 2,
        _ => 0,
    };
    word.truncate(length - second);
}

/// German, plurals only.
pub(super) fn german_minimal(word: &mut Vec<char>) {
    if word.len() < 5 {
        return;
    }
    strip(word, |c| match c {
        'ä' => 'a',
        'ö' => 'o',
        'ü' => 'u',
        c => c,
    });
    let length = word.len();
    let count = match word.as_slice() {
        [.., 'n', 'e', 'n'] if length > 6 => 3,
        [.., 'e', 'n' | 's' | 'r'] | [.., 's', 'e'] if length > 5 => 2,
        [.., 'n' | 'e' | 's' | 'r'] => 1,
        _ => 0,
    };
    word.truncate(length - count);
}

/// Spanish: gender and number.
pub(super) fn spanish(word: &mut Vec<char>) {
    if word.len() < 5 {
        return;
    }
    strip(word, bare);
    match word.as_slice() {
        [.., 'o' | 'a' | 'e'] => swap(word, 1, ""),
        [.., 'e', 's', 'e', 's'] => swap(word, 2, ""),
        [.., 'c', 'e', 's'] => swap(word, 3, "z"),
        [.., 'o' | 'a' | 'e', 's'] => swap(word, 2, ""),
        _ => {}
    }
}

/// Italian: gender and number.
pub(super) fn italian(word: &mut Vec<char>) {
    if word.len() < 6 {
        return;
    }
    strip(word, bare);
    match word.as_slice() {
        [.., 'i' | 'h', 'e'] | [.., 'h' | 'i', 'i'] | [.., 'i', 'a' | 'o'] => swap(word, 2, ""),
        [.., 'e' | 'i' | 'a' | 'o'] => swap(word, 1, ""),
        _ => {}
    }
}

/// Portuguese: number, adverbs, gender.
pub(super) fn portuguese(word: &mut Vec<char>) {
    if word.len() < 4 {
        return;
    }
    portuguese_number(word);
    if word.len() > 3 && word.ends_with(&['a']) {
        portuguese_gender(word);
    }
    if word.len() > 4 && matches!(word.last(), Some('e' | 'a' | 'o')) {
        word.pop();
    }
    strip(word, |c| match c {
        'ã' => 'a',
        'õ' => 'o',
        'ç' => 'c',
        c => bare(c),
    });
}

fn portuguese_number(word: &mut Vec<char>) {
    let length = word.len();
    match word.as_slice() {
        [.., 'r' | 's' | 'l' | 'z', 'e', 's'] if length > 4 => swap(word, 2, ""),
        [.., 'n', 's'] if length > 3 => swap(word, 2, "m"),
        [.., 'e' | 'é', 'i', 's'] if length > 4 => swap(word, 3, "el"),
        [.., 'a', 'i', 's'] if length > 4 => swap(word, 2, "l"),
        [.., 'ó', 'i', 's'] if length > 4 => swap(word, 3, "ol"),
        [.., 'i', 's'] if length > 4 => swap(word, 1, "l"),
        [.., 'õ' | 'ã', 'e', 's'] if length > 3 => swap(word, 3, "ão"),
        _ if length > 6 && ends(word, "mente") => swap(word, 5, ""),
        [.., 's'] if length > 3 => swap(word, 1, ""),
        _ => {}
    }
}

fn portuguese_gender(word: &mut Vec<char>) {
    let any = |word: &[char], suffixes: &[&str]| suffixes.iter().any(|suffix| ends(word, suffix));
    if word.len() > 7 && any(word, &["inha", "iaca", "eira"]) {
        return swap(word, 1, "o");
    }
    if word.len() <= 6 {
        return;
    }
    if any(word, &["osa", "ica", "ida", "ada", "iva", "ama"]) {
        swap(word, 1, "o");
    } else if ends(word, "ona") {
        swap(word, 3, "ão");
    } else if ends(word, "ora") {
        swap(word, 1, "");
    } else if ends(word, "esa") {
        swap(word, 3, "ês");
    } else if ends(word, "na") {
        swap(word, 1, "o");
    }
}

/// Rule for a word longer than `over` that ends in `suffix`.
struct Rule {
    over: usize,
    suffix: &'static str,
    /// Characters taken off, and put there.
    off: usize,
    tail: &'static str,
    /// `true` if it is the last rule.
    last: bool,
}

const fn rule(over: usize, suffix: &'static str, off: usize, tail: &'static str, last: bool) -> Rule {
    Rule { over, suffix, off, tail, last }
}

const FRENCH: [Rule; 28] = [
    rule(9, "issement", 7, "r", true),
    rule(8, "issant", 5, "r", true),
    rule(6, "ement", 4, "", true),
    rule(11, "ficatrice", 7, "er", true),
    rule(10, "ficateur", 6, "er", true),
    rule(9, "catrice", 7, "quer", true),
    rule(8, "cateur", 6, "quer", true),
    rule(8, "atrice", 6, "er", true),
    rule(7, "ateur", 5, "er", true),
    rule(6, "trice", 4, "eur", false),
    rule(5, "ième", 4, "", true),
    rule(7, "teuse", 3, "r", true),
    rule(6, "teur", 2, "r", true),
    rule(5, "euse", 2, "", true),
    rule(8, "ère", 3, "er", true),
    rule(7, "ive", 2, "f", true),
    rule(4, "folle", 3, "u", true),
    rule(4, "molle", 3, "u", true),
    rule(9, "nnelle", 5, "", true),
    rule(9, "nnel", 3, "", true),
    rule(4, "ète", 3, "et", false),
    rule(8, "ique", 4, "", false),
    rule(8, "esse", 3, "", true),
    rule(7, "inage", 3, "", true),
    rule(9, "isation", 7, "", true),
    rule(9, "isateur", 7, "", true),
    rule(8, "ation", 5, "", true),
    rule(8, "ition", 5, "", true),
];

/// French: number, gender, derivation.
pub(super) fn french(word: &mut Vec<char>) {
    if word.len() > 5 && word.ends_with(&['x']) {
        word.pop();
        if let [.., before, 'a', last @ 'u'] = word.as_mut_slice()
            && *before != 'e'
        {
            *last = 'l';
        }
    }
    for plural in ['x', 's'] {
        if word.len() > 3 && word.ends_with(&[plural]) {
            word.pop();
        }
    }
    for rule in &FRENCH {
        if word.len() <= rule.over || !ends(word, rule.suffix) {
            continue;
        }
        swap(word, rule.off, rule.tail);
        match rule.suffix {
            "ement" if word.len() > 3 && ends(word, "ive") => swap(word, 2, "f"),
            "isation" if word.len() > 5 && ends(word, "ual") => swap(word, 2, "el"),
            _ => {}
        }
        if rule.last {
            break;
        }
    }
    french_letters(word);
}

/// Accents, doubled letters, and the last `r` and `e`.
fn french_letters(word: &mut Vec<char>) {
    use crate::analysis::tokenizer::class::is_letter;
    if word.len() > 4 {
        strip(word, |c| match c {
            'à' | 'á' | 'â' => 'a',
            'ô' => 'o',
            'è' | 'é' | 'ê' => 'e',
            'ù' | 'û' => 'u',
            'î' => 'i',
            'ç' => 'c',
            c => c,
        });
        word.dedup_by(|next, before| next == before && is_letter(*before));
    }
    if word.len() > 4 && ends(word, "ie") {
        swap(word, 2, "");
    }
    if word.len() > 4 {
        for c in ['r', 'e', 'e'] {
            if word.ends_with(&[c]) {
                word.pop();
            }
        }
        if let [.., before, last] = word.as_slice()
            && before == last
            && is_letter(*last)
        {
            word.pop();
        }
    }
}

/// French, plurals and gender only.
pub(super) fn french_minimal(word: &mut Vec<char>) {
    if word.len() < 6 {
        return;
    }
    if word.ends_with(&['x']) {
        if let [.., 'a', 'u', _] = word.as_slice() {
            swap(word, 2, "l");
        } else {
            word.pop();
        }
        return;
    }
    for c in ['s', 'r', 'e', 'é'] {
        if word.ends_with(&[c]) {
            word.pop();
        }
    }
    if let [.., before, last] = word.as_slice()
        && before == last
        && crate::analysis::tokenizer::class::is_letter(*last)
    {
        word.pop();
    }
}

const CZECH: [(usize, &[&str]); 4] = [
    (7, &["atech"]),
    (6, &["ětem", "etem", "atům"]),
    (
        5,
        &[
            "ech", "ich", "ích", "ého", "ěmi", "emi", "ému", "ěte", "ete", "ěti", "eti", "ího", "iho", "ími",
            "ímu", "imu", "ách", "ata", "aty", "ých", "ama", "ami", "ové", "ovi", "ými",
        ],
    ),
    (4, &["em", "es", "ém", "ím", "ům", "at", "ám", "os", "us", "ým", "mi", "ou"]),
];

/// Czech: case, possessives, and the consonants that change before them.
pub(super) fn czech(word: &mut Vec<char>) {
    let case = CZECH.iter().find_map(|(over, suffixes)| {
        let suffix = suffixes.iter().find(|suffix| word.len() > *over && ends(word, suffix))?;
        Some(suffix.chars().count())
    });
    match case {
        Some(count) => swap(word, count, ""),
        None if word.len() > 3
            && matches!(
                word.last(),
                Some('a' | 'e' | 'i' | 'o' | 'u' | 'ů' | 'y' | 'á' | 'é' | 'í' | 'ý' | 'ě')
            ) =>
        {
            word.pop();
        }
        None => {}
    }
    if word.len() > 5 && ["ov", "in", "ův"].iter().any(|suffix| ends(word, suffix)) {
        swap(word, 2, "");
    }
    match word.as_mut_slice() {
        [.., 'č', 't'] => swap(word, 2, "ck"),
        [.., 'š', 't'] => swap(word, 2, "sk"),
        [.., last @ ('c' | 'č')] => *last = 'k',
        [.., last @ ('z' | 'ž')] => *last = 'h',
        [.., 'e', _] => drop(word.remove(word.len() - 2)),
        [_, .., before @ 'ů', _] => *before = 'o',
        _ => {}
    }
}

/// English, plurals only (D. Harman, "How effective is suffixing?", 1991).
pub(super) fn english_minimal(word: &mut Vec<char>) {
    let length = word.len();
    match word.as_slice() {
        [.., 'u' | 's', 's'] => {}
        [.., before, 'i', 'e', 's'] if !matches!(before, 'a' | 'e') => swap(word, 3, "y"),
        [.., 'i' | 'a' | 'o' | 'e', 'e', 's'] => {}
        [.., 's'] if length >= 3 => swap(word, 1, ""),
        _ => {}
    }
}

/// Suffixes of Latvian, how many vowels a word must have more than, and whether the consonant before is
/// palatal for their sake.
const LATVIAN: [(&str, usize, bool); 38] = [
    ("ajiem", 3, false),
    ("ajai", 3, false),
    ("ajam", 2, false),
    ("ajām", 2, false),
    ("ajos", 2, false),
    ("ajās", 2, false),
    ("iem", 2, true),
    ("ajā", 2, false),
    ("ais", 2, false),
    ("ai", 2, false),
    ("ei", 2, false),
    ("ām", 1, false),
    ("am", 1, false),
    ("ēm", 1, false),
    ("īm", 1, false),
    ("im", 1, false),
    ("um", 1, false),
    ("us", 1, true),
    ("as", 1, false),
    ("ās", 1, false),
    ("es", 1, false),
    ("os", 1, true),
    ("ij", 1, false),
    ("īs", 1, false),
    ("ēs", 1, false),
    ("is", 1, false),
    ("ie", 1, false),
    ("u", 1, true),
    ("a", 1, true),
    ("i", 1, true),
    ("e", 1, false),
    ("ā", 1, false),
    ("ē", 1, false),
    ("ī", 1, false),
    ("ū", 1, false),
    ("o", 1, false),
    ("s", 0, false),
    ("š", 0, false),
];

/// Latvian: the inflection of nouns and adjectives (K. Kreslins, "A stemming algorithm for Latvian",
/// 1996).
pub(super) fn latvian(word: &mut Vec<char>) {
    let is_vowel = |c: &&char| matches!(c, 'a' | 'e' | 'i' | 'o' | 'u' | 'ā' | 'ī' | 'ē' | 'ū');
    let vowels = word.iter().filter(is_vowel).count();
    let found = LATVIAN.iter().find(|(suffix, over, _)| {
        vowels > *over && word.len() >= suffix.chars().count() + 3 && ends(word, suffix)
    });
    let Some((suffix, _, palatal)) = found else { return };
    swap(word, suffix.chars().count(), "");
    if !palatal {
        return;
    }
    match word.as_slice() {
        [.., 'k', 'š'] if suffix.starts_with('u') => swap(word, 1, "st"),
        [.., 'ņ', 'ņ'] if suffix.starts_with('u') => swap(word, 2, "nn"),
        [.., 'p' | 'b' | 'm' | 'v', 'j'] => swap(word, 1, ""),
        [.., 'š', 'ņ'] => swap(word, 2, "sn"),
        [.., 'ž', 'ņ'] => swap(word, 2, "zn"),
        [.., 'š', 'ļ'] => swap(word, 2, "sl"),
        [.., 'ž', 'ļ'] => swap(word, 2, "zl"),
        [.., 'ļ', 'ņ'] => swap(word, 2, "ln"),
        [.., 'ļ', 'ļ'] => swap(word, 2, "ll"),
        [.., 'č'] => swap(word, 1, "c"),
        [.., 'ļ'] => swap(word, 1, "l"),
        [.., 'ņ'] => swap(word, 1, "n"),
        _ => {}
    }
}
