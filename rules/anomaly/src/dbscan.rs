//! DBSCAN (Ester, Kriegel, Sander, Xu 1996): clusters of core rows, which have enough rows around them.
//!
//! A core row has `min_samples` rows within `eps`, itself among them. A row that is none belongs to the first cluster that reaches it,
//! else it is noise. A new row belongs to the cluster of the nearest core row within `eps`; its score is that distance by `eps`.

use std::sync::atomic::AtomicBool;

use millrace_forecast::check_cancelled;

use crate::artefact::{ArtefactReader, ArtefactWriter, corrupt};
use crate::error::{Error, Result};
use crate::points::Points;

/// Rows that are compared with each other, at most.
pub(crate) const MAX_DENSITY_ROWS: usize = 16_384;

/// Core rows of clusters.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Dbscan {
    eps: f64,
    cores: Points,
    /// Cluster of each core row.
    clusters: Vec<u32>,
    count: usize,
}

impl Dbscan {
    /// Finds clusters; returns them with the cluster of each point.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] where no row is a core row.
    pub(crate) fn fit(
        points: &Points,
        eps: Option<f64>,
        min_samples: usize,
        cancelled: &AtomicBool,
    ) -> Result<(Self, Vec<Option<u32>>)> {
        let eps = match eps {
            Some(eps) => eps,
            None => choose_eps(points, min_samples, cancelled)?,
        };
        let (mut point, mut distances) = (Vec::new(), Vec::new());
        let mut is_core = vec![false; points.len()];
        for (row, core) in is_core.iter_mut().enumerate() {
            check_cancelled(cancelled)?;
            points.read(row, &mut point);
            points.squared_distances(&point, &mut distances);
            *core = distances.iter().filter(|square| square.sqrt() <= eps).count() >= min_samples;
        }
        let mut labels: Vec<Option<u32>> = vec![None; points.len()];
        let mut count = 0_u32;
        let mut pending = Vec::new();
        for first in 0..points.len() {
            if labels[first].is_some() || !is_core[first] {
                continue;
            }
            labels[first] = Some(count);
            pending.push(first);
            while let Some(row) = pending.pop() {
                check_cancelled(cancelled)?;
                points.read(row, &mut point);
                points.squared_distances(&point, &mut distances);
                for (near, square) in distances.iter().enumerate() {
                    if labels[near].is_none() && square.sqrt() <= eps {
                        labels[near] = Some(count);
                        if is_core[near] {
                            pending.push(near);
                        }
                    }
                }
            }
            count += 1;
        }
        let cores: Vec<usize> = (0..points.len()).filter(|row| is_core[*row]).collect();
        if cores.is_empty() {
            let (parameter, allowed) = ("min_samples", "a number of rows that some row has around it");
            return Err(Error::InvalidParameter { parameter, allowed, value: min_samples.to_string() });
        }
        let column = |dimension: usize| cores.iter().map(|row| points.column(dimension)[*row]).collect();
        let core_points = Points::new((0..points.dimensions()).map(column).collect());
        let clusters = cores.iter().filter_map(|row| labels[*row]).collect();
        Ok((Self { eps, cores: core_points, clusters, count: count as usize }, labels))
    }

    /// Scores a point, and returns its cluster. Contributions are the squared differences from the nearest core row.
    pub(crate) fn score(&self, point: &[f64], contributions: &mut [f64]) -> (f64, Option<u32>) {
        let nearest = self.cores.nearest(point, 1, None, &mut Vec::new());
        let Some(nearest) = nearest.first() else { return (f64::MAX, None) };
        for (dimension, contribution) in contributions.iter_mut().enumerate() {
            let difference = point[dimension] - self.cores.column(dimension)[nearest.index as usize];
            *contribution = difference * difference;
        }
        let is_near = nearest.distance <= self.eps;
        (nearest.distance / self.eps, is_near.then(|| self.clusters[nearest.index as usize]))
    }

    pub(crate) fn clusters(&self) -> usize {
        self.count
    }

    pub(crate) fn encode(&self, out: &mut ArtefactWriter) {
        out.f64(self.eps);
        out.count(self.count);
        self.cores.encode(out);
        out.u32s(&self.clusters);
    }

    pub(crate) fn decode(from: &mut ArtefactReader<'_>, dimensions: usize) -> Result<Self> {
        let (eps, count) = (from.finite()?, from.u32()? as usize);
        let cores = Points::decode(from, dimensions, MAX_DENSITY_ROWS)?;
        let clusters = from.u32s(MAX_DENSITY_ROWS)?;
        let is_known = |cluster: &u32| (*cluster as usize) < count;
        if eps <= 0.0 || clusters.len() != cores.len() || !clusters.iter().all(is_known) {
            return Err(corrupt("a core row has no cluster"));
        }
        Ok(Self { eps, cores, clusters, count })
    }
}

/// Chooses `eps`: the distance to the last of `min_samples` rows, where the sorted distances of all rows bend most below their chord.
fn choose_eps(points: &Points, min_samples: usize, cancelled: &AtomicBool) -> Result<f64> {
    let (mut point, mut distances) = (Vec::new(), Vec::new());
    let mut sorted: Vec<f64> = (0..points.len())
        .map(|row| {
            check_cancelled(cancelled)?;
            points.read(row, &mut point);
            let nearest = points.nearest(&point, min_samples, None, &mut distances);
            Ok(nearest.last().map_or(0.0, |last| last.distance))
        })
        .collect::<Result<_>>()?;
    sorted.sort_unstable_by(f64::total_cmp);
    let (first, last) = (sorted[0], sorted[sorted.len() - 1]);
    let steps = (sorted.len() - 1).max(1) as f64;
    let below = |place: usize| first + (last - first) * place as f64 / steps - sorted[place];
    let mut knee = 0;
    for place in 0..sorted.len() {
        if below(place) > below(knee) {
            knee = place;
        }
    }
    match sorted[knee..].iter().find(|distance| **distance > 0.0) {
        Some(distance) => Ok(*distance),
        None => Ok(1.0),
    }
}
