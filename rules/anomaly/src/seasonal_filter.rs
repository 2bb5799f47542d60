//! [`SeasonalFilter`]: expects the next bucket of a series by level and season, and measures how far a value is from that.
//!
//! MSTL of the training window gives the last cycle of each season. The level follows the values without season: level += α·e for the error e
//! of the expectation, cut at three deviations. The season of the bucket follows by γ = 0.05 in the same way. The deviation is a running
//! mean of cut absolute errors, by the mean of the half-normal distribution. α is the one of a few with the least median error
//! in training.

use millrace_forecast::decompose;

use crate::artefact::{ArtefactReader, ArtefactWriter, corrupt};
use crate::error::Result;

/// Candidates of α.
const LEVEL_RATES: [f64; 6] = [0.02, 0.05, 0.1, 0.2, 0.4, 0.8];
const SEASON_RATE: f64 = 0.05;
const DEVIATION_RATE: f64 = 0.005;
/// Deviations at which an error is cut.
const CUT: f64 = 3.0;
/// √(π/2): deviation of a normal distribution by its mean absolute value.
const HALF_NORMAL: f64 = 1.253_314_137_315_500_3;
/// Share of the spread of the training values below which no deviation falls.
const LEAST_SHARE: f64 = 0.02;
/// Periods of a model, at most.
pub(crate) const MAX_PERIODS: usize = 4;

/// State of the filter.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SeasonalFilter {
    rate: f64,
    level: f64,
    deviation: f64,
    least_deviation: f64,
    /// Season by bucket number, one cycle for each period.
    cycles: Vec<Vec<f64>>,
}

/// Expectation of a bucket, and the error of its value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Residual {
    pub(crate) expected: f64,
    pub(crate) deviation: f64,
    /// Error of the value; 0 of a gap.
    pub(crate) error: f64,
}

impl Residual {
    /// Returns the absolute error in deviations.
    pub(crate) fn relative_error(&self) -> f64 {
        (self.error.abs() / self.deviation).min(1e100)
    }
}

/// State that a step replaces.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FilterUndo {
    level: f64,
    deviation: f64,
    seasons: Vec<f64>,
}

impl SeasonalFilter {
    /// Fits a filter to samples without gaps, of which the first is of bucket `first`.
    pub(crate) fn fit(samples: &[f64], first: i64, periods: &[usize]) -> Self {
        let cycles = match periods.is_empty() {
            true => Vec::new(),
            false => {
                let seasons = decompose(samples, periods, true).seasons;
                let pairs = periods.iter().zip(&seasons);
                pairs.map(|(period, season)| last_cycle(season, first, *period)).collect()
            }
        };
        let least_deviation = LEAST_SHARE * spread(samples);
        let mut filter = Self { rate: 0.0, level: 0.0, deviation: 0.0, least_deviation, cycles };
        let mut best: Option<(f64, Self)> = None;
        for rate in LEVEL_RATES {
            filter.start(rate, samples, first);
            let mut candidate = filter.clone();
            let mut errors: Vec<f64> = samples
                .iter()
                .enumerate()
                .map(|(at, sample)| candidate.step(first + at as i64, Some(*sample)).error.abs())
                .collect();
            let median = median(&mut errors);
            if best.as_ref().is_none_or(|(least, _)| median < *least) {
                best = Some((median, filter.clone()));
            }
        }
        best.map_or(filter, |(_, filter)| filter)
    }

    /// Sets the state before the first sample.
    fn start(&mut self, rate: f64, samples: &[f64], first: i64) {
        let rest = |at: usize| samples[at] - self.season(first + at as i64);
        let mut head: Vec<f64> = (0..samples.len().min(25)).map(rest).collect();
        let mut differences: Vec<f64> =
            (1..samples.len()).map(|at| (rest(at) - rest(at - 1)).abs()).collect();
        let deviation = 1.4826 * median(&mut differences);
        self.rate = rate;
        self.level = median(&mut head);
        self.deviation = deviation.max(self.least_deviation);
    }

    fn season(&self, bucket: i64) -> f64 {
        self.cycles.iter().map(|cycle| cycle[place(cycle, bucket)]).sum()
    }

