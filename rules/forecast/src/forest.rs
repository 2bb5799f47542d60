//! A random forest on lagged samples (Breiman 2001): trees of regression, each of a bootstrap of the rows, their answers averaged.
//!
//! It is written here, not taken from a library, because a model has to be the same bit for bit for as long as it is kept: every number
//! that is drawn comes from [`crate::random`], and sums are made in a fixed order. Rows are sorted by each lag once; a
//! tree keeps its rows in all those orders and parts them as it grows, so that a level costs one pass and no sorting.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;

use crate::error::{Error, Result, check_cancelled};
use crate::random::{Random, mix};
use crate::regression::{LEAST, before, most_lags};
use crate::sum::sum;

/// Trees.
pub(crate) const TREES: usize = 100;
/// Rows of a leaf, at least.
const LEAF: u32 = 2;
/// Depth of a tree: of what grows deeper, a leaf is made.
const MAX_DEPTH: u32 = 48;

/// A node of a tree: that to the left is the next one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Node {
    /// Forecast of the leaf.
    Leaf(f64),
    /// Goes on to the left where a lag is at most this, else to the node at `right`.
    Split {
        /// Number of the lag: 0 is the latest sample.
        lag: u16,
        at_most: f64,
        right: u32,
    },
}

/// A forest with what its next forecast needs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Forest {
    pub(crate) trees: Vec<Vec<Node>>,
    /// The latest samples, as many as lags; the latest one first.
    pub(crate) latest: Vec<f64>,
}

impl Forest {
    /// Grows a forest on as many lags as there may be.
    ///
    /// # Errors
    /// [`Error::TooFew`], [`Error::TooMany`], [`Error::Cancelled`].
    pub(crate) fn fit(
        algorithm: &'static str,
        samples: &[f64],
        seed: u64,
        cancelled: &AtomicBool,
    ) -> Result<Self> {
        Self::with_trees(TREES, algorithm, samples, seed, cancelled)
    }

    /// Grows a forest of a number of trees.
    ///
    /// # Errors
    /// [`Error::TooFew`], [`Error::TooMany`], [`Error::Cancelled`].
    pub(crate) fn with_trees(
        trees: usize,
        algorithm: &'static str,
        samples: &[f64],
        seed: u64,
        cancelled: &AtomicBool,
    ) -> Result<Self> {
        let count = samples.len();
        if count < LEAST {
            return Err(Error::TooFew { algorithm, needed: LEAST, there: count });
        }
        if count > crate::MAX_FOREST_SAMPLES {
            let limit = crate::MAX_FOREST_SAMPLES;
            return Err(Error::TooMany { what: "the samples of a forest", limit, there: count });
        }
        let lags = most_lags(count);
        let rows = Rows::new(samples, lags);
        let tree = |number: usize| {
            check_cancelled(cancelled)?;
            Ok(rows.tree(Random::new(mix(seed ^ mix(number as u64)))))
        };
        let latest = samples.iter().rev().take(lags).copied().collect();
        Ok(Self { trees: (0..trees).map(tree).collect::<Result<_>>()?, latest })
    }

    /// Forecasts, each sample from those before it, forecasts among them.
    pub(crate) fn forecast(&self, predictions: usize) -> Vec<f64> {
        let mut latest: VecDeque<f64> = self.latest.iter().copied().collect();
        let mut forecast = Vec::with_capacity(predictions);
        for _ in 0..predictions {
            let answers = self.trees.iter().map(|tree| answer(tree, &latest) / self.trees.len() as f64);
            let next = sum(answers);
            latest.push_front(next);
            latest.truncate(self.latest.len());
            forecast.push(next);
        }
        forecast
    }
}

fn answer(tree: &[Node], lags: &VecDeque<f64>) -> f64 {
    let mut at = 0;
    loop {
        match tree[at] {
            Node::Leaf(answer) => return answer,
            Node::Split { lag, at_most, right } => {
                at = if lags[usize::from(lag)] <= at_most { at + 1 } else { right as usize };
            }
        }
    }
}

/// Samples that trees are grown from.
struct Rows {
    /// Lag by lag, a value for each row.
    values: Vec<Vec<f64>>,
    results: Vec<f64>,
    /// Rows in the order of each lag.
    orders: Vec<Vec<u32>>,
}

