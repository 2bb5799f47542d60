//! A request at work: the signal that ends it, and the memory that it holds.
//!
//! The service makes one [`QueryContext`] for each request and hands it down; whoever reads, marks up or renders asks it whether to
//! go on ([`QueryContext::check`]) and tells it what stays ([`QueryContext::hold`]). Memory comes from the pool of all queries in coarse
//! steps, so that counting costs an addition. A phase that has a time limit of its own is [`QueryContext::phase`]; what is
//! given back before the request ends is held by a [`QueryContext::part`].

pub mod answer;
pub mod compute;
pub mod error;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use datafusion_execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use roaring::RoaringBitmap;
use serde_json::{Map, Value};

use crate::compute::{Stop, StopOnDrop};
use crate::error::{Error, Result};

/// Bytes that are taken from the pool at once.
const STEP: usize = 64 << 10;

/// A request at work; clones are the same work. The default is never told to stop, and its memory is not counted.
#[derive(Clone, Debug, Default)]
pub struct QueryContext {
    stop: Arc<Stop>,
    memory: Arc<Memory>,
}

/// Memory that is given back when the last holder of it lets go.
#[derive(Debug, Default)]
struct Memory {
    reservation: Option<MemoryReservation>,
    held: AtomicUsize,
}

impl QueryContext {
    /// Makes the work of a request whose memory comes from a pool.
    pub fn new(pool: &Arc<dyn MemoryPool>) -> Self {
        let reservation = MemoryConsumer::new("requests").register(pool);
        let memory = Memory { reservation: Some(reservation), held: AtomicUsize::new(0) };
        Self { stop: Arc::default(), memory: Arc::new(memory) }
    }

    /// Makes a phase of the work: it holds the same memory, ends with the work, and may end before it.
    pub fn phase(&self) -> Self {
        Self { stop: Stop::inside(&self.stop), memory: Arc::clone(&self.memory) }
    }

    /// Makes a part of the work that ends when it does, and gives its memory back when it is dropped.
    pub fn part(&self) -> Self {
        let reservation = self.memory.reservation.as_ref().map(MemoryReservation::new_empty);
        let memory = Memory { reservation, held: AtomicUsize::new(0) };
        Self { stop: Arc::clone(&self.stop), memory: Arc::new(memory) }
    }

    /// Makes a part that holds so many bytes.
    ///
    /// # Errors
    /// As [`QueryContext::hold`].
    pub fn part_of(&self, bytes: usize) -> Result<Self> {
        let part = self.part();
        part.hold(bytes)?;
        Ok(part)
    }

    /// Returns the signal that ends it.
    pub fn stop(&self) -> &Arc<Stop> {
        &self.stop
    }

    /// Ends it when the guard is dropped, as it is when nobody waits for the answer any more.
    pub fn until_dropped(&self) -> StopOnDrop {
        StopOnDrop(Arc::clone(&self.stop))
    }

    /// Refuses to go on once it should end.
    ///
    /// # Errors
    /// [`Error::TimedOut`].
    #[inline]
    pub fn check(&self) -> Result<()> {
        if self.stop.requested() { Err(Error::TimedOut) } else { Ok(()) }
    }

    /// Returns whether its time was over.
    pub fn timed_out(&self) -> bool {
        self.stop.timed_out()
    }

    /// Returns whether it has a time limit: work should be done in steps then, for the first of them to count.
    pub fn is_limited(&self) -> bool {
        self.stop.is_limited()
    }

    /// Waits for what is done for it, and tells that to end after so many milliseconds; never without them.
    pub async fn within<T>(&self, limit_ms: Option<u64>, done: impl Future<Output = T>) -> T {
        let Some(limit_ms) = limit_ms.filter(|limit_ms| *limit_ms != u64::MAX) else { return done.await };
        self.stop.limit();
        tokio::pin!(done);
        tokio::select! {
            done = &mut done => done,
            () = tokio::time::sleep(Duration::from_millis(limit_ms)) => {
                self.stop.time_out();
                // Work looks at the stop between steps: what it has comes soon.
                done.await
            }
        }
    }

