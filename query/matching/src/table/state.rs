//! The state that the scans of a table share: options, keys, and what a search learns beside the rows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use datafusion::common::ScalarValue;
use millrace_scoring::collect::{Budget, Cursor, Totals};
use millrace_work::QueryContext;
use millrace_work::compute::{Compute, Stop};
use millrace_work::error::ShardFailure;
use parking_lot::Mutex;

use super::keys::Key;
use super::snapshot::TableSnapshot;

/// Score of a row; 0 where the query does not score.
pub const SCORE: &str = "_score";
/// Number of a row's shard in the table.
pub(crate) const SHARD: &str = "_shard";
/// Number of a row's segment in the table; ascends with index, shard and age.
pub const SEGMENT: &str = "_segment";
/// Number of a row in its segment.
pub const ROW: &str = "_row";

/// Options of the scans of a table.
#[derive(Clone, Debug, Default)]
pub struct ScanOptions {
    /// The time of `now`, in milliseconds since 1970.
    pub now_ms: i64,
    /// Most matches that are counted; none are where absent.
    pub track: Option<u64>,
    /// True if statistics of all shards are joined before scoring.
    pub global_statistics: bool,
    /// The point behind which a continued search goes on, if the order is by score or address.
    pub cursor: Option<Cursor>,
    /// First sort value of the point where a continued search goes on, where the order is by a key
    /// and a filter above the scan leaves out what is before the point.
    pub after_key: Option<ScalarValue>,
    /// Matches after which a shard stops; 0 is without bound.
    pub terminate_after: u64,
    /// Least score of rows.
    pub min_score: Option<f32>,
    /// True if the time that each shard takes is measured.
    pub profile: bool,
    /// The work that it is done for.
    pub work: QueryContext,
}

/// Totals, failures and times that a search learns from its scan beside the rows.
#[derive(Debug)]
pub struct ScanHandle {
    /// Matches.
    pub totals: Totals,
    /// Tells the scan to stop.
    pub stop: Arc<Stop>,
    /// Shards that cannot answer.
    pub failures: Mutex<Vec<ShardFailure>>,
    /// Matches still allowed, by shard.
    pub budgets: Vec<Budget>,
    /// Times of the shards, if they are measured.
    pub timings: Vec<Timing>,
    /// Span of the search.
    pub(super) span: tracing::Span,
    pub(super) max_score: AtomicU32,
}

/// Times of one shard, in nanoseconds.
#[derive(Debug, Default)]
pub struct Timing {
    /// Making the predicate ready for segments.
    pub prepare: AtomicU64,
    /// Visiting rows.
    pub visit: AtomicU64,
    /// Segments visited.
    pub segments: AtomicU64,
}

impl Timing {
    /// Adds a visit of a segment.
    pub fn add(&self, prepare: Duration, visit: Duration) {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.prepare.fetch_add(nanos(prepare), Ordering::Relaxed);
        self.visit.fetch_add(nanos(visit), Ordering::Relaxed);
        self.segments.fetch_add(1, Ordering::Relaxed);
    }
}

impl ScanHandle {
    /// Returns true if a shard stopped before its end.
    pub fn terminated_early(&self) -> bool {
        self.budgets.iter().any(Budget::spent)
    }

    /// Returns the greatest score met while all matches were scored.
    pub fn max_score(&self) -> f32 {
        f32::from_bits(self.max_score.load(Ordering::Relaxed))
    }

    pub(crate) fn saw_score(&self, score: f32) {
        // Scores are not negative, so their bits are in the order of their values.
        self.max_score.fetch_max(score.max(0.0).to_bits(), Ordering::Relaxed);
    }
}

/// The parts of a table that its scans share.
#[derive(Clone, Debug)]
pub struct TableState {
    /// The pinned indices.
    pub snapshot: Arc<TableSnapshot>,
    /// Sort keys, the first columns of the schema.
    pub keys: Vec<Key>,
    /// Options of the scan.
    pub options: ScanOptions,
    /// Totals, failures and times.
    pub handle: Arc<ScanHandle>,
    /// Threads that evaluate predicates.
    pub compute: Compute,
}
