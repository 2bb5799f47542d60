//! [`PlanarProjection`]: rows on the first two principal components, for pictures.

use crate::artefact::{ArtefactReader, ArtefactWriter, corrupt};
use crate::error::Result;
use crate::points::Points;

/// Training rows that a projection has, at most.
pub const MAX_PROJECTED_ROWS: usize = 2_000;
/// Sweeps of the Jacobi method, which needs about ten.
const MAX_SWEEPS: usize = 60;

/// Projection on the two directions of largest variance.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanarProjection {
    means: Vec<f64>,
    axes: [Vec<f64>; 2],
    /// Share of the variance that each axis has.
    pub explained: [f64; 2],
    /// Training rows, at most [`MAX_PROJECTED_ROWS`].
    pub points: Vec<ProjectedRow>,
}

/// A training row in the plane.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProjectedRow {
    /// Place along the first axis.
    pub x: f64,
    /// Place along the second axis; 0 where rows have one dimension.
    pub y: f64,
    /// Rank of the row among the training rows.
    pub rank: f64,
    /// Cluster of the row; `None` is noise, or a model without clusters.
    pub cluster: Option<u32>,
}

impl PlanarProjection {
    /// Fits the axes to points.
    pub(crate) fn fit(points: &Points) -> Self {
        let (dimensions, count) = (points.dimensions(), points.len() as f64);
        let mean = |dimension: usize| points.column(dimension).iter().sum::<f64>() / count;
        let means: Vec<f64> = (0..dimensions).map(mean).collect();
        let mut covariance = vec![vec![0.0; dimensions]; dimensions];
        for one in 0..dimensions {
            for other in 0..=one {
                let pairs = points.column(one).iter().zip(points.column(other));
                let total: f64 = pairs.map(|(a, b)| (a - means[one]) * (b - means[other])).sum();
                covariance[one][other] = total / count;
                covariance[other][one] = total / count;
            }
        }
        let (values, vectors) = eigenvectors(covariance);
        let mut order: Vec<usize> = (0..dimensions).collect();
        order.sort_by(|one, other| values[*other].total_cmp(&values[*one]));
        let total: f64 = values.iter().map(|value| value.max(0.0)).sum();
        let axis = |place: usize| match order.get(place) {
            Some(at) => oriented(vectors.iter().map(|row| row[*at]).collect()),
            None => vec![0.0; dimensions],
        };
        let share = |place: usize| match order.get(place) {
            Some(at) if total > 0.0 && total.is_finite() => values[*at].max(0.0) / total,
            _ => 0.0,
        };
        Self { means, axes: [axis(0), axis(1)], explained: [share(0), share(1)], points: Vec::new() }
    }

    pub(crate) fn project(&self, point: &[f64]) -> [f64; 2] {
        let place = |axis: &Vec<f64>| {
            let terms = axis.iter().zip(point.iter().zip(&self.means));
            let sum: f64 = terms.map(|(weight, (value, mean))| weight * (value - mean)).sum();
            sum.clamp(-1e200, 1e200)
        };
        [place(&self.axes[0]), place(&self.axes[1])]
    }

    pub(crate) fn encode(&self, out: &mut ArtefactWriter) {
        out.f64s(&self.means);
        self.axes.iter().for_each(|axis| out.f64s(axis));
        out.f64(self.explained[0]);
        out.f64(self.explained[1]);
        out.count(self.points.len());
        for point in &self.points {
            out.f64(point.x);
            out.f64(point.y);
            out.f64(point.rank);
            out.cluster(point.cluster);
        }
    }

    pub(crate) fn decode(from: &mut ArtefactReader<'_>, dimensions: usize, clusters: usize) -> Result<Self> {
        let means = from.exact_finites(dimensions)?;
        let axes = [from.exact_finites(dimensions)?, from.exact_finites(dimensions)?];
        let explained = [from.finite()?, from.finite()?];
        let count = from.count(MAX_PROJECTED_ROWS, 28)?;
        let mut points = Vec::with_capacity(count);
        for _ in 0..count {
            let (x, y, rank) = (from.finite()?, from.finite()?, from.finite()?);
            if !(0.0..=1.0).contains(&rank) {
                return Err(corrupt("a rank is not from 0 to 1"));
            }
            points.push(ProjectedRow { x, y, rank, cluster: from.cluster(clusters)? });
        }
        Ok(Self { means, axes, explained, points })
    }
}

