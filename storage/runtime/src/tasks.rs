//! Tasks: the work that a node does now, so that it can be listed and cancelled.
//!
//! A task is one piece of work with a beginning and an end: a request, a statement, a merge that a caller forces, a run of a rule.
//! - [`TaskRegistry`]: the running tasks of a node
//! - [`TaskSpec`]: the description of a task that begins
//! - [`TaskGuard`]: registers a task for as long as it lives
//! - [`TaskHandle`]: a task for its own work and for callers that cancel it or wait for its end
//! - [`TaskSnapshot`]: a task as listings show it
//!
//! A cancelled task ends in one of two ways. Work that may be dropped anywhere runs within [`TaskHandle::run`], which drops it. Work
//! that changes something asks [`TaskHandle::check`] between its steps. A task whose work does neither is not cancellable, and the
//! registry refuses to cancel it. The children of a cancelled task are cancelled with it.
//!
//! The registry has no bound of its own: connections, statements and rules have theirs, and each has one task.

mod description;

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

pub use self::description::TaskDescription;
use crate::{Instant, SharedClock};

/// Maps that tasks are spread over, so that requests on several cores rarely wait for one another.
const STRIPES: usize = 16;
/// Bits of a task's number below the second of the registry's start. The whole number is exact as a JSON number of any client.
const NUMBER_BITS: u32 = 20;

tokio::task_local! {
    /// Number of the task that the running future belongs to.
    static CURRENT: u64;
}

/// Returns the number of the task whose future calls this, within [`TaskHandle::run`] or [`TaskHandle::scope`].
pub fn current_task() -> Option<u64> {
    CURRENT.try_with(|id| *id).ok()
}

/// Does work of a task, if there is one: jobs of compute threads that it queues belong to the task. It is for work that goes on in a
/// future of its own.
pub async fn in_task<T>(task: Option<u64>, work: impl Future<Output = T>) -> T {
    match task {
        Some(id) => CURRENT.scope(id, work).await,
        None => work.await,
    }
}

/// Work was cancelled before its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("task cancelled [{reason}]")]
pub struct TaskCancelled {
    /// Reason that the canceller gave.
    pub reason: Arc<str>,
}

/// The description of a task that begins.
#[derive(Clone, Debug)]
pub struct TaskSpec {
    /// Name of the action, such as `indices:data/read/search`.
    pub action: &'static str,
    /// Subject of the work.
    pub description: TaskDescription,
    /// Number of the task that this one is a part of.
    pub parent: Option<u64>,
    /// The header `X-Opaque-Id` of the request.
    pub opaque_id: Option<Arc<str>>,
    /// `true` if the work ends when it is cancelled.
    pub is_cancellable: bool,
}

impl TaskSpec {
    /// Makes the description of a task that cannot be cancelled; it is a part of the task that the caller's future belongs to.
    pub fn new(action: &'static str) -> Self {
        let description = TaskDescription::default();
        Self { action, description, parent: current_task(), opaque_id: None, is_cancellable: false }
    }

    /// Makes the description of a task that ends when it is cancelled.
    pub fn cancellable(action: &'static str) -> Self {
        Self { is_cancellable: true, ..Self::new(action) }
    }

    /// Adds the subject of the work.
    #[must_use]
    pub fn with_description(self, description: TaskDescription) -> Self {
        Self { description, ..self }
    }
}

/// State of a task that its handles share.
#[derive(Debug)]
struct TaskState {
    id: u64,
    spec: TaskSpec,
    started_ms: i64,
    started: Instant,
    is_cancellable: AtomicBool,
    /// `true` once the work checks for its cancellation.
    is_checking: AtomicBool,
    /// JSON text that says how far the work has come.
    progress: Mutex<Option<Arc<str>>>,
    signal: watch::Sender<Signal>,
}

/// Turning points of a task.
#[derive(Debug, Default)]
struct Signal {
    /// Reason of the cancellation.
    cancelled: Option<Arc<str>>,
    has_ended: bool,
}

/// A task as a listing shows it.
#[derive(Clone, Debug)]
pub struct TaskSnapshot {
    /// Number of the task on its node.
    pub id: u64,
    /// Name of the action.
    pub action: &'static str,
    /// Subject of the work.
    pub description: TaskDescription,
    /// Number of the task that this one is a part of.
    pub parent: Option<u64>,
    /// The header `X-Opaque-Id` of the request.
    pub opaque_id: Option<Arc<str>>,
    /// Start, in milliseconds since the epoch.
    pub started_ms: i64,
    /// Time since the start.
    pub running: Duration,
    /// `true` if the work ends when it is cancelled.
    pub is_cancellable: bool,
    /// `true` if it was cancelled and has not ended yet.
    pub is_cancelled: bool,
    /// JSON text that says how far the work has come.
    pub progress: Option<Arc<str>>,
}

