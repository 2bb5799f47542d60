//! [`ShingleForest`]: a random cut forest over shingles, which are the values of consecutive buckets.
//!
//! The expectation of a bucket comes from the nine shingles whose first values are nearest to the latest buckets. It is the
//! median of their last values.

use std::collections::VecDeque;

use crate::artefact::{ArtefactReader, ArtefactWriter, corrupt};
use crate::cut_forest::{CutForest, MAX_SHINGLE};
use crate::error::Result;
use crate::seasonal_filter::median;

/// Trees whose shingles give expectations.
const ANALOG_TREES: usize = 4;
/// Shingles that give an expectation.
const ANALOGS: usize = 9;
/// Buckets of a shingle where no season suggests a number.
const DEFAULT_SHINGLE: usize = 8;

/// State of the forest.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ShingleForest {
    shingle: usize,
    forest: CutForest,
    /// Values of the latest buckets, one fewer than a shingle has. A gap has the value before it.
    recent: VecDeque<f64>,
}

impl ShingleForest {
    /// Starts an empty forest. A shingle of 0 is chosen by the season.
    pub(crate) fn new(trees: usize, shingle: usize, season: Option<usize>, first: f64, seed: u64) -> Self {
        let chosen = season.map_or(DEFAULT_SHINGLE, |season| season.clamp(4, 24));
        let shingle = if shingle == 0 { chosen } else { shingle };
        let recent = VecDeque::from(vec![first; shingle - 1]);
        Self { shingle, forest: CutForest::new(trees, shingle, seed), recent }
    }

    /// Returns the number of buckets of a shingle.
    pub(crate) fn shingle(&self) -> usize {
        self.shingle
    }

    /// Scores a value behind buckets of choice.
    pub(crate) fn score_behind(&self, before: impl Iterator<Item = f64>, value: f64) -> f64 {
        let point: Vec<f64> = before.chain([value]).map(bounded).collect();
        self.forest.score(&point)
    }

    /// Returns the expectation behind buckets of choice.
    pub(crate) fn expected_behind(&self, before: &[f64]) -> f64 {
        let mut nearest: Vec<(f64, f64)> = Vec::with_capacity(ANALOGS + 1);
        self.forest.for_each_point(ANALOG_TREES, |point| {
            let Some((last, head)) = point.split_last() else { return };
            let distance: f64 =
                head.iter().zip(before).map(|(one, other)| (one - other) * (one - other)).sum();
            let place = nearest.partition_point(|(other, _)| *other <= distance);
            if place < ANALOGS {
                nearest.insert(place, (distance, *last));
                nearest.truncate(ANALOGS);
            }
        });
        let mut values: Vec<f64> = nearest.into_iter().map(|(_, last)| last).collect();
        if values.is_empty() { before.last().copied().unwrap_or_default() } else { median(&mut values) }
    }

    /// Takes a value in.
    pub(crate) fn insert(&mut self, value: f64) {
        let point: Vec<f64> = self.recent.iter().copied().chain([value]).map(bounded).collect();
        self.forest.insert(&point);
        self.shift(value);
    }

    /// Passes a gap.
    pub(crate) fn pass_gap(&mut self) {
        let last = self.recent.back().copied().unwrap_or_default();
        self.shift(last);
    }

    /// Puts other values in the place of the latest ones.
    pub(crate) fn replace_recent(&mut self, values: &[f64]) {
        self.recent = values.iter().copied().collect();
    }

    /// Returns the values of the latest buckets.
    pub(crate) fn recent(&self) -> Vec<f64> {
        self.recent.iter().copied().collect()
    }

    fn shift(&mut self, value: f64) {
        self.recent.push_back(value);
        self.recent.pop_front();
    }

    pub(crate) fn encode(&self, out: &mut ArtefactWriter) {
        let recent: Vec<f64> = self.recent.iter().copied().collect();
        out.f64s(&recent);
        self.forest.encode(out);
    }

    pub(crate) fn decode(from: &mut ArtefactReader<'_>) -> Result<Self> {
        let recent = from.finites(MAX_SHINGLE - 1)?;
        if recent.is_empty() {
            return Err(corrupt("its shingles are too short"));
        }
        let shingle = recent.len() + 1;
        let forest = CutForest::decode(from, shingle)?;
        Ok(Self { shingle, forest, recent: recent.into() })
    }
}

/// Cuts a value to a range whose differences and squares are finite.
fn bounded(value: f64) -> f64 {
    value.clamp(-1e150, 1e150)
}
