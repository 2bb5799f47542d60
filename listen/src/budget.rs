//! Bytes in memory, counted before they are there.
//!
//! A [`Budget`] is one bound that many parts share: each reserves before it allocates, and gives back by
//! dropping its [`Reservation`]. Who is refused answers "too much at once" (429) and holds nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::{Mutex, Notify};

/// A bound in bytes; its clones are the same one.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limit: u64,
    used: AtomicU64,
    /// Who waits for room, in the order of asking.
    turn: Mutex<()>,
    waiting: AtomicUsize,
    released: Notify,
}

/// A refused reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("[{wanted}] bytes do not fit beside the [{used}] bytes in use: the limit is [{limit}]")]
pub struct Exceeded {
    /// Bytes that were asked for.
    pub wanted: u64,
    /// Bytes reserved at that time.
    pub used: u64,
    /// Bytes that may be reserved in all.
    pub limit: u64,
}

/// Bytes of a budget, given back on drop.
#[derive(Debug)]
#[must_use = "dropping it gives the bytes back"]
pub struct Reservation {
    budget: Budget,
    bytes: u64,
}

impl Budget {
    /// Makes a budget of `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self(Arc::new(Inner {
            limit,
            used: AtomicU64::new(0),
            turn: Mutex::new(()),
            waiting: AtomicUsize::new(0),
            released: Notify::new(),
        }))
    }

    /// Returns the bytes that may be reserved in all.
    pub fn limit(&self) -> u64 {
        self.0.limit
    }

    /// Returns the bytes reserved now.
    pub fn used(&self) -> u64 {
        self.0.used.load(Ordering::SeqCst)
    }

    /// Returns a reservation of nothing, which can grow.
    pub fn empty(&self) -> Reservation {
        Reservation { budget: self.clone(), bytes: 0 }
    }

    /// Reserves bytes at once.
    ///
    /// # Errors
    /// [`Exceeded`] where they do not fit; nothing is reserved then.
    pub fn reserve(&self, bytes: u64) -> Result<Reservation, Exceeded> {
        let mut reservation = self.empty();
        reservation.grow(bytes)?;
        Ok(reservation)
    }

    /// Waits until bytes can be reserved, behind those that wait already. What exceeds the whole budget is
    /// let through once nothing else is reserved, alone. Dropping the future gives up the place.
    pub async fn wait_for(&self, bytes: u64) -> Reservation {
        let _waiting = Waiting::new(&self.0.waiting);
        let _turn = self.0.turn.lock().await;
        loop {
            // Made before looking, so that no release in between is missed.
            let released = self.0.released.notified();
            if self.take(bytes, true).is_ok() {
                return Reservation { budget: self.clone(), bytes };
            }
            released.await;
        }
    }

    fn take(&self, bytes: u64, alone: bool) -> Result<(), Exceeded> {
        let fits = |used: u64| {
            let sum = used.checked_add(bytes)?;
            (sum <= self.0.limit || (alone && used == 0)).then_some(sum)
        };
        let taken = self.0.used.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits);
        taken.map(drop).map_err(|used| Exceeded { wanted: bytes, used, limit: self.0.limit })
    }

    fn give_back(&self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        self.0.used.fetch_sub(bytes, Ordering::SeqCst);
        if self.0.waiting.load(Ordering::SeqCst) > 0 {
            // One waits for this, the others for their turn; with nobody there yet, the permit is kept.
            self.0.released.notify_one();
        }
    }
}

