//! Isolation forest (Liu, Ting, Zhou 2008): trees of random cuts isolate odd rows early.
//!
//! A tree grows on a sample without replacement, to the depth of the sample's binary logarithm. A cut takes a dimension that varies
//! in the node, and a value between its extremes.
//!
//! The score is 2^(−E(h)/c(n)), with c(n) = 2·H(n−1) − 2·(n−1)/n. The path h of a row is its depth, with c(m) added for a leaf of m rows.
//! Contributions split a path by its cuts. A cut of n rows, m of which go the row's way, contributes c(n) − 1 − c(m). The sum over a path
//! is c(sample) − h.
//!
//! Many points are scored a tree after the other, so that the nodes of one tree stay in the processor's cache. Eight points go down it in
//! step: each takes the same number of steps, without a branch that depends on values. A leaf leads to itself.

use std::hint::select_unpredictable;

use millrace_forecast::Random;

use crate::artefact::{ArtefactReader, ArtefactWriter, corrupt};
use crate::error::Result;
use crate::features::FeatureSpace;
use crate::table::FeatureTable;

/// Largest number of trees.
pub(crate) const MAX_TREES: usize = 1_000;
/// Largest sample of a tree.
pub(crate) const MAX_SAMPLE: usize = 4_096;
/// Dimension that stands for a leaf among the bytes of a model.
const LEAF: u16 = u16::MAX;
/// Depth of a node, at most.
const MAX_DEPTH: u8 = MAX_SAMPLE.ilog2() as u8;
/// Points that go down a tree in step.
const STEP_POINTS: usize = 8;

/// Node of a tree. The left child is the next node.
#[derive(Clone, Copy, Debug, PartialEq)]
struct IsolationNode {
    /// Values below this go left; no value is below that of a leaf.
    threshold: f64,
    /// The right child; a leaf is its own.
    right: u32,
    /// Rows of the sample in this node.
    rows: u16,
    /// Dimension of the cut.
    dimension: u8,
    /// Cuts above the node.
    depth: u8,
}

impl IsolationNode {
    /// Makes the leaf with a number.
    fn leaf(number: usize, rows: u16, depth: u8) -> Self {
        Self { threshold: f64::NEG_INFINITY, right: number as u32, rows, dimension: 0, depth }
    }

    /// Returns true of the leaf with a number.
    fn is_leaf(&self, number: usize) -> bool {
        self.right as usize == number
    }
}

/// A trained forest.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct IsolationForest {
    /// Rows of a tree's sample.
    sample: usize,
    nodes: Vec<IsolationNode>,
    /// First node of each tree.
    roots: Vec<u32>,
    /// Depth of the deepest node.
    depth: u8,
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
        let mut forest = Self {
            sample,
            nodes: Vec::new(),
            roots: Vec::new(),
            depth: 0,
            path_lengths: path_lengths(sample),
        };
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
                self.nodes.push(IsolationNode::leaf(place, count as u16, depth as u8));
                self.depth = self.depth.max(depth as u8);
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
            self.nodes.push(IsolationNode {
                threshold,
                right: 0,
                rows: count as u16,
                dimension: dimension as u8,
                depth: depth as u8,
            });
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
            while !node.is_leaf(at) {
                let dimension = usize::from(node.dimension);
                at = if point[dimension] < node.threshold { at + 1 } else { node.right as usize };
                let child = &self.nodes[at];
                contributions[dimension] += self.path_lengths[usize::from(node.rows)]
                    - self.path_lengths[usize::from(child.rows)]
                    - 1.0;
                node = child;
            }
            total += self.path_length(node);
        }
        self.score_of(total)
    }

    /// Scores points, `dimensions` numbers each, as [`IsolationForest::score`] does one.
    pub(crate) fn score_all(&self, mut points: Vec<f64>, dimensions: usize) -> Vec<f64> {
        let count = points.len() / dimensions;
        let mut totals = vec![0.0; count.next_multiple_of(STEP_POINTS)];
        points.resize(totals.len() * dimensions, 0.0);
        for root in &self.roots {
            for (points, totals) in
                points.chunks_exact(STEP_POINTS * dimensions).zip(totals.chunks_exact_mut(STEP_POINTS))
            {
                let mut at = [*root; STEP_POINTS];
                for _ in 0..self.depth {
                    for (at, point) in at.iter_mut().zip(points.chunks_exact(dimensions)) {
                        let node = &self.nodes[*at as usize];
                        let is_left = point[usize::from(node.dimension)] < node.threshold;
                        *at = select_unpredictable(is_left, *at + 1, node.right);
                    }
                }
                for (total, at) in totals.iter_mut().zip(at) {
                    *total += self.path_length(&self.nodes[at as usize]);
                }
            }
        }
        totals.truncate(count);
        totals.iter_mut().for_each(|total| *total = self.score_of(*total));
        totals
    }

    /// Returns the length of the path to a leaf.
    fn path_length(&self, leaf: &IsolationNode) -> f64 {
        f64::from(leaf.depth) + self.path_lengths[usize::from(leaf.rows)]
    }

    /// Returns the score of the sum of a point's paths.
    fn score_of(&self, total: f64) -> f64 {
        let normal = self.path_lengths[self.sample].max(f64::MIN_POSITIVE);
        libm::exp2(-total / self.roots.len() as f64 / normal)
    }

    pub(crate) fn encode(&self, out: &mut ArtefactWriter) {
        out.count(self.sample);
        out.u32s(&self.roots);
        out.count(self.nodes.len());
        for (number, node) in self.nodes.iter().enumerate() {
            let (threshold, right, dimension) = match node.is_leaf(number) {
                true => (0.0, 0, LEAF),
                false => (node.threshold, node.right, u16::from(node.dimension)),
            };
            out.f64(threshold);
            out.u32(right);
            out.u32(u32::from(node.rows) << 16 | u32::from(dimension));
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
        let mut deepest = 0;
        for (tree, root) in roots.iter().enumerate() {
            let end = roots.get(tree + 1).map_or(count, |next| *next as usize);
            let mut depths = vec![0_u8; end - *root as usize];
            for place in *root as usize..end {
                let depth = depths[place - *root as usize];
                deepest = deepest.max(depth);
                let (threshold, right, packed) = (from.finite()?, from.u32()?, from.u32()?);
                let (rows, dimension) = ((packed >> 16) as u16, packed as u16);
                let leads_on = place + 1 < end && (right as usize) > place && (right as usize) < end;
                let is_split = dimension != LEAF;
                if usize::from(rows) > sample
                    || (is_split && (!leads_on || usize::from(dimension) >= dimensions))
                {
                    return Err(corrupt("a tree leads nowhere"));
                }
                if depth > MAX_DEPTH {
                    return Err(corrupt("a tree is too deep"));
                }
                if !is_split {
                    nodes.push(IsolationNode::leaf(place, rows, depth));
                    continue;
                }
                for child in [place + 1, right as usize] {
                    depths[child - *root as usize] = depth + 1;
                }
                nodes.push(IsolationNode { threshold, right, rows, dimension: dimension as u8, depth });
            }
        }
        Ok(Self { sample, nodes, roots, depth: deepest, path_lengths: path_lengths(sample) })
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
