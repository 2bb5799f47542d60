//! Indices that an earlier snapshot stored, so that a snapshot of an unchanged one neither encodes nor hashes anything.
//!
//! An [`IndexFingerprint`] says what the contents of an index are made of. Two captures of the same fingerprint have the same contents.
//! The repository is asked for each file all the same: it may have lost some, or be another one.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use millrace_catalog::metadata::IndexMeta;
use millrace_engine::{IndexCapture, ShardCapture};
use millrace_mapping::Mapping;
use parking_lot::Mutex;
use uuid::Uuid;

use crate::contents::FileReference;
use crate::manifest::IndexSummary;

/// Files of all remembered indices, at most; beyond it all are forgotten, and encoded anew.
const MAX_FILES: usize = 500_000;

/// State of an index that decides its contents: metadata, mapping, and segments with their deletions.
#[derive(Debug)]
pub(crate) struct IndexFingerprint {
    meta: Arc<IndexMeta>,
    mapping: Arc<Mapping>,
    shards: Vec<ShardFingerprint>,
}

#[derive(Debug, PartialEq, Eq)]
struct ShardFingerprint {
    primary_term: u64,
    next_seq_no: u64,
    /// Segments with their deleted rows. Rows of a segment are only ever deleted, so their number says which they are.
    segments: Vec<(Uuid, u64)>,
}

impl IndexFingerprint {
    /// Makes the fingerprint of a capture; `None` where rows are in memory alone, or a shard cannot be read.
    pub(crate) fn new(index: &IndexCapture) -> Option<Self> {
        let shard = |shard: &ShardCapture| ShardFingerprint {
            primary_term: shard.primary_term,
            next_seq_no: shard.next_seq_no,
            segments: shard.segments.iter().map(|one| (one.record.id, one.deleted.len())).collect(),
        };
        if index.shards.len() != index.meta.shards as usize {
            return None;
        }
        let shards = index.shards.iter().map(|captured| match captured {
            Ok(captured) if !captured.has_unflushed() => Some(shard(captured)),
            _ => None,
        });
        let (meta, mapping) = (Arc::clone(&index.meta), Arc::clone(&index.mapping));
        Some(Self { meta, mapping, shards: shards.collect::<Option<_>>()? })
    }

    fn is_same(&self, other: &Self) -> bool {
        // Both are replaced as a whole when they change.
        Arc::ptr_eq(&self.meta, &other.meta)
            && Arc::ptr_eq(&self.mapping, &other.mapping)
            && self.shards == other.shards
    }
}

/// An index as a snapshot stored it.
#[derive(Debug)]
struct StoredIndexRecord {
    fingerprint: IndexFingerprint,
    summary: IndexSummary,
    files: Vec<FileReference>,
}

/// Indices of the last snapshots, by their uuids.
#[derive(Debug, Default)]
pub(crate) struct StoredIndices(Mutex<StoredIndicesState>);

#[derive(Debug, Default)]
struct StoredIndicesState {
    indices: HashMap<Uuid, StoredIndexRecord>,
    files: usize,
}

impl StoredIndices {
    /// Returns the summary of an index that was stored with the same fingerprint, if `has` finds each of its files.
    pub(crate) fn find(
        &self,
        fingerprint: &IndexFingerprint,
        has: impl Fn(FileReference) -> bool,
    ) -> Option<IndexSummary> {
        let state = self.0.lock();
        let stored = state.indices.get(&fingerprint.meta.uuid)?;
        let is_there = stored.fingerprint.is_same(fingerprint) && stored.files.iter().all(|file| has(*file));
        is_there.then(|| stored.summary.clone())
    }

    /// Remembers an index with all its files, that of its contents among them.
    pub(crate) fn insert(
        &self,
        fingerprint: IndexFingerprint,
        summary: IndexSummary,
        files: Vec<FileReference>,
    ) {
        let mut state = self.0.lock();
        if state.files + files.len() > MAX_FILES {
            *state = StoredIndicesState::default();
        }
        state.files += files.len();
        let record = StoredIndexRecord { fingerprint, summary, files };
        if let Some(before) = state.indices.insert(record.fingerprint.meta.uuid, record) {
            state.files -= before.files.len();
        }
    }

    /// Forgets the indices that are not there any more.
    pub(crate) fn retain(&self, existing: &HashSet<Uuid>) {
        let mut state = self.0.lock();
        state.indices.retain(|uuid, _| existing.contains(uuid));
        state.files = state.indices.values().map(|stored| stored.files.len()).sum();
    }
}
