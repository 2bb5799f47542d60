//! Restored indices that are searched before their files are here.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_catalog::access::Principal;
use millrace_catalog::metadata::{IndicesOptions, RESTORE_PENDING};
use millrace_engine::Engine;
use millrace_runtime::Error as StoreError;
use millrace_snapshot::{Config, Error, IndexRecovery, RestoreSnapshot, SnapshotService};
use object_store::ObjectStoreExt;
use object_store::path::Path;
use serde_json::json;

use crate::outages::{FaultyStore, Outage, service_over};
use crate::support::*;

fn early() -> RestoreSnapshot {
    RestoreSnapshot {
        rename_pattern: Some("(.+)".to_owned()),
        rename_replacement: Some("copy-$1".to_owned()),
        early_search_bytes: 0,
        ..RestoreSnapshot::default()
    }
}

fn is_pending(engine: &Engine, index: &str) -> bool {
    engine.metadata().index(index).is_some_and(|meta| meta.flag(RESTORE_PENDING))
}

async fn wait_until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::task::yield_now().await;
    }
}

fn recovery(service: &SnapshotService, index: &str) -> Option<Arc<IndexRecovery>> {
    service.recoveries().into_values().find(|recovery| recovery.index == index)
}

/// A store with deletions and two segments, its snapshot `one`, and its documents.
async fn captured(store: &FaultyStore) -> (tempfile::TempDir, Arc<Engine>, BTreeMap<String, u32>) {
    let data = tempfile::tempdir().unwrap();
    let engine = open(data.path()).await;
    let service = service_over(&engine, store).await;
    let mut expected = BTreeMap::new();
    fill(&engine, "logs", 0..60, 1, &mut expected).await;
    flush(&engine, "logs").await;
    fill(&engine, "logs", 50..80, 2, &mut expected).await;
    delete(&engine, "logs", "d7", &mut expected).await;
    create(&service, "one").await;
    (data, engine, expected)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_is_read_from_the_repository_and_takes_writes_once_it_is_copied() {
    let store = FaultyStore::new(1);
    let (_data, engine, expected) = captured(&store).await;
    let service = service_over(&engine, &store).await;
    let system = Principal::system();
    store.set_outage(Some(Outage::HeldCopies));
    service.begin_restore(&system, ("backup", "one"), early()).await.unwrap();
    wait_until(|| engine.metadata().index("copy-logs").is_some()).await;
    check(&engine, "copy-logs", &expected).await;
    assert!(is_pending(&engine, "copy-logs"));
    let op = index_op("copy-logs", "d1", r#"{"v":9}"#);
    let wait = std::time::Duration::from_secs(5);
    let written = engine.write(&system, vec![op], millrace_engine::RefreshPolicy::None, wait).await;
    let refused = written.and_then(|outcomes| outcomes.into_iter().next().unwrap().map(drop)).unwrap_err();
    assert!(matches!(refused, StoreError::Blocked { .. }), "{refused}");
    assert!(refused.to_string().contains("is being restored"), "{refused}");
    // What the restore reads is not deleted, and not collected.
    assert!(matches!(service.delete("backup", "one").await, Err(Error::Concurrent { .. })));
    let begun = recovery(&service, "copy-logs").unwrap();
    assert_eq!(
        (begun.source_index.as_deref(), begun.snapshot.as_str(), begun.ended_ms),
        (Some("logs"), "one", None)
    );
    assert!(begun.shards[0].recovered_bytes < begun.shards[0].bytes, "{begun:?}");
    service.cleanup_repository("backup").await.unwrap();

    store.set_outage(None);
    // Its files may be here or there.
    create(&service, "two").await;
    wait_until(|| !is_pending(&engine, "copy-logs")).await;
    wait_until(|| recovery(&service, "copy-logs").unwrap().ended_ms.is_some()).await;
    let ended = recovery(&service, "copy-logs").unwrap().shards[0];
    assert_eq!((ended.recovered_files, ended.recovered_bytes), (ended.files, ended.bytes));
    for object in objects(&store).await {
        store.objects.delete(&object).await.unwrap();
    }
    let mut copied = expected.clone();
    check(&engine, "copy-logs", &copied).await;
    fill(&engine, "copy-logs", 70..90, 3, &mut copied).await;
    engine.force_merge(&[engine.index("copy-logs").unwrap()], 1).await.unwrap();
    check(&engine, "copy-logs", &copied).await;
}

async fn objects(store: &FaultyStore) -> Vec<Path> {
    use futures::TryStreamExt;
    use object_store::ObjectStore;
    store.objects.list(None).map_ok(|object| object.location).try_collect().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_goes_on_with_copies_and_says_where_files_are_until_then() {
    let store = FaultyStore::new(1);
    let (data, engine, expected) = captured(&store).await;
    // A registration that outlasts the process.
    let backups = tempfile::tempdir().unwrap();
    let local = service(&engine, backups.path()).await;
    create(&local, "local").await;
    drop(local);
    let service = service_over(&engine, &store).await;
    let system = Principal::system();
    store.set_outage(Some(Outage::HeldCopies));
    service.begin_restore(&system, ("backup", "one"), early()).await.unwrap();
    wait_until(|| engine.metadata().index("copy-logs").is_some()).await;
    engine.shutdown().await.unwrap();
    // No file comes any more, and the restore ends with its store.
    store.set_outage(Some(Outage::Gone));
    drop((service, engine));

    // No repository is open: reads of the restored index say so, the rest serves.
    let engine = open(data.path()).await;
    check(&engine, "logs", &expected).await;
    assert!(is_pending(&engine, "copy-logs"));
    let refused = engine.get(&system, "copy-logs", "d1", None, true).await;
    let refused = refused.map(drop).unwrap_err().to_string();
    assert!(refused.contains("snapshot repository [backup], which is not open"), "{refused}");
    // `backup` is registered as the directory, which has the same contents.
    let config = Config { path_repo: vec![backups.path().to_owned()], ..Config::default() };
    let again = SnapshotService::open(Arc::clone(&engine), config).await.unwrap();
    check(&engine, "copy-logs", &expected).await;
    wait_until(|| !is_pending(&engine, "copy-logs")).await;
    let mut copied = expected.clone();
    fill(&engine, "copy-logs", 70..90, 3, &mut copied).await;
    check(&engine, "copy-logs", &copied).await;
    drop(again);
    drop(engine);
    let engine = open(data.path()).await;
    check(&engine, "copy-logs", &copied).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_cannot_be_copied_takes_its_indices_away() {
    let store = FaultyStore::new(1);
    let (_data, engine, expected) = captured(&store).await;
    let service = service_over(&engine, &store).await;
    let system = Principal::system();
    let mut largest = objects(&store).await;
    let mut sizes = BTreeMap::new();
    for path in &largest {
        sizes.insert(path.clone(), store.objects.head(path).await.unwrap().size);
    }
    largest.sort_by_key(|path| sizes[path]);
    let damaged = largest.pop().unwrap();
    let right = store.objects.get(&damaged).await.unwrap().bytes().await.unwrap();
    let mut wrong = right.to_vec();
    let middle = wrong.len() / 2;
    wrong[middle] ^= 1;
    store.objects.put(&damaged, wrong.into()).await.unwrap();
    let refused = service.restore(&system, ("backup", "one"), early()).await.unwrap_err().to_string();
    assert!(refused.contains("cannot restore index [copy-logs]"), "{refused}");
    assert_eq!(recovery(&service, "copy-logs"), None);
    assert!(engine.metadata().index("copy-logs").is_none());
    let partial = RestoreSnapshot { partial: true, ..early() };
    let report = service.restore(&system, ("backup", "one"), partial).await.unwrap();
    assert_eq!((report.total, report.successful, report.failures.len()), (1, 0, 1));
    assert!(engine.metadata().index("copy-logs").is_none());
    store.objects.put(&damaged, right.into()).await.unwrap();
    let report = service.restore(&system, ("backup", "one"), early()).await.unwrap();
    assert_eq!((report.total, report.successful), (1, 1));
    check(&engine, "copy-logs", &expected).await;
    assert!(!is_pending(&engine, "copy-logs"));

    // A closed index stays until the one in its place is whole.
    let close = |m: &millrace_catalog::metadata::Metadata| {
        m.close_indices("copy-logs", &IndicesOptions::open_only(), 0)
    };
    engine.change(&system, close).await.unwrap();
    store.set_outage(Some(Outage::HeldCopies));
    service.begin_restore(&system, ("backup", "one"), early()).await.unwrap();
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    assert!(!engine.metadata().index("copy-logs").unwrap().open);
    store.set_outage(None);
    wait_until(|| engine.metadata().index("copy-logs").unwrap().open).await;
    check(&engine, "copy-logs", &expected).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_index_gets_no_files_any_more() {
    let store = FaultyStore::new(1);
    let (data, engine, _) = captured(&store).await;
    let service = service_over(&engine, &store).await;
    store.set_outage(Some(Outage::HeldCopies));
    service.begin_restore(&Principal::system(), ("backup", "one"), early()).await.unwrap();
    wait_until(|| engine.metadata().index("copy-logs").is_some()).await;
    let uuid = engine.metadata().index("copy-logs").unwrap().uuid.simple().to_string();
    let has_files =
        || files(data.path()).iter().any(|file| file.components().any(|name| name.as_os_str() == &*uuid));
    wait_until(has_files).await;
    delete_index(&engine, "copy-logs").await;
    wait_until(|| !has_files()).await;
    store.set_outage(None);
    while service.delete("backup", "one").await.is_err() {
        tokio::task::yield_now().await;
    }
    assert!(!has_files());
    let is_scratch = |name: &str| name.starts_with("snapshot-");
    let names = files(data.path());
    assert!(
        !names.iter().any(|file| file.file_name().and_then(|name| name.to_str()).is_some_and(is_scratch))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_file_keeps_no_other_index_from_its_end_and_a_repository_that_has_moved_is_registered_anew()
{
    let store = FaultyStore::new(1);
    let (data, engine, expected) = captured(&store).await;
    let (mut more, mut other) = (BTreeMap::new(), BTreeMap::new());
    fill(&engine, "more", 0..40, 5, &mut more).await;
    fill(&engine, "other", 0..40, 6, &mut other).await;
    for index in ["logs", "more", "other"] {
        flush(&engine, index).await;
    }
    let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let at = |directory: &std::path::Path| {
        let config = Config { path_repo: vec![directory.to_owned()], ..Config::default() };
        (config, json!({"type": "fs", "settings": {"location": directory.join("one")}}))
    };
    let (config, body) = at(old.path());
    let local = SnapshotService::open(Arc::clone(&engine), config).await.unwrap();
    local.put_repository("backup", &body, true).await.unwrap();
    create(&local, "three").await;
    drop(local);
    let service = service_over(&engine, &store).await;
    create(&service, "three").await;
    store.set_outage(Some(Outage::HeldCopies));
    service.begin_restore(&Principal::system(), ("backup", "three"), early()).await.unwrap();
    wait_until(|| engine.metadata().index("copy-other").is_some()).await;
    engine.shutdown().await.unwrap();
    store.set_outage(Some(Outage::Gone));
    drop((service, engine));

    let damaged = {
        let mut contents = files(&old.path().join("one"));
        contents.retain(|file| std::fs::read(file).unwrap().starts_with(b"PAR1"));
        contents.sort_by_key(|file| std::fs::metadata(file).unwrap().len());
        contents.pop().unwrap()
    };
    let right = std::fs::read(&damaged).unwrap();
    let mut wrong = right.clone();
    let middle = wrong.len() / 2;
    wrong[middle] ^= 1;
    std::fs::write(&damaged, wrong).unwrap();
    let damaged = new.path().join(damaged.strip_prefix(old.path()).unwrap());
    std::fs::rename(old.path().join("one"), new.path().join("one")).unwrap();

    let engine = open(data.path()).await;
    // The registration names a place that is not allowed any more.
    let (config, body) = at(new.path());
    let service = SnapshotService::open(Arc::clone(&engine), config).await.unwrap();
    service.put_repository("backup", &body, true).await.unwrap();
    let pending = || {
        let names = ["copy-logs", "copy-more", "copy-other"];
        names.into_iter().filter(|name| is_pending(&engine, name)).collect::<Vec<_>>()
    };
    wait_until(|| pending().len() == 1).await;
    std::fs::write(&damaged, right).unwrap();
    wait_until(|| pending().is_empty()).await;
    check(&engine, "copy-logs", &expected).await;
    check(&engine, "copy-more", &more).await;
    check(&engine, "copy-other", &other).await;
}
