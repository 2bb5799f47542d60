//! Metrics over documents: values of fields, handed to the states of [`super`].

use std::sync::Arc;

use arrow::array::{AsArray, Float64Array};
use arrow::datatypes::Float64Type;
use millrace_dsl::aggs::{MatrixMode, Metric, Simple};
use millrace_work::QueryContext;
use millrace_work::error::{Error, Result};

use super::{Accumulator, Input, Ordinals, hash_bytes, hash_double, hash_long};
use crate::batch::{Batch, Column, Positions, Selection};
use crate::collector::{Collector, Reduction, ShardReader, same};
use crate::field::{MissingValue, ValueKind, Values};
use crate::metric;
use crate::result::Outcome;
use crate::segment::SegmentContext;
use crate::source::{Question, Sink, SourceQuery};

/// Terms of a dictionary that are hashed at a time.
const HASHED_TERMS: usize = 65_536;

/// A metric over the indices of a table.
#[derive(Debug)]
pub(crate) struct Measure {
    /// Computed metric.
    pub metric: Arc<Metric>,
    /// The fields that it reads: one, value and weight, or those of `matrix_stats`.
    pub fields: Vec<Values>,
}

/// The state of a metric.
#[derive(Debug)]
pub(crate) struct MetricCollector {
    measure: Arc<Measure>,
    input: Input,
    state: Accumulator,
    numbers: Vec<f64>,
    others: Vec<f64>,
    hashes: Vec<u64>,
    ordinals: Vec<u32>,
}

impl MetricCollector {
    /// Makes an empty state; `top` says that there is one bucket only.
    pub(crate) fn new(measure: &Arc<Measure>, top: bool) -> Self {
        Self {
            measure: Arc::clone(measure),
            input: Accumulator::input(&measure.metric),
            state: Accumulator::new(&measure.metric, top),
            numbers: Vec::new(),
            others: Vec::new(),
            hashes: Vec::new(),
            ordinals: Vec::new(),
        }
    }

    /// Adds the hashes of terms that wait.
    fn flush(&mut self) -> Result<()> {
        if self.hashes.is_empty() {
            return Ok(());
        }
        let done = self.state.collect(Ordinals::One(0), metric::Values::Hashes(&self.hashes));
        self.hashes.clear();
        done
    }

    fn numbers(&mut self, batch: &Batch<'_>, selection: Selection<'_>) -> Result<()> {
        let Some(values) = self.measure.fields.first() else { return Ok(()) };
        if let Some((_, column)) = values.column(batch)
            && column.is_plain()
            && matches!(selection.positions, Positions::All(_))
        {
            let numbers = column.doubles()?;
            return self.state.collect(selection.ordinals, metric::Values::Numbers(numbers.values()));
        }
        let (numbers, ordinals) = (&mut self.numbers, &mut self.ordinals);
        numbers.clear();
        ordinals.clear();
        each_number(values, batch, selection, |_, ordinal, found| {
            numbers.extend_from_slice(found);
            ordinals.extend(std::iter::repeat_n(ordinal, found.len()));
        })?;
        self.state.collect(Ordinals::Each(ordinals), metric::Values::Numbers(numbers))
    }

    fn count(&mut self, batch: &Batch<'_>, selection: Selection<'_>) -> Result<()> {
        let Some(values) = self.measure.fields.first() else { return Ok(()) };
        let ordinals = &mut self.ordinals;
        ordinals.clear();
        let filled = values.missing().is_some() || values.constant_in(batch.segment.index).is_some();
        match values.column(batch) {
            None if filled => selection.for_each(|_, ordinal| ordinals.push(ordinal)),
            None => return Ok(()),
            Some((place, column)) => {
                let text = place.kind == ValueKind::Text;
                let strings = match text && (column.is_list() || !place.is_verbatim(column)?) {
                    true => Some(column.strings()?),
                    false => None,
                };
                if strings.is_none() && column.is_plain() && matches!(selection.positions, Positions::All(_))
                {
                    return self.state.collect(selection.ordinals, metric::Values::Count(selection.len()));
                }
                selection.for_each(|at, ordinal| {
                    let row = column.row(at as usize);
                    let count = match strings {
                        None => row.len(),
                        Some(strings) => {
                            let mut own: Vec<&str> =
                                row.filter_map(|at| place.string(strings.value(at))).collect();
                            own.sort_unstable();
                            own.dedup();
                            own.len()
                        }
                    };
                    let count = if count == 0 && filled { 1 } else { count };
                    ordinals.extend(std::iter::repeat_n(ordinal, count));
                });
            }
        }
        let count = ordinals.len();
        self.state.collect(Ordinals::Each(ordinals), metric::Values::Count(count))
    }

