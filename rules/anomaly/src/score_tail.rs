//! [`ScoreTail`]: the share of training scores that are as high as a score, also beyond the largest of them.
//!
//! Below a threshold the share is that of the training scores. The scores above it are a generalized Pareto distribution (Pickands
//! 1975; Siffer 2017), fitted by probability-weighted moments (Hosking, Wallis 1987). Its shape is between an exponential tail and one
//! of finite variance.

use crate::artefact::{ArtefactReader, ArtefactWriter, corrupt};
use crate::error::Result;
use crate::rank::ReferenceScores;

/// Scores of the body, at most.
const MAX_BODY: usize = 1_024;
/// Share of the scores above the threshold.
const TAIL_SHARE: f64 = 0.03;
/// Scores above the threshold, at least.
const LEAST_TAIL: usize = 8;
/// Largest shape.
const MAX_SHAPE: f64 = 0.5;
/// Least scale, as a share of the range of the scores.
const LEAST_SCALE: f64 = 1e-3;
/// Largest surprise: a share of 10⁻³⁰.
const MAX_SURPRISE: f64 = 30.0;

/// Distribution of scores.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ScoreTail {
    body: ReferenceScores,
    threshold: f64,
    /// Share of the scores above the threshold.
    share: f64,
    shape: f64,
    scale: f64,
}

impl ScoreTail {
    /// Fits the distribution of finite scores, of which there are two at least.
    pub(crate) fn fit(mut scores: Vec<f64>) -> Self {
        scores.sort_unstable_by(f64::total_cmp);
        let count = scores.len();
        let above =
            ((count as f64 * TAIL_SHARE) as usize).max(LEAST_TAIL).min(count.saturating_sub(1)).max(1);
        let (Some(first), Some(last)) = (scores.first().copied(), scores.last().copied()) else {
            return Self {
                body: ReferenceScores::default(),
                threshold: 0.0,
                share: 1.0,
                shape: 0.0,
                scale: 1.0,
            };
        };
        let threshold = scores[count.saturating_sub(above + 1)];
        let (mut mean, mut weighted) = (0.0, 0.0);
        for (at, score) in scores[count - above..].iter().enumerate() {
            let excess = (score - threshold) / above as f64;
            mean += excess;
            weighted += excess * (1.0 - (at as f64 + 0.65) / above as f64);
        }
        // The mean is more than twice the weighted one of a tail that is heavier than an exponential one.
        let difference = mean - 2.0 * weighted;
        let (shape, scale) = match 2.0 - mean / difference {
            shape if difference > 0.0 && shape > 0.0 && shape <= MAX_SHAPE => {
                (shape, 2.0 * mean * weighted / difference)
            }
            shape if difference > 0.0 && shape > MAX_SHAPE => (MAX_SHAPE, mean * (1.0 - MAX_SHAPE)),
            _ => (0.0, mean),
        };
        let least = (last / 2.0 - first / 2.0) * 2.0 * LEAST_SCALE;
        let scale = scale.max(least).clamp(f64::MIN_POSITIVE, 1e300);
        let share = above as f64 / count as f64;
        Self { body: ReferenceScores::thinned(scores, MAX_BODY), threshold, share, shape, scale }
    }

    /// Returns minus the decimal logarithm of the share of scores that are as high: 3 stands for one in a thousand.
    pub(crate) fn surprise(&self, score: f64) -> f64 {
        let share = if score <= self.threshold {
            1.0 - self.body.rank(score)
        } else {
            let excess = (score - self.threshold) / self.scale;
            let beyond = match self.shape > 1e-6 {
                true => libm::pow(1.0 + self.shape * excess, -1.0 / self.shape),
                false => libm::exp(-excess),
            };
            self.share * beyond
        };
        if share > 0.0 { (-libm::log10(share)).clamp(0.0, MAX_SURPRISE) } else { MAX_SURPRISE }
    }

    pub(crate) fn encode(&self, out: &mut ArtefactWriter) {
        self.body.encode(out);
        [self.threshold, self.share, self.shape, self.scale].into_iter().for_each(|one| out.f64(one));
    }

    pub(crate) fn decode(from: &mut ArtefactReader<'_>) -> Result<Self> {
        let body = ReferenceScores::decode(from)?;
        let (threshold, share) = (from.finite()?, from.finite()?);
        let (shape, scale) = (from.finite()?, from.finite()?);
        if !(0.0..=1.0).contains(&share) || !(0.0..=MAX_SHAPE).contains(&shape) || scale <= 0.0 {
            return Err(corrupt("the tail of its scores is wrong"));
        }
        Ok(Self { body, threshold, share, shape, scale })
    }
}

#[cfg(test)]
mod tests {
    use millrace_forecast::Random;

    use super::*;

    #[test]
    fn the_tail_of_an_exponential_distribution_goes_on_beyond_its_largest_score() {
        let mut random = Random::new(1);
        let tail = ScoreTail::fit((0..20_000).map(|_| -libm::log(1.0 - random.uniform())).collect());
        for (share, allowed) in [(1.0, 0.05), (2.0, 0.1), (4.0, 0.3), (6.0, 1.0)] {
            let score = share * std::f64::consts::LN_10;
            let surprise = tail.surprise(score);
            assert!((surprise - share).abs() < allowed, "{share}: {surprise}");
        }
        assert!(tail.surprise(100.0) > tail.surprise(50.0));
        assert_eq!(tail.surprise(f64::INFINITY), MAX_SURPRISE);
    }

    #[test]
    fn few_and_equal_scores_have_a_tail() {
        for scores in [vec![], vec![1.0], vec![0.0, 0.0], vec![5.0; 100], vec![-1e300, 1e300]] {
            let tail = ScoreTail::fit(scores);
            for score in [-1e300, 0.0, 5.0, 1e300] {
                assert!((0.0..=MAX_SURPRISE).contains(&tail.surprise(score)), "{tail:?} {score}");
            }
        }
    }
}
