//! Values that are cheap to make again, kept by key within a bound. Two generations of them: what is asked for moves to the
//! young one, and once that has half of the bound, the old one is forgotten as a whole. So nothing is lost that is in use,
//! and whoever finds a value in the young generation changes nothing.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

/// Values by key, with a bound on the sum of their weights.
#[derive(Debug)]
pub struct GenerationalCache<K, V> {
    most: usize,
    young: HashMap<K, (V, usize)>,
    old: HashMap<K, (V, usize)>,
    /// Weight of the young ones.
    weight: usize,
}

impl<K: Hash + Eq, V: Clone> GenerationalCache<K, V> {
    /// Keeps values that weigh at most so much together.
    pub fn new(most: usize) -> Self {
        Self { most, young: HashMap::new(), old: HashMap::new(), weight: 0 }
    }

    /// Returns a value of the young generation.
    pub fn peek<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.young.get(key).map(|(value, _)| value)
    }

    /// Returns a value, which is young from now on.
    pub fn get<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        if let Some((value, _)) = self.young.get(key) {
            return Some(value.clone());
        }
        let (key, (value, weight)) = self.old.remove_entry(key)?;
        self.insert(key, value.clone(), weight);
        Some(value)
    }

    /// Keeps a value. One that weighs more than half of the bound is not kept.
    pub fn insert(&mut self, key: K, value: V, weight: usize) {
        let half = self.most / 2;
        if weight > half {
            return;
        }
        if let Some((_, replaced)) = self.young.remove(&key) {
            self.weight -= replaced;
        }
        if self.weight + weight > half {
            self.old = std::mem::take(&mut self.young);
            self.weight = 0;
        }
        self.weight += weight;
        self.young.insert(key, (value, weight));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_use_stays_and_the_rest_keeps_the_bound() {
        let mut recent = GenerationalCache::new(20);
        recent.insert("used".to_owned(), 0, 1);
        for n in 1..1_000 {
            recent.insert(n.to_string(), n, 1);
            assert_eq!(recent.get("used"), Some(0), "{n}");
            assert!(recent.young.len() + recent.old.len() <= 20);
        }
        assert_eq!(recent.get("1"), None);
        assert_eq!(recent.peek("999"), Some(&999));
        recent.insert("heavy".to_owned(), 1, 11);
        assert_eq!(recent.get("heavy"), None);
        recent.insert("heavy".to_owned(), 1, 10);
        recent.insert("heavy".to_owned(), 2, 10);
        assert_eq!((recent.get("heavy"), recent.get("used")), (Some(2), Some(0)));
    }
}
