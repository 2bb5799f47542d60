//! [`SeriesDetector`] and [`SeriesModel`]: odd buckets of a series, scored as they come.
//!
//! The seasonal decomposition expects a value by level and season (`seasonal_filter`). Its raw score joins the error and the
//! value (`surprise`). The random cut forest (`shingle_forest`) scores the shingle that the bucket ends.
//!
//! A model has the latest [`MAX_HISTORY`] buckets. A late value of one of these is scored by the state before that bucket, and those
//! behind it are scored anew. The forest does not forget a shingle that a late value changes.

use std::collections::VecDeque;

use millrace_forecast::{Series, find_seasonality};

use crate::artefact::{ArtefactKind, ArtefactReader, ArtefactWriter, corrupt};
use crate::cut_forest::{MAX_CUT_TREES, MAX_SHINGLE};
use crate::error::{Error, Result};
use crate::rank::ReferenceScores;
use crate::seasonal_filter::{FilterUndo, MAX_PERIODS, Residual, SeasonalFilter};
use crate::shingle_forest::ShingleForest;
use crate::surprise::SurpriseScale;

/// Buckets that a late value can revise.
pub const MAX_HISTORY: usize = 1_024;
/// Scores of the training window that a model tells.
const MAX_TRAINING_SCORES: usize = 4_096;
/// Latest buckets that a forest is trained on.
const MAX_FOREST_BUCKETS: usize = 20_000;
/// Share of errors within the bounds of an expectation.
const WITHIN_BOUNDS: f64 = 0.95;

/// Detector of odd buckets, with its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeriesDetector {
    /// Robust score of the error of level and season.
    SeasonalDecomposition,
    /// Robust random cut forest on shingles.
    RandomCutForest {
        /// Number of trees.
        trees: usize,
        /// Buckets of a shingle; 0 lets the season choose.
        shingle: usize,
    },
}

/// Score of a bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SeriesScore {
    /// Score of the algorithm: a larger one is odder. It is 0 of a gap.
    pub raw: f64,
    /// Share of training buckets with a lower score, 0 to 1. It is 0 of a gap.
    pub rank: f64,
    /// Expected value.
    pub expected: f64,
    /// Lower bound of 95 % of values.
    pub lower: f64,
    /// Upper bound of 95 % of values.
    pub upper: f64,
}

/// State of an algorithm.
#[derive(Clone, Debug, PartialEq)]
enum SeriesAlgorithm {
    /// The scale comes with the replay of the window.
    Filter(SeasonalFilter, Option<SurpriseScale>),
    Forest(ShingleForest),
}

/// Bucket that can be revised.
#[derive(Clone, Debug, PartialEq)]
struct HistoryBucket {
    value: Option<f64>,
    /// State before the bucket.
    undo: Option<FilterUndo>,
}

/// Trained model of a series, with its state.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesModel {
    detector: SeriesDetector,
    seasons: Vec<usize>,
    latest: i64,
    history: VecDeque<HistoryBucket>,
    algorithm: SeriesAlgorithm,
    reference: ReferenceScores,
    /// Half of the width between the bounds, in deviations.
    bound: f64,
    training_scores: Vec<(i64, SeriesScore)>,
}

