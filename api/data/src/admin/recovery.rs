//! `_recovery`: the way in which each shard came here, by a restore of a snapshot or from the local store.
//!
//! One node serves every shard, so no shard comes from another node. A restored index is of type `SNAPSHOT` until the process ends: its
//! files are read from the repository first, and copied meanwhile. Others are of type `EXISTING_STORE`, or `EMPTY_STORE` where
//! they were created since the start.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_catalog::access::Action;
use millrace_catalog::metadata::{IndexMeta, IndicesOptions, Metadata};
use millrace_mapping::pattern;
use millrace_snapshot::{IndexRecovery, ShardRecovery};
use serde_json::{Value, json};

use super::cat::moment;
use super::process::Process;
use super::{node, options, segments};
use crate::Api;
use crate::error::Error;
use crate::http::render::{bytes_text, millis_text};
use crate::http::{Request, Response};
use crate::route::DataApi;

/// Recovery of a shard.
#[derive(Clone, Debug)]
pub(super) struct RecoveredShard {
    pub(super) index: String,
    pub(super) number: u32,
    /// Type of the recovery.
    pub(super) source_type: &'static str,
    pub(super) started_ms: i64,
    /// `None` while files are copied.
    pub(super) ended_ms: Option<i64>,
    /// Files that were brought here, or are to be.
    pub(super) copied: ShardRecovery,
    /// Files that were here, and their bytes.
    pub(super) reused: (u64, u64),
    /// The restore that it came by.
    pub(super) restore: Option<Arc<IndexRecovery>>,
}

impl RecoveredShard {
    pub(super) fn stage(&self) -> &'static str {
        if self.ended_ms.is_some() { "DONE" } else { "INDEX" }
    }

    pub(super) fn total_ms(&self, now_ms: i64) -> i64 {
        (self.ended_ms.unwrap_or(now_ms) - self.started_ms).max(0)
    }

    /// Writes the share of the files that are here, of those that are to come.
    pub(super) fn files_percent(&self) -> String {
        percent(self.copied.recovered_files, self.copied.files, self.reused.0)
    }

    /// Writes the share of their bytes.
    pub(super) fn bytes_percent(&self) -> String {
        percent(self.copied.recovered_bytes, self.copied.bytes, self.reused.1)
    }
}

/// Writes a share as OpenSearch does: all of nothing is all, unless there is nothing at all.
fn percent(recovered: u64, total: u64, reused: u64) -> String {
    match (total, reused) {
        (0, 0) => "0.0%".to_owned(),
        _ if recovered >= total => "100.0%".to_owned(),
        _ => format!("{:.1}%", 100.0 * recovered as f64 / total as f64),
    }
}

/// Lists the recoveries of the shards that an expression names, by index and number. `active_only` leaves out those that have ended.
///
/// # Errors
/// An index that is missing.
pub(super) fn list(
    served: &DataApi,
    api: &Api,
    expression: &str,
    options: &IndicesOptions,
    active_only: bool,
) -> Result<Vec<RecoveredShard>, Error> {
    let restores = served.snapshots().map(|service| service.recoveries()).unwrap_or_default();
    let (metadata, now_ms) = (api.session.metadata(), api.session.clock().now_ms());
    let process_start_ms = now_ms - i64::try_from(Process::read().uptime_ms).unwrap_or(0);
    let mut found: BTreeMap<String, Vec<RecoveredShard>> = BTreeMap::new();
    // Indices appear once they can be searched.
    let privileges = api.session.principal().privileges();
    let is_coming = |restore: &&Arc<IndexRecovery>| {
        restore.ended_ms.is_none()
            && metadata.index(&restore.index).is_none()
            && privileges.on(&restore.index).allows(Action::Recovery)
    };
    let mut stored = Vec::new();
    let coming: Vec<&Arc<IndexRecovery>> = restores.values().filter(is_coming).collect();
    for (part, is_excluded) in Metadata::expression_parts(expression, now_ms)? {
        if is_excluded {
            found.retain(|index, _| !pattern::matches(&part, index));
            stored.push(format!("-{part}"));
            continue;
        }
        let pattern = if part == "_all" || part.is_empty() { "*" } else { &part };
        let named: Vec<_> = coming.iter().filter(|it| pattern::matches(pattern, &it.index)).collect();
        let is_stored = named.is_empty() || pattern::is_wildcard(pattern);
        found.extend(named.into_iter().map(|restore| (restore.index.clone(), of_restore(restore))));
        if is_stored {
            stored.push(part);
        }
    }
    if stored.iter().any(|part| !part.starts_with('-')) {
        for meta in metadata.resolve(&stored.join(","), options, now_ms)? {
            let shards = match restores.get(&meta.uuid) {
                Some(restore) => of_restore(restore),
                None => of_store(api, &meta, process_start_ms),
            };
            found.insert(meta.name.to_string(), shards);
        }
    }
    let mut shards: Vec<RecoveredShard> = found.into_values().flatten().collect();
    shards.retain(|shard| !active_only || shard.ended_ms.is_none());
    Ok(shards)
}

