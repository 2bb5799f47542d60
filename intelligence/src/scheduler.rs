//! When rules run: each by its schedule, at most two at a time, and never one twice at once.
//!
//! [`due`] says what is due; the task around it looks once a second. A rule that was due while the server was down, or while it ran still, runs
//! once, for the latest of those times. A time counts as seen to when its run has ended, so that one that the server did
//! not live to see the end of is made up for. A task beside it fills in what became of predictions, one rule after another; a rule may run
//! meanwhile.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::error::Error;
use crate::fill;
use crate::store::{Kept, State};
use crate::{Mark, Shared, TURNS, to_its_end};

/// How often it is looked what is due.
const TICK: Duration = Duration::from_secs(1);
/// The place of a run stays empty for so many times as long as it took, but no longer than this: many of them one after another would slow
/// down what is ingested.
const PAUSE: u32 = 4;
const LONGEST_PAUSE: Duration = Duration::from_secs(600);
/// After how long a rule's predictions are looked at again when it could not be found out what became of them; twice as long each time.
const FILL_AGAIN_MS: i64 = 60_000;
/// The longest of these times.
const MAX_FILL_AGAIN_MS: i64 = 3_600_000;

/// When rules come next: asking a schedule takes long enough not to be done for each rule each second.
#[derive(Debug, Default)]
struct Coming(HashMap<String, Next>);

#[derive(Clone, Copy, Debug)]
struct Next {
    revision: u64,
    handled_ms: i64,
    /// `None` where the schedule never comes again.
    at_ms: Option<i64>,
}

impl Coming {
    /// Whether a time of the schedule has come that was not seen to.
    fn has_come(&mut self, kept: &Kept, now_ms: i64) -> bool {
        let State { revision, handled_ms, .. } = kept.state;
        let known = self.0.get(&kept.id).copied();
        let known = known.filter(|next| next.revision == revision && next.handled_ms == handled_ms);
        let next = known.unwrap_or_else(|| {
            let next = Next { revision, handled_ms, at_ms: kept.definition.schedule.after(handled_ms) };
            self.0.insert(kept.id.clone(), next);
            next
        });
        next.at_ms.is_some_and(|at| at <= now_ms)
    }
}

/// Rules of which it could not be found out what became of their predictions.
#[derive(Debug, Default)]
struct Failing(HashMap<String, Failure>);

#[derive(Debug)]
struct Failure {
    revision: u64,
    tried_ms: i64,
    wait_ms: i64,
    reason: String,
}

impl Failing {
    /// Whether a rule may be tried now: one that was saved anew need not wait.
    fn is_time(&self, kept: &Kept, now_ms: i64) -> bool {
        let failed = self.0.get(&kept.id).filter(|failed| failed.revision == kept.state.revision);
        // A clock that was put back keeps none waiting.
        failed.is_none_or(|failed| !(0..failed.wait_ms).contains(&(now_ms - failed.tried_ms)))
    }

    /// Notes why a rule failed; returns whether that is new.
    fn note(&mut self, kept: &Kept, now_ms: i64, reason: String) -> bool {
        let revision = kept.state.revision;
        let before = self.0.remove(&kept.id).filter(|failed| failed.revision == revision);
        let wait_ms =
            before.as_ref().map_or(FILL_AGAIN_MS, |failed| (2 * failed.wait_ms).min(MAX_FILL_AGAIN_MS));
        let is_new = before.is_none_or(|failed| failed.reason != reason);
        self.0.insert(kept.id.clone(), Failure { revision, tried_ms: now_ms, wait_ms, reason });
        is_new
    }
}

/// Returns the time of its schedule that a rule is to run for; `has_come` says whether there may be one.
pub(crate) fn due(kept: &Kept, has_come: bool, now_ms: i64) -> Option<i64> {
    if !has_come || !kept.definition.is_scheduled() {
        return None;
    }
    kept.definition.schedule.latest(now_ms).filter(|due| *due > kept.state.handled_ms)
}

fn ticks() -> Interval {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Runs what is due until it is told to stop; what is running then comes to its end.
pub(crate) async fn follow(shared: Arc<Shared>) {
    let mut stopping = shared.stopping.subscribe();
    let mut ticks = ticks();
    let mut jobs: JoinSet<()> = JoinSet::new();
    let mut coming = Coming::default();
    // Rules that wait for a place do not run yet: who asks for a run of one need not wait for that.
    let (queued, places) = (Arc::new(Mutex::new(HashSet::new())), Arc::new(Semaphore::new(TURNS)));
    jobs.spawn(fill_all(Arc::clone(&shared)));
    while !*stopping.borrow_and_update() && !shared.engine.is_stopping() {
        tokio::select! {
            _ = stopping.changed() => break,
            Some(ended) = jobs.join_next(), if !jobs.is_empty() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "a run of an AI rule has failed");
                }
            }
            _ = ticks.tick() => {
                let now_ms = shared.engine.clock().now_ms();
                coming.0.retain(|id, _| shared.store.get(id).is_some());
                for kept in shared.store.all() {
                    if shared.is_running(&kept.id) {
                        continue;
                    }
                    if kept.state.handled_ms > now_ms {
                        set_back(&shared, &kept, now_ms).await;
                        continue;
                    }
                    let has_come = coming.has_come(&kept, now_ms);
                    if due(&kept, has_come, now_ms).is_none() {
                        continue;
                    }
                    // Marked here, so that the next look sees it.
                    let Some(mark) = Mark::new(&queued, &kept.id) else { continue };
                    jobs.spawn(run(Arc::clone(&shared), mark, Arc::clone(&places)));
                }
            }
        }
    }
    while jobs.join_next().await.is_some() {}
}

