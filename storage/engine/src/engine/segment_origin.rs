//! Restored segments whose files are still in a repository.
//!
//! The record of such a segment has its [`SegmentOrigin`] among its other facts, so the catalog knows it with the same transaction as the
//! index. Reads of the files go to the repository ([`ObjectOrigin`]). A file whose copy is here in full counts as copied: no commit is needed
//! for each, and a start finds the ones that are missing while the index is being restored ([`Engine::take_pending_segments`]). Afterwards
//! a missing file is damage, although the record keeps its origin.

use std::path::PathBuf;
use std::sync::Arc;

use millrace_catalog::SegmentRecord;
use millrace_catalog::access::Principal;
use millrace_catalog::metadata::{IndexMeta, Metadata, MetadataChange, Uuid};
use millrace_runtime::Result;
use millrace_segment::objects::{ObjectOrigin, Objects};
use millrace_segment::{DeletesFile, SegmentFile, file_path};
use object_store::path::Path;
use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};

use super::restore::AdoptedSegment;
use super::{Engine, Inner};

/// Key of a record's `extra`.
const ORIGIN: &str = "origin";

/// Place of the files of a restored segment until their copies are here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentOrigin {
    /// Name of the repository.
    pub repository: String,
    /// Name of the snapshot.
    pub snapshot: String,
    /// Path of `data.parquet` in the repository.
    pub data: String,
    /// Path of `index.bundle`.
    pub bundle: String,
    /// Path of `ids`, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ids: Option<String>,
}

impl SegmentOrigin {
    fn from_record(record: &SegmentRecord) -> Option<Self> {
        record.extra.get(ORIGIN).and_then(|value| Self::deserialize(value).ok())
    }

    fn write_to(&self, record: &mut SegmentRecord) {
        if !record.extra.is_object() {
            record.extra = serde_json::json!({});
        }
        record.extra[ORIGIN] = serde_json::json!(self);
    }

    /// Takes the origin out of a record that goes to another store.
    pub(crate) fn remove_from(record: &mut SegmentRecord) {
        if let Some(extra) = record.extra.as_object_mut() {
            extra.remove(ORIGIN);
        }
    }

    fn path(&self, file: SegmentFile) -> Option<Path> {
        let path = match file {
            SegmentFile::Data => Some(&self.data),
            SegmentFile::Bundle => Some(&self.bundle),
            SegmentFile::Ids => self.ids.as_ref(),
        };
        path.map(|path| Path::from(path.as_str()))
    }
}

/// A restored segment whose files are not all here.
#[derive(Clone, Debug)]
pub struct PendingSegment {
    /// Its record.
    pub record: SegmentRecord,
    /// Place of its files.
    pub origin: SegmentOrigin,
}

impl PendingSegment {
    /// Lists its files with their lengths and their paths in the repository.
    pub fn files(&self) -> impl Iterator<Item = (SegmentFile, u64, Path)> {
        let files = SegmentFile::ALL.into_iter().filter(|file| file.bytes(&self.record) > 0);
        files.filter_map(|file| Some((file, file.bytes(&self.record), self.origin.path(file)?)))
    }
}

impl Inner {
    /// Has reads of the files of restored indices that a start does not find go to repositories, which are not open yet.
    pub(super) fn find_pending<'a>(
        objects: &Objects,
        records: impl IntoIterator<Item = &'a SegmentRecord>,
        is_here: impl Fn(&Path, u64) -> bool,
    ) -> Vec<PendingSegment> {
        let mut pending = Vec::new();
        for record in records {
            let Some(origin) = SegmentOrigin::from_record(record) else { continue };
            let segment = PendingSegment { record: record.clone(), origin };
            let mut is_pending = false;
            for (file, bytes, _) in segment.files() {
                let path = file_path(record, file);
                if !is_here(&path, bytes) {
                    let name = format!("snapshot repository [{}]", segment.origin.repository);
                    objects.set_origin(path, ObjectOrigin::Closed(name));
                    is_pending = true;
                }
            }
            if is_pending {
                pending.push(segment);
            }
        }
        pending
    }
}

