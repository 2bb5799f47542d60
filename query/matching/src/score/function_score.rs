//! Scores combined with functions of the row, as `function_score` asks.
//!
//! Functions are evaluated for the rows that are scored and no others. A row on which one fails ends
//! the pass: the error waits in the [`Failure`] of the prepared predicate.

use std::fmt;
use std::sync::Arc;

use millrace_dsl::query::{BoostMode, Combination, DecayShape, Modifier, MultiValueMode, ScoreMode};
use millrace_storage::mapping::PathId;
use millrace_work::error::{Error, Result};
use parking_lot::Mutex;

use super::values::{Hashed, Values, Wanted};
use super::{BoxScorer, END, Scorer};
use crate::score::reader::SegmentReader;
use millrace_storage::murmur::avalanche;

/// A function of a row, as a mapping understands it.
#[derive(Clone, Debug)]
pub enum RowFunction {
    /// 1.
    One,
    /// The least value of a column.
    FieldValue {
        /// Field, for errors.
        field: String,
        /// The column and what its values are divided by; absent where the index has no such field.
        column: Option<(PathId, f64)>,
        /// Factor of the value.
        factor: f32,
        /// What is made of the product.
        modifier: Modifier,
        /// Value of rows without any.
        missing: Option<f64>,
    },
    /// The distance of a column's values from an origin.
    Decay {
        /// Where distances come from.
        from: Origin,
        /// Distance up to which nothing decays.
        offset: f64,
        /// The curve.
        curve: Curve,
        /// How the distances of several values become one.
        mode: MultiValueMode,
    },
    /// How near a column's nearest value is to an origin: `pivot / (pivot + distance)`.
    Nearness {
        /// Where distances come from.
        from: Origin,
        /// Distance at which one half is left.
        pivot: f64,
    },
    /// A number from 0 to 1 that looks random.
    Random {
        /// The seed and Java's hash of the index's name.
        seed: (i32, i32),
        /// What decides the number; the row itself where absent.
        of: Option<Hashed>,
    },
}

/// What distances are measured from.
#[derive(Clone, Debug)]
pub enum Origin {
    /// A number; values of the column are divided by `unit` first.
    Number {
        /// The column.
        column: PathId,
        /// What values are divided by.
        unit: f64,
        /// The number.
        origin: f64,
    },
    /// A point on the earth; distances are in metres.
    Point {
        /// The column.
        column: PathId,
        /// Latitude.
        lat: f64,
        /// Longitude.
        lon: f64,
    },
}

/// A decay curve with its scale worked in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Curve {
    shape: DecayShape,
    scale: f64,
}

impl Curve {
    /// Makes the curve that is at `decay` at a distance of `scale`.
    pub fn new(shape: DecayShape, scale: f64, decay: f64) -> Self {
        let scale = match shape {
            DecayShape::Gauss => 0.5 * scale.powi(2) / decay.ln(),
            DecayShape::Exp => decay.ln() / scale,
            DecayShape::Linear => scale / (1.0 - decay),
        };
        Self { shape, scale }
    }

    fn at(self, distance: f64) -> f64 {
        match self.shape {
            DecayShape::Gauss => (0.5 * distance.powi(2) / self.scale).exp(),
            DecayShape::Exp => (self.scale * distance).exp(),
            DecayShape::Linear => ((self.scale - distance) / self.scale).max(0.0),
        }
    }
}

/// An error that waits for the end of a pass.
#[derive(Clone, Default)]
pub struct Failure(Arc<Mutex<Option<Error>>>);

impl Failure {
    /// Takes the error.
    pub fn take(&self) -> Option<Error> {
        self.0.lock().take()
    }

    /// Keeps an error, if it is the first.
    pub(super) fn put(&self, error: Error) {
        self.0.lock().get_or_insert(error);
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Failure")
    }
}

/// Where the functions of a prepared predicate are evaluated.
#[derive(Clone, Debug)]
pub struct Place {
    /// The segment.
    pub reader: Arc<dyn SegmentReader>,
    /// Number of the segment in its table.
    pub segment: u32,
    /// Number of the shard in its index.
    pub shard: u32,
}

