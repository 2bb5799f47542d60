//! Snapshots beside other work: what they leave alone, and the rates that they keep to.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use millrace_catalog::access::Principal;
use millrace_engine::Engine;
use millrace_runtime::Instant;
use millrace_runtime::disk::SystemDisk;
use millrace_segment::objects::Objects;
use millrace_snapshot::{
    Config, CreateSnapshot, Error, Repository, RestoreSnapshot, SnapshotFilter, SnapshotService,
    TransferLimits,
};
use serde_json::json;

use crate::outages::FaultyStore;
use crate::support::*;

/// Bytes a second of a repository that is slow: a snapshot of these tests takes some tenths of a second.
const RATE: u64 = 64 << 10;

async fn filled(dir: &std::path::Path) -> (Arc<Engine>, BTreeMap<String, u32>) {
    let engine = open(dir).await;
    let mut expected = BTreeMap::new();
    fill(&engine, "logs", 0..1_000, 1, &mut expected).await;
    flush(&engine, "logs").await;
    (engine, expected)
}

/// A service with a repository on this machine and one of a remote service, both with the same bounds.
async fn limited(
    engine: &Arc<Engine>,
    backups: &std::path::Path,
    (uploads, restores): (Option<u64>, Option<u64>),
) -> SnapshotService {
    let config = Config { path_repo: vec![backups.to_owned()], ..Config::default() };
    let service = SnapshotService::open(Arc::clone(engine), config).await.unwrap();
    let rate = |rate: Option<u64>| rate.map_or("0".to_owned(), |rate| format!("{rate}b"));
    let settings = json!({
        "location": "one", "max_snapshot_bytes_per_sec": rate(uploads), "max_restore_bytes_per_sec": rate(restores),
    });
    service.put_repository("local", &json!({"type": "fs", "settings": settings}), true).await.unwrap();
    let objects = Objects::remote(Arc::new(FaultyStore::new(1)), Arc::new(SystemDisk));
    let remote = Repository::new("remote", objects, false, engine.store_id());
    let remote = remote.with_limits(TransferLimits::new(uploads, restores));
    service.register_open(remote).await.unwrap();
    service
}

fn all() -> SnapshotFilter {
    SnapshotFilter { expression: "_all".to_owned(), ignore_unavailable: false }
}

