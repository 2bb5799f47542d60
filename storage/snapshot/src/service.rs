//! The service: registered repositories, and what runs on them.
//!
//! One operation at a time writes to repositories: creations and deletions of snapshots wait for each other. So a collection never
//! removes what a creation counts on. Restores run beside them; a snapshot that is being restored is not deleted.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use millrace_engine::Engine;
use millrace_runtime::tasks::TaskHandle;
use millrace_runtime::{Error as StoreError, sync};
use millrace_segment::SegmentFile;
use millrace_segment::objects::ObjectStoreConfig;
use parking_lot::{Mutex, RwLock};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::accounts::{AccountStore, SECURITY_FEATURE};
use crate::config::Config;
use crate::digest::ContentDigest;
use crate::error::{Error, Result};
use crate::figures::{OperationCounters, OperationOutcome, SnapshotFigures};
use crate::names::repository_name_fault;
use crate::progress::IndexProgress;
use crate::recovery::{IndexRecovery, RecoveryRegistry};
use crate::repository::Repository;
use crate::restoring::BusySnapshots;
use crate::selection::{check_expression, select_names};
use crate::settings::{RepositoryKind, RepositorySettings};
use crate::stored_indices::StoredIndices;
use crate::system_state::SystemStateOwner;
use crate::transfer_limits::TransferLimits;

/// Key of the catalog's small values with the registrations.
const REGISTRATIONS: &str = "snapshot.repositories";
/// Repositories that may be registered.
const MAX_REPOSITORIES: usize = 1_000;
/// Digests of segment files that are remembered; beyond it files are hashed again.
const MAX_DIGESTS: usize = 200_000;
/// Failed creations that are remembered for listings.
const MAX_FAILED: usize = 100;

/// Snapshots of one store. Clones share it.
#[derive(Clone, Debug)]
pub struct SnapshotService {
    pub(crate) inner: Arc<Inner>,
}

/// Name of a repository, name of a snapshot.
pub(crate) type SnapshotKey = (String, String);

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) engine: Arc<Engine>,
    config: Config,
    repositories: RwLock<BTreeMap<String, Registration>>,
    /// Held while registrations change.
    registering: tokio::sync::Mutex<()>,
    /// Held by what writes to repositories.
    pub(crate) writing: tokio::sync::Mutex<()>,
    pub(crate) running: Mutex<BTreeMap<SnapshotKey, Arc<RunningSnapshot>>>,
    pub(crate) busy: Mutex<BusySnapshots>,
    pub(crate) failed: Mutex<BTreeMap<SnapshotKey, FailedSnapshot>>,
    /// Digests of files of segments, by the segment's id: the files never change.
    digests: Mutex<HashMap<(Uuid, SegmentFile), ContentDigest>>,
    /// Repositories whose newest snapshot has taught its digests.
    learned: Mutex<HashSet<String>>,
    pub(crate) stored_indices: StoredIndices,
    pub(crate) recoveries: RecoveryRegistry,
    accounts: OnceLock<Arc<dyn AccountStore>>,
    pub(crate) state_owners: RwLock<Vec<Arc<dyn SystemStateOwner>>>,
    pub(crate) counters: OperationCounters,
}

impl Inner {
    /// Names the place of a repository, which others may have, too, by other paths. One that cannot be told is by its name.
    pub(crate) async fn place(&self, repository: &str) -> String {
        let registered = self.repositories.read().get(repository).map(|registered| registered.body.clone());
        let settings =
            registered.and_then(|body| RepositorySettings::parse(repository, &body, &self.config).ok());
        match settings.map(|settings| settings.kind) {
            Some(RepositoryKind::Fs { location }) => {
                let given: PathBuf = location.components().collect();
                let real = sync::blocking(move || Ok(std::fs::canonicalize(&given).unwrap_or(given))).await;
                format!("fs:{}", real.unwrap_or(location).display())
            }
            Some(RepositoryKind::S3 { bucket, base_path }) => format!("s3:{bucket}/{base_path}"),
            None => format!("name:{repository}"),
        }
    }
}

