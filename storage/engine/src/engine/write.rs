//! The write path: resolve, parse, decide versions, log, apply, fsync, acknowledge.
//!
//! A request is executed in *rounds*: a round is one frame of the log with operations on any number
//! of shards. Where no operation is a partial update, one round does; [`super::batched_write`] has the others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use millrace_catalog::access::{Origin, Principal};
use millrace_catalog::frame::FrameNumber;
use millrace_catalog::operation::{Action, RefreshPolicy, WriteOp, WriteOutcome};
use millrace_runtime::tasks::TaskHandle;
use millrace_runtime::{Error, Instant, Priority, Result};
use tracing::Instrument as _;

use super::Engine;
use super::batched_write::BatchedWrite;
use super::index::{Index, durable_acknowledgement};
use super::maintenance_queue::Item;
use super::target::{AdmittedOperation, RequestSummary, Targets, admit};
use super::visibility_check::VisibilityChecks;
use super::write_batch::PreparedOperation;
use crate::shard::VersionCondition;

/// Operations of a request from which on even a look at each is not for the runtime's own threads: gets
/// would wait for it.
pub(super) const MANY_OPS: usize = 1_000;

impl Engine {
    /// Executes operations in order and acknowledges those that are durable: one result an
    /// operation. Missing indices are created where `action.auto_create_index` allows.
    ///
    /// # Errors
    /// The outer error is for the request as a whole: overload, a full disk, shutdown.
    pub fn write<'a>(
        &'a self,
        principal: &'a Principal,
        ops: Vec<WriteOp>,
        refresh: RefreshPolicy,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Vec<Result<WriteOutcome>>>> {
        self.write_in_task(principal, ops, refresh, timeout, None)
    }

    /// Executes operations as [`Engine::write`] does, unless a task is cancelled before they begin. Operations that have begun are
    /// executed and acknowledged.
    ///
    /// # Errors
    /// As [`Engine::write`]; [`Error::Cancelled`], then nothing was written.
    pub(crate) fn write_in_task<'a>(
        &'a self,
        principal: &'a Principal,
        ops: Vec<WriteOp>,
        refresh: RefreshPolicy,
        timeout: Duration,
        task: Option<&'a TaskHandle>,
    ) -> BoxFuture<'a, Result<Vec<Result<WriteOutcome>>>> {
        let span = tracing::debug_span!("write", operations = ops.len());
        let written = async move {
            let (inner, began) = (&self.inner, Instant::now());
            inner.check_accepting()?;
            let (ops, survey) = if ops.len() > MANY_OPS {
                let look = move || {
                    let survey = RequestSummary::new(&ops);
                    Ok((ops, survey))
                };
                inner.env().compute.run(Priority::Ingest, look).await?
            } else {
                let survey = RequestSummary::new(&ops);
                (ops, survey)
            };
            inner.wal()?.admit(survey.bytes)?;
            let mut reserved = unless_cancelled(task, inner.budget.reserve(survey.bytes, timeout)).await??;
            let targets = self.targets(principal, survey.names).await;
            let (ops, targets, looks) = match principal.privileges().has_rules() {
                true => unless_cancelled(task, self.look(ops, targets)).await??,
                false => (ops, targets, VisibilityChecks::default()),
            };
            let (results, written) = if survey.has_updates {
                check_cancelled(task)?;
                let written = WrittenShards::by(principal.origin());
                let (results, written) =
                    BatchedWrite::new(self, &targets, looks, written, (&mut reserved, timeout))
                        .write(ops)
                        .await?;
                (answered(results), written)
            } else {
                self.write_at_once(ops, targets, looks, principal.origin(), task).await?
            };
            drop(reserved);
            // A caller that waits for the next refresh waits for no work.
            inner.timings.write.record(began.elapsed());
            self.after_write(&written, refresh).await?;
            Ok(results)
        };
        Box::pin(written.instrument(span))
    }

    /// Executes operations without partial updates: one round, all of it on a compute thread.
    async fn write_at_once(
        &self,
        ops: Vec<WriteOp>,
        targets: Targets,
        looks: VisibilityChecks,
        origin: Origin,
        task: Option<&TaskHandle>,
    ) -> Result<(Vec<Result<WriteOutcome>>, WrittenShards)> {
        let inner = Arc::clone(&self.inner);
        let begin = BeginOnce::default();
        let begin_job = begin.clone();
        let job = move || {
            begin_job.claim()?;
            let mut results: Results = ops.iter().map(|_| None).collect();
            let mut round = Vec::with_capacity(ops.len());
            let mut written = WrittenShards::by(origin);
            for (item, mut op) in ops.into_iter().enumerate() {
                match admit(&targets, &mut op).and_then(|admitted| prepare(item, admitted, op, &looks)) {
                    Ok(prepared) => round.push(prepared),
                    Err(error) => results[item] = Some(Err(error)),
                }
            }
            let wait = written.note(&round)?;
            let mut frame = None;
            if !round.is_empty() {
                let (number, outcomes) = inner.execute(round, origin)?;
                frame = number.filter(|_| wait);
                for (item, outcome) in outcomes {
                    results[item] = Some(outcome);
                }
            }
            Ok((frame, answered(results), written))
        };
        let run = self.inner.env().compute.run(Priority::Ingest, job);
        let (frame, results, written) = begin.run_unless_cancelled(task, run).await?;
        self.executed(frame).await?;
        Ok((results, written))
    }

    /// Waits for the frame of a round where acknowledgements are to wait for it.
    pub(super) async fn executed(&self, frame: Option<FrameNumber>) -> Result<()> {
        if let Some(frame) = frame {
            self.inner.wal()?.synced(frame).await?;
        }
        Ok(())
    }

    /// Makes the shards that were written to searchable, as the request asks.
    async fn after_write(&self, written: &WrittenShards, refresh: RefreshPolicy) -> Result<()> {
        for Item { index, shard } in written.shards.values() {
            match refresh {
                RefreshPolicy::None => {}
                RefreshPolicy::Immediate => {
                    let refreshed = self.inner.refresh_shard(shard).await;
                    // What was written is durable: an error now would have the client write it again.
                    if let Err(error) = refreshed {
                        tracing::error!(index = %shard.index, shard = shard.number, %error, "refresh failed");
                    }
                    self.inner.agenda.report(index, shard);
                }
                RefreshPolicy::WaitFor => {
                    let searchable = shard.wait_searchable(shard.next_seq_no());
                    self.inner.agenda.report(index, shard);
                    searchable.await;
                }
            }
        }
        Ok(())
    }
}