impl SeriesDetector {
    /// Returns the name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::SeasonalDecomposition => "seasonal_decomposition",
            Self::RandomCutForest { .. } => "random_cut_forest",
        }
    }

    /// Returns the detector of a name with its default parameters.
    pub fn default_of(name: &str) -> Option<Self> {
        let all = [Self::SeasonalDecomposition, Self::RandomCutForest { trees: 50, shingle: 0 }];
        all.into_iter().find(|detector| detector.name() == name)
    }

    /// Returns the number of buckets that training needs.
    pub fn min_buckets(&self) -> usize {
        match self {
            Self::SeasonalDecomposition => 16,
            Self::RandomCutForest { shingle, .. } => 32.max(2 * shingle),
        }
    }

    /// Trains a model on a window. `first` is the number of the bucket of the first sample. Without a seasonality, one is found from the
    /// autocorrelation.
    ///
    /// # Errors
    /// [`Error::AllMissing`], [`Error::TooFew`], [`Error::Constant`], [`Error::SeasonTooLong`], [`Error::InvalidParameter`].
    pub fn train(
        &self,
        series: &Series,
        first: i64,
        seasonality: Option<usize>,
        seed: u64,
    ) -> Result<SeriesModel> {
        self.check()?;
        if series.is_empty() {
            return Err(Error::AllMissing { feature: None });
        }
        let samples = series.filled();
        let (needed, available) = (self.min_buckets(), samples.len());
        if available < needed {
            return Err(Error::TooFew { detector: self.name(), unit: "buckets", needed, available });
        }
        if samples.iter().all(|sample| *sample == samples[0]) {
            return Err(Error::Constant);
        }
        match seasonality {
            Some(season) if season < 2 => {
                let (parameter, allowed) = ("seasonality", "2 or more buckets");
                return Err(Error::InvalidParameter { parameter, allowed, value: season.to_string() });
            }
            Some(season) if 2 * season > available => {
                return Err(Error::SeasonTooLong { season, buckets: available });
            }
            _ => {}
        }
        let season = seasonality.or_else(|| find_seasonality(series));
        let seasons: Vec<usize> = season.into_iter().collect();
        let (from, algorithm) = match self {
            Self::SeasonalDecomposition => {
                (0, SeriesAlgorithm::Filter(SeasonalFilter::fit(&samples, first, &seasons), None))
            }
            Self::RandomCutForest { trees, shingle } => {
                let from = samples.len().saturating_sub(MAX_FOREST_BUCKETS);
                let forest = ShingleForest::new(*trees, *shingle, season, samples[from], seed);
                (from, SeriesAlgorithm::Forest(forest))
            }
        };
        let mut model = SeriesModel {
            detector: *self,
            seasons,
            latest: first + from as i64 - 1,
            history: VecDeque::new(),
            algorithm,
            reference: ReferenceScores::default(),
            bound: 0.0,
            training_scores: Vec::new(),
        };
        model.replay_window(&series.samples()[from..]);
        Ok(model)
    }

    fn check(&self) -> Result<()> {
        if let Self::RandomCutForest { trees, shingle } = self {
            let invalid = |parameter, allowed, value: &usize| {
                Err(Error::InvalidParameter { parameter, allowed, value: value.to_string() })
            };
            if !(1..=MAX_CUT_TREES).contains(trees) {
                return invalid("trees", "1 to 200", trees);
            }
            if *shingle != 0 && !(2..=MAX_SHINGLE).contains(shingle) {
                return invalid("shingle", "0, or 2 to 64", shingle);
            }
        }
        Ok(())
    }
}

impl SeriesModel {
    /// Scores the window as if it came bucket by bucket, and makes the reference of that.
    fn replay_window(&mut self, samples: &[Option<f64>]) {
        // The first buckets are scored by a state that knows little yet.
        let warm = (samples.len() / 10).clamp(4, 200);
        let told = samples.len().saturating_sub(MAX_TRAINING_SCORES);
        let mut replayed = Vec::with_capacity(samples.len());
        for (at, sample) in samples.iter().enumerate() {
            let bucket = self.latest + 1;
            replayed.push((bucket, *sample, self.evaluate(bucket, *sample, at >= told)));
            self.take(bucket, *sample);
        }
        if let SeriesAlgorithm::Filter(_, scale) = &mut self.algorithm {
            let known = replayed.iter().skip(warm);
            let known: Vec<_> =
                known.filter_map(|(_, sample, (_, residual))| Some(((*sample)?, *residual))).collect();
            let scale = scale.insert(SurpriseScale::fit(&known));
            for (_, sample, (raw, residual)) in &mut replayed {
                *raw = sample.map_or(0.0, |value| scale.surprise(value, residual));
            }
        }
        let known = || replayed.iter().enumerate().skip(warm).filter(|(_, (_, sample, _))| sample.is_some());
        self.reference = ReferenceScores::new(known().map(|(_, (_, _, (raw, _)))| *raw).collect());
        let mut widths: Vec<f64> = known()
            .filter(|(at, _)| *at >= told)
            .map(|(_, (_, _, (_, residual)))| residual.relative_error())
            .collect();
        widths.sort_unstable_by(f64::total_cmp);
        self.bound = crate::features::quantile(&widths, WITHIN_BOUNDS).min(1e100);
        let score = |(bucket, sample, (raw, residual)): (i64, Option<f64>, (f64, Residual))| {
            (bucket, self.score_of(raw, &residual, sample.is_some()))
        };
        self.training_scores = replayed.into_iter().skip(told).map(score).collect();
    }

