//! A bound on bytes a second that transfers share.
//!
//! A transfer acquires the bytes of a chunk before it moves them. Each acquisition books a slot of time behind those that are booked
//! already, so all transfers together keep to the rate, in the order in which they ask.

use std::num::NonZeroU64;
use std::time::Duration;

use parking_lot::Mutex;

use crate::Instant;

/// Longest wait between two checks of a transfer that is to end.
const CHECK_PERIOD: Duration = Duration::from_millis(100);

/// Longest slot: as long as forever, and far from the end of the clock.
const MAX_SLOT_SECONDS: f64 = 1e8;

/// Bound on bytes a second.
#[derive(Debug)]
pub struct RateLimiter {
    /// Bytes a second; without a bound there are none.
    rate: Option<NonZeroU64>,
    schedule: Mutex<TransferSchedule>,
}

/// Times of the bytes that are booked.
#[derive(Debug, Default)]
struct TransferSchedule {
    /// Time at which the rate has room again.
    free_at: Option<Instant>,
}

impl TransferSchedule {
    /// Books a slot of time, and returns its begin.
    fn book(&mut self, slot: Duration, now: Instant) -> Instant {
        let begin = self.free_at.map_or(now, |free_at| free_at.max(now));
        self.free_at = Some(begin + slot);
        begin
    }

    /// Gives back a slot that was booked and not used.
    fn release(&mut self, slot: Duration) {
        self.free_at = self.free_at.and_then(|free_at| free_at.checked_sub(slot));
    }
}

impl RateLimiter {
    /// Makes a limiter of so many bytes a second; `None` and 0 are no bound.
    pub fn new(bytes_per_second: Option<u64>) -> Self {
        Self { rate: bytes_per_second.and_then(NonZeroU64::new), schedule: Mutex::default() }
    }

    /// Returns the bytes a second, `None` where there is no bound.
    pub fn bytes_per_second(&self) -> Option<u64> {
        self.rate.map(NonZeroU64::get)
    }

    /// Waits until so many bytes may be moved. `check` is asked before and while it waits. Dropped, it leaves its slot booked.
    ///
    /// # Errors
    /// Those of `check`; then the slot is given back.
    pub async fn acquire<E>(&self, bytes: u64, check: impl Fn() -> Result<(), E>) -> Result<(), E> {
        check()?;
        let Some(rate) = self.rate else { return Ok(()) };
        let slot = Duration::from_secs_f64((bytes as f64 / rate.get() as f64).min(MAX_SLOT_SECONDS));
        let begin = self.schedule.lock().book(slot, Instant::now());
        loop {
            let now = Instant::now();
            if now >= begin {
                return Ok(());
            }
            tokio::time::sleep_until(begin.min(now + CHECK_PERIOD)).await;
            check().inspect_err(|_| self.schedule.lock().release(slot))?;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const MIB: u64 = 1 << 20;

    async fn acquire(limiter: &RateLimiter, bytes: u64) {
        limiter.acquire(bytes, || Ok::<_, ()>(())).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn transfers_share_the_rate() {
        let limiter = RateLimiter::new(Some(10 * MIB));
        let began = Instant::now();
        let transfer = async || {
            for _ in 0..20 {
                acquire(&limiter, MIB).await;
            }
        };
        futures::future::join(transfer(), transfer()).await;
        // The last chunk may go at the begin of its slot.
        assert_eq!(began.elapsed().as_millis(), 3_900);
        // Time in which nothing was moved is not saved up.
        tokio::time::sleep(Duration::from_secs(60)).await;
        let began = Instant::now();
        transfer().await;
        assert_eq!(began.elapsed().as_millis(), 1_900);
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_bound_nothing_waits() {
        for unbounded in [RateLimiter::new(None), RateLimiter::new(Some(0))] {
            let began = Instant::now();
            acquire(&unbounded, u64::MAX).await;
            assert_eq!((began.elapsed(), unbounded.bytes_per_second()), (Duration::ZERO, None));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_transfer_that_ends_gives_its_slot_back() {
        let limiter = RateLimiter::new(Some(MIB));
        acquire(&limiter, MIB).await;
        let (began, checks) = (Instant::now(), Cell::new(0));
        let is_over = || {
            checks.set(checks.get() + 1);
            if checks.get() > 3 { Err("cancelled") } else { Ok(()) }
        };
        assert_eq!(limiter.acquire(100 * MIB, is_over).await, Err("cancelled"));
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
        acquire(&limiter, MIB).await;
        assert_eq!(began.elapsed().as_millis(), 1_000);
    }
}
