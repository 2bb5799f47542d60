//! The most interesting terms of examples: those by which documents like them are found in a shard.
//!
//! Terms are weighed as Lucene's `MoreLikeThis` does: by how often the examples have them, and how rare they are in the
//! shard.

use std::collections::BTreeMap;

use millrace_dsl::query::java_hash;
use millrace_mapping::PathId;

use crate::heap;

/// Selection of interesting terms of examples.
#[derive(Clone, Debug)]
pub struct InterestingTerms {
    /// Fields that terms may be of, each with whether its terms are those of a text; a term is taken as one of the field
    /// in which it is most frequent.
    pub fields: Vec<(PathId, bool)>,
    /// The frequency of each term in the examples, and its place by its first occurrence.
    pub frequencies: BTreeMap<String, (u32, u32)>,
    /// Number of all terms of the examples, those included that are too rare in them.
    pub words: usize,
    /// Most terms.
    pub most: usize,
    /// Fewest and most documents that may have a term.
    pub doc_freqs: (u64, u64),
    /// Factor of boosts by the weight of terms; none where not above 0.
    pub boost_terms: f32,
}

/// A term that is taken.
#[derive(Clone, Debug, PartialEq)]
pub struct InterestingTerm<'a> {
    /// The term.
    pub term: &'a str,
    /// Place of its field among all.
    pub field: usize,
    /// Its weight.
    pub score: f32,
}

/// The place of a term in a Java map of so many: its bucket.
fn bucket(term: &str, words: usize) -> u32 {
    let hash = java_hash(term).cast_unsigned();
    let buckets = (words * 4).div_ceil(3).next_power_of_two().max(16);
    (hash ^ (hash >> 16)) & (buckets as u32 - 1)
}

impl InterestingTerms {
    /// Chooses terms. `most` says in which field each is most frequent, and how many documents have it there; `docs` how
    /// many there are.
    pub fn taken<'a>(&self, most: &'a BTreeMap<String, (usize, u64)>, docs: u64) -> Vec<InterestingTerm<'a>> {
        let mut offered = Vec::new();
        for (term, (field, most)) in most {
            let Some((frequency, place)) = self.frequencies.get(term) else { continue };
            if *most == 0 || *most < self.doc_freqs.0 || *most > self.doc_freqs.1 {
                continue;
            }
            let taken = InterestingTerm { term, field: *field, score: *frequency as f32 * idf(docs, *most) };
            offered.push(((bucket(term, self.words), *place), taken));
        }
        offered.sort_by_key(|(order, _)| *order);
        let most = self.most.min(self.words);
        let less = |a: &InterestingTerm<'_>, b: &InterestingTerm<'_>| a.score < b.score;
        // Of equals the one stays that the queue's shape lets stay, as in Lucene.
        let mut queue: Vec<InterestingTerm<'a>> = Vec::new();
        for (_, taken) in offered {
            if queue.len() < most {
                heap::push(&mut queue, taken, less);
            } else if queue.first().is_some_and(|least| less(least, &taken)) {
                queue[0] = taken;
                heap::settle(&mut queue, less);
            }
        }
        queue
    }
}

/// The inverse document frequency of Lucene's `ClassicSimilarity`.
fn idf(docs: u64, doc_freq: u64) -> f32 {
    ((docs as f64 + 1.0) / (doc_freq as f64 + 1.0)).ln() as f32 + 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rare_terms_that_are_often_in_examples_are_taken_first() {
        let frequencies = [("common", 9), ("rare", 3), ("once", 1), ("lone", 9), ("gone", 9)];
        let telling = InterestingTerms {
            fields: vec![(PathId(1), true), (PathId(2), true)],
            frequencies: frequencies.map(|(term, count)| (term.to_owned(), (count, 0))).into(),
            words: 5,
            most: 2,
            doc_freqs: (2, 50),
            boost_terms: 0.0,
        };
        let counts = [("common", (0, 60)), ("rare", (1, 3)), ("once", (0, 2)), ("lone", (0, 1))];
        let counts = counts.map(|(term, most)| (term.to_owned(), most)).into();
        let taken = telling.taken(&counts, 100);
        let found: Vec<(&str, usize)> = taken.iter().map(|taken| (taken.term, taken.field)).collect();
        assert_eq!(found, [("once", 0), ("rare", 1)]);
        assert!((taken[1].score - 3.0 * ((101.0_f32 / 4.0).ln() + 1.0)).abs() < 1e-5);
        assert_eq!(InterestingTerms { most: 1, ..telling }.taken(&counts, 100).len(), 1);
    }
}
