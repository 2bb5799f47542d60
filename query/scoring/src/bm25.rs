//! BM25 as Lucene's `LegacyBM25Similarity` computes it, which OpenSearch 2 scores with:
//! `boost · (k1+1) · idf · tf / (tf + k1 · (1 − b + b · dl/avgdl))`.

/// Saturation of term frequency: how soon more occurrences cease to count.
pub const K1: f32 = 1.2;
/// Weight of the length of a field.
pub const B: f32 = 0.75;
/// Lengths whose part of the formula is computed ahead.
const TABLE: usize = 256;

/// Statistics of a field and a term over a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Statistics {
    /// Documents that have the field, deleted ones included.
    pub docs: u64,
    /// Documents that have the term.
    pub doc_freq: u64,
    /// Tokens of the field over all documents.
    pub tokens: u64,
}

/// The scoring function of one term.
#[derive(Clone, Debug)]
pub struct Bm25 {
    boost: f32,
    statistics: Statistics,
    /// `boost · (k1+1) · idf`.
    weight: f32,
    average_length: f32,
    /// `1 / (k1 · (1 − b + b · dl/avgdl))` by `dl`.
    inverse: Box<[f32]>,
}

/// Computes the inverse document frequency.
pub fn idf(docs: u64, doc_freq: u64) -> f32 {
    (1.0 + (docs as f64 - doc_freq as f64 + 0.5) / (doc_freq as f64 + 0.5)).ln() as f32
}

impl Bm25 {
    /// Makes the function of a term.
    pub fn new(boost: f32, statistics: Statistics) -> Self {
        let docs = statistics.docs.max(statistics.doc_freq).max(1);
        Self::with_idf(boost, idf(docs, statistics.doc_freq), statistics)
    }

    /// Makes the function of a phrase, whose `idf` is the sum of those of its terms.
    pub fn with_idf(boost: f32, idf: f32, statistics: Statistics) -> Self {
        // A snapshot may hold a term in more documents than it counts for the field: never below.
        let docs = statistics.docs.max(statistics.doc_freq).max(1);
        let average_length = (statistics.tokens.max(1) as f64 / docs as f64) as f32;
        let weight = boost * (K1 + 1.0) * idf;
        let inverse = (0..TABLE).map(|length| inverse(length as f32, average_length)).collect();
        let statistics = Statistics { docs, ..statistics };
        Self { boost, statistics, weight, average_length, inverse }
    }

    /// Returns the boost with the factor `k1+1`.
    pub fn boost(&self) -> f32 {
        self.boost * (K1 + 1.0)
    }

    /// Returns the statistics that it was made of.
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// Returns the inverse document frequency.
    pub fn idf(&self) -> f32 {
        idf(self.statistics.docs, self.statistics.doc_freq)
    }

    /// Returns the average length of the field.
    pub fn average_length(&self) -> f32 {
        self.average_length
    }

    /// Scores a term that occurs `freq` times in a field of `length` tokens.
    pub fn score(&self, freq: u32, length: u32) -> f32 {
        self.score_of(freq as f32, length)
    }

    /// Scores a phrase, whose frequency may be a fraction.
    pub fn score_of(&self, freq: f32, length: u32) -> f32 {
        self.weight - self.weight / (1.0 + freq * self.inverse_of(length))
    }

    /// Returns the part of a score that the frequency and the length decide, below 1.
    pub fn frequency_part(&self, freq: u32, length: u32) -> f32 {
        1.0 - 1.0 / (1.0 + freq as f32 * self.inverse_of(length))
    }

    fn inverse_of(&self, length: u32) -> f32 {
        match self.inverse.get(length as usize) {
            Some(inverse) => *inverse,
            None => inverse(length as f32, self.average_length),
        }
    }

    /// Scores a term of a field without frequencies and norms: each occurs once, in a length of one.
    pub fn exact_score(&self) -> f32 {
        self.score(1, 1)
    }

