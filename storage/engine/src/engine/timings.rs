//! Durations of the engine's work, for metrics.

use millrace_runtime::DurationHistogram;

/// Durations of the engine's work since the start.
#[derive(Debug, Default)]
pub struct EngineTimings {
    /// Write requests, from their admission to their acknowledgement.
    pub write: DurationHistogram,
    /// Refreshes of shards.
    pub refresh: DurationHistogram,
    /// Flushes of shards.
    pub flush: DurationHistogram,
    /// Compactions of shards, forced ones included.
    pub compaction: DurationHistogram,
}
