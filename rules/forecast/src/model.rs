//! A trained model: the algorithms by their names, fitted, and rolled forward.

use std::fmt;
use std::sync::atomic::AtomicBool;

use crate::average::{Holt, geometric, rolled_mean};
use crate::error::{Error, Result};
use crate::forest::Forest;
use crate::line::Line;
use crate::regression::{LEAST, Regression};
use crate::score::{Score, score};
use crate::series::Series;

/// Algorithm of a forecast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Geometric moving average.
    Gma,
    /// The same with a linear trend.
    Gmal,
    /// Linear regression on lagged samples.
    Lrs,
    /// The same on what the trend line leaves.
    Lrst,
    /// Random forest on lagged samples.
    Rfrs,
    /// Simple moving average of what the trend line leaves.
    Smal,
    /// Simple moving average.
    Sma,
    /// Trend line.
    Tl,
}

impl Algorithm {
    /// All, in the order of their names.
    pub const ALL: [Self; 8] =
        [Self::Gma, Self::Gmal, Self::Lrs, Self::Lrst, Self::Rfrs, Self::Sma, Self::Smal, Self::Tl];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gma => "GMA",
            Self::Gmal => "GMAL",
            Self::Lrs => "LRS",
            Self::Lrst => "LRST",
            Self::Rfrs => "RFRS",
            Self::Smal => "SMAL",
            Self::Sma => "SMA",
            Self::Tl => "TL",
        }
    }

    /// Finds one by its name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    /// Returns whether it goes by the window's line, which it can tell then.
    pub fn has_line(self) -> bool {
        matches!(self, Self::Tl | Self::Lrst | Self::Smal)
    }

    /// Returns how many samples it takes, at most.
    pub fn most(self) -> usize {
        match self {
            Self::Rfrs => crate::MAX_FOREST_SAMPLES,
            _ => crate::MAX_SAMPLES,
        }
    }

    /// Returns how many samples it needs.
    pub fn least(self) -> usize {
        match self {
            Self::Sma | Self::Gma => 1,
            Self::Smal | Self::Gmal | Self::Tl => 2,
            Self::Lrs | Self::Lrst | Self::Rfrs => LEAST,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Input that a fitted algorithm forecasts from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ForecastInput {
    /// The mean of these samples, rolled forward.
    Mean(Vec<f64>),
    /// A level that stays.
    Level(f64),
    /// A level with a trend.
    Holt(Holt),
    /// Nothing beside the line.
    Nothing,
    Regression(Regression),
    Forest(Forest),
}

/// A fitted algorithm.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Model {
    /// Samples of the window.
    pub(crate) count: usize,
    /// The line that was taken out, and is added back.
    pub(crate) line: Option<Line>,
    pub(crate) told: ForecastInput,
}

impl Model {
    /// Fits an algorithm to samples without gaps.
    pub(crate) fn fit(
        algorithm: Algorithm,
        samples: &[f64],
        seed: u64,
        cancelled: &AtomicBool,
    ) -> Result<Self> {
        let (count, name, needed) = (samples.len(), algorithm.name(), algorithm.least());
        if count < needed {
            return Err(Error::TooFew { algorithm: name, needed, there: count });
        }
        let line = algorithm.has_line().then(|| Line::fit(samples));
        let left = line.map(|line| line.residuals(samples));
        let left = left.as_deref().unwrap_or(samples);
        let told = match algorithm {
            Algorithm::Sma | Algorithm::Smal => ForecastInput::Mean(left.to_vec()),
            Algorithm::Gma => ForecastInput::Level(geometric(left)),
            Algorithm::Gmal => ForecastInput::Holt(Holt::fit(left)),
            Algorithm::Tl => ForecastInput::Nothing,
            Algorithm::Lrs | Algorithm::Lrst => ForecastInput::Regression(Regression::fit(name, left)?),
            Algorithm::Rfrs => ForecastInput::Forest(Forest::fit(name, left, seed, cancelled)?),
        };
        Ok(Self { count, line, told })
    }

    /// Forecasts the buckets behind the window.
    pub(crate) fn forecast(&self, predictions: usize) -> Vec<f64> {
        let mut forecast = match &self.told {
            ForecastInput::Mean(window) => rolled_mean(window, predictions),
            ForecastInput::Level(level) => vec![*level; predictions],
            ForecastInput::Holt(holt) => (1..=predictions).map(|buckets| holt.ahead(buckets)).collect(),
            ForecastInput::Nothing => vec![0.0; predictions],
            ForecastInput::Regression(regression) => regression.forecast(predictions),
            ForecastInput::Forest(forest) => forest.forecast(predictions),
        };
        if let Some(line) = self.line {
            for (ahead, one) in forecast.iter_mut().enumerate() {
                *one += line.at((self.count + ahead) as f64);
            }
        }
        forecast
    }
}

/// A model that was trained on a window, with how good it is.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainedModel {
    pub(crate) algorithm: Algorithm,
    pub(crate) fingerprint: u64,
    pub(crate) model: Model,
    pub(crate) score: Score,
}