fn of_restore(restore: &Arc<IndexRecovery>) -> Vec<RecoveredShard> {
    let shard = |(number, shard): (u32, &ShardRecovery)| RecoveredShard {
        index: restore.index.clone(),
        number,
        source_type: "SNAPSHOT",
        started_ms: restore.started_ms,
        ended_ms: restore.ended_ms,
        copied: *shard,
        reused: (0, 0),
        restore: Some(Arc::clone(restore)),
    };
    (0..).zip(&restore.shards).map(shard).collect()
}

/// An index is there once the process has started, or once it is created.
fn of_store(api: &Api, meta: &IndexMeta, process_start_ms: i64) -> Vec<RecoveredShard> {
    let is_new = meta.open && meta.created_ms >= process_start_ms;
    let started_ms = process_start_ms.max(meta.created_ms);
    let stored = segments::list_by_shard(api, meta);
    let shard = |number: u32| {
        let committed = stored.get(number as usize).into_iter().flatten().filter(|one| one.committed);
        let reused = match is_new {
            true => (0, 0),
            false => {
                committed.fold((0, 0), |(files, bytes), one| (files + one.files, bytes + one.store_bytes))
            }
        };
        RecoveredShard {
            index: meta.name.to_string(),
            number,
            source_type: if is_new { "EMPTY_STORE" } else { "EXISTING_STORE" },
            started_ms,
            ended_ms: Some(started_ms),
            copied: ShardRecovery::default(),
            reused,
            restore: None,
        }
    };
    (0..meta.shards).map(shard).collect()
}

/// `_recovery`
pub(crate) fn get(
    served: &DataApi,
    api: &Api,
    request: &mut Request,
    expression: &str,
) -> Result<Response, Error> {
    let detailed = options::flag(&mut request.params, "detailed")?;
    let active_only = options::flag(&mut request.params, "active_only")?;
    let options = options::indices(&mut request.params, IndicesOptions::open_and_closed())?;
    request.finish()?;
    let (human, now_ms) = (request.params.human, api.session.clock().now_ms());
    let mut indices: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for shard in list(served, api, expression, &options, active_only)? {
        let shown = render(api, &shard, now_ms, (human, detailed));
        indices.entry(shard.index).or_default().push(shown);
    }
    let shown = indices.into_iter().map(|(index, shards)| (index, json!({ "shards": shards })));
    Ok(Response::json(200, Value::Object(shown.collect())))
}

fn render(api: &Api, shard: &RecoveredShard, now_ms: i64, (human, detailed): (bool, bool)) -> Value {
    let (copied, (reused_files, reused_bytes)) = (&shard.copied, shard.reused);
    let total_ms = shard.total_ms(now_ms);
    let source = match &shard.restore {
        Some(restore) => {
            let mut source = json!({
                "repository": restore.repository,
                "snapshot": restore.snapshot,
                "version": node::VERSION,
            });
            if let Some(index) = &restore.source_index {
                source["index"] = json!(index);
            }
            source
        }
        None if shard.source_type == "EXISTING_STORE" => json!({ "bootstrap_new_history_uuid": false }),
        None => json!({}),
    };
    let mut size = json!({
        "total_in_bytes": copied.bytes + reused_bytes,
        "reused_in_bytes": reused_bytes,
        "recovered_in_bytes": copied.recovered_bytes,
        "percent": shard.bytes_percent(),
    });
    let mut files = json!({
        "total": copied.files + reused_files,
        "reused": reused_files,
        "recovered": copied.recovered_files,
        "percent": shard.files_percent(),
    });
    if detailed {
        files["details"] = json!([]);
    }
    let mut shown = json!({
        "id": shard.number,
        "type": shard.source_type,
        "stage": shard.stage(),
        "primary": true,
        "start_time_in_millis": shard.started_ms,
        "total_time_in_millis": total_ms,
        "source": source,
        "target": {
            "id": node::id(api),
            "host": node::ip(api),
            "transport_address": node::address(api),
            "ip": node::ip(api),
            "name": api.identity.node,
        },
        "translog": {
            "recovered": 0,
            "total": 0,
            "percent": "100.0%",
            "total_on_start": 0,
            "total_time_in_millis": 0,
        },
        "verify_index": { "check_index_time_in_millis": 0, "total_time_in_millis": 0 },
    });
    if let Some(ended_ms) = shard.ended_ms {
        shown["stop_time_in_millis"] = ended_ms.into();
    }
    if human {
        let text = |bytes: u64| bytes_text(i64::try_from(bytes).unwrap_or(i64::MAX));
        size["total"] = text(copied.bytes + reused_bytes).into();
        size["reused"] = text(reused_bytes).into();
        size["recovered"] = text(copied.recovered_bytes).into();
        shown["start_time"] = moment(shard.started_ms).into();
        if let Some(ended_ms) = shard.ended_ms {
            shown["stop_time"] = moment(ended_ms).into();
        }
        shown["total_time"] = millis_text(total_ms).into();
    }
    shown["index"] = json!({
        "size": size,
        "files": files,
        "total_time_in_millis": total_ms,
        "source_throttle_time_in_millis": 0,
        "target_throttle_time_in_millis": 0,
    });
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_files_that_are_to_come() {
        assert_eq!(percent(0, 0, 0), "0.0%");
        assert_eq!(percent(0, 0, 3), "100.0%");
        assert_eq!(percent(1, 3, 0), "33.3%");
        assert_eq!(percent(3, 3, 0), "100.0%");
    }
}
