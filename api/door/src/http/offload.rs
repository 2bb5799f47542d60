//! Keeping long computations from holding up the threads that serve connections.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Bytes of input from which work is not for the threads that serve connections.
pub const LARGE: usize = 256 << 10;

/// Runs CPU work over `bytes` of input, [`aside`] where that is much.
pub fn offload<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    if bytes > LARGE { aside(work) } else { work() }
}

/// Runs CPU work that may be long; where the runtime has several threads, other tasks of this thread move to another one first.
pub(super) fn aside<T>(work: impl FnOnce() -> T) -> T {
    let threaded =
        Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread);
    if threaded { tokio::task::block_in_place(work) } else { work() }
}
