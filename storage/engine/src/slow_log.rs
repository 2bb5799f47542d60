//! Thresholds of slow logs: settings of an index that say from which duration on work is logged, and at which level.

use std::time::Duration;

use millrace_catalog::metadata::IndexMeta;
use tracing::Level;

/// Work that a slow log is about, with the settings of its thresholds from the most severe level on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlowWork {
    /// The query phase of a search.
    Query,
    /// The fetch phase of a search.
    Fetch,
    /// Writes of documents.
    Indexing,
}

const LEVELS: [Level; 4] = [Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE];

impl SlowWork {
    fn settings(self) -> [&'static str; 4] {
        match self {
            Self::Query => [
                "index.search.slowlog.threshold.query.warn",
                "index.search.slowlog.threshold.query.info",
                "index.search.slowlog.threshold.query.debug",
                "index.search.slowlog.threshold.query.trace",
            ],
            Self::Fetch => [
                "index.search.slowlog.threshold.fetch.warn",
                "index.search.slowlog.threshold.fetch.info",
                "index.search.slowlog.threshold.fetch.debug",
                "index.search.slowlog.threshold.fetch.trace",
            ],
            Self::Indexing => [
                "index.indexing.slowlog.threshold.index.warn",
                "index.indexing.slowlog.threshold.index.info",
                "index.indexing.slowlog.threshold.index.debug",
                "index.indexing.slowlog.threshold.index.trace",
            ],
        }
    }

    /// Returns the level at which work on an index that took so long is logged; `None` where it is not.
    pub fn level(self, meta: &IndexMeta, took: Duration) -> Option<Level> {
        self.level_by(|setting| meta.duration(setting), took)
    }

    fn level_by(self, threshold: impl Fn(&str) -> Option<Duration>, took: Duration) -> Option<Level> {
        let reached = |setting: &&str| threshold(setting).is_some_and(|threshold| took >= threshold);
        let at = self.settings().iter().position(reached)?;
        LEVELS.get(at).copied()
    }
}

/// Writes an event at a level that is known when the program runs: `tracing` wants one level at each place of an event.
#[macro_export]
macro_rules! slow_event {
    ($level:expr, $target:literal, $($fields:tt)*) => {
        match $level {
            tracing::Level::WARN | tracing::Level::ERROR => tracing::warn!(target: $target, $($fields)*),
            tracing::Level::INFO => tracing::info!(target: $target, $($fields)*),
            tracing::Level::DEBUG => tracing::debug!(target: $target, $($fields)*),
            tracing::Level::TRACE => tracing::trace!(target: $target, $($fields)*),
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_severe_threshold_that_is_reached_counts() {
        let thresholds = |setting: &str| match setting {
            "index.search.slowlog.threshold.query.warn" => Some(Duration::from_secs(10)),
            "index.search.slowlog.threshold.query.debug" => Some(Duration::from_secs(2)),
            "index.search.slowlog.threshold.query.trace" => Some(Duration::ZERO),
            _ => None,
        };
        let level = |secs| SlowWork::Query.level_by(thresholds, Duration::from_secs(secs));
        assert_eq!(level(10), Some(Level::WARN));
        assert_eq!(level(9), Some(Level::DEBUG));
        assert_eq!(level(1), Some(Level::TRACE));
        assert_eq!(SlowWork::Fetch.level_by(thresholds, Duration::from_secs(99)), None);
    }
}