/// A task, for its own work and for callers that cancel it or wait for its end. Clones are the same task.
#[derive(Clone, Debug)]
pub struct TaskHandle(Arc<TaskState>);

/// Outcome of a cancellation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelOutcome {
    /// The task is told to end; its listing shows it as cancelled until it has.
    Cancelled,
    /// The work of the task does not end early.
    NotCancellable,
    /// No task of that number runs.
    NotFound,
}

impl TaskHandle {
    /// Returns the number of the task.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// Returns the description that the task began with.
    pub fn spec(&self) -> &TaskSpec {
        &self.0.spec
    }

    /// Says that the work checks for its cancellation from now on.
    pub fn set_cancellable(&self) {
        self.0.is_checking.store(true, Ordering::Relaxed);
        self.0.is_cancellable.store(true, Ordering::Relaxed);
    }

    /// Says how far the work has come; the text is JSON.
    pub fn set_progress(&self, json: impl Into<Arc<str>>) {
        *self.0.progress.lock() = Some(json.into());
    }

    /// Refuses to go on once the task is cancelled.
    ///
    /// # Errors
    /// [`TaskCancelled`].
    pub fn check(&self) -> Result<(), TaskCancelled> {
        match &self.0.signal.borrow().cancelled {
            None => Ok(()),
            Some(reason) => Err(TaskCancelled { reason: Arc::clone(reason) }),
        }
    }

    /// Waits until the task is cancelled. Cancellation safe.
    pub async fn cancelled(&self) -> TaskCancelled {
        self.wait_for(|signal| signal.cancelled.is_some()).await;
        let reason = self.0.signal.borrow().cancelled.clone();
        TaskCancelled { reason: reason.unwrap_or_else(|| Arc::from("ended")) }
    }

    /// Waits until the task has ended. Cancellation safe.
    pub async fn ended(&self) {
        self.wait_for(|signal| signal.has_ended).await;
    }

    async fn wait_for(&self, condition: impl FnMut(&Signal) -> bool) {
        // The sender lives in the state that this handle holds.
        let _ = self.0.signal.subscribe().wait_for(condition).await;
    }

    /// Does work of the task, and drops it where it stands once the task is cancelled.
    ///
    /// # Errors
    /// [`TaskCancelled`].
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T, TaskCancelled> {
        tokio::select! {
            biased;
            done = self.scope(work) => Ok(done),
            cancelled = self.cancelled() => Err(cancelled),
        }
    }

    /// Does work of the task as [`TaskHandle::run`] does, but waits for work that checks for its cancellation by itself
    /// ([`TaskHandle::set_cancellable`]): that ends between two steps, and says how far it came.
    ///
    /// # Errors
    /// [`TaskCancelled`].
    pub async fn run_or_wait<T>(&self, work: impl Future<Output = T>) -> Result<T, TaskCancelled> {
        let mut work = std::pin::pin!(self.scope(work));
        tokio::select! {
            biased;
            done = &mut work => return Ok(done),
            cancelled = self.cancelled() => if !self.0.is_checking.load(Ordering::Relaxed) {
                return Err(cancelled);
            },
        }
        Ok(work.await)
    }

    /// Does work of the task: jobs of compute threads that it queues belong to the task.
    pub async fn scope<T>(&self, work: impl Future<Output = T>) -> T {
        CURRENT.scope(self.0.id, work).await
    }

    /// Describes the task as it is now.
    pub fn snapshot(&self) -> TaskSnapshot {
        let state = &*self.0;
        TaskSnapshot {
            id: state.id,
            action: state.spec.action,
            description: state.spec.description.clone(),
            parent: state.spec.parent,
            opaque_id: state.spec.opaque_id.clone(),
            started_ms: state.started_ms,
            running: state.started.elapsed(),
            is_cancellable: state.is_cancellable.load(Ordering::Relaxed),
            is_cancelled: state.signal.borrow().cancelled.is_some(),
            progress: state.progress.lock().clone(),
        }
    }
}

/// Registers a task for as long as it lives.
#[derive(Debug)]
#[must_use = "dropping it ends the task"]
pub struct TaskGuard {
    registry: TaskRegistry,
    task: TaskHandle,
}

impl TaskGuard {
    /// Returns a handle of the task, which may outlive it.
    pub fn handle(&self) -> TaskHandle {
        self.task.clone()
    }
}

impl Deref for TaskGuard {
    type Target = TaskHandle;

    fn deref(&self) -> &TaskHandle {
        &self.task
    }
}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        self.registry.stripe(self.task.id()).lock().remove(&self.task.id());
        self.task.0.signal.send_modify(|signal| signal.has_ended = true);
    }
}

/// The running tasks of a node. Cheap to clone: clones are the same registry.
#[derive(Clone, Debug)]
pub struct TaskRegistry(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    clock: SharedClock,
    /// Number before that of the first task.
    base: u64,
    started: AtomicU64,
    cancelled: AtomicU64,
    stripes: [Mutex<HashMap<u64, TaskHandle>>; STRIPES],
}