/// Trains a model on a window. `predictions` is what will be asked of it, which says what it is scored by. Takes up to some seconds:
/// it is no work for a thread that serves requests.
///
/// # Errors
/// [`Error::TooFew`], [`Error::TooMany`], [`Error::NotFinite`].
pub fn train(algorithm: Algorithm, series: &Series, predictions: usize, seed: u64) -> Result<TrainedModel> {
    train_cancellable(algorithm, series, predictions, seed, &AtomicBool::new(false))
}

/// Trains a model as [`train`] does, and ends soon once it is cancelled.
///
/// # Errors
/// As [`train`]; [`Error::Cancelled`].
pub fn train_cancellable(
    algorithm: Algorithm,
    series: &Series,
    predictions: usize,
    seed: u64,
    cancelled: &AtomicBool,
) -> Result<TrainedModel> {
    let (what, limit) = ("what is forecast", crate::MAX_PREDICTIONS);
    if predictions > limit {
        return Err(Error::TooMany { what, limit, there: predictions });
    }
    let model = Model::fit(algorithm, &series.filled(), seed, cancelled)?;
    let score = score(algorithm, series, predictions, seed, cancelled)?;
    Ok(TrainedModel {
        algorithm,
        fingerprint: fingerprint(algorithm, series, predictions, seed),
        model,
        score,
    })
}

/// Stands for all that a model is trained with.
fn fingerprint(algorithm: Algorithm, series: &Series, predictions: usize, seed: u64) -> u64 {
    let name = crate::random::seed(algorithm.name());
    crate::random::mix(
        series.fingerprint() ^ name.rotate_left(17) ^ seed.rotate_left(31) ^ predictions as u64,
    )
}

impl TrainedModel {
    /// Returns its algorithm.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Returns whether training with all this would make the same model.
    pub fn is_of(&self, algorithm: Algorithm, series: &Series, predictions: usize, seed: u64) -> bool {
        self.algorithm == algorithm && self.fingerprint == fingerprint(algorithm, series, predictions, seed)
    }

    /// Returns how good it is.
    pub fn score(&self) -> Score {
        self.score
    }

    /// Returns the line of its window, where the algorithm goes by it.
    pub fn line(&self) -> Option<Line> {
        self.model.line
    }

    /// Returns how many buckets behind the last sample the window's line comes to a level: 1 is the first that is forecast. `None` where it
    /// never does, or there is no line.
    pub fn reaches(&self, level: f64) -> Option<f64> {
        let last = self.model.count as f64 - 1.0;
        self.model.line?.reaches(level, last).map(|place| place - last)
    }

