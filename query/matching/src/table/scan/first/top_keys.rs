//! The best rows that were met, or the best row of each of the best groups.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

use datafusion::common::ScalarValue;
use millrace_work::error::Result;

/// Rows that are met for each group that is wanted before it is known that groups are few: then every match is looked at,
/// as the first rows do not have enough groups.
const ROWS_A_GROUP: usize = 32;

/// A row's key, and its address where that decides among rows of one key.
type RankKey<K> = (K, u64);

/// The best so many of what was met.
#[derive(Debug)]
pub(super) struct Contest<K> {
    limit: usize,
    best: TopKeys<K>,
}

#[derive(Debug)]
enum TopKeys<K> {
    /// The worst first.
    Rows(BinaryHeap<RankKey<K>>),
    Groups {
        best: HashMap<ScalarValue, RankKey<K>>,
        worst: Option<RankKey<K>>,
        met: usize,
    },
    /// There are too few groups among the rows that were met.
    FewGroups,
}

impl<K: Ord + Clone> Contest<K> {
    /// Begins one for so many rows, or groups.
    pub(super) fn new(limit: usize, grouped: bool) -> Self {
        let best = match grouped {
            false => TopKeys::Rows(BinaryHeap::new()),
            true => TopKeys::Groups { best: HashMap::new(), worst: None, met: 0 },
        };
        Self { limit, best }
    }

    /// Returns whether there is a worst that competes, or will be.
    pub(super) fn tells(&self) -> bool {
        !matches!(self.best, TopKeys::FewGroups)
    }

    /// Returns the worst that competes, once there are enough.
    pub(super) fn worst(&self) -> Option<&RankKey<K>> {
        match &self.best {
            TopKeys::Rows(best) => best.peek().filter(|_| best.len() >= self.limit),
            TopKeys::Groups { worst, .. } => worst.as_ref(),
            TopKeys::FewGroups => None,
        }
    }

    /// Takes a row in that competes.
    pub(super) fn meet(
        &mut self,
        key: K,
        address: u64,
        group: impl FnOnce() -> Result<ScalarValue>,
    ) -> Result<()> {
        let place = (key, address);
        match &mut self.best {
            TopKeys::Rows(best) if best.len() < self.limit => best.push(place),
            TopKeys::Rows(best) => {
                if let Some(mut worst) = best.peek_mut() {
                    *worst = place;
                }
            }
            TopKeys::Groups { best, worst, met } => {
                *met += 1;
                let group = group()?;
                if best.get(&group).is_none_or(|own| place < *own) {
                    best.insert(group, place);
                    if best.len() > self.limit {
                        let last = best.iter().max_by(|a, b| a.1.cmp(b.1)).map(|(group, _)| group.clone());
                        last.and_then(|group| best.remove(&group));
                    }
                    *worst = best.values().max().filter(|_| best.len() >= self.limit).cloned();
                }
                if worst.is_none() && *met >= ROWS_A_GROUP * self.limit {
                    self.best = TopKeys::FewGroups;
                }
            }
            TopKeys::FewGroups => {}
        }
        Ok(())
    }
}

/// Order of strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TextOrder {
    /// `true` if the greatest comes first.
    pub descending: bool,
    /// `true` if rows without one come first.
    pub nulls_first: bool,
}

/// A string, or none, in an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Text {
    text: Option<Box<[u8]>>,
    order: TextOrder,
}

impl TextOrder {
    /// Makes a string of the order.
    pub(super) fn text(self, text: Option<&[u8]>) -> Text {
        Text { text: text.map(Into::into), order: self }
    }

    /// Compares the place of a row with another.
    pub(super) fn place_cmp(self, row: (Option<&[u8]>, u64), other: &RankKey<Text>) -> Ordering {
        self.cmp(row.0, other.0.text.as_deref()).then_with(|| row.1.cmp(&other.1))
    }

    fn cmp(self, one: Option<&[u8]>, other: Option<&[u8]>) -> Ordering {
        match (one, other) {
            (Some(one), Some(other)) if self.descending => other.cmp(one),
            (Some(one), Some(other)) => one.cmp(other),
            (one, other) => match self.nulls_first {
                true => one.is_some().cmp(&other.is_some()),
                false => other.is_some().cmp(&one.is_some()),
            },
        }
    }
}

impl Ord for Text {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order.cmp(self.text.as_deref(), other.text.as_deref())
    }
}

impl PartialOrd for Text {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_best_of_each_group_counts() {
        let mut contest = Contest::new(2, true);
        let meet = |contest: &mut Contest<u64>, key, group: &str| {
            contest.meet(key, 0, || Ok(ScalarValue::from(group))).unwrap();
            contest.worst().map(|worst| worst.0)
        };
        assert_eq!(meet(&mut contest, 5, "a"), None);
        assert_eq!(meet(&mut contest, 4, "a"), None);
        assert_eq!(meet(&mut contest, 9, "b"), Some(9));
        assert_eq!(meet(&mut contest, 7, "c"), Some(7));
        assert_eq!(meet(&mut contest, 1, "c"), Some(4));
    }

    #[test]
    fn where_groups_are_few_it_does_not_tell() {
        let mut contest = Contest::new(2, true);
        for key in 0..2 * ROWS_A_GROUP as u64 {
            assert!(contest.tells());
            contest.meet(key, 0, || Ok(ScalarValue::Null)).unwrap();
        }
        assert!(!contest.tells() && contest.worst().is_none());
    }

    #[test]
    fn strings_and_their_absence_are_ordered() {
        let sorted = |descending, nulls_first| {
            let order = TextOrder { descending, nulls_first };
            let mut texts: Vec<Text> = [Some("b"), None, Some("ab"), Some("a")]
                .map(|text| order.text(text.map(str::as_bytes)))
                .into();
            texts.sort();
            let text = |text: &Text| text.text.as_ref().map(|text| String::from_utf8(text.to_vec()).unwrap());
            texts.iter().map(|own| text(own).unwrap_or_default()).collect::<Vec<_>>().join(",")
        };
        assert_eq!(sorted(false, false), "a,ab,b,");
        assert_eq!(sorted(true, false), "b,ab,a,");
        assert_eq!(sorted(false, true), ",a,ab,b");
        assert_eq!(sorted(true, true), ",b,ab,a");
    }
}