/// Gives an axis the direction in which its largest weight is positive.
fn oriented(mut axis: Vec<f64>) -> Vec<f64> {
    let largest =
        axis.iter().copied().fold(0.0_f64, |one, other| if other.abs() > one.abs() { other } else { one });
    if largest < 0.0 {
        axis.iter_mut().for_each(|weight| *weight = -*weight);
    }
    axis
}

/// Returns eigenvalues and eigenvectors (as columns) of a symmetric matrix by the cyclic Jacobi method.
fn eigenvectors(mut matrix: Vec<Vec<f64>>) -> (Vec<f64>, Vec<Vec<f64>>) {
    let count = matrix.len();
    let mut vectors = vec![vec![0.0; count]; count];
    (0..count).for_each(|at| vectors[at][at] = 1.0);
    for _ in 0..MAX_SWEEPS {
        let square = |row: usize, column: usize| matrix[row][column] * matrix[row][column];
        let off: f64 = (0..count)
            .flat_map(|row| (0..row).map(move |column| (row, column)))
            .map(|(r, c)| square(r, c))
            .sum();
        let diagonal: f64 = (0..count).map(|at| square(at, at)).sum();
        // A matrix that is not finite has no such sum, and ends the sweeps.
        let is_coupled = off > diagonal * 1e-30;
        if !is_coupled {
            break;
        }
        for p in 0..count {
            for q in p + 1..count {
                rotate(&mut matrix, &mut vectors, p, q);
            }
        }
    }
    ((0..count).map(|at| matrix[at][at]).collect(), vectors)
}

/// Turns two axes so that their covariance is 0.
fn rotate(matrix: &mut [Vec<f64>], vectors: &mut [Vec<f64>], p: usize, q: usize) {
    if matrix[p][q] == 0.0 {
        return;
    }
    let theta = (matrix[q][q] - matrix[p][p]) / (2.0 * matrix[p][q]);
    let sign = if theta >= 0.0 { 1.0 } else { -1.0 };
    let tangent = sign / (theta.abs() + (theta * theta + 1.0).sqrt());
    let cosine = 1.0 / (tangent * tangent + 1.0).sqrt();
    let sine = tangent * cosine;
    for row in matrix.iter_mut() {
        let (one, other) = (row[p], row[q]);
        (row[p], row[q]) = (cosine * one - sine * other, sine * one + cosine * other);
    }
    let (above, below) = matrix.split_at_mut(q);
    for (one, other) in above[p].iter_mut().zip(&mut below[0]) {
        (*one, *other) = (cosine * *one - sine * *other, sine * *one + cosine * *other);
    }
    for row in vectors.iter_mut() {
        let (one, other) = (row[p], row[q]);
        (row[p], row[q]) = (cosine * one - sine * other, sine * one + cosine * other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_axis_has_the_largest_variance() {
        let along: Vec<f64> = (0..100).map(f64::from).collect();
        let across: Vec<f64> = (0..100).map(|at| f64::from(at % 3)).collect();
        let columns = vec![
            along.iter().zip(&across).map(|(a, b)| 0.6 * a - 0.8 * b).collect(),
            along.iter().zip(&across).map(|(a, b)| 0.8 * a + 0.6 * b).collect(),
        ];
        let projection = PlanarProjection::fit(&Points::new(columns));
        assert!(projection.explained[0] > 0.99 && projection.explained.iter().sum::<f64>() > 0.999_999);
        assert!((projection.axes[0][0].abs() - 0.6).abs() < 0.01, "{:?}", projection.axes);
        let one = PlanarProjection::fit(&Points::new(vec![along]));
        assert_eq!(one.project(&[50.5]), [1.0, 0.0]);
    }
}
