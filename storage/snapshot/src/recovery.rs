//! Progress of restores, by index and shard: `_recovery` shows it.
//!
//! An index stays here until it is deleted, or the process ends. A restore that fails takes its indices away.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use millrace_catalog::metadata::Metadata;
use parking_lot::Mutex;
use uuid::Uuid;

/// Files of a shard that a restore brings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardRecovery {
    /// Files.
    pub files: u64,
    /// Files that are here.
    pub recovered_files: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Bytes of the files that are here.
    pub recovered_bytes: u64,
}

impl FromIterator<u64> for ShardRecovery {
    /// Makes the recovery of files of so many bytes, of which none is here.
    fn from_iter<I: IntoIterator<Item = u64>>(files: I) -> Self {
        files.into_iter().fold(Self::default(), |sum, bytes| Self {
            files: sum.files + 1,
            bytes: sum.bytes.saturating_add(bytes),
            ..sum
        })
    }
}

/// Restore of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexRecovery {
    /// Name in this store.
    pub index: String,
    /// Name of the repository.
    pub repository: String,
    /// Name of the snapshot.
    pub snapshot: String,
    /// Name of the index in the snapshot; `None` where the process before began the restore.
    pub source_index: Option<String>,
    /// Time of the begin, in milliseconds since the epoch.
    pub started_ms: i64,
    /// Time of the end; `None` while files are copied.
    pub ended_ms: Option<i64>,
    /// Shards in order.
    pub shards: Vec<ShardRecovery>,
}

/// Restores of this process by the uuids of their indices.
#[derive(Debug, Default)]
pub(crate) struct RecoveryRegistry(Mutex<HashMap<Uuid, Arc<IndexRecovery>>>);

impl RecoveryRegistry {
    /// Adds a restore.
    pub(crate) fn begin(&self, uuid: Uuid, recovery: IndexRecovery) {
        self.0.lock().insert(uuid, Arc::new(recovery));
    }

    /// Removes the restores of deleted indices.
    pub(crate) fn prune(&self, metadata: &Metadata) {
        let existing: HashSet<Uuid> = metadata.indices().map(|meta| meta.uuid).collect();
        self.0.lock().retain(|uuid, known| known.ended_ms.is_none() || existing.contains(uuid));
    }

    /// Notes that a file is here.
    pub(crate) fn note_file(&self, uuid: &Uuid, shard: u32, bytes: u64) {
        let mut all = self.0.lock();
        let recovery = all.get_mut(uuid).map(Arc::make_mut);
        let shard = recovery.and_then(|recovery| recovery.shards.get_mut(shard as usize));
        if let Some(shard) = shard {
            shard.recovered_files += 1;
            shard.recovered_bytes += bytes;
        }
    }

    /// Notes that all files of an index are here.
    pub(crate) fn end(&self, uuid: &Uuid, now_ms: i64) {
        if let Some(recovery) = self.0.lock().get_mut(uuid) {
            Arc::make_mut(recovery).ended_ms = Some(now_ms);
        }
    }

    /// Removes the restore of an index that is not restored.
    pub(crate) fn remove(&self, uuid: &Uuid) {
        self.0.lock().remove(uuid);
    }

    /// Lists the restores of indices that exist, or that are being made, by uuid.
    pub(crate) fn list(&self, metadata: &Metadata) -> HashMap<Uuid, Arc<IndexRecovery>> {
        self.prune(metadata);
        self.0.lock().clone()
    }
}
