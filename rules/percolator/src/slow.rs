//! Finds the filter that takes too long: many are evaluated at once, so time is known of all of them together.
//!
//! Time is that of the processor: on a busy machine a thread waits for its turn, and no filter is to blame for that. Where the system
//! does not tell it, the clock on the wall does.
//!
//! Where a batch took long, each filter is asked of it once more by itself. One that took the better part of the time is blamed, and
//! those that took many times what most do; blamed twice, its rule is paused, and the others go on without it. This is done
//! seldom, since it takes as long as the batch did.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use millrace_query::QueryContext;
use millrace_query::filters::{Batch, Filter, Matcher};
use millrace_runtime::Instant;

use super::{MatchRequest, panic_isolation};

/// A batch that took no longer is fine.
const LONG: Duration = Duration::from_millis(500);
/// Bound on the time that one filter may take of a batch.
const LONG_ALONE: Duration = Duration::from_millis(250);
/// Multiple of the median filter's time above which a filter is slow.
const MEDIAN_RATIO: u32 = 20;
/// Pause after a search for slow filters, as a multiple of its duration.
const SEARCH_PAUSE_RATIO: u32 = 10;
/// Filters that are looked at: with more of them a single one is hardly the reason.
const MAX_FILTERS: usize = 2_000;
/// Blamed once more within this time, its rule is paused: a busy machine may be the reason once.
const REMEMBERED: Duration = Duration::from_secs(600);

/// Watches the time of filters.
#[derive(Debug, Default)]
pub(super) struct Slow {
    /// Times at which rules were blamed.
    blamed: HashMap<String, Instant>,
    /// Nothing is looked for before.
    not_before: Option<Instant>,
}

impl Slow {
    /// Does something and returns the processor time that this thread spent on it.
    pub(super) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
        let (began, spent) = (Instant::now(), thread_time());
        let done = work();
        let took = match (spent, thread_time()) {
            (Some(before), Some(after)) => after.saturating_sub(before),
            _ => began.elapsed(),
        };
        (done, took)
    }

    /// Forgets what a rule was blamed for.
    pub(super) fn forget(&mut self, rule: &str) {
        self.blamed.remove(rule);
    }

    /// Returns whether a batch took so long that filters are looked at, and it is time to.
    pub(super) fn is_long(&self, took: Duration, filters: usize) -> bool {
        let is_seldom = self.not_before.is_none_or(|not_before| Instant::now() >= not_before);
        took >= LONG && filters <= MAX_FILTERS && is_seldom
    }

    /// Finds the rules that are to be paused because a batch took long ([`Self::is_long`]), with the reason. The batch has all
    /// fields. A filter that panics is not blamed: that is another fault, which is told where it is asked.
    pub(super) fn blame<'a>(
        &mut self,
        took: Duration,
        batch: &Batch,
        filters: impl Iterator<Item = (&'a Arc<MatchRequest>, &'a Arc<Filter>)>,
    ) -> Vec<(Arc<MatchRequest>, String)> {
        let alone = |filter: &Arc<Filter>| {
            let alone = Matcher::new(&[Arc::clone(filter)]);
            Self::timed(|| alone.run(batch, &QueryContext::default()).map(drop)).1
        };
        self.blame_by(took, batch.rows() as usize, filters, alone)
    }

    /// Does so, where `alone` asks a filter by itself and tells how long that took.
    fn blame_by<'a, F>(
        &mut self,
        took: Duration,
        documents: usize,
        filters: impl Iterator<Item = (&'a Arc<MatchRequest>, F)>,
        alone: impl Fn(F) -> Duration,
    ) -> Vec<(Arc<MatchRequest>, String)> {
        let began = Instant::now();
        // Also where this does not come to its end.
        self.not_before = Some(began + took * SEARCH_PAUSE_RATIO);
        let timed = filters
            .filter_map(|(rule, filter)| Some((rule, panic_isolation::guarded(|| alone(filter)).ok()?)));
        let timed: Vec<(&Arc<MatchRequest>, Duration)> = timed.collect();
        let mut times: Vec<Duration> = timed.iter().map(|(_, took_alone)| *took_alone).collect();
        times.sort_unstable();
        let much = times.get(times.len() / 2).map_or(took, |middle| *middle * MEDIAN_RATIO).min(took / 2);
        let mut paused = Vec::new();
        for (rule, took_alone) in timed {
            if took_alone < LONG_ALONE.max(much) {
                continue;
            }
            let before = self.blamed.insert(rule.id.clone(), began);
            if before.is_some_and(|before| began.duration_since(before) < REMEMBERED) {
                let reason = format!(
                    "its filter takes too long, {} ms for {} documents: make it simpler, then enable the rule again",
                    took_alone.as_millis(),
                    documents
                );
                paused.push((Arc::clone(rule), reason));
            }
        }
        self.not_before = Some(Instant::now() + began.elapsed() * SEARCH_PAUSE_RATIO);
        paused
    }
}