#[derive(Clone, Debug)]
struct Registration {
    body: Value,
    /// `None` until its first use.
    open: Option<Repository>,
}

/// A snapshot that is being made.
#[derive(Debug)]
pub struct RunningSnapshot {
    /// Name of the repository.
    pub repository: String,
    /// Name of the snapshot.
    pub snapshot: String,
    /// Its uuid.
    pub uuid: Uuid,
    /// Time of its begin, in milliseconds since the epoch.
    pub started_ms: i64,
    /// `true` if it has the global state.
    pub include_global_state: bool,
    /// Progress of its indices, once it has captured them.
    indices: Mutex<Arc<[IndexProgress]>>,
    aborted: AtomicBool,
    task: TaskHandle,
}

impl RunningSnapshot {
    pub(crate) fn new(
        key: &SnapshotKey,
        started_ms: i64,
        include_global_state: bool,
        task: TaskHandle,
    ) -> Self {
        Self {
            repository: key.0.clone(),
            snapshot: key.1.clone(),
            uuid: Uuid::new_v4(),
            started_ms,
            include_global_state,
            indices: Mutex::new(Arc::default()),
            aborted: AtomicBool::new(false),
            task,
        }
    }

    /// Returns the progress of its indices: none before it has captured them.
    pub fn indices(&self) -> Arc<[IndexProgress]> {
        Arc::clone(&self.indices.lock())
    }

    /// Takes note of the indices that it has captured.
    pub(crate) fn set_indices(&self, indices: Arc<[IndexProgress]>) {
        *self.indices.lock() = indices;
    }

    /// Has the creation end without a snapshot, because the snapshot is deleted.
    pub(crate) fn abort(&self) {
        self.aborted.store(true, Ordering::Release);
    }

    /// Refuses to go on once the snapshot is deleted, or the task of its creation is cancelled.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.aborted.load(Ordering::Acquire) {
            return Err("the snapshot was aborted by its deletion".to_owned());
        }
        self.task.check().map_err(|cancelled| cancelled.to_string())
    }

    /// Makes an error of the creation.
    pub(crate) fn fail(&self, reason: String) -> Error {
        Error::Snapshot { repository: self.repository.clone(), snapshot: self.snapshot.clone(), reason }
    }

    /// Refuses as [`RunningSnapshot::check`] does, by the names of repository and snapshot.
    pub(crate) fn check_cancelled(&self) -> Result<()> {
        self.check().map_err(|reason| self.fail(reason))
    }

    /// Ends a transfer as [`RunningSnapshot::check`] refuses to go on.
    pub(crate) fn check_transfer(&self) -> Result<(), StoreError> {
        self.check().map_err(StoreError::Stopped)
    }
}

/// A creation that came to nothing.
#[derive(Clone, Debug)]
pub(crate) struct FailedSnapshot {
    pub(crate) uuid: Uuid,
    pub(crate) started_ms: i64,
    pub(crate) ended_ms: i64,
    pub(crate) reason: String,
}

/// Result of a deletion or cleanup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeletionReport {
    /// Files that were removed.
    pub files: u64,
    /// Bytes of these files.
    pub bytes: u64,
}

impl SnapshotService {
    /// Opens the service of a store, reads the registered repositories, and goes on with restores that a crash has ended.
    ///
    /// # Errors
    /// The catalog's.
    pub async fn open(engine: Arc<Engine>, config: Config) -> Result<Self> {
        let stored = engine.get_secret(REGISTRATIONS).await?;
        let bodies: BTreeMap<String, Value> = match stored {
            None => BTreeMap::new(),
            Some(bytes) => serde_json::from_slice(&bytes).map_err(|error| StoreError::Corrupt {
                file: format!("catalog, value [{REGISTRATIONS}]"),
                offset: 0,
                reason: error.to_string(),
            })?,
        };
        let registered = bodies.into_iter().map(|(name, body)| (name, Registration { body, open: None }));
        let inner = Inner {
            engine,
            config,
            repositories: RwLock::new(registered.collect()),
            registering: tokio::sync::Mutex::default(),
            writing: tokio::sync::Mutex::default(),
            running: Mutex::default(),
            busy: Mutex::default(),
            failed: Mutex::default(),
            digests: Mutex::default(),
            learned: Mutex::default(),
            stored_indices: StoredIndices::default(),
            recoveries: RecoveryRegistry::default(),
            accounts: OnceLock::new(),
            state_owners: RwLock::default(),
            counters: OperationCounters::default(),
        };
        let service = Self { inner: Arc::new(inner) };
        service.resume_copies().await?;
        Ok(service)
    }