    /// Forecasts the buckets that follow the window.
    ///
    /// # Errors
    /// [`Error::NotFinite`]; [`Error::TooMany`] beyond [`crate::MAX_PREDICTIONS`].
    pub fn forecast(&self, predictions: usize) -> Result<Vec<f64>> {
        if predictions > crate::MAX_PREDICTIONS {
            let limit = crate::MAX_PREDICTIONS;
            return Err(Error::TooMany { what: "what is forecast", limit, there: predictions });
        }
        let forecast = self.model.forecast(predictions);
        match forecast.iter().all(|one| one.is_finite()) {
            true => Ok(forecast),
            false => Err(Error::NotFinite { what: "the forecast" }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(values: impl IntoIterator<Item = f64>) -> Series {
        Series::new(values.into_iter().map(Some).collect()).unwrap()
    }

    #[test]
    fn algorithms_that_know_of_trends_go_on_with_one() {
        let window = series((0..50).map(|place| 7.0 + 2.0 * f64::from(place)));
        for algorithm in [Algorithm::Tl, Algorithm::Smal, Algorithm::Lrst, Algorithm::Lrs, Algorithm::Gmal] {
            let trained = train(algorithm, &window, 10, 1).unwrap();
            let forecast = trained.forecast(10).unwrap();
            for (ahead, one) in forecast.iter().enumerate() {
                let expected = 107.0 + 2.0 * ahead as f64;
                assert!((one / expected - 1.0).abs() < 1e-9, "{algorithm} {ahead}: {one}");
            }
            assert!(trained.score().rmse.unwrap() < 1e-9, "{algorithm}");
            assert!(trained.score().overall_efficiency.unwrap() > 0.999_999, "{algorithm}");
        }
        let flat = train(Algorithm::Sma, &window, 10, 1).unwrap();
        assert!(
            flat.score().overall_efficiency.unwrap() < 0.0,
            "the mean of the past tells nothing of a trend"
        );
    }

    #[test]
    fn a_line_tells_when_it_comes_to_a_level() {
        let trained = train(Algorithm::Tl, &series((0..10).map(f64::from)), 5, 1).unwrap();
        assert!((trained.reaches(12.0).unwrap() - 3.0).abs() < 1e-9);
        assert_eq!(trained.reaches(5.0), None);
        assert_eq!(train(Algorithm::Sma, &series([1.0, 2.0]), 5, 1).unwrap().reaches(5.0), None);
    }

    #[test]
    fn gaps_are_no_samples_to_be_scored_by() {
        let mut buckets: Vec<Option<f64>> = (0..40).map(|place| Some(f64::from(place % 4))).collect();
        let whole = train(Algorithm::Sma, &Series::new(buckets.clone()).unwrap(), 5, 1).unwrap();
        assert!(whole.score().rmse.is_some());
        buckets[32..].fill(None);
        let gaps = train(Algorithm::Sma, &Series::new(buckets).unwrap(), 5, 1).unwrap();
        assert_eq!(gaps.score(), Score::default());
    }

    #[test]
    fn too_little_too_much_and_too_large_are_refused() {
        for algorithm in Algorithm::ALL {
            let few = series(vec![1.0; algorithm.least() - 1]);
            let refused = train(algorithm, &few, 5, 1).unwrap_err();
            assert!(matches!(refused, Error::TooFew { .. }), "{algorithm}");
            let least = train(algorithm, &series(vec![1.0; algorithm.least()]), 5, 1).unwrap();
            assert_eq!(least.forecast(2).unwrap(), [1.0, 1.0], "{algorithm}");
            assert_eq!(Algorithm::named(algorithm.name()), Some(algorithm));
        }
        let window = series([0.0, 1e308]);
        let trained = train(Algorithm::Tl, &window, 5, 1).unwrap();
        assert_eq!(trained.forecast(5), Err(Error::NotFinite { what: "the forecast" }));
        assert!(train(Algorithm::Sma, &window, crate::MAX_PREDICTIONS + 1, 1).is_err());
    }
}
