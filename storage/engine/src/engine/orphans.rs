//! Deletion of files that a crash left, and of those that nothing names any more.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use millrace_catalog::SegmentRecord;
use millrace_catalog::description::SEGMENT;
use millrace_runtime::{Result, sync};
use millrace_segment::{DeletesFile, deletes_generation};
use object_store::ObjectMeta;
use object_store::path::Path;
use uuid::Uuid;

use super::Inner;
use super::describe::{LoadedDescriptions, is_description};
use super::identity::segment_of;
use crate::repair::REPAIRED;

/// Time that a file must have been there before it is taken for an orphan that nobody misses.
const ORPHANED_MS: i64 = 24 * 60 * 60 * 1000;

/// Pause before orphans that could not be deleted are tried again.
const RETRY_MS: i64 = 10 * 60 * 1000;

/// A file that the catalog does not know and will never know again.
#[derive(Debug)]
pub(super) struct Orphan {
    pub(super) path: Path,
    modified_ms: i64,
}

/// Finds what a crash left of an unfinished commit, or of what was replaced: files of segments that
/// the catalog does not know, and deletes files of generations up to the one that it knows, but for the file that it names.
/// One of the next generation is of a commit that was cut short: it is an orphan once another commit has that generation.
pub(super) fn find_orphans(
    listed: &[ObjectMeta],
    segments: &[SegmentRecord],
    described: &LoadedDescriptions,
) -> Vec<Orphan> {
    let known: HashMap<Uuid, &SegmentRecord> = segments.iter().map(|s| (s.id, s)).collect();
    let present: HashSet<&Path> = listed.iter().map(|object| &object.location).collect();
    // What a repair did not take up has its time from then on.
    let repaired = listed.iter().find(|object| object.location.as_ref() == REPAIRED);
    let repaired_ms = repaired.map_or(i64::MIN, |object| object.last_modified.timestamp_millis());
    let is_orphan = |path: &Path| match segment_of(path).map(|id| known.get(&id)) {
        // Not a file of a segment, or one of a segment that the catalog does not know.
        None | Some(None) => described.is_orphan(path),
        Some(Some(record)) => {
            let Ok(current) = DeletesFile::from_record(record).map(|file| file.path(record)) else {
                return false;
            };
            let generation = path.filename().and_then(deletes_generation);
            // Where the current one is missing, another is all there is: the shard is put out of use.
            generation.is_some_and(|generation| generation <= record.delete_generation)
                && *path != current
                && present.contains(&current)
        }
    };
    let orphan = |object: &ObjectMeta| Orphan {
        path: object.location.clone(),
        modified_ms: object.last_modified.timestamp_millis().max(repaired_ms),
    };
    listed.iter().filter(|object| is_orphan(&object.location)).map(orphan).collect()
}

impl Inner {
    /// Deletes orphans whose time has come, and what could not be deleted before.
    pub(super) fn delete_orphans(self: &Arc<Self>) {
        let now_ms = self.clock.now_ms();
        let mut due: Vec<Orphan> = {
            let mut orphans = self.orphans.lock();
            orphans
                .extract_if(.., |orphan| now_ms.saturating_sub(orphan.modified_ms) >= ORPHANED_MS)
                .collect()
        };
        let mut leftovers = std::mem::take(&mut *self.services.leftovers.lock());
        if due.is_empty() && leftovers.is_empty() {
            return;
        }
        let inner = Arc::clone(self);
        sync::detached(async move {
            let files = due.len() + leftovers.len();
            if let Err(error) = inner.delete_unused(&mut due, &mut leftovers).await {
                tracing::warn!(%error, "cannot delete unused files; it will be tried again");
                let later_ms = inner.clock.now_ms() - ORPHANED_MS + RETRY_MS;
                due.iter_mut().for_each(|orphan| orphan.modified_ms = later_ms);
                inner.orphans.lock().append(&mut due);
                inner.services.leftovers.lock().append(&mut leftovers);
                return;
            }
            tracing::info!(files, "unused files deleted");
        });
    }

    /// Deletes files and directories, and takes what is gone out of the lists.
    async fn delete_unused(&self, files: &mut Vec<Orphan>, directories: &mut Vec<Path>) -> Result<()> {
        let objects = &self.env().objects;
        // Descriptions first: without, what is left of a segment that is being deleted says nothing.
        files.sort_by_key(|orphan| is_description(&orphan.path));
        while let Some(orphan) = files.last() {
            match is_description(&orphan.path) {
                true => objects.delete_durably(&orphan.path).await?,
                false => objects.delete(&orphan.path).await?,
            }
            files.pop();
        }
        while let Some(directory) = directories.last() {
            objects.delete_durably(&directory.clone().join(SEGMENT)).await?;
            objects.delete_all(directory).await?;
            directories.pop();
        }
        Ok(())
    }
}
