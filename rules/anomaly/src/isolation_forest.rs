//! Isolation forest (Liu, Ting, Zhou 2008): trees of random cuts isolate odd rows early.
//!
//! A tree grows on a sample without replacement, to the depth of the sample's binary logarithm. A cut takes a dimension that varies
//! in the node, and a value between its extremes.
//!
//! The score is 2^(−E(h)/c(n)), with c(n) = 2·H(n−1) − 2·(n−1)/n. The path h of a row is its depth, with c(m) added for a leaf of m rows.
//! Contributions split a path by its cuts. A cut of n rows, m of which go the row's way, contributes c(n) − 1 − c(m). The sum over a path
//! is c(sample) − h.

use millrace_forecast::Random;

use crate::artefact::{ArtefactReader, ArtefactWriter, corrupt};
use crate::error::Result;
use crate::features::FeatureSpace;
use crate::table::FeatureTable;

/// Largest number of trees.
pub(crate) const MAX_TREES: usize = 1_000;
/// Largest sample of a tree.
pub(crate) const MAX_SAMPLE: usize = 4_096;
const LEAF: u16 = u16::MAX;

/// Node of a tree. The left child is the next node.
#[derive(Clone, Copy, Debug, PartialEq)]
struct IsolationNode {
    /// Values below this go left.
    threshold: f64,
    /// The right child.
    right: u32,
    /// Rows of the sample in this node.
    rows: u16,
    /// Dimension of the cut; [`LEAF`] for a leaf.
    dimension: u16,
}

/// A trained forest.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct IsolationForest {
    /// Rows of a tree's sample.
    sample: usize,
    nodes: Vec<IsolationNode>,
    /// First node of each tree.
    roots: Vec<u32>,
    /// c(m) for each number of rows up to the sample.
    path_lengths: Vec<f64>,
}

impl IsolationForest {
    pub(crate) fn fit(
        table: &FeatureTable,
        space: &FeatureSpace,
        trees: usize,
        sample: usize,
        seed: u64,
    ) -> Self {
        let sample = sample.min(table.rows());
        let mut forest =
            Self { sample, nodes: Vec::new(), roots: Vec::new(), path_lengths: path_lengths(sample) };
        let depth = (sample.max(2) - 1).ilog2() + 1;
        for tree in 0..trees as u64 {
            let mut random = Random::new(seed ^ millrace_forecast::mix(tree));
            let rows = sample_rows(table.rows(), sample, &mut random);
            let points = space.points(table, &rows);
            let columns: Vec<&[f64]> = (0..points.dimensions()).map(|at| points.column(at)).collect();
            forest.grow(&columns, depth, &mut random);
        }
        forest
    }

    fn grow(&mut self, columns: &[&[f64]], max_depth: u32, random: &mut Random) {
        let mut rows: Vec<u32> = (0..self.sample as u32).collect();
        let mut dimensions: Vec<usize> = (0..columns.len()).collect();
        self.roots.push(self.nodes.len() as u32);
        // Range of rows, depth, and the node whose right child begins here.
        let mut pending = vec![(0, self.sample, 0_u32, None::<usize>)];
        while let Some((from, to, depth, parent)) = pending.pop() {
            let place = self.nodes.len();
            if let Some(parent) = parent {
                self.nodes[parent].right = place as u32;
            }
            let count = to - from;
            let cut = match depth < max_depth && count > 1 {
                true => choose_cut(columns, &rows[from..to], &mut dimensions, random),
                false => None,
            };
            let Some((dimension, threshold)) = cut else {
                self.nodes.push(IsolationNode {
                    threshold: 0.0,
                    right: 0,
                    rows: count as u16,
                    dimension: LEAF,
                });
                continue;
            };
            let (column, range) = (columns[dimension], &mut rows[from..to]);
            let mut left = 0;
            for at in 0..range.len() {
                if column[range[at] as usize] < threshold {
                    range.swap(at, left);
                    left += 1;
                }
            }
            let dimension = dimension as u16;
            self.nodes.push(IsolationNode { threshold, right: 0, rows: count as u16, dimension });
            pending.push((from + left, to, depth + 1, Some(place)));
            pending.push((from, from + left, depth + 1, None));
        }
    }