/// A part of the rows that is to become a node.
struct RowPartition {
    from: usize,
    to: usize,
    depth: u32,
    /// The split whose right side it is.
    right_of: Option<usize>,
}

/// Split of a partition.
struct SplitPoint {
    gain: f64,
    lag: usize,
    at_most: f64,
    rows: usize,
}

impl Rows {
    fn new(samples: &[f64], lags: usize) -> Self {
        let places = lags..samples.len();
        let mut values = vec![Vec::with_capacity(places.len()); lags];
        for at in places.clone() {
            for (lag, value) in before(samples, at, lags).enumerate() {
                values[lag].push(value);
            }
        }
        let order = |values: &Vec<f64>| {
            let mut rows: Vec<u32> = (0..values.len() as u32).collect();
            rows.sort_by(|one, other| values[*one as usize].total_cmp(&values[*other as usize]));
            rows
        };
        let orders = values.iter().map(order).collect();
        Self { values, results: samples[places].to_vec(), orders }
    }

    /// Grows a tree.
    fn tree(&self, mut random: Random) -> Vec<Node> {
        let count = self.results.len();
        let mut drawn = vec![0_u32; count];
        (0..count).for_each(|_| drawn[random.below(count as u32) as usize] += 1);
        let kept = |order: &Vec<u32>| -> Vec<u32> {
            order.iter().copied().filter(|row| drawn[*row as usize] > 0).collect()
        };
        let mut orders: Vec<Vec<u32>> = self.orders.iter().map(kept).collect();
        let mut lags: Vec<usize> = (0..orders.len()).collect();
        let tried = lags.len().div_ceil(3);
        let mut goes_right = vec![false; count];
        let mut parted = Vec::with_capacity(count);
        let mut nodes: Vec<Node> = Vec::new();
        let mut parts = vec![RowPartition { from: 0, to: orders[0].len(), depth: 0, right_of: None }];
        while let Some(RowPartition { from, to, depth, right_of }) = parts.pop() {
            let place = nodes.len();
            if let Some(split) = right_of
                && let Node::Split { right, .. } = &mut nodes[split]
            {
                *right = place as u32;
            }
            let weigh = |row: &u32| {
                let weight = drawn[*row as usize];
                (weight, f64::from(weight) * self.results[*row as usize])
            };
            let whole = orders[0][from..to].iter().map(weigh);
            let (weight, total) = whole.fold((0, 0.0), |(weight, total), (w, t)| (weight + w, total + t));
            let mut best: Option<SplitPoint> = None;
            if depth < MAX_DEPTH && weight >= 2 * LEAF {
                for at in 0..tried {
                    let with = at + random.below((lags.len() - at) as u32) as usize;
                    lags.swap(at, with);
                    let lag = lags[at];
                    let order = &orders[lag][from..to];
                    let found = cut(order, &self.values[lag], weigh, (weight, total), lag);
                    if let Some(found) = found
                        && best.as_ref().is_none_or(|best| found.gain > best.gain)
                    {
                        best = Some(found);
                    }
                }
            }
            let Some(SplitPoint { lag, at_most, rows, .. }) = best else {
                nodes.push(Node::Leaf(total / f64::from(weight.max(1))));
                continue;
            };
            for (at, row) in orders[lag][from..to].iter().enumerate() {
                goes_right[*row as usize] = at >= rows;
            }
            for order in &mut orders {
                part(&mut order[from..to], &goes_right, &mut parted);
            }
            nodes.push(Node::Split { lag: lag as u16, at_most, right: 0 });
            parts.push(RowPartition { from: from + rows, to, depth: depth + 1, right_of: Some(place) });
            parts.push(RowPartition { from, to: from + rows, depth: depth + 1, right_of: None });
        }
        nodes
    }
}

