//! Creation of a snapshot: capture, upload of what the repository lacks, and the manifest last.

use std::collections::HashSet;
use std::sync::Arc;

use millrace_catalog::access::{Action, Guard, Principal, refusal};
use millrace_catalog::metadata::{IndexMeta, IndicesOptions, Metadata};
use millrace_engine::StoreCapture;
use millrace_runtime::tasks::{TaskDescription, TaskGuard, TaskSpec};
use millrace_runtime::{Error as StoreError, sync};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::accounts::check_rights;
use crate::digest::ContentDigest;
use crate::error::{Error, Result};
use crate::figures::OperationOutcome;
use crate::manifest::{FORMAT, IndexSummary, Manifest, MissingShard, SnapshotState};
use crate::names::snapshot_name_fault;
use crate::progress::IndexProgress;
use crate::repository::Repository;
use crate::selection::{check_expression, is_security_administrator, is_system};
use crate::service::{RunningSnapshot, SnapshotKey, SnapshotService};
use crate::side_by_side::try_side_by_side;
use crate::upload::Upload;

/// Indices whose uploads are set up at a time: each takes some kilobytes.
const PENDING: usize = 256;
/// Creations that run or wait, at most.
const MAX_RUNNING: usize = 1_000;
/// Bytes of the member `metadata`, at most.
const MAX_METADATA_BYTES: usize = 1024;

/// A request to make a snapshot.
#[derive(Clone, Debug)]
pub struct CreateSnapshot {
    /// Expression of its indices; all without one.
    pub indices: Option<String>,
    /// Options of the expression.
    pub options: IndicesOptions,
    /// `true` if settings, templates, positions and the server's own indices are in it.
    pub include_global_state: bool,
    /// `true` if users, roles, role mappings and API keys are in it.
    pub include_accounts: bool,
    /// `true` if indices that cannot be read are left out.
    pub partial: bool,
    /// Anything, which is shown with the snapshot.
    pub metadata: Option<Map<String, Value>>,
}

impl Default for CreateSnapshot {
    fn default() -> Self {
        let options = IndicesOptions { expand_hidden: true, ..IndicesOptions::open_and_closed() };
        Self {
            indices: None,
            options,
            include_global_state: true,
            include_accounts: false,
            partial: false,
            metadata: None,
        }
    }
}

/// A creation that was admitted. Until it is dropped its snapshot is listed as running.
struct CreateJob {
    service: SnapshotService,
    repository: Repository,
    request: CreateSnapshot,
    principal: Principal,
    running: Arc<RunningSnapshot>,
    task: TaskGuard,
}

impl Drop for CreateJob {
    fn drop(&mut self) {
        let key = (self.running.repository.clone(), self.running.snapshot.clone());
        self.service.inner.running.lock().remove(&key);
    }
}

impl SnapshotService {
    /// Makes a snapshot and waits for it.
    ///
    /// # Errors
    /// A name that is taken or cannot be used, an index that is missing or cannot be read, a repository that fails: then there is
    /// no snapshot.
    pub async fn create(
        &self,
        principal: &Principal,
        (repository, snapshot): (&str, &str),
        request: CreateSnapshot,
    ) -> Result<Manifest> {
        let job = self.admit_creation(principal, (repository, snapshot), request).await?;
        let (sender, receiver) = tokio::sync::oneshot::channel();
        // To its end, whether or not the caller waits.
        sync::detached(async move {
            let _ = sender.send(job.run().await);
        });
        let ended = receiver.await;
        ended.unwrap_or_else(|_| {
            Err(StoreError::Internal("the creation of a snapshot panicked".to_owned()).into())
        })
    }

    /// Begins to make a snapshot in the background.
    ///
    /// # Errors
    /// As [`SnapshotService::create`], as far as it can be told at once.
    pub async fn begin_creation(
        &self,
        principal: &Principal,
        (repository, snapshot): (&str, &str),
        request: CreateSnapshot,
    ) -> Result<()> {
        let job = self.admit_creation(principal, (repository, snapshot), request).await?;
        sync::detached(async move {
            let _ = job.run().await;
        });
        Ok(())
    }

    async fn admit_creation(
        &self,
        principal: &Principal,
        snapshot: (&str, &str),
        request: CreateSnapshot,
    ) -> Result<CreateJob> {
        let admitted = self.prepare_creation(principal, snapshot, request).await;
        if let Err(Error::Repository { .. }) = &admitted {
            self.note_unmade();
        }
        admitted
    }

