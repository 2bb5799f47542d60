//! Creation of a snapshot: capture, upload of what the repository lacks, and the manifest last.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures::future::join;
use futures::stream::{self, StreamExt};
use millrace_catalog::SegmentRecord;
use millrace_catalog::access::{Action, Guard, Principal, refusal};
use millrace_catalog::metadata::{IndexMeta, IndicesOptions, Metadata};
use millrace_engine::{CapturedSegment, IndexCapture, ShardCapture, StoreCapture};
use millrace_runtime::tasks::{TaskDescription, TaskGuard, TaskSpec};
use millrace_runtime::{Error as StoreError, Priority, sync};
use millrace_segment::{DeletesFile, SegmentFile, file_path, verify_file};
use parking_lot::Mutex;
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::contents::{
    FileReference, GlobalState, IndexContents, SegmentContents, ShardContents, SourcePosition,
};
use crate::digest::{ContentDigest, DigestBuilder};
use crate::error::{Error, Result};
use crate::manifest::{FORMAT, IndexSummary, Manifest, MissingShard, SnapshotState, encode_json};
use crate::names::snapshot_name_fault;
use crate::repository::Repository;
use crate::selection::{check_expression, is_security_administrator, is_system};
use crate::service::{RunningSnapshot, SnapshotKey, SnapshotService};
use crate::side_by_side::{AT_ONCE, try_side_by_side};
use crate::stored_indices::IndexFingerprint;

/// Indices whose uploads are set up at a time: each takes some kilobytes.
const PENDING: usize = 256;
/// Bytes that are hashed at a time.
const HASHED_BYTES: usize = 32 << 20;
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
    /// `true` if indices that cannot be read are left out.
    pub partial: bool,
    /// Anything, which is shown with the snapshot.
    pub metadata: Option<Map<String, Value>>,
}

impl Default for CreateSnapshot {
    fn default() -> Self {
        let options = IndicesOptions { expand_hidden: true, ..IndicesOptions::open_and_closed() };
        Self { indices: None, options, include_global_state: true, partial: false, metadata: None }
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

impl CreateJob {
    async fn run(self) -> Result<Manifest> {
        let made = self.task.scope(self.make()).await;
        let clock = self.service.inner.engine.clock();
        if let Err(error) = &made {
            tracing::error!(
                repository = self.running.repository,
                snapshot = self.running.snapshot,
                %error,
                "a snapshot was not made"
            );
            self.service.note_failure(&self.running, clock.now_ms(), error);
        }
        made
    }

    fn fail(&self, reason: String) -> Error {
        let RunningSnapshot { repository, snapshot, .. } = &*self.running;
        Error::Snapshot { repository: repository.clone(), snapshot: snapshot.clone(), reason }
    }

    fn check_cancelled(&self) -> Result<()> {
        self.running.check().map_err(|reason| self.fail(reason))
    }

    async fn make(&self) -> Result<Manifest> {
        let _one = self.service.inner.writing.lock().await;
        self.check_cancelled()?;
        self.repository.check_writer().await?;
        let engine = Arc::clone(&self.service.inner.engine);
        let (principal, request, now_ms) = (&self.principal, &self.request, engine.clock().now_ms());
        let capture =
            engine.capture(Box::new(move |metadata| select(metadata, principal, request, now_ms))).await?;
        let listed = capture.indices.iter().map(|index| (index.meta.name.to_string(), index.meta.shards));
        *self.running.indices.lock() = listed.collect();
        let upload = Upload {
            job: self,
            present: Mutex::new(self.repository.list_durable_contents().await?),
            added_files: AtomicU64::new(0),
            added_bytes: AtomicU64::new(0),
        };
        upload.learn_digests(&capture).await?;
        let existing = capture.metadata.indices().map(|meta| meta.uuid).collect();
        self.service.inner.stored_indices.retain(&existing);
        let (mut indices, mut failures) = (Vec::new(), Vec::new());
        for some in capture.indices.chunks(PENDING) {
            let uploads = some.iter().map(|index| upload.store_index(index)).collect();
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
            return Err(self.fail(format!("indices cannot be read: {}", reasons.join("; "))));
        }
        let global_state = match self.request.include_global_state {
            true => Some(upload.store_global_state(&capture).await?),
            false => None,
        };
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
            added_files: upload.added_files.load(Ordering::Relaxed),
            added_bytes: upload.added_bytes.load(Ordering::Relaxed),
        };
        self.check_cancelled()?;
        if self.repository.publish(&manifest).await? {
            return Ok(manifest);
        }
        Err(Error::InvalidSnapshotName {
            repository: self.running.repository.clone(),
            snapshot: self.running.snapshot.clone(),
            reason: "snapshot with the same name already exists".to_owned(),
        })
    }
}

/// Summary of a stored index, or the shards of it that cannot be read.
type StoredIndex = Result<IndexSummary, Vec<MissingShard>>;

/// Upload of a snapshot: what the repository has is not sent again.
struct Upload<'a> {
    job: &'a CreateJob,
    /// Contents of the repository with their lengths.
    present: Mutex<HashMap<ContentDigest, u64>>,
    added_files: AtomicU64,
    added_bytes: AtomicU64,
}

