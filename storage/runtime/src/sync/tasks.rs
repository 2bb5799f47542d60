//! Work beside its caller: tasks that end by themselves, threads that may block.

use tokio::runtime::Handle;

use super::scope;
use crate::{Error, Result};

/// Runs work to its end whatever becomes of the caller, and waits for it.
///
/// # Errors
/// The work's own, or [`Error::Internal`] where it panicked.
pub async fn uninterrupted<T: Send + 'static>(
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    if super::modelled() {
        return work.await;
    }
    let ended = tokio::spawn(scope(work)).await;
    ended.unwrap_or_else(|error| Err(Error::Internal(format!("a task of the store ended: {error}"))))
}

/// Starts work that nobody waits for.
pub fn detached(work: impl Future<Output = ()> + Send + 'static) {
    #[cfg(any(test, feature = "testing"))]
    if super::modelled() {
        drop(shuttle::future::spawn(work));
        return;
    }
    drop(tokio::spawn(scope(work)));
}

/// Runs work that blocks on files, or computes for a while where no compute thread is to be waited for, on a
/// thread of its own. Dropped, it goes on.
///
/// # Errors
/// The work's own, or [`Error::Internal`] where it panicked.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    if super::modelled() {
        return work();
    }
    let ended = tokio::task::spawn_blocking(work).await;
    ended.unwrap_or_else(|error| Err(Error::Internal(format!("a thread of the store ended: {error}"))))
}

/// Waits for a future by blocking the thread, which is none of the runtime's own.
pub fn block_on<F: Future>(runtime: &Handle, future: F) -> F::Output {
    #[cfg(any(test, feature = "testing"))]
    if super::modelled() {
        return shuttle::future::block_on(future);
    }
    runtime.block_on(future)
}

/// A thread of the store.
#[derive(Debug)]
pub enum Thread {
    /// One of the operating system's.
    Real(std::thread::JoinHandle<()>),
    /// One of the model checker's.
    #[cfg(any(test, feature = "testing"))]
    Model(shuttle::thread::JoinHandle<()>),
}

impl Thread {
    /// Waits until it has ended, however.
    pub fn join(self) {
        match self {
            Self::Real(thread) => drop(thread.join()),
            #[cfg(any(test, feature = "testing"))]
            Self::Model(thread) => drop(thread.join()),
        }
    }
}

/// Starts a thread; `stack_bytes` of stack, or as many as threads have by default.
///
/// # Errors
/// The operating system's.
pub fn spawn_thread(
    name: String,
    stack_bytes: Option<usize>,
    work: impl FnOnce() + Send + 'static,
) -> std::io::Result<Thread> {
    #[cfg(any(test, feature = "testing"))]
    if super::modelled() {
        return Ok(Thread::Model(shuttle::thread::spawn(work)));
    }
    let mut builder = std::thread::Builder::new().name(name);
    if let Some(bytes) = stack_bytes {
        builder = builder.stack_size(bytes);
    }
    builder.spawn(work).map(Thread::Real)
}
