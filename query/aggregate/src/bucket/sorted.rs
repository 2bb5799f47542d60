//! The order of buckets, and the first of them.

use std::cmp::Ordering;

use millrace_dsl::aggs::{BucketOrder, OrderBy, PathOrder, Thresholds};
use millrace_work::error::{Error, Result};

use super::keyed::{BucketCandidate, Candidate, KeyedCollector};
use crate::collector::Reduction;
use crate::keys::RowKeys;
use crate::result::{Outcome, Results};

/// A bucket that is put in order.
pub(crate) trait OrderedBucket {
    /// Number of its documents.
    fn doc_count(&self) -> u64;
    /// Its number.
    fn ordinal(&self) -> u32;
    /// Compares keys.
    fn by_key(&self, other: &Self, keys: &RowKeys) -> Ordering;
}

impl OrderedBucket for Candidate {
    fn doc_count(&self) -> u64 {
        self.doc_count
    }
    fn ordinal(&self) -> u32 {
        self.ordinal
    }
    fn by_key(&self, other: &Self, _keys: &RowKeys) -> Ordering {
        self.key.compare(&other.key)
    }
}

impl OrderedBucket for BucketCandidate {
    fn doc_count(&self) -> u64 {
        self.doc_count
    }
    fn ordinal(&self) -> u32 {
        self.ordinal
    }
    fn by_key(&self, other: &Self, keys: &RowKeys) -> Ordering {
        keys.compare(self.key, other.key)
    }
}

/// Orders candidates and keeps the first `size`.
///
/// # Errors
/// A path of the order that leads nowhere.
pub(crate) fn take_first<T: OrderedBucket>(
    level: &mut KeyedCollector,
    order: &BucketOrder,
    candidates: Vec<T>,
    size: usize,
    reduction: &mut Reduction<'_>,
) -> Result<Vec<T>> {
    let by_results = order.0.iter().any(|criterion| matches!(criterion.by, OrderBy::Path { .. }));
    if !by_results {
        let less = |a: &T, b: &T| by_order(order, &level.row_keys, (a, &[]), (b, &[]));
        let mut first = leading(candidates, size, less);
        first.sort_unstable_by(less);
        return Ok(first);
    }
    let ordinals: Vec<u32> = candidates.iter().map(T::ordinal).collect();
    let path = |criterion: &PathOrder| match &criterion.by {
        OrderBy::Path { names, .. } => Some(names.clone()),
        _ => None,
    };
    // What is computed for the order alone makes no buckets of the answer, and is held until they are in order.
    let ordering = reduction.work.part();
    let answer = std::mem::replace(&mut reduction.work, ordering);
    let (made, outer) = (reduction.made, reduction.only.take());
    reduction.only = Some(order.0.iter().filter_map(path).collect());
    let results = level.results(&ordinals, reduction);
    (reduction.made, reduction.only) = (made, outer);
    let _ordering = std::mem::replace(&mut reduction.work, answer);
    let results = results?;
    let mut valued = Vec::with_capacity(candidates.len());
    for (candidate, results) in candidates.into_iter().zip(results) {
        let mut values = Vec::new();
        for criterion in &order.0 {
            values.push(match &criterion.by {
                OrderBy::Path { names, property } => value(&results, names, property.as_deref())?,
                _ => 0.0,
            });
        }
        valued.push((candidate, values));
    }
    valued.sort_by(|a, b| by_order(order, &level.row_keys, (&a.0, &a.1), (&b.0, &b.1)));
    valued.truncate(size);
    Ok(valued.into_iter().map(|(candidate, _)| candidate).collect())
}

