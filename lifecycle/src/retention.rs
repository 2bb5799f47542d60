//! Retention by space: the oldest whole indices are deleted once those of a pattern take more than a limit.
//!
//! [`plan`] is a pure decision. Backing indices of data streams, indices of a past day and indices behind a rollover are whole. An index
//! that a data stream or an alias writes to is never deleted, nor one with `index.retention.hold`. The plan is shown before it is carried
//! out.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use millrace_catalog::access::NameClass;
use millrace_catalog::metadata::{IndexMeta, Metadata, RESIZE_PENDING, RetentionLimit, SpaceLimit};
use millrace_engine::Engine;
use millrace_mapping::pattern;
use millrace_runtime::{Priority, sync};
use serde_json::{Value, json};

use crate::LifecycleContext;
use crate::decide::is_interval_over;
use crate::error::Result;
use crate::execute::delete_index;
use crate::index_age::{daily_series, dated_name, origin_ms};
use crate::written::name_that_writes;

/// Time between two deletions, in milliseconds.
const INTERVAL_MS: i64 = 300_000;
/// Time from the end of a day, in UTC, until the index of that day is whole: other time zones write to it longer.
const DAY_GRACE_MS: i64 = 86_400_000;

/// An index as retention sees it.
#[derive(Clone, Debug)]
pub(crate) struct RetainedIndex {
    /// The index.
    pub meta: Arc<IndexMeta>,
    /// Bytes.
    pub bytes: u64,
    /// `true` if it may be deleted.
    pub is_removable: bool,
}

/// Space of the disk of the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DiskUsage {
    /// All bytes.
    pub total: u64,
    /// Used bytes, without those that deletions free later.
    pub used: u64,
}

/// Returns whether it is time for the next deletion.
pub(crate) fn is_due(last_ms: Option<i64>, now_ms: i64) -> bool {
    is_interval_over(last_ms, INTERVAL_MS, now_ms)
}

/// Place of an index in the order of deletions by a limit.
#[derive(Clone, Debug)]
pub(crate) struct PlannedDeletion {
    /// The index.
    pub meta: Arc<IndexMeta>,
    /// The limit.
    pub limit: RetentionLimit,
    /// Bytes that may still be added before it is deleted; 0 where it is to be deleted now.
    pub remaining: u64,
    /// Time at which it goes if its pattern grows as it has so far, in milliseconds; `None` where it does not grow.
    pub expected_ms: Option<i64>,
}

/// Decides in which order indices go by their limits. Each index is named once, by the limit that takes it first.
///
/// Limits of bytes decide first: each deletion that is due frees space for all limits behind it.
pub(crate) fn plan(
    limits: &[RetentionLimit],
    indices: &[RetainedIndex],
    disk: DiskUsage,
    now_ms: i64,
) -> Vec<PlannedDeletion> {
    let mut planned: HashMap<Arc<str>, PlannedDeletion> = HashMap::new();
    let mut disk_used = disk.used;
    let (of_bytes, of_disk): (Vec<_>, Vec<_>) =
        limits.iter().partition(|limit| matches!(limit.limit, SpaceLimit::Bytes(_)));
    for limit in of_bytes.into_iter().chain(of_disk) {
        let matches = |index: &&RetainedIndex| {
            let meta = &index.meta;
            pattern::matches(&limit.pattern, &meta.name)
                || meta.data_stream().is_some_and(|stream| pattern::matches(&limit.pattern, stream))
        };
        let is_due =
            |index: &RetainedIndex| planned.get(&index.meta.name).is_some_and(PlannedDeletion::is_due);
        let matching: Vec<&RetainedIndex> =
            indices.iter().filter(matches).filter(|index| !is_due(index)).collect();
        let bytes = matching.iter().map(|index| index.bytes).sum();
        let oldest_ms = matching.iter().map(|index| index.meta.created_ms).min().unwrap_or(now_ms);
        let (mut used, bound) = match limit.limit {
            SpaceLimit::Bytes(bound) => (bytes, bound),
            SpaceLimit::DiskBytes(bound) => (disk_used, bound),
            SpaceLimit::DiskPercent(percent) => (disk_used, (disk.total as f64 * percent / 100.0) as u64),
        };
        let mut removable: Vec<&RetainedIndex> =
            matching.into_iter().filter(|index| index.is_removable).collect();
        removable.sort_by_key(|index| (origin_ms(&index.meta), &index.meta.name));
        for index in removable {
            let remaining = bound.saturating_sub(used);
            let deletion = PlannedDeletion {
                meta: Arc::clone(&index.meta),
                limit: limit.clone(),
                remaining,
                expected_ms: expected_time(remaining, bytes, oldest_ms, now_ms),
            };
            used = used.saturating_sub(index.bytes);
            if deletion.is_due() {
                disk_used = disk_used.saturating_sub(index.bytes);
            }
            match planned.get(&index.meta.name) {
                Some(other) if other.remaining <= deletion.remaining => {}
                _ => drop(planned.insert(Arc::clone(&index.meta.name), deletion)),
            }
        }
    }
    let mut planned: Vec<PlannedDeletion> = planned.into_values().collect();
    planned.sort_by(|a, b| {
        let key = |one: &PlannedDeletion| (one.remaining, origin_ms(&one.meta));
        key(a).cmp(&key(b)).then_with(|| a.meta.name.cmp(&b.meta.name))
    });
    planned
}