/// Counts who waits.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Reservation {
    /// Returns the bytes reserved.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the budget that it is of.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Reserves further bytes.
    ///
    /// # Errors
    /// [`Exceeded`] where they do not fit; the reservation stays as it was.
    pub fn grow(&mut self, by: u64) -> Result<(), Exceeded> {
        self.budget.take(by, false)?;
        self.bytes += by;
        Ok(())
    }

    /// Grows to `bytes` if it is less.
    ///
    /// # Errors
    /// As [`Reservation::grow`].
    pub fn grow_to(&mut self, bytes: u64) -> Result<(), Exceeded> {
        self.grow(bytes.saturating_sub(self.bytes))
    }

    /// Gives back what exceeds `bytes`.
    pub fn shrink_to(&mut self, bytes: u64) {
        let over = self.bytes.saturating_sub(bytes);
        self.bytes -= over;
        self.budget.give_back(over);
    }

    /// Parts with up to `bytes` bytes, for what goes its own way.
    pub fn split(&mut self, bytes: u64) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self { budget: self.budget.clone(), bytes }
    }

    /// Takes over another one of the same budget.
    ///
    /// # Panics
    /// In debug builds, if it is of another budget.
    pub fn merge(&mut self, mut other: Self) {
        debug_assert!(Arc::ptr_eq(&self.budget.0, &other.budget.0), "reservations of one budget");
        self.bytes += std::mem::take(&mut other.bytes);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_and_changes_nothing() {
        let budget = Budget::new(100);
        let mut first = budget.reserve(60).unwrap();
        let refused = budget.reserve(41).unwrap_err();
        assert_eq!(refused, Exceeded { wanted: 41, used: 60, limit: 100 });
        first.grow(40).unwrap();
        assert!(first.grow(1).is_err() && first.grow(u64::MAX).is_err());
        assert_eq!((first.bytes(), budget.used()), (100, 100));
        first.grow_to(50).unwrap();
        first.shrink_to(30);
        assert_eq!((first.bytes(), budget.used()), (30, 30));
        drop(first);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn parts_are_given_back_once() {
        let budget = Budget::new(100);
        let mut whole = budget.reserve(50).unwrap();
        let part = whole.split(20);
        let none = whole.split(0);
        assert_eq!((whole.bytes(), part.bytes(), budget.used()), (30, 20, 50));
        drop(whole);
        assert_eq!(budget.used(), 20);
        let mut other = budget.reserve(5).unwrap();
        other.merge(part);
        other.merge(none);
        assert_eq!((other.bytes(), budget.used()), (25, 25));
        drop(other);
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test]
    async fn who_waits_comes_in_order_and_the_too_large_alone() {
        let budget = Budget::new(100);
        let held = budget.reserve(90).unwrap();
        let mut large = polled(budget.wait_for(500));
        let mut small = polled(budget.wait_for(5));
        assert!(large.poll().is_none());
        // It would fit, but it is not its turn.
        assert!(small.poll().is_none());
        drop(held);
        let alone = large.poll().unwrap();
        assert_eq!((alone.bytes(), budget.used()), (500, 500));
        assert!(small.poll().is_none());
        drop(alone);
        assert_eq!(small.poll().unwrap().bytes(), 5);
        // A place that is given up is nobody's.
        let full = budget.reserve(100).unwrap();
        let mut gone = polled(budget.wait_for(1));
        assert!(gone.poll().is_none());
        let mut next = polled(budget.wait_for(1));
        assert!(next.poll().is_none());
        drop(gone);
        assert!(next.poll().is_none());
        drop(full);
        assert!(next.poll().is_some());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn no_release_is_missed() {
        let budget = Budget::new(10);
        let tasks = (0..8u64).map(|task| {
            let budget = budget.clone();
            tokio::spawn(async move {
                for round in 0..500 {
                    let held = budget.wait_for(1 + (task + round) % 10).await;
                    assert!(budget.used() <= 10);
                    tokio::task::yield_now().await;
                    drop(held);
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        assert_eq!(budget.used(), 0);
    }

    /// A future that is polled by hand.
    struct Polled<'a, T>(std::pin::Pin<Box<dyn Future<Output = T> + 'a>>);

    fn polled<'a, T>(future: impl Future<Output = T> + 'a) -> Polled<'a, T> {
        Polled(Box::pin(future))
    }

    impl<T> Polled<'_, T> {
        fn poll(&mut self) -> Option<T> {
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            match self.0.as_mut().poll(&mut context) {
                std::task::Poll::Ready(value) => Some(value),
                std::task::Poll::Pending => None,
            }
        }
    }
}
