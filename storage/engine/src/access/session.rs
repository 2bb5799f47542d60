//! The store as one principal sees it that does one action.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use millrace_catalog::access::{Action, Guard, IndexAccess, Principal, Refusals, check_mapping, refusal};
use millrace_catalog::metadata::{IndicesOptions, Metadata, MetadataChange, ResizeIndex, Uuid};
use millrace_runtime::tasks::{TaskCancelled, TaskHandle, TaskRegistry};
use millrace_runtime::{Compute, Error, HistogramSnapshot, Instant, Result, SharedClock};
use millrace_segment::CacheFigures;
use millrace_segment::objects::{ObjectRequestKind, ObjectRequestOutcome};
use millrace_session::SearchSession;
use serde_json::Value;

use crate::{Engine, EngineTimings, Index, NodeFault, RefreshPolicy, StoredDoc, WriteOp, WriteOutcome};

/// Sender of a session's work.
pub trait Sender: Send + Sync {
    /// Finds out anew who it is; nobody where its credentials are not good any more.
    ///
    /// # Errors
    /// [`Error::Rejected`] where there is no telling now.
    fn again(&self) -> BoxFuture<'_, Result<Option<Principal>>>;
}

/// A principal at work: what a request's handler gets of the store. Cheap to clone.
///
/// Everything that it answers is what the principal may see by its action: metadata lists no other indices, wildcards and
/// aliases stand for no others, and a name that is not allowed is refused, whether there is such an index or not.
#[derive(Clone)]
pub struct Session {
    pub(super) engine: Arc<Engine>,
    principal: Principal,
    action: Action,
    refusals: Refusals,
    sender: Option<Arc<dyn Sender>>,
    task: Option<TaskHandle>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { principal, action, .. } = self;
        f.debug_struct("Session").field("caller", principal.caller()).field("action", action).finish()
    }
}

impl Session {
    /// Begins an action.
    ///
    /// # Errors
    /// [`Error::Unauthorized`] where it is not allowed on anything.
    pub fn new(engine: &Arc<Engine>, principal: Principal, action: Action) -> Result<Self> {
        if !principal.privileges().allows(action) {
            let caller = principal.caller().to_string();
            return Err(Error::Unauthorized { action: action.name(), caller, index: None });
        }
        Ok(Self {
            engine: Arc::clone(engine),
            principal,
            action,
            refusals: Refusals::default(),
            sender: None,
            task: None,
        })
    }

    /// Makes the session of the server's own work: it sees everything.
    pub fn system(engine: &Arc<Engine>) -> Self {
        let (principal, action) = (Principal::system(), Action::Search);
        let (refusals, sender, task) = (Refusals::default(), None, None);
        Self { engine: Arc::clone(engine), principal, action, refusals, sender, task }
    }

    /// Returns the session of another action of the same principal.
    ///
    /// # Errors
    /// As [`Session::new`].
    pub fn doing(&self, action: Action) -> Result<Self> {
        if action == self.action {
            return Ok(self.clone());
        }
        let other = Self::new(&self.engine, self.principal.clone(), action)?;
        Ok(self.carry_over(other))
    }

    /// Gives another session of the same request what belongs to the request.
    fn carry_over(&self, other: Self) -> Self {
        let Self { refusals, sender, task, .. } = self.clone();
        Self { refusals, sender, task, ..other }
    }

    /// Returns the session of the server's own work in the same request: for sums over all indices that name none.
    #[must_use]
    pub fn of_server(&self) -> Self {
        self.carry_over(Self::system(&self.engine))
    }

    /// Has the session's work belong to a task.
    #[must_use]
    pub fn in_task(self, task: TaskHandle) -> Self {
        Self { task: Some(task), ..self }
    }

    /// Returns the task that the work belongs to; `None` for work that is no task of its own.
    pub fn task(&self) -> Option<&TaskHandle> {
        self.task.as_ref()
    }

    /// Refuses to go on once the task of the work is cancelled.
    ///
    /// # Errors
    /// [`TaskCancelled`].
    pub fn check_cancelled(&self) -> Result<(), TaskCancelled> {
        self.task.as_ref().map_or(Ok(()), TaskHandle::check)
    }

    /// Returns the tasks that run on this node.
    pub fn tasks(&self) -> &TaskRegistry {
        self.engine.tasks()
    }

