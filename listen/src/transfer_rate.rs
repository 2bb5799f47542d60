//! Rate at which a request's body arrives, and its lower bound.
//!
//! Silence ends it, and so does slowness: always that of who keeps a connection busy for nearly nothing, and where more than half of the
//! memory for requests is in use, that of few senders who could keep it from all others. Only time for which somebody waits for
//! the next part counts. A [`TransferRate`] decides, and whoever reads the request waits.

use std::time::Duration;

use tokio::time::Instant;

/// Time over which the rate is taken while memory is scarce.
const SCARCE_WINDOW: Duration = Duration::from_secs(10);
/// Bytes that must arrive in that time: 64 KiB a second.
const SCARCE_BYTES: u64 = 640 << 10;
/// Time over which the least rate is taken, which always counts.
const LEAST_WINDOW: Duration = Duration::from_secs(60);
/// Bytes that must arrive in that time: 1 KiB a second.
const LEAST_BYTES: u64 = 60 << 10;

/// Bytes of a request over time.
///
/// Before each part, [`TransferRate::waits`] says until when it may be waited for; then either the part has come ([`TransferRate::came`]), or
/// [`TransferRate::look`] decides whether it is still waited for.
#[derive(Debug)]
pub struct TransferRate {
    /// Longest wait for one part.
    silence: Duration,
    /// Time of all waits but the one under way.
    waited: Duration,
    /// Begin of that window.
    since: Option<Instant>,
    scarce: Window,
    least: Window,
}

/// Bytes since a window began, and its end in the time of waits.
#[derive(Debug)]
struct Window {
    ends: Duration,
    arrived: u64,
}

/// Why the next part is not waited for any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StallReason {
    /// Nothing came for too long.
    Silent,
    /// It came too slowly, by far or while memory is scarce.
    Slow,
}

impl Window {
    fn new(ends: Duration) -> Self {
        Self { ends, arrived: 0 }
    }
}

impl TransferRate {
    /// Begins with what nothing has come of, in which silences are no longer than `silence`.
    pub fn new(silence: Duration) -> Self {
        let (scarce, least) = (Window::new(SCARCE_WINDOW), Window::new(LEAST_WINDOW));
        Self { silence, waited: Duration::ZERO, since: None, scarce, least }
    }

    /// Takes note that the next part is waited for, if it is not yet. Returns when to [`look`](Self::look), which may be now.
    pub fn waits(&mut self, now: Instant) -> Instant {
        let since = *self.since.get_or_insert(now);
        let window = self.scarce.ends.min(self.least.ends).saturating_sub(self.waited);
        since + self.silence.min(window)
    }

    /// Returns how long the next part has been waited for.
    pub fn wait(&self, now: Instant) -> Duration {
        self.since.map_or(Duration::ZERO, |since| now - since)
    }

    /// Takes note that a part of so many bytes has come. Returns how long it was waited for.
    pub fn came(&mut self, now: Instant, bytes: u64) -> Duration {
        let wait = self.wait(now);
        self.since = None;
        self.waited += wait;
        self.scarce.arrived += bytes;
        self.least.arrived += bytes;
        wait
    }

    /// Decides whether the next part, which has not come, is still waited for. `is_scarce` says whether memory is.
    ///
    /// # Errors
    /// Where it is not.
    pub fn look(&mut self, now: Instant, is_scarce: impl FnOnce() -> bool) -> Result<(), StallReason> {
        let wait = self.wait(now);
        if wait >= self.silence {
            return Err(StallReason::Silent);
        }
        let waited = self.waited + wait;
        if waited >= self.scarce.ends {
            if self.scarce.arrived < SCARCE_BYTES && is_scarce() {
                return Err(StallReason::Slow);
            }
            self.scarce = Window::new(waited + SCARCE_WINDOW);
        }
        if waited >= self.least.ends {
            if self.least.arrived < LEAST_BYTES {
                return Err(StallReason::Slow);
            }
            self.least = Window::new(waited + LEAST_WINDOW);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const SILENCE: Duration = Duration::from_secs(50);

    /// Has parts come, each waited for so long, until one is waited for no more. Returns how many came, and why not more.
    fn paced(
        pace: &mut TransferRate,
        now: &mut Instant,
        wait: Duration,
        bytes: u64,
        scarce: bool,
    ) -> (u32, StallReason) {
        for part in 0..1_000 {
            let comes = *now + wait;
            loop {
                let due = pace.waits(*now);
                if due > comes {
                    break;
                }
                *now = due.max(*now);
                if let Err(stalled) = pace.look(*now, || scarce) {
                    return (part, stalled);
                }
            }
            *now = comes;
            assert_eq!(pace.came(*now, bytes), wait);
        }
        panic!("it goes on");
    }

    #[test]
    fn a_trickle_is_slow_within_a_minute_and_sooner_while_memory_is_scarce() {
        let trickle = |bytes, scarce| {
            let mut now = Instant::now();
            paced(&mut TransferRate::new(SILENCE), &mut now, SECOND, bytes, scarce)
        };
        assert_eq!(trickle(1, false), (59, StallReason::Slow));
        assert_eq!(trickle(1_000, false), (59, StallReason::Slow));
        assert_eq!(trickle(32 << 10, true), (9, StallReason::Slow));
        let mut now = Instant::now();
        let silent = paced(&mut TransferRate::new(SILENCE), &mut now, SILENCE, 1 << 30, true);
        assert_eq!(silent, (0, StallReason::Slow));
        let silent = paced(&mut TransferRate::new(SILENCE), &mut now, SILENCE, 1 << 30, false);
        assert_eq!(silent, (0, StallReason::Silent));
    }

    #[test]
    fn time_for_which_nobody_waits_does_not_count() {
        let (mut pace, mut now) = (TransferRate::new(SILENCE), Instant::now());
        for _ in 0..100 {
            // Nothing is due at once.
            assert!(pace.waits(now) > now);
            now += SECOND / 100;
            assert_eq!(pace.came(now, 1), SECOND / 100);
            now += LEAST_WINDOW;
        }
        assert_eq!(paced(&mut pace, &mut now, SECOND, 1, false), (58, StallReason::Slow));
    }
}
