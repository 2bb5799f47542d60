//! When rules run: each by its schedule, at most two at a time, and never one twice at once.
//!
//! [`decide`] says what is due; the task around it looks once a second. A rule that was due while the server was down, or while it ran still, runs
//! once, for the latest of those times. A time counts as seen to when its run has ended, so that one that the server did
//! not live to see the end of is made up for.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use crate::error::Error;
use crate::fill;
use crate::store::{Kept, State};
use crate::{Running, Shared};

/// How often it is looked what is due.
const TICK: Duration = Duration::from_secs(1);
/// How often a rule's predictions are looked at for what became of them.
const FILL_EVERY_MS: i64 = 60_000;

/// What is to be done with a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Job {
    /// Run it as at this time of its schedule.
    Run(i64),
    /// Fill in what became of its predictions.
    Fill,
}

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

/// Decides what is due of a rule that is not at work; `has_come` says whether a time of its schedule may have come, `filled_ms` when its
/// predictions were looked at last.
pub(crate) fn decide(kept: &Kept, has_come: bool, filled_ms: Option<i64>, now_ms: i64) -> Option<Job> {
    if has_come
        && kept.definition.is_scheduled()
        && let Some(due) = kept.definition.schedule.latest(now_ms)
        && due > kept.state.handled_ms
    {
        return Some(Job::Run(due));
    }
    let is_time = filled_ms.is_none_or(|filled| now_ms - filled >= FILL_EVERY_MS || filled > now_ms);
    (is_time && fill::pending(kept, now_ms).is_some()).then_some(Job::Fill)
}

/// Runs what is due until it is told to stop; what is running then comes to its end.
pub(crate) async fn follow(shared: Arc<Shared>) {
    let mut stopping = shared.stopping.subscribe();
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut jobs: JoinSet<()> = JoinSet::new();
    let mut filled: HashMap<String, i64> = HashMap::new();
    let mut coming = Coming::default();
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
                filled.retain(|id, _| shared.store.get(id).is_some());
                coming.0.retain(|id, _| shared.store.get(id).is_some());
                for kept in shared.store.all() {
                    if shared.is_running(&kept.id) {
                        continue;
                    }
                    let has_come = coming.has_come(&kept, now_ms);
                    let filled_ms = filled.get(&kept.id).copied();
                    let Some(job) = decide(&kept, has_come, filled_ms, now_ms) else { continue };
                    if job == Job::Fill {
                        filled.insert(kept.id.clone(), now_ms);
                    }
                    // Marked here, so that the next look sees it.
                    let Some(running) = shared.begin(&kept.id) else { continue };
                    let shared = Arc::clone(&shared);
                    jobs.spawn(async move { work(&shared, running, &kept, job).await });
                }
            }
        }
    }
    while jobs.join_next().await.is_some() {}
}

async fn work(shared: &Arc<Shared>, running: Running, kept: &Kept, job: Job) {
    match job {
        // What goes wrong stands on the record.
        Job::Run(due) => match Arc::clone(shared).run_to_its_end(running, Some(due)).await {
            Ok(_) | Err(Error::NotFound(_)) => {}
            Err(error) => tracing::warn!(rule = kept.id, %error, "a scheduled run of an AI rule failed"),
        },
        Job::Fill => {
            if let Err(error) = shared.fill(running, kept).await {
                tracing::warn!(rule = kept.id, %error, "what became of predictions was not filled in");
            }
        }
    }
}
