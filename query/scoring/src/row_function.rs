//! Functions of a row: their inputs and results.

use std::sync::Arc;

use millrace_dsl::query::{DecayShape, Modifier, MultiValueMode};
use millrace_mapping::PathId;
use millrace_runtime::murmur::avalanche;
use millrace_work::error::{Error, Result};

use crate::reader::SegmentReader;
use crate::source::Source;
use crate::values::{HashInput, RequestedNumbers, Values};

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
        /// Modifier of the product.
        modifier: Modifier,
        /// Value of rows without any.
        missing: Option<f64>,
    },
    /// The distance of a column's values from an origin.
    Decay {
        /// Origin of distances.
        from: Origin,
        /// Distance up to which nothing decays.
        offset: f64,
        /// The curve.
        curve: Curve,
        /// Mode that combines the distances of several values.
        mode: MultiValueMode,
    },
    /// Nearness of a column's nearest value to an origin: `pivot / (pivot + distance)`.
    Nearness {
        /// Origin of distances.
        from: Origin,
        /// Distance at which one half is left.
        pivot: f64,
    },
    /// A number from 0 to 1 that looks random.
    Random {
        /// The seed and Java's hash of the index's name.
        seed: (i32, i32),
        /// Input of the hash that decides the number; the row itself where absent.
        of: Option<HashInput>,
    },
}

/// Origin of distances.
#[derive(Clone, Debug)]
pub enum Origin {
    /// A number; values of the column are divided by `unit` first.
    Number {
        /// The column.
        column: PathId,
        /// Divisor of values.
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

/// Scope in which the functions of a prepared predicate are evaluated.
#[derive(Clone, Debug)]
pub struct FunctionScope {
    /// The segment.
    pub reader: Arc<dyn SegmentReader>,
    /// Number of the segment in its table.
    pub segment: u32,
    /// Number of the shard in its index.
    pub shard: u32,
}

impl FunctionScope {
    /// Takes the segment of a source.
    pub fn new(source: &Source) -> Self {
        Self { reader: Arc::clone(&source.reader), segment: source.number, shard: source.shard }
    }
}

/// A function at work.
pub(super) struct Evaluator<'a> {
    pub(super) function: &'a RowFunction,
    values: Option<Values>,
    /// Hash of a row without a value, or start of a row's own.
    salted: u32,
    segment: u32,
}

impl<'a> Evaluator<'a> {
    pub(super) fn new(function: &'a RowFunction, place: &FunctionScope) -> Self {
        let mut salted = 0;
        let wanted = match function {
            RowFunction::One | RowFunction::FieldValue { column: None, .. } => None,
            RowFunction::FieldValue { column: Some((column, unit)), .. } => {
                Some(RequestedNumbers::Numbers { column: *column, unit: *unit })
            }
            RowFunction::Decay { from: Origin::Number { column, unit, .. }, .. }
            | RowFunction::Nearness { from: Origin::Number { column, unit, .. }, .. } => {
                Some(RequestedNumbers::Numbers { column: *column, unit: *unit })
            }
            RowFunction::Decay { from: Origin::Point { column, lat, lon }, .. }
            | RowFunction::Nearness { from: Origin::Point { column, lat, lon }, .. } => {
                Some(RequestedNumbers::Distances { column: *column, lat: *lat, lon: *lon })
            }
            RowFunction::Random { seed: (seed, index), of } => {
                let salt = (*index << 10) as u32 | place.shard;
                salted = avalanche(*seed as u32 ^ salt);
                of.map(|of| RequestedNumbers::Hashes { of, seed: salted })
            }
        };
        let values = wanted.map(|wanted| Values::new(Arc::clone(&place.reader), wanted));
        Self { function, values, salted, segment: place.segment }
    }

    pub(super) fn at(&mut self, row: u32) -> Result<f64> {
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
pub fn value_at(function: &RowFunction, place: &FunctionScope, row: u32) -> Result<f64> {
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
