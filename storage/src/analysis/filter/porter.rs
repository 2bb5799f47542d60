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

/// Longest word stemmed: no English word comes near, and the rules take quadratic time on runs of `y`.
const MAX_WORD_BYTES: usize = 512;

/// Stems a lower-case word in place; a word with other letters than ASCII stays, as no rule of the
/// algorithm speaks of them.
pub(crate) fn stem(word: &mut String) {
    if word.len() <= 2 || word.len() > MAX_WORD_BYTES || !word.is_ascii() {
        return;
    }
    let mut stemmer = Stemmer { word: std::mem::take(word).into_bytes() };
    stemmer.step_1a();
    stemmer.step_1b();
    stemmer.step_1c();
    stemmer.replace_first(&STEP_2, 0);
    stemmer.replace_first(&STEP_3, 0);
    stemmer.step_4();
    stemmer.step_5();
    *word = String::from_utf8(stemmer.word).expect("stemming ASCII leaves ASCII");
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

struct Stemmer {
    word: Vec<u8>,
}

impl Stemmer {
    fn is_consonant(&self, at: usize) -> bool {
        match self.word[at] {
            b'a' | b'e' | b'i' | b'o' | b'u' => false,
            // A `y` behind a consonant is a vowel; a run of them alternates.
            b'y' => {
                let run = self.word[..at].iter().rev().take_while(|&&c| c == b'y').count();
                let first_of_run = at == run || !self.is_consonant(at - run - 1);
                first_of_run == run.is_multiple_of(2)
            }
            _ => true,
        }
    }

    /// Counts vowel-consonant sequences in the first `end` letters.
    fn measure(&self, end: usize) -> usize {
        (1..end).filter(|&at| self.is_consonant(at) && !self.is_consonant(at - 1)).count()
    }

    fn has_vowel(&self, end: usize) -> bool {
        (0..end).any(|at| !self.is_consonant(at))
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
            && !matches!(self.word[end - 1], b'w' | b'x' | b'y')
    }

    /// Returns the length before `suffix`, where the word ends in it.
    fn before(&self, suffix: &str) -> Option<usize> {
        self.word.ends_with(suffix.as_bytes()).then(|| self.word.len() - suffix.len())
    }

    fn replace_from(&mut self, at: usize, with: &str) {
        self.word.truncate(at);
        self.word.extend_from_slice(with.as_bytes());
    }

    /// Plurals.
    fn step_1a(&mut self) {
        if self.word.last() != Some(&b's') {
            return;
        }
        if let Some(at) = self.before("sses").or(self.before("ies")) {
            let keep = if self.word.ends_with(b"sses") { 2 } else { 1 };
            self.word.truncate(at + keep);
        } else if !self.word.ends_with(b"ss") {
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
        if self.word.ends_with(b"at") || self.word.ends_with(b"bl") || self.word.ends_with(b"iz") {
            self.word.push(b'e');
        } else if self.ends_in_double_consonant() {
            if !matches!(self.word.last(), Some(b'l' | b's' | b'z')) {
                self.word.pop();
            }
        } else if self.measure(self.word.len()) == 1 && self.ends_in_cvc(self.word.len()) {
            self.word.push(b'e');
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
            let fits = *suffix != "ion" || (at > 0 && matches!(self.word[at - 1], b's' | b't'));
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
        if self.word.ends_with(b"ll") && self.measure(self.word.len()) > 1 {
            self.word.pop();
        }
    }
}
