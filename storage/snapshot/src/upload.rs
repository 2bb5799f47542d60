//! Upload of a snapshot: the files of captured indices that the repository lacks, and the contents that list them.
//!
//! Checks, hashes and writes run on the snapshot threads, whose priority is below that of ingest, and at the rate of the repository.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures::future::join;
use futures::stream::{self, StreamExt};
use millrace_catalog::SegmentRecord;
use millrace_catalog::metadata::IndexMeta;
use millrace_engine::{CapturedSegment, IndexCapture, ShardCapture, StoreCapture};
use millrace_runtime::{Error as StoreError, Priority, sync};
use millrace_segment::objects::StagedObject;
use millrace_segment::{DeletesFile, SegmentFile, file_path, verify_file};
use parking_lot::Mutex;
use serde_json::Map;
use uuid::Uuid;

use crate::accounts::AccountState;
use crate::contents::{
    FileReference, GlobalState, IndexContents, SegmentContents, ShardContents, SourcePosition,
};
use crate::digest::{ContentDigest, DigestBuilder};
use crate::error::{Error, Result};
use crate::manifest::{IndexSummary, MissingShard, encode_json};
use crate::progress::IndexProgress;
use crate::repository::Repository;
use crate::selection::is_system;
use crate::service::{RunningSnapshot, SnapshotService};
use crate::side_by_side::{AT_ONCE, try_side_by_side};
use crate::stored_indices::IndexFingerprint;

/// Bytes that are hashed at a time.
const HASHED_BYTES: usize = 32 << 20;

/// Summary of a stored index, or the shards of it that cannot be read.
pub(crate) type StoredIndex = Result<IndexSummary, Vec<MissingShard>>;

/// Upload of a snapshot: what the repository has is not sent again.
pub(crate) struct Upload<'a> {
    service: &'a SnapshotService,
    repository: &'a Repository,
    running: &'a RunningSnapshot,
    /// Contents of the repository with their lengths.
    present: Mutex<HashMap<ContentDigest, u64>>,
    /// Lengths of these, and of the files that are being written: a file of another length is new.
    lengths: Mutex<HashSet<u64>>,
    /// A content of each directory that has new ones: their names are not durable yet.
    named: Mutex<HashMap<u8, ContentDigest>>,
    added_files: AtomicU64,
    added_bytes: AtomicU64,
}

impl<'a> Upload<'a> {
    /// Begins an upload with a list of what the repository has.
    ///
    /// # Errors
    /// The repository's.
    pub(crate) async fn begin(
        service: &'a SnapshotService,
        repository: &'a Repository,
        running: &'a RunningSnapshot,
    ) -> Result<Self> {
        let present = repository.list_durable_contents().await?;
        let lengths = Mutex::new(present.values().copied().collect());
        let (named, added_files, added_bytes) = Default::default();
        let present = Mutex::new(present);
        Ok(Self { service, repository, running, present, lengths, named, added_files, added_bytes })
    }

    /// Counts the files that the upload has brought.
    pub(crate) fn added_files(&self) -> u64 {
        self.added_files.load(Ordering::Relaxed)
    }

    /// Counts the bytes of these files.
    pub(crate) fn added_bytes(&self) -> u64 {
        self.added_bytes.load(Ordering::Relaxed)
    }

    /// Passes on the outcome of a write. One that a cancellation has ended is no failure of the repository.
    fn check_write<T>(&self, written: Result<T>) -> Result<T> {
        written.map_err(|error| self.running.check_cancelled().err().unwrap_or(error))
    }

    fn has(&self, file: FileReference) -> bool {
        self.present.lock().get(&file.sha256) == Some(&file.bytes)
    }

    fn added(&self, file: FileReference) {
        self.repository.forget_damage(file.sha256);
        self.present.lock().insert(file.sha256, file.bytes);
        self.added_files.fetch_add(1, Ordering::Relaxed);
        self.added_bytes.fetch_add(file.bytes, Ordering::Relaxed);
        self.service.inner.counters.add_uploaded(file.bytes);
    }