    /// Scores a point, and adds up the contributions of its dimensions.
    pub(crate) fn score(&self, point: &[f64], contributions: &mut [f64]) -> f64 {
        let mut total = 0.0;
        for root in &self.roots {
            let mut at = *root as usize;
            let mut node = &self.nodes[at];
            let mut depth = 0.0;
            while node.dimension != LEAF {
                let dimension = usize::from(node.dimension);
                at = if point[dimension] < node.threshold { at + 1 } else { node.right as usize };
                let child = &self.nodes[at];
                depth += 1.0;
                contributions[dimension] += self.path_lengths[usize::from(node.rows)]
                    - self.path_lengths[usize::from(child.rows)]
                    - 1.0;
                node = child;
            }
            total += depth + self.path_lengths[usize::from(node.rows)];
        }
        let normal = self.path_lengths[self.sample].max(f64::MIN_POSITIVE);
        libm::exp2(-total / self.roots.len() as f64 / normal)
    }

    pub(crate) fn encode(&self, out: &mut ArtefactWriter) {
        out.count(self.sample);
        out.u32s(&self.roots);
        out.count(self.nodes.len());
        for node in &self.nodes {
            out.f64(node.threshold);
            out.u32(node.right);
            out.u32(u32::from(node.rows) << 16 | u32::from(node.dimension));
        }
    }

    /// Reads a forest whose paths all lead on to later nodes of the same tree.
    pub(crate) fn decode(from: &mut ArtefactReader<'_>, dimensions: usize) -> Result<Self> {
        let sample = from.u32()? as usize;
        if !(1..=MAX_SAMPLE).contains(&sample) {
            return Err(corrupt("the sample of a tree has a wrong size"));
        }
        let roots = from.u32s(MAX_TREES)?;
        let count = from.count(MAX_TREES * 2 * MAX_SAMPLE, 16)?;
        if roots.first() != Some(&0) || !roots.is_sorted_by(|one, other| one < other) {
            return Err(corrupt("its trees are not in order"));
        }
        if roots.last().is_none_or(|last| *last as usize >= count) {
            return Err(corrupt("a tree has no node"));
        }
        let mut nodes = Vec::with_capacity(count);
        for (tree, root) in roots.iter().enumerate() {
            let end = roots.get(tree + 1).map_or(count, |next| *next as usize);
            for place in *root as usize..end {
                let (threshold, right, packed) = (from.finite()?, from.u32()?, from.u32()?);
                let (rows, dimension) = ((packed >> 16) as u16, packed as u16);
                let leads_on = place + 1 < end && (right as usize) > place && (right as usize) < end;
                let is_split = dimension != LEAF;
                if usize::from(rows) > sample
                    || (is_split && (!leads_on || usize::from(dimension) >= dimensions))
                {
                    return Err(corrupt("a tree leads nowhere"));
                }
                nodes.push(IsolationNode { threshold, right, rows, dimension });
            }
        }
        Ok(Self { sample, nodes, roots, path_lengths: path_lengths(sample) })
    }
}

/// Returns c(m) for m up to `sample`: the mean depth of an unsuccessful search in a binary tree of m rows.
fn path_lengths(sample: usize) -> Vec<f64> {
    let mut lengths = vec![0.0; sample + 1];
    let mut harmonic = 0.0;
    for (rows, length) in lengths.iter_mut().enumerate().skip(2) {
        harmonic += 1.0 / (rows - 1) as f64;
        *length = 2.0 * harmonic - 2.0 * (rows - 1) as f64 / rows as f64;
    }
    lengths
}

/// Draws a dimension that varies among the rows, and a value above its least and up to its largest.
fn choose_cut(
    columns: &[&[f64]],
    rows: &[u32],
    dimensions: &mut [usize],
    random: &mut Random,
) -> Option<(usize, f64)> {
    for at in 0..dimensions.len() {
        let with = at + random.below((dimensions.len() - at) as u32) as usize;
        dimensions.swap(at, with);
        let column = columns[dimensions[at]];
        let (mut min, mut max) = (f64::INFINITY, f64::NEG_INFINITY);
        for row in rows {
            let value = column[*row as usize];
            min = min.min(value);
            max = max.max(value);
        }
        if min < max {
            let share = random.uniform();
            let threshold = min * (1.0 - share) + max * share;
            // Rounding may give the least value, which would leave the left side empty.
            return Some((dimensions[at], if threshold > min { threshold.min(max) } else { max }));
        }
    }
    None
}

/// Draws distinct rows (Floyd's algorithm), in ascending order.
fn sample_rows(rows: usize, count: usize, random: &mut Random) -> Vec<usize> {
    let mut chosen = std::collections::BTreeSet::new();
    for bound in rows - count..rows {
        let row = random.below(bound as u32 + 1) as usize;
        if !chosen.insert(row) {
            chosen.insert(bound);
        }
    }
    chosen.into_iter().collect()
}
