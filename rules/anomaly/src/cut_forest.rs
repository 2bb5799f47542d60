//! Robust random cut forest (Guha, Mishra, Roy, Schrijvers 2016): trees of random cuts, which take points in and forget the oldest.
//!
//! A tree has at most 256 points. A cut takes a dimension by the length of the box in it, and a place in it at random.
//!
//! The score of a point is a mean over trees. On its way down a tree, each node may separate the point. The probability of that
//! is the share of random cuts, of the box with the point, that lie outside of the box. Such a cut displaces all points of the
//! node. The score adds that probability times the node's share of the tree's points, by 1 + depth.

use std::collections::VecDeque;

use millrace_forecast::Random;

use crate::artefact::{ArtefactReader, ArtefactWriter, corrupt};
use crate::error::Result;

/// Points of a tree.
pub(crate) const TREE_POINTS: usize = 256;
pub(crate) const MAX_CUT_TREES: usize = 200;
pub(crate) const MAX_SHINGLE: usize = 64;
const NONE: u32 = u32::MAX;

/// Node of a tree: a leaf has a point, and no children.
#[derive(Clone, Debug, PartialEq)]
struct CutNode {
    parent: u32,
    left: u32,
    right: u32,
    dimension: u32,
    cut: f64,
    points: u32,
    /// Least and largest value in each dimension.
    min: Vec<f64>,
    max: Vec<f64>,
}

/// A tree with its free nodes.
#[derive(Clone, Debug, PartialEq)]
struct CutTree {
    nodes: Vec<CutNode>,
    free: Vec<u32>,
    root: u32,
    /// Leaves with the numbers of their points, the oldest first.
    leaves: VecDeque<(u64, u32)>,
    random: Random,
}

/// Forest over points of one dimension count.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CutForest {
    dimensions: usize,
    trees: Vec<CutTree>,
    /// Number of points so far.
    seen: u64,
}

impl CutForest {
    pub(crate) fn new(trees: usize, dimensions: usize, seed: u64) -> Self {
        let tree = |number: usize| CutTree {
            nodes: Vec::new(),
            free: Vec::new(),
            root: NONE,
            leaves: VecDeque::new(),
            random: Random::new(seed ^ millrace_forecast::mix(number as u64)),
        };
        Self { dimensions, trees: (0..trees).map(tree).collect(), seen: 0 }
    }

    /// Scores a point, and changes nothing.
    pub(crate) fn score(&self, point: &[f64]) -> f64 {
        let total: f64 = self.trees.iter().map(|tree| tree.score(point)).sum();
        total / self.trees.len().max(1) as f64
    }

    /// Takes a point in: into each tree with a share that keeps a tree's points spread over four times their number.
    pub(crate) fn insert(&mut self, point: &[f64]) {
        self.seen += 1;
        let number = self.seen;
        for tree in &mut self.trees {
            let is_full = tree.leaves.len() >= TREE_POINTS;
            if is_full && tree.random.below(4) != 0 {
                continue;
            }
            if is_full && let Some((_, oldest)) = tree.leaves.pop_front() {
                tree.remove(oldest);
            }
            let leaf = tree.insert(point);
            tree.leaves.push_back((number, leaf));
        }
    }

    /// Calls back with the points of the first trees.
    pub(crate) fn for_each_point(&self, trees: usize, mut visit: impl FnMut(&[f64])) {
        for tree in self.trees.iter().take(trees) {
            tree.leaves.iter().for_each(|(_, leaf)| visit(&tree.nodes[*leaf as usize].min));
        }
    }

    pub(crate) fn encode(&self, out: &mut ArtefactWriter) {
        out.u64(self.seen);
        out.count(self.trees.len());
        for tree in &self.trees {
            tree.random.state().into_iter().for_each(|word| out.u64(word));
            out.u32(tree.root);
            out.u32s(&tree.free);
            out.count(tree.leaves.len());
            for (number, leaf) in &tree.leaves {
                out.u64(*number);
                out.u32(*leaf);
            }
            out.count(tree.nodes.len());
            for node in &tree.nodes {
                for link in [node.parent, node.left, node.right, node.dimension, node.points] {
                    out.u32(link);
                }
                out.f64(node.cut);
                out.f64s(&node.min);
                out.f64s(&node.max);
            }
        }
    }

