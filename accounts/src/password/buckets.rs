//! Rate limit: a token bucket for each caller.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

/// Most buckets. Beyond it the one with the most tokens is forgotten, which fills it.
const MAX_BUCKETS: usize = 4096;

/// Buckets that begin full and get a token back in each interval.
#[derive(Debug)]
pub(super) struct Buckets<K> {
    tokens: i64,
    interval_ms: i64,
    /// Time at which each bucket that is not full will be, in milliseconds.
    full_at: HashMap<K, i64>,
}

impl<K: Hash + Eq + Clone> Buckets<K> {
    pub(super) fn new(tokens: u32, interval: Duration) -> Self {
        let interval_ms = i64::try_from(interval.as_millis()).unwrap_or(i64::MAX).max(1);
        Self { tokens: i64::from(tokens), interval_ms, full_at: HashMap::new() }
    }

    /// Returns the time until there is a token, 0 where there is one.
    pub(super) fn wait(&self, key: &K, now_ms: i64) -> Duration {
        let enough_at = self.full_at(key, now_ms) - (self.tokens - 1) * self.interval_ms;
        Duration::from_millis(u64::try_from(enough_at - now_ms).unwrap_or_default())
    }

    /// Takes a token.
    pub(super) fn take(&mut self, key: &K, now_ms: i64) {
        let full_at = self.full_at(key, now_ms) + self.interval_ms;
        if self.full_at.len() >= MAX_BUCKETS && !self.full_at.contains_key(key) {
            self.make_room(now_ms);
        }
        self.full_at.insert(key.clone(), full_at);
    }

    /// Gives a token back that was taken for nothing.
    pub(super) fn give_back(&mut self, key: &K) {
        if let Some(full_at) = self.full_at.get_mut(key) {
            *full_at -= self.interval_ms;
        }
    }

    /// Never further away than it takes to fill an empty bucket, also where the clock was set back.
    fn full_at(&self, key: &K, now_ms: i64) -> i64 {
        let full_at = self.full_at.get(key).copied().unwrap_or(now_ms);
        full_at.clamp(now_ms, now_ms + self.tokens * self.interval_ms)
    }

    fn make_room(&mut self, now_ms: i64) {
        self.full_at.retain(|_, full_at| *full_at > now_ms);
        if self.full_at.len() >= MAX_BUCKETS {
            let fullest = self.full_at.iter().min_by_key(|(_, full_at)| **full_at);
            if let Some(fullest) = fullest.map(|(key, _)| key.clone()) {
                self.full_at.remove(&fullest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1000;

    fn buckets(tokens: u32) -> Buckets<usize> {
        Buckets::new(tokens, Duration::from_secs(1))
    }

    #[test]
    fn tokens_come_back_one_by_one() {
        let mut buckets = buckets(3);
        for _ in 0..3 {
            assert_eq!(buckets.wait(&1, 0), Duration::ZERO);
            buckets.take(&1, 0);
        }
        assert_eq!((buckets.wait(&1, 0), buckets.wait(&2, 0)), (Duration::from_secs(1), Duration::ZERO));
        assert_eq!(buckets.wait(&1, 600), Duration::from_millis(400));
        buckets.give_back(&1);
        assert_eq!(buckets.wait(&1, 0), Duration::ZERO);
        buckets.take(&1, 0);
        assert_eq!(buckets.wait(&1, SECOND), Duration::ZERO);
        // A clock that is set back costs no more than an empty bucket.
        assert_eq!(buckets.wait(&1, -SECOND * 3600), Duration::from_secs(1));
    }

    #[test]
    fn the_fullest_is_forgotten_first() {
        let mut buckets = buckets(3);
        buckets.take(&0, 0);
        for _ in 0..3 {
            buckets.take(&1, SECOND);
        }
        for key in 2..MAX_BUCKETS * 2 {
            buckets.take(&key, SECOND);
        }
        assert_eq!(buckets.full_at.len(), MAX_BUCKETS);
        assert!(!buckets.full_at.contains_key(&0));
        assert!(buckets.wait(&1, SECOND) > Duration::ZERO, "the empty one is kept");
    }
}
