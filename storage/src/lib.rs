//! Durable truth of Millrace: catalog, mappings, write-ahead log, memtables, segments, deletes,
//! compaction and the change feed.
//!
//! [`Engine`] is the way in. It is handed operations by `millrace-api` (and later by pipelines),
//! and hands immutable [`Snapshot`]s to `millrace-query`. The order of a write is: resolve the
//! index, coerce by [`mapping`], check versions under the shard's lock, append one frame to the
//! [`wal`], apply to the memtable, wait for the group's fsync, acknowledge.

pub mod access;
pub mod analysis;
pub mod automaton;
pub mod bundle;
pub mod catalog;
mod clock;
mod compute;
mod config;
mod description;
pub mod disk;
pub mod document;
mod engine;
mod error;
mod event_loop;
#[doc(hidden)]
pub mod fuzzing;
mod generational_cache;
pub mod mapping;
pub mod metadata;
pub mod murmur;
pub mod objects;
pub mod repair;
pub mod routing;
pub mod segment;
mod shard;
pub mod source;
mod sync;
pub mod wal;
mod weighted_lru;

pub use access::{Origin, Principal, Session};
pub use clock::{Clock, Instant, ManualClock, SharedClock, SystemClock};
pub use compute::{Compute, Priority, panic_text, run_behind_reads, run_promptly};
pub use config::{Config, ObjectStoreConfig};
pub use engine::*;
pub use error::{Error, Kind, Result};
pub use event_loop::{EventHandler, EventLoop, EventSender, Mailbox};
pub use generational_cache::GenerationalCache;
pub use wal::ReplayProgress;
