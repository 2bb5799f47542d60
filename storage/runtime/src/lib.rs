//! The foundation of the store: errors, clocks, compute threads, locks, disks and caches.
//!
//! Every other crate of the store builds on it, and it knows nothing of indices. [`Error`] and its [`Kind`] say what a
//! caller must do; [`Compute`] runs CPU work beside the asynchronous runtime; [`sync`] has the locks in the one order in
//! which they are taken; [`disk`] is the file system, real or simulated; [`tasks`] lists the work that runs now and cancels it.

mod cancel_signal;
pub mod clock;
mod compute;
mod crypto;
pub mod disk;
pub mod error;
mod event_loop;
mod generational_cache;
mod histogram;
pub mod metrics;
pub mod murmur;
mod panics;
mod rate_limiter;
pub mod sync;
pub mod tasks;
pub mod weighted_lru;

pub use cancel_signal::CancelSignal;
pub use clock::{Clock, Instant, ManualClock, SharedClock, SystemClock};
pub use compute::{
    BusyThread, Compute, PoolActivity, Priority, run_behind_reads, run_promptly, wait_for_network,
};
pub use crypto::install_crypto_provider;
pub use error::{Error, Kind, Result};
pub use event_loop::{EventHandler, EventLoop, EventSender, Mailbox};
pub use generational_cache::GenerationalCache;
pub use histogram::{DurationHistogram, HistogramSnapshot};
pub use panics::{catch_panic, panic_text};
pub use rate_limiter::RateLimiter;
