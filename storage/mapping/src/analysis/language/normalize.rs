//! The normalization of letters: German, Arabic, Persian, Sorani, Serbian, Hindi and Bengali.

use unicode_properties::{GeneralCategory, UnicodeGeneralCategory};

/// German: umlauts and what is written for them (`ae`, `oe`, `ue`) become vowels, ß becomes ss.
pub(super) fn german(word: &mut Vec<char>) {
    /// Letters before an `e`, which decide about it.
    #[derive(PartialEq)]
    enum PrecedingLetters {
        Other,
        /// A vowel or `q`: a `u` that follows makes no umlaut.
        Vowel,
        /// A vowel that an `e` makes an umlaut.
        Umlaut,
    }
    let mut after = PrecedingLetters::Other;
    let mut out = Vec::with_capacity(word.len() + 1);
    for &c in word.iter() {
        after = match c {
            'e' if after == PrecedingLetters::Umlaut => {
                after = PrecedingLetters::Vowel;
                continue;
            }
            'a' | 'o' => PrecedingLetters::Umlaut,
            'u' if after == PrecedingLetters::Other => PrecedingLetters::Umlaut,
            'e' | 'i' | 'q' | 'u' | 'y' | 'ä' | 'ö' | 'ü' => PrecedingLetters::Vowel,
            _ => PrecedingLetters::Other,
        };
        match c {
            'ä' => out.push('a'),
            'ö' => out.push('o'),
            'ü' => out.push('u'),
            'ß' => out.extend(['s', 's']),
            c => out.push(c),
        }
    }
    *word = out;
}

/// Replaces or drops each character.
fn map(word: &mut Vec<char>, map: impl Fn(char) -> Option<char>) {
    *word = word.iter().filter_map(|&c| map(c)).collect();
}

/// Arabic: the forms of alef, yeh and heh; vowel marks and the tatweel vanish.
pub(super) fn arabic(word: &mut Vec<char>) {
    map(word, |c| match c {
        '\u{622}' | '\u{623}' | '\u{625}' => Some('\u{627}'),
        '\u{649}' => Some('\u{64a}'),
        '\u{629}' => Some('\u{647}'),
        '\u{640}' | '\u{64b}'..='\u{652}' => None,
        c => Some(c),
    });
}

/// Persian: the forms of yeh, kaf and heh.
pub(super) fn persian(word: &mut Vec<char>) {
    map(word, |c| match c {
        '\u{6cc}' | '\u{6d2}' => Some('\u{64a}'),
        '\u{6a9}' => Some('\u{643}'),
        '\u{6c0}' | '\u{6c1}' => Some('\u{647}'),
        '\u{654}' => None,
        c => Some(c),
    });
}

/// Sorani: the forms of yeh, kaf, heh and reh; vowel marks and format characters vanish.
pub(super) fn sorani(word: &mut Vec<char>) {
    let mut out: Vec<char> = Vec::with_capacity(word.len());
    for (at, &c) in word.iter().enumerate() {
        match c {
            '\u{64a}' | '\u{649}' => out.push('\u{6cc}'),
            '\u{643}' => out.push('\u{6a9}'),
            '\u{200c}' => {
                if let Some(before @ '\u{647}') = out.last_mut() {
                    *before = '\u{6d5}';
                }
            }
            '\u{647}' if at + 1 == word.len() => out.push('\u{6d5}'),
            '\u{629}' => out.push('\u{6d5}'),
            '\u{6be}' => out.push('\u{647}'),
            '\u{631}' if out.is_empty() => out.push('\u{695}'),
            '\u{692}' => out.push('\u{695}'),
            '\u{640}' | '\u{64b}'..='\u{652}' => {}
            // Lucene looks at code units: the format characters beyond U+FFFF stay.
            c if c <= '\u{ffff}' && c.general_category() == GeneralCategory::Format => {}
            c => out.push(c),
        }
    }
    *word = out;
}

/// Serbian: Cyrillic and Latin letters become Latin ones without marks.
pub(super) fn serbian(word: &mut Vec<char>) {
    const CYRILLIC: &str = "абвгдежзијклмнопрстћуфхцчш";
    const LATIN: &str = "abvgdezzijklmnoprstcufhccs";
    let mut out = Vec::with_capacity(word.len() + 2);
    for &c in word.iter() {
        match c {
            'ђ' | 'đ' => out.extend(['d', 'j']),
            'љ' => out.extend(['l', 'j']),
            'њ' => out.extend(['n', 'j']),
            'џ' => out.extend(['d', 'z']),
            'č' | 'ć' => out.push('c'),
            'ž' => out.push('z'),
            'š' => out.push('s'),
            c => match CYRILLIC.chars().position(|cyrillic| cyrillic == c) {
                Some(at) => out.push(char::from(LATIN.as_bytes()[at])),
                None => out.push(c),
            },
        }
    }
    *word = out;
}

