//! Verification of the files of a repository: each file that snapshots need is read, and its SHA-256 is compared with its name.
//!
//! A file with other bytes is remembered until the process ends: the next snapshot that needs it writes it anew, where the store still has
//! the segment. It runs beside snapshots, restores and deletions, at the rate of restores.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};

use futures::stream::{self, StreamExt};
use millrace_catalog::access::Action;
use millrace_runtime::tasks::{TaskDescription, TaskGuard, TaskHandle, TaskSpec};
use millrace_runtime::{Error as StoreError, Priority, sync};
use millrace_segment::objects::is_missing;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::oneshot;

use crate::digest::{ContentDigest, DigestBuilder};
use crate::error::{Error, Result};
use crate::repository::Repository;
use crate::selection::{check_expression, select_names};
use crate::service::SnapshotService;
use crate::side_by_side::AT_ONCE;

/// Damaged files of a report, at most; others are only counted.
const MAX_LISTED: usize = 1_000;
/// Files in a row that cannot be read, from which on the repository fails.
const MAX_UNREADABLE: u64 = 5;
/// Reads that are set up at a time.
const PENDING: usize = 256;
/// Bytes of a file that are read at a time.
const READ_BYTES: u64 = 8 << 20;

/// A file of a repository that snapshots cannot be restored from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedFile {
    /// Path below the place of the repository.
    pub file: String,
    /// A snapshot that needs it; others may need it, too.
    pub snapshot: String,
    /// The index of that snapshot that needs it; `None` for a manifest, the global state, accounts and system indices.
    pub index: Option<String>,
    /// Fault that was found.
    pub reason: String,
}

/// Result of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerificationReport {
    /// Snapshots whose files were verified.
    pub snapshots: u64,
    /// Files that were read, each once, without manifests.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Damaged and missing files, of which `damaged` lists the first.
    pub total_damaged: u64,
    /// Damaged and missing files.
    pub damaged: Vec<DamagedFile>,
}

impl VerificationReport {
    fn add(&mut self, damaged: DamagedFile) {
        self.total_damaged += 1;
        if self.damaged.len() < MAX_LISTED {
            self.damaged.push(damaged);
        }
    }
}

/// A verification that runs in the background. It goes on where this is dropped.
#[derive(Debug)]
pub struct BackgroundVerification {
    task: TaskHandle,
    outcome: oneshot::Receiver<(Result<VerificationReport>, TaskGuard)>,
}

impl BackgroundVerification {
    /// Returns its task.
    pub fn task(&self) -> &TaskHandle {
        &self.task
    }

    /// Waits for its end. The task ends with the guard, so that the outcome may be noted before.
    pub async fn outcome(self) -> (Result<VerificationReport>, Option<TaskGuard>) {
        match self.outcome.await {
            Ok((report, guard)) => (report, Some(guard)),
            Err(_) => (Err(StoreError::Internal("a verification panicked".to_owned()).into()), None),
        }
    }
}

/// Verification of the snapshots of a repository.
struct VerificationJob {
    service: SnapshotService,
    repository: Repository,
    snapshots: Vec<String>,
    task: TaskGuard,
    report: Mutex<VerificationReport>,
    /// Faults by the files that have them.
    faults: Mutex<HashMap<ContentDigest, String>>,
    /// Files in a row that cannot be read.
    unreadable: AtomicU64,
    /// Files that are verified, and their bytes.
    verified: (AtomicU64, AtomicU64),
}