    /// Accounts for bytes that stay until the request ends, or the part is dropped.
    ///
    /// # Errors
    /// [`Error::CircuitBreaking`] where queries may not hold so many.
    pub fn hold(&self, bytes: usize) -> Result<()> {
        let Memory { reservation: Some(reservation), held } = self.memory.as_ref() else { return Ok(()) };
        let now = held.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let Some(missing) = now.checked_sub(reservation.size()).filter(|missing| *missing > 0) else {
            return Ok(());
        };
        let step = missing.checked_next_multiple_of(STEP).unwrap_or(missing);
        if let Err(error) = reservation.try_grow(step) {
            held.fetch_sub(bytes, Ordering::Relaxed);
            return Err(error.into());
        }
        Ok(())
    }

    /// Accounts for a set of rows, as [`QueryContext::hold`] does.
    ///
    /// # Errors
    /// As [`QueryContext::hold`].
    pub fn hold_rows(&self, rows: &RoaringBitmap) -> Result<()> {
        self.hold(rows.serialized_size())
    }

    /// Makes bytes hold their own share of the memory, for as long as they or a slice of them live.
    ///
    /// # Errors
    /// As [`QueryContext::hold`].
    pub fn keep(&self, bytes: Bytes) -> Result<Bytes> {
        Ok(self.part_of(bytes.len())?.held_by(bytes))
    }

    /// Makes bytes hold the memory of the part that they were accounted for by, for as long as they or a slice of them live.
    pub fn held_by(self, bytes: impl AsRef<[u8]> + Send + 'static) -> Bytes {
        Bytes::from_owner(ReservedBytes { bytes, _memory: self.memory })
    }
}

/// Bytes with the memory that they are accounted for by.
struct ReservedBytes<B> {
    bytes: B,
    _memory: Arc<Memory>,
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for ReservedBytes<B> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

/// Bytes of a member of an object beside its name and value: its hash, its place, the rounding of both.
const MEMBER_BYTES: usize = 48;

/// Estimates the bytes that a value takes.
pub fn bytes_of(value: &Value) -> usize {
    let within = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.capacity(),
        Value::Array(items) => items.iter().map(bytes_of).sum(),
        Value::Object(members) => bytes_of_members(members),
    };
    size_of::<Value>() + within
}

/// Estimates the bytes that the members of an object take.
pub fn bytes_of_members(members: &Map<String, Value>) -> usize {
    let member = |(name, value): (&String, &Value)| {
        MEMBER_BYTES + size_of::<String>() + name.capacity() + bytes_of(value)
    };
    members.iter().map(member).sum()
}

/// Bytes that a parsed document takes for each byte of its text, about.
pub const PARSED_SHARE: usize = 8;

#[cfg(test)]
mod tests {
    use datafusion_execution::memory_pool::GreedyMemoryPool;

    use super::*;

    fn pool(bytes: usize) -> Arc<dyn MemoryPool> {
        Arc::new(GreedyMemoryPool::new(bytes))
    }

    #[test]
    fn memory_is_taken_in_steps_and_given_back() {
        let pool = pool(3 * STEP);
        let work = QueryContext::new(&pool);
        (0..100).for_each(|_| work.hold(10).unwrap());
        assert_eq!(pool.reserved(), STEP);
        let part = work.part_of(STEP + 1).unwrap();
        assert_eq!(pool.reserved(), 3 * STEP);
        let error = work.hold(STEP).unwrap_err();
        assert_eq!((error.status(), error.error_type().as_str()), (429, "circuit_breaking_exception"));
        drop(part);
        work.phase().hold(STEP).unwrap();
        assert_eq!(pool.reserved(), 2 * STEP);
        drop(work);
        assert_eq!(pool.reserved(), 0);
    }

    #[test]
    fn kept_bytes_hold_their_memory_while_a_slice_lives() {
        let pool = pool(STEP);
        let kept = QueryContext::new(&pool).keep(Bytes::from(vec![7; 100])).unwrap();
        let slice = kept.slice(10..20);
        drop(kept);
        assert_eq!((pool.reserved(), &slice[..]), (STEP, &[7; 10][..]));
        drop(slice);
        assert_eq!(pool.reserved(), 0);
    }

    #[tokio::test]
    async fn a_phase_ends_by_itself_and_with_the_work() {
        let work = QueryContext::default();
        let phase = work.phase();
        phase.within(Some(5), phase.clone().ended()).await;
        assert!(phase.timed_out() && phase.check().is_err());
        assert!(!work.timed_out() && work.check().is_ok());
        let next = work.phase();
        assert!(next.check().is_ok());
        drop(work.until_dropped());
        assert!(next.check().is_err() && !next.timed_out());
    }

    impl QueryContext {
        /// Waits until it should end.
        async fn ended(self) {
            while self.check().is_ok() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }
}