/// Estimates the time at which so many bytes more are there, of indices that have grown to `bytes` since the oldest one was created.
fn expected_time(remaining: u64, bytes: u64, oldest_ms: i64, now_ms: i64) -> Option<i64> {
    if remaining == 0 {
        return Some(now_ms);
    }
    let age_ms = now_ms.saturating_sub(oldest_ms);
    if bytes == 0 || age_ms <= 0 {
        return None;
    }
    // An estimate needs no more digits; what is beyond the range of times is their end.
    let wait_ms = remaining as f64 / bytes as f64 * age_ms as f64;
    Some(now_ms.saturating_add(wait_ms as i64))
}

/// Returns whether an index is behind a rollover.
fn is_rolled_over(metadata: &Metadata, meta: &IndexMeta) -> bool {
    // A rollover of an earlier version left no record, but the alias with its new write index.
    let is_behind = |alias: &String, body: &Value| {
        let others = metadata.alias_indices(alias).unwrap_or_default();
        body["is_write_index"] == false
            && others
                .iter()
                .filter_map(|name| metadata.index(name))
                .any(|other| other.aliases[alias]["is_write_index"] == true)
    };
    meta.last_rollover_ms().is_some() || meta.aliases.iter().any(|(alias, body)| is_behind(alias, body))
}

/// Lists the users' indices with what may be deleted of them.
///
/// A greater date of the series does not make an index whole: an event with a wrong clock may have made that date.
fn retained(engine: &Engine, metadata: &Metadata) -> Vec<RetainedIndex> {
    let now_ms = engine.clock().now_ms();
    let ordinary = || metadata.indices().filter(|meta| NameClass::new(&meta.name) == NameClass::Ordinary);
    let mut newest: HashMap<&str, &str> = HashMap::new();
    // A deletion of either would break off the copy, which is made again then.
    let mut copied: HashSet<&str> = HashSet::new();
    for meta in ordinary() {
        let name = dated_name(meta);
        if let Some((series, _)) = daily_series(name) {
            let latest = newest.entry(series).or_insert(name);
            *latest = (*latest).max(name);
        }
        if meta.flag(RESIZE_PENDING) {
            copied.extend(meta.resize_source());
        }
    }
    let is_copying = |meta: &IndexMeta| meta.flag(RESIZE_PENDING) || copied.contains(&*meta.name);
    let is_whole = |meta: &IndexMeta| match (meta.data_stream(), daily_series(dated_name(meta))) {
        (Some(_), _) => true,
        (None, Some((series, end_ms))) => {
            newest.get(series).is_some_and(|latest| *latest != dated_name(meta))
                && end_ms.saturating_add(DAY_GRACE_MS) <= now_ms
        }
        (None, None) => is_rolled_over(metadata, meta),
    };
    let one = |meta: &Arc<IndexMeta>| RetainedIndex {
        meta: Arc::clone(meta),
        bytes: published_bytes(engine, &meta.name),
        is_removable: !metadata.is_held(meta)
            && is_whole(meta)
            && !is_copying(meta)
            && name_that_writes(metadata, meta, now_ms).is_none(),
    };
    ordinary().map(one).collect()
}

