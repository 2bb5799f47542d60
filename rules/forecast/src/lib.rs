//! Models that forecast series of buckets: the pure core, without store, clock or runtime.
//!
//! A [`Series`] is a number or a gap for each of many buckets of one length. [`train`] makes a [`TrainedModel`] model of it by one of the
//! [`Algorithm`]s; that forecasts the buckets that follow, knows its [`Score`], and can be kept as bytes ([`artefact`]) that
//! give the same forecasts later. Everything is a function of its arguments, bit for bit: the forest draws its numbers from a
//! [`seed`].
//!
//! - [`series`]: gaps filled for training, buckets that are there for scoring
//! - [`average`], [`line`], [`regression`], [`forest`]: the models; [`least_squares`] below the two in the middle
//! - [`model`]: one of them, trained, and rolled forward
//! - [`score`]: how well a model would have told the end of its window
//! - [`artefact`]: bytes with version and checksum
//!
//! `docs/ai.md` has the definitions, so that others can compute the same; `tests/clients/forecast.py` does.

pub mod artefact;
mod average;
mod error;
mod forest;
mod least_squares;
mod line;
mod model;
mod random;
mod regression;
mod score;
mod series;
mod sum;

pub use error::{Error, Result};
pub use line::Line;
pub use model::{Algorithm, TrainedModel, train};
pub use random::{Random, mix, seed};
pub use score::Score;
pub use series::Series;

/// Buckets of a window, at most.
pub const MAX_SAMPLES: usize = 100_000;
/// Buckets of the window of a forest, at most.
pub const MAX_FOREST_SAMPLES: usize = 10_000;
/// Buckets that are forecast, at most.
pub const MAX_PREDICTIONS: usize = 10_000;