    /// Says who sends what is done; of use for actions that last ([`Action::lasts`]).
    #[must_use]
    pub fn sent_by(self, sender: Arc<dyn Sender>) -> Self {
        Self { sender: Some(sender), ..self }
    }

    /// Has noted what is refused of it together with what is refused of other actions of the same request.
    #[must_use]
    pub fn noting(self, refusals: &Refusals) -> Self {
        Self { refusals: refusals.clone(), ..self }
    }

    /// Returns the same session with the sender's rights of now, for what takes its time, as what is of
    /// [`ActionSet::LASTING`](millrace_catalog::access::ActionSet::LASTING). Where nobody said who sends it, the rights stay as they are.
    ///
    /// # Errors
    /// [`Error::Unauthorized`] where the sender may not do it any more, is not known any more, or is another by now;
    /// [`Error::Rejected`] where there is no telling now.
    pub async fn again(&self) -> Result<Self> {
        let Some(sender) = &self.sender else { return Ok(self.clone()) };
        let Some(principal) = sender.again().await? else {
            let caller = format!("{}, whose credentials are not good any more", self.principal.caller());
            return Err(Error::Unauthorized { action: self.action.name(), caller, index: None });
        };
        // A certificate may have become another's; what goes on is told of who has begun it.
        if principal.caller() != self.principal.caller() {
            let caller = format!(
                "{}, whose credentials are those of {} now",
                self.principal.caller(),
                principal.caller()
            );
            return Err(Error::Unauthorized { action: self.action.name(), caller, index: None });
        }
        let now = Self::new(&self.engine, principal, self.action)?;
        Ok(self.carry_over(now))
    }

