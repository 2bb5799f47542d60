//! k-means (Lloyd 1982) from the best of ten greedy k-means++ starts (Arthur and Vassilvitskii 2007).
//!
//! Scores follow CBLOF (He, Xu, Deng 2003): clusters are large, from the largest down, until they have nine tenths of the rows. The
//! score of a row is its distance to its centre, by the root mean square of such distances within the cluster. A row of a small cluster
//! is measured against the nearest centre of a large one.

use std::sync::atomic::AtomicBool;

use millrace_forecast::{Random, check_cancelled};

use crate::artefact::{ArtefactReader, ArtefactWriter, corrupt};
use crate::error::Result;
use crate::points::Points;

/// Rows that centres are fitted to, at most.
pub(crate) const MAX_KMEANS_ROWS: usize = 65_536;
/// Starts, of which the one with the least inertia stays.
const STARTS: u64 = 10;
const MAX_ITERATIONS: usize = 300;
/// Share of the mean variance below which a move of the centres ends the iteration.
const TOLERANCE: f64 = 1e-4;
/// Share of the rows that large clusters have together.
const LARGE_SHARE: f64 = 0.9;

/// Centres of clusters.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KMeans {
    /// One point per cluster.
    centers: Points,
    /// Root mean square distance of each cluster's rows to its centre.
    radii: Vec<f64>,
    is_large: Vec<bool>,
}

/// Rows with the squared distance to their centre.
struct Assignment {
    clusters: Vec<u32>,
    squares: Vec<f64>,
}

impl Assignment {
    fn inertia(&self) -> f64 {
        self.squares.iter().sum()
    }
}

impl KMeans {
    /// Fits centres; returns them with the cluster of each point.
    pub(crate) fn fit(
        points: &Points,
        clusters: usize,
        seed: u64,
        cancelled: &AtomicBool,
    ) -> Result<(Self, Vec<u32>)> {
        let mut best: Option<(Vec<Vec<f64>>, Assignment)> = None;
        for start in 0..STARTS {
            let mut random = Random::new(seed ^ millrace_forecast::mix(start));
            let centers = choose_centers(points, clusters, &mut random, cancelled)?;
            let (centers, assignment) = iterate(points, centers, cancelled)?;
            if best.as_ref().is_none_or(|(_, other)| assignment.inertia() < other.inertia()) {
                best = Some((centers, assignment));
            }
        }
        let (centers, assignment) = match best {
            Some(best) => best,
            None => (Vec::new(), assign(points, &[], cancelled)?),
        };
        let mut counts = vec![0_u32; centers.len()];
        let mut totals = vec![0.0; centers.len()];
        for (cluster, square) in assignment.clusters.iter().zip(&assignment.squares) {
            counts[*cluster as usize] += 1;
            totals[*cluster as usize] += square;
        }
        let overall = (assignment.inertia() / points.len() as f64).sqrt();
        let least = if overall > 0.0 { overall * 1e-3 } else { 1.0 };
        let radius = |(total, count): (&f64, &u32)| (total / f64::from((*count).max(1))).sqrt().max(least);
        let radii = totals.iter().zip(&counts).map(radius).collect();
        let column = |dimension: usize| centers.iter().map(|center| center[dimension]).collect();
        let centers = Points::new((0..points.dimensions()).map(column).collect());
        let is_large = find_large(&counts);
        Ok((Self { centers, radii, is_large }, assignment.clusters))
    }

    /// Scores a point, and returns its cluster. Contributions are the squared differences from the centre.
    pub(crate) fn score(&self, point: &[f64], contributions: &mut [f64]) -> (f64, u32) {
        let mut squares = Vec::new();
        self.centers.squared_distances(point, &mut squares);
        let mut nearest = 0;
        for (cluster, square) in squares.iter().enumerate() {
            if *square < squares[nearest] {
                nearest = cluster;
            }
        }
        let mut measured = nearest;
        if !self.is_large[nearest] {
            let large = (0..squares.len()).filter(|cluster| self.is_large[*cluster]);
            measured =
                large.min_by(|one, other| squares[*one].total_cmp(&squares[*other])).unwrap_or(nearest);
        }
        for (dimension, contribution) in contributions.iter_mut().enumerate() {
            let difference = point[dimension] - self.centers.column(dimension)[measured];
            *contribution = difference * difference;
        }
        (squares[measured].sqrt() / self.radii[measured], nearest as u32)
    }

    pub(crate) fn clusters(&self) -> usize {
        self.radii.len()
    }

    pub(crate) fn encode(&self, out: &mut ArtefactWriter) {
        self.centers.encode(out);
        out.f64s(&self.radii);
        self.is_large.iter().for_each(|is_large| out.u8((*is_large).into()));
    }

    pub(crate) fn decode(from: &mut ArtefactReader<'_>, dimensions: usize) -> Result<Self> {
        let centers = Points::decode(from, dimensions, crate::MAX_CLUSTERS)?;
        let radii = from.exact_finites(centers.len())?;
        if radii.iter().any(|radius| *radius <= 0.0) {
            return Err(corrupt("the radius of a cluster is not positive"));
        }
        let is_large = (0..radii.len()).map(|_| Ok(from.u8()? == 1)).collect::<Result<_>>()?;
        Ok(Self { centers, radii, is_large })
    }
}

