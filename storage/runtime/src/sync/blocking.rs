//! Locks that are held for moments.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use super::Rank;
#[cfg(any(test, feature = "testing"))]
use super::model::locks as raw;
use super::order::{HeldLock, LockRank};
#[cfg(not(any(test, feature = "testing")))]
use parking_lot as raw;

/// A lock of one holder. Held over no await.
pub struct Mutex<T> {
    place: LockRank,
    inner: raw::Mutex<T>,
}

/// Holds a [`Mutex`].
#[must_use]
pub struct MutexGuard<'a, T> {
    inner: raw::MutexGuard<'a, T>,
    _held: HeldLock,
}

impl<T> Mutex<T> {
    /// Makes a lock with its place in the order.
    pub fn new(rank: Rank, value: T) -> Self {
        Self { place: LockRank::new(rank), inner: raw::Mutex::new(value) }
    }

    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let held = HeldLock::take(self.place);
        MutexGuard { inner: self.inner.lock(), _held: held }
    }
}

impl<T: fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<T: fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// Wakes threads that wait with a [`Mutex`].
#[derive(Default)]
pub struct Condvar(raw::Condvar);

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Condvar").finish_non_exhaustive()
    }
}

impl Condvar {
    /// Lets go of the lock, waits to be woken, and takes it again.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        self.0.wait(&mut guard.inner);
    }

    /// Waits as [`Condvar::wait`] does, no longer than `time`.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, time: Duration) {
        self.0.wait_for(&mut guard.inner, time);
    }

    /// Wakes one of those that wait.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all that wait.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// A lock of many readers or one writer. Held over no await.
pub struct RwLock<T> {
    place: LockRank,
    inner: raw::RwLock<T>,
}

/// Holds a [`RwLock`] with other readers.
#[must_use]
pub struct RwLockReadGuard<'a, T> {
    inner: raw::RwLockReadGuard<'a, T>,
    _held: HeldLock,
}

/// Holds a [`RwLock`] alone.
#[must_use]
pub struct RwLockWriteGuard<'a, T> {
    inner: raw::RwLockWriteGuard<'a, T>,
    _held: HeldLock,
}

impl<T> RwLock<T> {
    /// Makes a lock with its place in the order.
    pub fn new(place: LockRank, value: T) -> Self {
        Self { place, inner: raw::RwLock::new(value) }
    }

    /// Waits for the lock, to be shared with other readers.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let held = HeldLock::take(self.place);
        RwLockReadGuard { inner: self.inner.read(), _held: held }
    }

    /// Waits for the lock, to be held alone.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let held = HeldLock::take(self.place);
        RwLockWriteGuard { inner: self.inner.write(), _held: held }
    }
}

impl<T: fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<'a, T> RwLockWriteGuard<'a, T> {
    /// Lets go of the lock, to those who wait for it first.
    pub fn unlock_fair(guard: Self) {
        raw::RwLockWriteGuard::unlock_fair(guard.inner);
    }
}

impl<T> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: fmt::Debug> fmt::Debug for RwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: fmt::Debug> fmt::Debug for RwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}