impl Upload<'_> {
    fn service(&self) -> &SnapshotService {
        &self.job.service
    }

    fn has(&self, file: FileReference) -> bool {
        self.present.lock().get(&file.sha256) == Some(&file.bytes)
    }

    fn added(&self, file: FileReference) {
        self.present.lock().insert(file.sha256, file.bytes);
        self.added_files.fetch_add(1, Ordering::Relaxed);
        self.added_bytes.fetch_add(file.bytes, Ordering::Relaxed);
    }

    /// Takes digests of files from the newest snapshot of this store, so that these files are not read again.
    async fn learn_digests(&self, capture: &StoreCapture) -> Result<()> {
        let unknown = |segment: &CapturedSegment| {
            self.service().known_digest(segment.record.id, SegmentFile::Data).is_none()
        };
        let segments = |index: &IndexCapture| {
            index.shards.iter().flatten().flat_map(|shard| &shard.segments).any(unknown)
        };
        let lacking: Vec<Uuid> =
            capture.indices.iter().filter(|index| segments(index)).map(|index| index.meta.uuid).collect();
        // Segments that are lacking later are new: no snapshot has them.
        let repository = self.job.repository.name();
        if lacking.is_empty() || self.service().has_learned(repository) {
            return Ok(());
        }
        let store = self.service().inner.engine.store_id();
        let newest = self.job.repository.read_newest_manifest(store).await?;
        self.service().note_learned(repository);
        let Some(newest) = newest else { return Ok(()) };
        let wanted = newest.indices.iter().filter(|index| lacking.contains(&index.uuid));
        let reads: Vec<_> = wanted
            .map(|index| self.job.repository.read_index(index.contents, index.contents_bytes))
            .collect();
        let mut reads = stream::iter(reads).buffer_unordered(AT_ONCE);
        while let Some(read) = reads.next().await {
            let Ok(contents) = read else { continue };
            for segment in contents.shards.iter().flat_map(|shard| &shard.segments) {
                let id = segment.record.id;
                self.service().remember_digest(id, SegmentFile::Data, segment.data.sha256);
                self.service().remember_digest(id, SegmentFile::Bundle, segment.bundle.sha256);
                if let Some(ids) = segment.ids {
                    self.service().remember_digest(id, SegmentFile::Ids, ids.sha256);
                }
            }
        }
        Ok(())
    }

    async fn store_index(&self, index: &IndexCapture) -> Result<StoredIndex> {
        self.job.check_cancelled()?;
        let stored_indices = &self.service().inner.stored_indices;
        let fingerprint = IndexFingerprint::new(index);
        if let Some(fingerprint) = &fingerprint
            && let Some(summary) = stored_indices.find(fingerprint, |file| self.has(file))
        {
            return Ok(Ok(summary));
        }
        let (mut shards, mut failures) = (Vec::new(), Vec::new());
        for (number, shard) in (0..).zip(&index.shards) {
            let stored = match shard {
                Ok(shard) => self.store_shard(index, shard).await?,
                Err(error) => Err(error.to_string()),
            };
            match stored {
                Ok(contents) => shards.push(contents),
                Err(reason) => {
                    failures.push(MissingShard { index: index.meta.name.to_string(), shard: number, reason });
                }
            }
        }
        let missing = index.meta.shards as usize > index.shards.len();
        if missing && failures.is_empty() {
            let reason = "the index was deleted meanwhile".to_owned();
            failures.push(MissingShard { index: index.meta.name.to_string(), shard: 0, reason });
        }
        if !failures.is_empty() {
            return Ok(Err(failures));
        }
        let (meta, mapping) = (IndexMeta::clone(&index.meta), Arc::clone(&index.mapping));
        let compute = self.service().inner.engine.compute();
        let encode = move || {
            let mapping =
                String::from_utf8(mapping.encode()).map_err(|e| StoreError::Internal(e.to_string()))?;
            let contents = IndexContents::new(meta, mapping, shards);
            let files: Vec<FileReference> = contents.files().collect();
            Ok((encode_json(&contents).map_err(StoreError::Internal)?, files))
        };
        let (encoded, mut files) = compute.run(Priority::Background, encode).await?;
        let contents = self.put_bytes(encoded.into()).await?;
        let summary = IndexSummary {
            name: index.meta.name.to_string(),
            uuid: index.meta.uuid,
            shards: index.meta.shards,
            system: is_system(&index.meta.name),
            contents: contents.sha256,
            contents_bytes: contents.bytes,
            files: files.len() as u64,
            bytes: files.iter().map(|file| file.bytes).sum(),
        };
        if let Some(fingerprint) = fingerprint {
            files.push(contents);
            stored_indices.insert(fingerprint, summary.clone(), files);
        }
        Ok(Ok(summary))
    }

    /// Stores a shard; the inner error says why the store cannot read it.
    async fn store_shard(
        &self,
        index: &IndexCapture,
        shard: &ShardCapture,
    ) -> Result<Result<ShardContents, String>> {
        let uploads = shard.segments.iter().map(|segment| self.store_segment(segment)).collect();
        let stored: Vec<Result<SegmentContents, String>> = try_side_by_side(uploads).await?;
        let mut segments = Vec::with_capacity(stored.len() + 1);
        for segment in stored {
            match segment {
                Ok(segment) => segments.push(segment),
                Err(reason) => return Ok(Err(reason)),
            }
        }
        match self.store_unflushed(index, shard).await? {
            Ok(unflushed) => segments.extend(unflushed),
            Err(reason) => return Ok(Err(reason)),
        }
        let ShardCapture { number, primary_term, next_seq_no, .. } = *shard;
        Ok(Ok(ShardContents { number, primary_term, next_seq_no, segments }))
    }

    async fn store_segment(&self, segment: &CapturedSegment) -> Result<Result<SegmentContents, String>> {
        self.job.check_cancelled()?;
        let record = &segment.record;
        let kinds = SegmentFile::ALL.into_iter().filter(|file| file.bytes(record) > 0);
        let uploads = kinds.map(|file| async move {
            let stored = self.store_file(record, file).await?;
            Ok::<_, Error>((file, stored))
        });
        let mut files: BTreeMap<SegmentFile, FileReference> = BTreeMap::new();
        for (file, stored) in try_side_by_side(uploads.collect()).await? {
            match stored {
                Ok(reference) => files.insert(file, reference),
                Err(error) => return Ok(Err(error.to_string())),
            };
        }
        let deletes = match segment.deleted.is_empty() {
            true => None,
            false => Some(self.put_bytes(DeletesFile::encode(&segment.deleted, 1)?.1).await?),
        };
        Ok(SegmentContents::new(record.clone(), &files, deletes))
    }

    /// Stores a file of a stored segment unless the repository has it; the inner error is that of reading it.
    async fn store_file(
        &self,
        record: &SegmentRecord,
        file: SegmentFile,
    ) -> Result<Result<FileReference, StoreError>> {
        let bytes = file.bytes(record);
        if let Some(sha256) = self.service().known_digest(record.id, file) {
            let reference = FileReference { sha256, bytes };
            if self.has(reference) {
                return Ok(Ok(reference));
            }
        }
        let engine = &self.service().inner.engine;
        let content = match engine.open_captured(&file_path(record, file), bytes).await {
            Ok(content) => content,
            Err(error) => return Ok(Err(error)),
        };
        // Both read the whole file, and each has a thread of its own.
        let (verified, sha256) = join(self.verify(record, file, &content), self.hash(content.clone())).await;
        if let Err(error) = verified {
            return Ok(Err(error));
        }
        let reference = FileReference { sha256: sha256?, bytes };
        if !self.has(reference) {
            self.job.repository.put_content(reference.sha256, content).await?;
            self.added(reference);
        }
        self.service().remember_digest(record.id, file, reference.sha256);
        Ok(Ok(reference))
    }

    /// Checks a file of a segment against its record: damage is not backed up as if it were right.
    async fn verify(
        &self,
        record: &SegmentRecord,
        file: SegmentFile,
        content: &Bytes,
    ) -> Result<(), StoreError> {
        let (record, checked) = (record.clone(), content.clone());
        let compute = self.service().inner.engine.compute();
        compute.run(Priority::Background, move || verify_file(&record, file, &checked)).await
    }

    /// Hashes a content piece by piece, so that other work gets its turn.
    async fn hash(&self, content: Bytes) -> Result<ContentDigest> {
        let mut builder = DigestBuilder::new();
        for start in (0..content.len()).step_by(HASHED_BYTES) {
            self.job.check_cancelled()?;
            let piece = content.slice(start..content.len().min(start + HASHED_BYTES));
            let update = move || {
                builder.update(&piece);
                Ok(builder)
            };
            builder = self.service().inner.engine.compute().run(Priority::Background, update).await?;
        }
        Ok(builder.finish())
    }

    async fn put_bytes(&self, content: Bytes) -> Result<FileReference> {
        let bytes = content.len() as u64;
        let reference = FileReference { sha256: self.hash(content.clone()).await?, bytes };
        if !self.has(reference) {
            self.job.repository.put_content(reference.sha256, content).await?;
            self.added(reference);
        }
        Ok(reference)
    }

    /// Stores the rows of a shard that no stored segment has, as a segment of their own.
    async fn store_unflushed(
        &self,
        index: &IndexCapture,
        shard: &ShardCapture,
    ) -> Result<Result<Option<SegmentContents>, String>> {
        if !shard.has_unflushed() {
            return Ok(Ok(None));
        }
        let merged = match self.service().inner.engine.merge_unflushed(index, shard).await {
            Ok(Some(merged)) => merged,
            Ok(None) => return Ok(Ok(None)),
            Err(error) => return Ok(Err(error.to_string())),
        };
        let mut files = BTreeMap::new();
        for (path, scratch) in &merged.files {
            let kind = SegmentFile::ALL.into_iter().find(|file| file_path(&merged.record, *file) == *path);
            let Some(kind) = kind else { continue };
            let sha256 = self.job.repository.hash_file(scratch).await?;
            let reference = FileReference { sha256, bytes: kind.bytes(&merged.record) };
            if !self.has(reference) {
                self.job.repository.put_content_file(sha256, scratch).await?;
                self.added(reference);
            }
            files.insert(kind, reference);
        }
        Ok(SegmentContents::new(merged.record.clone(), &files, None).map(Some))
    }

    async fn store_global_state(&self, capture: &StoreCapture) -> Result<(ContentDigest, u64)> {
        let metadata = &capture.metadata;
        let templates = [
            ("legacy", &metadata.legacy_templates),
            ("index", &metadata.index_templates),
            ("component", &metadata.component_templates),
        ];
        let templates =
            templates.into_iter().map(|(kind, named)| (kind.to_owned(), BTreeMap::clone(named))).collect();
        let positions = capture.positions.iter().map(SourcePosition::new).collect();
        let state = GlobalState::new(Map::clone(&metadata.persistent), templates, positions);
        let encoded = sync::blocking(move || encode_json(&state).map_err(StoreError::Internal)).await?;
        let reference = self.put_bytes(encoded.into()).await?;
        Ok((reference.sha256, reference.bytes))
    }
}
