//! The stemmer for Indonesian: F. Z. Tala, "A Study of Stemming Effects on Information Retrieval in
//! Bahasa Indonesia", 2003, in the form that Lucene gives it.

use super::light::{ends, swap};

/// Prefixes that decide which suffixes may follow.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Prefix {
    Ke,
    Peng,
    Di,
    Meng,
    Ter,
    Ber,
    Pe,
}

struct Stemmer<'a> {
    word: &'a mut Vec<char>,
    syllables: usize,
    removed: Vec<Prefix>,
}

fn is_vowel(c: char) -> bool {
    matches!(c, 'a' | 'e' | 'i' | 'o' | 'u')
}

pub(super) fn stem(word: &mut Vec<char>) {
    let syllables = word.iter().filter(|&&c| is_vowel(c)).count();
    let mut stemmer = Stemmer { word, syllables, removed: Vec::new() };
    stemmer.suffixes(&["kah", "lah", "pun"]);
    stemmer.suffixes(&["ku", "mu", "nya"]);
    if stemmer.first_prefix() {
        if stemmer.suffix() {
            stemmer.second_prefix();
        }
    } else {
        stemmer.second_prefix();
        stemmer.suffix();
    }
}

impl Stemmer<'_> {
    /// Returns whether the word is long enough to lose a syllable.
    fn is_long(&self) -> bool {
        self.syllables > 2
    }

    fn suffixes(&mut self, suffixes: &[&str]) {
        if self.is_long()
            && let Some(suffix) = suffixes.iter().find(|suffix| ends(self.word, suffix))
        {
            swap(self.word, suffix.len(), "");
            self.syllables -= 1;
        }
    }

    fn starts(&self, prefix: &str) -> bool {
        self.word.iter().copied().zip(prefix.chars()).filter(|(a, b)| a == b).count() == prefix.len()
    }

    fn is_vowel_at(&self, at: usize) -> bool {
        self.word.get(at).is_some_and(|&c| is_vowel(c))
    }

    /// Takes off `count` letters; the one behind them may become another.
    fn take(&mut self, count: usize, first: Option<char>, prefix: Option<Prefix>) -> bool {
        self.word.drain(..count);
        if let (Some(first), Some(c)) = (first, self.word.first_mut()) {
            *c = first;
        }
        self.removed.extend(prefix);
        self.syllables -= 1;
        true
    }

    fn first_prefix(&mut self) -> bool {
        if !self.is_long() {
            return false;
        }
        let vowel_after = |stemmer: &Self, at: usize| stemmer.is_vowel_at(at);
        if self.starts("meny") && vowel_after(self, 4) {
            return self.take(3, Some('s'), Some(Prefix::Meng));
        }
        if self.starts("peny") && vowel_after(self, 4) {
            return self.take(3, Some('s'), Some(Prefix::Peng));
        }
        if self.starts("pen") && vowel_after(self, 3) {
            return self.take(2, Some('t'), Some(Prefix::Peng));
        }
        let prefixes = [
            ("meng", Prefix::Meng),
            ("men", Prefix::Meng),
            ("mem", Prefix::Meng),
            ("me", Prefix::Meng),
            ("peng", Prefix::Peng),
            ("peny", Prefix::Peng),
            ("pen", Prefix::Peng),
            ("pem", Prefix::Peng),
            ("di", Prefix::Di),
            ("ter", Prefix::Ter),
            ("ke", Prefix::Ke),
        ];
        match prefixes.into_iter().find(|(prefix, _)| self.starts(prefix)) {
            Some((prefix, removed)) => self.take(prefix.len(), None, Some(removed)),
            None => false,
        }
    }

    fn second_prefix(&mut self) -> bool {
        if !self.is_long() {
            return false;
        }
        if self.starts("ber") || (self.word.len() == 7 && self.starts("belajar")) {
            return self.take(3, None, Some(Prefix::Ber));
        }
        if self.starts("be")
            && self.word.len() > 4
            && !self.is_vowel_at(2)
            && self.word[3] == 'e'
            && self.word[4] == 'r'
        {
            return self.take(2, None, Some(Prefix::Ber));
        }
        if self.starts("per") || (self.word.len() == 7 && self.starts("pelajar")) {
            return self.take(3, None, None);
        }
        self.starts("pe") && self.take(2, None, Some(Prefix::Pe))
    }

    fn suffix(&mut self) -> bool {
        use Prefix::{Ber, Di, Ke, Meng, Pe, Peng, Ter};
        if !self.is_long() {
            return false;
        }
        let without = |prefixes: &[Prefix]| !prefixes.iter().any(|prefix| self.removed.contains(prefix));
        let count = if ends(self.word, "kan") && without(&[Ke, Peng, Pe]) {
            3
        } else if ends(self.word, "an") && without(&[Di, Meng, Ter]) {
            2
        } else if ends(self.word, "i") && !ends(self.word, "si") && without(&[Ber, Ke, Peng]) {
            1
        } else {
            return false;
        };
        swap(self.word, count, "");
        self.syllables -= 1;
        true
    }
}