/// A function at work.
struct Evaluator<'a> {
    function: &'a RowFunction,
    values: Option<Values>,
    /// Hash of a row without a value, or start of a row's own.
    salted: u32,
    segment: u32,
}

impl<'a> Evaluator<'a> {
    fn new(function: &'a RowFunction, place: &Place) -> Self {
        let mut salted = 0;
        let wanted = match function {
            RowFunction::One | RowFunction::FieldValue { column: None, .. } => None,
            RowFunction::FieldValue { column: Some((column, unit)), .. } => {
                Some(Wanted::Numbers { column: *column, unit: *unit })
            }
            RowFunction::Decay { from: Origin::Number { column, unit, .. }, .. }
            | RowFunction::Nearness { from: Origin::Number { column, unit, .. }, .. } => {
                Some(Wanted::Numbers { column: *column, unit: *unit })
            }
            RowFunction::Decay { from: Origin::Point { column, lat, lon }, .. }
            | RowFunction::Nearness { from: Origin::Point { column, lat, lon }, .. } => {
                Some(Wanted::Distances { column: *column, lat: *lat, lon: *lon })
            }
            RowFunction::Random { seed: (seed, index), of } => {
                let salt = (*index << 10) as u32 | place.shard;
                salted = avalanche(*seed as u32 ^ salt);
                of.map(|of| Wanted::Hashes { of, seed: salted })
            }
        };
        let values = wanted.map(|wanted| Values::new(Arc::clone(&place.reader), wanted));
        Self { function, values, salted, segment: place.segment }
    }

    fn at(&mut self, row: u32) -> Result<f64> {
        let numbers = match &mut self.values {
            Some(values) => values.of(row)?,
            None => &[],
        };
        match self.function {
            RowFunction::One => Ok(1.0),
            RowFunction::FieldValue { field, factor, modifier, missing, .. } => {
                let least = numbers.iter().copied().min_by(f64::total_cmp);
                let Some(value) = least.or(*missing) else {
                    return Err(Error::Exception {
                        kind: "exception",
                        status: 500,
                        reason: format!("Missing value for field [{field}]"),
                    });
                };
                modified(value, *factor, *modifier)
            }
            RowFunction::Decay { from, offset, curve, mode } => {
                let distance = match from {
                    Origin::Number { origin, .. } => {
                        reduce(numbers.iter().map(|number| (number - origin).abs() - offset), *mode)
                    }
                    Origin::Point { .. } => reduce(numbers.iter().map(|metres| metres - offset), *mode),
                };
                Ok(curve.at(distance.unwrap_or(0.0)))
            }
            RowFunction::Nearness { from, pivot } => {
                let distance = |number: &f64| match from {
                    Origin::Number { origin, .. } => (number - origin).abs(),
                    Origin::Point { .. } => *number,
                };
                let nearest = numbers.iter().map(distance).min_by(f64::total_cmp);
                Ok(nearest.map_or(0.0, |distance| pivot / (pivot + distance)))
            }
            RowFunction::Random { of, .. } => {
                let hash = match (of, numbers.first()) {
                    (None, _) => avalanche(row ^ self.segment.rotate_left(16) ^ self.salted),
                    (Some(_), Some(hash)) => *hash as u32,
                    (Some(_), None) => self.salted,
                };
                Ok(f64::from(hash & 0x00ff_ffff) / f64::from(1 << 24))
            }
        }
    }
}

/// Returns the value of a function at a row.
pub fn value_at(function: &RowFunction, place: &Place, row: u32) -> Result<f64> {
    Evaluator::new(function, place).at(row)
}

/// Joins the distances of a row's values; none is nearer than 0.
fn reduce(distances: impl ExactSizeIterator<Item = f64>, mode: MultiValueMode) -> Option<f64> {
    let count = distances.len();
    let mut distances = distances.map(|distance| distance.max(0.0));
    if count == 0 {
        return None;
    }
    match mode {
        MultiValueMode::Min => distances.min_by(f64::total_cmp),
        MultiValueMode::Max => distances.max_by(f64::total_cmp),
        MultiValueMode::Sum => Some(distances.sum()),
        MultiValueMode::Avg => Some(distances.sum::<f64>() / count as f64),
        MultiValueMode::Median => {
            let mut sorted: Vec<f64> = distances.by_ref().collect();
            sorted.sort_unstable_by(f64::total_cmp);
            let middle = count / 2;
            Some(if count % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 })
        }
    }
}