    async fn prepare_creation(
        &self,
        principal: &Principal,
        (repository, snapshot): (&str, &str),
        request: CreateSnapshot,
    ) -> Result<CreateJob> {
        let invalid = |reason: &str| Error::InvalidSnapshotName {
            repository: repository.to_owned(),
            snapshot: snapshot.to_owned(),
            reason: reason.to_owned(),
        };
        if let Some(fault) = snapshot_name_fault(snapshot) {
            return Err(invalid(&fault));
        }
        if let Some(metadata) = &request.metadata {
            let bytes = serde_json::to_vec(metadata).map_or(0, |text| text.len());
            if bytes > MAX_METADATA_BYTES {
                let reason =
                    format!("metadata must be smaller than {MAX_METADATA_BYTES} bytes, but was [{bytes}]");
                return Err(StoreError::Validation(format!("1: {reason};")).into());
            }
        }
        check_expression(request.indices.as_deref().unwrap_or_default())?;
        if request.include_accounts {
            check_rights(principal)?;
            self.accounts()?;
        }
        let open = self.repository(repository).await?;
        open.check_writable()?;
        // Names that are missing are known at once.
        select(&self.inner.engine.metadata(), principal, &request, self.inner.engine.clock().now_ms())?;
        if open.read_manifest(snapshot).await?.is_some() {
            return Err(invalid("snapshot with the same name already exists"));
        }
        let key: SnapshotKey = (repository.to_owned(), snapshot.to_owned());
        let started_ms = self.inner.engine.clock().now_ms();
        let description = TaskDescription::text(&format!("snapshot[{repository}:{snapshot}]"));
        let spec = TaskSpec::cancellable(Action::CreateSnapshot.name()).with_description(description);
        let task = self.inner.engine.tasks().start(spec);
        let include_global_state = request.include_global_state;
        let running = RunningSnapshot::new(&key, started_ms, include_global_state, task.handle());
        let running = Arc::new(running);
        {
            let mut all = self.inner.running.lock();
            if all.contains_key(&key) {
                return Err(invalid("snapshot with the same name is already in-progress"));
            }
            let count = all.len();
            if count >= MAX_RUNNING {
                return Err(Error::Concurrent {
                    repository: key.0,
                    snapshot: key.1,
                    reason: format!(
                        "cannot start another operation, already running [{count}] operations and the current limit for \
                         concurrent snapshot operations is set to [{MAX_RUNNING}]"
                    ),
                });
            }
            all.insert(key.clone(), Arc::clone(&running));
        }
        self.inner.failed.lock().remove(&key);
        let (service, principal) = (self.clone(), principal.clone());
        Ok(CreateJob { service, repository: open, request, principal, running, task })
    }
}

/// Chooses the indices of a snapshot: those of the expression, and with the global state those of the server's own.
fn select(
    metadata: &Metadata,
    principal: &Principal,
    request: &CreateSnapshot,
    now_ms: i64,
) -> Result<Vec<Arc<IndexMeta>>, StoreError> {
    let visible = metadata.guarded(Guard::new(principal, Action::CreateSnapshot));
    let expression = request.indices.as_deref().filter(|text| !text.is_empty()).unwrap_or("_all");
    let named = visible.resolve(expression, &request.options, now_ms)?;
    // A wildcard is about the users' indices. A repository is read without the rights on them.
    let administrator = is_security_administrator(principal);
    let parts: HashSet<&str> = expression.split(',').collect();
    let mut chosen: Vec<Arc<IndexMeta>> = Vec::with_capacity(named.len());
    for meta in named {
        match is_system(&meta.name) {
            true if !parts.contains(&*meta.name) => continue,
            true if !administrator => return Err(refusal(principal, Action::CreateSnapshot, &meta.name)),
            _ => chosen.push(meta),
        }
    }
    if request.include_global_state && administrator {
        let known: HashSet<Uuid> = chosen.iter().map(|meta| meta.uuid).collect();
        let system = metadata.indices().filter(|meta| is_system(&meta.name));
        chosen.extend(system.filter(|meta| !known.contains(&meta.uuid)).cloned());
    }
    Ok(chosen)
}

/// Contents of a snapshot that the repository has, as its manifest names them.
struct StoredContents {
    indices: Vec<IndexSummary>,
    failures: Vec<MissingShard>,
    global_state: Option<(ContentDigest, u64)>,
    accounts: Option<(ContentDigest, u64)>,
}