/// Finds where to cut rows in the order of a lag so that the two sides are most alike in themselves: where the squares of their sums by
/// their weights are largest together. `None` where nothing gains.
fn cut(
    order: &[u32],
    values: &[f64],
    weigh: impl Fn(&u32) -> (u32, f64),
    (weight, total): (u32, f64),
    lag: usize,
) -> Option<SplitPoint> {
    let whole = total * total / f64::from(weight);
    let mut best: Option<SplitPoint> = None;
    let (mut left, mut left_total) = (0, 0.0);
    for (at, pair) in order.windows(2).enumerate() {
        let (own, of_own) = weigh(&pair[0]);
        left += own;
        left_total += of_own;
        let (value, next) = (values[pair[0] as usize], values[pair[1] as usize]);
        if value == next || left < LEAF || weight - left < LEAF {
            continue;
        }
        let right_total = total - left_total;
        let gain = left_total * left_total / f64::from(left)
            + right_total * right_total / f64::from(weight - left)
            - whole;
        if gain > best.as_ref().map_or(0.0, |best| best.gain) {
            let middle = value / 2.0 + next / 2.0;
            let at_most = if middle >= value && middle < next { middle } else { value };
            best = Some(SplitPoint { gain, lag, at_most, rows: at + 1 });
        }
    }
    best
}

/// Moves the rows that go left before those that go right, each side in its order.
fn part(order: &mut [u32], goes_right: &[bool], right: &mut Vec<u32>) {
    right.clear();
    let mut kept = 0;
    for at in 0..order.len() {
        let row = order[at];
        if goes_right[row as usize] {
            right.push(row);
        } else {
            order[kept] = row;
            kept += 1;
        }
    }
    order[kept..].copy_from_slice(right);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::mean_squared;
    use crate::random;

    fn fit(samples: &[f64], seed: u64) -> Result<Forest> {
        Forest::fit("RFRS", samples, seed, &AtomicBool::new(false))
    }

    /// A season of 24 with noise, and a step up at a third.
    fn planted(count: usize, step_at: usize) -> Vec<f64> {
        let mut random = Random::new(11);
        let sample = |place: usize| {
            let noise = f64::from(random.below(2001)) / 1000.0 - 1.0;
            let season = 10.0 * (place as f64 * std::f64::consts::TAU / 24.0).sin();
            50.0 + season + noise + if place >= step_at { 30.0 } else { 0.0 }
        };
        (0..count).map(sample).collect()
    }

    #[test]
    fn a_season_and_a_new_level_are_told_better_than_by_the_last_sample() {
        for (count, step_at) in [(400, 1000), (400, 200), (1000, 600)] {
            let samples = planted(count + 48, step_at);
            let (window, rest) = samples.split_at(count);
            let forest = fit(window, random::seed("model")).unwrap();
            let error = |forecast: Vec<f64>| {
                let pairs: Vec<_> = forecast.into_iter().zip(rest.iter().copied()).collect();
                mean_squared(&pairs).unwrap().sqrt()
            };
            let (own, naive) = (error(forest.forecast(48)), error(vec![window[count - 1]; 48]));
            assert!(own <= 0.8 * naive, "{count} {step_at}: {own} {naive}");
        }
    }

    #[test]
    fn forests_are_those_of_their_seeds_bit_for_bit() {
        // No sine, which is not the same on every machine.
        let samples: Vec<f64> = (0..200_u32).map(|place| f64::from(place * place % 24 + place / 9)).collect();
        let bits = |seed| -> Vec<u64> {
            let forest = fit(&samples, seed).unwrap();
            forest.forecast(24).into_iter().map(f64::to_bits).collect()
        };
        assert_eq!(bits(1), bits(1));
        assert_ne!(bits(1), bits(2));
        // What another process, another build and another day have to find, too.
        let sum = bits(random::seed("model")).into_iter().fold(0, |sum, bits| mix(sum ^ bits));
        assert_eq!(
            sum, 7_127_809_345_369_553_983,
            "the forecasts of a seed must never change: stored models and documents go by them"
        );
    }

    #[test]
    fn level_samples_and_few_of_them() {
        let forest = fit(&[3.0; 50], 1).unwrap();
        for one in forest.forecast(5) {
            assert!((one - 3.0).abs() < 1e-12);
        }
        assert!(fit(&[3.0; 7], 1).is_err());
        assert!(fit(&vec![3.0; crate::MAX_FOREST_SAMPLES + 1], 1).is_err());
    }
}
