//! `histogram`: buckets of equal width.

use std::sync::Arc;

use millrace_dsl::aggs::{Bounds, Histogram};
use millrace_work::error::{Error, Result};

use super::keyed::{Candidate, Keyed, KeyedCollector, Kind};
use super::sorted;
use crate::collector::Reduction;
use crate::compile::{Compiler, Context};
use crate::field::Accepts;
use crate::keys::{Form, KeyRule};
use crate::ordinals::Children;
use crate::result::{self, Buckets, Key, Outcome};

/// What the answer is made with.
#[derive(Debug)]
pub(crate) struct Shape {
    histogram: Arc<Histogram>,
}

/// Lets the aggregation meet the mappings.
pub(crate) fn compile(
    compiler: &mut Compiler<'_>,
    context: Context,
    histogram: &Arc<Histogram>,
) -> Result<Arc<Keyed>> {
    let values = compiler.values(context, &histogram.source, "histogram", Accepts::Numbers)?;
    let (interval, offset) = (histogram.interval, histogram.offset);
    let bounds = histogram.hard_bounds.map(|Bounds { min, max }| {
        // Keys are compared without their offset.
        (min.map_or(f64::NEG_INFINITY, |min| min + offset), max.map_or(f64::INFINITY, |max| max + offset))
    });
    let rule = KeyRule { values, form: Form::Interval { interval, offset, bounds }, null: false };
    let kind = Kind::Histogram(Shape { histogram: Arc::clone(histogram) });
    Ok(Arc::new(Keyed { rules: vec![Arc::new(rule)], list: false, kind }))
}

/// Makes the answer.
pub(crate) fn reduce(
    shape: &Shape,
    level: &mut KeyedCollector,
    children: &Children,
    parents: &[u32],
    reduction: &mut Reduction<'_>,
) -> Result<Vec<Outcome>> {
    let histogram = &shape.histogram;
    let mut chosen = Vec::with_capacity(parents.len());
    for parent in parents {
        let mut candidates: Vec<(f64, Candidate)> = level
            .candidates(children, *parent, reduction)?
            .into_iter()
            .filter(|candidate| candidate.doc_count >= histogram.min_doc_count)
            .filter_map(|candidate| match candidate.key {
                Key::Double(key) => Some((key, candidate)),
                _ => None,
            })
            .collect();
        candidates.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        level.made(candidates.len(), reduction)?;
        let list = match histogram.min_doc_count {
            0 => filled(histogram, candidates, reduction.max_buckets, &mut || level.made(1, reduction))?,
            _ => candidates.into_iter().map(|(_, candidate)| candidate).collect(),
        };
        chosen.push(sorted::first(level, &histogram.order, list, usize::MAX, reduction)?);
    }
    let lists = level.finish(chosen, reduction)?;
    let outcome = |buckets| {
        Outcome::Buckets(Box::new(Buckets {
            shape: result::Shape::Histogram,
            keyed: histogram.keyed,
            buckets,
        }))
    };
    Ok(lists.into_iter().map(outcome).collect())
}

/// Puts empty buckets into gaps, each of which `made` counts.
fn filled(
    histogram: &Histogram,
    candidates: Vec<(f64, Candidate)>,
    max_buckets: u64,
    made: &mut dyn FnMut() -> Result<()>,
) -> Result<Vec<Candidate>> {
    let (interval, offset) = (histogram.interval, histogram.offset);
    let number = |key: f64| ((key - offset) / interval).floor();
    let extended = histogram.extended_bounds.unwrap_or_default();
    let (min, max) = (extended.min.map(number), extended.max.map(number));
    // Keys are multiples but for rounding.
    let numbered = |key: f64| ((key - offset) / interval).round();
    let ends =
        candidates.first().zip(candidates.last()).map(|(first, last)| (numbered(first.0), numbered(last.0)));
    let (start, end) = match (ends, min, max) {
        (Some((first, last)), min, max) => {
            (min.map_or(first, |min| min.min(first)), max.map_or(last, |max| max.max(last)))
        }
        (None, Some(min), Some(max)) => (min, max),
        (None, ..) => return Ok(Vec::new()),
    };
    let buckets = end - start + 1.0;
    // What is no number comes of an interval that its keys cannot tell apart.
    if buckets.is_nan() || buckets > max_buckets as f64 {
        return Err(Error::TooManyBuckets { limit: max_buckets, made: buckets as u64 });
    }
    let mut list = Vec::with_capacity(candidates.len());
    let mut candidates = candidates.into_iter().peekable();
    let mut before = f64::NEG_INFINITY;
    for step in 0..buckets.max(0.0) as u64 {
        let at = start + step as f64;
        // Beyond 2^53 there is not a double for every step.
        if at <= before || at > end {
            continue;
        }
        before = at;
        let known = list.len();
        while let Some((_, candidate)) = candidates.next_if(|(key, _)| numbered(*key) <= at) {
            list.push(candidate);
        }
        if list.len() == known {
            made()?;
            list.push(Candidate::empty(Key::Double(at * interval + offset)));
        }
    }
    list.extend(candidates.map(|(_, candidate)| candidate));
    Ok(list)
}
