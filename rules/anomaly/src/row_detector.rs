//! [`RowDetector`]: the algorithms that find odd rows and clusters, with their parameters.

use std::sync::atomic::AtomicBool;

use millrace_forecast::check_cancelled;

use crate::dbscan::{Dbscan, MAX_DENSITY_ROWS};
use crate::error::{Error, Result};
use crate::features::{FeatureSpace, Scaling};
use crate::hdbscan::Hdbscan;
use crate::isolation_forest::{IsolationForest, MAX_SAMPLE, MAX_TREES};
use crate::kmeans::{KMeans, MAX_KMEANS_ROWS};
use crate::local_outlier_factor::{LocalOutlierFactor, max_rows};
use crate::points::Points;
use crate::profile::profile_clusters;
use crate::projection::{MAX_PROJECTED_ROWS, PlanarProjection, ProjectedRow};
use crate::rank::{MAX_REFERENCE, ReferenceScores};
use crate::row_model::{RowAlgorithm, RowModel};
use crate::table::FeatureTable;
use crate::{MAX_CLUSTERS, MAX_NEIGHBORS};

/// Detector of odd rows, with its parameters.
#[derive(Clone, Debug, PartialEq)]
pub enum RowDetector {
    /// Isolation forest.
    IsolationForest {
        /// Number of trees.
        trees: usize,
        /// Rows that each tree is grown on.
        sample: usize,
    },
    /// Local outlier factor.
    LocalOutlierFactor {
        /// Number of neighbours that a row is compared with.
        neighbors: usize,
    },
    /// k-means.
    KMeans {
        /// Number of clusters.
        clusters: usize,
    },
    /// DBSCAN.
    Dbscan {
        /// Radius of a neighbourhood; chosen from the distances where it is `None`.
        eps: Option<f64>,
        /// Rows of the neighbourhood of a core row, itself among them.
        min_samples: usize,
    },
    /// HDBSCAN.
    Hdbscan {
        /// Rows of a neighbourhood, and the least size of a cluster.
        min_samples: usize,
    },
}

/// Rows whose model is trained, with the score of each and its cluster.
struct TrainedRows {
    algorithm: RowAlgorithm,
    labels: Option<Vec<Option<u32>>>,
    /// Scores of the rows, where training computes them.
    scores: Option<Vec<f64>>,
}

