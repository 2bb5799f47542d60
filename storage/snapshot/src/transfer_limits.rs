//! Bounds on the bytes a second of a repository: `max_snapshot_bytes_per_sec` and `max_restore_bytes_per_sec`.
//!
//! All uploads of a repository share the one bound, all copies of restored files the other. Searches that read restored files in the
//! repository are not paced: somebody waits for them.

use async_trait::async_trait;
use millrace_runtime::{RateLimiter, Result};
use millrace_segment::objects::TransferPacer;

/// Refuses to go on with a transfer that is to end.
pub(crate) type TransferCheck<'a> = &'a (dyn Fn() -> Result<()> + Send + Sync);

/// Bounds of a repository.
#[derive(Debug)]
pub struct TransferLimits {
    uploads: RateLimiter,
    restores: RateLimiter,
}

impl Default for TransferLimits {
    fn default() -> Self {
        Self::new(None, None)
    }
}

impl TransferLimits {
    /// Makes bounds of so many bytes a second for uploads and for restores; `None` is no bound.
    pub fn new(uploads: Option<u64>, restores: Option<u64>) -> Self {
        Self { uploads: RateLimiter::new(uploads), restores: RateLimiter::new(restores) }
    }

    pub(crate) fn pace_upload<'a>(&'a self, check: TransferCheck<'a>) -> CheckedPacer<'a> {
        CheckedPacer { limiter: &self.uploads, check }
    }

    pub(crate) fn pace_restore<'a>(&'a self, check: TransferCheck<'a>) -> CheckedPacer<'a> {
        CheckedPacer { limiter: &self.restores, check }
    }
}

/// Paces a transfer by a bound, and ends it by a check.
pub(crate) struct CheckedPacer<'a> {
    limiter: &'a RateLimiter,
    check: TransferCheck<'a>,
}

#[async_trait]
impl TransferPacer for CheckedPacer<'_> {
    async fn admit(&self, bytes: u64) -> Result<()> {
        self.limiter.acquire(bytes, self.check).await
    }
}