    fn hashes(&mut self, batch: &Batch<'_>, selection: Selection<'_>) -> Result<()> {
        let Some(values) = self.measure.fields.first() else { return Ok(()) };
        let (hashes, ordinals) = (&mut self.hashes, &mut self.ordinals);
        hashes.clear();
        ordinals.clear();
        let filled = values.missing().map(|filled| match filled {
            MissingValue::Long(value) => hash_long(*value),
            MissingValue::Double(value) => hash_double(*value),
            MissingValue::Text(text) => hash_bytes(text.as_bytes()),
            MissingValue::Ip(bytes) => hash_bytes(bytes),
            MissingValue::Point(lat, lon) => hash_double(*lat) ^ hash_double(*lon).rotate_left(17),
        });
        let constant = values.constant_in(batch.segment.index).map(|text| hash_bytes(text.as_bytes()));
        let Some((place, column)) = values.column(batch) else {
            if let Some(hash) = constant.or(filled) {
                selection.for_each(|_, ordinal| {
                    hashes.push(hash);
                    ordinals.push(ordinal);
                });
            }
            return self.state.collect(Ordinals::Each(ordinals), metric::Values::Hashes(hashes));
        };
        let double = values.kind == Some(ValueKind::Double);
        macro_rules! each {
            ($hash:expr) => {
                selection.for_each(|at, ordinal| {
                    let before = hashes.len();
                    for at in column.row(at as usize) {
                        hashes.extend($hash(at));
                    }
                    if hashes.len() == before {
                        hashes.extend(filled);
                    }
                    ordinals.extend(std::iter::repeat_n(ordinal, hashes.len() - before));
                })
            };
        }
        match place.kind {
            ValueKind::Text => {
                let strings = column.strings()?;
                let mut last: Option<(u128, u64)> = None;
                each!(|at: usize| {
                    let view = strings.views()[at];
                    match last {
                        Some((known, hash)) if known == view => Some(hash),
                        _ => {
                            let hash = hash_bytes(place.string(strings.value(at))?.as_bytes());
                            last = Some((view, hash));
                            Some(hash)
                        }
                    }
                });
            }
            ValueKind::Ip => {
                let addresses = column.values.as_fixed_size_binary_opt();
                each!(|at: usize| addresses.map(|addresses| hash_bytes(addresses.value(at))));
            }
            ValueKind::Point => {
                let points = points(column)?;
                each!(|at: usize| Some(
                    hash_double(points.0.value(at)) ^ hash_double(points.1.value(at)).rotate_left(17)
                ));
            }
            kind if double || kind == ValueKind::Double => {
                let numbers = column.doubles()?;
                each!(|at: usize| Some(hash_double(numbers.value(at))));
            }
            _ => {
                let longs = column.longs()?;
                each!(|at: usize| Some(hash_long(place.long(longs.value(at)))));
            }
        }
        self.state.collect(Ordinals::Each(ordinals), metric::Values::Hashes(hashes))
    }

    fn weighted(&mut self, batch: &Batch<'_>, selection: Selection<'_>) -> Result<()> {
        let [values, weights] = self.measure.fields.as_slice() else { return Ok(()) };
        let mut of_value: Vec<Vec<f64>> = Vec::with_capacity(selection.len());
        each_number(values, batch, selection, |_, _, found| of_value.push(found.to_vec()))?;
        let (numbers, others, ordinals) = (&mut self.numbers, &mut self.others, &mut self.ordinals);
        numbers.clear();
        others.clear();
        ordinals.clear();
        let mut of_value = of_value.into_iter();
        let mut several = false;
        each_number(weights, batch, selection, |_, ordinal, found| {
            let own = of_value.next().unwrap_or_default();
            if own.is_empty() {
                return;
            }
            several |= found.len() > 1;
            if let [weight] = found {
                others.extend(std::iter::repeat_n(*weight, own.len()));
                ordinals.extend(std::iter::repeat_n(ordinal, own.len()));
                numbers.extend(own);
            }
        })?;
        if several {
            return Err(Error::Exception {
                kind: "aggregation_execution_exception",
                reason: "Encountered more than one weight for a single document. Use a script to combine multiple weights-per-doc into a single value.".to_owned(),
                status: 500,
            });
        }
        self.state
            .collect(Ordinals::Each(ordinals), metric::Values::Weighted { values: numbers, weights: others })
    }