impl CreateJob {
    async fn run(self) -> Result<Manifest> {
        let made = self.task.scope(self.make()).await;
        let (clock, counters) = (self.service.inner.engine.clock(), &self.service.inner.counters);
        let outcome = match &made {
            Ok(Manifest { state: SnapshotState::Success, ended_ms, .. }) => {
                counters.note_success(*ended_ms);
                OperationOutcome::Success
            }
            Ok(_) => OperationOutcome::Partial,
            Err(error) => {
                tracing::error!(
                    repository = self.running.repository,
                    snapshot = self.running.snapshot,
                    %error,
                    "a snapshot was not made"
                );
                self.service.note_failure(&self.running, clock.now_ms(), error);
                OperationOutcome::Failure
            }
        };
        // What a caller has ended is no failure.
        if self.running.check().is_ok() {
            counters.snapshots.add(outcome);
        }
        made
    }

    async fn make(&self) -> Result<Manifest> {
        let _one = self.service.inner.writing.lock().await;
        self.running.check_cancelled()?;
        self.repository.check_writer().await?;
        let engine = Arc::clone(&self.service.inner.engine);
        let (principal, request, now_ms) = (&self.principal, &self.request, engine.clock().now_ms());
        let capture =
            engine.capture(Box::new(move |metadata| select(metadata, principal, request, now_ms))).await?;
        let progress: Arc<[IndexProgress]> = capture.indices.iter().map(IndexProgress::new).collect();
        self.running.set_indices(Arc::clone(&progress));
        let upload = Upload::begin(&self.service, &self.repository, &self.running).await?;
        let stored = self.store(&upload, &capture, &progress).await;
        // Also where it has failed: another name of this repository may count on what is there.
        let ended = upload.end().await;
        let StoredContents { indices, failures, global_state, accounts } = stored?;
        ended?;
        let manifest = Manifest {
            format: FORMAT,
            snapshot: self.running.snapshot.clone(),
            uuid: self.running.uuid,
            store: engine.store_id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            frame: capture.frame,
            state: if failures.is_empty() { SnapshotState::Success } else { SnapshotState::Partial },
            started_ms: self.running.started_ms,
            ended_ms: engine.clock().now_ms(),
            include_global_state: self.request.include_global_state,
            metadata: self.request.metadata.clone(),
            indices,
            failures,
            global_state,
            accounts,
            added_files: upload.added_files(),
            added_bytes: upload.added_bytes(),
        };
        self.running.check_cancelled()?;
        if self.repository.publish(&manifest).await? {
            return Ok(manifest);
        }
        Err(Error::InvalidSnapshotName {
            repository: self.running.repository.clone(),
            snapshot: self.running.snapshot.clone(),
            reason: "snapshot with the same name already exists".to_owned(),
        })
    }

    /// Stores what the snapshot has, but for its manifest.
    async fn store(
        &self,
        upload: &Upload<'_>,
        capture: &StoreCapture,
        progress: &[IndexProgress],
    ) -> Result<StoredContents> {
        upload.learn_digests(capture).await?;
        let existing = capture.metadata.indices().map(|meta| meta.uuid).collect();
        self.service.inner.stored_indices.retain(&existing);
        let (mut indices, mut failures) = (Vec::new(), Vec::new());
        for (some, progress) in capture.indices.chunks(PENDING).zip(progress.chunks(PENDING)) {
            let uploads = some.iter().zip(progress);
            let uploads = uploads.map(|(index, progress)| upload.store_index(index, progress)).collect();
            for index in try_side_by_side(uploads).await? {
                match index {
                    Ok(summary) => indices.push(summary),
                    Err(failed) => failures.extend(failed),
                }
            }
        }
        if !failures.is_empty() && !self.request.partial {
            let reasons: Vec<String> = failures
                .iter()
                .take(10)
                .map(|f| format!("[{}][{}]: {}", f.index, f.shard, f.reason))
                .collect();
            return Err(self.running.fail(format!("indices cannot be read: {}", reasons.join("; "))));
        }
        let global_state = match self.request.include_global_state {
            true => Some(upload.store_global_state(capture).await?),
            false => None,
        };
        let accounts = match self.request.include_accounts {
            true => Some(upload.store_accounts().await?),
            false => None,
        };
        Ok(StoredContents { indices, failures, global_state, accounts })
    }
}
