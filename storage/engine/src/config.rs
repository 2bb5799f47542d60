//! The store's section of the configuration.

use std::path::PathBuf;

use millrace_segment::objects::ObjectStoreConfig;
use serde::{Deserialize, Serialize};

/// Location of the store's data, and its bounds.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Directory of log, catalog, cache and (with the local object store) segments.
    pub data_dir: PathBuf,
    /// Object store of segment files.
    pub object_store: ObjectStoreConfig,
    /// Bytes of unflushed documents over all shards; beyond it writers wait, then are refused.
    pub memtable_max_bytes: u64,
    /// Bytes of documents in one shard's memtable that start a flush.
    pub flush_bytes: u64,
    /// Age of the oldest unflushed document that starts a flush, in seconds.
    pub flush_age_secs: u64,
    /// Bytes of log beyond which the oldest memtables are flushed.
    pub wal_max_bytes: u64,
    /// Bytes of bundles kept on local disk for segments of a remote object store.
    pub cache_bytes: u64,
    /// Threads for parsing, searching, flushing and compacting; 0 means one a core.
    pub compute_threads: usize,
    /// `true` if the disk's watermarks have their effect, unless the cluster setting
    /// `cluster.routing.allocation.disk.threshold_enabled` says otherwise.
    pub disk_threshold_enabled: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            data_dir: PathBuf::from("data"),
            object_store: ObjectStoreConfig::Local,
            memtable_max_bytes: 128 << 20,
            flush_bytes: 32 << 20,
            flush_age_secs: 600,
            wal_max_bytes: 512 << 20,
            cache_bytes: 8 << 30,
            compute_threads: 0,
            // The server's configuration has it on; a library's or test's disk is not its own.
            disk_threshold_enabled: false,
        }
    }
}