/// Returns the processor time of this thread; `None` where the system does not tell it.
#[cfg(unix)]
fn thread_time() -> Option<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec that the call writes, and nothing keeps the pointer.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    let (seconds, nanos) = (u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?);
    (failed == 0).then(|| Duration::new(seconds, nanos))
}

#[cfg(not(unix))]
fn thread_time() -> Option<Duration> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_a_thread_waits_for_others_does_not_count() {
        let (others, took) = Slow::timed(|| {
            // As on a busy machine: this thread waits while another one has the processor.
            let other = std::thread::spawn(|| {
                let began = Instant::now();
                Slow::timed(|| while began.elapsed() < Duration::from_millis(60) {}).1
            });
            other.join().unwrap()
        });
        assert!(took < Duration::from_millis(30), "{took:?} for waiting, {others:?} for working");
    }

    fn asked(id: &str) -> Arc<MatchRequest> {
        Arc::new(MatchRequest {
            id: id.to_owned(),
            owner: String::new(),
            expression: String::new(),
            parts: Vec::new(),
            body: serde_json::Value::Null,
            second: None,
            include_updates: false,
            allow_alerts: false,
            timestamp_field: String::new(),
        })
    }

    #[test]
    fn the_slow_one_is_paused_when_it_is_blamed_twice_and_one_that_panics_is_passed_over() {
        let rules = [asked("panics"), asked("slow"), asked("quick")];
        let alone = |at: usize| match at {
            0 => panic!("no such column"),
            1 => Duration::from_secs(1),
            _ => Duration::from_millis(1),
        };
        let mut slow = Slow::default();
        let mut blame = || {
            let filters = rules.iter().enumerate().map(|(at, rule)| (rule, at));
            slow.blame_by(Duration::from_secs(1), 5, filters, alone)
        };
        assert!(blame().is_empty());
        let paused = blame();
        assert_eq!(paused.len(), 1);
        assert!(
            paused[0].0.id == "slow" && paused[0].1.contains("1000 ms for 5 documents"),
            "{}",
            paused[0].1
        );
    }

    #[test]
    fn several_slow_ones_do_not_hide_behind_one_another() {
        let rules: Vec<_> = ["s0", "q1", "q2", "s3", "q4", "s5", "q6"].map(asked).into();
        let alone = |slow: bool| Duration::from_millis(if slow { 400 } else { 2 });
        let mut slow = Slow::default();
        let mut blame = || {
            let filters = rules.iter().map(|rule| (rule, rule.id.starts_with('s')));
            slow.blame_by(Duration::from_millis(1_210), 5, filters, alone)
        };
        assert!(blame().is_empty());
        let paused: Vec<String> = blame().into_iter().map(|(rule, _)| rule.id.clone()).collect();
        assert_eq!(paused, ["s0", "s3", "s5"]);
    }
}