impl SnapshotService {
    /// Begins to verify the files of some snapshots of a repository in the background; of all without an expression.
    ///
    /// # Errors
    /// [`Error::SnapshotMissing`] for a name, [`Error::Concurrent`] while another verification of the repository runs; the repository's.
    pub async fn begin_verification(
        &self,
        repository: &str,
        expression: Option<&str>,
    ) -> Result<BackgroundVerification> {
        check_expression(expression.unwrap_or_default())?;
        let open = self.repository(repository).await?;
        let snapshots = select_names(&open.list_snapshots().await?, expression, false)
            .map_err(|snapshot| Error::SnapshotMissing { repository: repository.to_owned(), snapshot })?;
        let alone = open.begin_verification().ok_or_else(|| Error::Concurrent {
            repository: repository.to_owned(),
            snapshot: expression.unwrap_or("_all").to_owned(),
            reason: "a verification of the repository is running already".to_owned(),
        })?;
        let description = TaskDescription::text(&format!("verify[{repository}]"));
        let spec = TaskSpec::cancellable(Action::PutRepositories.name()).with_description(description);
        let task = self.inner.engine.tasks().start(spec);
        let handle = task.handle();
        let (report, faults, unreadable, verified) = Default::default();
        let (service, repository) = (self.clone(), open);
        let job =
            VerificationJob { service, repository, snapshots, task, report, faults, unreadable, verified };
        let (sender, outcome) = oneshot::channel();
        sync::detached(async move {
            let ended = job.task.scope(job.verify_all()).await;
            drop(alone);
            let report = ended.map(|()| job.report.into_inner());
            let _ = sender.send((report, job.task));
        });
        Ok(BackgroundVerification { task: handle, outcome })
    }
}

impl VerificationJob {
    fn check(&self) -> Result<(), StoreError> {
        self.task.check().map_err(|cancelled| StoreError::Stopped(cancelled.to_string()))
    }

    async fn verify_all(&self) -> Result<()> {
        let required: Vec<(ContentDigest, u64)> = self.read_contents().await?.into_iter().collect();
        let bytes = required.iter().map(|(_, bytes)| *bytes).fold(0, u64::saturating_add);
        let totals = (required.len() as u64, bytes);
        for some in required.chunks(PENDING) {
            let reads: Vec<_> = some.iter().map(|file| self.verify_one(*file, totals)).collect();
            let mut reads = stream::iter(reads).buffer_unordered(AT_ONCE);
            while let Some(read) = reads.next().await {
                read?;
            }
        }
        self.report_faults().await
    }

    async fn verify_one(&self, file: (ContentDigest, u64), (files, bytes): (u64, u64)) -> Result<()> {
        self.check()?;
        let fault = self.find_fault(file).await?;
        self.note_outcome(file, fault);
        let verified = self.verified.0.fetch_add(1, Ordering::Relaxed) + 1;
        let read = self.verified.1.fetch_add(file.1, Ordering::Relaxed) + file.1;
        let progress =
            json!({ "files": files, "verified": verified, "bytes": bytes, "verified_bytes": read });
        self.task.handle().set_progress(progress.to_string());
        Ok(())
    }

    /// Reads manifests and contents of indices; returns the other files that these name, each once, with their lengths.
    async fn read_contents(&self) -> Result<HashMap<ContentDigest, u64>> {
        let mut required: HashMap<ContentDigest, u64> = HashMap::new();
        let mut known = HashSet::new();
        for snapshot in &self.snapshots {
            self.check()?;
            let manifest = match self.repository.read_manifest(snapshot).await {
                Ok(Some(manifest)) => manifest,
                // It was deleted meanwhile.
                Ok(None) => continue,
                Err(error) => {
                    let (file, snapshot) =
                        (Repository::manifest_path(snapshot).to_string(), snapshot.to_owned());
                    let damaged = DamagedFile { file, snapshot, index: None, reason: error.to_string() };
                    self.report.lock().add(damaged);
                    self.count_unreadable(&error.to_string())?;
                    continue;
                }
            };
            self.unreadable.store(0, Ordering::Relaxed);
            self.report.lock().snapshots += 1;
            required.extend(manifest.global_state.iter().chain(&manifest.accounts).copied());
            // Contents that are known are not read twice.
            for index in manifest.indices.iter().filter(|index| known.insert(index.contents)) {
                self.check()?;
                let own = (index.contents, index.contents_bytes);
                match self.repository.read_index(own.0, own.1).await {
                    Ok(contents) => {
                        required.extend(contents.files().map(|file| (file.sha256, file.bytes)));
                        self.note_outcome(own, None);
                    }
                    // The files that they name are not known.
                    Err(error) => {
                        let fault = self.find_fault(own).await?;
                        self.note_outcome(own, Some(fault.unwrap_or_else(|| error.to_string())));
                    }
                }
            }
        }
        Ok(required)
    }

