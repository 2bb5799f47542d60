//! Parent pipelines: additions to the buckets that they stand in, or the selection of these.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;

use millrace_dsl::aggs::{
    BucketExpression, BucketSort, Derivative, GapPolicy, MovingFn, Pipeline, SerialDiff,
};
use millrace_dsl::expression::Scope;
use millrace_work::error::Result;

use super::resolve::ValuePath;
use crate::result::{Bucket, Buckets, Entry, Header, Key, Metric, Outcome};

/// Runs a parent over the buckets of the aggregation `of`.
pub(super) fn compute(
    pipeline: &Pipeline,
    header: &Arc<Header>,
    of: &str,
    buckets: &mut Buckets,
) -> Result<()> {
    let add = |bucket: &mut Bucket, metric: Metric| {
        bucket.subs.0.push(Entry { header: Arc::clone(header), outcome: Outcome::Metric(metric) });
    };
    match pipeline {
        Pipeline::Derivative(derivative) => differences(derivative, of, buckets, add),
        Pipeline::CumulativeSum { path, .. } => {
            let path = ValuePath::parse(path, 0)?;
            let mut sum = 0.0;
            for bucket in &mut buckets.buckets {
                let value = path.value(of, bucket, GapPolicy::InsertZeros)?;
                sum += value.filter(|value| value.is_finite()).unwrap_or(0.0);
                add(bucket, Metric::Simple(sum));
            }
            Ok(())
        }
        Pipeline::MovingFn(moving) => windows(moving, of, buckets, add),
        Pipeline::SerialDiff(diff) => lagged(diff, of, buckets, add),
        Pipeline::BucketSort(sort) => reorder(sort, of, buckets),
        Pipeline::BucketSelector(selector) => select(selector, of, buckets),
        Pipeline::BucketScript(script) => evaluate(script, of, buckets, add),
        Pipeline::BucketMetric(_) => Ok(()),
    }
}

fn differences(
    derivative: &Derivative,
    of: &str,
    buckets: &mut Buckets,
    add: impl Fn(&mut Bucket, Metric),
) -> Result<()> {
    let path = ValuePath::parse(&derivative.path, 0)?;
    let mut last: Option<(f64, f64)> = None;
    for bucket in &mut buckets.buckets {
        let key = match bucket.key {
            Key::Long(key) => key as f64,
            Key::Double(key) => key,
            _ => f64::NAN,
        };
        let value = path.value(of, bucket, derivative.gap_policy)?;
        if let (Some((last_key, last_value)), Some(value)) = (last, value) {
            let difference = value - last_value;
            let normalized = derivative.unit_ms.map(|unit| difference / ((key - last_key) / unit));
            add(bucket, Metric::Derivative { value: difference, normalized });
        }
        last = value.map(|value| (key, value));
    }
    Ok(())
}

fn windows(
    moving: &MovingFn,
    of: &str,
    buckets: &mut Buckets,
    add: impl Fn(&mut Bucket, Metric),
) -> Result<()> {
    let path = ValuePath::parse(&moving.path, 0)?;
    let mut values = Vec::with_capacity(buckets.buckets.len());
    for bucket in &buckets.buckets {
        values.push(path.value(of, bucket, moving.gap_policy)?.filter(|value| !value.is_nan()));
    }
    let present: Vec<f64> = values.iter().copied().flatten().collect();
    let length = present.len() as i64;
    let window = i64::try_from(moving.window).unwrap_or(i64::MAX);
    let mut index = 0i64;
    for (bucket, value) in buckets.buckets.iter_mut().zip(values) {
        if value.is_none() {
            continue;
        }
        let from = index.saturating_sub(window).saturating_add(moving.shift).clamp(0, length) as usize;
        let to = index.saturating_add(moving.shift).clamp(0, length) as usize;
        let scope = Scope { params: &[], values: present.get(from..to).unwrap_or_default() };
        // A script without a value returns what Java initialises a double with.
        let result = moving.script.number(&scope)?.unwrap_or(0.0);
        add(bucket, Metric::Simple(result));
        index += 1;
    }
    Ok(())
}

fn lagged(
    diff: &SerialDiff,
    of: &str,
    buckets: &mut Buckets,
    add: impl Fn(&mut Bucket, Metric),
) -> Result<()> {
    let path = ValuePath::parse(&diff.path, 0)?;
    let mut before: VecDeque<f64> = VecDeque::new();
    for bucket in &mut buckets.buckets {
        let value = path.value(of, bucket, diff.gap_policy)?.unwrap_or(f64::NAN);
        let lagged = if before.len() == diff.lag { before.pop_front() } else { None };
        if let Some(lagged) = lagged
            && !lagged.is_nan()
            && !value.is_nan()
        {
            add(bucket, Metric::Simple(value - lagged));
        }
        before.push_back(value);
    }
    Ok(())
}

