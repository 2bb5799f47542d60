//! The names that a pipeline may use, found before it is planned: an index offers these, so that thousands of mapped fields cost
//! nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

/// Longest word that may be the name of a field, in bytes.
const MAX_WORD: usize = 1_024;
/// Most points of a word whose parts may be names of fields too.
const MAX_POINTS: usize = 64;

/// Words of a pipeline that may be names of fields; clones share them.
#[derive(Clone, Debug)]
pub(crate) struct NameSet {
    words: Arc<BTreeSet<String>>,
    /// `true` if only columns that are named reach the answer.
    restricted: bool,
}

impl NameSet {
    /// Lists the words of a text, and each beginning of them that ends before a point. Words of strings are among them.
    pub(crate) fn new(text: &str, restricted: bool) -> Self {
        // Commands over time name it without saying so.
        let mut words = BTreeSet::from(["@timestamp".to_owned()]);
        let mut add = |word: &str| {
            let word = word.trim_matches('.');
            if word.is_empty()
                || word.len() > MAX_WORD
                || word.starts_with(|letter: char| letter.is_ascii_digit())
            {
                return;
            }
            words.insert(word.to_owned());
            if word.matches('.').count() > MAX_POINTS {
                return;
            }
            for (at, _) in word.match_indices('.') {
                words.extend(word.get(..at).map(str::to_owned));
                words.extend(word.get(at + 1..).map(str::to_owned));
            }
        };
        let is_letter = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '@' | '.');
        for word in text.split(|letter| !is_letter(letter)) {
            add(word);
        }
        // Names in backticks hold any letters.
        for quoted in text.split('`').skip(1).step_by(2) {
            add(quoted);
        }
        for spaced in text.split(|letter: char| !(is_letter(letter) || letter == '-')) {
            if spaced.contains('-') {
                add(spaced);
            }
        }
        Self { words: Arc::new(words), restricted }
    }

    /// Returns the same names for a pipeline whose columns all reach the answer.
    pub(crate) fn unrestricted(&self) -> Self {
        Self { words: Arc::clone(&self.words), restricted: false }
    }

    /// Returns the same names for a pipeline of which only columns that are named reach the answer.
    pub(crate) fn with_restriction(&self, restricted: bool) -> Self {
        Self { words: Arc::clone(&self.words), restricted }
    }

    /// Returns whether a field may be used.
    pub(crate) fn may_use(&self, name: &str) -> bool {
        !self.restricted || self.words.contains(name)
    }

    /// Lists the names.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &String> {
        self.words.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_names() {
        let names = NameSet::new("source=a-b | where x.y.z > 1 and `q r` = 'm.n'", true);
        for name in ["a", "a-b", "x", "x.y", "x.y.z", "y.z", "q r", "m.n"] {
            assert!(names.may_use(name), "{name}");
        }
        assert!(!names.may_use("w") && names.unrestricted().may_use("w"));
    }

    #[test]
    fn long_words_have_no_parts() {
        let names = NameSet::new(&"a.".repeat(100_000), true);
        assert_eq!(names.paths().count(), 1);
        assert!(!NameSet::new(&"a.".repeat(100), true).may_use("a"));
    }
}
