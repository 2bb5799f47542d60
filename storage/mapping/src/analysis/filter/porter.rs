//! The `porter_stem` filter: M. F. Porter, "An algorithm for suffix stripping", Program 14(3), 1980,
//! with the two later changes of its author that Lucene has (`-bli` to `-ble`, `-logi` to `-log`).
//!
//! This is not the later "Porter 2" (Snowball English): the two cut different words differently,
//! and queries must cut as the index was cut.

use super::{Filter, Stage, each};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct PorterStem;

impl Filter for PorterStem {
    fn stage<'a>(&'a self, next: Box<dyn Stage + 'a>) -> Box<dyn Stage + 'a> {
        each(
            |token| {
                if !token.keyword {
                    stem(&mut token.text);
                }
                true
            },
            next,
        )
    }

    fn reports_keywords(&self) -> bool {
        true
    }
}

/// Stems a lower-case word in place. Letters outside ASCII are consonants, each by its UTF-16 code units.
pub(crate) fn stem(word: &mut String) {
    if word.is_ascii() {
        if word.len() > 2 {
            let stemmed = stemmed(std::mem::take(word).into_bytes());
            *word = String::from_utf8(stemmed).expect("stemming ASCII leaves ASCII");
        }
        return;
    }
    let units: Vec<u16> = word.encode_utf16().collect();
    if units.len() > 2 {
        *word = String::from_utf16_lossy(&stemmed(units));
    }
}

/// Stems a word of at least three code units.
fn stemmed<U: Unit>(word: Vec<U>) -> Vec<U> {
    let mut stemmer = Stemmer { word };
    stemmer.step_1a();
    stemmer.step_1b();
    stemmer.step_1c();
    stemmer.replace_first(&STEP_2, 0);
    stemmer.replace_first(&STEP_3, 0);
    stemmer.step_4();
    stemmer.step_5();
    stemmer.word
}

/// A code unit of a word: a byte where all are ASCII, else one of UTF-16.
trait Unit: Copy + Eq + From<u8> {
    /// The unit as a byte; 0 where it is none.
    fn byte(self) -> u8;
}

impl Unit for u8 {
    fn byte(self) -> u8 {
        self
    }
}

impl Unit for u16 {
    fn byte(self) -> u8 {
        u8::try_from(self).unwrap_or(0)
    }
}

/// Steps 2 and 3: the first suffix that fits decides, whether or not its stem is long enough.
const STEP_2: [(&str, &str); 21] = [
    ("ational", "ate"),
    ("tional", "tion"),
    ("enci", "ence"),
    ("anci", "ance"),
    ("izer", "ize"),
    ("bli", "ble"),
    ("alli", "al"),
    ("entli", "ent"),
    ("eli", "e"),
    ("ousli", "ous"),
    ("ization", "ize"),
    ("ation", "ate"),
    ("ator", "ate"),
    ("alism", "al"),
    ("iveness", "ive"),
    ("fulness", "ful"),
    ("ousness", "ous"),
    ("aliti", "al"),
    ("iviti", "ive"),
    ("biliti", "ble"),
    ("logi", "log"),
];

const STEP_3: [(&str, &str); 7] = [
    ("icate", "ic"),
    ("ative", ""),
    ("alize", "al"),
    ("iciti", "ic"),
    ("ical", "ic"),
    ("ful", ""),
    ("ness", ""),
];

const STEP_4: [&str; 19] = [
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism",
    "ate", "iti", "ous", "ive", "ize",
];

struct Stemmer<U> {
    word: Vec<U>,
}

impl<U: Unit> Stemmer<U> {
    fn byte(&self, at: usize) -> u8 {
        self.word[at].byte()
    }

    fn is_consonant(&self, at: usize) -> bool {
        match self.byte(at) {
            b'a' | b'e' | b'i' | b'o' | b'u' => false,
            // A `y` behind a consonant is a vowel; a run of them alternates.
            b'y' => {
                let run = self.word[..at].iter().rev().take_while(|c| c.byte() == b'y').count();
                let first_of_run = at == run || !self.is_consonant(at - run - 1);
                first_of_run == run.is_multiple_of(2)
            }
            _ => true,
        }
    }

