//! Retention of dead letters within the limits of their pipelines.
//!
//! [`RetentionTask::admit`] decides at each letter, by what was counted last and what came since. [`RetentionTask::sweep`] counts anew, from what
//! the index has, and removes what is too old, or too much where the oldest are to go. So nothing that is written
//! otherwise, replayed or deleted by somebody is counted wrongly for longer than until the next sweep.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use millrace_catalog::access::Principal;
use millrace_catalog::operation::{DeadLetter, OnReject, SourceWrite};
use millrace_catalog::system_document::{Precondition, SystemDocument};
use millrace_engine::Engine;
use millrace_ingest::dead_letter::{Limits, Policy, StoredDeadLetter, WRITE_TIMEOUT};
use millrace_runtime::Result;
use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, Notify};

use crate::heads::{Contents, Listing, UNKNOWN_BYTES, UnreadDeadLetter};

/// Time between sweeps that nothing asks for.
const SWEEP: Duration = Duration::from_secs(60);
/// Letters that are removed in one frame.
const AT_ONCE: usize = 1_000;
/// Of so many letters that find no place one is logged.
const LOGGED: u64 = 1_000;

/// Keeps letters within their bounds.
#[derive(Debug, Default)]
pub(crate) struct RetentionTask {
    state: Mutex<State>,
    /// One sweep at a time.
    sweeping: AsyncMutex<bool>,
    full: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// By pipeline; those that run.
    limits: HashMap<String, Limits>,
    /// By pipeline: the count of the last sweep and the bytes admitted since.
    bytes: HashMap<String, u64>,
    /// Bytes admitted since the running sweep began.
    since: HashMap<String, u64>,
    /// Bytes that the last sweep counted by pipeline, and the contents that it read.
    counted: HashMap<Arc<str>, u64>,
    counted_in: Option<Contents>,
    /// Letters that found no place.
    dropped: HashMap<String, u64>,
}

impl RetentionTask {
    /// Says the bounds of a pipeline.
    pub(crate) fn limit(&self, pipeline: &str, limits: Limits) {
        self.state.lock().limits.insert(pipeline.to_owned(), limits);
        self.full.notify_one();
    }

    /// Returns whether a letter of so many bytes may be written; it is counted then.
    pub(crate) fn admit(&self, pipeline: &str, bytes: u64) -> bool {
        let mut state = self.state.lock();
        let limits = state.limits.get(pipeline).copied().unwrap_or_default();
        let after = state.bytes.get(pipeline).copied().unwrap_or_default().saturating_add(bytes);
        if after > limits.max_bytes && limits.policy == Policy::DropOlder {
            self.full.notify_one();
        }
        if after > limits.ceiling() {
            let dropped = state.dropped.entry(pipeline.to_owned()).or_default();
            *dropped += 1;
            if *dropped % LOGGED == 1 {
                tracing::error!(
                    pipeline,
                    dropped = *dropped,
                    max_bytes = limits.max_bytes,
                    "dead letters are full: an event that cannot be stored is lost; replay or delete letters, or raise dead_letter_queue.max_bytes"
                );
            }
            return false;
        }
        state.count(pipeline, bytes);
        true
    }

    /// Counts a letter that is written in any case: it takes the place of another one.
    pub(crate) fn count(&self, pipeline: &str, bytes: u64) {
        self.state.lock().count(pipeline, bytes);
    }

    /// Waits until a sweep is due, by time or because there is too much.
    pub(crate) async fn due(&self) {
        tokio::select! {
            () = tokio::time::sleep(SWEEP) => {}
            () = self.full.notified() => {}
        }
    }