    /// Returns a bound on the scores in a run of rows of which the one that scores best for an average length of `average` has
    /// this frequency and length.
    ///
    /// With `r = tf / (k1 · (1 − b + b · dl/avg))` a score is `w − w / (1 + r)`, and for another
    /// average `avg'` no `r` grows by more than `max(1, avg'/avg)`.
    pub fn bound(&self, freq: u32, length: u32, average: f32) -> f32 {
        let best = freq as f32 * inverse(length as f32, average.max(f32::MIN_POSITIVE));
        let ratio = best * (self.average_length / average.max(f32::MIN_POSITIVE)).max(1.0);
        // A little more, for what rounding may add.
        ((self.weight - self.weight / (1.0 + ratio)) * 1.000_01).min(self.weight)
    }

    /// Returns the greatest score in a run of rows of which the one that scores best has this frequency
    /// and length; `lengths` are all that rows may have.
    ///
    /// The best was chosen in other arithmetic, so that a row that scores the same but for rounding may
    /// score a little more: the bound is the greatest score so near to that of the best that any
    /// frequency and length have.
    pub fn exact_bound(&self, freq: u32, length: u32, lengths: &[u32]) -> f32 {
        if freq == u32::MAX {
            return self.weight;
        }
        let best = self.score(freq, length);
        let ratio = freq as f32 * self.inverse_of(length);
        let near = best * 1.000_01;
        let mut bound = best;
        for length in lengths {
            let about = ratio / self.inverse_of(*length);
            for freq in [about.floor(), about.ceil()] {
                let score = self.score_of(freq.max(1.0), *length);
                if score > bound && score <= near {
                    bound = score;
                }
            }
        }
        bound
    }

    /// Returns a bound on all scores.
    pub fn max_score(&self) -> f32 {
        self.weight
    }
}

fn inverse(length: f32, average: f32) -> f32 {
    1.0 / (K1 * ((1.0 - B) + B * length / average))
}

#[cfg(test)]
mod tests {
    use crate::bm25::*;

    fn close(actual: f32, expected: f32) {
        assert!((actual - expected).abs() < expected.abs() * 1e-6 + 1e-9, "{actual} is not {expected}");
    }

    /// Worked by hand: idf = ln(1 + (3 − 1 + 0.5)/(1 + 0.5)) = 0.98082924.
    #[test]
    fn scores_as_lucene() {
        close(idf(3, 1), 0.980_829_24);
        // One document with the one term: idf = ln(1 + 0.5/1.5), length as the average.
        let one = Bm25::new(1.0, Statistics { docs: 1, doc_freq: 1, tokens: 1 });
        close(one.score(1, 1), 0.287_682_07);
        // tf = 2, dl = 4, avgdl = 3: 2.2 · idf · 2 / (2 + 1.2 · (0.25 + 0.75 · 4/3)) = 2.2 · idf · 2/3.5
        let three = Bm25::new(1.0, Statistics { docs: 3, doc_freq: 1, tokens: 9 });
        close(three.score(2, 4), 2.2 * 0.980_829_24 * 2.0 / 3.5);
        close(Bm25::new(2.0, Statistics { docs: 3, doc_freq: 1, tokens: 9 }).score(2, 4), 2.466_085);
    }

    #[test]
    fn exact_bounds_are_scores_or_next_to_them() {
        let lengths: Vec<u32> = (0..40).collect();
        let function = Bm25::new(1.0, Statistics { docs: 1_000, doc_freq: 300, tokens: 7_770 });
        for freq in 1..30 {
            for length in 1..40 {
                let (score, bound) =
                    (function.score(freq, length), function.exact_bound(freq, length, &lengths));
                assert!(score <= bound && bound <= score * 1.000_01);
                // No pair of a frequency and a length scores between the bound and what is near.
                for (other, of) in (1..90).flat_map(|other| lengths.iter().map(move |of| (other, *of))) {
                    let other = function.score(other, of);
                    assert!(other <= bound || other > score * 1.000_009, "{freq} in {length}");
                }
            }
        }
    }

    #[test]
    fn exact_values_score_by_their_idf() {
        let exact = Bm25::new(1.0, Statistics { docs: 10, doc_freq: 3, tokens: 10 });
        close(exact.exact_score(), idf(10, 3));
    }
}