fn modified(value: f64, factor: f32, modifier: Modifier) -> Result<f64> {
    let product = value * f64::from(factor);
    let result = match modifier {
        Modifier::None => product,
        Modifier::Log => product.log10(),
        Modifier::Log1p => (product + 1.0).log10(),
        Modifier::Log2p => (product + 2.0).log10(),
        Modifier::Ln => product.ln(),
        Modifier::Ln1p => product.ln_1p(),
        Modifier::Ln2p => (product + 1.0).ln_1p(),
        Modifier::Square => product.powi(2),
        Modifier::Sqrt => product.sqrt(),
        Modifier::Reciprocal => 1.0 / product,
    };
    if result < 0.0 {
        let hint = match modifier {
            Modifier::Ln => "; consider using ln1p or ln2p instead of ln to avoid negative scores",
            Modifier::Log => "; consider using log1p or log2p instead of log to avoid negative scores",
            _ => "",
        };
        return Err(Error::IllegalArgument(format!(
            "field value function must not produce negative scores, but got: [{result:?}] for field value: [{value:?}]{hint}"
        )));
    }
    Ok(result)
}

/// A function with the rows to which it applies and its weight.
pub struct Applied<'a> {
    filter: Option<BoxScorer<'a>>,
    evaluator: Evaluator<'a>,
    weight: Option<f32>,
}

impl fmt::Debug for Applied<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Applied").finish_non_exhaustive()
    }
}

impl<'a> Applied<'a> {
    /// Makes a function ready; it applies to the rows of `filter`, to all where absent.
    pub fn new(
        function: &'a RowFunction,
        filter: Option<BoxScorer<'a>>,
        weight: Option<f32>,
        place: &Place,
    ) -> Self {
        Self { filter, evaluator: Evaluator::new(function, place), weight }
    }

    /// Returns the weighted value at a row, where the function applies.
    fn at(&mut self, row: u32) -> Result<Option<f64>> {
        if let Some(filter) = &mut self.filter
            && filter.seek(row) != row
        {
            return Ok(None);
        }
        let value = self.evaluator.at(row)?;
        Ok(Some(self.weight.map_or(value, |weight| value * f64::from(weight))))
    }

    /// Returns what no value exceeds.
    fn bound(&self) -> f64 {
        match self.evaluator.function {
            RowFunction::FieldValue { .. } => f64::INFINITY,
            _ => f64::from(self.weight.unwrap_or(1.0)),
        }
    }
}

/// Rows of a scorer whose scores are combined with functions.
pub struct FunctionScore<'a> {
    base: BoxScorer<'a>,
    functions: Vec<Applied<'a>>,
    combination: Combination,
    failure: &'a Failure,
    failed: bool,
    /// Score of the current row, once `min_score` has asked for it.
    known: Option<f32>,
}

impl fmt::Debug for FunctionScore<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FunctionScore").finish_non_exhaustive()
    }
}

impl<'a> FunctionScore<'a> {
    /// Starts at the first row of `base`, or the first with the least score asked for.
    pub fn new(
        base: BoxScorer<'a>,
        functions: Vec<Applied<'a>>,
        combination: Combination,
        failure: &'a Failure,
    ) -> Self {
        let mut scorer = Self { base, functions, combination, failure, failed: false, known: None };
        scorer.seek_match();
        scorer
    }

    /// Goes on to a row with the least score asked for.
    fn seek_match(&mut self) -> u32 {
        self.known = None;
        let Some(least) = self.combination.min_score else { return self.doc() };
        while self.doc() != END {
            let score = self.combined();
            if score >= least {
                self.known = Some(score);
                break;
            }
            self.base.advance();
        }
        self.doc()
    }

