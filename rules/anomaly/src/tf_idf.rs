//! TF-IDF novelty: the mean inverse document frequency of a line's words.
//!
//! A line is masked (`mask`), put into lower case, and split at everything but letters, digits and masks. The frequency of a word is
//! the number of training lines that have it. Its weight is ln((N + 1) / (frequency + 1)) for N lines. The score of a line is the mean weight
//! of its words, each as often as it stands there (Salton and Buckley 1988).

use std::collections::{BTreeMap, BTreeSet};

use crate::artefact::{ArtefactReader, ArtefactWriter, corrupt};
use crate::error::Result;

/// Words with a frequency of their own, at most. Beyond that the rarest are forgotten, and weigh as words never seen.
const MAX_WORDS: usize = 65_536;
/// Words that training counts before it forgets the rarest.
const MAX_COUNTED: usize = 4 * MAX_WORDS;
/// Bytes of a word, at most; a longer one is cut.
const MAX_WORD_BYTES: usize = 64;

/// Frequencies of words.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TfIdf {
    lines: u64,
    frequencies: BTreeMap<String, u64>,
}

impl TfIdf {
    /// Counts the words of a masked line.
    pub(crate) fn add(&mut self, masked: &str) {
        self.lines += 1;
        let mut line = BTreeSet::new();
        for_each_word(masked, |word| {
            line.insert(word.to_owned());
        });
        for word in line {
            *self.frequencies.entry(word).or_default() += 1;
        }
        if self.frequencies.len() > MAX_COUNTED {
            self.shrink();
        }
    }

    /// Keeps the most frequent words; of equal ones the first in order.
    pub(crate) fn shrink(&mut self) {
        if self.frequencies.len() <= MAX_WORDS {
            return;
        }
        let mut words: Vec<(String, u64)> = std::mem::take(&mut self.frequencies).into_iter().collect();
        words.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
        words.truncate(MAX_WORDS);
        self.frequencies = words.into_iter().collect();
    }

    /// Returns the mean weight of a masked line's words; 0 of a line without words.
    pub(crate) fn score(&self, masked: &str) -> f64 {
        let (mut total, mut count) = (0.0, 0.0);
        for_each_word(masked, |word| {
            let frequency = self.frequencies.get(word).copied().unwrap_or_default();
            total += libm::log((self.lines + 1) as f64 / (frequency + 1) as f64);
            count += 1.0;
        });
        if count > 0.0 { f64::max(total / count, 0.0) } else { 0.0 }
    }

    pub(crate) fn encode(&self, out: &mut ArtefactWriter) {
        out.u64(self.lines);
        out.count(self.frequencies.len());
        for (word, frequency) in &self.frequencies {
            out.text(word);
            out.u64(*frequency);
        }
    }

    pub(crate) fn decode(from: &mut ArtefactReader<'_>) -> Result<Self> {
        let lines = from.u64()?;
        let mut frequencies = BTreeMap::new();
        for _ in 0..from.count(MAX_WORDS, 12)? {
            let (word, frequency) = (from.text(MAX_WORD_BYTES * 4)?, from.u64()?);
            if frequency > lines {
                return Err(corrupt("a word is more frequent than lines"));
            }
            frequencies.insert(word, frequency);
        }
        if lines == u64::MAX {
            return Err(corrupt("it has too many lines"));
        }
        Ok(Self { lines, frequencies })
    }
}

fn for_each_word(masked: &str, mut visit: impl FnMut(&str)) {
    let lower = masked.to_lowercase();
    let is_letter = |one: char| one.is_alphanumeric() || matches!(one, '_' | '<' | '>');
    for word in lower.split(|one| !is_letter(one)).filter(|word| !word.is_empty()) {
        visit(&word[..word.floor_char_boundary(MAX_WORD_BYTES)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rare_words_weigh_more() {
        let mut model = TfIdf::default();
        for at in 0..100 {
            model.add(if at == 3 { "disk failed" } else { "disk fine" });
        }
        let (fine, failed, new) =
            (model.score("Disk fine"), model.score("disk failed"), model.score("panic"));
        assert!(fine < failed && failed < new, "{fine} {failed} {new}");
        assert!((new - 101.0_f64.ln()).abs() < 1e-12);
        assert_eq!(model.score("  "), 0.0);
    }
}
