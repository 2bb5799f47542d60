//! KStem: English words to words that a lexicon has (R. Krovetz, "Viewing morphology as an inference
//! process", 1993), as Lucene has it.
//!
//! Each routine takes one kind of ending off in several ways and ends with the first that makes a word of the
//! lexicon. Where none does, most endings stay; what the routines then leave is the stem. Algorithm and
//! lexicon are those of the Center for Intelligent Information Retrieval, University of Massachusetts
//! Amherst (`kstem/LICENSE`).
//!
//! The lexicon holds words; a word with `!` is one that an ending `e` would wrongly be added for; a word
//! with `=` stands for another.

use std::sync::LazyLock;

use hashbrown::HashMap;

/// Longest word that is stemmed.
const MAX_LENGTH: usize = 49;

#[derive(Clone, Copy, Debug)]
enum Entry {
    Word,
    Exception,
    Root(&'static str),
}

static LEXICON: LazyLock<HashMap<&'static [u8], Entry>> = LazyLock::new(|| {
    let words = include_str!("kstem/lexicon.txt").split_ascii_whitespace();
    words
        .map(|word| match word.split_once('=') {
            Some((word, root)) => (word.as_bytes(), Entry::Root(root)),
            None => match word.strip_suffix('!') {
                Some(word) => (word.as_bytes(), Entry::Exception),
                None => (word.as_bytes(), Entry::Word),
            },
        })
        .collect()
});

/// Stems a word; those with other characters than `a` to `z` stay.
pub(super) fn stem(word: &mut Vec<char>) {
    if !(3..=MAX_LENGTH).contains(&word.len()) || !word.iter().all(char::is_ascii_lowercase) {
        return;
    }
    let letters: Vec<u8> = word.iter().filter_map(|c| u8::try_from(*c).ok()).collect();
    let stem = match LEXICON.get(letters.as_slice()) {
        Some(Entry::Root(root)) => root.as_bytes().to_vec(),
        Some(_) => return,
        None => {
            let mut word = Word { letters, found: None };
            word.stem();
            match word.found {
                Some(Entry::Root(root)) => root.as_bytes().to_vec(),
                _ => word.letters,
            }
        }
    };
    word.clear();
    word.extend(stem.into_iter().map(char::from));
}

/// A word that loses its endings.
struct Word {
    letters: Vec<u8>,
    /// Entry of the lexicon for it, where the last lookup found one.
    found: Option<Entry>,
}

impl Word {
    fn stem(&mut self) {
        let routines: [fn(&mut Self); 9] = [
            Self::plural,
            Self::past_tense,
            Self::aspect,
            Self::ity,
            Self::ness,
            Self::ion,
            Self::er_and_or,
            Self::ly,
            Self::al,
        ];
        if routines.iter().any(|routine| self.finds(*routine)) {
            return;
        }
        if let Some(entry @ (Entry::Word | Entry::Root(_))) = self.entry() {
            self.found = Some(entry);
        }
        let routines: [fn(&mut Self); 8] =
            [Self::ive, Self::ize, Self::ment, Self::ble, Self::ism, Self::ic, Self::ncy, Self::nce];
        for routine in routines {
            if self.finds(routine) {
                return;
            }
        }
    }

    fn finds(&mut self, routine: fn(&mut Self)) -> bool {
        routine(self);
        self.found.is_some()
    }

    fn entry(&self) -> Option<Entry> {
        LEXICON.get(self.letters.as_slice()).copied()
    }

    fn look_up(&mut self) -> bool {
        self.found = self.entry();
        self.found.is_some()
    }

    /// Keeps the first letters, with a suffix behind them.
    fn put(&mut self, keep: usize, suffix: &str) {
        self.letters.truncate(keep);
        self.letters.extend_from_slice(suffix.as_bytes());
    }

    /// As [`Word::put`]; whether that makes a word of the lexicon.
    fn makes(&mut self, keep: usize, suffix: &str) -> bool {
        self.put(keep, suffix);
        self.look_up()
    }

    /// Returns the letters before a suffix, of which there is at least one.
    fn before(&self, suffix: &str) -> Option<usize> {
        let stem = self.letters.strip_suffix(suffix.as_bytes())?;
        (!stem.is_empty()).then_some(stem.len())
    }

    fn letter(&self, at: usize) -> Option<u8> {
        self.letters.get(at).copied()
    }

    /// Returns whether the first `stem` letters end in a text.
    fn stem_ends(&self, stem: usize, text: &[u8]) -> bool {
        self.letters.get(..stem).is_some_and(|stem| stem.ends_with(text))
    }

    fn is_consonant(&self, at: usize) -> bool {
        // A `y` is one at the start and behind a vowel: `yy…` alternates.
        let mut odd = false;
        for at in (0..=at).rev() {
            match self.letter(at) {
                Some(b'a' | b'e' | b'i' | b'o' | b'u') => return odd,
                Some(b'y') if at > 0 => odd = !odd,
                _ => return !odd,
            }
        }
        true
    }