    fn combined(&mut self) -> f32 {
        let row = self.base.doc();
        let score = self.base.score();
        match self.factor(row).and_then(|factor| combine(&self.combination, score, factor, row)) {
            Ok(score) => score,
            Err(error) => {
                self.failure.put(error);
                self.failed = true;
                0.0
            }
        }
    }

    /// Joins the values of the functions at a row.
    pub fn factor(&mut self, row: u32) -> Result<f64> {
        let mode = self.combination.score_mode;
        let mut joined: Option<f64> = None;
        let mut weights = 0.0_f64;
        for function in &mut self.functions {
            let Some(value) = function.at(row)? else { continue };
            if value.is_nan() {
                return Ok(value);
            }
            weights += f64::from(function.weight.unwrap_or(1.0));
            joined = Some(match (joined, mode) {
                (None, ScoreMode::First) => return Ok(value),
                (None, _) => value,
                (Some(joined), ScoreMode::Max) => joined.max(value),
                (Some(joined), ScoreMode::Min) => joined.min(value),
                (Some(joined), ScoreMode::Multiply) => joined * value,
                (Some(joined), _) => joined + value,
            });
        }
        Ok(match (joined, mode) {
            (None, _) => 1.0,
            (Some(_), ScoreMode::Sum | ScoreMode::Avg) if weights == 0.0 => 1.0,
            (Some(sum), ScoreMode::Avg) => sum / weights,
            (Some(joined), _) => joined,
        })
    }

    /// Bounds the joined values of the functions.
    fn factor_bound(&self) -> f64 {
        let bounds = self.functions.iter().map(Applied::bound);
        match self.combination.score_mode {
            ScoreMode::Sum => bounds.sum::<f64>().max(1.0),
            ScoreMode::Multiply => bounds.map(|bound| bound.max(1.0)).product(),
            _ => bounds.fold(1.0, f64::max),
        }
    }
}

/// Joins a score and the result of the functions.
fn combine(combination: &Combination, score: f32, factor: f64, row: u32) -> Result<f32> {
    let invalid = factor.is_nan();
    let (score, factor) = (f64::from(score), factor.min(f64::from(combination.max_boost)));
    let combined = match combination.boost_mode {
        _ if invalid => f64::NAN,
        BoostMode::Multiply => score * factor,
        BoostMode::Replace => factor,
        BoostMode::Sum => score + factor,
        BoostMode::Avg => (score + factor) / 2.0,
        BoostMode::Min => score.min(factor),
        BoostMode::Max => score.max(factor),
    } as f32;
    if combined < 0.0 || combined.is_nan() {
        return Err(Error::Exception {
            kind: "exception",
            status: 500,
            reason: format!("function score query returned an invalid score: {combined:?} for doc: {row}"),
        });
    }
    Ok(combined)
}

impl Scorer for FunctionScore<'_> {
    fn doc(&self) -> u32 {
        if self.failed { END } else { self.base.doc() }
    }
    fn advance(&mut self) -> u32 {
        if self.doc() != END {
            self.base.advance();
        }
        self.seek_match()
    }
    fn seek(&mut self, target: u32) -> u32 {
        if self.doc() < target {
            self.base.seek(target);
            return self.seek_match();
        }
        self.doc()
    }
    fn score(&mut self) -> f32 {
        match self.known {
            Some(score) => score,
            None => self.combined(),
        }
    }
    fn max_score(&self) -> f32 {
        if self.functions.is_empty() {
            return self.base.max_score();
        }
        let factor = self.factor_bound().min(f64::from(self.combination.max_boost));
        let score = f64::from(self.base.max_score());
        let bound = match self.combination.boost_mode {
            BoostMode::Multiply if score == 0.0 || factor == 0.0 => 0.0,
            BoostMode::Multiply => score * factor,
            BoostMode::Replace => factor,
            BoostMode::Sum | BoostMode::Avg => score + factor,
            BoostMode::Min => score.min(factor),
            BoostMode::Max => score.max(factor),
        };
        // Sums are rounded in another order than the bound.
        (bound * 1.000_01) as f32
    }
    fn cost(&self) -> u64 {
        self.base.cost()
    }
}