    /// Makes the names of all new contents durable, before a manifest names them.
    ///
    /// # Errors
    /// The repository's.
    pub(crate) async fn end(&self) -> Result<()> {
        let named = std::mem::take(&mut *self.named.lock());
        match named.is_empty() {
            true => Ok(()),
            false => self.repository.make_names_durable(named.into_values()).await,
        }
    }

    /// Takes digests of files from the newest snapshot of this store, so that these files are not read again.
    pub(crate) async fn learn_digests(&self, capture: &StoreCapture) -> Result<()> {
        let unknown = |segment: &CapturedSegment| {
            self.service.known_digest(segment.record.id, SegmentFile::Data).is_none()
        };
        let segments = |index: &IndexCapture| {
            index.shards.iter().flatten().flat_map(|shard| &shard.segments).any(unknown)
        };
        let lacking: Vec<Uuid> =
            capture.indices.iter().filter(|index| segments(index)).map(|index| index.meta.uuid).collect();
        // Segments that are lacking later are new: no snapshot has them.
        let repository = self.repository.name();
        if lacking.is_empty() || self.service.has_learned(repository) {
            return Ok(());
        }
        let store = self.service.inner.engine.store_id();
        let newest = self.repository.read_newest_manifest(store).await?;
        self.service.note_learned(repository);
        let Some(newest) = newest else { return Ok(()) };
        let wanted = newest.indices.iter().filter(|index| lacking.contains(&index.uuid));
        let reads: Vec<_> =
            wanted.map(|index| self.repository.read_index(index.contents, index.contents_bytes)).collect();
        let mut reads = stream::iter(reads).buffer_unordered(AT_ONCE);
        while let Some(read) = reads.next().await {
            let Ok(contents) = read else { continue };
            for segment in contents.shards.iter().flat_map(|shard| &shard.segments) {
                let id = segment.record.id;
                self.service.remember_digest(id, SegmentFile::Data, segment.data.sha256);
                self.service.remember_digest(id, SegmentFile::Bundle, segment.bundle.sha256);
                if let Some(ids) = segment.ids {
                    self.service.remember_digest(id, SegmentFile::Ids, ids.sha256);
                }
            }
        }
        Ok(())
    }

