//! `matrix_stats`: means, central moments and co-moments of several fields, in one pass.
//!
//! Moments are updated and merged by the formulas of Pébay ("Formulas for Robust, One-Pass Parallel Computation of
//! Covariances and Arbitrary-Order Statistical Moments", 2008), step by step as OpenSearch rounds them: each shard has
//! states of its own, fields come in the order of its hash maps, and the means of co-moments are sums by counts.

use std::sync::Arc;

use super::{Ordinals, grow, mapped, slot};
use crate::result::{MatrixField, MatrixStats, Metric};

/// Sums of powers of the distances to the mean, of one field.
#[derive(Clone, Copy, Debug, Default)]
struct FieldMoments {
    sum: f64,
    mean: f64,
    second: f64,
    third: f64,
    fourth: f64,
}

#[derive(Clone, Debug, Default)]
struct State {
    count: u64,
    fields: Vec<FieldMoments>,
    /// Sums of products of distances to the means: the upper triangle row by row, without the diagonal.
    products: Vec<f64>,
}

/// Moments by ordinal.
#[derive(Clone, Debug)]
pub(crate) struct Matrix {
    states: Vec<State>,
    /// Those of the shard that is being collected.
    shard: Vec<State>,
    names: Vec<Arc<str>>,
}

impl Matrix {
    pub(super) fn new(fields: &[String]) -> Self {
        let (states, shard) = (Vec::new(), Vec::new());
        Self { states, shard, names: fields.iter().map(|field| Arc::from(field.as_str())).collect() }
    }

    pub(super) fn collect(&mut self, ordinals: Ordinals<'_>, rows: &[f64]) {
        grow(&mut self.shard, ordinals, State::default());
        let width = self.names.len().max(1);
        for (at, row) in rows.chunks_exact(width).enumerate() {
            let ordinal = match ordinals {
                Ordinals::One(ordinal) => Some(ordinal),
                Ordinals::Each(ordinals) => ordinals.get(at).copied(),
            };
            if let Some(state) = ordinal.and_then(|ordinal| self.shard.get_mut(ordinal as usize)) {
                state.add(row);
            }
        }
    }

    /// Ends a shard: the next rows are of another.
    pub(super) fn end_shard(&mut self) {
        for (at, own) in (0..).zip(&std::mem::take(&mut self.shard)) {
            slot(&mut self.states, at, State::default()).merge(own);
        }
    }

    /// Adds what others know of shards that have ended.
    pub(super) fn merge(&mut self, others: &Self, map: Option<&[u32]>) {
        for (at, other) in mapped(&others.states, map) {
            slot(&mut self.states, at, State::default()).merge(other);
        }
        for (at, other) in mapped(&others.shard, map) {
            slot(&mut self.shard, at, State::default()).merge(other);
        }
    }

    pub(super) fn reduce(&self, at: usize) -> Metric {
        let Some(state) = self.states.get(at).filter(|state| state.count > 0) else {
            return Metric::MatrixStats(Box::default());
        };
        let count = state.count as f64;
        let less = count - 1.0;
        let covariance = |i: usize, j: usize| -> f64 {
            let sum = match i == j {
                true => state.fields.get(i).map_or(f64::NAN, |moments| moments.second),
                false => state.products.get(place(i, j, state.fields.len())).copied().unwrap_or(f64::NAN),
            };
            sum / less
        };
        let width = state.fields.len();
        let fields = state.fields.iter().zip(&self.names).enumerate().map(|(i, (moments, name))| {
            let correlation = |j: usize| match i == j {
                true => 1.0,
                false => covariance(i, j) / (covariance(i, i).sqrt() * covariance(j, j).sqrt()),
            };
            MatrixField {
                name: Arc::clone(name),
                mean: moments.mean,
                variance: moments.second / less,
                skewness: count.sqrt() * moments.third / moments.second.powf(1.5),
                kurtosis: count * moments.fourth / (moments.second * moments.second),
                covariance: (0..width).map(|j| covariance(i, j)).collect(),
                correlation: (0..width).map(correlation).collect(),
            }
        });
        Metric::MatrixStats(Box::new(MatrixStats { doc_count: state.count, fields: fields.collect() }))
    }

    pub(super) fn memory(&self) -> usize {
        let width = self.names.len();
        let each =
            size_of::<State>() + width * size_of::<FieldMoments>() + width * width / 2 * size_of::<f64>();
        (self.states.len() + self.shard.len()) * each
    }
}

/// Place of a pair in the upper triangle.
fn place(i: usize, j: usize, width: usize) -> usize {
    let (i, j) = (i.min(j), i.max(j));
    i * width - i * (i + 1) / 2 + j - i - 1
}

