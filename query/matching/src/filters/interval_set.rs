//! Finds the intervals that contain any of some values.

use std::borrow::Borrow;

/// Intervals, both ends included; each is of somebody who has a number.
#[derive(Debug)]
pub(super) struct IntervalSet<K> {
    /// By their lower ends, once sealed.
    all: Vec<Interval<K>>,
    /// The greatest upper end of the run that each is in the middle of; open where absent.
    greatest: Vec<Option<K>>,
    /// All of them joined: where each stretch begins, ascending, and its end.
    covered: Vec<(K, Option<K>)>,
}

#[derive(Debug)]
struct Interval<K> {
    from: K,
    to: Option<K>,
    owner: u32,
}

impl<K> Default for IntervalSet<K> {
    fn default() -> Self {
        Self { all: Vec::new(), greatest: Vec::new(), covered: Vec::new() }
    }
}

impl<K: Ord + Clone> IntervalSet<K> {
    /// Adds an interval, which is found once it is sealed.
    pub(super) fn add(&mut self, from: K, to: Option<K>, owner: u32) {
        self.all.push(Interval { from, to, owner });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Lets intervals be found.
    pub(super) fn seal(&mut self) {
        self.all.sort_by(|a, b| a.from.cmp(&b.from));
        self.greatest = self.all.iter().map(|own| own.to.clone()).collect();
        if !self.all.is_empty() {
            self.sealed(0, self.all.len());
        }
        self.covered.clear();
        for own in &self.all {
            match self.covered.last_mut() {
                Some((_, None)) => break,
                Some((_, Some(end))) if own.from <= *end => match &own.to {
                    Some(to) if to <= end => {}
                    to => {
                        let to = to.clone();
                        self.covered.last_mut().expect("it was just there").1 = to;
                    }
                },
                _ => self.covered.push((own.from.clone(), own.to.clone())),
            }
        }
    }

    /// Returns whether any interval contains a value.
    pub(super) fn covers<Q: Ord + ?Sized>(&self, value: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        let behind = self.covered.partition_point(|(from, _)| from.borrow() <= value);
        let stretch = behind.checked_sub(1).and_then(|at| self.covered.get(at));
        stretch.is_some_and(|(_, to)| to.as_ref().is_none_or(|to| value <= to.borrow()))
    }

    fn sealed(&mut self, start: usize, end: usize) -> Option<K> {
        let middle = start + (end - start) / 2;
        let mut greatest = self.all[middle].to.clone();
        for (start, end) in [(start, middle), (middle + 1, end)] {
            if start < end {
                let other = self.sealed(start, end);
                greatest = match (greatest, other) {
                    (Some(own), Some(other)) => Some(own.max(other)),
                    _ => None,
                };
            }
        }
        self.greatest[middle].clone_from(&greatest);
        greatest
    }

    /// Calls `found` with the owners of intervals that contain any of some values, which ascend.
    pub(super) fn containing(&self, values: &[K], found: &mut dyn FnMut(u32)) {
        self.visit((0, self.all.len()), values, found);
    }

    fn visit(&self, (start, end): (usize, usize), values: &[K], found: &mut dyn FnMut(u32)) {
        if start >= end || values.is_empty() {
            return;
        }
        let middle = start + (end - start) / 2;
        // No interval of the run reaches further.
        let values = match &self.greatest[middle] {
            Some(greatest) => &values[..values.partition_point(|value| value <= greatest)],
            None => values,
        };
        self.visit((start, middle), values, found);
        let own = &self.all[middle];
        let values = &values[values.partition_point(|value| *value < own.from)..];
        if values.first().is_some_and(|value| own.to.as_ref().is_none_or(|to| value <= to)) {
            found(own.owner);
        }
        self.visit((middle + 1, end), values, found);
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    #[test]
    fn intervals_are_found_by_the_values_in_them() {
        let mut rng = StdRng::seed_from_u64(3);
        for round in 0..200 {
            let mut between = IntervalSet::default();
            let intervals: Vec<(u8, Option<u8>)> = (0..round % 40)
                .map(|_| {
                    let from = rng.random_range(0..100);
                    (from, rng.random_bool(0.9).then(|| rng.random_range(0..100)))
                })
                .collect();
            for (owner, (from, to)) in (0..).zip(&intervals) {
                between.add(*from, *to, owner);
            }
            assert_eq!(between.is_empty(), intervals.is_empty());
            if !between.is_empty() {
                between.seal();
            }
            let mut values: Vec<u8> = (0..rng.random_range(0..8)).map(|_| rng.random_range(0..100)).collect();
            values.sort_unstable();
            let mut found = Vec::new();
            between.containing(&values, &mut |owner| found.push(owner));
            found.sort_unstable();
            let contains = |(from, to): &(u8, Option<u8>)| {
                values.iter().any(|v| v >= from && to.is_none_or(|to| *v <= to))
            };
            let expected: Vec<u32> =
                (0..).zip(&intervals).filter(|(_, own)| contains(own)).map(|(owner, _)| owner).collect();
            assert_eq!(found, expected, "{intervals:?} {values:?}");
            for value in 0..=u8::MAX {
                let covered =
                    intervals.iter().any(|(from, to)| value >= *from && to.is_none_or(|to| value <= to));
                assert_eq!(between.covers(&value), covered, "{intervals:?} {value}");
            }
        }
    }
}