    pub(crate) fn decode(from: &mut ArtefactReader<'_>, dimensions: usize) -> Result<Self> {
        let seen = from.u64()?;
        let count = from.count(MAX_CUT_TREES, 48)?;
        let mut trees = Vec::with_capacity(count);
        for _ in 0..count {
            let state = [from.u64()?, from.u64()?, from.u64()?, from.u64()?];
            let root = from.u32()?;
            let free = from.u32s(2 * TREE_POINTS)?;
            let mut leaves = VecDeque::new();
            for _ in 0..from.count(TREE_POINTS, 12)? {
                leaves.push_back((from.u64()?, from.u32()?));
            }
            let mut nodes = Vec::new();
            for _ in 0..from.count(2 * TREE_POINTS, 36)? {
                let (parent, left, right) = (from.u32()?, from.u32()?, from.u32()?);
                let (dimension, points, cut) = (from.u32()?, from.u32()?, from.finite()?);
                let (min, max) = (from.exact_finites(dimensions)?, from.exact_finites(dimensions)?);
                nodes.push(CutNode { parent, left, right, dimension, cut, points, min, max });
            }
            let tree = CutTree { nodes, free, root, leaves, random: Random::from_state(state) };
            tree.check(dimensions)?;
            trees.push(tree);
        }
        if trees.is_empty() || seen == u64::MAX {
            return Err(corrupt("it has no trees"));
        }
        Ok(Self { dimensions, trees, seen })
    }
}

impl CutTree {
    fn score(&self, point: &[f64]) -> f64 {
        if self.root == NONE {
            return 0.0;
        }
        let total = f64::from(self.nodes[self.root as usize].points);
        let (mut at, mut depth, mut remaining, mut score) = (self.root, 0.0, 1.0, 0.0);
        loop {
            let node = &self.nodes[at as usize];
            let (mut outside, mut whole) = (0.0, 0.0);
            for (value, (min, max)) in point.iter().zip(node.min.iter().zip(&node.max)) {
                let beyond = (min - value).max(value - max).max(0.0);
                outside += beyond;
                whole += max - min + beyond;
            }
            let separation = if whole > 0.0 { outside / whole } else { 0.0 };
            // The share of a tree's points that the point displaces.
            score += remaining * separation * f64::from(node.points) / total / (1.0 + depth);
            remaining *= 1.0 - separation;
            if node.left == NONE || remaining <= 0.0 {
                return score;
            }
            at = if point[node.dimension as usize] <= node.cut { node.left } else { node.right };
            depth += 1.0;
        }
    }

    fn add_node(&mut self, node: CutNode) -> u32 {
        match self.free.pop() {
            Some(place) => {
                self.nodes[place as usize] = node;
                place
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() as u32 - 1
            }
        }
    }

    fn insert(&mut self, point: &[f64]) -> u32 {
        let (min, max) = (point.to_vec(), point.to_vec());
        let leaf =
            CutNode { parent: NONE, left: NONE, right: NONE, dimension: 0, cut: 0.0, points: 1, min, max };
        let leaf = self.add_node(leaf);
        if self.root == NONE {
            self.root = leaf;
            return leaf;
        }
        let mut at = self.root;
        loop {
            let node = &self.nodes[at as usize];
            let lengths = point.iter().zip(node.min.iter().zip(&node.max));
            let lengths: Vec<f64> =
                lengths.map(|(value, (min, max))| max.max(*value) - min.min(*value)).collect();
            let total: f64 = lengths.iter().sum();
            let mut left = self.random.uniform() * total;
            let dimension = lengths.iter().position(|length| {
                left -= length;
                left < 0.0
            });
            let drawn = dimension.map(|dimension| {
                let low = node.min[dimension].min(point[dimension]);
                // `left` is minus the distance to the upper end.
                (dimension, low + (lengths[dimension] + left))
            });
            let separates = drawn.filter(|(dimension, cut)| {
                let (value, min, max) = (point[*dimension], node.min[*dimension], node.max[*dimension]);
                (value <= *cut && *cut < min) || (max <= *cut && *cut < value)
            });
            let is_leaf = node.left == NONE;
            if let Some((dimension, cut)) = separates {
                return self.attach(at, leaf, dimension, cut);
            }
            if is_leaf {
                // An equal point, or a cut that rounding put beside: the points part at their largest difference.
                let widest = (0..lengths.len())
                    .fold(0, |one, other| if lengths[other] > lengths[one] { other } else { one });
                let cut = node.min[widest].min(point[widest]);
                return self.attach(at, leaf, widest, cut);
            }
            let (dimension, cut, left, right) = (node.dimension as usize, node.cut, node.left, node.right);
            let node = &mut self.nodes[at as usize];
            node.points += 1;
            for (dimension, value) in point.iter().enumerate() {
                node.min[dimension] = node.min[dimension].min(*value);
                node.max[dimension] = node.max[dimension].max(*value);
            }
            at = if point[dimension] <= cut { left } else { right };
        }
    }

    /// Puts a cut above a node, with the leaf on the other side.
    fn attach(&mut self, at: u32, leaf: u32, dimension: usize, cut: f64) -> u32 {
        let (own, other) = (&self.nodes[leaf as usize], &self.nodes[at as usize]);
        let is_left = own.min[dimension] <= cut;
        let (left, right) = if is_left { (leaf, at) } else { (at, leaf) };
        let parent = other.parent;
        let min = own.min.iter().zip(&other.min).map(|(one, other)| one.min(*other)).collect();
        let max = own.max.iter().zip(&other.max).map(|(one, other)| one.max(*other)).collect();
        let points = other.points + 1;
        let node = CutNode { parent, left, right, dimension: dimension as u32, cut, points, min, max };
        let node = self.add_node(node);
        self.nodes[at as usize].parent = node;
        self.nodes[leaf as usize].parent = node;
        match parent {
            NONE => self.root = node,
            parent => {
                let parent = &mut self.nodes[parent as usize];
                if parent.left == at {
                    parent.left = node;
                } else {
                    parent.right = node;
                }
            }
        }
        leaf
    }

