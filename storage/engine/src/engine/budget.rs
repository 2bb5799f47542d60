//! The bound on memory for documents that no stored segment holds yet: writers wait for it, and are
//! refused when waiting takes too long.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millrace_runtime::{Error, Result};
use tokio::sync::{Mutex, Notify};

/// Bytes of unflushed documents and of requests on their way in.
#[derive(Debug)]
pub(super) struct Budget {
    max: u64,
    /// All of them.
    used: AtomicU64,
    /// Those of requests on their way in, which no flush frees.
    reserved: AtomicU64,
    freed: Notify,
    /// Held by the request that is next, so that a large one is not overtaken for ever.
    granting: Mutex<()>,
    /// Bytes that the request asks for that is next and has to wait; 0 where none does.
    wanted: AtomicU64,
    /// Told when somebody begins to wait.
    pressed: Arc<Notify>,
}

impl Budget {
    pub(super) fn new(max: u64, pressed: Arc<Notify>) -> Self {
        Self {
            max,
            pressed,
            used: AtomicU64::new(0),
            freed: Notify::new(),
            granting: Mutex::new(()),
            reserved: AtomicU64::new(0),
            wanted: AtomicU64::new(0),
        }
    }

    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    pub(super) fn max(&self) -> u64 {
        self.max
    }

    /// Bytes of documents that are to be flushed: those beyond half of the bound, and as many as the request that
    /// waits needs.
    pub(super) fn excess(&self) -> u64 {
        let used = self.used();
        let unflushed = used.saturating_sub(self.reserved.load(Ordering::Relaxed));
        let missing = match self.wanted.load(Ordering::Relaxed) {
            0 => 0,
            wanted => used.saturating_add(wanted).saturating_sub(self.max),
        };
        missing.min(unflushed).max(unflushed.saturating_sub(self.max / 2))
    }

    /// Adds bytes that are held from now on.
    pub(super) fn add(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Gives bytes back.
    pub(super) fn free(&self, bytes: u64) {
        let before =
            self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |u| Some(u.saturating_sub(bytes)));
        debug_assert!(before.is_ok_and(|before| before >= bytes), "more was freed than added");
        self.freed.notify_waiters();
    }

    /// Waits until a request of so many bytes fits, and reserves them. A request larger than the
    /// bound is let in when nothing else is.
    ///
    /// # Errors
    /// [`Error::Rejected`] when it does not fit within `timeout`.
    pub(super) async fn reserve(&self, bytes: u64, timeout: Duration) -> Result<Reservation<'_>> {
        match tokio::time::timeout(timeout, self.take(bytes, 0)).await {
            Ok(()) => Ok(Reservation { budget: self, bytes }),
            Err(_) => Err(self.rejection(bytes)),
        }
    }

    fn rejection(&self, bytes: u64) -> Error {
        Error::Rejected(format!(
            "{bytes} bytes do not fit into storage.memtable_max_bytes [{}], of which {} are unflushed; retry later",
            self.max,
            self.used()
        ))
    }

    /// Waits until bytes fit beside what others hold: `own` are those that the request has already, which are let be where
    /// nothing else is.
    async fn take(&self, bytes: u64, own: u64) {
        let _one = self.granting.lock().await;
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                (used <= own || used + bytes <= self.max).then_some(used + bytes)
            });
            if taken.is_ok() {
                self.reserved.fetch_add(bytes, Ordering::Relaxed);
                return;
            }
            let _waiting = PendingReservation::new(&self.wanted, bytes);
            self.pressed.notify_one();
            freed.await;
        }
    }
}

/// Says what the waiting request wants until it is dropped; there is one at most.
struct PendingReservation<'a>(&'a AtomicU64);

impl<'a> PendingReservation<'a> {
    fn new(wanted: &'a AtomicU64, bytes: u64) -> Self {
        wanted.store(bytes.max(1), Ordering::Relaxed);
        Self(wanted)
    }
}

impl Drop for PendingReservation<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Bytes of a request while it is parsed; given back when dropped.
#[derive(Debug)]
pub(super) struct Reservation<'a> {
    budget: &'a Budget,
    bytes: u64,
}

impl Reservation<'_> {
    /// Returns how many bytes it holds.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Waits until so many bytes more fit, and holds them, too.
    ///
    /// # Errors
    /// [`Error::Rejected`] when they do not fit within `timeout`.
    pub(super) async fn grow(&mut self, bytes: u64, timeout: Duration) -> Result<()> {
        match tokio::time::timeout(timeout, self.budget.take(bytes, self.bytes)).await {
            Ok(()) => {
                self.bytes += bytes;
                Ok(())
            }
            Err(_) => Err(self.budget.rejection(bytes)),
        }
    }

    /// Gives back what it holds beyond so many bytes.
    pub(super) fn shrink_to(&mut self, bytes: u64) {
        let more = self.bytes.saturating_sub(bytes);
        self.bytes -= more;
        self.budget.reserved.fetch_sub(more, Ordering::Relaxed);
        self.budget.free(more);
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.budget.reserved.fetch_sub(self.bytes, Ordering::Relaxed);
        self.budget.free(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_writer_waits_and_is_then_refused() {
        let budget = Budget::new(100, Arc::default());
        budget.add(80);
        let error = budget.reserve(30, Duration::from_secs(1)).await.unwrap_err();
        assert!(matches!(error, Error::Rejected(_)), "{error}");
        let (reserved, ()) =
            tokio::join!(budget.reserve(30, Duration::from_secs(1)), async { budget.free(50) });
        drop(reserved.unwrap());
        assert_eq!(budget.used(), 30);
        budget.free(30);
        assert!(budget.reserve(1_000, Duration::ZERO).await.is_ok(), "a large request alone is let in");
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_grows_and_shrinks_what_it_holds() {
        let budget = Budget::new(100, Arc::default());
        let second = Duration::from_secs(1);
        let mut own = budget.reserve(10, second).await.unwrap();
        own.grow(60, second).await.unwrap();
        let other = budget.reserve(30, second).await.unwrap();
        assert!(matches!(own.grow(1, second).await, Err(Error::Rejected(_))));
        assert_eq!((own.bytes(), budget.used()), (70, 100));
        drop(other);
        own.grow(1_000, second).await.unwrap();
        own.shrink_to(10);
        assert_eq!((own.bytes(), budget.used()), (10, 10));
        drop(own);
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_to_be_flushed_is_what_is_beyond_half_or_missing_to_who_waits() {
        let budget = Budget::new(100, Arc::default());
        let large = budget.reserve(70, Duration::ZERO).await.unwrap();
        budget.add(20);
        assert_eq!(budget.excess(), 0, "what is on its way in cannot be flushed");
        let wait = Duration::from_secs(1);
        let (refused, ()) = tokio::join!(budget.reserve(25, wait), async {
            tokio::task::yield_now().await;
            assert_eq!(budget.excess(), 15);
            budget.add(40);
            assert_eq!(budget.excess(), 55);
            budget.free(40);
        });
        refused.unwrap_err();
        assert_eq!(budget.excess(), 0);
        drop(large);
        budget.add(40);
        assert_eq!(budget.excess(), 10);
    }
}
