//! In-flight runs of AI rules: a run is in flight from the moment it is scheduled until its outcome is recorded and its
//! predictions are filled in.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use millrace_runtime::Error as StorageError;
use millrace_runtime::Instant;
use millrace_runtime::tasks::{TaskDescription, TaskSpec};
use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::run::{self, RunReport};
use crate::run_record::RunOutcome;
use crate::scheduler::RunSlotGuard;
use crate::store::StoredRule;
use crate::{IntelligenceContext, detectors, fill, results, spawn_uncancelled, time};

/// After how long it is tried again to note what came of a run.
const NOTE_AGAIN: Duration = Duration::from_secs(2);

/// Held by a run until it is over, with what is filled in and noted behind it.
type RunDrainGuard = Arc<tokio::sync::OwnedRwLockReadGuard<()>>;

/// RAII guard: keeps a rule's id in the in-flight set.
#[derive(Debug)]
pub(crate) struct InFlightGuard {
    of: Arc<Mutex<HashSet<String>>>,
    pub(crate) id: String,
}

impl InFlightGuard {
    /// Puts an id into a set; `None` where it is in there.
    pub(crate) fn new(of: &Arc<Mutex<HashSet<String>>>, id: &str) -> Option<Self> {
        let marked = of.lock().insert(id.to_owned());
        marked.then(|| Self { of: Arc::clone(of), id: id.to_owned() })
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.of.lock().remove(&self.id);
    }
}

impl IntelligenceContext {
    pub(crate) fn is_running(&self, id: &str) -> bool {
        self.running.lock().contains(id)
    }

    /// Marks a rule as running.
    pub(crate) fn begin(&self, id: &str) -> Option<InFlightGuard> {
        InFlightGuard::new(&self.running, id)
    }

    /// Runs a rule to its end, with or without a waiting caller: as at a time of its schedule, in a place of that, or now. One
    /// that panics is noted as one that failed.
    pub(crate) async fn run_uncancelled(
        self: Arc<Self>,
        running: InFlightGuard,
        due: Option<(i64, RunSlotGuard)>,
    ) -> Result<RunReport> {
        spawn_uncancelled(async move {
            let in_flight = Arc::new(Arc::clone(&self.in_flight).read_owned().await);
            let (id, shared, with) = (running.id.clone(), Arc::clone(&self), Arc::clone(&in_flight));
            let (due_ms, place) = due.unzip();
            let began = Instant::now();
            match tokio::spawn(async move { shared.run(running, due_ms, place, with).await }).await {
                Ok(done) => done,
                Err(error) => {
                    let outcome = Err(StorageError::Internal(format!("the run has failed: {error}")).into());
                    let (done, seconds) = (RunReport::default(), began.elapsed().as_secs_f64());
                    let ended = RunOutcome { done, outcome, seconds, revision: None, handled_ms: due_ms };
                    let Err(error) = self.note_end(&id, &ended).await else {
                        return ended.outcome.map(|()| ended.done);
                    };
                    if let Some(running) = self.begin(&id) {
                        tokio::spawn(Arc::clone(&self).note_later(running, ended, in_flight));
                    }
                    Err(error)
                }
            }
        })
        .await
    }

    /// Runs a rule, as at a time of its schedule or now, and keeps the books.
    async fn run(
        self: &Arc<Self>,
        running: InFlightGuard,
        due_ms: Option<i64>,
        place: Option<RunSlotGuard>,
        in_flight: RunDrainGuard,
    ) -> Result<RunReport> {
        let id = running.id.clone();
        let id = id.as_str();
        let turn = self.one_of(&self.turns).await?;
        if let Some(detector) = self.store.detector(id) {
            let began = Instant::now();
            let outcome = detectors::run(self, &detector, due_ms).await;
            drop((turn, running, in_flight));
            if let Some(place) = place {
                place.leave(began.elapsed());
            }
            return outcome;
        }
        let (began, began_ms) = (Instant::now(), self.engine.clock().now_ms());
        let starts = |kept: &mut StoredRule| {
            let ran = &mut kept.ran;
            ran.pid = std::process::id();
            ran.last_execute_mili = Some(began_ms);
            ran.last_execute = Some(time::minute(began_ms));
            ran.last_execute_timestamp = Some(time::minute(began_ms));
            kept.state.tries += u32::from(due_ms.is_some());
            kept.state.set_back(began_ms);
        };
        self.store.note(id, starts).await?;
        let kept = self.store.get(id).ok_or_else(|| Error::NotFound(id.to_owned()))?;
        let mut done = RunReport::default();
        let description = TaskDescription::text(&format!("rule[{}], id[{id}]", kept.definition.name));
        let spec = TaskSpec::cancellable("cluster:console/intelligence/run").with_description(description);
        let task = self.engine.tasks().start(spec);
        let outcome = run::run(self, &kept, &task, due_ms.unwrap_or(began_ms), &mut done);
        let outcome = task.scope(outcome).await;
        drop(task);
        // What is noted as written is to be found when what became of it is looked for.
        if done.predictions > 0
            && let Err(error) = results::refresh(&self.engine).await
        {
            tracing::warn!(rule = id, %error, "predictions are not visible yet");
        }
        let seconds = began.elapsed().as_secs_f64();
        let stopped = outcome.is_err() && self.check_stopping().is_err();
        let (revision, handled_ms) = (Some(kept.state.revision), due_ms.filter(|_| !stopped));
        let ended = RunOutcome { done, outcome, seconds, revision, handled_ms };
        if let Err(error) = self.note_end(id, &ended).await {
            tokio::spawn(Arc::clone(self).note_later(running, ended, in_flight));
            return Err(error);
        }
        let RunOutcome { done, outcome, .. } = ended;
        // It has ended: others need not wait while it is filled in.
        drop((turn, running));
        if let Some(place) = place {
            place.leave(began.elapsed());
        }
        // A rule that runs again at once has no other time for it.
        if !stopped
            && done.predictions > 0
            && let Err(error) = self.fill(id).await
        {
            tracing::warn!(rule = id, %error, "what became of predictions was not filled in");
        }
        outcome.map(|()| done)
    }

