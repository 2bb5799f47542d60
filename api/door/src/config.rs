//! Bounds on requests, and what a server tells of its work.

use std::time::Duration;

use crate::license::LICENSE_KEY_BYTES;

/// Bounds on what requests hold.
#[derive(Clone, Debug)]
pub struct HttpConfig {
    /// Longest request body in bytes, before and after decompression; beyond it requests get 413.
    pub max_content_length: u64,
    /// Bytes of the bodies of all requests that are read or answered; beyond it requests get 429.
    pub max_in_flight_bytes: u64,
    /// Bytes of the answers that are being made or sent, beside those of searches; beyond it requests get 429.
    pub max_answer_bytes: u64,
    /// Longest silence within a request's body.
    pub body_timeout: Duration,
}

/// Bytes of bodies where nothing is said: no more than a quarter of the memory that there is.
fn in_flight_within(memory: u64) -> u64 {
    const USUAL: u64 = 192 << 20;
    if memory == 0 { USUAL } else { USUAL.min(memory / 4) }
}

/// Bytes of answers where nothing is said: no more than a quarter of the memory that there is.
fn answers_within(memory: u64) -> u64 {
    const USUAL: u64 = 256 << 20;
    if memory == 0 { USUAL } else { USUAL.min(memory / 4) }
}

impl HttpConfig {
    /// Makes the bounds of a process that may have so many bytes of memory; 0 where that is not known.
    pub fn within(memory: u64) -> Self {
        Self {
            max_content_length: 100 << 20,
            max_in_flight_bytes: in_flight_within(memory),
            max_answer_bytes: answers_within(memory),
            body_timeout: Duration::from_secs(60),
        }
    }
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self::within(0)
    }
}

/// The logs and metrics of a server, and its licence.
#[derive(Clone, Debug)]
pub struct OperationConfig {
    /// `true` if each request is a line of the log.
    pub access_log: bool,
    /// Indices that have metrics of their own; the others are summed.
    pub max_metric_indices: usize,
    /// Public key that licences are checked with; `None` where none can be installed.
    pub license_key: Option<[u8; LICENSE_KEY_BYTES]>,
}

impl Default for OperationConfig {
    fn default() -> Self {
        Self { access_log: false, max_metric_indices: 100, license_key: None }
    }
}