    fn remove(&mut self, leaf: u32) {
        let parent = self.nodes[leaf as usize].parent;
        self.free.push(leaf);
        if parent == NONE {
            self.root = NONE;
            return;
        }
        let CutNode { left, right, parent: above, .. } = self.nodes[parent as usize];
        let sibling = if left == leaf { right } else { left };
        self.free.push(parent);
        self.nodes[sibling as usize].parent = above;
        if above == NONE {
            self.root = sibling;
            return;
        }
        let node = &mut self.nodes[above as usize];
        if node.left == parent {
            node.left = sibling;
        } else {
            node.right = sibling;
        }
        let mut at = above;
        while at != NONE {
            let (left, right) =
                (self.nodes[at as usize].left as usize, self.nodes[at as usize].right as usize);
            for dimension in 0..self.nodes[at as usize].min.len() {
                let min = self.nodes[left].min[dimension].min(self.nodes[right].min[dimension]);
                let max = self.nodes[left].max[dimension].max(self.nodes[right].max[dimension]);
                let node = &mut self.nodes[at as usize];
                (node.min[dimension], node.max[dimension]) = (min, max);
            }
            let node = &mut self.nodes[at as usize];
            node.points -= 1;
            at = node.parent;
        }
    }

    /// Checks that stored links make a tree of its leaves, and that no other node is in use.
    fn check(&self, dimensions: usize) -> Result<()> {
        let wrong = || corrupt("a tree leads nowhere");
        let mut is_used = vec![false; self.nodes.len()];
        let mut pending = Vec::new();
        if self.root != NONE {
            pending.push((self.root, NONE));
        }
        let mut leaves = 0;
        while let Some((place, parent)) = pending.pop() {
            let node = self.nodes.get(place as usize).ok_or_else(wrong)?;
            if std::mem::replace(&mut is_used[place as usize], true) || node.parent != parent {
                return Err(wrong());
            }
            let is_leaf = node.left == NONE && node.right == NONE;
            if is_leaf {
                leaves += 1;
                if node.points != 1 {
                    return Err(wrong());
                }
            } else {
                if node.left == NONE || node.right == NONE || node.dimension as usize >= dimensions {
                    return Err(wrong());
                }
                let points = |child: u32| self.nodes.get(child as usize).map(|child| child.points);
                let sum =
                    points(node.left).zip(points(node.right)).and_then(|(one, other)| one.checked_add(other));
                if sum != Some(node.points) {
                    return Err(wrong());
                }
                pending.extend([(node.left, place), (node.right, place)]);
            }
        }
        let mut is_listed = vec![false; self.nodes.len()];
        for (_, leaf) in &self.leaves {
            let node = self.nodes.get(*leaf as usize).ok_or_else(wrong)?;
            let is_right = node.left == NONE && is_used[*leaf as usize];
            if !is_right || std::mem::replace(&mut is_listed[*leaf as usize], true) {
                return Err(wrong());
            }
        }
        for free in &self.free {
            let used = is_used.get_mut(*free as usize).ok_or_else(wrong)?;
            if std::mem::replace(used, true) {
                return Err(wrong());
            }
        }
        if leaves != self.leaves.len() || !is_used.into_iter().all(|used| used) {
            return Err(wrong());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::artefact::ArtefactKind;

    #[test]
    fn trees_stay_trees_while_points_come_and_go() {
        let mut random = Random::new(3);
        let mut forest = CutForest::new(10, 2, 5);
        for at in 0..3000 {
            // Whole numbers: many points are equal.
            let point = [f64::from(random.below(6)), f64::from(random.below(6))];
            forest.insert(&point);
            if at % 100 == 0 {
                for tree in &forest.trees {
                    tree.check(2).unwrap();
                    assert_eq!(tree.nodes[tree.root as usize].points as usize, tree.leaves.len());
                }
            }
        }
        let (usual, odd) = (forest.score(&[3.0, 3.0]), forest.score(&[30.0, 3.0]));
        assert!(usual < 0.05 && odd > 0.5, "{usual} {odd}");
        let mut out = ArtefactWriter::new(ArtefactKind::Series);
        forest.encode(&mut out);
        let bytes = out.finish();
        let mut read =
            CutForest::decode(&mut ArtefactReader::new(&bytes, ArtefactKind::Series).unwrap(), 2).unwrap();
        assert_eq!(read, forest);
        read.insert(&[1.0, 2.0]);
        forest.insert(&[1.0, 2.0]);
        assert_eq!(read, forest);
    }
}