    /// Notes what came of a run. Its rule may have been deleted meanwhile, or changed, so that models of values that it has no more are
    /// removed: one may have been written since.
    async fn note_end(&self, id: &str, ended: &RunOutcome) -> Result<()> {
        match self.store.note(id, |now| ended.note(now)).await {
            Ok(()) => {
                let is_other =
                    |now: &Arc<StoredRule>| ended.revision.is_some_and(|ran| now.state.revision != ran);
                self.artefacts.keep_of(self.store.get(id).filter(is_other)).await;
            }
            Err(Error::NotFound(_)) if self.store.detector(id).is_some() => {
                detectors::note_failure(self, id, &ended.outcome).await?;
            }
            Err(Error::NotFound(_)) => self.artefacts.remove(id).await,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Notes what came of a run once that can be written. Until then its rule counts as running, or the run would be repeated.
    /// A server that stops waits for the last try.
    async fn note_later(
        self: Arc<Self>,
        running: InFlightGuard,
        ended: RunOutcome,
        _in_flight: RunDrainGuard,
    ) {
        let (id, mut stopping) = (&running.id, self.stopping.subscribe());
        loop {
            tokio::select! {
                _ = stopping.wait_for(|stopping| *stopping) => {}
                () = tokio::time::sleep(NOTE_AGAIN) => {}
            }
            let is_last = self.check_stopping().is_err();
            match self.note_end(id, &ended).await {
                Ok(()) => return,
                Err(error) if is_last => {
                    tracing::warn!(rule = id, %error, "what came of a run of an AI rule is not noted");
                    return;
                }
                Err(error) => tracing::debug!(rule = id, %error, "what came of a run is not noted yet"),
            }
        }
    }

    /// Fills in what became of a rule's predictions, unless somebody does already. While it is at work there is nothing to do: not all that it
    /// writes is there to be found, and it is filled when the run has ended. Returns whether it was looked.
    pub(crate) async fn fill(&self, id: &str) -> Result<bool> {
        let Some(filling) = self.fillings.begin(id) else { return Ok(false) };
        let at_work = |kept: &Arc<StoredRule>| kept.ran.pid != 0 && self.is_running(id);
        let Some(kept) = self.store.get(id).filter(|kept| !at_work(kept)) else { return Ok(false) };
        let to = fill::fill(self, &kept, self.engine.clock().now_ms()).await?;
        let Some(to) = to else { return Ok(true) };
        let filled = |now: &mut StoredRule| {
            // Predictions of a rule that was changed meanwhile may be others, and those of runs that began since were perhaps not seen.
            if now.state.revision == kept.state.revision {
                now.state.filled_ms = Some(filling.reached(to));
            }
        };
        self.store.note(id, filled).await.map(|()| true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_of_one_rule_and_there_once() {
        let set = Arc::default();
        let mark = InFlightGuard::new(&set, "a");
        assert!(mark.is_some() && InFlightGuard::new(&set, "a").is_none());
        let other = InFlightGuard::new(&set, "b");
        drop(mark);
        assert!(InFlightGuard::new(&set, "a").is_some() && other.is_some());
        assert!(InFlightGuard::new(&set, "b").is_none());
    }
}