    /// Checks that the action may be done with all of these indices.
    ///
    /// # Errors
    /// [`Error::Unauthorized`] with the first with which it may not.
    pub fn check_all<'a>(&self, mut indices: impl Iterator<Item = &'a str>) -> Result<()> {
        indices.try_for_each(|name| self.check_allowed(name))
    }

    /// Returns where is noted what of the request is refused while the rest is done.
    pub fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// Returns who it is.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Returns what is done.
    pub fn action(&self) -> Action {
        self.action
    }

    /// Returns what the principal may do with an index.
    pub fn access(&self, index: &str) -> Arc<IndexAccess> {
        self.principal.privileges().on(index)
    }

    /// Makes the refusal of this action on a name.
    pub fn refusal(&self, index: &str) -> Error {
        refusal(&self.principal, self.action, index)
    }

    /// Returns the metadata, without the indices that are not to be seen.
    pub fn metadata(&self) -> Arc<Metadata> {
        let metadata = self.engine.metadata();
        match self.guard() {
            None => metadata,
            guard => Arc::new(metadata.guarded(guard)),
        }
    }

    fn guard(&self) -> Option<Guard> {
        if self.action.writes() {
            Guard::of_writes(&self.principal)
        } else {
            Guard::new(&self.principal, self.action)
        }
    }

    /// Applies a metadata change durably: `decide` sees what the principal may see, and what it decides is checked.
    ///
    /// # Errors
    /// As [`Engine::change`]; [`Error::Unauthorized`].
    pub fn change<'a, F>(&'a self, decide: F) -> BoxFuture<'a, Result<()>>
    where
        F: FnOnce(&Metadata) -> Result<Vec<MetadataChange>> + Send + 'a,
    {
        let guarded = move |metadata: &Metadata| {
            let changes = decide(&metadata.guarded(self.guard()))?;
            changes.iter().try_for_each(|change| self.check(change))?;
            Ok(changes)
        };
        self.engine.change(&self.principal, guarded)
    }

    /// Checks a change that was decided, whatever the decision has looked at.
    fn check(&self, change: &MetadataChange) -> Result<()> {
        let (name, action) = match change {
            MetadataChange::PutIndex { meta, .. } => (&meta.name, self.action),
            MetadataChange::DeleteIndex { name, .. } => (name, Action::DeleteIndex),
            _ => return Ok(()),
        };
        let allowed = self.principal.privileges().on(name).allows(action);
        if allowed { Ok(()) } else { Err(refusal(&self.principal, action, name)) }
    }

    /// Makes an index of the documents of another one, and waits for all of them.
    ///
    /// # Errors
    /// The refusals of [`Metadata::plan_resize`]; [`Error::Unauthorized`], also for a source that the caller may not search, with all
    /// documents and fields; as [`Engine::fill_resized`].
    pub fn resize<'a>(&'a self, request: &'a ResizeIndex) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let source = self.index(&request.source)?;
            let access = self.access(&request.source);
            if !access.sees_all(self.action) {
                return Err(self.refusal(&request.source));
            }
            // The copy has a name of its own, under which the caller may read more.
            if !access.allows(Action::Search) || !access.sees_all(Action::Search) {
                return Err(refusal(&self.principal, Action::Search, &request.source));
            }
            let mapping = source.mapping().to_json();
            let (now_ms, uuid) = (self.clock().now_ms(), Uuid::new_v4());
            let mut planned = None;
            self.change(|state| {
                let plan = state.plan_resize(request, now_ms, uuid)?;
                let pending = Arc::clone(&plan.pending);
                planned = Some(plan);
                Ok(vec![MetadataChange::PutIndex { meta: pending, mapping: Some(mapping) }])
            })
            .await?;
            match planned {
                Some(plan) => self.engine.fill_resized(plan).await,
                None => Ok(()),
            }
        })
    }

    /// Tells what keeps the node from its work.
    pub fn troubles(&self) -> Vec<NodeFault> {
        self.engine.troubles()
    }

    /// Returns a running index by its concrete name.
    ///
    /// # Errors
    /// [`Error::Unauthorized`], [`Error::IndexNotFound`].
    pub fn index(&self, name: &str) -> Result<Arc<Index>> {
        match self.guard() {
            Some(guard) if !guard.sees(name) => Err(guard.refusal(name)),
            _ => self.engine.index(name),
        }
    }

    /// Resolves an index expression to running indices that may be seen.
    ///
    /// # Errors
    /// As [`Engine::resolve`]; [`Error::Unauthorized`] for a name that is not allowed.
    pub fn resolve(&self, expression: &str, options: &IndicesOptions) -> Result<Vec<Arc<Index>>> {
        let found = self.metadata().resolve(expression, options, self.clock().now_ms())?;
        found.iter().map(|meta| self.engine.index(&meta.name)).collect()
    }

    /// Merges a `_mapping` body into an index's mapping, durably.
    ///
    /// # Errors
    /// As [`Engine::put_mapping`]; [`Error::Unauthorized`].
    pub fn put_mapping<'a>(&'a self, index: &'a str, body: &'a Value) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.index(index)?;
            check_mapping(body, &self.access(index).written_fields(), &self.principal)?;
            self.engine.put_mapping(&self.principal, index, body).await
        })
    }

    /// Reads a document by id. `realtime` sees unrefreshed writes. `Ok(None)`: no such document.
    ///
    /// # Errors
    /// As [`Engine::get`]; [`Error::Unauthorized`].
    pub async fn get(
        &self,
        index: &str,
        id: &str,
        routing: Option<&str>,
        realtime: bool,
    ) -> Result<Option<StoredDoc>> {
        self.get_visible(index, id, routing, realtime).await
    }

    /// Executes operations in order and acknowledges those that are durable: one result an operation, a refusal for each
    /// that is not allowed.
    ///
    /// # Errors
    /// As [`Engine::write`].
    pub fn write<'a>(
        &'a self,
        ops: Vec<WriteOp>,
        refresh: RefreshPolicy,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Vec<Result<WriteOutcome>>>> {
        self.write_in(None, ops, refresh, timeout)
    }

    /// Executes operations as [`Session::write`] does, unless the session's task is cancelled before they begin.
    ///
    /// # Errors
    /// As [`Engine::write`]; [`Error::Cancelled`], then nothing was written.
    pub fn write_unless_cancelled<'a>(
        &'a self,
        ops: Vec<WriteOp>,
        refresh: RefreshPolicy,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Vec<Result<WriteOutcome>>>> {
        self.write_in(self.task.as_ref(), ops, refresh, timeout)
    }

    fn write_in<'a>(
        &'a self,
        task: Option<&'a TaskHandle>,
        ops: Vec<WriteOp>,
        refresh: RefreshPolicy,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Vec<Result<WriteOutcome>>>> {
        Box::pin(async move {
            let began = Instant::now();
            let outcomes = self.engine.write_in_task(&self.principal, ops, refresh, timeout, task).await?;
            self.log_slow_write(&outcomes, began.elapsed());
            if self.principal.privileges().is_unrestricted() {
                return Ok(outcomes);
            }
            Ok(outcomes.into_iter().map(|outcome| self.without_unread(outcome)).collect())
        })
    }

    /// Executes one operation.
    ///
    /// # Errors
    /// As [`Engine::write`]; that of the operation.
    pub async fn write_one(
        &self,
        op: WriteOp,
        refresh: RefreshPolicy,
        timeout: Duration,
    ) -> Result<WriteOutcome> {
        let outcome = self.write(vec![op], refresh, timeout).await?.pop();
        outcome.unwrap_or_else(|| Err(Error::Internal("the store answered no result".to_owned())))
    }

    /// Takes out the source of an updated document for who may not read it.
    fn without_unread(&self, outcome: Result<WriteOutcome>) -> Result<WriteOutcome> {
        outcome.map(|mut done| {
            if done.source.is_some() && !self.access(&done.index).allows(Action::Get) {
                done.source = None;
            }
            done
        })
    }

    /// Waits until everything written so far is durable.
    ///
    /// # Errors
    /// As [`Engine::durable`].
    pub fn durable(&self) -> BoxFuture<'_, Result<()>> {
        self.engine.durable()
    }

    /// Makes everything written so far visible to search.
    ///
    /// # Errors
    /// As [`Engine::refresh`]; [`Error::Stopped`] where another process writes to the object store: what that has written is not shown here.
    pub fn refresh<'a>(&'a self, indices: &'a [Arc<Index>]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.engine.check_ownership()?;
            self.engine.refresh(indices).await
        })
    }

    /// Writes memtables out as segments and commits them.
    ///
    /// # Errors
    /// As [`Engine::flush`].
    pub fn flush<'a>(&'a self, indices: &'a [Arc<Index>]) -> BoxFuture<'a, Result<()>> {
        self.engine.flush(indices)
    }

    /// Compacts each shard to at most so many segments. Where the session's task is cancelled, it ends at once: a merge that is not committed by then
    /// changes nothing and leaves no file.
    ///
    /// # Errors
    /// As [`Engine::force_merge`].
    pub fn force_merge<'a>(
        &'a self,
        indices: &'a [Arc<Index>],
        max_segments: usize,
    ) -> BoxFuture<'a, Result<()>> {
        self.engine.force_merge_in_task(indices, max_segments, self.task.clone())
    }

    /// Returns the injected clock.
    pub fn clock(&self) -> &SharedClock {
        self.engine.clock()
    }

    /// Returns the pool for CPU work.
    pub fn compute(&self) -> &Compute {
        self.engine.compute()
    }

    /// Returns the directory of the node's data.
    pub fn data_dir(&self) -> &std::path::Path {
        self.engine.data_dir()
    }

    /// Returns the durations of the engine's work.
    pub fn timings(&self) -> &EngineTimings {
        self.engine.timings()
    }

    /// Returns the durations of the log's syncs.
    pub fn log_sync_time(&self) -> HistogramSnapshot {
        self.engine.log_sync_time()
    }

    /// Counts the requests to the object store since the start, by kind and outcome.
    pub fn object_requests(&self) -> Vec<(ObjectRequestKind, ObjectRequestOutcome, u64)> {
        self.engine.object_requests()
    }

    /// Reads the figures of the caches of segment files, by their names.
    pub fn cache_figures(&self) -> [(&'static str, CacheFigures); 2] {
        self.engine.cache_figures()
    }

    /// Returns the bytes of the log, and those that it is to have at most.
    pub fn log_bytes(&self) -> (u64, u64) {
        self.engine.log_bytes()
    }

    /// Bytes of unflushed documents, and the bound on them.
    pub fn memtable_bytes(&self) -> (u64, u64) {
        self.engine.memtable_bytes()
    }

    /// Returns the bytes that are free on the disk of the data.
    ///
    /// # Errors
    /// As [`Engine::free_space`].
    pub async fn free_space(&self) -> Result<u64> {
        self.engine.free_space().await
    }

    /// Returns whether the engine is being shut down, or has been.
    pub fn is_stopping(&self) -> bool {
        self.engine.is_stopping()
    }
}
