//! Bytes in memory, counted before they are there.
//!
//! A [`Budget`] is one bound that many parts share: each reserves before it allocates, and gives back by
//! dropping its [`Reservation`]. Who is refused answers "too much at once" (429) and holds nothing, or waits until bytes are
//! given back ([`Budget::given_back`]) and tries again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

/// A bound in bytes; its clones are the same one.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limit: u64,
    used: AtomicU64,
    given_back: Arc<Notify>,
}

/// A refused reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("[{wanted}] bytes do not fit beside the [{used}] bytes in use: the limit is [{limit}]")]
pub struct BudgetExceeded {
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

/// Memory that is reserved step by step, and given back by dropping it.
pub trait Reserve: Send + 'static {
    /// Why it cannot grow.
    type Refusal: Send + 'static;

    /// Returns the bytes reserved.
    fn bytes(&self) -> u64;

    /// Reserves further bytes.
    ///
    /// # Errors
    /// Where they do not fit; the reservation stays as it was.
    fn grow(&mut self, by: u64) -> Result<(), Self::Refusal>;

    /// Gives back what exceeds `bytes`.
    fn shrink_to(&mut self, bytes: u64);

    /// Returns whether more than half of all that can be reserved is.
    fn is_scarce(&self) -> bool;
}

impl Budget {
    /// Makes a budget of `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self(Arc::new(Inner { limit, used: AtomicU64::new(0), given_back: Arc::default() }))
    }

    /// Returns the bytes that may be reserved in all.
    pub fn limit(&self) -> u64 {
        self.0.limit
    }

    /// Returns the bytes reserved now.
    pub fn used(&self) -> u64 {
        self.0.used.load(Ordering::SeqCst)
    }

    /// Tells whether so many bytes would fit now, without reserving them.
    ///
    /// # Errors
    /// [`BudgetExceeded`] where they would not.
    pub fn check(&self, bytes: u64) -> Result<(), BudgetExceeded> {
        let (used, limit) = (self.used(), self.limit());
        match used.checked_add(bytes) {
            Some(sum) if sum <= limit => Ok(()),
            _ => Err(BudgetExceeded { wanted: bytes, used, limit }),
        }
    }

    /// Waits until bytes are given back, from this call on: a call before a refused reservation misses none. Others may be faster
    /// to reserve them. Cancellation safe.
    pub fn given_back(&self) -> OwnedNotified {
        Arc::clone(&self.0.given_back).notified_owned()
    }

    /// Returns a reservation of nothing, which can grow.
    pub fn empty(&self) -> Reservation {
        Reservation { budget: self.clone(), bytes: 0 }
    }

    /// Reserves bytes at once.
    ///
    /// # Errors
    /// [`BudgetExceeded`] where they do not fit; nothing is reserved then.
    pub fn reserve(&self, bytes: u64) -> Result<Reservation, BudgetExceeded> {
        let mut reservation = self.empty();
        reservation.grow(bytes)?;
        Ok(reservation)
    }

    fn take(&self, bytes: u64) -> Result<(), BudgetExceeded> {
        let fits = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.0.limit);
        let taken = self.0.used.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits);
        taken.map(drop).map_err(|used| BudgetExceeded { wanted: bytes, used, limit: self.0.limit })
    }

    fn give_back(&self, bytes: u64) {
        if bytes > 0 {
            self.0.used.fetch_sub(bytes, Ordering::SeqCst);
            self.0.given_back.notify_waiters();
        }
    }
}

impl Reserve for Reservation {
    type Refusal = BudgetExceeded;

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn grow(&mut self, by: u64) -> Result<(), BudgetExceeded> {
        self.budget.take(by)?;
        self.bytes += by;
        Ok(())
    }

    fn shrink_to(&mut self, bytes: u64) {
        let over = self.bytes.saturating_sub(bytes);
        self.bytes -= over;
        self.budget.give_back(over);
    }

    fn is_scarce(&self) -> bool {
        self.budget.used() > self.budget.limit() / 2
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
        assert_eq!(refused, BudgetExceeded { wanted: 41, used: 60, limit: 100 });
        first.grow(40).unwrap();
        assert!(first.grow(1).is_err() && first.grow(u64::MAX).is_err());
        assert_eq!((first.bytes(), budget.used()), (100, 100));
        first.shrink_to(30);
        assert_eq!((first.bytes(), budget.used()), (30, 30));
        drop(first);
        assert_eq!(budget.used(), 0);
        assert_eq!(budget.check(101), Err(BudgetExceeded { wanted: 101, used: 0, limit: 100 }));
        assert_eq!(budget.check(100), Ok(()));
    }

    #[tokio::test]
    async fn what_is_given_back_is_told_to_who_waits_for_it() {
        let budget = Budget::new(100);
        let mut held = budget.reserve(100).unwrap();
        for _ in 0..2 {
            let given_back = budget.given_back();
            assert!(budget.reserve(10).is_err());
            held.shrink_to(held.bytes() - 10);
            // It was told before it was waited for.
            given_back.await;
            held.grow(10).unwrap();
        }
        let mut given_back = Box::pin(budget.given_back());
        drop(budget.empty());
        held.shrink_to(200);
        let early = futures::future::poll_immediate(&mut given_back).await;
        assert_eq!(early, None, "nothing was given back");
        drop(held);
        given_back.await;
    }
}
