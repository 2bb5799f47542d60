//! Durable truth of Millrace: write-ahead log, memtables, shards, deletes, compaction and the change feed.
//!
//! [`Engine`] is the way in. It is handed operations by `millrace-api` (and later by pipelines),
//! and hands immutable [`Snapshot`]s to `millrace-query`. The order of a write is: resolve the
//! index, coerce by its mapping, check versions under the shard's lock, append one frame to the
//! [`wal`], apply to the memtable, wait for the group's fsync, acknowledge.

pub mod access;
mod config;
mod engine;
pub mod repair;
mod shard;
mod slow_log;
pub mod wal;

pub use access::Session;
pub use config::Config;
pub use engine::*;
pub use slow_log::SlowWork;
pub use wal::ReplayProgress;