impl Engine {
    /// Takes a segment over whose files a repository holds for now, for a shard of an index to come. Searches read them there.
    ///
    /// # Errors
    /// The object store's, which takes the deletions.
    pub async fn adopt_remote(
        &self,
        (index, shard): (Uuid, u32),
        record: &SegmentRecord,
        deleted: RoaringBitmap,
        origin: SegmentOrigin,
        repository: &Objects,
    ) -> Result<(AdoptedSegment, PendingSegment)> {
        let mut record = SegmentRecord { id: Uuid::new_v4(), index, shard, ..record.clone() };
        origin.write_to(&mut record);
        let mut deletes = DeletesFile::default();
        if !deleted.is_empty() {
            let (file, bytes) = DeletesFile::encode(&deleted, 1)?;
            self.objects().put(&file.path(&record), bytes).await?;
            deletes = file;
        }
        deletes.write_to(&mut record);
        let pending = PendingSegment { record: record.clone(), origin };
        for (file, _, path) in pending.files() {
            let here = file_path(&pending.record, file);
            self.objects().set_origin(here, ObjectOrigin::Store(repository.clone(), path));
        }
        Ok((AdoptedSegment::new(record, deletes, deleted), pending))
    }

    /// Has reads of the missing files of a segment go to an open repository.
    pub fn open_pending(&self, segment: &PendingSegment, repository: &Objects) {
        for (file, _, path) in segment.files() {
            let here = file_path(&segment.record, file);
            // A file that is copied, or whose segment is deleted, has none any more.
            if self.objects().has_origin(&here) {
                self.objects().set_origin(here, ObjectOrigin::Store(repository.clone(), path));
            }
        }
    }

    /// Returns whether files of a segment are still to be copied. Those of a deleted segment are not.
    pub fn is_pending(&self, segment: &PendingSegment) -> bool {
        segment.files().any(|(file, ..)| self.objects().has_origin(&file_path(&segment.record, file)))
    }

    /// Returns the segments that the start found without all their files; `None` once they were taken.
    pub fn take_pending_segments(&self) -> Option<Vec<PendingSegment>> {
        self.inner.pending_segments.lock().take()
    }

    /// Takes copies of the files of a segment into the object store; reads find them from then on. The copies of a segment that was
    /// deleted meanwhile are removed.
    ///
    /// # Errors
    /// The object store's; then reads go to the repository.
    pub async fn complete_segment(
        &self,
        segment: &PendingSegment,
        files: Vec<(SegmentFile, PathBuf)>,
    ) -> Result<()> {
        let targets: Vec<_> =
            files.into_iter().map(|(kind, file)| (file_path(&segment.record, kind), file)).collect();
        if !self.is_pending(segment) {
            for (_, file) in targets {
                self.remove_scratch(file).await;
            }
            return Ok(());
        }
        self.objects().put_files(&targets).await?;
        if !self.is_pending(segment) {
            // Its deletion has come between, and has not seen all copies.
            let SegmentRecord { index, shard, id, .. } = segment.record;
            self.discard_segments([(index, shard, id)]).await;
            return Ok(());
        }
        self.objects().remove_origins(targets.iter().map(|(path, _)| path));
        Ok(())
    }

    /// Has restored indices take writes, once all their files are here.
    ///
    /// # Errors
    /// The catalog's.
    pub async fn complete_restore(&self, indices: &[Uuid]) -> Result<()> {
        let principal = Principal::system();
        self.change(&principal, |state: &Metadata| Ok(state.complete_restore(indices))).await
    }

    /// Deletes restored indices whose files cannot be copied.
    ///
    /// # Errors
    /// The catalog's.
    pub async fn abandon_restore(&self, indices: &[Uuid]) -> Result<()> {
        let decide = |state: &Metadata| {
            let meant = state.indices().filter(|meta| indices.contains(&meta.uuid));
            let delete = |meta: &Arc<IndexMeta>| MetadataChange::DeleteIndex {
                name: Arc::clone(&meta.name),
                uuid: meta.uuid,
            };
            Ok(meant.map(delete).collect())
        };
        let principal = Principal::system();
        self.change(&principal, decide).await
    }
}