    fn points(&mut self, batch: &Batch<'_>, selection: Selection<'_>) -> Result<()> {
        let Some(values) = self.measure.fields.first() else { return Ok(()) };
        let (lats, lons, ordinals) = (&mut self.numbers, &mut self.others, &mut self.ordinals);
        lats.clear();
        lons.clear();
        ordinals.clear();
        let filled = match values.missing() {
            Some(MissingValue::Point(lat, lon)) => Some((*lat, *lon)),
            _ => None,
        };
        let column = values.column(batch).map(|(_, column)| column);
        let found = column
            .filter(|column| column.values.as_struct_opt().is_some())
            .map(|column| Ok::<_, Error>((column, points(column)?)));
        let found = found.transpose()?;
        selection.for_each(|at, ordinal| {
            let row = found.as_ref().map_or(0..0, |(column, _)| column.row(at as usize));
            if row.is_empty()
                && let Some((lat, lon)) = filled
            {
                lats.push(lat);
                lons.push(lon);
                ordinals.push(ordinal);
            }
            if let Some((_, (lat, lon))) = &found {
                for at in row {
                    lats.push(quantized(lat.value(at), 180.0));
                    lons.push(quantized(lon.value(at), 360.0));
                    ordinals.push(ordinal);
                }
            }
        });
        self.state.collect(Ordinals::Each(ordinals), metric::Values::Points { lat: lats, lon: lons })
    }

    fn rows(&mut self, batch: &Batch<'_>, selection: Selection<'_>, fields: usize) -> Result<()> {
        let mode = match self.measure.metric.as_ref() {
            Metric::MatrixStats(options) => options.mode,
            _ => MatrixMode::Avg,
        };
        let mut columns: Vec<Vec<Option<f64>>> = Vec::with_capacity(fields);
        for values in &self.measure.fields {
            let mut column = Vec::with_capacity(selection.len());
            each_number(values, batch, selection, |_, _, found| column.push(one_of(found, mode)))?;
            columns.push(column);
        }
        let (numbers, ordinals) = (&mut self.numbers, &mut self.ordinals);
        numbers.clear();
        ordinals.clear();
        for at in 0..selection.len() {
            let row: Option<Vec<f64>> =
                columns.iter().map(|column| column.get(at).copied().flatten()).collect();
            if let Some(row) = row {
                numbers.extend(row);
                ordinals.push(selection.ordinal(at));
            }
        }
        self.state.collect(Ordinals::Each(ordinals), metric::Values::Rows(numbers))
    }
}

impl Collector for MetricCollector {
    fn collect(&mut self, batch: &Batch<'_>, selection: Selection<'_>) -> Result<()> {
        if selection.len() == 0 {
            return Ok(());
        }
        match self.input {
            Input::Numbers => self.numbers(batch, selection),
            Input::Count => self.count(batch, selection),
            Input::Hashes => self.hashes(batch, selection),
            Input::Weighted => self.weighted(batch, selection),
            Input::Points => self.points(batch, selection),
            Input::Rows(fields) => self.rows(batch, selection, fields),
        }
    }

    fn ask(&mut self, _segment: &SegmentContext<'_>, answer: &mut SourceQuery<'_>) -> Result<bool> {
        let measure = Arc::clone(&self.measure);
        let Some(values) = measure.fields.first() else { return Ok(false) };
        let question = match measure.metric.as_ref() {
            Metric::Simple(Simple::Min | Simple::Max, _) => Question::Extremes(values),
            Metric::Simple(Simple::ValueCount, _) => Question::ValueCount(values),
            Metric::Cardinality(_) => Question::Distinct(values),
            _ => return Ok(false),
        };
        self.hashes.clear();
        let done = answer(&question, self)?;
        self.flush()?;
        Ok(done)
    }