    /// Takes the accounts that snapshots may have; the first ones count.
    pub fn set_accounts(&self, accounts: Arc<dyn AccountStore>) {
        let _ = self.inner.accounts.set(accounts);
    }

    /// Adds an owner of a system index, which reads it again once a restore has replaced it.
    pub fn add_state_owner(&self, owner: Arc<dyn SystemStateOwner>) {
        self.inner.state_owners.write().push(owner);
    }

    /// Returns the accounts of the server.
    ///
    /// # Errors
    /// [`Error::IllegalArgument`] where it has none.
    pub(crate) fn accounts(&self) -> Result<&Arc<dyn AccountStore>> {
        self.inner.accounts.get().ok_or_else(|| {
            Error::IllegalArgument(format!("this server has no feature state [{SECURITY_FEATURE}]"))
        })
    }

    /// Lists registered repositories that an expression names (comma-separated names and wildcards; all without one), with type
    /// and settings.
    ///
    /// # Errors
    /// [`Error::RepositoryMissing`] for a name.
    pub fn repositories(&self, expression: Option<&str>) -> Result<Vec<(String, Value)>> {
        check_expression(expression.unwrap_or_default())?;
        let registered = self.inner.repositories.read();
        let names: Vec<String> = registered.keys().cloned().collect();
        let chosen = select_names(&names, expression, false)
            .map_err(|repository| Error::RepositoryMissing { repository })?;
        let found = chosen.into_iter().filter_map(|name| {
            let body = registered.get(&name)?.body.clone();
            Some((name, body))
        });
        Ok(found.collect())
    }

    /// Registers a repository, or changes a registration, and verifies it if asked.
    ///
    /// # Errors
    /// Settings that cannot be used, a place that does not work, a repository in use.
    pub async fn put_repository(&self, name: &str, body: &Value, verify: bool) -> Result<()> {
        if let Some(fault) = repository_name_fault(name) {
            return Err(Error::Repository { repository: name.to_owned(), reason: fault });
        }
        let settings = RepositorySettings::parse(name, body, &self.inner.config)?;
        let _one = self.inner.registering.lock().await;
        // A registration that does not open is in nobody's use, and copies of restored files wait for a better one.
        if self.inner.repositories.read().get(name).is_some_and(|registered| registered.open.is_some()) {
            self.check_unused(name)?;
        }
        let count = self.inner.repositories.read().len();
        if count >= MAX_REPOSITORIES && !self.inner.repositories.read().contains_key(name) {
            let reason = format!("there are [{count}] repositories already, the most that may be registered");
            return Err(Error::Repository { repository: name.to_owned(), reason });
        }
        let repository = self.open_repository(name, &settings).await?;
        if !settings.readonly {
            repository.check_place().await?;
        }
        if verify {
            repository.verify().await?;
        }
        // Last, and here alone: a store that only reads on must not take the repository back from another one.
        if !settings.readonly {
            repository.claim().await?;
        }
        let registration = Registration { body: settings.body, open: Some(repository) };
        self.store_registrations(|registered| {
            registered.insert(name.to_owned(), registration);
        })
        .await
    }

    /// Removes the registrations of repositories; their files stay.
    ///
    /// # Errors
    /// [`Error::RepositoryMissing`]; a repository in use.
    pub async fn delete_repositories(&self, expression: &str) -> Result<()> {
        let _one = self.inner.registering.lock().await;
        let names: Vec<String> =
            self.repositories(Some(expression))?.into_iter().map(|(name, _)| name).collect();
        if names.is_empty() {
            return Err(Error::RepositoryMissing { repository: expression.to_owned() });
        }
        names.iter().try_for_each(|name| self.check_unused(name))?;
        self.store_registrations(|registered| registered.retain(|name, _| !names.contains(name))).await
    }

