//! A series of buckets: a number each, or a gap.

use crate::error::{Error, Result};

/// Samples in the order of their buckets. It begins with the first bucket that has one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Buckets before the first sample, which do not belong to it.
    skipped: usize,
    samples: Vec<Option<f64>>,
}

impl Series {
    /// Makes a series of buckets. Those before the first sample are left out.
    ///
    /// # Errors
    /// [`Error::NotFinite`]; [`Error::TooMany`] beyond [`crate::MAX_SAMPLES`].
    pub fn new(mut buckets: Vec<Option<f64>>) -> Result<Self> {
        if buckets.len() > crate::MAX_SAMPLES {
            let (limit, there) = (crate::MAX_SAMPLES, buckets.len());
            return Err(Error::TooMany { what: "the buckets of a window", limit, there });
        }
        if buckets.iter().flatten().any(|value| !value.is_finite()) {
            return Err(Error::NotFinite { what: "a sample" });
        }
        let skipped = buckets.iter().position(Option::is_some).unwrap_or(buckets.len());
        buckets.drain(..skipped);
        Ok(Self { skipped, samples: buckets })
    }

    /// Returns how many buckets were left out at the beginning.
    pub fn skipped(&self) -> usize {
        self.skipped
    }

    /// Returns the samples, `None` for gaps.
    pub fn samples(&self) -> &[Option<f64>] {
        &self.samples
    }

    /// Returns how many buckets there are, gaps among them.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Returns whether there is no sample.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Returns a number that stands for the samples: other samples have another one, but for chance.
    pub fn fingerprint(&self) -> u64 {
        let bits = |sample: &Option<f64>| sample.map_or(u64::MAX, f64::to_bits);
        self.samples.iter().map(bits).fold(crate::random::mix(self.samples.len() as u64), |hash, bits| {
            crate::random::mix(hash.rotate_left(5) ^ bits)
        })
    }

    /// Returns a number for each bucket: gaps lie on the line between their neighbours; behind the last sample it goes on as it is.
    pub fn filled(&self) -> Vec<f64> {
        filled(&self.samples)
    }
}

pub(crate) fn filled(samples: &[Option<f64>]) -> Vec<f64> {
    let mut filled: Vec<f64> = Vec::with_capacity(samples.len());
    for (at, sample) in samples.iter().enumerate() {
        let Some(value) = *sample else { continue };
        let gap = at - filled.len();
        let before = filled.last().copied().unwrap_or(value);
        for place in 1..=gap {
            let share = place as f64 / (gap + 1) as f64;
            // Two products: the difference of two numbers can be more than a number holds.
            filled.push(before * (1.0 - share) + value * share);
        }
        filled.push(value);
    }
    let last = filled.last().copied().unwrap_or_default();
    filled.resize(samples.len(), last);
    filled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_lie_between_their_neighbours() {
        let series = Series::new(vec![None, Some(1.0), None, None, Some(4.0), Some(5.0), None]).unwrap();
        assert_eq!((series.skipped(), series.len()), (1, 6));
        assert_eq!(series.filled(), [1.0, 2.0, 3.0, 4.0, 5.0, 5.0]);
        assert!(Series::new(vec![None; 3]).unwrap().is_empty());
        assert_eq!(
            Series::new(vec![Some(f64::INFINITY)]).unwrap_err(),
            Error::NotFinite { what: "a sample" }
        );
        assert!(Series::new(vec![Some(0.0); crate::MAX_SAMPLES + 1]).is_err());
    }

    #[test]
    fn a_fingerprint_tells_series_apart() {
        let of = |buckets: Vec<Option<f64>>| Series::new(buckets).unwrap().fingerprint();
        let one = of(vec![Some(1.0), Some(2.0)]);
        assert_eq!(one, of(vec![None, Some(1.0), Some(2.0)]));
        for other in [vec![Some(2.0), Some(1.0)], vec![Some(1.0)], vec![Some(1.0), None], vec![]] {
            assert_ne!(one, of(other));
        }
    }
}