/// Hindi: vowels are short, nasals are one, nukta, virama and joiners vanish.
pub(super) fn hindi(word: &mut Vec<char>) {
    let mut out = Vec::with_capacity(word.len());
    let mut characters = word.iter().copied().peekable();
    while let Some(c) = characters.next() {
        out.push(match c {
            '\u{928}' if characters.peek() == Some(&'\u{94d}') => {
                characters.next();
                '\u{902}'
            }
            '\u{901}' => '\u{902}',
            '\u{93c}' | '\u{200c}' | '\u{200d}' | '\u{94d}' => continue,
            '\u{929}' => '\u{928}',
            '\u{931}' => '\u{930}',
            '\u{934}' => '\u{933}',
            '\u{958}' => '\u{915}',
            '\u{959}' => '\u{916}',
            '\u{95a}' => '\u{917}',
            '\u{95b}' => '\u{91c}',
            '\u{95c}' => '\u{921}',
            '\u{95d}' => '\u{922}',
            '\u{95e}' => '\u{92b}',
            '\u{95f}' => '\u{92f}',
            '\u{945}' | '\u{946}' | '\u{948}' => '\u{947}',
            '\u{949}' | '\u{94a}' | '\u{94c}' => '\u{94b}',
            '\u{90d}' | '\u{90e}' | '\u{910}' => '\u{90f}',
            '\u{911}' | '\u{912}' | '\u{914}' => '\u{913}',
            '\u{972}' | '\u{906}' => '\u{905}',
            '\u{908}' => '\u{907}',
            '\u{90a}' => '\u{909}',
            '\u{960}' => '\u{90b}',
            '\u{961}' => '\u{90c}',
            '\u{940}' => '\u{93f}',
            '\u{942}' => '\u{941}',
            '\u{944}' => '\u{943}',
            '\u{963}' => '\u{962}',
            c => c,
        });
    }
    *word = out;
}

/// Bengali: N. UzZaman and M. Khan, "A Double Metaphone Encoding for Bangla", 2004.
pub(super) fn bengali(word: &mut Vec<char>) {
    const HOSHONTO: char = '\u{9cd}';
    let mut at = 0;
    while at < word.len() {
        // Most letters go on with the next; what is removed says where.
        let mut next = at + 1;
        match word[at] {
            '\u{981}' => {
                word.remove(at);
                next = at;
            }
            '\u{9c0}' => word[at] = '\u{9bf}',
            '\u{9c2}' => word[at] = '\u{9c1}',
            '\u{995}' if word.get(at + 1) == Some(&HOSHONTO) && word.get(at + 2) == Some(&'\u{9bf}') => {
                if at == 0 {
                    word[at] = '\u{996}';
                    word.drain(at + 1..at + 3);
                } else {
                    word[at + 1] = '\u{996}';
                    word.remove(at + 2);
                }
            }
            '\u{999}' => word[at] = '\u{982}',
            '\u{9af}' if at == 2 && word[1] == HOSHONTO => {
                word[1] = '\u{9c7}';
                if word.get(at + 1) == Some(&'\u{9be}') {
                    word.remove(at + 1);
                }
                word.remove(at);
                next = at;
            }
            '\u{9af}' if at >= 1 && word[at - 1] == HOSHONTO => {
                word.drain(at - 1..=at);
                next = at - 1;
            }
            '\u{9ac}' if at >= 1 && word[at - 1] == HOSHONTO => {
                if at == 2 || (at >= 5 && word[at - 3] == HOSHONTO) {
                    word.drain(at - 1..=at);
                    next = at - 1;
                } else if at >= 2 {
                    word[at - 1] = word[at - 2];
                    word.remove(at);
                    next = at;
                }
            }
            '\u{983}' if at + 1 == word.len() => {
                if word.len() <= 3 {
                    word[at] = '\u{9b9}';
                } else {
                    word.remove(at);
                }
            }
            '\u{983}' => word[at] = word[at + 1],
            '\u{9b6}' | '\u{9b7}' => word[at] = '\u{9b8}',
            '\u{9a3}' => word[at] = '\u{9a8}',
            '\u{9dc}' | '\u{9dd}' => word[at] = '\u{9b0}',
            '\u{9ce}' => word[at] = '\u{9a4}',
            _ => {}
        }
        at = next;
    }
}