    pub(crate) async fn store_index(
        &self,
        index: &IndexCapture,
        progress: &IndexProgress,
    ) -> Result<StoredIndex> {
        self.running.check_cancelled()?;
        let stored_indices = &self.service.inner.stored_indices;
        let fingerprint = IndexFingerprint::new(index);
        if let Some(fingerprint) = &fingerprint
            && let Some(summary) = stored_indices.find(fingerprint, |file| self.has(file))
        {
            progress.note_whole();
            return Ok(Ok(summary));
        }
        let (mut shards, mut failures) = (Vec::new(), Vec::new());
        for (number, shard) in (0..).zip(&index.shards) {
            let stored = match shard {
                Ok(shard) => self.store_shard(index, shard, progress).await?,
                Err(error) => Err(error.to_string()),
            };
            match stored {
                Ok(contents) => {
                    progress.note_shard();
                    shards.push(contents);
                }
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
        let compute = self.service.inner.engine.compute();
        let encode = move || {
            let mapping =
                String::from_utf8(mapping.encode()).map_err(|e| StoreError::Internal(e.to_string()))?;
            let contents = IndexContents::new(meta, mapping, shards);
            let files: Vec<FileReference> = contents.files().collect();
            Ok((encode_json(&contents).map_err(StoreError::Internal)?, files))
        };
        let (encoded, mut files) = compute.run(Priority::Snapshot, encode).await?;
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
        progress: &IndexProgress,
    ) -> Result<Result<ShardContents, String>> {
        let uploads = shard.segments.iter().map(|segment| self.store_segment(segment, progress)).collect();
        let stored: Vec<Result<SegmentContents, String>> = try_side_by_side(uploads).await?;
        let mut segments = Vec::with_capacity(stored.len() + 1);
        for segment in stored {
            match segment {
                Ok(segment) => segments.push(segment),
                Err(reason) => return Ok(Err(reason)),
            }
        }
        match self.store_unflushed(index, shard, progress).await? {
            Ok(unflushed) => segments.extend(unflushed),
            Err(reason) => return Ok(Err(reason)),
        }
        let ShardCapture { number, primary_term, next_seq_no, .. } = *shard;
        Ok(Ok(ShardContents { number, primary_term, next_seq_no, segments }))
    }

    async fn store_segment(
        &self,
        segment: &CapturedSegment,
        progress: &IndexProgress,
    ) -> Result<Result<SegmentContents, String>> {
        self.running.check_cancelled()?;
        let record = &segment.record;
        let kinds = SegmentFile::ALL.into_iter().filter(|file| file.bytes(record) > 0);
        let uploads = kinds.map(|file| async move {
            let stored = self.store_file(record, file, progress).await?;
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
        progress: &IndexProgress,
    ) -> Result<Result<FileReference, StoreError>> {
        let bytes = file.bytes(record);
        if let Some(sha256) = self.service.known_digest(record.id, file) {
            let reference = FileReference { sha256, bytes };
            if self.has(reference) {
                progress.note_file(bytes, false);
                return Ok(Ok(reference));
            }
        }
        let engine = &self.service.inner.engine;
        let content = match engine.open_captured(&file_path(record, file), bytes).await {
            Ok(content) => content,
            Err(error) => return Ok(Err(error)),
        };
        let local = engine.captured_file(&file_path(record, file));
        // Both read the whole file, and each has a thread of its own.
        let (verified, hashed) =
            join(self.verify(record, file, &content), self.hash_or_write(content.clone(), local.as_deref()))
                .await;
        let (sha256, staged) = match (verified, hashed) {
            (Ok(()), hashed) => hashed?,
            (Err(error), hashed) => {
                if let Ok((_, Some(staged))) = hashed {
                    self.discard(staged).await;
                }
                return Ok(Err(error));
            }
        };
        let reference = FileReference { sha256, bytes };
        let is_new = !self.has(reference);
        match staged {
            Some(staged) if is_new => self.name_content(sha256, staged).await?,
            // An equal one came meanwhile.
            Some(staged) => self.discard(staged).await,
            None if is_new => self.put_file((sha256, content), local.as_deref()).await?,
            None => {}
        }
        if is_new {
            self.added(reference);
        }
        progress.note_file(bytes, is_new);
        self.service.remember_digest(record.id, file, reference.sha256);
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
        let compute = self.service.inner.engine.compute();
        compute.run(Priority::Snapshot, move || verify_file(&record, file, &checked)).await
    }

    /// Hashes a content piece by piece, so that other work gets its turn.
    async fn hash(&self, content: Bytes) -> Result<ContentDigest> {
        let mut builder = DigestBuilder::new();
        for start in (0..content.len()).step_by(HASHED_BYTES) {
            self.running.check_cancelled()?;
            let piece = content.slice(start..content.len().min(start + HASHED_BYTES));
            let update = move || {
                builder.update(&piece);
                Ok(builder)
            };
            builder = self.service.inner.engine.compute().run(Priority::Snapshot, update).await?;
        }
        Ok(builder.finish())
    }

    /// Hashes a content, which a file of this machine may have. What the repository cannot have yet is written meanwhile, where the
    /// repository is on this machine, and gets its name from the caller.
    async fn hash_or_write(
        &self,
        content: Bytes,
        file: Option<&Path>,
    ) -> Result<(ContentDigest, Option<StagedObject>)> {
        let bytes = content.len() as u64;
        let may_be_there = !self.lengths.lock().insert(bytes);
        if may_be_there {
            return Ok((self.hash(content).await?, None));
        }
        if let Some(staged) = self.share_blocks(file, bytes).await? {
            return match self.hash(content).await {
                Ok(sha256) => Ok((sha256, Some(staged))),
                Err(error) => {
                    self.discard(staged).await;
                    Err(error)
                }
            };
        }
        let check = || self.running.check_transfer();
        let written = self.repository.stage(content.clone(), &check).await;
        match self.check_write(written)? {
            Some((staged, sha256)) => Ok((sha256, Some(staged))),
            None => Ok((self.hash(content).await?, None)),
        }
    }

    /// Stores a content that is hashed, and which a file of this machine may have.
    async fn put_file(&self, (sha256, content): (ContentDigest, Bytes), file: Option<&Path>) -> Result<()> {
        match self.share_blocks(file, content.len() as u64).await? {
            Some(staged) => self.name_content(sha256, staged).await,
            None => self.put_content(sha256, content).await,
        }
    }

    /// Makes a content without a copy of the blocks of a file, where the file system of the repository can.
    async fn share_blocks(&self, file: Option<&Path>, bytes: u64) -> Result<Option<StagedObject>> {
        let Some(file) = file else { return Ok(None) };
        let check = || self.running.check_transfer();
        self.check_write(self.repository.stage_reflink((file, bytes), &check).await)
    }

    /// Removes what was written in vain.
    async fn discard(&self, staged: StagedObject) {
        if let Err(error) = staged.discard().await {
            tracing::warn!(%error, "cannot remove a file under construction; a cleanup will");
        }
    }

    async fn name_content(&self, digest: ContentDigest, staged: StagedObject) -> Result<()> {
        self.note_name(digest);
        self.check_write(self.repository.name_content(digest, staged).await)
    }

    /// Notes that a content gets its name, also where that fails.
    fn note_name(&self, digest: ContentDigest) {
        self.named.lock().insert(digest.as_bytes()[0], digest);
    }

    async fn put_content(&self, digest: ContentDigest, content: Bytes) -> Result<()> {
        self.note_name(digest);
        let check = || self.running.check_transfer();
        let put = self.repository.put_content(digest, content, &check).await;
        self.check_write(put)
    }

    async fn put_bytes(&self, content: Bytes) -> Result<FileReference> {
        let bytes = content.len() as u64;
        let reference = FileReference { sha256: self.hash(content.clone()).await?, bytes };
        if !self.has(reference) {
            self.put_content(reference.sha256, content).await?;
            self.added(reference);
        }
        Ok(reference)
    }

    /// Stores the rows of a shard that no stored segment has, as a segment of their own.
    async fn store_unflushed(
        &self,
        index: &IndexCapture,
        shard: &ShardCapture,
        progress: &IndexProgress,
    ) -> Result<Result<Option<SegmentContents>, String>> {
        if !shard.has_unflushed() {
            return Ok(Ok(None));
        }
        let merged = match self.service.inner.engine.merge_unflushed(index, shard).await {
            Ok(Some(merged)) => merged,
            Ok(None) => return Ok(Ok(None)),
            Err(error) => return Ok(Err(error.to_string())),
        };
        let mut files = BTreeMap::new();
        for (path, scratch) in &merged.files {
            let kind = SegmentFile::ALL.into_iter().find(|file| file_path(&merged.record, *file) == *path);
            let Some(kind) = kind else { continue };
            let sha256 = self.repository.hash_file(scratch).await?;
            let reference = FileReference { sha256, bytes: kind.bytes(&merged.record) };
            let is_new = !self.has(reference);
            progress.note_found(reference.bytes);
            if is_new {
                self.note_name(sha256);
                let check = || self.running.check_transfer();
                let put = self.repository.put_content_file(sha256, scratch, &check).await;
                self.check_write(put)?;
                self.added(reference);
            }
            progress.note_file(reference.bytes, is_new);
            files.insert(kind, reference);
        }
        Ok(SegmentContents::new(merged.record.clone(), &files, None).map(Some))
    }

    /// Stores the accounts as they are now.
    pub(crate) async fn store_accounts(&self) -> Result<(ContentDigest, u64)> {
        let fail = |reason| self.running.fail(format!("cannot read the accounts: {reason}"));
        let records = self.service.accounts()?.export().await.map_err(fail)?;
        let state = AccountState::new(records);
        let encoded = sync::blocking(move || encode_json(&state).map_err(StoreError::Internal)).await?;
        let reference = self.put_bytes(encoded.into()).await?;
        Ok((reference.sha256, reference.bytes))
    }

    pub(crate) async fn store_global_state(&self, capture: &StoreCapture) -> Result<(ContentDigest, u64)> {
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
