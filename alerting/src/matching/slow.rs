//! Which filter takes too long: many are asked at once, so time is known of all of them together.
//!
//! Where a batch took long, each filter is asked of it once more by itself. One that took the better part of the time is blamed;
//! blamed twice, its rule is paused, and the others go on without it. This is done seldom, since it takes as long as the batch did.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_query::Work;
use millrace_query::filters::{Batch, Filter, Matcher};

use super::Asked;

/// A batch that took no longer is fine.
const LONG: Duration = Duration::from_millis(500);
/// What a filter alone may take of a batch.
const LONG_ALONE: Duration = Duration::from_millis(250);
/// How often filters are looked for, at most, for each share of the time that it took.
const SELDOM: u32 = 10;
/// Filters that are looked at: with more of them a single one is hardly the reason.
const MAX_FILTERS: usize = 2_000;
/// Blamed once more within this time, its rule is paused: a busy machine may be the reason once.
const REMEMBERED: Duration = Duration::from_secs(600);

/// Watches the time of filters.
#[derive(Debug, Default)]
pub(super) struct Slow {
    /// When rules were blamed.
    blamed: HashMap<String, Instant>,
    /// Nothing is looked for before.
    not_before: Option<Instant>,
}

impl Slow {
    /// Does something and takes its time.
    pub(super) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
        let began = Instant::now();
        (work(), began.elapsed())
    }

    /// Forgets what a rule was blamed for.
    pub(super) fn forget(&mut self, rule: &str) {
        self.blamed.remove(rule);
    }

    /// Whether a batch took so long that filters are looked at, and it is time to.
    pub(super) fn is_long(&self, took: Duration, filters: usize) -> bool {
        let is_seldom = self.not_before.is_none_or(|not_before| Instant::now() >= not_before);
        took >= LONG && filters <= MAX_FILTERS && is_seldom
    }

    /// Finds the rules that are to be paused because a batch took long ([`Self::is_long`]), with the reason. The batch has all fields.
    pub(super) fn blame<'a>(
        &mut self,
        took: Duration,
        batch: &Batch,
        filters: impl Iterator<Item = (&'a Arc<Asked>, &'a Arc<Filter>)>,
    ) -> Vec<(Arc<Asked>, String)> {
        let began = Instant::now();
        let mut paused = Vec::new();
        for (rule, filter) in filters {
            let alone = Matcher::new(&[Arc::clone(filter)]);
            let (_, took_alone) = Self::timed(|| alone.run(batch, &Work::default()).map(drop));
            if took_alone < LONG_ALONE || took_alone < took / 2 {
                continue;
            }
            let before = self.blamed.insert(rule.id.clone(), began);
            if before.is_some_and(|before| began.duration_since(before) < REMEMBERED) {
                let reason = format!(
                    "its filter takes too long, {} ms for {} documents: make it simpler, then enable the rule again",
                    took_alone.as_millis(),
                    batch.rows()
                );
                paused.push((Arc::clone(rule), reason));
            }
        }
        self.not_before = Some(Instant::now() + began.elapsed() * SELDOM);
        paused
    }
}
