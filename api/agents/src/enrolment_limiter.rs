//! Limits requests for enrolment by address: a token bucket for each.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use millrace_listen::client;
use millrace_runtime::Instant;
use parking_lot::Mutex;

/// Addresses with a bucket of their own. Beyond, full buckets are dropped; where none is full, further addresses share one bucket.
const MAX_ADDRESSES: usize = 10_000;
/// Time in which an empty bucket is full again.
const PERIOD: Duration = Duration::from_secs(60);

/// Limits requests of one address, or of one network of 64 bits of IPv6.
#[derive(Debug)]
pub(crate) struct EnrolmentLimiter {
    per_minute: f64,
    buckets: Mutex<Buckets>,
}

#[derive(Debug)]
struct Buckets {
    by_address: HashMap<IpAddr, TokenBucket>,
    shared: TokenBucket,
}

/// Requests that may still come, as of a moment.
#[derive(Clone, Copy, Debug)]
struct TokenBucket {
    tokens: f64,
    at: Instant,
}

impl TokenBucket {
    fn refill(&mut self, capacity: f64, now: Instant) {
        let elapsed = now.saturating_duration_since(self.at).as_secs_f64();
        self.tokens = (self.tokens + capacity * elapsed / PERIOD.as_secs_f64()).min(capacity);
        self.at = now;
    }

    /// Takes a token; the time until there is one where there is none.
    fn take(&mut self, capacity: f64, now: Instant) -> Result<(), Duration> {
        self.refill(capacity, now);
        if self.tokens < 1.0 {
            return Err(PERIOD.mul_f64(((1.0 - self.tokens) / capacity).min(1.0)));
        }
        self.tokens -= 1.0;
        Ok(())
    }
}

impl EnrolmentLimiter {
    /// Makes a limiter of so many requests a minute, one at least.
    pub(crate) fn new(per_minute: u32) -> Self {
        let per_minute = f64::from(per_minute.max(1));
        let shared = TokenBucket { tokens: per_minute, at: Instant::now() };
        Self { per_minute, buckets: Mutex::new(Buckets { by_address: HashMap::new(), shared }) }
    }

    /// Admits a request.
    ///
    /// # Errors
    /// The time to wait, where the address has sent too many.
    pub(crate) fn admit(&self, address: IpAddr) -> Result<(), Duration> {
        let (address, now, capacity) = (client(address), Instant::now(), self.per_minute);
        let Buckets { by_address, shared } = &mut *self.buckets.lock();
        if by_address.len() >= MAX_ADDRESSES && !by_address.contains_key(&address) {
            by_address.retain(|_, bucket| {
                bucket.refill(capacity, now);
                bucket.tokens < capacity
            });
            if by_address.len() >= MAX_ADDRESSES {
                return shared.take(capacity, now);
            }
        }
        by_address.entry(address).or_insert(TokenBucket { tokens: capacity, at: now }).take(capacity, now)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_address_has_so_many_requests_a_minute_and_others_are_not_concerned() {
        let limiter = EnrolmentLimiter::new(3);
        let [one, other] = [IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2])];
        for _ in 0..3 {
            limiter.admit(one).unwrap();
        }
        let wait = limiter.admit(one).unwrap_err();
        assert!(wait <= Duration::from_secs(20), "{wait:?}");
        limiter.admit(other).unwrap();
        tokio::time::sleep(wait + Duration::from_millis(10)).await;
        limiter.admit(one).unwrap();
        limiter.admit(one).unwrap_err();
    }

    #[tokio::test(start_paused = true)]
    async fn addresses_beyond_the_bound_share_a_bucket() {
        let limiter = EnrolmentLimiter::new(2);
        let address = |number: u32| IpAddr::from(Ipv4Addr::from(number));
        for number in 0..MAX_ADDRESSES as u32 {
            limiter.admit(address(number)).unwrap();
        }
        let beyond = MAX_ADDRESSES as u32;
        limiter.admit(address(beyond)).unwrap();
        limiter.admit(address(beyond + 1)).unwrap();
        limiter.admit(address(beyond + 2)).unwrap_err();
        tokio::time::sleep(PERIOD).await;
        limiter.admit(address(beyond + 3)).unwrap();
        assert_eq!(limiter.buckets.lock().by_address.len(), 1, "full buckets are dropped");
    }
}
