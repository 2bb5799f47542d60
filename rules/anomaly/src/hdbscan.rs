//! HDBSCAN (Campello, Moulavi, Sander 2013): clusters that last longest while the density threshold rises.
//!
//! The core distance of a row reaches the last of `min_samples` rows, itself among them. Two rows have the largest of their core distances
//! and their distance between them. The minimum spanning tree of that distance gives the hierarchy (`condensed_tree`). A new row
//! joins the cluster of its nearest row. Its score is 1 − λ/λmax (GLOSH): λ is 1 by that distance, λmax the largest λ of the cluster.

use std::sync::atomic::AtomicBool;

use millrace_forecast::check_cancelled;

use crate::artefact::{ArtefactReader, ArtefactWriter, corrupt};
use crate::condensed_tree::{CondensedTree, TreeEdge};
use crate::dbscan::MAX_DENSITY_ROWS;
use crate::error::Result;
use crate::points::Points;

/// Largest λ, which keeps stabilities of equal rows finite.
pub(crate) const MAX_LAMBDA: f64 = 1e100;

/// Training rows with their clusters.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Hdbscan {
    min_samples: usize,
    points: Points,
    core_distances: Vec<f64>,
    labels: Vec<Option<u32>>,
    /// λ at which each cluster begins.
    births: Vec<f64>,
    /// λmax of each row's cluster, or of the densest one below its place in the hierarchy where it is noise.
    max_lambdas: Vec<f64>,
}

impl Hdbscan {
    /// Finds clusters; returns them with the cluster of each point.
    pub(crate) fn fit(
        points: &Points,
        min_samples: usize,
        cancelled: &AtomicBool,
    ) -> Result<(Self, Vec<Option<u32>>)> {
        let (mut point, mut distances) = (Vec::new(), Vec::new());
        let mut core_distances = Vec::with_capacity(points.len());
        for row in 0..points.len() {
            check_cancelled(cancelled)?;
            points.read(row, &mut point);
            let nearest = points.nearest(&point, min_samples.min(points.len()), None, &mut distances);
            core_distances.push(nearest.last().map_or(0.0, |last| last.distance));
        }
        let mut edges = spanning_tree(points, &core_distances, cancelled)?;
        edges.sort_by(|one, other| one.distance.total_cmp(&other.distance));
        let tree = CondensedTree::new(points.len(), &edges, min_samples.max(2));
        let (labels, births, max_lambdas) = tree.select();
        let model = Self {
            min_samples,
            points: points.clone(),
            core_distances,
            labels: labels.clone(),
            births,
            max_lambdas,
        };
        Ok((model, labels))
    }

    /// Scores a new point, and returns its cluster.
    pub(crate) fn score(&self, point: &[f64], contributions: &mut [f64]) -> (f64, Option<u32>) {
        self.score_without(point, None, contributions)
    }

    /// Scores a training row as if it were new.
    pub(crate) fn training_score(&self, row: usize) -> f64 {
        let mut point = Vec::new();
        self.points.read(row, &mut point);
        let mut contributions = vec![0.0; point.len()];
        self.score_without(&point, Some(row), &mut contributions).0
    }

    fn score_without(
        &self,
        point: &[f64],
        skip: Option<usize>,
        contributions: &mut [f64],
    ) -> (f64, Option<u32>) {
        let mut squares = Vec::new();
        // The row itself is one of `min_samples`, and one neighbour is needed in any case.
        let count = (self.min_samples - 1).clamp(1, self.points.len());
        let near = self.points.nearest(point, count, skip, &mut squares);
        let core = near.last().map_or(0.0, |last| last.distance);
        let mut best = (f64::INFINITY, f64::INFINITY, 0);
        let mut nearest_member: Option<usize> = None;
        for (row, square) in squares.iter().enumerate() {
            let distance = square.sqrt();
            let reach = distance.max(core).max(self.core_distances[row]);
            if Some(row) != skip && (reach, distance) < (best.0, best.1) {
                best = (reach, distance, row);
            }
            if self.labels[row].is_some() && nearest_member.is_none_or(|nearest| *square < squares[nearest]) {
                nearest_member = Some(row);
            }
        }
        let (reach, _, row) = best;
        // Noise often lies near other noise: its oddness is its difference from the nearest cluster.
        let member = nearest_member.unwrap_or(row);
        for (dimension, contribution) in contributions.iter_mut().enumerate() {
            let difference = point[dimension] - self.points.column(dimension)[member];
            *contribution = difference * difference;
        }
        let lambda = lambda(reach);
        let max_lambda = self.max_lambdas[row].max(lambda);
        let label = self.labels[row].filter(|label| lambda >= self.births[*label as usize]);
        (1.0 - lambda / max_lambda, label)
    }

    pub(crate) fn clusters(&self) -> usize {
        self.births.len()
    }

    pub(crate) fn encode(&self, out: &mut ArtefactWriter) {
        out.count(self.min_samples);
        self.points.encode(out);
        out.f64s(&self.core_distances);
        out.f64s(&self.births);
        out.f64s(&self.max_lambdas);
        self.labels.iter().for_each(|label| out.cluster(*label));
    }

    pub(crate) fn decode(from: &mut ArtefactReader<'_>, dimensions: usize) -> Result<Self> {
        let min_samples = from.u32()? as usize;
        let points = Points::decode(from, dimensions, MAX_DENSITY_ROWS)?;
        let core_distances = from.exact_finites(points.len())?;
        let births = from.finites(points.len())?;
        let max_lambdas = from.exact_finites(points.len())?;
        if min_samples == 0 || min_samples > points.len() || max_lambdas.iter().any(|lambda| *lambda <= 0.0) {
            return Err(corrupt("its densities are wrong"));
        }
        let labels = (0..points.len()).map(|_| from.cluster(births.len())).collect::<Result<_>>()?;
        Ok(Self { min_samples, points, core_distances, labels, births, max_lambdas })
    }
}

pub(crate) fn lambda(distance: f64) -> f64 {
    if distance > 0.0 { (1.0 / distance).min(MAX_LAMBDA) } else { MAX_LAMBDA }
}

/// Grows the minimum spanning tree of mutual reachability from the first row (Prim 1957). It keeps one distance a row.
fn spanning_tree(points: &Points, core_distances: &[f64], cancelled: &AtomicBool) -> Result<Vec<TreeEdge>> {
    let count = points.len();
    let mut in_tree = vec![false; count];
    let mut reach = vec![f64::INFINITY; count];
    let mut sources = vec![0_u32; count];
    let mut edges = Vec::with_capacity(count.saturating_sub(1));
    let (mut point, mut squares) = (Vec::new(), Vec::new());
    let mut current = 0;
    for _ in 1..count {
        check_cancelled(cancelled)?;
        in_tree[current] = true;
        points.read(current, &mut point);
        points.squared_distances(&point, &mut squares);
        let core = core_distances[current];
        let mut nearest = f64::INFINITY;
        let mut next = (0, 0);
        for row in 0..count {
            if in_tree[row] {
                continue;
            }
            let distance = squares[row].sqrt().max(core).max(core_distances[row]);
            if distance < reach[row] {
                reach[row] = distance;
                sources[row] = current as u32;
            }
            if reach[row] < nearest {
                nearest = reach[row];
                next = (sources[row] as usize, row);
            }
        }
        edges.push(TreeEdge { from: next.0, to: next.1, distance: nearest });
        current = next.1;
    }
    Ok(edges)
}
