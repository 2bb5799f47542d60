//! What a request takes in memory beyond its body: the values made of it and the answer, charged as they are
//! made against the bytes in flight.
//!
//! A body of a few KB can be compressed millions of values, and values take many times the bytes that they are
//! written in. So whoever makes them asks the request's [`Room`] first, value by value
//! ([`json`](super::json)) or item by item, and what does not fit is refused while it is read.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::Error;

/// Bytes that every request has without asking: the usual one never asks.
const FREE: usize = 64 << 10;
/// Bytes asked for at a time.
const STEP: usize = 256 << 10;

/// A request's share of the bytes in flight; clones share it, the last one gives it back.
#[derive(Clone, Debug)]
pub(crate) struct Room(Arc<Share>);

#[derive(Debug)]
struct Share {
    /// Permits of `unit` bytes each, shared by all requests.
    all: Arc<Semaphore>,
    unit: usize,
    /// Bytes that all permits stand for: what one request can have at most.
    most: usize,
    spent: AtomicUsize,
    /// Bytes that may be spent without asking.
    held: AtomicUsize,
    permits: Mutex<Option<OwnedSemaphorePermit>>,
}

impl Room {
    /// Makes the room of a request: permits are of `unit` bytes each, and all of them of `most`.
    pub(crate) fn new(all: Arc<Semaphore>, unit: usize, most: usize) -> Self {
        let (spent, held, permits) = (AtomicUsize::new(0), AtomicUsize::new(FREE), Mutex::new(None));
        Self(Arc::new(Share { all, unit, most, spent, held, permits }))
    }

    /// Makes a room without bounds, for what takes no more than the request has been charged before.
    pub(crate) fn unbounded() -> Self {
        let room = Self::new(Arc::new(Semaphore::new(0)), 1, usize::MAX);
        room.0.held.store(usize::MAX, Ordering::Relaxed);
        room
    }

    /// Takes so many bytes more, which stay taken until the request ends.
    ///
    /// # Errors
    /// 429 where they do not fit beside other requests, 413 where they never will.
    pub(crate) fn take(&self, bytes: usize) -> Result<(), Error> {
        let spent = self.0.spent.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if spent <= self.0.held.load(Ordering::Relaxed) { Ok(()) } else { self.ask(spent) }
    }

    #[cold]
    fn ask(&self, spent: usize) -> Result<(), Error> {
        let share = &*self.0;
        let mut permits = share.permits.lock();
        let held = share.held.load(Ordering::Relaxed);
        let Some(missing) = spent.checked_sub(held).filter(|missing| *missing > 0) else { return Ok(()) };
        if spent > share.most {
            return Err(Error::content_too_large(spent as u64, share.most as u64));
        }
        let more = missing.next_multiple_of(STEP);
        let units = u32::try_from(more.div_ceil(share.unit)).ok();
        let Some(permit) = units.and_then(|n| share.all.clone().try_acquire_many_owned(n).ok()) else {
            return Err(Error::in_flight_full(spent as u64));
        };
        match &mut *permits {
            Some(permits) => permits.merge(permit),
            None => *permits = Some(permit),
        }
        share.held.store(held + more, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
impl Room {
    /// A room of so many bytes for one request alone.
    pub(crate) fn of(bytes: usize) -> Self {
        Self::new(Arc::new(Semaphore::new(bytes.div_ceil(1024))), 1024, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_share_what_there_is_and_give_it_back() {
        let all = Arc::new(Semaphore::new(1024));
        let room = || Room::new(all.clone(), 1024, 1 << 20);
        let (first, second) = (room(), room());
        first.take(FREE).unwrap();
        assert_eq!(all.available_permits(), 1024, "what is free costs nothing");
        first.take(600 << 10).unwrap();
        let error = second.take(500 << 10).unwrap_err();
        assert_eq!((error.status(), error.error_type()), (429, "circuit_breaking_exception"));
        let error = room().take(2 << 20).unwrap_err();
        assert_eq!((error.status(), error.error_type()), (413, "content_too_long_exception"));
        let clone = first.clone();
        drop(first);
        assert!(all.available_permits() < 1024);
        drop(clone);
        assert_eq!(all.available_permits(), 1024);
        room().take(700 << 10).unwrap();
    }
}
