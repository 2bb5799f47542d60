//! [`ScoreCutoff`]: the rank from which on a score is an anomaly.

use crate::error::{Error, Result};

/// Contamination where neither a threshold nor a contamination is given.
pub const DEFAULT_CONTAMINATION: f64 = 0.05;

/// Cutoff that flags a rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ScoreCutoff {
    /// Flags ranks of at least this, 0 to 1.
    Threshold(f64),
    /// Flags ranks above 1 less this, in (0, 0.5].
    Contamination(f64),
}

impl ScoreCutoff {
    /// Makes a cutoff: the threshold where it is given, else the contamination, else [`DEFAULT_CONTAMINATION`].
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] where a number is out of its range.
    pub fn new(threshold: Option<f64>, contamination: Option<f64>) -> Result<Self> {
        if let Some(value) = contamination
            && !(value > 0.0 && value <= 0.5)
        {
            return Err(invalid("contamination", "a number above 0 and up to 0.5", value));
        }
        match threshold {
            Some(value) if (0.0..=1.0).contains(&value) => Ok(Self::Threshold(value)),
            Some(value) => Err(invalid("threshold", "a number from 0 to 1", value)),
            None => Ok(Self::Contamination(contamination.unwrap_or(DEFAULT_CONTAMINATION))),
        }
    }

    /// Returns whether the rank is anomalous.
    pub fn flags(self, rank: f64) -> bool {
        match self {
            Self::Threshold(threshold) => rank >= threshold,
            Self::Contamination(contamination) => rank > 1.0 - contamination,
        }
    }
}

fn invalid(parameter: &'static str, allowed: &'static str, value: f64) -> Error {
    Error::InvalidParameter { parameter, allowed, value: value.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_goes_before_a_contamination() {
        let cutoff = ScoreCutoff::new(Some(0.9), Some(0.5)).unwrap();
        assert!(cutoff.flags(0.9) && !cutoff.flags(0.89));
        let cutoff = ScoreCutoff::new(None, Some(0.1)).unwrap();
        assert!(cutoff.flags(0.91) && !cutoff.flags(0.9));
        assert_eq!(ScoreCutoff::new(None, None), Ok(ScoreCutoff::Contamination(DEFAULT_CONTAMINATION)));
        for contamination in [0.0, 0.51, f64::NAN, -1.0] {
            assert!(ScoreCutoff::new(None, Some(contamination)).is_err());
        }
        assert!(ScoreCutoff::new(Some(1.1), None).is_err());
    }
}
