//! Durations of searches and statements, for metrics and for the slow logs of indices.

use std::time::Duration;

use millrace_engine::{Session, SlowWork, slow_event};
use millrace_matching::table::TableSnapshot;
use millrace_runtime::DurationHistogram;

/// Durations of searches and statements since the start.
#[derive(Debug, Default)]
pub struct SearchTimings {
    /// Query phases of searches, with aggregations and suggestions.
    pub query: DurationHistogram,
    /// Fetch phases of searches.
    pub fetch: DurationHistogram,
    /// Statements of SQL, until their first rows.
    pub statement: DurationHistogram,
}

impl SearchTimings {
    /// Records the query phase of a search, and logs it where an index wants that.
    pub(crate) fn queried(
        &self,
        session: &Session,
        snapshot: &TableSnapshot,
        took: Duration,
        hits: Option<u64>,
    ) {
        self.query.record(took);
        for index in &snapshot.indices {
            let Some(level) = SlowWork::Query.level(&index.meta, took) else { continue };
            let (description, opaque_id) = described(session);
            slow_event!(
                level,
                "index.search.slowlog.query",
                index = %index.meta.name,
                took_ms = took.as_millis() as u64,
                total_hits = hits,
                total_shards = snapshot.shards,
                source = description,
                opaque_id,
                user = %session.principal().caller(),
                "slow query"
            );
        }
    }

    /// Records the fetch phase of a search, and logs it where an index wants that.
    pub(crate) fn fetched(&self, session: &Session, snapshot: &TableSnapshot, took: Duration) {
        self.fetch.record(took);
        for index in &snapshot.indices {
            let Some(level) = SlowWork::Fetch.level(&index.meta, took) else { continue };
            let (description, opaque_id) = described(session);
            slow_event!(
                level,
                "index.search.slowlog.fetch",
                index = %index.meta.name,
                took_ms = took.as_millis() as u64,
                total_shards = snapshot.shards,
                source = description,
                opaque_id,
                user = %session.principal().caller(),
                "slow fetch"
            );
        }
    }
}

/// Returns the description of a session's task, and the `X-Opaque-Id` of its request.
fn described(session: &Session) -> (String, String) {
    let Some(task) = session.task() else { return Default::default() };
    let spec = task.spec();
    (spec.description.to_string(), spec.opaque_id.as_deref().unwrap_or_default().to_owned())
}