    /// Counts the letters for the first time, unless that was done.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn begin(&self, engine: &Engine, principal: &Principal) -> Result<()> {
        let mut begun = self.sweeping.lock().await;
        if !*begun {
            self.sweep_alone(engine, principal).await?;
            *begun = true;
        }
        Ok(())
    }

    /// Counts the letters, and removes those that are too old or too many.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn sweep(&self, engine: &Engine, principal: &Principal) -> Result<()> {
        let _sweeping = self.sweeping.lock().await;
        self.sweep_alone(engine, principal).await
    }

    async fn sweep_alone(&self, engine: &Engine, principal: &Principal) -> Result<()> {
        let limits = {
            let mut state = self.state.lock();
            state.since.clear();
            state.limits.clone()
        };
        let Some(listing) = Listing::take(engine).await? else { return Ok(()) };
        let now_ms = engine.clock().now_ms();
        let contents = listing.contents();
        let known = {
            let state = self.state.lock();
            (state.counted_in == Some(contents)).then(|| state.counted.clone())
        };
        let mut counted = match known {
            // Nothing has changed.
            Some(counted) => counted,
            None => {
                let none = HashMap::<Arc<str>, u64>::new();
                let counted = listing.fold(engine, none, |counted, head| {
                    *counted.entry(pipeline_of(&head)).or_default() += head.bytes.unwrap_or(UNKNOWN_BYTES);
                });
                counted.await?
            }
        };
        // Bytes that the oldest letters of a pipeline give up.
        let excess: HashMap<Arc<str>, u64> = counted
            .iter()
            .filter_map(|(pipeline, bytes)| {
                let limits = limits.get(&**pipeline).copied().unwrap_or_default();
                let over = limits.policy == Policy::DropOlder && *bytes > limits.max_bytes;
                over.then(|| (Arc::clone(pipeline), bytes - limits.floor()))
            })
            .collect();
        let oldest = |limits: &Limits| {
            limits
                .retain
                .map(|retain| now_ms.saturating_sub(i64::try_from(retain.as_millis()).unwrap_or(i64::MAX)))
        };
        let ages: HashMap<String, i64> = limits
            .iter()
            .filter_map(|(pipeline, limits)| Some((pipeline.clone(), oldest(limits)?)))
            .collect();
        if !(excess.is_empty() && ages.is_empty()) {
            let removed = self.remove(engine, principal, &listing, excess, ages).await?;
            for (pipeline, (letters, bytes)) in removed {
                tracing::warn!(
                    pipeline = &*pipeline,
                    letters,
                    bytes,
                    "dead letters were removed, for they are too old or too many"
                );
                if let Some(counted) = counted.get_mut(&pipeline) {
                    *counted = counted.saturating_sub(bytes);
                }
            }
        }
        let mut state = self.state.lock();
        let since = std::mem::take(&mut state.since);
        state.bytes = counted.iter().map(|(pipeline, bytes)| (pipeline.to_string(), *bytes)).collect();
        (state.counted, state.counted_in) = (counted, Some(contents));
        for (pipeline, bytes) in since {
            *state.bytes.entry(pipeline).or_default() += bytes;
        }
        Ok(())
    }

    /// Removes letters. Answers how many of each pipeline, and their bytes.
    async fn remove(
        &self,
        engine: &Engine,
        principal: &Principal,
        listing: &Listing,
        excess: HashMap<Arc<str>, u64>,
        ages: HashMap<String, i64>,
    ) -> Result<HashMap<Arc<str>, (u64, u64)>> {
        let concerned = excess.clone();
        let heads =
            listing.fold(engine, Vec::new(), move |heads: &mut Vec<(bool, UnreadDeadLetter)>, head| {
                let pipeline = pipeline_of(&head);
                let is_old = ages.get(&*pipeline).is_some_and(|oldest| head.time_ms < *oldest);
                if is_old || concerned.contains_key(&pipeline) {
                    heads.push((is_old, head));
                }
            });
        let mut heads = heads.await?;
        heads.sort_unstable_by_key(|(_, head)| (head.time_ms, head.at));
        let mut left = excess;
        let mut removed: HashMap<Arc<str>, (u64, u64)> = HashMap::new();
        let mut going = Vec::new();
        for (is_old, head) in heads {
            let (pipeline, bytes) = (pipeline_of(&head), head.bytes.unwrap_or(UNKNOWN_BYTES));
            let over = left.get_mut(&pipeline).filter(|left| **left > 0);
            if !is_old && over.is_none() {
                continue;
            }
            if let Some(over) = over {
                *over = over.saturating_sub(bytes);
            }
            let (letters, sum) = removed.entry(pipeline).or_default();
            (*letters, *sum) = (*letters + 1, *sum + bytes);
            going.push(head);
        }
        // There is nothing that could be refused.
        let none: DeadLetter = Arc::new(|_, _| OnReject::Skip);
        for heads in going.chunks(AT_ONCE) {
            let ids = listing.ids(heads).await?.into_iter().filter(|id| !id.is_empty());
            let removal = |id: String| StoredDeadLetter::delete_op(&id, Precondition::Any);
            let own = ids.map(removal).collect();
            let write = SourceWrite { own, ..SourceWrite::default() };
            engine.write_from_source(principal, write, Arc::clone(&none), WRITE_TIMEOUT).await?;
        }
        Ok(removed)
    }
}

impl State {
    fn count(&mut self, pipeline: &str, bytes: u64) {
        for counts in [&mut self.bytes, &mut self.since] {
            match counts.get_mut(pipeline) {
                Some(count) => *count = count.saturating_add(bytes),
                None => drop(counts.insert(pipeline.to_owned(), bytes)),
            }
        }
    }
}

fn pipeline_of(head: &UnreadDeadLetter) -> Arc<str> {
    head.pipeline.clone().unwrap_or_default()
}