impl State {
    fn add(&mut self, row: &[f64]) {
        if self.count == 0 {
            let first = |value: &f64| FieldMoments { sum: *value, mean: *value, ..FieldMoments::default() };
            self.fields = row.iter().map(first).collect();
            self.products = vec![0.0; row.len() * row.len().saturating_sub(1) / 2];
            self.count = 1;
            return;
        }
        let before = self.count as f64;
        self.count += 1;
        let n = self.count as f64;
        let mut products = self.products.iter_mut();
        let distance = |(value, own): (&f64, &FieldMoments)| value * n - (own.sum + value);
        for (i, own) in row.iter().zip(&self.fields).enumerate() {
            let own = 1.0 / (n * before) * distance(own);
            for other in row.iter().zip(&self.fields).skip(i + 1) {
                if let Some(product) = products.next() {
                    *product += own * distance(other);
                }
            }
        }
        for (value, own) in row.iter().zip(&mut self.fields) {
            let delta = value - own.mean;
            let (step, square) = (delta / n, delta / n * (delta / n));
            let term = delta * step * before;
            own.sum += value;
            own.mean += step;
            own.fourth +=
                term * square * (n * n - 3.0 * n + 3.0) + 6.0 * square * own.second - 4.0 * step * own.third;
            own.third += term * step * (n - 2.0) - 3.0 * step * own.second;
            own.second += term;
        }
    }

    fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            self.clone_from(other);
            return;
        }
        let (a, b) = (self.count as f64, other.count as f64);
        let n = a + b;
        let apart = |(own, other): (&FieldMoments, &FieldMoments)| other.sum / b - own.sum / a;
        let deltas: Vec<f64> = self.fields.iter().zip(&other.fields).map(apart).collect();
        for (at, (product, other)) in self.products.iter_mut().zip(&other.products).enumerate() {
            let (i, j) = pair(at, deltas.len());
            let shift = deltas.get(i).zip(deltas.get(j)).map_or(0.0, |(x, y)| a * b / n * x * y);
            *product += other + shift;
        }
        for (own, other) in self.fields.iter_mut().zip(&other.fields) {
            let d = other.mean - own.mean;
            let (d2, d3, d4) = (d * d, d * d * d, d * d * d * d);
            let second = own.second + other.second + d2 * a * b / n;
            let third = own.third
                + other.third
                + d3 * a * b * (a - b) / (n * n)
                + 3.0 * d * (a * other.second - b * own.second) / n;
            let fourth = own.fourth
                + other.fourth
                + d4 * a * b * (a * a - a * b + b * b) / (n * n * n)
                + 6.0 * d2 * (a * a * other.second + b * b * own.second) / (n * n)
                + 4.0 * d * (a * other.third - b * own.third) / n;
            let mean = (a * own.mean + b * other.mean) / n;
            *own = FieldMoments { sum: own.sum + other.sum, mean, second, third, fourth };
        }
        self.count += other.count;
    }
}

/// The pair at a place of the upper triangle.
fn pair(at: usize, width: usize) -> (usize, usize) {
    let mut first = 0;
    for i in 0..width {
        let row = width - i - 1;
        if at < first + row {
            return (i, i + 1 + at - first);
        }
        first += row;
    }
    (0, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_do_not_depend_on_the_parts() {
        let rows: Vec<f64> = (0..300).map(|n| f64::from((n * n * 7) % 31) + f64::from(n % 3)).collect();
        let names = ["x".to_owned(), "y".to_owned(), "z".to_owned()];
        let mut whole = Matrix::new(&names);
        whole.collect(Ordinals::One(0), &rows);
        whole.end_shard();
        let mut parts = Matrix::new(&names);
        for part in rows.chunks(60) {
            let mut other = Matrix::new(&names);
            other.collect(Ordinals::One(0), part);
            other.end_shard();
            parts.merge(&other, None);
        }
        let (Metric::MatrixStats(whole), Metric::MatrixStats(parts)) = (whole.reduce(0), parts.reduce(0))
        else {
            panic!("not a matrix")
        };
        assert_eq!((whole.doc_count, parts.doc_count), (100, 100));
        for (a, b) in whole.fields.iter().zip(&parts.fields) {
            let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.abs().max(1.0);
            assert!(near(a.kurtosis, b.kurtosis) && near(a.skewness, b.skewness) && near(a.mean, b.mean));
            assert!(a.covariance.iter().zip(&b.covariance).all(|(a, b)| near(*a, *b)));
        }
        for (i, j) in [(0, 1), (0, 2), (1, 2)] {
            assert_eq!(pair(place(i, j, 3), 3), (i, j));
            assert_eq!(whole.fields[i].correlation[j], whole.fields[j].correlation[i]);
        }
    }
}