impl TaskRegistry {
    /// Makes a registry without tasks. Starts of tasks are read from the clock.
    pub fn new(clock: SharedClock) -> Self {
        let (started, cancelled) = Default::default();
        // A number names a task's stored result over restarts, so numbers of another start are others.
        let seconds = u64::try_from(clock.now_ms() / 1_000).unwrap_or(0);
        let base = seconds << NUMBER_BITS;
        Self(Arc::new(Inner { clock, base, started, cancelled, stripes: Default::default() }))
    }

    fn stripe(&self, id: u64) -> &Mutex<HashMap<u64, TaskHandle>> {
        &self.0.stripes[(id % STRIPES as u64) as usize]
    }

    /// Begins a task.
    pub fn start(&self, spec: TaskSpec) -> TaskGuard {
        // Clients take 0 for no task.
        let id = self.0.base + self.0.started.fetch_add(1, Ordering::Relaxed) + 1;
        let task = TaskHandle(Arc::new(TaskState {
            id,
            is_cancellable: AtomicBool::new(spec.is_cancellable),
            is_checking: AtomicBool::new(false),
            spec,
            started_ms: self.0.clock.now_ms(),
            started: Instant::now(),
            progress: Mutex::default(),
            signal: watch::Sender::default(),
        }));
        self.stripe(id).lock().insert(id, task.clone());
        TaskGuard { registry: self.clone(), task }
    }

    /// Returns a running task.
    pub fn get(&self, id: u64) -> Option<TaskHandle> {
        self.stripe(id).lock().get(&id).cloned()
    }

    /// Lists the running tasks in the order of their numbers.
    pub fn list(&self) -> Vec<TaskSnapshot> {
        let mut tasks = self.handles();
        tasks.sort_unstable_by_key(TaskHandle::id);
        tasks.iter().map(TaskHandle::snapshot).collect()
    }

    fn handles(&self) -> Vec<TaskHandle> {
        self.0.stripes.iter().flat_map(|stripe| stripe.lock().values().cloned().collect::<Vec<_>>()).collect()
    }

    /// Cancels a task and its children.
    pub fn cancel(&self, id: u64, reason: &str) -> CancelOutcome {
        let reason = Arc::from(reason);
        let outcome = self.cancel_one(id, &reason);
        if outcome == CancelOutcome::Cancelled {
            self.end_children(vec![id], &reason);
        }
        outcome
    }

    /// Cancels tasks and their children: an outcome for each, in order.
    pub fn cancel_all(&self, ids: &[u64], reason: &str) -> Vec<CancelOutcome> {
        let reason = Arc::from(reason);
        let outcomes: Vec<_> = ids.iter().map(|id| self.cancel_one(*id, &reason)).collect();
        let cancelled =
            ids.iter().zip(&outcomes).filter(|(_, outcome)| **outcome == CancelOutcome::Cancelled);
        self.end_children(cancelled.map(|(id, _)| *id).collect(), &reason);
        outcomes
    }

    fn cancel_one(&self, id: u64, reason: &Arc<str>) -> CancelOutcome {
        let Some(task) = self.get(id) else { return CancelOutcome::NotFound };
        if !task.0.is_cancellable.load(Ordering::Relaxed) {
            return CancelOutcome::NotCancellable;
        }
        self.end(&task, reason);
        CancelOutcome::Cancelled
    }

    /// Cancels all descendants of tasks.
    fn end_children(&self, mut parents: Vec<u64>, reason: &Arc<str>) {
        if parents.is_empty() {
            return;
        }
        let mut children: HashMap<u64, Vec<TaskHandle>> = HashMap::new();
        for task in self.handles() {
            if let Some(parent) = task.0.spec.parent {
                children.entry(parent).or_default().push(task);
            }
        }
        while let Some(parent) = parents.pop() {
            for child in children.remove(&parent).into_iter().flatten() {
                self.end(&child, reason);
                parents.push(child.id());
            }
        }
    }

    fn end(&self, task: &TaskHandle, reason: &Arc<str>) {
        let is_first = task.0.signal.send_if_modified(|signal| {
            let is_first = signal.cancelled.is_none();
            if is_first {
                signal.cancelled = Some(Arc::clone(reason));
            }
            is_first
        });
        self.0.cancelled.fetch_add(u64::from(is_first), Ordering::Relaxed);
    }

    /// Counts the running tasks.
    pub fn len(&self) -> usize {
        self.0.stripes.iter().map(|stripe| stripe.lock().len()).sum()
    }

    /// Returns whether no task runs.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Counts the tasks that have begun, and those that were cancelled, since the start.
    pub fn totals(&self) -> (u64, u64) {
        (self.0.started.load(Ordering::Relaxed), self.0.cancelled.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests;