    async fn store_registrations(
        &self,
        change: impl FnOnce(&mut BTreeMap<String, Registration>),
    ) -> Result<()> {
        let mut next = self.inner.repositories.read().clone();
        change(&mut next);
        let bodies: Map<String, Value> =
            next.iter().map(|(name, registered)| (name.clone(), registered.body.clone())).collect();
        let bytes = serde_json::to_vec(&bodies).map_err(|error| StoreError::Internal(error.to_string()))?;
        self.inner.engine.put_secret(REGISTRATIONS, &bytes).await?;
        *self.inner.repositories.write() = next;
        Ok(())
    }

    /// Returns the time by the clock of the store, in milliseconds since the epoch.
    pub fn now_ms(&self) -> i64 {
        self.inner.engine.clock().now_ms()
    }

    /// Counts a creation that a failing repository did not let begin.
    pub fn note_unmade(&self) {
        self.inner.counters.snapshots.add(OperationOutcome::Failure);
    }

    /// Returns the figures since the start of the process.
    pub fn figures(&self) -> SnapshotFigures {
        let running = self.inner.running.lock().len() as u64;
        self.inner.counters.read(running)
    }

    /// Lists the restores of this process by the uuids of their indices: of indices that exist, and of those that are being made.
    pub fn recoveries(&self) -> HashMap<Uuid, Arc<IndexRecovery>> {
        self.inner.recoveries.list(&self.inner.engine.metadata())
    }

    /// Notes that all files of some indices are here.
    pub(crate) fn end_recoveries(&self, indices: &[Uuid]) {
        let now_ms = self.inner.engine.clock().now_ms();
        indices.iter().for_each(|uuid| self.inner.recoveries.end(uuid, now_ms));
    }

    fn check_unused(&self, repository: &str) -> Result<()> {
        let names = |keys: &[SnapshotKey]| keys.iter().any(|(of, _)| of == repository);
        let running: Vec<SnapshotKey> = self.inner.running.lock().keys().cloned().collect();
        if names(&running) || self.inner.busy.lock().restores_from(repository) {
            return Err(Error::RepositoryBusy { repository: repository.to_owned() });
        }
        Ok(())
    }

    async fn open_repository(&self, name: &str, settings: &RepositorySettings) -> Result<Repository> {
        let engine = &self.inner.engine;
        let fail = |error: StoreError| Error::Repository {
            repository: name.to_owned(),
            reason: format!("cannot open the repository: {error}"),
        };
        let objects = match &settings.kind {
            RepositoryKind::Fs { location } => {
                // Before directories are made, and again once they are there.
                self.refuse_links(name, location).await?;
                let objects = engine.open_directory(location).await.map_err(fail)?;
                self.refuse_links(name, location).await?;
                objects
            }
            RepositoryKind::S3 { bucket, base_path } => {
                let client = &self.inner.config.s3;
                let service = ObjectStoreConfig::S3 {
                    bucket: bucket.clone(),
                    prefix: base_path.clone(),
                    endpoint: client.endpoint.clone(),
                    region: client.region.clone(),
                    access_key_id: client.access_key_id.clone(),
                    secret_access_key: client.secret_access_key.clone(),
                    allow_http: client.allow_http,
                };
                engine.open_service(&service).await.map_err(fail)?
            }
        };
        let limits =
            TransferLimits::new(settings.max_snapshot_bytes_per_sec, settings.max_restore_bytes_per_sec);
        Ok(Repository::new(name, objects, settings.readonly, engine.store_id()).with_limits(limits))
    }