/// Counts the bytes of an index as searches see it, without a lock that writers hold.
fn published_bytes(engine: &Engine, name: &str) -> u64 {
    let Ok(index) = engine.index(name) else { return 0 };
    index.published_figures().shards.iter().map(|shard| shard.bytes()).sum()
}

/// Plans the deletions of now and of later.
///
/// # Errors
/// The disk's.
pub(crate) async fn planned(context: &LifecycleContext) -> Result<Vec<PlannedDeletion>> {
    let metadata = context.engine.metadata();
    let mut limits = metadata.retention_limits();
    if limits.iter().any(is_of_disk) && context.engine.space_before_flood_stage().await?.is_none() {
        // Segments on an object store take no space of a disk that a deletion would free.
        limits.retain(|limit| !is_of_disk(limit));
    }
    if limits.is_empty() {
        return Ok(Vec::new());
    }
    let disk = if limits.iter().any(is_of_disk) { disk_usage(context).await? } else { DiskUsage::default() };
    let engine = Arc::clone(&context.engine);
    let now_ms = engine.clock().now_ms();
    let work = move || Ok(plan(&limits, &retained(&engine, &metadata), disk, now_ms));
    Ok(context.engine.compute().run(Priority::Foreground, work).await?)
}

fn is_of_disk(limit: &RetentionLimit) -> bool {
    !matches!(limit.limit, SpaceLimit::Bytes(_))
}

/// Measures the file system of the segments, which may be another one than that of the data directory.
///
/// Searches and snapshots hold files of deleted indices. These bytes count as free: no other index is to go in their place.
async fn disk_usage(context: &LifecycleContext) -> Result<DiskUsage> {
    // Before the disk is asked: bytes that become free in between count twice, and the next time deletes the rest.
    let unfreed = context.engine.unfreed_bytes();
    let dir = context.engine.data_dir().to_owned();
    let usage = sync::blocking(move || {
        let segments = dir.join("segments");
        let path = if segments.is_dir() { segments } else { dir };
        let stat = rustix::fs::statvfs(&path)
            .map_err(|error| millrace_runtime::Error::io("statvfs", &path, error.into()))?;
        let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        Ok(DiskUsage {
            total: bytes(stat.f_blocks),
            used: bytes(stat.f_blocks.saturating_sub(stat.f_bavail)).saturating_sub(unfreed),
        })
    });
    Ok(usage.await?)
}

/// Deletes what exceeds the limits.
///
/// # Errors
/// The disk's. An index that cannot be deleted is left for the next time.
pub(crate) async fn enforce(context: &LifecycleContext) -> Result<()> {
    for PlannedDeletion { meta, limit, .. } in
        planned(context).await?.into_iter().filter(|deletion| deletion.is_due())
    {
        match delete_index(context, &meta, name_that_writes).await {
            Ok(()) => tracing::info!(
                index = &*meta.name,
                setting = limit.setting,
                pattern = limit.pattern,
                "retention by space deleted an index"
            ),
            Err(error) => {
                tracing::warn!(index = &*meta.name, %error, "retention by space cannot delete an index");
            }
        }
    }
    Ok(())
}

impl PlannedDeletion {
    /// Returns whether the limit is exceeded.
    pub(crate) fn is_due(&self) -> bool {
        self.remaining == 0
    }

    /// Shows it for explain; `position` counts from 0.
    pub(crate) fn to_json(&self, position: usize) -> Value {
        let limit = match self.limit.limit {
            SpaceLimit::Bytes(bytes) | SpaceLimit::DiskBytes(bytes) => format!("{bytes}b"),
            SpaceLimit::DiskPercent(percent) => format!("{percent}%"),
        };
        json!({
            "position": position,
            "setting": self.limit.setting,
            "pattern": self.limit.pattern,
            "limit": limit,
            "remaining_bytes": self.remaining,
            "expected_at": self.expected_ms,
        })
    }
}

#[cfg(test)]
mod tests {
    use millrace_catalog::metadata::Uuid;

    use super::*;