/// Asserts the time of a transfer: all files but the one that comes last wait for their bytes.
fn check_time(took: Duration, bytes: u64, largest: u64) {
    let least = Duration::from_secs_f64((bytes - largest) as f64 / RATE as f64);
    assert!(took >= least, "{bytes} bytes took {took:?}, not {least:?}");
    assert!(least > Duration::from_millis(100), "{bytes} bytes are too few for the test");
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshots_and_restores_keep_to_the_rates_of_their_repository() {
    let (data, backups) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (engine, expected) = filled(data.path()).await;
    let service = limited(&engine, backups.path(), (Some(RATE), None)).await;
    let system = Principal::system();
    let mut largest = 0;
    for repository in ["local", "remote"] {
        let began = Instant::now();
        let created =
            service.create(&system, (repository, "first"), CreateSnapshot::default()).await.unwrap();
        let took = began.elapsed();
        if repository == "local" {
            let sizes = files(&backups.path().join("one/contents")).into_iter();
            largest = sizes.map(|file| file.metadata().unwrap().len()).max().unwrap();
        }
        check_time(took, created.added_bytes, largest);
    }
    drop(service);

    let service = limited(&engine, backups.path(), (None, Some(RATE))).await;
    let request = RestoreSnapshot {
        rename_pattern: Some("(.+)".to_owned()),
        rename_replacement: Some("copy-$1".to_owned()),
        ..RestoreSnapshot::default()
    };
    let bytes: u64 =
        service.manifests("local", &all()).await.unwrap()[0].indices.iter().map(|i| i.bytes).sum();
    let began = Instant::now();
    service.restore(&system, ("local", "first"), request).await.unwrap();
    check_time(began.elapsed(), bytes, largest);
    check(&engine, "copy-logs", &expected).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_creation_that_waits_for_its_rate_ends_when_it_is_cancelled() {
    let (data, backups) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (engine, _) = filled(data.path()).await;
    let service = limited(&engine, backups.path(), (Some(1), None)).await;
    for repository in ["local", "remote"] {
        let request = CreateSnapshot::default();
        service.begin_creation(&Principal::system(), (repository, "first"), request).await.unwrap();
        let task = engine.tasks().list()[0].clone();
        let handle = engine.tasks().get(task.id).unwrap();
        // The first file went at once, the next one has hours to wait.
        let progress = || {
            let running = service.running(Some(repository));
            running.first().and_then(|one| Some(one.indices().first()?.figures())).unwrap_or_default()
        };
        while progress().written.files == 0 {
            assert!(!service.running(Some(repository)).is_empty(), "the creation has failed");
            tokio::task::yield_now().await;
        }
        let figures = progress();
        assert_eq!((figures.shards, figures.done_shards), (1, 0));
        assert!(figures.total.files > 1 && figures.total.bytes > figures.written.bytes, "{figures:?}");
        assert_eq!(figures.processed, figures.written);
        engine.tasks().cancel(task.id, "by user request");
        handle.ended().await;
        let listed = service.list(repository, &all(), true).await.unwrap();
        let text = listed[0].to_string();
        assert!(text.contains("FAILED") && text.contains("task cancelled [by user request]"), "{text}");
        assert!(!text.contains("cannot write"), "{text}");
        assert_eq!(service.figures().snapshots.failure, 0, "a cancellation is no failure");
    }
    let left = files(&backups.path().join("one/.tmp"));
    assert!(left.is_empty(), "{left:?}");
    // A slot that was not used is given back; the next creation waits for no other's bytes but for its own.
    service.delete_repositories("local").await.unwrap();
    let service = limited(&engine, backups.path(), (None, None)).await;
    service.create(&Principal::system(), ("local", "second"), CreateSnapshot::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_of_some_indices_leaves_the_others_in_memory() {
    let (data, backups) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engine = open(data.path()).await;
    let service = service(&engine, backups.path()).await;
    for index in ["logs", "other"] {
        fill(&engine, index, 0..10, 1, &mut BTreeMap::new()).await;
    }
    let request = CreateSnapshot {
        indices: Some("logs".to_owned()),
        include_global_state: false,
        ..CreateSnapshot::default()
    };
    service.create(&Principal::system(), ("backup", "first"), request).await.unwrap();
    let flushes = |index: &str| engine.index(index).unwrap().figures().shards[0].flush_total;
    assert_eq!((flushes("logs"), flushes("other")), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_is_restored_is_not_deleted_by_another_name_of_its_repository() {
    let (data, backups) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (engine, _) = filled(data.path()).await;
    let service = service(&engine, backups.path()).await;
    create(&service, "first").await;
    create(&service, "second").await;
    let settings = json!({"location": "one", "max_restore_bytes_per_sec": "1b"});
    service.put_repository("again", &json!({"type": "fs", "settings": settings}), true).await.unwrap();
    let request = RestoreSnapshot {
        rename_pattern: Some("(.+)".to_owned()),
        rename_replacement: Some("copy-$1".to_owned()),
        ..RestoreSnapshot::default()
    };
    service.begin_restore(&Principal::system(), ("again", "first"), request).await.unwrap();
    let task = engine.tasks().list()[0].clone();
    let handle = engine.tasks().get(task.id).unwrap();
    let dotted = json!({"type": "fs", "settings": {"location": "one/."}});
    service.put_repository("dotted", &dotted, true).await.unwrap();
    for repository in ["backup", "again", "dotted"] {
        let refused = service.delete(repository, "*").await.unwrap_err();
        assert!(matches!(refused, Error::Concurrent { .. }), "{refused}");
        assert!(refused.to_string().contains("first"), "{refused}");
    }
    service.delete("backup", "second").await.unwrap();
    engine.tasks().cancel(task.id, "by user request");
    handle.ended().await;
    assert!(engine.metadata().index("copy-logs").is_none());
    // The guard goes with the job, which ends behind its task.
    while matches!(service.delete("backup", "first").await, Err(Error::Concurrent { .. })) {
        tokio::task::yield_now().await;
    }
}
