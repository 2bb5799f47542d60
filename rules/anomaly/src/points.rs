//! [`Points`]: points of training rows, stored by column, and the search for the nearest of them.
//!
//! The search compares a point with all others. Loops run over columns, so that compilers make vector instructions of them; each
//! distance adds its dimensions in order, so that it is the same on every machine.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::artefact::{ArtefactReader, ArtefactWriter, corrupt};
use crate::error::Result;

/// Points of one space, stored by column.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Points {
    columns: Vec<Vec<f64>>,
}

/// A point near another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Neighbor {
    pub(crate) distance: f64,
    pub(crate) index: u32,
}

impl Eq for Neighbor {}

impl PartialOrd for Neighbor {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Neighbor {
    fn cmp(&self, other: &Self) -> Ordering {
        self.distance.total_cmp(&other.distance).then(self.index.cmp(&other.index))
    }
}

impl Points {
    pub(crate) fn new(columns: Vec<Vec<f64>>) -> Self {
        Self { columns }
    }

    pub(crate) fn len(&self) -> usize {
        self.columns.first().map_or(0, Vec::len)
    }

    pub(crate) fn dimensions(&self) -> usize {
        self.columns.len()
    }

    pub(crate) fn column(&self, dimension: usize) -> &[f64] {
        &self.columns[dimension]
    }

    pub(crate) fn read(&self, index: usize, point: &mut Vec<f64>) {
        point.clear();
        point.extend(self.columns.iter().map(|column| column[index]));
    }

    /// Writes the squared distances of a point to all points.
    pub(crate) fn squared_distances(&self, point: &[f64], distances: &mut Vec<f64>) {
        distances.clear();
        distances.resize(self.len(), 0.0);
        for (column, own) in self.columns.iter().zip(point) {
            for (distance, value) in distances.iter_mut().zip(column) {
                let difference = value - own;
                *distance += difference * difference;
            }
        }
    }

    /// Returns the nearest points in order, those of one distance by their index. `skip` is left out.
    pub(crate) fn nearest(
        &self,
        point: &[f64],
        count: usize,
        skip: Option<usize>,
        distances: &mut Vec<f64>,
    ) -> Vec<Neighbor> {
        self.squared_distances(point, distances);
        let mut heap: BinaryHeap<Neighbor> = BinaryHeap::with_capacity(count + 1);
        let mut bound = f64::INFINITY;
        for (index, distance) in distances.iter().enumerate() {
            if (*distance >= bound && heap.len() == count) || Some(index) == skip {
                continue;
            }
            heap.push(Neighbor { distance: *distance, index: index as u32 });
            if heap.len() > count {
                heap.pop();
            }
            if heap.len() == count {
                bound = heap.peek().map_or(f64::INFINITY, |farthest| farthest.distance);
            }
        }
        let mut nearest = heap.into_sorted_vec();
        nearest.iter_mut().for_each(|neighbor| neighbor.distance = neighbor.distance.sqrt());
        nearest
    }

    /// Returns the distance between two points of the set.
    pub(crate) fn distance(&self, one: usize, other: usize) -> f64 {
        let square = |column: &Vec<f64>| (column[one] - column[other]) * (column[one] - column[other]);
        self.columns.iter().map(square).sum::<f64>().sqrt()
    }

    pub(crate) fn encode(&self, out: &mut ArtefactWriter) {
        self.columns.iter().for_each(|column| out.f64s(column));
    }

    /// Reads points of known dimensions: as many in each column, and at least one.
    pub(crate) fn decode(from: &mut ArtefactReader<'_>, dimensions: usize, limit: usize) -> Result<Self> {
        let first = from.finites(limit)?;
        if first.is_empty() {
            return Err(corrupt("it has no points"));
        }
        let rows = first.len();
        let mut columns = vec![first];
        for _ in 1..dimensions {
            columns.push(from.exact_finites(rows)?);
        }
        Ok(Self { columns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_are_those_of_a_sort() {
        let mut random = millrace_forecast::Random::new(3);
        let mut column = || (0..500).map(|_| f64::from(random.below(50))).collect::<Vec<f64>>();
        let points = Points::new(vec![column(), column()]);
        let (mut point, mut distances) = (Vec::new(), Vec::new());
        points.read(17, &mut point);
        let nearest = points.nearest(&point, 40, Some(17), &mut distances);
        let mut all: Vec<Neighbor> = (0..500)
            .filter(|index| *index != 17)
            .map(|index| Neighbor { distance: points.distance(17, index), index: index as u32 })
            .collect();
        all.sort();
        assert_eq!(nearest, all[..40]);
    }
}