    /// Returns the raw score of a value, and its residual. Expectations of a forest cost time, and are optional.
    fn evaluate(&self, bucket: i64, value: Option<f64>, with_expected: bool) -> (f64, Residual) {
        match &self.algorithm {
            SeriesAlgorithm::Filter(filter, scale) => {
                let residual = filter.compare(bucket, value);
                let raw =
                    scale.as_ref().zip(value).map_or(0.0, |(scale, value)| scale.surprise(value, &residual));
                (raw, residual)
            }
            SeriesAlgorithm::Forest(forest) => {
                let before = self.before(forest, bucket);
                let raw = value.map_or(0.0, |value| forest.score_behind(before.iter().copied(), value));
                (raw, forest_residual(forest, &before, value, with_expected))
            }
        }
    }

    /// Returns the values before a bucket behind the latest one: gaps have the last value.
    fn before(&self, forest: &ShingleForest, bucket: i64) -> Vec<f64> {
        let mut before = forest.recent();
        let gaps = bucket.saturating_sub(self.latest).saturating_sub(1).clamp(0, MAX_SHINGLE as i64);
        let last = before.last().copied().unwrap_or_default();
        let shift = before.len().min(gaps as usize);
        before.drain(..shift);
        before.extend(std::iter::repeat_n(last, shift));
        before
    }

    fn score_of(&self, raw: f64, residual: &Residual, is_present: bool) -> SeriesScore {
        let half = self.bound * residual.deviation;
        let expected = residual.expected;
        let rank = if is_present { self.reference.rank(raw) } else { 0.0 };
        let raw = if is_present { raw } else { 0.0 };
        SeriesScore { raw, rank, expected, lower: expected - half, upper: expected + half }
    }

    /// Takes a bucket in, with the gaps before it.
    fn take(&mut self, bucket: i64, value: Option<f64>) {
        let gaps = bucket.saturating_sub(self.latest).saturating_sub(1).clamp(0, MAX_HISTORY as i64);
        for gap in (1..=gaps).rev() {
            self.take_one(bucket - gap, None);
        }
        self.take_one(bucket, value);
        self.latest = bucket;
    }

    fn take_one(&mut self, bucket: i64, value: Option<f64>) {
        let undo = match &mut self.algorithm {
            SeriesAlgorithm::Filter(filter, _) => {
                let undo = filter.undo_of(bucket);
                filter.step(bucket, value);
                Some(undo)
            }
            SeriesAlgorithm::Forest(forest) => {
                match value {
                    Some(value) => forest.insert(value),
                    None => forest.pass_gap(),
                }
                None
            }
        };
        self.history.push_back(HistoryBucket { value, undo });
        if self.history.len() > MAX_HISTORY {
            self.history.pop_front();
        }
    }

    /// Returns the detector with its parameters.
    pub fn detector(&self) -> &SeriesDetector {
        &self.detector
    }

    /// Returns the seasons in buckets, given or found.
    pub fn seasons(&self) -> &[usize] {
        &self.seasons
    }

    /// Returns the latest bucket.
    pub fn latest(&self) -> i64 {
        self.latest
    }

    /// Returns the oldest bucket that [`SeriesModel::revise`] takes.
    pub fn oldest_revisable(&self) -> i64 {
        self.latest - self.history.len() as i64 + 1
    }

    /// Returns scores of the training window, at most the latest 4,096. A model that is read from bytes has none.
    pub fn training_scores(&self) -> &[(i64, SeriesScore)] {
        &self.training_scores
    }

