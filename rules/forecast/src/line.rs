//! The least-squares line of a window.

use crate::sum::{Sum, mean, sum};

/// A line over the places of a window: its first sample is at 0, the next at 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// Slope per bucket: `a` in `y = a·x + b`.
    pub slope: f64,
    /// Intercept: `b`.
    pub intercept: f64,
}

impl Line {
    /// Fits a line; to a single sample, a level one. Sums are about the means, so that large levels cost no digits.
    pub(crate) fn fit(samples: &[f64]) -> Self {
        let count = samples.len() as f64;
        let (middle, level) = ((count - 1.0) / 2.0, mean(samples));
        let mut product = Sum::default();
        let mut square = Sum::default();
        for (place, sample) in samples.iter().enumerate() {
            let x = place as f64 - middle;
            product.add(x * (sample - level));
            square.add(x * x);
        }
        let slope = match samples.len() {
            0 | 1 => 0.0,
            _ => product.value() / square.value(),
        };
        Self { slope, intercept: level - slope * middle }
    }

    /// Returns its height at a place.
    pub fn at(&self, place: f64) -> f64 {
        self.slope * place + self.intercept
    }

    /// Returns the place behind `last` at which the line comes to a level; `None` where it never does, or did before.
    pub fn reaches(&self, level: f64, last: f64) -> Option<f64> {
        let place = (level - self.intercept) / self.slope;
        (place.is_finite() && place > last).then_some(place)
    }

    /// Takes the line out of samples.
    pub(crate) fn residuals(&self, samples: &[f64]) -> Vec<f64> {
        samples.iter().enumerate().map(|(place, sample)| sample - self.at(place as f64)).collect()
    }
}

/// Returns the mean squared error of pairs; `None` of none.
pub(crate) fn mean_squared(pairs: &[(f64, f64)]) -> Option<f64> {
    let count = pairs.len() as f64;
    (!pairs.is_empty()).then(|| sum(pairs.iter().map(|(one, other)| (one - other).powi(2))) / count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_and_tells_when_it_comes_to_a_level() {
        let samples: Vec<f64> = (0..10).map(|place| 3.0 + 0.5 * f64::from(place)).collect();
        let line = Line::fit(&samples);
        assert!((line.slope - 0.5).abs() < 1e-12 && (line.intercept - 3.0).abs() < 1e-12, "{line:?}");
        let reached = line.reaches(10.0, 9.0).unwrap();
        assert!((reached - 14.0).abs() < 1e-9, "{reached}");
        // Behind, below, never.
        assert_eq!(line.reaches(4.0, 9.0), None);
        assert_eq!(line.reaches(-1.0, 9.0), None);
        assert_eq!(Line::fit(&[2.0, 2.0]).reaches(3.0, 1.0), None);
        assert_eq!(Line::fit(&[7.0]), Line { slope: 0.0, intercept: 7.0 });
    }

    #[test]
    fn large_levels_cost_no_digits() {
        let samples: Vec<f64> = (0..1000).map(|place| 1e12 + f64::from(place % 7)).collect();
        let small: Vec<f64> = samples.iter().map(|sample| sample - 1e12).collect();
        let (line, expected) = (Line::fit(&samples), Line::fit(&small));
        assert!((line.slope / expected.slope - 1.0).abs() < 1e-9, "{line:?} {expected:?}");
    }
}