    /// Compares a value with the expectation.
    pub(crate) fn compare(&self, bucket: i64, value: Option<f64>) -> Residual {
        let expected = self.level + self.season(bucket);
        let error = value.map_or(0.0, |value| (value - expected).clamp(-1e300, 1e300));
        Residual { expected, deviation: self.deviation.max(self.least_deviation), error }
    }

    /// Compares a value, and takes it in.
    pub(crate) fn step(&mut self, bucket: i64, value: Option<f64>) -> Residual {
        let residual = self.compare(bucket, value);
        if value.is_some() {
            let bound = CUT * residual.deviation;
            let cut = residual.error.clamp(-bound, bound);
            self.level += self.rate * cut;
            let share = SEASON_RATE / self.cycles.len().max(1) as f64;
            for cycle in &mut self.cycles {
                let place = place(cycle, bucket);
                cycle[place] += share * cut;
            }
            self.deviation += DEVIATION_RATE * (cut.abs() * HALF_NORMAL - self.deviation);
        }
        residual
    }

    /// Returns the state that a step of a bucket replaces.
    pub(crate) fn undo_of(&self, bucket: i64) -> FilterUndo {
        let seasons = self.cycles.iter().map(|cycle| cycle[place(cycle, bucket)]).collect();
        FilterUndo { level: self.level, deviation: self.deviation, seasons }
    }

    /// Takes the step of a bucket back.
    pub(crate) fn undo(&mut self, bucket: i64, undo: &FilterUndo) {
        self.level = undo.level;
        self.deviation = undo.deviation;
        for (cycle, season) in self.cycles.iter_mut().zip(&undo.seasons) {
            let place = place(cycle, bucket);
            cycle[place] = *season;
        }
    }

    pub(crate) fn encode(&self, out: &mut ArtefactWriter) {
        [self.rate, self.level, self.deviation, self.least_deviation]
            .into_iter()
            .for_each(|one| out.f64(one));
        self.cycles.iter().for_each(|cycle| out.f64s(cycle));
    }

    pub(crate) fn decode(from: &mut ArtefactReader<'_>, periods: &[usize]) -> Result<Self> {
        let (rate, level) = (from.finite()?, from.finite()?);
        let (deviation, least_deviation) = (from.finite()?, from.finite()?);
        if !(0.0..=1.0).contains(&rate) || deviation < 0.0 || least_deviation <= 0.0 {
            return Err(corrupt("the state of its filter is wrong"));
        }
        let cycles = periods.iter().map(|period| from.exact_finites(*period)).collect::<Result<_>>()?;
        Ok(Self { rate, level, deviation, least_deviation, cycles })
    }
}

impl FilterUndo {
    pub(crate) fn encode(&self, out: &mut ArtefactWriter) {
        out.f64(self.level);
        out.f64(self.deviation);
        out.f64s(&self.seasons);
    }

    pub(crate) fn decode(from: &mut ArtefactReader<'_>, periods: usize) -> Result<Self> {
        let (level, deviation) = (from.finite()?, from.finite()?);
        Ok(Self { level, deviation, seasons: from.exact_finites(periods)? })
    }
}

fn place(cycle: &[f64], bucket: i64) -> usize {
    bucket.rem_euclid(cycle.len() as i64) as usize
}

/// Returns the last value of a season for each place of the cycle.
fn last_cycle(season: &[f64], first: i64, period: usize) -> Vec<f64> {
    let mut cycle = vec![0.0; period];
    for (at, value) in season.iter().enumerate() {
        let place = place(&cycle, first + at as i64);
        cycle[place] = *value;
    }
    cycle
}

/// Returns the spread between the 5th and 95th hundredth, or a hundredth of the whole range where that is larger. It is positive.
fn spread(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| crate::features::quantile(&sorted, share);
    let spread = (at(0.95) - at(0.05)).max((at(1.0) / 100.0) - (at(0.0) / 100.0));
    spread.max(at(0.5).abs() * 1e-9).clamp(1e-100, 1e300)
}

/// Returns the median; the order of the values changes.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let middle = values.len() / 2;
    *values.select_nth_unstable_by(middle, f64::total_cmp).1
}
