//! The write-ahead log: one a node, of frames, with group commit.
//!
//! A [`Frame`](millrace_catalog::frame::Frame) is everything that one request or source batch changes, on all shards that it
//! touches; it is there after a crash as a whole or not at all. [`Wal::append`] gives it its number
//! and queues it, under the caller's shard locks, and the caller says when its effect is in memory ([`UnappliedFrame`]); one writer thread writes all that is queued,
//! syncs once, and wakes everybody who waits in [`Wal::synced`]. At start, [`Wal::open`] hands the
//! intact frames to the engine's recovery; [`Wal::read`] serves readers of the change feed that
//! fell behind, [`Wal::recent`] those that keep up; [`Wal::remove_oldest`] drops a file that the catalog has made superfluous.
//!
//! Files, framing, group marks and the rule that tells a torn tail from damage are described in
//! `docs/internals/log-format.md`.

mod encoding;
mod files;
mod log;
mod progress;
mod queue;
mod recent;
mod record;
mod recovery;
#[cfg(test)]
mod tests;
mod writer;

pub use log::{EncodedFrame, Options, UnappliedFrame, Wal};
pub use progress::ReplayProgress;
pub use recovery::{Origin, begin_at, origin, survey};
