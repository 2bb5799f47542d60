//! Local outlier factor (Breunig, Kriegel, Ng, Sander 2000), applied to new rows.
//!
//! The density of a row is 1 / (the mean reachability distance to its neighbours + 10⁻¹⁰). Its factor is the mean density of its
//! neighbours by its own. A new row has its neighbours among the training rows, whose densities stay as they were.

use std::sync::atomic::AtomicBool;

use millrace_forecast::check_cancelled;

use crate::artefact::{ArtefactReader, ArtefactWriter, corrupt};
use crate::error::Result;
use crate::points::{Neighbor, Points};

/// Rows that are compared with each other, at most.
pub(crate) const MAX_NEIGHBOR_ROWS: usize = 16_384;
/// Neighbours of all rows together, at most.
const MAX_NEIGHBOR_LISTS: usize = 4 << 20;
/// Distance that keeps densities of equal rows finite.
const LEAST_REACH: f64 = 1e-10;

/// Training rows with their densities.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LocalOutlierFactor {
    neighbors: usize,
    points: Points,
    /// Distance of each row to the last of its neighbours.
    radii: Vec<f64>,
    densities: Vec<f64>,
}

/// Returns how many rows a model with so many neighbours keeps at most.
pub(crate) fn max_rows(neighbors: usize) -> usize {
    MAX_NEIGHBOR_ROWS.min(MAX_NEIGHBOR_LISTS / neighbors.max(1))
}

impl LocalOutlierFactor {
    /// Computes the densities of points, and the factors of the same.
    pub(crate) fn fit(points: Points, neighbors: usize, cancelled: &AtomicBool) -> Result<(Self, Vec<f64>)> {
        let neighbors = neighbors.min(points.len() - 1);
        let (mut point, mut distances) = (Vec::new(), Vec::new());
        let mut lists = Vec::with_capacity(points.len());
        for row in 0..points.len() {
            check_cancelled(cancelled)?;
            points.read(row, &mut point);
            lists.push(points.nearest(&point, neighbors, Some(row), &mut distances));
        }
        let radii = lists.iter().map(|list| list.last().map_or(0.0, |last| last.distance)).collect();
        let mut model = Self { neighbors, points, radii, densities: Vec::new() };
        model.densities = lists.iter().map(|list| model.density(list)).collect();
        let factors =
            lists.iter().zip(&model.densities).map(|(list, own)| model.factor(list, *own)).collect();
        Ok((model, factors))
    }

    fn density(&self, list: &[Neighbor]) -> f64 {
        let reach = |near: &Neighbor| self.radii[near.index as usize].max(near.distance);
        let mean = list.iter().map(reach).sum::<f64>() / list.len() as f64;
        1.0 / (mean + LEAST_REACH)
    }

    fn factor(&self, list: &[Neighbor], own: f64) -> f64 {
        let ratio = |near: &Neighbor| self.densities[near.index as usize] / own;
        list.iter().map(ratio).sum::<f64>() / list.len() as f64
    }

    /// Scores a new point. Contributions are the squared differences from its neighbours.
    pub(crate) fn score(&self, point: &[f64], contributions: &mut [f64]) -> f64 {
        let list = self.points.nearest(point, self.neighbors, None, &mut Vec::new());
        for (dimension, contribution) in contributions.iter_mut().enumerate() {
            let column = self.points.column(dimension);
            for near in &list {
                let difference = point[dimension] - column[near.index as usize];
                *contribution += difference * difference;
            }
        }
        self.factor(&list, self.density(&list))
    }

    pub(crate) fn encode(&self, out: &mut ArtefactWriter) {
        out.count(self.neighbors);
        self.points.encode(out);
        out.f64s(&self.radii);
        out.f64s(&self.densities);
    }

    pub(crate) fn decode(from: &mut ArtefactReader<'_>, dimensions: usize) -> Result<Self> {
        let neighbors = from.u32()? as usize;
        let points = Points::decode(from, dimensions, MAX_NEIGHBOR_ROWS)?;
        if neighbors == 0 || neighbors >= points.len() {
            return Err(corrupt("it has fewer rows than neighbours"));
        }
        let (radii, densities) = (from.exact_finites(points.len())?, from.exact_finites(points.len())?);
        Ok(Self { neighbors, points, radii, densities })
    }
}
