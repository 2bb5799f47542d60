//! [`RowModel`]: a trained detector of rows, its scores, and its bytes.

use crate::artefact::{ArtefactKind, ArtefactReader, ArtefactWriter, corrupt};
use crate::cutoff::ScoreCutoff;
use crate::dbscan::Dbscan;
use crate::error::Result;
use crate::features::FeatureSpace;
use crate::hdbscan::Hdbscan;
use crate::isolation_forest::IsolationForest;
use crate::kmeans::KMeans;
use crate::local_outlier_factor::LocalOutlierFactor;
use crate::profile::{ClusterProfile, decode_profiles, encode_profiles};
use crate::projection::PlanarProjection;
use crate::rank::ReferenceScores;
use crate::row_detector::RowDetector;
use crate::table::check_row;

/// Trained model of rows.
#[derive(Clone, Debug, PartialEq)]
pub struct RowModel {
    pub(crate) detector: RowDetector,
    pub(crate) space: FeatureSpace,
    pub(crate) trained_rows: usize,
    pub(crate) reference: ReferenceScores,
    pub(crate) algorithm: RowAlgorithm,
    pub(crate) profiles: Vec<ClusterProfile>,
    pub(crate) projection: PlanarProjection,
}

/// Fitted algorithm of a model.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RowAlgorithm {
    IsolationForest(IsolationForest),
    LocalOutlierFactor(LocalOutlierFactor),
    KMeans(KMeans),
    Dbscan(Dbscan),
    Hdbscan(Hdbscan),
}

/// Score of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct RowScore {
    /// Score of the algorithm: a larger one is odder.
    pub raw: f64,
    /// Share of the training rows that have a lower score, with half of the equal ones, 0 to 1. A row that misses a feature that
    /// every training row has is ranked 1.
    pub rank: f64,
    /// Share of each feature in the oddness: 0 or more, of sum 1; all 0 where no feature stands out. [`RowModel::score_all`] may leave
    /// them out.
    pub contributions: Vec<f64>,
    /// Cluster of the row; `None` is noise, or a model without clusters.
    pub cluster: Option<u32>,
}

impl RowAlgorithm {
    pub(crate) fn score(&self, point: &[f64], contributions: &mut [f64]) -> (f64, Option<u32>) {
        match self {
            Self::IsolationForest(forest) => (forest.score(point, contributions), None),
            Self::LocalOutlierFactor(model) => (model.score(point, contributions), None),
            Self::KMeans(model) => {
                let (raw, cluster) = model.score(point, contributions);
                (raw, Some(cluster))
            }
            Self::Dbscan(model) => model.score(point, contributions),
            Self::Hdbscan(model) => model.score(point, contributions),
        }
    }

    /// Returns the number of clusters; 0 of a model without clusters.
    pub(crate) fn clusters(&self) -> usize {
        match self {
            Self::IsolationForest(_) | Self::LocalOutlierFactor(_) => 0,
            Self::KMeans(model) => model.clusters(),
            Self::Dbscan(model) => model.clusters(),
            Self::Hdbscan(model) => model.clusters(),
        }
    }
}

impl RowModel {
    /// Returns the detector with its parameters.
    pub fn detector(&self) -> &RowDetector {
        &self.detector
    }

    /// Returns the number of features of a row.
    pub fn features(&self) -> usize {
        self.space.features()
    }

    /// Returns the number of rows of the training table.
    pub fn trained_rows(&self) -> usize {
        self.trained_rows
    }

    /// Scores a row. `NaN` stands for a missing value.
    ///
    /// # Errors
    /// [`crate::Error::WrongWidth`], [`crate::Error::Infinite`].
    pub fn score(&self, row: &[f64]) -> Result<RowScore> {
        check_row(row, self.features())?;
        let (mut point, mut of_dimensions) = (Vec::new(), vec![0.0; self.space.dimensions()]);
        self.space.point(row, &mut point);
        let (raw, cluster) = self.algorithm.score(&point, &mut of_dimensions);
        let raw = raw.min(f64::MAX);
        let unseen: Vec<usize> = self.space.unseen_missing(row).collect();
        if unseen.is_empty() {
            let contributions = self.space.contributions(&of_dimensions);
            return Ok(RowScore { raw, rank: self.reference.rank(raw), contributions, cluster });
        }
        let mut contributions = vec![0.0; self.features()];
        unseen.iter().for_each(|feature| contributions[*feature] = 1.0 / unseen.len() as f64);
        Ok(RowScore { raw, rank: 1.0, contributions, cluster })
    }

    /// Scores rows that follow each other in `rows`, as [`RowModel::score`] does one. Rows that the cutoff does not flag may have no
    /// contributions: the scores of a forest take a small part of the time then.
    ///
    /// # Errors
    /// [`crate::Error::WrongWidth`], [`crate::Error::Infinite`], of the first such row.
    pub fn score_all(&self, rows: &[f64], cutoff: ScoreCutoff) -> Result<Vec<RowScore>> {
        let rows = rows.chunks(self.features());
        let RowAlgorithm::IsolationForest(forest) = &self.algorithm else {
            return rows.map(|row| self.score(row)).collect();
        };
        let dimensions = self.space.dimensions();
        let (mut points, mut point) = (Vec::with_capacity(rows.len() * dimensions), Vec::new());
        for row in rows.clone() {
            check_row(row, self.features())?;
            self.space.point(row, &mut point);
            points.extend_from_slice(&point);
        }
        let raws = forest.score_all(points, dimensions).into_iter();
        let scores = rows.zip(raws).map(|(row, raw)| {
            let raw = raw.min(f64::MAX);
            let rank = match self.space.unseen_missing(row).next() {
                Some(_) => 1.0,
                None => self.reference.rank(raw),
            };
            let score = RowScore { raw, rank, contributions: Vec::new(), cluster: None };
            match self.is_anomalous(&score, cutoff) {
                true => self.score(row),
                false => Ok(score),
            }
        });
        scores.collect()
    }