    /// Returns whether the first letters hold a vowel.
    fn has_vowel(&self, stem: usize) -> bool {
        (0..stem).any(|at| !self.is_consonant(at))
    }

    /// Returns whether the first letters end in a consonant twice.
    fn is_doubled(&self, stem: usize) -> bool {
        stem > 1 && self.letter(stem - 1) == self.letter(stem - 2) && self.is_consonant(stem - 1)
    }

    fn last_of(&self, stem: usize) -> String {
        stem.checked_sub(1).and_then(|at| self.letter(at)).map(char::from).into_iter().collect()
    }

    /// Returns whether a stem that ends in a consonant twice is a word with one of them; both stay where it is not.
    fn makes_undoubled(&mut self, stem: usize) -> bool {
        if !self.is_doubled(stem) {
            return false;
        }
        let doubled = self.last_of(stem);
        if self.makes(stem - 1, "") {
            return true;
        }
        self.put(stem - 1, &doubled);
        false
    }

    /// Takes an ending that a verb has off its stem: as a word with `e`, as one without, or, where its last consonant is there
    /// twice, with one of them, if that is a word. `false` where the stem is none of these, and what it ends in is open.
    fn makes_bare(&mut self, stem: usize) -> bool {
        self.put(stem, "e");
        if let Some(entry @ (Entry::Word | Entry::Root(_))) = self.entry() {
            self.found = Some(entry);
            return true;
        }
        if self.makes(stem, "") {
            return true;
        }
        if !self.is_doubled(stem) {
            return false;
        }
        let doubled = self.last_of(stem);
        if !self.makes(stem - 1, "") {
            self.makes(stem, &doubled);
        }
        true
    }

    /// `-s`, `-es`, `-ies`.
    fn plural(&mut self) {
        if let Some(stem) = self.before("ies") {
            // calories, calorie
            if !self.makes(stem, "ie") {
                self.makes(stem, "y");
            }
        } else if let Some(stem) = self.before("es") {
            // Crosses are not of a crosse.
            let with_e = stem > 1 && !self.stem_ends(stem, b"ss");
            if (with_e && self.makes(stem, "e")) || self.makes(stem, "") {
                return;
            }
            self.put(stem, "e");
            if !with_e {
                self.look_up();
            }
        } else if self.letters.len() > 3
            && self.letters.ends_with(b"s")
            && !self.letters.ends_with(b"ss")
            && self.before("ous").is_none()
        {
            self.makes(self.letters.len() - 1, "");
        }
    }

    /// `-ed`, `-ied`.
    fn past_tense(&mut self) {
        if self.letters.len() <= 4 {
            return;
        }
        if let Some(stem) = self.before("ied") {
            if !self.makes(stem, "ie") {
                self.makes(stem, "y");
            }
            return;
        }
        // Without a vowel it is an acronym.
        let Some(stem) = self.before("ed").filter(|stem| self.has_vowel(*stem)) else { return };
        if !self.makes_bare(stem) {
            let ending = if self.letters.starts_with(b"un") { "ed" } else { "e" };
            self.put(stem, ending);
        }
    }

    /// `-ing`.
    fn aspect(&mut self) {
        if self.letters.len() <= 5 {
            return;
        }
        let Some(stem) = self.before("ing").filter(|stem| self.has_vowel(*stem)) else { return };
        if !self.makes_bare(stem) {
            let cluster = stem > 1 && self.is_consonant(stem - 1) && self.is_consonant(stem - 2);
            self.put(stem, if cluster { "" } else { "e" });
        }
    }

    fn ity(&mut self) {
        let Some(stem) = self.before("ity") else { return };
        if self.makes(stem, "") || self.makes(stem, "e") {
            return;
        }
        self.put(stem, "");
        if self.stem_ends(stem, b"il") {
            self.makes(stem - 2, "le");
        } else if self.stem_ends(stem, b"iv") {
            self.makes(stem, "e");
        } else if self.stem_ends(stem, b"al") {
            self.look_up();
        } else if !self.makes(stem, "ity") {
            self.put(stem, "");
        }
    }

    fn ness(&mut self) {
        let Some(stem) = self.before("ness") else { return };
        match self.stem_ends(stem, b"i") {
            true => self.makes(stem - 1, "y"),
            false => self.makes(stem, ""),
        };
    }

    /// `-ion`, `-ition`, `-ation`, `-ization`, `-ication`.
    fn ion(&mut self) {
        let Some(end) = self.before("ion") else { return };
        if let Some(stem) = self.before("ization") {
            self.makes(stem, "ize");
            return;
        }
        if let Some(stem) = self.before("ition") {
            if self.makes(stem, "e") {
                return;
            }
            self.put(stem, "ition");
        } else if let Some(stem) = self.before("ation") {
            if self.makes(stem, "ate") || self.makes(stem, "e") || self.makes(stem, "") {
                return;
            }
            self.put(stem, "ation");
        }
        if let Some(stem) = self.before("ication") {
            if self.makes(stem, "y") {
                return;
            }
            self.put(stem, "ication");
        }
        if !self.makes(end, "e") && !self.makes(end, "") {
            self.put(end, "ion");
        }
    }