/// Keeps the first `size` in any order. Once there are so many, what comes is compared with the last of them alone.
fn leading<T>(candidates: Vec<T>, size: usize, less: impl Fn(&T, &T) -> Ordering + Copy) -> Vec<T> {
    let Some(last) = size.checked_sub(1) else { return Vec::new() };
    if candidates.len() <= size {
        return candidates;
    }
    let most = size.saturating_mul(2).min(candidates.len());
    let mut kept = Vec::with_capacity(most);
    let mut full = false;
    for candidate in candidates {
        if full && less(&candidate, &kept[last]).is_ge() {
            continue;
        }
        kept.push(candidate);
        if kept.len() == most {
            kept.select_nth_unstable_by(last, less);
            kept.truncate(size);
            full = true;
        }
    }
    if kept.len() > size {
        kept.select_nth_unstable_by(last, less);
        kept.truncate(size);
    }
    kept
}

/// Orders candidates and keeps those that thresholds let pass; with the documents of the frequent enough
/// ones that are left out.
///
/// # Errors
/// As [`take_first`].
pub(crate) fn take_passing(
    level: &mut KeyedCollector,
    order: &BucketOrder,
    mut candidates: Vec<BucketCandidate>,
    thresholds: &Thresholds,
    reduction: &mut Reduction<'_>,
) -> Result<(Vec<Candidate>, u64)> {
    let documents = |of: &[BucketCandidate]| of.iter().map(|candidate| candidate.doc_count).sum::<u64>();
    candidates.retain(|candidate| candidate.doc_count >= thresholds.min_doc_count);
    let total = documents(&candidates);
    let first = take_first(level, order, candidates, thresholds.size, reduction)?;
    let other = total - documents(&first);
    Ok((level.chosen(first), other))
}

fn by_order<T: OrderedBucket>(
    order: &BucketOrder,
    keys: &RowKeys,
    a: (&T, &[f64]),
    b: (&T, &[f64]),
) -> Ordering {
    for (at, PathOrder { by, ascending }) in order.0.iter().enumerate() {
        let found = match by {
            OrderBy::Key => a.0.by_key(b.0, keys),
            OrderBy::Count => a.0.doc_count().cmp(&b.0.doc_count()),
            OrderBy::Path { .. } => {
                let value = |values: &[f64]| values.get(at).copied().unwrap_or(f64::NAN);
                match (value(a.1), value(b.1)) {
                    // What has no value comes last in either direction.
                    (a, b) if a.is_nan() || b.is_nan() => match a.is_nan().cmp(&b.is_nan()) {
                        Ordering::Equal => continue,
                        other => return other,
                    },
                    (a, b) => a.total_cmp(&b),
                }
            }
        };
        let found = if *ascending { found } else { found.reverse() };
        if found != Ordering::Equal {
            return found;
        }
    }
    Ordering::Equal
}

/// Finds the value that an order compares.
fn value(results: &Results, names: &[String], property: Option<&str>) -> Result<f64> {
    let Some((name, rest)) = names.split_first() else {
        return Err(Error::Execution("an order names no aggregation".to_owned()));
    };
    let Some(entry) = results.get(name) else {
        return Err(Error::Execution(format!("an order names an unknown aggregation [{name}]")));
    };
    match &entry.outcome {
        Outcome::Single(single) if rest.is_empty() => Ok(single.doc_count as f64),
        Outcome::Single(single) => value(&single.subs, rest, property),
        Outcome::Metric(metric) => match property {
            None => Ok(metric.single().unwrap_or(f64::NAN)),
            Some(property) => Ok(metric.value(property)?.unwrap_or(f64::NAN)),
        },
        _ => Err(Error::Execution(format!("[{name}] has no value to order by"))),
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    #[test]
    fn the_first_are_those_of_a_sort() {
        let mut rng = StdRng::seed_from_u64(5);
        for _ in 0..500 {
            let many = rng.random_range(0..200);
            let all: Vec<u32> = (0..many).map(|_| rng.random_range(0..100)).collect();
            let size = rng.random_range(0..40);
            let mut first = leading(all.clone(), size, u32::cmp);
            first.sort_unstable();
            let mut sorted = all;
            sorted.sort_unstable();
            sorted.truncate(size);
            assert_eq!(first, sorted);
        }
    }
}
