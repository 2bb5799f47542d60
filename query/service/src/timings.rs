//! Durations of searches and statements, for metrics and for the slow logs of indices.

use std::time::Duration;

use millrace_engine::{Session, SlowWork, slow_event};
use millrace_matching::table::TableSnapshot;
use millrace_runtime::DurationHistogram;
use tracing::Level;

/// Names of indices in a line of a slow log; of further ones the line has the number.
const MAX_NAMES: usize = 5;

/// Durations of searches and statements since the start.
#[derive(Debug, Default)]
pub struct SearchTimings {
    /// Query phases of searches, with aggregations and suggestions.
    pub query: DurationHistogram,
    /// Fetch phases of searches.
    pub fetch: DurationHistogram,
    /// Statements of SQL, until their first rows, and pipelines of PPL.
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
        for slow in SlowIndices::of_search(snapshot, SlowWork::Query, took) {
            let (description, opaque_id) = described(session);
            slow_event!(
                slow.level,
                "index.search.slowlog.query",
                index = slow.names,
                indices = slow.count,
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
        for slow in SlowIndices::of_search(snapshot, SlowWork::Fetch, took) {
            let (description, opaque_id) = described(session);
            slow_event!(
                slow.level,
                "index.search.slowlog.fetch",
                index = slow.names,
                indices = slow.count,
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

/// The indices of a search that want it logged at one level.
#[derive(Debug, PartialEq, Eq)]
struct SlowIndices {
    level: Level,
    /// The first names, separated by commas.
    names: String,
    /// Number of all of them.
    count: usize,
}

impl SlowIndices {
    /// Groups the indices of a search by the level at which they want it logged: a line each, however many indices there are.
    fn of_search(snapshot: &TableSnapshot, work: SlowWork, took: Duration) -> Vec<Self> {
        let levels = snapshot.indices.iter().filter_map(|index| {
            let level = work.level(&index.meta, took)?;
            Some((level, &*index.meta.name))
        });
        Self::group(levels)
    }

    fn group<'a>(levels: impl Iterator<Item = (Level, &'a str)>) -> Vec<Self> {
        // There are few levels.
        let mut groups: Vec<Self> = Vec::new();
        for (level, name) in levels {
            match groups.iter_mut().find(|group| group.level == level) {
                None => groups.push(Self { level, names: name.to_owned(), count: 1 }),
                Some(group) => {
                    if group.count < MAX_NAMES {
                        group.names.extend([",", name]);
                    }
                    group.count += 1;
                }
            }
        }
        groups
    }
}

/// Returns the description of a session's task, and the `X-Opaque-Id` of its request.
fn described(session: &Session) -> (String, String) {
    let Some(task) = session.task() else { return Default::default() };
    let spec = task.spec();
    (spec.description.to_string(), spec.opaque_id.as_deref().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_over_many_indices_has_one_line_for_each_level() {
        let names: Vec<String> = (0..1_000).map(|n| format!("logs-{n}")).collect();
        let levels = names.iter().map(|name| (Level::WARN, name.as_str()));
        let groups = SlowIndices::group(levels.chain([(Level::INFO, "other")]));
        let shown: Vec<_> = groups.iter().map(|group| (group.level, &*group.names, group.count)).collect();
        let first = "logs-0,logs-1,logs-2,logs-3,logs-4";
        assert_eq!(shown, [(Level::WARN, first, 1_000), (Level::INFO, "other", 1)]);
    }
}