    fn end_shard(&mut self, _segments: &mut dyn ShardReader) -> Result<()> {
        self.state.end_shard();
        Ok(())
    }

    fn fresh(&self) -> Box<dyn Collector> {
        Box::new(Self::new(&self.measure, false))
    }

    fn merge(&mut self, other: Box<dyn Collector>, map: Option<&[u32]>, work: &QueryContext) -> Result<()> {
        match same::<Self>(other) {
            Some(other) => self.state.merge(other.state, map, work),
            None => Ok(()),
        }
    }

    fn reduce(&mut self, parents: &[u32], reduction: &mut Reduction<'_>) -> Result<Vec<Outcome>> {
        let outcome = |parent: &u32| {
            reduction.work.check()?;
            Ok(Outcome::Metric(self.state.reduce(*parent)))
        };
        parents.iter().map(outcome).collect()
    }

    fn memory(&self) -> usize {
        self.state.memory() + (self.numbers.capacity() + self.others.capacity() + self.hashes.capacity()) * 8
    }
}

impl Sink for MetricCollector {
    fn group(&mut self, _group: u64, count: u64) -> Result<()> {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        self.state.collect(Ordinals::One(0), metric::Values::Count(count))
    }

    fn term(&mut self, _kind: ValueKind, term: &[u8], _rows: u64) -> Result<Option<u32>> {
        self.hashes.push(hash_bytes(term));
        if self.hashes.len() >= HASHED_TERMS {
            self.flush()?;
        }
        Ok(None)
    }

    fn numbers(&mut self, numbers: &[f64]) -> Result<()> {
        self.state.collect(Ordinals::One(0), metric::Values::Numbers(numbers))
    }
}

/// Calls `each` with every row of a selection, its bucket, and its numbers.
fn each_number(
    values: &Values,
    batch: &Batch<'_>,
    selection: Selection<'_>,
    mut each: impl FnMut(u32, u32, &[f64]),
) -> Result<()> {
    let filled = match values.missing() {
        Some(MissingValue::Double(value)) => Some(*value),
        Some(MissingValue::Long(value)) if values.kind == Some(ValueKind::Unsigned) => {
            Some(*value as u64 as f64)
        }
        Some(MissingValue::Long(value)) => Some(*value as f64),
        _ => None,
    };
    let filled = filled.as_slice();
    let Some((_, column)) = values.column(batch) else {
        selection.for_each(|at, ordinal| each(at, ordinal, filled));
        return Ok(());
    };
    let numbers = column.doubles()?.values();
    selection.for_each(|at, ordinal| {
        let row = column.row(at as usize);
        each(at, ordinal, if row.is_empty() { filled } else { &numbers[row] });
    });
    Ok(())
}

fn points(column: &Column) -> Result<(&Float64Array, &Float64Array)> {
    let part = |name: &str| {
        column
            .values
            .as_struct_opt()
            .and_then(|points| points.column_by_name(name))
            .and_then(|part| part.as_primitive_opt::<Float64Type>())
            .ok_or_else(|| Error::Execution(format!("a column of points lacks [{name}]")))
    };
    Ok((part("lat")?, part("lon")?))
}

/// Lucene keeps a coordinate in 32 bits: the value that it would show.
fn quantized(degrees: f64, range: f64) -> f64 {
    let step = range / 4_294_967_296.0;
    let degrees = if degrees >= range / 2.0 { degrees.next_down() } else { degrees };
    (degrees / step).floor() * step
}

fn one_of(values: &[f64], mode: MatrixMode) -> Option<f64> {
    if values.len() < 2 {
        return values.first().copied();
    }
    Some(match mode {
        MatrixMode::Avg => values.iter().sum::<f64>() / values.len() as f64,
        MatrixMode::Sum => values.iter().sum(),
        MatrixMode::Min => values.iter().copied().fold(f64::INFINITY, f64::min),
        MatrixMode::Max => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        MatrixMode::Median => {
            let mut own = values.to_vec();
            own.sort_unstable_by(f64::total_cmp);
            let middle = own.len() / 2;
            if own.len() % 2 == 1 { own[middle] } else { (own[middle - 1] + own[middle]) / 2.0 }
        }
    })
}
