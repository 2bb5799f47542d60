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
//! - [`Forecaster`], [`ForecastModel`]: forecasts with intervals, of exponential smoothing (`ets`), of that behind a decomposition (`stl`), and
//!   of the forest, whose widths are measured (`calibration`); [`find_seasonality`]
//! - [`artefact`]: bytes with version and checksum
//!
//! `docs/ai.md` has the definitions, so that others can compute the same; `tests/clients/forecast.py` does.

pub mod artefact;
mod average;
mod calibration;
mod error;
mod ets;
mod forecaster;
mod forecaster_artefact;
mod forest;
mod least_squares;
mod line;
mod model;
mod random;
mod regression;
mod score;
mod seasonality;
mod series;
mod simplex;
mod stl;
mod sum;

pub use error::{Error, Result, check_cancelled};
pub use forecaster::{ForecastInterval, ForecastModel, Forecaster};
pub use line::Line;
pub use model::{Algorithm, TrainedModel, train, train_cancellable};
pub use random::{Random, mix, seed};
pub use score::Score;
pub use seasonality::find_seasonality;
pub use series::Series;
pub use stl::{Decomposition, decompose};

/// Buckets of a window, at most.
pub const MAX_SAMPLES: usize = 100_000;
/// Buckets of the window of a forest, at most.
pub const MAX_FOREST_SAMPLES: usize = 10_000;
/// Buckets that are forecast, at most.
pub const MAX_PREDICTIONS: usize = 10_000;