    /// Reads a file; returns its fault.
    async fn find_fault(&self, (digest, bytes): (ContentDigest, u64)) -> Result<Option<String>> {
        let path = Repository::content_path(digest);
        let (objects, check) = (self.repository.objects(), || self.check());
        match objects.len(&path).await {
            Ok(found) if found != bytes => {
                return Ok(Some(format!("it has {found} bytes where {bytes} were written")));
            }
            Ok(_) => {}
            Err(error) if is_missing(&error) => return Ok(Some("it is missing".to_owned())),
            Err(error) => return self.count_unreadable(&error.to_string()).map(Some),
        }
        let (mut builder, mut start) = (DigestBuilder::new(), 0);
        while start < bytes {
            let end = bytes.min(start + READ_BYTES);
            self.repository.pace_read(end - start, &check).await?;
            let piece = match objects.get_range(&path, start..end).await {
                Ok(piece) => piece,
                Err(error) => return self.count_unreadable(&error.to_string()).map(Some),
            };
            let update = move || {
                builder.update(&piece);
                Ok(builder)
            };
            builder = self.service.inner.engine.compute().run(Priority::Snapshot, update).await?;
            start = end;
        }
        self.unreadable.store(0, Ordering::Relaxed);
        if builder.finish() == digest {
            self.repository.forget_damage(digest);
            return Ok(None);
        }
        self.repository.note_damage(digest);
        Ok(Some("its bytes are not those that were written".to_owned()))
    }

    /// Counts a file that cannot be read; returns the reason.
    ///
    /// # Errors
    /// Several in a row: then it is the repository that fails, not a file.
    fn count_unreadable(&self, error: &str) -> Result<String> {
        let reason = format!("it cannot be read: {error}");
        match self.unreadable.fetch_add(1, Ordering::Relaxed) + 1 >= MAX_UNREADABLE {
            true => Err(Error::Verification {
                repository: self.repository.name().to_owned(),
                reason: format!("several files cannot be read: {error}"),
            }),
            false => Ok(reason),
        }
    }

    fn note_outcome(&self, (digest, bytes): (ContentDigest, u64), fault: Option<String>) {
        if let Some(reason) = fault {
            self.faults.lock().insert(digest, reason);
        }
        let mut report = self.report.lock();
        report.files += 1;
        report.bytes = report.bytes.saturating_add(bytes);
    }

    /// Reports the faults of files that a snapshot still needs, each with one of these. Others went with their snapshots.
    async fn report_faults(&self) -> Result<()> {
        let mut faults = std::mem::take(&mut *self.faults.lock());
        let mut known = HashSet::new();
        for snapshot in &self.snapshots {
            self.check()?;
            if faults.is_empty() {
                return Ok(());
            }
            // A manifest that cannot be read was reported before.
            let Ok(Some(manifest)) = self.repository.read_manifest(snapshot).await else { continue };
            let mut report = |digest: &ContentDigest, index: Option<&str>| {
                let Some(reason) = faults.remove(digest) else { return };
                self.report.lock().add(DamagedFile {
                    file: Repository::content_path(*digest).to_string(),
                    snapshot: snapshot.clone(),
                    index: index.map(str::to_owned),
                    reason,
                });
            };
            manifest
                .global_state
                .iter()
                .chain(&manifest.accounts)
                .for_each(|(digest, _)| report(digest, None));
            for index in manifest.indices.iter().filter(|index| known.insert(index.contents)) {
                // Those of the server's own are not listed elsewhere, either.
                let name = Some(index.name.as_str()).filter(|_| !index.system);
                report(&index.contents, name);
                let Ok(contents) = self.repository.read_index(index.contents, index.contents_bytes).await
                else {
                    continue;
                };
                contents.files().for_each(|file| report(&file.sha256, name));
            }
        }
        Ok(())
    }
}
