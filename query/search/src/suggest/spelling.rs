//! Terms of a shard near a term: Lucene's `DirectSpellChecker`.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_dsl::suggest::{Distance, SortBy, SpellingOptions, SuggestMode};
use millrace_scoring::automaton::Pattern;
use millrace_work::compute::Stop;
use millrace_work::error::Result;

use super::distance::similarity;
use super::part::{Terms, VisibleSegment};

/// Most edits of the first look, before more are tried.
const FIRST_EDITS: u8 = 1;

/// A field in a shard.
#[derive(Clone, Debug)]
pub(super) struct Dictionary {
    /// The shard's segments.
    pub parts: Vec<VisibleSegment>,
    /// Its terms.
    pub terms: Terms,
    /// Ends the walks over its terms.
    pub stop: Arc<Stop>,
}

/// A term near another.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SuggestedTerm {
    /// The term.
    pub term: String,
    /// Similarity of the term.
    pub score: f32,
    /// Rows that have it.
    pub freq: u64,
}

impl SuggestedTerm {
    /// Compares by what is to come first.
    pub(super) fn order(&self, other: &Self, by: SortBy) -> std::cmp::Ordering {
        let score = other.score.total_cmp(&self.score);
        let freq = other.freq.cmp(&self.freq);
        let both = match by {
            SortBy::Score => score.then(freq),
            SortBy::Frequency => freq.then(score),
        };
        both.then_with(|| self.term.cmp(&other.term))
    }
}

impl Dictionary {
    /// Counts the rows of the shard, deleted ones included where all are seen.
    pub(super) fn rows(&self) -> u64 {
        self.parts.iter().map(VisibleSegment::rows).sum()
    }

    /// Counts the rows with a term.
    pub(super) fn count(&self, term: &str) -> Result<u64> {
        self.parts.iter().map(|part| part.count(self.terms, term)).sum()
    }

    /// Counts the occurrences of a term.
    pub(super) fn occurrences(&self, term: &str) -> Result<u64> {
        self.parts.iter().map(|part| part.occurrences(self.terms, term)).sum()
    }

    /// Counts the tokens.
    pub(super) fn tokens(&self) -> Result<u64> {
        self.parts.iter().map(|part| part.tokens(self.terms)).sum()
    }

    /// Calls `each` with every term of a pattern and the rows of one segment that have it.
    pub(super) fn for_each(&self, pattern: &Pattern, each: &mut dyn FnMut(&str, u64)) -> Result<()> {
        self.parts.iter().try_for_each(|part| part.for_each(self.terms, pattern.until(&self.stop), each))
    }

    /// Finds the terms near one, the best first.
    pub(super) fn near(
        &self,
        term: &str,
        most: usize,
        options: &SpellingOptions,
    ) -> Result<Vec<SuggestedTerm>> {
        if term.chars().count() < options.min_word_length {
            return Ok(Vec::new());
        }
        let (freq, rows) = (self.count(term)?, self.rows() as f32);
        if options.mode == SuggestMode::Missing && freq > 0 {
            return Ok(Vec::new());
        }
        let frequent = match options.max_term_freq {
            rows_of if rows_of >= 1.0 => freq as f32 > rows_of,
            share => freq as f32 > (share * rows).ceil(),
        };
        if frequent {
            return Ok(Vec::new());
        }
        let freq = if options.mode == SuggestMode::Popular { freq } else { 0 };
        let threshold = match options.min_doc_freq {
            rows_of if rows_of >= 1.0 => rows_of as u64,
            share if share > 0.0 => ((share * rows) as u64).saturating_sub(1),
            _ => 0,
        };
        let least = freq.max(threshold);
        let inspected = most.saturating_mul(options.max_inspections).max(1);
        let mut found = self.candidates(term, inspected, least, FIRST_EDITS, options)?;
        if options.max_edits > FIRST_EDITS && found.len() < inspected {
            for more in self.candidates(term, inspected, least, options.max_edits, options)? {
                if !found.iter().any(|known| known.term == more.term) {
                    found.push(more);
                }
            }
        }
        found.sort_by(|a, b| a.order(b, options.sort));
        found.truncate(most);
        Ok(found)
    }

    /// Finds the terms at most so many edits away, the nearest of them.
    fn candidates(
        &self,
        term: &str,
        most: usize,
        least: u64,
        edits: u8,
        options: &SpellingOptions,
    ) -> Result<Vec<SuggestedTerm>> {
        let prefix = options.prefix_length.max(usize::from(edits - 1));
        let pattern = Pattern::near(term, edits, prefix, true);
        let mut freqs: BTreeMap<String, u64> = BTreeMap::new();
        self.for_each(&pattern, &mut |found, rows| {
            if found != term {
                *freqs.entry(found.to_owned()).or_default() += rows;
            }
        })?;
        let mut ranked: Vec<(f32, SuggestedTerm)> = Vec::new();
        for (found, freq) in freqs.into_iter().filter(|(_, freq)| *freq > least) {
            let near = pattern.boost("", &found);
            let score = match options.distance {
                Distance::Internal => near,
                distance => similarity(distance, near, term, &found),
            };
            if score >= options.accuracy {
                ranked.push((near, SuggestedTerm { term: found, score, freq }));
            }
        }
        // The nearest, and among equals the first, are looked at.
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.term.cmp(&b.1.term)));
        ranked.truncate(most);
        Ok(ranked.into_iter().map(|(_, suggested)| suggested).collect())
    }
}
