//! Models that find anomalies and clusters: the pure core, without store, clock or runtime.
//!
//! A detector trains on a window and gives a model. A model scores what arrives, and is kept as bytes that score the same later.
//! Every score has a rank from 0 to 1: the share of the training window that is less odd. A [`ScoreCutoff`] flags ranks.
//! Everything is a function of its arguments and a seed, bit for bit on every platform.
//!
//! - Rows: [`FeatureTable`], [`RowDetector`], [`RowModel`] (`isolation_forest`, `local_outlier_factor`, `kmeans`, `dbscan`, `hdbscan`)
//! - Series of buckets: [`SeriesDetector`], [`SeriesModel`] (`seasonal_filter`, `surprise`, `score_tail`, `shingle_forest`, `cut_forest`)
//! - Lines: [`TextDetector`], [`TextTrainer`], [`TextModel`] (`mask`, `drain`, `template_rates`, `tf_idf`)
//!
//! `docs/ai.md` has the definitions, so that others can compute the same.

mod artefact;
mod condensed_tree;
mod cut_forest;
mod cutoff;
mod dbscan;
mod drain;
mod error;
mod features;
mod hdbscan;
mod isolation_forest;
mod kmeans;
mod local_outlier_factor;
mod mask;
mod points;
mod profile;
mod projection;
mod rank;
mod row_detector;
mod row_model;
#[cfg(test)]
mod row_tests;
mod score_tail;
mod seasonal_filter;
mod series_model;
#[cfg(test)]
mod series_tests;
mod shingle_forest;
mod surprise;
mod table;
mod template_rates;
mod text_model;
mod tf_idf;

pub use cutoff::{DEFAULT_CONTAMINATION, ScoreCutoff};
pub use drain::MAX_TEMPLATES;
pub use error::{Error, Result};
pub use features::Scaling;
pub use millrace_forecast::{Series, seed};
pub use profile::{ClusterProfile, FeatureProfile};
pub use projection::{MAX_PROJECTED_ROWS, PlanarProjection, ProjectedRow};
pub use row_detector::RowDetector;
pub use row_model::{RowModel, RowScore};
pub use series_model::{MAX_HISTORY, SeriesDetector, SeriesModel, SeriesScore};
pub use table::FeatureTable;
pub use text_model::{
    MAX_LINE_BYTES, TemplateProfile, TemplateRate, TextDetector, TextModel, TextScore, TextTrainer,
};

/// Features of a table, at most.
pub const MAX_FEATURES: usize = 64;
/// Rows of a table, at most.
pub const MAX_ROWS: usize = 2_000_000;
/// Clusters of k-means, at most.
pub const MAX_CLUSTERS: usize = 256;
/// Neighbours of a row, at most.
pub const MAX_NEIGHBORS: usize = 1_000;