/// Marks clusters as large, from the largest down, until these have [`LARGE_SHARE`] of the rows.
fn find_large(counts: &[u32]) -> Vec<bool> {
    let total: u32 = counts.iter().sum();
    let mut order: Vec<usize> = (0..counts.len()).collect();
    order.sort_by_key(|cluster| std::cmp::Reverse(counts[*cluster]));
    let mut is_large = vec![false; counts.len()];
    let mut rows = 0;
    for cluster in order {
        if f64::from(rows) >= LARGE_SHARE * f64::from(total) {
            break;
        }
        is_large[cluster] = true;
        rows += counts[cluster];
    }
    is_large
}

/// Draws centres: each is the best of 2 + ln(k) candidates, drawn by their squared distance to the centres before.
fn choose_centers(
    points: &Points,
    clusters: usize,
    random: &mut Random,
    cancelled: &AtomicBool,
) -> Result<Vec<Vec<f64>>> {
    let candidates = 2 + libm::log(clusters as f64) as usize;
    let mut center = Vec::new();
    points.read(random.below(points.len() as u32) as usize, &mut center);
    let mut closest = Vec::new();
    points.squared_distances(&center, &mut closest);
    let mut centers = vec![center];
    let mut distances = Vec::new();
    while centers.len() < clusters {
        check_cancelled(cancelled)?;
        let total: f64 = closest.iter().sum();
        let mut best: Option<(f64, Vec<f64>, Vec<f64>)> = None;
        for _ in 0..candidates {
            let mut left = random.uniform() * total;
            let drawn = closest.iter().position(|square| {
                left -= square;
                left < 0.0
            });
            let drawn = drawn.unwrap_or_else(|| random.below(points.len() as u32) as usize);
            let mut candidate = Vec::new();
            points.read(drawn, &mut candidate);
            points.squared_distances(&candidate, &mut distances);
            let merged: Vec<f64> =
                distances.iter().zip(&closest).map(|(one, other)| one.min(*other)).collect();
            let potential: f64 = merged.iter().sum();
            if best.as_ref().is_none_or(|(least, ..)| potential < *least) {
                best = Some((potential, candidate, merged));
            }
        }
        let Some((_, candidate, merged)) = best else { break };
        centers.push(candidate);
        closest = merged;
    }
    Ok(centers)
}

/// Moves centres to the means of their rows until they rest.
fn iterate(
    points: &Points,
    mut centers: Vec<Vec<f64>>,
    cancelled: &AtomicBool,
) -> Result<(Vec<Vec<f64>>, Assignment)> {
    let tolerance = TOLERANCE * mean_variance(points);
    let mut assignment = assign(points, &centers, cancelled)?;
    for _ in 0..MAX_ITERATIONS {
        let moved = move_centers(points, &mut centers, &assignment);
        let next = assign(points, &centers, cancelled)?;
        let rests = next.clusters == assignment.clusters;
        assignment = next;
        if rests || moved <= tolerance {
            break;
        }
    }
    Ok((centers, assignment))
}

fn mean_variance(points: &Points) -> f64 {
    let count = points.len() as f64;
    let variance = |dimension: usize| {
        let column = points.column(dimension);
        let mean = column.iter().sum::<f64>() / count;
        column.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / count
    };
    (0..points.dimensions()).map(variance).sum::<f64>() / points.dimensions() as f64
}

fn assign(points: &Points, centers: &[Vec<f64>], cancelled: &AtomicBool) -> Result<Assignment> {
    let mut clusters = vec![0_u32; points.len()];
    let mut squares = vec![f64::INFINITY; points.len()];
    let mut distances = Vec::new();
    for (cluster, center) in centers.iter().enumerate() {
        check_cancelled(cancelled)?;
        points.squared_distances(center, &mut distances);
        for ((own, least), distance) in clusters.iter_mut().zip(&mut squares).zip(&distances) {
            if *distance < *least {
                *least = *distance;
                *own = cluster as u32;
            }
        }
    }
    Ok(Assignment { clusters, squares })
}

/// Moves each centre to the mean of its rows, and one without rows to the row that is farthest from its own. Returns the sum of squared moves.
fn move_centers(points: &Points, centers: &mut [Vec<f64>], assignment: &Assignment) -> f64 {
    let mut counts = vec![0_u32; centers.len()];
    assignment.clusters.iter().for_each(|cluster| counts[*cluster as usize] += 1);
    let mut means = vec![vec![0.0; points.dimensions()]; centers.len()];
    let columns = (0..points.dimensions()).map(|dimension| points.column(dimension));
    for (dimension, column) in columns.enumerate() {
        for (value, cluster) in column.iter().zip(&assignment.clusters) {
            means[*cluster as usize][dimension] += value;
        }
    }
    let mut farthest: Vec<usize> = Vec::new();
    let mut moved = 0.0;
    for (cluster, mut mean) in means.into_iter().enumerate() {
        if counts[cluster] == 0 {
            let rows = (0..points.len()).filter(|row| !farthest.contains(row));
            let square = |row: &usize| assignment.squares[*row];
            let Some(row) = rows.max_by(|one, other| square(one).total_cmp(&square(other))) else { continue };
            farthest.push(row);
            points.read(row, &mut mean);
        } else {
            mean.iter_mut().for_each(|value| *value /= f64::from(counts[cluster]));
        }
        moved +=
            mean.iter().zip(&centers[cluster]).map(|(one, other)| (one - other) * (one - other)).sum::<f64>();
        centers[cluster] = mean;
    }
    moved
}
