//! [`ReferenceScores`]: raw scores of the training window, which turn a raw score into a rank.

use crate::artefact::{ArtefactReader, ArtefactWriter, corrupt};
use crate::error::Result;

/// Scores of a reference, at most: more are thinned to evenly spaced order statistics.
pub(crate) const MAX_REFERENCE: usize = 16_384;

/// Sorted raw scores of the training window.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ReferenceScores(Vec<f64>);

impl ReferenceScores {
    /// Sorts finite scores, and thins them beyond [`MAX_REFERENCE`].
    pub(crate) fn new(mut scores: Vec<f64>) -> Self {
        scores.retain(|score| score.is_finite());
        scores.sort_unstable_by(f64::total_cmp);
        Self::thinned(scores, MAX_REFERENCE)
    }

    /// Takes sorted scores, and thins them beyond a limit.
    pub(crate) fn thinned(mut scores: Vec<f64>, limit: usize) -> Self {
        let count = scores.len();
        if count > limit {
            let step = |place: usize| scores[place * (count - 1) / (limit - 1)];
            scores = (0..limit).map(step).collect();
        }
        Self(scores)
    }

    /// Returns the share of reference scores below a score, with half of the equal ones; 0 of an empty reference.
    pub(crate) fn rank(&self, score: f64) -> f64 {
        if self.0.is_empty() {
            return 0.0;
        }
        let below = self.0.partition_point(|one| *one < score);
        let equal = self.0[below..].partition_point(|one| *one <= score);
        (below as f64 + equal as f64 / 2.0) / self.0.len() as f64
    }

    pub(crate) fn encode(&self, out: &mut ArtefactWriter) {
        out.f64s(&self.0);
    }

    pub(crate) fn decode(from: &mut ArtefactReader<'_>) -> Result<Self> {
        let scores = from.finites(MAX_REFERENCE)?;
        if scores.is_sorted() { Ok(Self(scores)) } else { Err(corrupt("its scores are not in order")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_shares_of_lower_scores() {
        let reference = ReferenceScores::new(vec![3.0, 1.0, 2.0, 2.0]);
        assert_eq!(reference.rank(0.5), 0.0);
        assert_eq!(reference.rank(2.0), 0.5);
        assert_eq!(reference.rank(9.0), 1.0);
        let long = ReferenceScores::new((0..100_000).map(f64::from).collect());
        assert!((long.rank(25_000.0) - 0.25).abs() < 1e-3);
        assert_eq!(long.rank(100_000.0), 1.0);
        assert_eq!(ReferenceScores::default().rank(1.0), 0.0);
    }
}
