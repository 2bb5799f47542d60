//! Locks that tasks await.

use std::sync::Arc;

use tokio::sync::{Mutex, MutexGuard, OwnedMutexGuard};

use super::order::{HeldLock, LockRank};

/// A lock that orders work of any length. It guards no value: what it orders is behind locks that are held for
/// moments.
#[derive(Debug)]
pub struct AsyncMutex {
    place: LockRank,
    inner: Arc<Mutex<()>>,
}

/// Holds an [`AsyncMutex`].
#[derive(Debug)]
#[must_use]
pub struct AsyncMutexGuard<'a> {
    _inner: Guard<'a>,
    _held: HeldLock,
}

#[derive(Debug)]
enum Guard<'a> {
    Borrowed(#[allow(dead_code, reason = "held until it is dropped")] MutexGuard<'a, ()>),
    Owned(#[allow(dead_code, reason = "held until it is dropped")] OwnedMutexGuard<()>),
}

impl AsyncMutex {
    /// Makes a lock with its place in the order.
    pub fn new(place: LockRank) -> Self {
        Self { place, inner: Arc::default() }
    }

    /// Waits for the lock, within a [`super::scope`]. Cancellation safe.
    pub async fn lock(&self) -> AsyncMutexGuard<'_> {
        let held = HeldLock::take_in_scope(self.place);
        #[cfg(any(test, feature = "testing"))]
        super::model::before(self.place, &self.inner);
        AsyncMutexGuard { _inner: Guard::Borrowed(self.inner.lock().await), _held: held }
    }

    /// Waits for the lock as [`AsyncMutex::lock`] does; what holds it may go to a scope that follows on this one.
    pub async fn lock_owned(&self) -> AsyncMutexGuard<'static> {
        let held = HeldLock::take_in_scope(self.place);
        #[cfg(any(test, feature = "testing"))]
        super::model::before(self.place, &self.inner);
        AsyncMutexGuard { _inner: Guard::Owned(Arc::clone(&self.inner).lock_owned().await), _held: held }
    }

    /// Waits for the lock by blocking the thread.
    ///
    /// # Panics
    /// On a thread of the runtime.
    pub fn blocking_lock(&self) -> AsyncMutexGuard<'_> {
        let held = HeldLock::take(self.place);
        #[cfg(any(test, feature = "testing"))]
        if super::modelled() {
            super::model::point();
            let inner = Guard::Borrowed(shuttle::future::block_on(self.inner.lock()));
            return AsyncMutexGuard { _inner: inner, _held: held };
        }
        AsyncMutexGuard { _inner: Guard::Borrowed(self.inner.blocking_lock()), _held: held }
    }
}
