//! `throttle`: matches events of a key before or behind a number of them in a period.
//!
//! Periods are of event time. The counters of a key begin with its first event, as in Logstash.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_ingest::number::integer;
use millrace_ingest::{Event, Fault, Options, Template};
use millrace_runtime::GenerationalCache;
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};

use super::{Filter, Outcome};

/// Counters where nothing is said.
const DEFAULT_COUNTERS: i64 = 100_000;
/// Counters that a filter may have.
const MAX_COUNTERS: i64 = 10_000_000;
/// Longest key that is stored as it is, in bytes. Of a longer one its digest is stored.
const MAX_KEY_BYTES: usize = 128;
/// Most periods of one key that are counted at a time.
const MAX_SLOTS: usize = 1_000;

#[derive(Debug)]
struct Throttle {
    key: Template,
    period: Template,
    before_count: Option<i64>,
    after_count: Option<i64>,
    max_age: i64,
    /// Counters of keys, the most recent ones.
    counters: Mutex<GenerationalCache<String, Arc<Mutex<KeyCounters>>>>,
}

/// Counters of one key by the beginnings of their periods, in seconds since 1970.
#[derive(Debug)]
struct KeyCounters {
    first: i64,
    slots: BTreeMap<i64, i64>,
}

pub(super) fn build(mut options: Options) -> Result<Arc<dyn Filter>, Vec<Fault>> {
    let key = options.required_text("key");
    let mut count = |name| options.integer(name, -1..=i64::from(i32::MAX)).filter(|count| *count >= 0);
    let (before_count, after_count) = (count("before_count"), count("after_count"));
    let period = options.template("period").unwrap_or_else(|| Template::parse("60"));
    let max_age = options.integer("max_age", 0..=i64::from(i32::MAX)).unwrap_or(3600);
    let counters = options.integer("max_counters", -1..=MAX_COUNTERS).unwrap_or(DEFAULT_COUNTERS);
    let most = usize::try_from(counters).unwrap_or(MAX_COUNTERS as usize);
    options.finish()?;
    let counters = Mutex::new(GenerationalCache::new(most.max(2)));
    Ok(Arc::new(Throttle {
        key: Template::parse(&key),
        period,
        before_count,
        after_count,
        max_age,
        counters,
    }))
}

impl KeyCounters {
    /// Counts an event; returns the number of events in its period so far.
    fn count(&mut self, time: i64, period: i64, max_age: i64) -> i64 {
        let slot = time - (time - self.first).rem_euclid(period);
        let count = self.slots.entry(slot).or_insert(0);
        *count += 1;
        let count = *count;
        let latest = self.slots.keys().next_back().copied().unwrap_or(slot);
        let oldest = latest.saturating_sub(max_age);
        if self.slots.first_key_value().is_some_and(|(slot, _)| *slot < oldest) {
            self.slots = self.slots.split_off(&oldest);
        }
        while self.slots.len() > MAX_SLOTS {
            self.slots.pop_first();
        }
        count
    }
}

/// Replaces a long key by its SHA-256.
fn bounded_key(key: String) -> String {
    if key.len() <= MAX_KEY_BYTES {
        return key;
    }
    let digest = digest(&SHA256, key.as_bytes());
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Filter for Throttle {
    fn apply(&self, event: &mut Event, _made: &mut Vec<Event>) -> Outcome {
        let key = bounded_key(self.key.render(event));
        let period = integer(&self.period.render(event)).as_i64().filter(|period| *period > 0).unwrap_or(60);
        let time = event.timestamp().timestamp();
        let counters = {
            let mut cache = self.counters.lock();
            match cache.get(&key) {
                Some(counters) => counters,
                None => {
                    let counters = Arc::new(Mutex::new(KeyCounters { first: time, slots: BTreeMap::new() }));
                    cache.insert(key, Arc::clone(&counters), 1);
                    counters
                }
            }
        };
        let count = counters.lock().count(time, period, self.max_age);
        let is_before = self.before_count.is_some_and(|before| count < before);
        let is_after = self.after_count.is_some_and(|after| count > after);
        if is_before || is_after { Outcome::Matched } else { Outcome::Unmatched }
    }
}

#[cfg(test)]
mod tests {
    use chrono::{TimeZone, Utc};
    use millrace_ingest::options::{Location, Setting};

    use super::*;

    fn filter(given: &[(&str, &str)]) -> Arc<dyn Filter> {
        let given = given.iter().map(|(name, value)| {
            ((*name).to_owned(), Location::default(), Setting::Text((*value).to_owned()))
        });
        build(Options::new("throttle", Location::default(), given)).unwrap()
    }

    fn outcomes(filter: &dyn Filter, events: &[(&str, i64)]) -> Vec<bool> {
        let outcome = |(host, second): &(&str, i64)| {
            let mut event = Event::new(Utc.timestamp_opt(*second, 0).unwrap());
            event.set_text("host", host);
            filter.apply(&mut event, &mut Vec::new()) == Outcome::Matched
        };
        events.iter().map(outcome).collect()
    }

    #[test]
    fn events_beyond_the_counts_match() {
        let filter =
            filter(&[("key", "%{host}"), ("before_count", "2"), ("after_count", "3"), ("period", "60")]);
        let events = [("a", 0), ("a", 1), ("b", 2), ("a", 3), ("a", 4), ("a", 59), ("a", 60), ("a", 61)];
        assert_eq!(outcomes(&*filter, &events), [true, false, true, false, true, true, true, false]);
    }

    #[test]
    fn long_keys_count_apart_and_are_stored_as_digests() {
        let filter = filter(&[("key", "%{host}"), ("after_count", "1")]);
        let (a, b) = ("a".repeat(1000), "a".repeat(999));
        assert_eq!(outcomes(&*filter, &[(&a, 0), (&b, 1), (&a, 2)]), [false, false, true]);
        assert_eq!(bounded_key(a).len(), 64);
    }

    #[test]
    fn late_events_count_in_their_own_period() {
        let filter = filter(&[("key", "x"), ("after_count", "1"), ("period", "10"), ("max_age", "20")]);
        let events = [("a", 100), ("a", 115), ("a", 101), ("a", 116), ("a", 95), ("a", 200), ("a", 102)];
        assert_eq!(outcomes(&*filter, &events), [false, false, true, true, false, false, false]);
    }
}