/// Waits for work that changes nothing, unless a task is cancelled before it is done.
///
/// # Errors
/// [`Error::Cancelled`].
async fn unless_cancelled<T>(task: Option<&TaskHandle>, work: impl Future<Output = T>) -> Result<T> {
    check_cancelled(task)?;
    match task {
        None => Ok(work.await),
        Some(task) => task.run(work).await.map_err(|_| Error::Cancelled),
    }
}

fn check_cancelled(task: Option<&TaskHandle>) -> Result<()> {
    task.map_or(Ok(()), TaskHandle::check).map_err(|_| Error::Cancelled)
}

/// Decides between a queued job and the cancellation of its task: the first to claim it wins.
#[derive(Clone, Debug, Default)]
struct BeginOnce(Arc<AtomicBool>);

impl BeginOnce {
    /// Claims the job for its execution, or for its cancellation.
    ///
    /// # Errors
    /// [`Error::Cancelled`] where the other has claimed it.
    fn claim(&self) -> Result<()> {
        match self.0.swap(true, Ordering::Relaxed) {
            false => Ok(()),
            true => Err(Error::Cancelled),
        }
    }

    /// Waits for a job that begins with [`BeginOnce::claim`]. A cancellation of the task ends the wait while the job is queued.
    ///
    /// # Errors
    /// As the job's; [`Error::Cancelled`].
    async fn run_unless_cancelled<T>(
        &self,
        task: Option<&TaskHandle>,
        job: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let Some(task) = task else { return job.await };
        let mut job = std::pin::pin!(job);
        tokio::select! {
            biased;
            _ = task.cancelled() => {}
            done = &mut job => return done,
        }
        match self.claim() {
            Ok(()) => Err(Error::Cancelled),
            Err(_) => job.await,
        }
    }
}

/// The shards that a request has written to, and whose writes these are.
pub(super) struct WrittenShards {
    shards: BTreeMap<(uuid::Uuid, u32), Item>,
    pub(super) origin: Origin,
}

impl WrittenShards {
    fn by(origin: Origin) -> Self {
        Self { shards: BTreeMap::new(), origin }
    }

