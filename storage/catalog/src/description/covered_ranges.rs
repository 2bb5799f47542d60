//! Sets of sequence numbers, as ranges.

use serde::{Deserialize, Serialize};

/// Sequence numbers that a segment accounts for: half-open ranges, ascending and apart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(u64, u64)>", into = "Vec<(u64, u64)>")]
pub struct CoveredRanges(Vec<(u64, u64)>);

impl From<Vec<(u64, u64)>> for CoveredRanges {
    fn from(mut ranges: Vec<(u64, u64)>) -> Self {
        ranges.retain(|(from, below)| from < below);
        ranges.sort_unstable();
        let mut covers: Vec<(u64, u64)> = Vec::with_capacity(ranges.len());
        for (from, below) in ranges {
            match covers.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(below),
                _ => covers.push((from, below)),
            }
        }
        Self(covers)
    }
}

impl From<CoveredRanges> for Vec<(u64, u64)> {
    fn from(covers: CoveredRanges) -> Self {
        covers.0
    }
}

impl CoveredRanges {
    /// Unites sets.
    pub fn union<'a>(sets: impl IntoIterator<Item = &'a Self>) -> Self {
        sets.into_iter().flat_map(|set| set.0.iter().copied()).collect::<Vec<_>>().into()
    }

    /// Returns the missing numbers below `below`.
    pub fn missing(&self, below: u64) -> Self {
        let mut missing = Vec::new();
        let mut at = 0;
        for (from, end) in self.0.iter().copied().take_while(|(from, _)| *from < below) {
            missing.push((at, from));
            at = end;
        }
        missing.push((at, below));
        missing.into()
    }

    /// Returns whether a number is in both.
    pub fn overlaps(&self, other: &Self) -> bool {
        let mut others = other.0.iter().peekable();
        self.0.iter().any(|(from, below)| {
            while others.next_if(|(_, end)| end <= from).is_some() {}
            others.peek().is_some_and(|(start, _)| start < below)
        })
    }

    /// The number after the greatest; 0 where there is none.
    pub fn end(&self) -> u64 {
        self.0.last().map_or(0, |(_, below)| *below)
    }

    /// Returns the ranges.
    pub fn ranges(&self) -> &[(u64, u64)] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn numbers(covers: &CoveredRanges) -> BTreeSet<u64> {
        covers.0.iter().flat_map(|(from, below)| *from..*below).collect()
    }

    fn sets() -> impl Strategy<Value = CoveredRanges> {
        proptest::collection::vec((0..40u64, 0..40u64), 0..6).prop_map(CoveredRanges::from)
    }

    proptest! {
        #[test]
        fn they_are_sets(one in sets(), two in sets(), below in 0..40u64) {
            let (a, b) = (numbers(&one), numbers(&two));
            prop_assert!(one.0.windows(2).all(|pair| pair[0].1 < pair[1].0));
            prop_assert_eq!(numbers(&CoveredRanges::union([&one, &two])), &a | &b);
            prop_assert_eq!(numbers(&one.missing(below)), (0..below).filter(|n| !a.contains(n)).collect());
            prop_assert_eq!(one.overlaps(&two), !a.is_disjoint(&b));
            prop_assert_eq!(one.end(), a.last().map_or(0, |n| n + 1));
        }
    }
}
