//! Progress of restores, by index and shard: `_recovery` shows it.
//!
//! An index stays here until it is deleted, or the process ends. A restore that fails takes its indices away.

use std::collections::{HashMap, HashSet};

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

/// Restore of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexRecovery {
    /// Name in this store.
    pub index: String,
    /// Name of the repository.
    pub repository: String,
    /// Name of the snapshot.
    pub snapshot: String,
    /// Name of the index in the snapshot.
    pub source_index: String,
    /// Time of the begin, in milliseconds since the epoch.
    pub started_ms: i64,
    /// Time of the end; `None` while files are copied.
    pub ended_ms: Option<i64>,
    /// Shards in order.
    pub shards: Vec<ShardRecovery>,
}

/// Restores of this process by the uuids of their indices.
#[derive(Debug, Default)]
pub(crate) struct RecoveryRegistry(Mutex<HashMap<Uuid, IndexRecovery>>);

impl RecoveryRegistry {
    /// Adds a restore. Those of deleted indices go.
    pub(crate) fn begin(&self, uuid: Uuid, recovery: IndexRecovery, metadata: &Metadata) {
        let existing: HashSet<Uuid> = metadata.indices().map(|meta| meta.uuid).collect();
        let mut all = self.0.lock();
        all.retain(|uuid, known| known.ended_ms.is_none() || existing.contains(uuid));
        all.insert(uuid, recovery);
    }

    /// Notes that a file is here.
    pub(crate) fn note_file(&self, uuid: &Uuid, shard: u32, bytes: u64) {
        let mut all = self.0.lock();
        let shard = all.get_mut(uuid).and_then(|recovery| recovery.shards.get_mut(shard as usize));
        if let Some(shard) = shard {
            shard.recovered_files += 1;
            shard.recovered_bytes += bytes;
        }
    }

    /// Notes that all files of an index are here.
    pub(crate) fn end(&self, uuid: &Uuid, now_ms: i64) {
        if let Some(recovery) = self.0.lock().get_mut(uuid) {
            recovery.ended_ms = Some(now_ms);
        }
    }

    /// Removes the restore of an index that is not restored.
    pub(crate) fn remove(&self, uuid: &Uuid) {
        self.0.lock().remove(uuid);
    }

    /// Lists the restores of indices that exist, or that are being made, by uuid.
    pub(crate) fn list(&self, metadata: &Metadata) -> HashMap<Uuid, IndexRecovery> {
        let existing: HashSet<Uuid> = metadata.indices().map(|meta| meta.uuid).collect();
        let mut all = self.0.lock().clone();
        all.retain(|uuid, known| known.ended_ms.is_none() || existing.contains(uuid));
        all
    }
}
