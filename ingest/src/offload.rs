//! Work that takes a processor for long, away from the threads that wait for sockets.

use std::future::pending;
use std::panic::resume_unwind;

use tokio::task::{JoinHandle, spawn_blocking};

/// Does work on a thread for such and answers what it gives. A panic goes on here. Work that was begun is done also where nobody waits
/// for it any more.
pub(crate) async fn offload<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    outcome(spawn_blocking(work)).await
}

/// Waits for work that was begun, and returns what it gives. A panic goes on here.
pub(crate) async fn outcome<T>(work: JoinHandle<T>) -> T {
    match work.await {
        Ok(given) => given,
        Err(ended) => match ended.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            // The runtime ends, and this with it.
            Err(_) => pending().await,
        },
    }
}
