//! Number of messages that may be in flight, decided from confirmations and refusals.
//!
//! A broker closes the channel for a message that it refuses, and does not say for which one. It handles messages in order. So the
//! messages without a confirmation are published again in windows of some, and those of a refused window one at a time. A message
//! comes three times at most for one refusal. Behind a refusal few messages are in flight at first, so that few come again where many
//! are refused.

/// Most messages in flight.
const MAX_SIZE: usize = 1_000;
/// Messages in flight behind a refusal.
const SIZE_BEHIND_REFUSAL: usize = 16;

/// Messages in flight while the broker refused one of more.
const PROBE_SIZE: usize = 32;

/// Window of messages in flight.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PublishWindow {
    size: usize,
    /// Messages of which the broker refused one.
    suspects: usize,
}

impl PublishWindow {
    pub(super) fn new() -> Self {
        Self { size: MAX_SIZE, suspects: 0 }
    }

    /// Returns the number of messages that may be published before their confirmations.
    pub(super) fn size(&self) -> usize {
        match self.suspects {
            0 => self.size,
            1..=PROBE_SIZE => 1,
            _ => PROBE_SIZE,
        }
    }

    /// Notes messages that the broker confirmed.
    pub(super) fn on_confirmed(&mut self, confirmed: usize) {
        if self.suspects > 0 {
            self.suspects = self.suspects.saturating_sub(confirmed);
        } else if confirmed == self.size {
            self.size = self.size.saturating_mul(2).min(MAX_SIZE);
        }
    }

    /// Notes that the broker refused one of some messages; returns `true` where it is the next one.
    pub(super) fn on_refusal(&mut self, suspects: usize) -> bool {
        self.size = SIZE_BEHIND_REFUSAL;
        let is_known = suspects == 1;
        self.suspects = if is_known { 0 } else { suspects };
        is_known
    }
}