    /// Forgets the scores of the training window, as bytes do.
    #[cfg(test)]
    pub(crate) fn clear_training_scores(&mut self) {
        self.training_scores.clear();
    }

    /// Scores a bucket behind the latest one, and changes nothing.
    ///
    /// # Errors
    /// [`Error::OutOfOrder`], [`Error::Infinite`].
    pub fn score(&self, bucket: i64, value: Option<f64>) -> Result<SeriesScore> {
        check_value(value)?;
        if bucket <= self.latest {
            return Err(Error::OutOfOrder { bucket, latest: self.latest });
        }
        let (raw, residual) = self.evaluate(bucket, value, true);
        Ok(self.score_of(raw, &residual, value.is_some()))
    }

    /// Scores a bucket behind the latest one, and takes it in. Buckets between are gaps.
    ///
    /// # Errors
    /// [`Error::OutOfOrder`], [`Error::Infinite`].
    pub fn observe(&mut self, bucket: i64, value: Option<f64>) -> Result<SeriesScore> {
        let score = self.score(bucket, value)?;
        self.take(bucket, value);
        Ok(score)
    }

    /// Replaces the value of a late bucket. Returns the scores of that bucket and of those behind it that the value changes.
    ///
    /// # Errors
    /// [`Error::Forgotten`] of a bucket before the history, [`Error::OutOfOrder`] of one behind the latest, [`Error::Infinite`].
    pub fn revise(&mut self, bucket: i64, value: Option<f64>) -> Result<Vec<(i64, SeriesScore)>> {
        check_value(value)?;
        let oldest = self.oldest_revisable();
        if bucket < oldest {
            return Err(Error::Forgotten { bucket, oldest });
        }
        if bucket > self.latest {
            return Err(Error::OutOfOrder { bucket, latest: self.latest });
        }
        let place = (bucket - oldest) as usize;
        self.history[place].value = value;
        match &self.algorithm {
            SeriesAlgorithm::Filter(..) => Ok(self.revise_filter(place, bucket)),
            SeriesAlgorithm::Forest(_) => Ok(self.revise_forest(place, bucket)),
        }
    }

    /// Goes back to the state before a bucket, and forward again.
    fn revise_filter(&mut self, place: usize, bucket: i64) -> Vec<(i64, SeriesScore)> {
        let later: Vec<HistoryBucket> = self.history.drain(place..).collect();
        if let SeriesAlgorithm::Filter(filter, _) = &mut self.algorithm {
            for (at, one) in later.iter().enumerate().rev() {
                if let Some(undo) = &one.undo {
                    filter.undo(bucket + at as i64, undo);
                }
            }
        }
        let mut scores = Vec::with_capacity(later.len());
        self.latest = bucket - 1;
        for (at, one) in later.into_iter().enumerate() {
            let bucket = bucket + at as i64;
            let (raw, residual) = self.evaluate(bucket, one.value, true);
            scores.push((bucket, self.score_of(raw, &residual, one.value.is_some())));
            self.take(bucket, one.value);
        }
        scores
    }

    /// Scores the shingles that have a bucket, by the forest as it is.
    fn revise_forest(&mut self, place: usize, bucket: i64) -> Vec<(i64, SeriesScore)> {
        let SeriesAlgorithm::Forest(forest) = &mut self.algorithm else { return Vec::new() };
        let width = forest.shingle() - 1;
        let first = self.history.iter().find_map(|one| one.value).unwrap_or_default();
        let mut last = first;
        let filled: Vec<f64> = self
            .history
            .iter()
            .map(|one| {
                last = one.value.unwrap_or(last);
                last
            })
            .collect();
        let before = |place: usize| -> Vec<f64> {
            let missing = width.saturating_sub(place);
            let own = filled[place.saturating_sub(width)..place].iter().copied();
            std::iter::repeat_n(first, missing).chain(own).collect()
        };
        forest.replace_recent(&before(filled.len()));
        let SeriesAlgorithm::Forest(forest) = &self.algorithm else { return Vec::new() };
        let until = (place + width + 1).min(self.history.len());
        (place..until)
            .map(|at| {
                let (before, value) = (before(at), self.history[at].value);
                let raw = value.map_or(0.0, |value| forest.score_behind(before.iter().copied(), value));
                let residual = forest_residual(forest, &before, value, true);
                (bucket + (at - place) as i64, self.score_of(raw, &residual, value.is_some()))
            })
            .collect()
    }

