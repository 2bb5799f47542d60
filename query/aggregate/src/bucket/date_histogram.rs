//! `date_histogram`: buckets of equal spans of time, or of calendar units.

use std::sync::Arc;

use millrace_dsl::aggs::{DateBounds, DateHistogram};
use millrace_mapping::Scalar;
use millrace_time::{Rounding, Zone};
use millrace_work::error::{Error, Result};
use serde_json::Value;

use super::gaps::{self, BucketPositions, Layout};
use super::keyed::{KeyedAggregation, KeyedCollector, Kind};
use crate::collector::Reduction;
use crate::compiler::{Compiler, Context};
use crate::field::{AcceptedTypes, Values};
use crate::keys::{KeyForm, KeyRule};
use crate::ordinals::Children;
use crate::result::{self, Format, Key, Outcome};

/// Specification of the answer.
#[derive(Debug)]
pub(crate) struct DateHistogramSpec {
    histogram: Arc<DateHistogram>,
    rounding: Rounding,
    /// Least and greatest key that empty buckets fill, where given.
    extended: (Option<i64>, Option<i64>),
}

/// Lets the aggregation meet the mappings.
pub(crate) fn compile(
    compiler: &mut Compiler<'_>,
    context: Context,
    histogram: &Arc<DateHistogram>,
) -> Result<Arc<KeyedAggregation>> {
    let values = compiler.values(context, &histogram.source, "date_histogram", AcceptedTypes::Dates)?;
    let rounding = Rounding {
        interval: histogram.interval,
        zone: histogram.source.time_zone.unwrap_or(Zone::UTC),
        offset_ms: histogram.offset_ms,
    };
    let extended = bounds(compiler, &values, histogram.extended_bounds.as_ref());
    if let (Some(min), Some(max)) = extended
        && min > max
    {
        compiler.fail_all(Error::IllegalArgument(format!(
            "[extended_bounds.min][{min}] cannot be greater than [extended_bounds.max][{max}] for histogram aggregation [{}]",
            compiler.name()
        )));
    }
    // As in OpenSearch bounds are rounded without the offset; extended ones are moved by it then.
    let plain = Rounding { offset_ms: 0, ..rounding };
    let round = |bound: i64| plain.round(bound);
    let extend = |bound: i64| plain.round(bound).saturating_add(rounding.offset_ms);
    let hard = bounds(compiler, &values, histogram.hard_bounds.as_ref());
    let within = match hard {
        (None, None) => None,
        // The span of the upper bound is not among the buckets.
        (min, max) => {
            Some((min.map_or(i64::MIN, round), max.map_or(i64::MAX, |max| round(max).saturating_sub(1))))
        }
    };
    let precedes = |bound: Option<i64>, other: Option<i64>| {
        bound.zip(other).is_some_and(|(bound, other)| round(bound) < round(other))
    };
    // As in OpenSearch a bound in the bucket of the other is inside.
    if precedes(extended.0, hard.0) || precedes(hard.1, extended.1) {
        compiler.fail_all(Error::IllegalArgument(format!(
            "Extended bounds have to be inside hard bounds, hard bounds: [{}], extended bounds: [{}]",
            shown(histogram.hard_bounds.as_ref()),
            shown(histogram.extended_bounds.as_ref())
        )));
    }
    let shape = DateHistogramSpec {
        histogram: Arc::clone(histogram),
        rounding,
        extended: (extended.0.map(extend), extended.1.map(extend)),
    };
    let rule = KeyRule { values, form: KeyForm::Dates { rounding, bounds: within }, null: false };
    Ok(Arc::new(KeyedAggregation {
        rules: vec![Arc::new(rule)],
        list: false,
        kind: Kind::DateHistogram(shape),
    }))
}

/// Shows bounds as the request has them.
fn shown(bounds: Option<&DateBounds>) -> String {
    let text = |bound: Option<&Value>| bound.and_then(millrace_dsl::json::text).unwrap_or_default();
    let (min, max) = bounds.map_or((None, None), |bounds| (bounds.min.as_ref(), bounds.max.as_ref()));
    format!("{}--{}", text(min), text(max))
}

/// Reads bounds as instants.
fn bounds(
    compiler: &mut Compiler<'_>,
    values: &Values,
    bounds: Option<&DateBounds>,
) -> (Option<i64>, Option<i64>) {
    let Some(bounds) = bounds else { return (None, None) };
    let mut read = |value: &Option<Value>| {
        let value = value.as_ref()?;
        match instant(compiler, values, value) {
            Ok(found) => Some(found),
            Err(error) => {
                compiler.fail_all(error);
                None
            }
        }
    };
    (read(&bounds.min), read(&bounds.max))
}

/// Reads an instant in milliseconds: a number is that, a text is in the format of the keys.
pub(crate) fn instant(compiler: &mut Compiler<'_>, values: &Values, value: &Value) -> Result<i64> {
    if let Some(number) = value.as_f64() {
        return Ok(number as i64);
    }
    let text = value.as_str().unwrap_or_default();
    if let Format::Date(format, zone) = &values.format {
        return compiler.date(format, *zone, text, false);
    }
    match compiler.parse(values, value)? {
        Some(Scalar::I64(instant)) => Ok(instant),
        Some(Scalar::F64(number)) => Ok(number as i64),
        _ => text.parse().map_err(|_| Error::NumberFormat(format!("For input string: \"{text}\""))),
    }
}

/// Makes the answer.
pub(crate) fn reduce(
    shape: &DateHistogramSpec,
    level: &mut KeyedCollector,
    children: &Children,
    parents: &[u32],
    reduction: &mut Reduction<'_>,
) -> Result<Vec<Outcome>> {
    let DateHistogram { min_doc_count, ref order, keyed, .. } = *shape.histogram;
    let layout = Layout { min_doc_count, order, keyed, shape: result::BucketsKind::DateHistogram };
    gaps::reduce(shape, layout, level, children, parents, reduction)
}

/// Buckets are at their keys.
impl BucketPositions for DateHistogramSpec {
    type Position = i64;

    fn of(&self, key: &Key) -> Option<i64> {
        match key {
            Key::Long(key) => Some(*key),
            _ => None,
        }
    }

    fn key(&self, place: i64) -> Key {
        Key::Long(place)
    }

    fn extended(&self) -> (Option<i64>, Option<i64>) {
        self.extended
    }

    fn walk(&self, first: i64, last: i64, _max_buckets: u64) -> Result<impl Iterator<Item = i64>> {
        Ok(self.rounding.starts(first).take_while(move |start| *start <= last))
    }
}