/// Has a rule run, and filled in, again whose time was seen to by a clock that was ahead.
async fn set_back(shared: &Shared, kept: &Kept, now_ms: i64) {
    match shared.store.note(&kept.id, |kept| kept.state.set_back(now_ms)).await {
        Ok(()) | Err(Error::NotFound(_)) => {}
        Err(error) => {
            tracing::warn!(rule = kept.id, %error, "an AI rule waits for a time that a clock was ahead to")
        }
    }
}

/// The place of a run of a schedule. A run that comes to no end leaves it at once.
pub(crate) struct Place(OwnedSemaphorePermit);

impl Place {
    /// Leaves it to others after a pause, behind a run that took so long. A server that stops does not wait for it.
    pub(crate) fn leave(self, took: Duration) {
        let (Self(permit), pause) = (self, took.saturating_mul(PAUSE).min(LONGEST_PAUSE));
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            drop(permit);
        });
    }
}

/// Runs a rule once there is a place.
async fn run(shared: Arc<Shared>, queued: Mark, places: Arc<Semaphore>) {
    let id = queued.id.clone();
    // Without one the server stops.
    let Ok(place) = shared.one_of(&places).await else { return };
    // What it was queued for may be past: it may have been changed, or run by hand, meanwhile.
    let now_ms = shared.engine.clock().now_ms();
    let due_ms = shared.store.get(&id).and_then(|kept| due(&kept, true, now_ms));
    let Some((due_ms, running)) = due_ms.zip(shared.begin(&id)) else { return };
    drop(queued);
    match shared.run_to_its_end(running, Some((due_ms, Place(place)))).await {
        // What goes wrong stands on the record.
        Ok(_) | Err(Error::NotFound(_)) => {}
        Err(error) => tracing::warn!(rule = id, %error, "a scheduled run of an AI rule failed"),
    }
}

/// Fills in what is over of all rules' predictions until it is told to stop.
async fn fill_all(shared: Arc<Shared>) {
    let mut stopping = shared.stopping.subscribe();
    let mut ticks = ticks();
    let mut failing = Failing::default();
    while !*stopping.borrow_and_update() && !shared.engine.is_stopping() {
        tokio::select! {
            _ = stopping.changed() => break,
            _ = ticks.tick() => {}
        }
        failing.0.retain(|id, _| shared.store.get(id).is_some());
        for listed in shared.store.all() {
            let now_ms = shared.engine.clock().now_ms();
            // Those before it may have taken their time.
            let Some(kept) = shared.store.get(&listed.id) else { continue };
            if kept.state.filled_ms.is_some_and(|filled| filled > now_ms) {
                set_back(&shared, &kept, now_ms).await;
                continue;
            }
            let is_pending = fill::pending(&kept, now_ms).is_some() && failing.is_time(&kept, now_ms);
            if !is_pending || shared.check_stopping().is_err() {
                continue;
            }
            let (filler, id) = (Arc::clone(&shared), kept.id.clone());
            // One that panics keeps no other from being filled in.
            let filled = to_its_end(async move { filler.fill(&id).await });
            let Err(error) = filled.await else {
                failing.0.remove(&kept.id);
                continue;
            };
            if failing.note(&kept, now_ms, error.to_string()) {
                tracing::warn!(rule = kept.id, %error, "what became of predictions was not filled in");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Definition;
    use crate::definition::tests::body;

    #[test]
    fn what_fails_is_tried_ever_more_seldom_and_told_once() {
        let state = State { revision: 1, ..State::default() };
        let mut kept = Kept::new("r".to_owned(), Definition::parse(&body()).unwrap(), state);
        let mut failing = Failing::default();
        let mut now_ms = 1_000_000;
        assert!(failing.is_time(&kept, now_ms));
        let mut waits = Vec::new();
        for time in 0..8 {
            let is_new = failing.note(&kept, now_ms, "gone".to_owned());
            assert_eq!(is_new, time == 0);
            let wait = (1..=60).find(|minute| failing.is_time(&kept, now_ms + minute * 60_000)).unwrap();
            now_ms += wait * 60_000;
            waits.push(wait);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert!(failing.note(&kept, now_ms, "refused".to_owned()));
        assert!(!failing.is_time(&kept, now_ms) && failing.is_time(&kept, now_ms - 1));
        kept.state.revision = 2;
        assert!(failing.is_time(&kept, now_ms) && failing.note(&kept, now_ms, "refused".to_owned()));
        assert!(failing.is_time(&kept, now_ms + 60_000));
    }
}