    /// Returns whether a score is anomalous. With a contamination, the noise of DBSCAN and HDBSCAN is anomalous at any rank.
    pub fn is_anomalous(&self, score: &RowScore, cutoff: ScoreCutoff) -> bool {
        let finds_noise = matches!(self.detector, RowDetector::Dbscan { .. } | RowDetector::Hdbscan { .. });
        let is_noise = finds_noise && score.cluster.is_none();
        cutoff.flags(score.rank) || (is_noise && matches!(cutoff, ScoreCutoff::Contamination(_)))
    }

    /// Returns the profiles of clusters, noise last; none of a model without clusters.
    pub fn profiles(&self) -> &[ClusterProfile] {
        &self.profiles
    }

    /// Returns the projection of training rows on the first two principal components.
    pub fn projection(&self) -> &PlanarProjection {
        &self.projection
    }

    /// Projects a row on the same plane.
    ///
    /// # Errors
    /// [`crate::Error::WrongWidth`], [`crate::Error::Infinite`].
    pub fn project(&self, row: &[f64]) -> Result<[f64; 2]> {
        check_row(row, self.features())?;
        let mut point = Vec::new();
        self.space.point(row, &mut point);
        Ok(self.projection.project(&point))
    }

    /// Writes the model as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = ArtefactWriter::new(ArtefactKind::Rows);
        encode_detector(&self.detector, &mut out);
        self.space.encode(&mut out);
        out.u64(self.trained_rows as u64);
        self.reference.encode(&mut out);
        match &self.algorithm {
            RowAlgorithm::IsolationForest(model) => model.encode(&mut out),
            RowAlgorithm::LocalOutlierFactor(model) => model.encode(&mut out),
            RowAlgorithm::KMeans(model) => model.encode(&mut out),
            RowAlgorithm::Dbscan(model) => model.encode(&mut out),
            RowAlgorithm::Hdbscan(model) => model.encode(&mut out),
        }
        encode_profiles(&self.profiles, &mut out);
        self.projection.encode(&mut out);
        out.finish()
    }

    /// Reads the bytes of [`RowModel::encode`].
    ///
    /// # Errors
    /// [`crate::Error::OldVersion`], [`crate::Error::Corrupt`].
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut from = ArtefactReader::new(bytes, ArtefactKind::Rows)?;
        let detector = decode_detector(&mut from)?;
        let space = FeatureSpace::decode(&mut from)?;
        let trained_rows = from.u64()? as usize;
        let reference = ReferenceScores::decode(&mut from)?;
        let dimensions = space.dimensions();
        let algorithm = match detector {
            RowDetector::IsolationForest { .. } => {
                RowAlgorithm::IsolationForest(IsolationForest::decode(&mut from, dimensions)?)
            }
            RowDetector::LocalOutlierFactor { .. } => {
                RowAlgorithm::LocalOutlierFactor(LocalOutlierFactor::decode(&mut from, dimensions)?)
            }
            RowDetector::KMeans { .. } => RowAlgorithm::KMeans(KMeans::decode(&mut from, dimensions)?),
            RowDetector::Dbscan { .. } => RowAlgorithm::Dbscan(Dbscan::decode(&mut from, dimensions)?),
            RowDetector::Hdbscan { .. } => RowAlgorithm::Hdbscan(Hdbscan::decode(&mut from, dimensions)?),
        };
        let clusters = algorithm.clusters();
        let profiles = decode_profiles(&mut from, space.features(), clusters)?;
        let projection = PlanarProjection::decode(&mut from, dimensions, clusters)?;
        from.finish()?;
        Ok(Self { detector, space, trained_rows, reference, algorithm, profiles, projection })
    }
}

fn encode_detector(detector: &RowDetector, out: &mut ArtefactWriter) {
    let (code, first, second, eps) = match detector {
        RowDetector::IsolationForest { trees, sample } => (1, *trees, *sample, None),
        RowDetector::LocalOutlierFactor { neighbors } => (2, *neighbors, 0, None),
        RowDetector::KMeans { clusters } => (3, *clusters, 0, None),
        RowDetector::Dbscan { eps, min_samples } => (4, *min_samples, 0, *eps),
        RowDetector::Hdbscan { min_samples } => (5, *min_samples, 0, None),
    };
    out.u8(code);
    out.count(first);
    out.count(second);
    out.f64(eps.unwrap_or(f64::NAN));
}

fn decode_detector(from: &mut ArtefactReader<'_>) -> Result<RowDetector> {
    let code = from.u8()?;
    let (first, second, eps) = (from.u32()? as usize, from.u32()? as usize, from.f64()?);
    let detector = match code {
        1 => RowDetector::IsolationForest { trees: first, sample: second },
        2 => RowDetector::LocalOutlierFactor { neighbors: first },
        3 => RowDetector::KMeans { clusters: first },
        4 => RowDetector::Dbscan { eps: (!eps.is_nan()).then_some(eps), min_samples: first },
        5 => RowDetector::Hdbscan { min_samples: first },
        _ => return Err(corrupt("its detector is not known")),
    };
    detector.check().map_err(|error| corrupt(&error.to_string()))?;
    Ok(detector)
}