    /// `-er`, `-or`, `-ier`, `-eer`, `-izer`.
    fn er_and_or(&mut self) {
        if let Some(stem) = self.before("izer") {
            self.makes(stem, "ize");
            return;
        }
        let Some(stem) = self.before("er").or_else(|| self.before("or")) else { return };
        let vowel = if self.letter(stem) == Some(b'o') { "o" } else { "e" };
        let mut ending = vowel;
        if self.makes_undoubled(stem) {
            return;
        }
        if self.stem_ends(stem, b"i") {
            if self.makes(stem - 1, "y") {
                return;
            }
            self.put(stem - 1, "i");
            ending = "e";
        }
        if self.stem_ends(stem, b"e") {
            if self.makes(stem - 1, "") {
                return;
            }
            self.put(stem - 1, "e");
        }
        if self.makes(stem, ending) || self.makes(stem, "") || self.makes(stem, "e") {
            return;
        }
        self.put(stem, vowel);
        self.letters.push(b'r');
    }

    fn ly(&mut self) {
        let Some(stem) = self.before("ly") else { return };
        if self.makes(stem, "le") || self.makes(stem, "") {
            return;
        }
        // The next routine takes `-al` off.
        if self.stem_ends(stem, b"al") {
            return;
        }
        if self.stem_ends(stem, b"ab") {
            self.put(stem, "le");
            return;
        }
        if self.stem_ends(stem, b"i") {
            if self.makes(stem - 1, "y") {
                return;
            }
            self.put(stem - 1, "i");
        }
        self.put(stem, "");
    }

    fn al(&mut self) {
        if self.letters.len() < 4 {
            return;
        }
        let Some(stem) = self.before("al") else { return };
        if self.makes(stem, "") {
            return;
        }
        if self.makes_undoubled(stem) {
            return;
        }
        if self.makes(stem, "e") || self.makes(stem, "um") {
            return;
        }
        self.put(stem, "al");
        if self.stem_ends(stem, b"ic") {
            if !self.makes(stem - 2, "") && !self.makes(stem - 2, "y") {
                self.makes(stem - 2, "ic");
            }
        } else if self.stem_ends(stem, b"i") && !self.makes(stem - 1, "") {
            self.makes(stem - 1, "ial");
        }
    }

    fn ive(&mut self) {
        let Some(stem) = self.before("ive") else { return };
        if self.makes(stem, "") || self.makes(stem, "e") {
            return;
        }
        if self.stem_ends(stem, b"at") {
            if self.makes(stem - 2, "e") || self.makes(stem - 2, "") {
                return;
            }
            self.put(stem - 2, "at");
        }
        if !self.makes(stem, "ion") {
            self.put(stem, "ive");
        }
    }

    fn ize(&mut self) {
        let Some(stem) = self.before("ize") else { return };
        if self.makes(stem, "") {
            return;
        }
        if self.makes_undoubled(stem) {
            return;
        }
        if !self.makes(stem, "e") {
            self.put(stem, "ize");
        }
    }

    fn ment(&mut self) {
        let Some(stem) = self.before("ment") else { return };
        if !self.makes(stem, "") {
            self.put(stem, "ment");
        }
    }

    /// `-able`, `-ible`.
    fn ble(&mut self) {
        let ending = match self.letters.as_slice() {
            [.., b'a', b'b', b'l', b'e'] => "able",
            [.., b'i', b'b', b'l', b'e'] => "ible",
            _ => return,
        };
        let stem = self.letters.len() - ending.len();
        if self.makes(stem, "") {
            return;
        }
        if self.makes_undoubled(stem) {
            return;
        }
        if !self.makes(stem, "e") && !self.makes(stem, "ate") {
            self.put(stem, ending);
        }
    }

    fn ism(&mut self) {
        if let Some(stem) = self.before("ism") {
            self.makes(stem, "");
        }
    }

    /// `-ic`, the one ending that may grow.
    fn ic(&mut self) {
        let Some(stem) = self.before("ic") else { return };
        if !self.makes(stem, "ical")
            && !self.makes(stem, "y")
            && !self.makes(stem, "e")
            && !self.makes(stem, "")
        {
            self.put(stem, "ic");
        }
    }

    /// `-ancy`, `-ency`.
    fn ncy(&mut self) {
        let Some(stem) = self.before("ncy") else { return };
        if matches!(self.letter(stem - 1), Some(b'a' | b'e')) && !self.makes(stem, "nt") {
            self.makes(stem, "nce");
        }
    }

    /// `-ance`, `-ence`.
    fn nce(&mut self) {
        let Some(vowel_end) = self.before("nce") else { return };
        let vowel = match self.letter(vowel_end - 1) {
            Some(b'a') => "ance",
            Some(b'e') => "ence",
            _ => return,
        };
        let stem = vowel_end - 1;
        if !self.makes(stem, "e") && !self.makes(stem, "") {
            self.put(stem, vowel);
        }
    }
}