    fn index(name: &str, created_ms: i64, bytes: u64, is_removable: bool) -> RetainedIndex {
        let state = Metadata::default();
        let changes = state.create_index(name, &Value::Null, created_ms, Uuid::new_v4()).unwrap();
        let meta = Arc::clone(state.apply(&changes).index(name).unwrap());
        RetainedIndex { meta, bytes, is_removable }
    }

    fn limit(pattern: &str, limit: SpaceLimit) -> RetentionLimit {
        RetentionLimit { setting: "retention.max_bytes", pattern: pattern.to_owned(), limit }
    }

    fn due(planned: &[PlannedDeletion]) -> Vec<&str> {
        planned.iter().filter(|one| one.is_due()).map(|one| &*one.meta.name).collect()
    }

    #[test]
    fn the_oldest_go_first_and_no_more_than_needed() {
        let indices = [
            index("logs-3", 3, 10, true),
            index("logs-1", 1, 10, true),
            index("logs-2", 2, 10, false),
            index("logs-4", 4, 10, false),
            index("other-0", 0, 100, true),
        ];
        let planned = plan(&[limit("logs-*", SpaceLimit::Bytes(35))], &indices, DiskUsage::default(), 0);
        assert_eq!(due(&planned), ["logs-1"]);
        assert_eq!((planned[1].meta.name.as_ref(), planned[1].remaining), ("logs-3", 5));
        // 40 bytes came in 80 ms.
        let planned = plan(&[limit("logs-*", SpaceLimit::Bytes(35))], &indices, DiskUsage::default(), 81);
        assert_eq!((planned[0].expected_ms, planned[1].expected_ms), (Some(81), Some(91)));
        let planned = plan(&[limit("logs-*", SpaceLimit::Bytes(1))], &indices, DiskUsage::default(), 0);
        assert_eq!(due(&planned), ["logs-1", "logs-3"]);
        let disk = DiskUsage { total: 1_000, used: 905 };
        let planned = plan(&[limit("*", SpaceLimit::DiskPercent(80.0))], &indices, disk, 0);
        assert_eq!(due(&planned), ["other-0", "logs-1"]);
        assert!(plan(&[limit("none-*", SpaceLimit::Bytes(0))], &indices, disk, 0).is_empty());
    }

    #[test]
    fn a_time_is_expected_only_where_indices_grow() {
        assert_eq!(expected_time(0, 0, 5, 5), Some(5));
        assert_eq!(expected_time(1, 0, 0, 5), None);
        assert_eq!(expected_time(1, 1, 5, 5), None);
        assert_eq!(expected_time(1, 1, 6, 5), None);
        assert_eq!(expected_time(u64::MAX, 1, 0, i64::MAX / 2), Some(i64::MAX));
    }

    #[test]
    fn limits_of_the_disk_share_what_deletions_free() {
        let indices = [
            index("a-1", 1, 50, true),
            index("a-2", 2, 50, true),
            index("b-1", 3, 50, true),
            index("b-2", 4, 50, true),
        ];
        let disk = DiskUsage { total: 1_000, used: 840 };
        let of_disk = |pattern: &str| limit(pattern, SpaceLimit::DiskPercent(80.0));
        let planned = plan(&[of_disk("a-*"), of_disk("b-*")], &indices, disk, 0);
        assert_eq!(due(&planned), ["a-1"]);
        // Deletions by bytes count for the disk, wherever their limit stands.
        let planned = plan(&[of_disk("a-*"), limit("b-*", SpaceLimit::Bytes(60))], &indices, disk, 0);
        assert_eq!(due(&planned), ["b-1"]);
    }

    #[test]
    fn a_backfilled_day_goes_before_later_days() {
        let indices = [index("logs-2026.11.01", 5, 10, true), index("logs-2026.01.01", i64::MAX, 10, true)];
        let planned = plan(&[limit("*", SpaceLimit::Bytes(15))], &indices, DiskUsage::default(), 0);
        assert_eq!(due(&planned), ["logs-2026.01.01"]);
    }

    #[test]
    fn deletions_come_at_their_own_interval() {
        assert!(is_due(None, 5) && is_due(Some(6), 5));
        assert!(!is_due(Some(5), 5 + INTERVAL_MS - 1) && is_due(Some(5), 5 + INTERVAL_MS));
    }
}
