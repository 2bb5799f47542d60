//! The downhill simplex method (Nelder and Mead 1965) within bounds, with coefficients that adapt to the number of dimensions (Gao, Han 2012).
//!
//! The first corners differ from the start by a twentieth of each coordinate. A point beyond a bound is moved onto it. The search ends
//! where the values of the corners deviate by less than [`TOLERANCE`], or after [`MAX_STEPS`].

use std::cmp::Ordering;

/// Standard deviation of the values of the corners at which a search ends.
const TOLERANCE: f64 = 1e-4;
/// Steps of a search, at most.
const MAX_STEPS: usize = 1_000;
/// Share of a coordinate by which the first corners differ.
const FIRST_STEP: f64 = 0.05;
/// Step of a coordinate that is 0.
const STEP_FROM_ZERO: f64 = 1e-4;

/// Point with its value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Minimum {
    pub(crate) point: Vec<f64>,
    pub(crate) value: f64,
}

/// Search in flight.
struct Simplex<'a, F> {
    bounds: &'a [(f64, f64)],
    function: F,
    /// In the order of their coordinates; the first one was the start.
    corners: Vec<Minimum>,
}

/// Searches a minimum within bounds from a start. The function is infinite where it has no value.
pub(crate) fn minimize(
    start: &[f64],
    bounds: &[(f64, f64)],
    steps: usize,
    function: impl FnMut(&[f64]) -> f64,
) -> Minimum {
    let mut simplex = Simplex { bounds, function, corners: Vec::with_capacity(start.len() + 1) };
    let first = simplex.evaluate(start.to_vec());
    simplex.corners.push(first);
    for at in 0..start.len() {
        let mut point = simplex.corners[0].point.clone();
        point[at] = if point[at] == 0.0 { STEP_FROM_ZERO } else { point[at] * (1.0 + FIRST_STEP) };
        let corner = simplex.evaluate(point);
        simplex.corners.push(corner);
    }
    for _ in 0..steps.min(MAX_STEPS) {
        if start.is_empty() || simplex.deviation() < TOLERANCE {
            break;
        }
        simplex.step();
    }
    let best =
        simplex.corners.into_iter().reduce(|best, one| if one.value < best.value { one } else { best });
    best.unwrap_or(Minimum { point: Vec::new(), value: f64::INFINITY })
}

impl<F: FnMut(&[f64]) -> f64> Simplex<'_, F> {
    fn evaluate(&mut self, mut point: Vec<f64>) -> Minimum {
        for (one, (lower, upper)) in point.iter_mut().zip(self.bounds) {
            *one = one.max(*lower).min(*upper);
        }
        let value = (self.function)(&point);
        Minimum { point, value: if value.is_nan() { f64::INFINITY } else { value } }
    }

    /// Returns the standard deviation of the values; infinite where one of them is.
    fn deviation(&self) -> f64 {
        let count = self.corners.len() as f64;
        let mean = self.corners.iter().map(|corner| corner.value).sum::<f64>() / count;
        let square = |corner: &Minimum| (corner.value - mean) * (corner.value - mean);
        let variance = self.corners.iter().map(square).sum::<f64>() / count;
        if variance.is_nan() { f64::INFINITY } else { variance.sqrt() }
    }

    /// Reflects the worst corner, and expands, contracts or shrinks by what becomes of it.
    fn step(&mut self) {
        let count = self.corners.len() - 1;
        let dimensions = count as f64;
        let (expansion, contraction, shrinkage) =
            (1.0 + 2.0 / dimensions, 0.75 - 0.5 / dimensions, 1.0 - 1.0 / dimensions);
        let mut order: Vec<usize> = (0..=count).collect();
        // A stable sort keeps the order of equal corners.
        order.sort_by(|one, other| self.corners[*one].value.total_cmp(&self.corners[*other].value));
        let (best, second, worst) = (order[0], order[count - 1], order[count]);
        let mut center = vec![0.0; count];
        for (_, corner) in self.corners.iter().enumerate().filter(|(at, _)| *at != worst) {
            center.iter_mut().zip(&corner.point).for_each(|(center, one)| *center += one);
        }
        center.iter_mut().for_each(|one| *one /= dimensions);
        let along = |share: f64, to: &[f64]| -> Vec<f64> {
            center.iter().zip(to).map(|(center, to)| center + share * (to - center)).collect()
        };
        let reflected = self.evaluate(along(-1.0, &self.corners[worst].point));
        let value_of = |at: usize| self.corners[at].value;
        let (least, nearly_most, most) = (value_of(best), value_of(second), value_of(worst));
        if reflected.value < least {
            let expanded = self.evaluate(along(expansion, &reflected.point));
            self.corners[worst] = if expanded.value < reflected.value { expanded } else { reflected };
            return;
        }
        if reflected.value < nearly_most {
            self.corners[worst] = reflected;
            return;
        }
        let (share, bound) = match reflected.value.total_cmp(&most) {
            Ordering::Less => (contraction, reflected.value),
            _ => (-contraction, most),
        };
        let contracted = self.evaluate(along(share, &reflected.point));
        if contracted.value < bound || (share > 0.0 && contracted.value == bound) {
            self.corners[worst] = contracted;
            return;
        }
        let target = self.corners[best].point.clone();
        for at in (0..=count).filter(|at| *at != best) {
            let near = self.corners[at].point.iter().zip(&target);
            let point = near.map(|(one, best)| best + shrinkage * (one - best)).collect();
            self.corners[at] = self.evaluate(point);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_valley_of_rosenbrock_is_followed() {
        let function = |p: &[f64]| (1.0 - p[0]).powi(2) + 100.0 * (p[1] - p[0] * p[0]).powi(2);
        let free = [(f64::NEG_INFINITY, f64::INFINITY); 2];
        let found = minimize(&[-1.2, 1.0], &free, MAX_STEPS, function);
        assert!(found.value < 1e-3 && (found.point[0] - 1.0).abs() < 0.05, "{found:?}");
    }

    #[test]
    fn points_stay_within_bounds_and_off_what_has_no_value() {
        let found = minimize(&[3.0], &[(2.0, 9.0)], MAX_STEPS, |p| p[0]);
        assert!((found.point[0] - 2.0).abs() < 1e-3, "{found:?}");
        let free = [(f64::NEG_INFINITY, f64::INFINITY)];
        let found = minimize(&[3.0], &free, MAX_STEPS, |p| if p[0] < 2.0 { f64::NAN } else { p[0] });
        assert!((found.point[0] - 2.0).abs() < 1e-2, "{found:?}");
        assert_eq!(minimize(&[], &[], MAX_STEPS, |_| 5.0).value, 5.0);
    }
}
