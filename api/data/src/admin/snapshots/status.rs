//! `_snapshot/_status`: snapshots with the bytes of their indices.

use std::sync::atomic::{AtomicU64, Ordering};

use millrace_snapshot::{FileCounts, IndexProgressFigures, Manifest, RunningSnapshot, SnapshotFilter};
use serde_json::{Map, Value, json};

use super::{refuse, service};
use crate::admin::options;
use crate::error::Error;
use crate::http::{Request, Response};
use crate::route::DataApi;

/// Shards of the snapshots of an answer, at most, as in OpenSearch: each has some hundred bytes of it.
const MAX_SHARDS: u64 = 200_000;

pub(crate) async fn get(
    served: &DataApi,
    request: &mut Request,
    repository: Option<&str>,
    snapshots: Option<&str>,
) -> Result<Response, Error> {
    let ignore_unavailable = options::flag(&mut request.params, "ignore_unavailable")?;
    options::manager(&mut request.params)?;
    request.finish()?;
    let service = service(served)?;
    if let Some(repository) = repository {
        service.repositories(Some(repository)).map_err(refuse)?;
    }
    let running = service.running(repository);
    let mut shown: Vec<Value> = Vec::new();
    match (repository, snapshots) {
        (Some(repository), Some(names)) => {
            let named = |one: &RunningSnapshot| names.split(',').any(|name| name == one.snapshot);
            shown
                .extend(running.iter().filter(|one| named(one)).map(|one| of_running(one, service.now_ms())));
            let is_running = |name: &&str| running.iter().any(|one| one.snapshot == *name);
            let others: Vec<&str> = names.split(',').filter(|name| !is_running(name)).collect();
            if !others.is_empty() {
                let filter = SnapshotFilter { expression: others.join(","), ignore_unavailable };
                let shards = AtomicU64::new(0);
                let convert = |manifest: &Manifest| {
                    let own: u64 = manifest.visible_indices().map(|index| u64::from(index.shards)).sum();
                    let is_within = shards.fetch_add(own, Ordering::Relaxed) + own <= MAX_SHARDS;
                    is_within.then(|| of_manifest(repository, manifest))
                };
                let complete = service.map_manifests(repository, &filter, convert).await.map_err(refuse)?;
                let shards = shards.into_inner();
                if shards > MAX_SHARDS {
                    let reason = format!(
                        "the total shard count [{shards}] of the snapshots is more than the maximum allowed [{MAX_SHARDS}]; name fewer snapshots"
                    );
                    return Err(Error::new(413, "too_many_shards_in_snapshots_status_exception", reason));
                }
                shown.extend(complete.into_iter().flatten());
            }
        }
        _ => shown.extend(running.iter().map(|one| of_running(one, service.now_ms()))),
    }
    Ok(Response::json(200, json!({ "snapshots": shown })))
}

fn shard_counts(total: u64, done: u64, failed: u64) -> Value {
    json!({
        "initializing": 0,
        "started": total - done - failed,
        "finalizing": 0,
        "done": done,
        "failed": failed,
        "total": total,
    })
}

fn stats((added_files, added_bytes): (u64, u64), (files, bytes): (u64, u64), times: (i64, i64)) -> Value {
    json!({
        "incremental": { "file_count": added_files, "size_in_bytes": added_bytes },
        "total": { "file_count": files, "size_in_bytes": bytes },
        "start_time_in_millis": times.0,
        "time_in_millis": (times.1 - times.0).max(0),
    })
}

fn of_manifest(repository: &str, manifest: &Manifest) -> Value {
    let (there, failed) = manifest.shard_counts();
    let times = (manifest.started_ms, manifest.ended_ms);
    let mut indices = Map::new();
    let (mut files, mut bytes) = (0, 0);
    for index in manifest.visible_indices() {
        files += index.files;
        bytes += index.bytes;
        let whole = stats((0, 0), (index.files, index.bytes), times);
        let shards: Map<String, Value> = (0..index.shards)
            .map(|number| {
                (number.to_string(), json!({ "stage": "DONE", "stats": stats((0, 0), (0, 0), times) }))
            })
            .collect();
        let shown = json!({
            "shards_stats": shard_counts(u64::from(index.shards), u64::from(index.shards), 0),
            "stats": whole,
            "shards": shards,
        });
        indices.insert(index.name.clone(), shown);
    }
    json!({
        "snapshot": manifest.snapshot,
        "repository": repository,
        "uuid": millrace_catalog::metadata::uuid_text(&manifest.uuid),
        "state": manifest.state.name(),
        "include_global_state": manifest.include_global_state,
        "shards_stats": shard_counts(there + failed, there, failed),
        "stats": stats((manifest.added_files, manifest.added_bytes), (files, bytes), times),
        "indices": indices,
    })
}

/// Renders what a creation has done: `processed` is what the repository has by now, `incremental` what the snapshot has written of it.
fn progress_stats(figures: &IndexProgressFigures, times: (i64, i64)) -> Value {
    let pair = |counts: FileCounts| (counts.files, counts.bytes);
    let mut shown = stats(pair(figures.written), pair(figures.total), times);
    shown["processed"] =
        json!({ "file_count": figures.processed.files, "size_in_bytes": figures.processed.bytes });
    shown
}

fn of_running(running: &RunningSnapshot, now_ms: i64) -> Value {
    let times = (running.started_ms, now_ms);
    let mut indices = Map::new();
    let mut all = IndexProgressFigures::default();
    for index in running.indices().iter() {
        let figures = index.figures();
        all.shards += figures.shards;
        all.done_shards += figures.done_shards;
        all.total += figures.total;
        all.processed += figures.processed;
        all.written += figures.written;
        let shown = json!({
            "shards_stats": shard_counts(figures.shards.into(), figures.done_shards.into(), 0),
            "stats": progress_stats(&figures, times),
            "shards": {},
        });
        indices.insert(index.name.clone(), shown);
    }
    json!({
        "snapshot": running.snapshot,
        "repository": running.repository,
        "uuid": millrace_catalog::metadata::uuid_text(&running.uuid),
        "state": "STARTED",
        "include_global_state": running.include_global_state,
        "shards_stats": shard_counts(all.shards.into(), all.done_shards.into(), 0),
        "stats": progress_stats(&all, times),
        "indices": indices,
    })
}