    /// Tells of each of the first `end` letters whether it is a consonant.
    fn consonants(&self, end: usize) -> impl Iterator<Item = bool> {
        let letters = self.word[..end].iter();
        letters.scan(false, |before, letter| {
            *before = match letter.byte() {
                b'a' | b'e' | b'i' | b'o' | b'u' => false,
                b'y' => !*before,
                _ => true,
            };
            Some(*before)
        })
    }

    /// Counts vowel-consonant sequences in the first `end` letters.
    fn measure(&self, end: usize) -> usize {
        let mut vowel = false;
        self.consonants(end)
            .filter(|&consonant| std::mem::replace(&mut vowel, !consonant) && consonant)
            .count()
    }

    fn has_vowel(&self, end: usize) -> bool {
        self.consonants(end).any(|consonant| !consonant)
    }

    fn ends_in_double_consonant(&self) -> bool {
        let n = self.word.len();
        n >= 2 && self.word[n - 1] == self.word[n - 2] && self.is_consonant(n - 1)
    }

    /// Consonant, vowel, consonant other than w, x, y at the end of the first `end` letters.
    fn ends_in_cvc(&self, end: usize) -> bool {
        end >= 3
            && self.is_consonant(end - 1)
            && !self.is_consonant(end - 2)
            && self.is_consonant(end - 3)
            && !matches!(self.byte(end - 1), b'w' | b'x' | b'y')
    }

    fn ends_with(&self, suffix: &str) -> bool {
        self.before(suffix).is_some()
    }

    /// Returns the length before `suffix`, where the word ends in it.
    fn before(&self, suffix: &str) -> Option<usize> {
        let at = self.word.len().checked_sub(suffix.len())?;
        self.word[at..].iter().zip(suffix.bytes()).all(|(unit, byte)| *unit == U::from(byte)).then_some(at)
    }

    fn replace_from(&mut self, at: usize, with: &str) {
        self.word.truncate(at);
        self.word.extend(with.bytes().map(U::from));
    }

    /// Plurals.
    fn step_1a(&mut self) {
        if !self.ends_with("s") {
            return;
        }
        if let Some(at) = self.before("sses").or(self.before("ies")) {
            let keep = if self.ends_with("sses") { 2 } else { 1 };
            self.word.truncate(at + keep);
        } else if !self.ends_with("ss") {
            self.word.pop();
        }
    }

    /// `-ed` and `-ing`.
    fn step_1b(&mut self) {
        if let Some(at) = self.before("eed") {
            if self.measure(at) > 0 {
                self.word.pop();
            }
            return;
        }
        let Some(at) = self.before("ed").or(self.before("ing")).filter(|&at| self.has_vowel(at)) else {
            return;
        };
        self.word.truncate(at);
        if self.ends_with("at") || self.ends_with("bl") || self.ends_with("iz") {
            self.word.push(U::from(b'e'));
        } else if self.ends_in_double_consonant() {
            if !matches!(self.word.last().map(|unit| unit.byte()), Some(b'l' | b's' | b'z')) {
                self.word.pop();
            }
        } else if self.measure(self.word.len()) == 1 && self.ends_in_cvc(self.word.len()) {
            self.word.push(U::from(b'e'));
        }
    }

    /// A final `y` becomes `i` behind another vowel.
    fn step_1c(&mut self) {
        if let Some(at) = self.before("y").filter(|&at| self.has_vowel(at)) {
            self.replace_from(at, "i");
        }
    }

    fn replace_first(&mut self, rules: &[(&str, &str)], above: usize) {
        let found = rules.iter().find_map(|(suffix, with)| Some((self.before(suffix)?, *with)));
        if let Some((at, with)) = found
            && self.measure(at) > above
        {
            self.replace_from(at, with);
        }
    }

    fn step_4(&mut self) {
        let found = STEP_4.iter().find_map(|suffix| {
            let at = self.before(suffix)?;
            let fits = *suffix != "ion" || (at > 0 && matches!(self.byte(at - 1), b's' | b't'));
            fits.then_some(at)
        });
        if let Some(at) = found
            && self.measure(at) > 1
        {
            self.word.truncate(at);
        }
    }

    fn step_5(&mut self) {
        if let Some(at) = self.before("e") {
            let measure = self.measure(at);
            if measure > 1 || (measure == 1 && !self.ends_in_cvc(at)) {
                self.word.pop();
            }
        }
        if self.ends_with("ll") && self.measure(self.word.len()) > 1 {
            self.word.pop();
        }
    }
}
