//! The engine's locks, in the one order in which they are taken, and the ways in which it runs work beside its
//! callers.
//!
//! Two kinds of locks. [`Mutex`] and [`RwLock`] block their thread: they are held for moments, over no await, no file
//! and no call of the catalog, so that the runtime's own threads may take them. [`AsyncMutex`] orders work that
//! takes its time: tasks await it, and only compute threads, which are none of the runtime's, wait for it by
//! blocking ([`AsyncMutex::blocking_lock`], which panics on the runtime).
//!
//! Whoever holds a lock takes only locks that come after it: those of a greater [`Rank`], and of the same rank those of a
//! greater index and shard. So nobody ever waits in a circle. Debug builds check it at each
//! lock, also where nobody waits (`order.rs`); asynchronous locks are taken within [`scope`], which tells the check what
//! one piece of work holds, on whichever threads it runs.
//!
//! In the unit tests' build all of it can be played by a model checker, which then decides who goes on
//! (`model.rs`): the functions are the shipped ones, only what they wait on is not.

mod asynchronous;
mod blocking;
#[cfg(any(test, feature = "testing"))]
pub mod model;
mod order;
mod tasks;

pub use self::asynchronous::{AsyncMutex, AsyncMutexGuard};
pub use self::blocking::{Condvar, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use self::order::{LockRank, scope};
pub use self::tasks::{Thread, block_on, blocking, detached, spawn_thread, uninterrupted};

/// Rank of a lock. Locks are taken in ascending order; the fields that they guard say more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// One change of indices, aliases, templates or cluster settings.
    MetadataChange,
    /// One change of an index's mapping or settings.
    MappingChange,
    /// One cut of the log.
    Cut,
    /// One flush, or one compaction, of a shard.
    ShardWork,
    /// One catalog commit of a shard.
    Committing,
    /// One commit with a mapping, over all shards.
    Commits,
    /// One change of what searches see of a shard.
    Refreshing,
    /// One change of a shard's state.
    ShardWrite,
    /// A shard's state itself.
    State,
    /// Positions of sources.
    Positions,
    /// Positions of readers of the log.
    Leases,
    /// Frames on their way into the log.
    LogQueue,
    /// Jobs on their way to compute threads.
    Jobs,
    /// Counts of compute threads.
    Threads,
}

/// Returns whether a model checker runs the calling code.
#[cfg(not(any(test, feature = "testing")))]
pub const fn modelled() -> bool {
    false
}

#[cfg(any(test, feature = "testing"))]
pub use self::model::modelled;
