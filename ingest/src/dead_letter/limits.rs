//! Limits of dead letters: for each pipeline in bytes, and by age.

use std::time::Duration;

/// Bytes of letters of a pipeline where nothing else is said, as in Logstash.
pub const MAX_BYTES: u64 = 1 << 30;

/// Policy at the bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// New letters are not written: their events end there, and the log says so.
    #[default]
    DropNewer,
    /// The oldest letters are removed.
    DropOlder,
}

/// Bounds of the letters of one pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes.
    pub max_bytes: u64,
    /// Policy at the bound.
    pub policy: Policy,
    /// Time for which letters are kept; `None` for as long as there is space.
    pub retain: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_bytes: MAX_BYTES, policy: Policy::default(), retain: None }
    }
}

impl Limits {
    /// Returns the bytes that letters have at most until the oldest are removed.
    pub fn ceiling(&self) -> u64 {
        match self.policy {
            Policy::DropNewer => self.max_bytes,
            Policy::DropOlder => self.max_bytes.saturating_add(self.max_bytes / 4),
        }
    }

    /// Returns the bytes down to which the oldest make room.
    pub fn floor(&self) -> u64 {
        self.max_bytes - self.max_bytes / 10
    }
}