    /// Writes the model with its state as bytes; training scores are left out.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = ArtefactWriter::new(ArtefactKind::Series);
        let (trees, shingle) = match self.detector {
            SeriesDetector::SeasonalDecomposition => (0, 0),
            SeriesDetector::RandomCutForest { trees, shingle } => (trees, shingle),
        };
        out.count(trees);
        out.count(shingle);
        out.count(self.seasons.len());
        self.seasons.iter().for_each(|season| out.count(*season));
        out.i64(self.latest);
        match &self.algorithm {
            SeriesAlgorithm::Filter(filter, scale) => {
                filter.encode(&mut out);
                if let Some(scale) = scale {
                    scale.encode(&mut out);
                }
            }
            SeriesAlgorithm::Forest(forest) => forest.encode(&mut out),
        }
        out.count(self.history.len());
        for one in &self.history {
            out.f64(one.value.unwrap_or(f64::NAN));
            if let Some(undo) = &one.undo {
                undo.encode(&mut out);
            }
        }
        self.reference.encode(&mut out);
        out.f64(self.bound);
        out.finish()
    }

    /// Reads the bytes of [`SeriesModel::encode`].
    ///
    /// # Errors
    /// [`Error::OldVersion`], [`Error::Corrupt`].
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut from = ArtefactReader::new(bytes, ArtefactKind::Series)?;
        let (trees, shingle) = (from.u32()? as usize, from.u32()? as usize);
        let detector = match trees {
            0 => SeriesDetector::SeasonalDecomposition,
            trees => SeriesDetector::RandomCutForest { trees, shingle },
        };
        detector.check().map_err(|error| corrupt(&error.to_string()))?;
        let seasons: Vec<usize> = from.u32s(MAX_PERIODS)?.into_iter().map(|season| season as usize).collect();
        if seasons.iter().any(|season| !(2..=millrace_forecast::MAX_SAMPLES).contains(season)) {
            return Err(corrupt("a season is too short or too long"));
        }
        let latest = from.i64()?;
        if latest.unsigned_abs() > 1 << 62 {
            return Err(corrupt("its latest bucket is too far"));
        }
        let algorithm = match detector {
            SeriesDetector::SeasonalDecomposition => {
                let filter = SeasonalFilter::decode(&mut from, &seasons)?;
                SeriesAlgorithm::Filter(filter, Some(SurpriseScale::decode(&mut from)?))
            }
            SeriesDetector::RandomCutForest { .. } => {
                SeriesAlgorithm::Forest(ShingleForest::decode(&mut from)?)
            }
        };
        let mut history = VecDeque::new();
        for _ in 0..from.count(MAX_HISTORY, 8)? {
            let value = from.f64()?;
            let undo = match &algorithm {
                SeriesAlgorithm::Filter(..) => Some(FilterUndo::decode(&mut from, seasons.len())?),
                SeriesAlgorithm::Forest(_) => None,
            };
            history.push_back(HistoryBucket { value: value.is_finite().then_some(value), undo });
        }
        let (reference, bound) = (ReferenceScores::decode(&mut from)?, from.finite()?);
        from.finish()?;
        Ok(Self {
            detector,
            seasons,
            latest,
            history,
            algorithm,
            reference,
            bound,
            training_scores: Vec::new(),
        })
    }
}

fn forest_residual(
    forest: &ShingleForest,
    before: &[f64],
    value: Option<f64>,
    with_expected: bool,
) -> Residual {
    let expected = if with_expected { forest.expected_behind(before) } else { 0.0 };
    let error = value.map_or(0.0, |value| (value - expected).clamp(-1e300, 1e300));
    Residual { expected, deviation: 1.0, error }
}

fn check_value(value: Option<f64>) -> Result<()> {
    match value.is_none_or(f64::is_finite) {
        true => Ok(()),
        false => Err(Error::Infinite { feature: 0 }),
    }
}