impl RowDetector {
    /// Returns the name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::IsolationForest { .. } => "isolation_forest",
            Self::LocalOutlierFactor { .. } => "local_outlier_factor",
            Self::KMeans { .. } => "kmeans",
            Self::Dbscan { .. } => "dbscan",
            Self::Hdbscan { .. } => "hdbscan",
        }
    }

    /// Returns the detector of a name with its default parameters.
    pub fn default_of(name: &str) -> Option<Self> {
        Some(match name {
            "isolation_forest" => Self::IsolationForest { trees: 100, sample: 256 },
            "local_outlier_factor" => Self::LocalOutlierFactor { neighbors: 20 },
            "kmeans" => Self::KMeans { clusters: 8 },
            "dbscan" => Self::Dbscan { eps: None, min_samples: 5 },
            "hdbscan" => Self::Hdbscan { min_samples: 5 },
            _ => return None,
        })
    }

    /// Returns whether the model has clusters.
    pub fn is_clustering(&self) -> bool {
        matches!(self, Self::KMeans { .. } | Self::Dbscan { .. } | Self::Hdbscan { .. })
    }

    /// Returns the number of rows that training needs.
    pub fn min_rows(&self) -> usize {
        match self {
            Self::IsolationForest { .. } => 8,
            Self::LocalOutlierFactor { neighbors } => neighbors.saturating_add(1),
            Self::KMeans { clusters } => (*clusters).max(2),
            Self::Dbscan { min_samples, .. } | Self::Hdbscan { min_samples } => (*min_samples).max(2),
        }
    }

    /// Trains a model on robustly scaled features. A large table takes seconds: no thread that serves requests trains.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`], [`Error::TooFew`], [`Error::AllMissing`], [`Error::Constant`].
    pub fn train(&self, table: &FeatureTable, seed: u64) -> Result<RowModel> {
        self.train_scaled(table, seed, Scaling::Robust)
    }

    /// Trains a model as [`RowDetector::train`] does, and ends soon once it is cancelled.
    ///
    /// # Errors
    /// Those of [`RowDetector::train`]; [`Error::Forecast`] of a cancellation.
    pub fn train_cancellable(
        &self,
        table: &FeatureTable,
        seed: u64,
        cancelled: &AtomicBool,
    ) -> Result<RowModel> {
        self.train_scaled_until(table, seed, Scaling::Robust, cancelled)
    }

    /// Trains a model with a scaling of choice.
    ///
    /// # Errors
    /// Those of [`RowDetector::train`].
    pub fn train_scaled(&self, table: &FeatureTable, seed: u64, scaling: Scaling) -> Result<RowModel> {
        self.train_scaled_until(table, seed, scaling, &AtomicBool::new(false))
    }

    fn train_scaled_until(
        &self,
        table: &FeatureTable,
        seed: u64,
        scaling: Scaling,
        cancelled: &AtomicBool,
    ) -> Result<RowModel> {
        self.check()?;
        let (needed, available) = (self.min_rows(), table.rows());
        if available < needed {
            return Err(Error::TooFew { detector: self.name(), unit: "rows", needed, available });
        }
        let space = FeatureSpace::fit(table, scaling)?;
        let rows = table.spaced_rows(self.max_rows());
        let points = space.points(table, &rows);
        let TrainedRows { algorithm, labels, scores } = self.fit(table, &space, &points, seed, cancelled)?;
        let scores = match scores {
            Some(scores) => scores,
            None => score_points(&algorithm, &points, cancelled)?,
        };
        let clusters = algorithm.clusters();
        let profiles = match &labels {
            Some(labels) => profile_clusters(table, &rows, labels, clusters),
            None => Vec::new(),
        };
        let reference = ReferenceScores::new(scores.clone());
        let mut projection = PlanarProjection::fit(&points);
        let shown = rows.len().min(MAX_PROJECTED_ROWS);
        let mut point = Vec::new();
        for place in (0..shown).map(|place| place * rows.len() / shown) {
            points.read(place, &mut point);
            let [x, y] = projection.project(&point);
            let cluster = labels.as_ref().and_then(|labels| labels[place]);
            projection.points.push(ProjectedRow { x, y, rank: reference.rank(scores[place]), cluster });
        }
        Ok(RowModel {
            detector: self.clone(),
            space,
            trained_rows: table.rows(),
            reference,
            algorithm,
            profiles,
            projection,
        })
    }

    /// Rows that the algorithm compares, at most; evenly spaced ones stand for a larger table.
    fn max_rows(&self) -> usize {
        match self {
            Self::IsolationForest { .. } => MAX_REFERENCE,
            Self::LocalOutlierFactor { neighbors } => max_rows(*neighbors),
            Self::KMeans { .. } => MAX_KMEANS_ROWS,
            Self::Dbscan { .. } | Self::Hdbscan { .. } => MAX_DENSITY_ROWS,
        }
    }

    fn fit(
        &self,
        table: &FeatureTable,
        space: &FeatureSpace,
        points: &Points,
        seed: u64,
        cancelled: &AtomicBool,
    ) -> Result<TrainedRows> {
        Ok(match self {
            Self::IsolationForest { trees, sample } => {
                let forest = IsolationForest::fit(table, space, *trees, *sample, seed);
                TrainedRows { algorithm: RowAlgorithm::IsolationForest(forest), labels: None, scores: None }
            }
            Self::LocalOutlierFactor { neighbors } => {
                let (model, factors) = LocalOutlierFactor::fit(points.clone(), *neighbors, cancelled)?;
                let algorithm = RowAlgorithm::LocalOutlierFactor(model);
                TrainedRows { algorithm, labels: None, scores: Some(factors) }
            }
            Self::KMeans { clusters } => {
                let (model, labels) = KMeans::fit(points, *clusters, seed, cancelled)?;
                let labels = Some(labels.into_iter().map(Some).collect());
                TrainedRows { algorithm: RowAlgorithm::KMeans(model), labels, scores: None }
            }
            Self::Dbscan { eps, min_samples } => {
                let (model, labels) = Dbscan::fit(points, *eps, *min_samples, cancelled)?;
                TrainedRows { algorithm: RowAlgorithm::Dbscan(model), labels: Some(labels), scores: None }
            }
            Self::Hdbscan { min_samples } => {
                let (model, labels) = Hdbscan::fit(points, *min_samples, cancelled)?;
                let score = |row| check_cancelled(cancelled).map(|()| model.training_score(row));
                let scores = Some((0..points.len()).map(score).collect::<Result<_, _>>()?);
                TrainedRows { algorithm: RowAlgorithm::Hdbscan(model), labels: Some(labels), scores }
            }
        })
    }

    /// Checks the parameters.
    pub(crate) fn check(&self) -> Result<()> {
        match self {
            Self::IsolationForest { trees, sample } => {
                check("trees", "1 to 1,000", *trees, 1..=MAX_TREES)?;
                check("sample", "2 to 4,096", *sample, 2..=MAX_SAMPLE)
            }
            Self::LocalOutlierFactor { neighbors } => {
                check("n_neighbors", "1 to 1,000", *neighbors, 1..=MAX_NEIGHBORS)
            }
            Self::KMeans { clusters } => check("n_clusters", "1 to 256", *clusters, 1..=MAX_CLUSTERS),
            Self::Dbscan { eps, min_samples } => {
                if let Some(eps) = eps
                    && !(*eps > 0.0 && eps.is_finite())
                {
                    let (parameter, allowed) = ("eps", "a positive number");
                    return Err(Error::InvalidParameter { parameter, allowed, value: eps.to_string() });
                }
                check("min_samples", "1 to 1,000", *min_samples, 1..=MAX_NEIGHBORS)
            }
            Self::Hdbscan { min_samples } => {
                check("min_samples", "2 to 1,000", *min_samples, 2..=MAX_NEIGHBORS)
            }
        }
    }
}

fn check(
    parameter: &'static str,
    allowed: &'static str,
    value: usize,
    range: std::ops::RangeInclusive<usize>,
) -> Result<()> {
    match range.contains(&value) {
        true => Ok(()),
        false => Err(Error::InvalidParameter { parameter, allowed, value: value.to_string() }),
    }
}

fn score_points(algorithm: &RowAlgorithm, points: &Points, cancelled: &AtomicBool) -> Result<Vec<f64>> {
    let (mut point, mut contributions) = (Vec::new(), vec![0.0; points.dimensions()]);
    if let RowAlgorithm::IsolationForest(forest) = algorithm {
        let mut all = Vec::with_capacity(points.len() * points.dimensions());
        for row in 0..points.len() {
            points.read(row, &mut point);
            all.extend_from_slice(&point);
        }
        check_cancelled(cancelled)?;
        return Ok(forest.score_all(all, points.dimensions()));
    }
    let score = |row: usize| {
        check_cancelled(cancelled)?;
        points.read(row, &mut point);
        contributions.fill(0.0);
        Ok(algorithm.score(&point, &mut contributions).0)
    };
    (0..points.len()).map(score).collect()
}
