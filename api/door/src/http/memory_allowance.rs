//! Memory of a request beyond its body: the values made of it and the answer, charged as they are made against the bytes in
//! flight.
//!
//! A body of a few KB can be compressed millions of values, and values take many times the bytes that they are
//! written in. So whoever makes them asks the request's [`MemoryAllowance`] first, value by value
//! ([`json`](super::json)) or item by item, and what does not fit is refused while it is read.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use millrace_listen::{Budget, BudgetExceeded, Reservation, Reserve};
use parking_lot::Mutex;

use crate::error::Error;

/// Bytes that every request has without asking: the usual one never asks.
const FREE: usize = 64 << 10;
/// Bytes asked for at a time.
const STEP: usize = 256 << 10;
/// Bytes that an answer asks for at a time: its size is known, and there may be many.
const ANSWER_STEP: usize = 16 << 10;

/// A request's share of the bytes in flight; clones share it, the last one gives it back.
#[derive(Clone, Debug)]
pub struct MemoryAllowance(Arc<AllowanceState>);

#[derive(Debug)]
struct AllowanceState {
    /// Budget that all requests share: one can have all of it at most.
    budget: Budget,
    /// Bytes of the budget that the request holds beside this: its head and body.
    own: u64,
    spent: AtomicUsize,
    /// Bytes that may be spent without asking.
    held: AtomicUsize,
    reservation: Mutex<Reservation>,
    /// True if it is an answer that takes them.
    is_answer: bool,
}

impl MemoryAllowance {
    /// Makes the room of a request of those that share a budget.
    pub fn new(budget: &Budget) -> Self {
        Self::beside_own(budget, 0)
    }

    /// Makes the room of a request that holds so many bytes of the budget already.
    pub(crate) fn beside_own(budget: &Budget, own: u64) -> Self {
        Self::of_kind(budget, own, false)
    }

    /// Makes the room of an answer of those that share a budget.
    pub(crate) fn of_answer(budget: &Budget) -> Self {
        Self::of_kind(budget, 0, true)
    }

    fn of_kind(budget: &Budget, own: u64, is_answer: bool) -> Self {
        let (spent, held) = (AtomicUsize::new(0), AtomicUsize::new(FREE));
        let reservation = Mutex::new(budget.empty());
        Self(Arc::new(AllowanceState { budget: budget.clone(), own, spent, held, reservation, is_answer }))
    }

    /// Makes the allowance of a request that shares its bytes with no other.
    pub fn with_limit(bytes: usize) -> Self {
        Self::new(&Budget::new(bytes as u64))
    }

    /// Makes a room without bounds, for what takes no more than the request has been charged before.
    pub fn unbounded() -> Self {
        let allowance = Self::new(&Budget::new(0));
        allowance.0.held.store(usize::MAX, Ordering::Relaxed);
        allowance
    }

    /// Makes another allowance of the same bytes in flight, for a step of a request: the bytes of the step are given back with
    /// it.
    pub fn sibling(&self) -> Self {
        let spent = self.0.spent.load(Ordering::Relaxed) as u64;
        Self::of_kind(&self.0.budget, self.0.own.saturating_add(spent), self.0.is_answer)
    }

    /// Takes so many bytes more, which stay taken until the request ends.
    ///
    /// # Errors
    /// 429 where they do not fit beside other requests, 413 where they never will.
    pub fn take(&self, bytes: usize) -> Result<(), Error> {
        let spent = self.0.spent.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if spent <= self.0.held.load(Ordering::Relaxed) { Ok(()) } else { self.reserve(spent) }
    }

    /// Makes a text that was taken hold the room until it and its slices are dropped.
    pub fn hold(&self, text: Vec<u8>) -> Bytes {
        Bytes::from_owner(AccountedText { text, _account: self.clone() })
    }

    #[cold]
    fn reserve(&self, spent: usize) -> Result<(), Error> {
        let share = &*self.0;
        let mut reservation = share.reservation.lock();
        let held = share.held.load(Ordering::Relaxed);
        let Some(missing) = spent.checked_sub(held).filter(|missing| *missing > 0) else { return Ok(()) };
        let (whole, most) = (share.own.saturating_add(spent as u64), share.budget.limit());
        if whole > most && !share.is_answer {
            return Err(Error::content_too_large(whole, most));
        }
        let step = if share.is_answer { ANSWER_STEP } else { STEP };
        let mut steps = [missing.next_multiple_of(step), missing].into_iter();
        let mut refusal = None;
        let more = steps.find(|more| match reservation.grow(*more as u64) {
            Ok(()) => true,
            Err(exceeded) => {
                refusal = Some(exceeded);
                false
            }
        });
        let Some(more) = more else {
            return Err(match refusal {
                Some(exceeded) if share.is_answer => {
                    Error::answers_full(&BudgetExceeded { wanted: spent as u64, ..exceeded })
                }
                _ => Error::in_flight_full(spent as u64),
            });
        };
        share.held.store(held + more, Ordering::Relaxed);
        Ok(())
    }
}

/// A text with the account that it is charged to: an allowance, a reservation, or the text that it was made of.
pub(super) struct AccountedText<T, A> {
    pub(super) text: T,
    pub(super) _account: A,
}

impl<T: AsRef<[u8]>, A> AsRef<[u8]> for AccountedText<T, A> {
    fn as_ref(&self) -> &[u8] {
        self.text.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_share_what_there_is_and_give_it_back() {
        let budget = Budget::new(1 << 20);
        let allowance = || MemoryAllowance::new(&budget);
        let (first, second) = (allowance(), allowance());
        first.take(FREE).unwrap();
        assert_eq!(budget.used(), 0, "what is free costs nothing");
        first.take(600 << 10).unwrap();
        let error = second.take(500 << 10).unwrap_err();
        assert_eq!((error.status(), error.error_type()), (429, "circuit_breaking_exception"));
        let error = allowance().take(2 << 20).unwrap_err();
        assert_eq!((error.status(), error.error_type()), (413, "content_too_long_exception"));
        let clone = first.clone();
        drop(first);
        assert!(budget.used() > 0);
        drop(clone);
        assert_eq!(budget.used(), 0);
        let whole = allowance();
        for _step in 0..4 {
            whole.sibling().take(700 << 10).unwrap();
        }
        assert_eq!(budget.used(), 0, "steps give back what they took");
        allowance().take(700 << 10).unwrap();
    }

    #[test]
    fn what_never_fits_beside_the_own_body_is_too_large() {
        let budget = Budget::new(1 << 20);
        let _body = budget.reserve(600 << 10).unwrap();
        let allowance = MemoryAllowance::beside_own(&budget, 600 << 10);
        allowance.take(424 << 10).unwrap();
        for allowance in [allowance.clone(), allowance.sibling()] {
            let error = allowance.take(FREE + 1).unwrap_err();
            assert_eq!((error.status(), error.error_type()), (413, "content_too_long_exception"));
            assert!(error.reason().contains("[1048576]"), "{}", error.reason());
        }
        // Where others hold it, a later attempt may fit.
        let other = MemoryAllowance::beside_own(&budget, 0).take(500 << 10).unwrap_err();
        assert_eq!(other.status(), 429);
    }
}