    /// Takes note of a round; returns whether its acknowledgement waits for the fsync.
    pub(super) fn note(&mut self, round: &[PreparedOperation]) -> Result<bool> {
        let mut wait = false;
        let mut last: Option<(&Arc<Index>, u32)> = None;
        for PreparedOperation { index, shard: number, .. } in round {
            if last
                .replace((index, *number))
                .is_some_and(|last| Arc::ptr_eq(last.0, index) && last.1 == *number)
            {
                continue;
            }
            let shard = index.shard(*number)?;
            if let std::collections::btree_map::Entry::Vacant(place) =
                self.shards.entry((shard.index, shard.number))
            {
                place.insert(Item { index: Arc::clone(index), shard: Arc::clone(shard) });
            }
            wait = wait || durable_acknowledgement(&index.meta());
        }
        Ok(wait)
    }
}

/// Answers every operation.
fn answered(results: Results) -> Vec<Result<WriteOutcome>> {
    let lost = || Err(Error::Internal("operation was lost".to_owned()));
    results.into_iter().map(|result| result.unwrap_or_else(lost)).collect()
}

/// One result an operation, `None` until it is known.
pub(super) type Results = Vec<Option<Result<WriteOutcome>>>;

/// Makes an operation ready that is no partial update.
///
/// # Errors
/// It could not be looked up which document the writer sees.
pub(super) fn prepare(
    item: usize,
    admitted: AdmittedOperation,
    op: WriteOp,
    looks: &VisibilityChecks,
) -> Result<PreparedOperation> {
    let condition = condition_of(&op);
    let source = match op.action {
        Action::Index(source) | Action::Create(source) => Some(source),
        Action::Delete | Action::Update(_) => None,
    };
    prepare_with(item, admitted, (op.id, op.routing, source), condition, looks)
}

/// Makes an operation ready that stays with its caller, who may try it again.
///
/// # Errors
/// As [`prepare`].
pub(super) fn prepare_shared(
    item: usize,
    admitted: AdmittedOperation,
    op: &WriteOp,
    routing: Option<String>,
    looks: &VisibilityChecks,
) -> Result<PreparedOperation> {
    let source = match &op.action {
        Action::Index(source) | Action::Create(source) => Some(source.clone()),
        Action::Delete | Action::Update(_) => None,
    };
    prepare_with(item, admitted, (op.id.clone(), routing, source), condition_of(op), looks)
}

/// Returns the condition of an operation, without the document that its writer sees.
fn condition_of(op: &WriteOp) -> VersionCondition {
    VersionCondition {
        delete: matches!(op.action, Action::Delete | Action::Update(_)),
        // A generated id cannot exist.
        create: matches!(op.action, Action::Create(_)) && op.id.is_some(),
        version: op.version,
        if_seq_no: op.if_seq_no,
        if_primary_term: op.if_primary_term,
        seen: None,
    }
}

fn prepare_with(
    item: usize,
    AdmittedOperation { index, limits }: AdmittedOperation,
    (id, routing, source): (Option<String>, Option<String>, Option<Bytes>),
    condition: VersionCondition,
    looks: &VisibilityChecks,
) -> Result<PreparedOperation> {
    let shard = index.shard_for(id.as_deref(), routing.as_deref());
    let seen = looks.of(&index, shard, id.as_deref())?;
    Ok(PreparedOperation {
        item,
        shard,
        wanted: VersionCondition { seen, ..condition },
        index,
        id,
        routing,
        source,
        limits,
        returns_source: false,
    })
}

#[cfg(test)]
mod tests {
    use millrace_runtime::SystemClock;
    use millrace_runtime::tasks::{TaskRegistry, TaskSpec};
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_cancellation_ends_the_wait_for_a_queued_job_and_no_job_that_runs() {
        let tasks = TaskRegistry::new(Arc::new(SystemClock));
        let queued = (tasks.start(TaskSpec::cancellable("queued")), BeginOnce::default());
        tasks.cancel(queued.0.id(), "test");
        let (_never, wait) = oneshot::channel::<()>();
        let job = async { wait.await.map_err(|_| Error::Cancelled) };
        let ended = queued.1.run_unless_cancelled(Some(&queued.0.handle()), job).await;
        assert!(matches!(ended, Err(Error::Cancelled)));
        // The job finds that out once it has a thread.
        assert!(matches!(queued.1.claim(), Err(Error::Cancelled)));

        let running = (tasks.start(TaskSpec::cancellable("running")), BeginOnce::default());
        running.1.claim().unwrap();
        tasks.cancel(running.0.id(), "test");
        let (done, wait) = oneshot::channel();
        let ended = async {
            let job = async { wait.await.map_err(|_| Error::Cancelled) };
            running.1.run_unless_cancelled(Some(&running.0.handle()), job).await
        };
        let finish = async { done.send(7).unwrap() };
        let (ended, ()) = tokio::join!(ended, finish);
        assert_eq!(ended.unwrap(), 7);
    }
}