/// The values of an expression's variables in a bucket; `None` where one is missing and that leaves the bucket out.
fn variables<'a>(
    paths: &'a [(String, ValuePath)],
    of: &str,
    bucket: &Bucket,
    gap_policy: GapPolicy,
    skips: bool,
) -> Result<Option<Vec<(&'a str, f64)>>> {
    let mut variables = Vec::with_capacity(paths.len());
    for (name, path) in paths {
        match path.value(of, bucket, gap_policy)? {
            Some(value) if !value.is_nan() => variables.push((name.as_str(), value)),
            _ if skips && gap_policy == GapPolicy::Skip => return Ok(None),
            Some(value) => variables.push((name.as_str(), value)),
            // Not there: null.
            None => {}
        }
    }
    Ok(Some(variables))
}

fn parsed(expression: &BucketExpression) -> Result<Vec<(String, ValuePath)>> {
    let paths = expression.paths.iter();
    paths.map(|(name, path)| Ok((name.clone(), ValuePath::parse(path, 0)?))).collect()
}

fn evaluate(
    script: &BucketExpression,
    of: &str,
    buckets: &mut Buckets,
    add: impl Fn(&mut Bucket, Metric),
) -> Result<()> {
    let paths = parsed(script)?;
    for bucket in &mut buckets.buckets {
        let Some(variables) = variables(&paths, of, bucket, script.gap_policy, true)? else { continue };
        let scope = Scope { params: &variables, values: &[] };
        if let Some(number) = script.expression.number(&scope)? {
            add(bucket, Metric::Simple(number));
        }
    }
    Ok(())
}

fn select(selector: &BucketExpression, of: &str, buckets: &mut Buckets) -> Result<()> {
    let paths = parsed(selector)?;
    let mut kept = Vec::with_capacity(buckets.buckets.len());
    for bucket in std::mem::take(&mut buckets.buckets) {
        let variables = variables(&paths, of, &bucket, selector.gap_policy, false)?;
        let scope = Scope { params: variables.as_deref().unwrap_or_default(), values: &[] };
        if selector.expression.boolean(&scope)? {
            kept.push(bucket);
        }
    }
    buckets.buckets = kept;
    Ok(())
}

/// Value that buckets are ordered by.
#[derive(Clone, Debug)]
enum SortValue {
    Missing,
    Number(f64),
    Key(Key),
}

impl SortValue {
    /// Compares so that what is missing comes last either way.
    fn compare(&self, other: &Self, descending: bool) -> Ordering {
        let ordering = match (self, other) {
            (Self::Missing, Self::Missing) => return Ordering::Equal,
            (Self::Missing, _) => return Ordering::Greater,
            (_, Self::Missing) => return Ordering::Less,
            (Self::Number(a), Self::Number(b)) => a.total_cmp(b),
            (Self::Key(a), Self::Key(b)) => a.compare(b),
            _ => Ordering::Equal,
        };
        if descending { ordering.reverse() } else { ordering }
    }
}

fn reorder(sort: &BucketSort, of: &str, buckets: &mut Buckets) -> Result<()> {
    if !sort.sort.is_empty() {
        let mut paths = Vec::with_capacity(sort.sort.len());
        for key in &sort.sort {
            let path = (key.path != "_key").then(|| ValuePath::parse(&key.path, 0)).transpose()?;
            paths.push((path, key.descending));
        }
        let mut keyed = Vec::with_capacity(buckets.buckets.len());
        for bucket in std::mem::take(&mut buckets.buckets) {
            let mut values = Vec::with_capacity(paths.len());
            for (path, _) in &paths {
                values.push(match path {
                    None => SortValue::Key(bucket.key.clone()),
                    Some(path) => match path.value(of, &bucket, sort.gap_policy)? {
                        Some(value) if !value.is_nan() => SortValue::Number(value),
                        _ => SortValue::Missing,
                    },
                });
            }
            // A bucket without any of the values is left out.
            if !values.iter().all(|value| matches!(value, SortValue::Missing)) {
                keyed.push((values, bucket));
            }
        }
        keyed.sort_by(|(a, _), (b, _)| {
            let compared = a.iter().zip(b).zip(&paths).map(|((a, b), (_, down))| a.compare(b, *down));
            compared.into_iter().find(|ordering| ordering.is_ne()).unwrap_or(Ordering::Equal)
        });
        buckets.buckets = keyed.into_iter().map(|(_, bucket)| bucket).collect();
    }
    let found = &mut buckets.buckets;
    found.drain(..sort.from.min(found.len()));
    found.truncate(sort.size.unwrap_or(usize::MAX));
    Ok(())
}