    /// Refuses a location that links lead out of the allowed directories.
    async fn refuse_links(&self, name: &str, location: &Path) -> Result<()> {
        let (path, allowed) = (location.to_owned(), self.inner.config.path_repo.clone());
        let is_within = sync::blocking(move || {
            // The part that is there decides where the rest is made.
            let real = path.ancestors().find_map(|part| std::fs::canonicalize(part).ok());
            let mut allowed = allowed.iter().filter_map(|path| {
                let there = path.ancestors().find_map(|part| std::fs::canonicalize(part).ok());
                there.map(|there| (there, path.exists()))
            });
            Ok(real.is_some_and(|real| {
                allowed.any(|(there, exists)| if exists { real.starts_with(there) } else { real == there })
            }))
        });
        if is_within.await? {
            return Ok(());
        }
        let reason = format!("location [{}] leads out of the directories of path.repo", location.display());
        Err(Error::Repository { repository: name.to_owned(), reason })
    }

    /// Returns a registered repository, open.
    ///
    /// # Errors
    /// [`Error::RepositoryMissing`]; a place that does not work.
    pub(crate) async fn repository(&self, name: &str) -> Result<Repository> {
        let missing = || Error::RepositoryMissing { repository: name.to_owned() };
        let registered = self.inner.repositories.read().get(name).cloned().ok_or_else(missing)?;
        if let Some(open) = registered.open {
            return Ok(open);
        }
        let settings = RepositorySettings::parse(name, &registered.body, &self.inner.config)?;
        let opened = self.open_repository(name, &settings).await?;
        if let Some(registered) = self.inner.repositories.write().get_mut(name) {
            registered.open = Some(opened.clone());
        }
        Ok(opened)
    }

    /// Puts an open repository among the registered ones until the service ends.
    ///
    /// # Errors
    /// A place with files of something else; the object store's. The repository is registered all the same.
    pub async fn register_open(&self, repository: Repository) -> Result<()> {
        let body = serde_json::json!({ "type": "fs", "settings": {} });
        let name = repository.name().to_owned();
        let registration = Registration { body, open: Some(repository.clone()) };
        self.inner.repositories.write().insert(name, registration);
        if repository.is_readonly() { Ok(()) } else { repository.claim().await }
    }

    /// Verifies a repository.
    ///
    /// # Errors
    /// [`Error::Verification`].
    pub async fn verify_repository(&self, name: &str) -> Result<()> {
        self.repository(name).await?.verify().await
    }

    /// Removes the files of a repository that no snapshot needs.
    ///
    /// # Errors
    /// A manifest that cannot be read, and the object store's.
    pub async fn cleanup_repository(&self, name: &str) -> Result<DeletionReport> {
        let repository = self.repository(name).await?;
        repository.check_writable()?;
        let _one = self.inner.writing.lock().await;
        repository.check_writer().await?;
        let collected = repository.collect(self.inner.engine.clock().now_ms()).await?;
        Ok(DeletionReport { files: collected.files, bytes: collected.bytes })
    }

    /// Remembers the digest of a file of a segment.
    pub(crate) fn remember_digest(&self, segment: Uuid, file: SegmentFile, digest: ContentDigest) {
        let mut digests = self.inner.digests.lock();
        if digests.len() >= MAX_DIGESTS {
            digests.clear();
            self.inner.learned.lock().clear();
        }
        digests.insert((segment, file), digest);
    }

    /// Returns whether digests were taken from the newest snapshot of a repository.
    pub(crate) fn has_learned(&self, repository: &str) -> bool {
        self.inner.learned.lock().contains(repository)
    }

    /// Notes that digests are taken from the newest snapshot of a repository.
    pub(crate) fn note_learned(&self, repository: &str) {
        self.inner.learned.lock().insert(repository.to_owned());
    }

    pub(crate) fn known_digest(&self, segment: Uuid, file: SegmentFile) -> Option<ContentDigest> {
        self.inner.digests.lock().get(&(segment, file)).copied()
    }

    pub(crate) fn note_failure(&self, running: &RunningSnapshot, ended_ms: i64, error: &Error) {
        let mut failed = self.inner.failed.lock();
        while failed.len() >= MAX_FAILED {
            failed.pop_first();
        }
        let note = FailedSnapshot {
            uuid: running.uuid,
            started_ms: running.started_ms,
            ended_ms,
            reason: error.to_string(),
        };
        failed.insert((running.repository.clone(), running.snapshot.clone()), note);
    }
}
