//! `histogram`: buckets of equal width.

use std::sync::Arc;

use millrace_dsl::aggs::{Bounds, Histogram};
use millrace_work::error::{Error, Result};

use super::gaps::{self, BucketPositions, Layout};
use super::keyed::{KeyedAggregation, KeyedCollector, Kind};
use crate::collector::Reduction;
use crate::compiler::{Compiler, Context};
use crate::field::AcceptedTypes;
use crate::keys::{KeyForm, KeyRule};
use crate::ordinals::Children;
use crate::result::{self, Key, Outcome};

/// Specification of the answer.
#[derive(Debug)]
pub(crate) struct HistogramSpec {
    histogram: Arc<Histogram>,
}

/// Lets the aggregation meet the mappings.
pub(crate) fn compile(
    compiler: &mut Compiler<'_>,
    context: Context,
    histogram: &Arc<Histogram>,
) -> Result<Arc<KeyedAggregation>> {
    let values = compiler.values(context, &histogram.source, "histogram", AcceptedTypes::Numbers)?;
    let (interval, offset) = (histogram.interval, histogram.offset);
    let bounds = histogram.hard_bounds.map(|Bounds { min, max }| {
        // Keys are compared without their offset.
        (min.map_or(f64::NEG_INFINITY, |min| min + offset), max.map_or(f64::INFINITY, |max| max + offset))
    });
    let rule = KeyRule { values, form: KeyForm::Interval { interval, offset, bounds }, null: false };
    let kind = Kind::Histogram(HistogramSpec { histogram: Arc::clone(histogram) });
    Ok(Arc::new(KeyedAggregation { rules: vec![Arc::new(rule)], list: false, kind }))
}

/// Makes the answer.
pub(crate) fn reduce(
    shape: &HistogramSpec,
    level: &mut KeyedCollector,
    children: &Children,
    parents: &[u32],
    reduction: &mut Reduction<'_>,
) -> Result<Vec<Outcome>> {
    let Histogram { min_doc_count, ref order, keyed, .. } = *shape.histogram;
    let layout = Layout { min_doc_count, order, keyed, shape: result::BucketsKind::Histogram };
    gaps::reduce(shape, layout, level, children, parents, reduction)
}

impl HistogramSpec {
    /// Returns the number of intervals from the offset to a number.
    fn intervals(&self, number: f64) -> f64 {
        (number - self.histogram.offset) / self.histogram.interval
    }
}

/// Buckets are at the multiples of the interval, by their numbers.
impl BucketPositions for HistogramSpec {
    type Position = f64;

    fn of(&self, key: &Key) -> Option<f64> {
        match key {
            // Keys are multiples but for rounding.
            Key::Double(key) => Some(self.intervals(*key).round()),
            _ => None,
        }
    }

    fn key(&self, place: f64) -> Key {
        Key::Double(place * self.histogram.interval + self.histogram.offset)
    }

    fn extended(&self) -> (Option<f64>, Option<f64>) {
        let Bounds { min, max } = self.histogram.extended_bounds.unwrap_or_default();
        let place = |bound: f64| self.intervals(bound).floor();
        (min.map(place), max.map(place))
    }

    fn walk(&self, first: f64, last: f64, max_buckets: u64) -> Result<impl Iterator<Item = f64>> {
        let buckets = last - first + 1.0;
        // What is no number comes of an interval that its keys cannot tell apart.
        if buckets.is_nan() || buckets > max_buckets as f64 {
            return Err(Error::TooManyBuckets { limit: max_buckets, made: buckets as u64 });
        }
        let all = (0..buckets.max(0.0) as u64).map(move |step| first + step as f64);
        let mut before = f64::NEG_INFINITY;
        // Beyond 2^53 there is not a double for every step.
        Ok(all.filter(move |at| {
            let ascends = *at > before && *at <= last;
            before = before.max(*at);
            ascends
        }))
    }
}
