//! Restores give back the documents of a snapshot, on the same store and on others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millrace_catalog::access::Principal;
use millrace_catalog::metadata::{IndicesOptions, MetadataChange};
use millrace_engine::ReadBack;
use millrace_snapshot::{
    Config, CreateSnapshot, Error, RestoreSnapshot, SelectionOptions, SnapshotFilter, SnapshotService,
    SnapshotState,
};
use serde_json::json;
use uuid::Uuid;

use crate::support::*;

fn all() -> SnapshotFilter {
    SnapshotFilter { expression: "_all".to_owned(), ignore_unavailable: false }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_in_files_and_memory_comes_back_with_deletions_and_goes_on() {
    let (data, other, backups) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engine = open(data.path()).await;
    let service = service(&engine, backups.path()).await;
    let mut expected = BTreeMap::new();
    fill(&engine, "logs", 0..300, 1, &mut expected).await;
    flush(&engine, "logs").await;
    fill(&engine, "logs", 100..150, 2, &mut expected).await;
    delete(&engine, "logs", "d7", &mut expected).await;
    fill(&engine, "logs", 300..350, 3, &mut expected).await;
    let manifest = create(&service, "first").await;
    assert_eq!(manifest.state, SnapshotState::Success);
    assert!(manifest.added_files > 0 && manifest.frame.is_some());
    // What comes later is not in it.
    let mut later = expected.clone();
    fill(&engine, "logs", 0..50, 9, &mut later).await;

    let report = restore_copies(&service, "first").await.unwrap();
    assert_eq!((report.indices.as_slice(), report.successful), (&["copy-logs".to_owned()][..], 1));
    check(&engine, "copy-logs", &expected).await;
    check(&engine, "logs", &later).await;
    // The restored index takes writes: the older row of a document goes.
    let mut copied = expected.clone();
    fill(&engine, "copy-logs", 340..360, 5, &mut copied).await;
    delete(&engine, "copy-logs", "d0", &mut copied).await;
    check(&engine, "copy-logs", &copied).await;
    engine.shutdown().await.unwrap();
    drop((engine, service));

    let engine = open(data.path()).await;
    check(&engine, "copy-logs", &copied).await;
    check(&engine, "logs", &later).await;
    engine.force_merge(&[engine.index("copy-logs").unwrap()], 1).await.unwrap();
    check(&engine, "copy-logs", &copied).await;

    // An empty store needs nothing but the repository.
    let empty = open(other.path()).await;
    let config = Config { path_repo: vec![backups.path().to_owned()], ..Config::default() };
    let reader = SnapshotService::open(Arc::clone(&empty), config).await.unwrap();
    let body = json!({"type": "fs", "settings": {"location": "one", "readonly": true}});
    reader.put_repository("backup", &body, true).await.unwrap();
    let listed = reader.manifests("backup", &all()).await.unwrap();
    assert_eq!(listed, [manifest]);
    let request = RestoreSnapshot::default();
    reader.restore(&Principal::system(), ("backup", "first"), request).await.unwrap();
    check(&empty, "logs", &expected).await;
    let refused = reader.create(&Principal::system(), ("backup", "second"), CreateSnapshot::default()).await;
    assert!(refused.unwrap_err().to_string().contains("readonly"));
}

#[tokio::test]
async fn a_creation_is_a_task_and_ends_without_a_snapshot_when_it_is_cancelled() {
    let (data, backups) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engine = open(data.path()).await;
    let service = service(&engine, backups.path()).await;
    fill(&engine, "logs", 0..10, 1, &mut BTreeMap::new()).await;
    let request = CreateSnapshot::default();
    service.begin_creation(&Principal::system(), ("backup", "first"), request).await.unwrap();
    let tasks = engine.tasks().list();
    let [task] = tasks.as_slice() else { panic!("{tasks:?}") };
    assert_eq!((task.action, task.is_cancellable), ("cluster:admin/snapshot/create", true));
    assert_eq!(task.description.to_string(), "snapshot[backup:first]");
    let handle = engine.tasks().get(task.id).unwrap();
    engine.tasks().cancel(task.id, "by user request");
    handle.ended().await;
    assert!(service.manifests("backup", &all()).await.unwrap().is_empty());
    let listed = service.list("backup", &all(), true).await.unwrap();
    assert!(listed[0].to_string().contains("task cancelled [by user request]"), "{listed:?}");

    create(&service, "second").await;
    let request = RestoreSnapshot {
        rename_pattern: Some("logs".to_owned()),
        rename_replacement: Some("copy".to_owned()),
        partial: true,
        ..RestoreSnapshot::default()
    };
    service.begin_restore(&Principal::system(), ("backup", "second"), request).await.unwrap();
    let task = engine.tasks().list()[0].clone();
    assert_eq!(task.action, "cluster:admin/snapshot/restore");
    let handle = engine.tasks().get(task.id).unwrap();
    engine.tasks().cancel(task.id, "by user request");
    handle.ended().await;
    assert!(engine.index("copy").is_err() && engine.index("logs").is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_store_has_its_restored_indices() {
    let (data, backups) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engine = open(data.path()).await;
    let first = service(&engine, backups.path()).await;
    let mut expected = BTreeMap::new();
    fill(&engine, "logs", 0..100, 1, &mut expected).await;
    create(&first, "one").await;
    restore_copies(&first, "one").await.unwrap();
    let mut copied = expected.clone();
    fill(&engine, "copy-logs", 90..120, 2, &mut copied).await;
    // No shutdown: the log has the last writes, the catalog the restored segments.
    drop((first, engine));
    let engine = open(data.path()).await;
    check(&engine, "copy-logs", &copied).await;
    // The registrations are there as well.
    let config = Config { path_repo: vec![backups.path().to_owned()], ..Config::default() };
    let again = SnapshotService::open(Arc::clone(&engine), config).await.unwrap();
    assert_eq!(again.repositories(None).unwrap().len(), 1);
    assert_eq!(again.manifests("backup", &all()).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unchanged_store_adds_nothing_and_a_changed_one_its_change() {
    let (data, backups) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engine = open(data.path()).await;
    let first = service(&engine, backups.path()).await;
    let mut expected = BTreeMap::new();
    for index in 0..20 {
        fill(&engine, &format!("logs-{index}"), 0..100, index, &mut expected).await;
    }
    let whole = create(&first, "one").await;
    let again = create(&first, "two").await;
    assert_eq!((again.added_files, again.added_bytes), (0, 0));
    // A service that knows no digest of a file finds them in the repository.
    let fresh = service(&engine, backups.path()).await;
    assert_eq!(create(&fresh, "three").await.added_files, 0);
    fill(&engine, "logs-3", 100..101, 7, &mut expected).await;
    let changed = create(&first, "four").await;
    assert!(changed.added_files > 0 && changed.added_bytes * 5 < whole.added_bytes, "{changed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_is_one_moment_of_all_indices() {
    let (data, backups) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engine = open(data.path()).await;
    let service = service(&engine, backups.path()).await;
    let body = json!({"settings": {"number_of_shards": 3}});
    for index in ["left", "right"] {
        let uuid = millrace_catalog::metadata::Uuid::new_v4();
        engine.change(&Principal::system(), |m| m.create_index(index, &body, 0, uuid)).await.unwrap();
    }
    let stop = Arc::new(AtomicBool::new(false));
    let writer = {
        let (engine, stop) = (Arc::clone(&engine), Arc::clone(&stop));
        tokio::spawn(async move {
            let mut number = 0u32;
            while !stop.load(Ordering::Relaxed) {
                // One frame: both or neither.
                let id = format!("d{number}");
                write(
                    &engine,
                    vec![index_op("left", &id, r#"{"v":1}"#), index_op("right", &id, r#"{"v":1}"#)],
                )
                .await;
                number += 1;
            }
            number
        })
    };
    let mut least = 0;
    for round in 0..4 {
        while live(&engine, "left") < least + 20 {
            engine.refresh(&[engine.index("left").unwrap()]).await.unwrap();
        }
        let name = format!("s{round}");
        create(&service, &name).await;
        restore_copies(&service, &name).await.unwrap();
        let (left, right) = (live(&engine, "copy-left"), live(&engine, "copy-right"));
        assert_eq!(left, right, "round {round}");
        assert!(left >= least + 20, "what was there before the call is in it");
        least = left;
        for index in ["copy-left", "copy-right"] {
            delete_index(&engine, index).await;
        }
    }
    stop.store(true, Ordering::Relaxed);
    assert!(writer.await.unwrap() > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_removes_what_no_other_snapshot_needs() {
    let (data, backups) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engine = open(data.path()).await;
    let service = service(&engine, backups.path()).await;
    let mut expected = BTreeMap::new();
    fill(&engine, "logs", 0..100, 1, &mut expected).await;
    create(&service, "one").await;
    let at_one = expected.clone();
    fill(&engine, "logs", 100..200, 2, &mut expected).await;
    create(&service, "two").await;
    service
        .clone_snapshot("backup", "one", "copy-of-one", ("logs", SelectionOptions::default()))
        .await
        .unwrap();
    service.delete("backup", "one").await.unwrap();
    for (snapshot, then) in [("two", &expected), ("copy-of-one", &at_one)] {
        restore_copies(&service, snapshot).await.unwrap();
        check(&engine, "copy-logs", then).await;
        delete_index(&engine, "copy-logs").await;
    }
    assert!(matches!(service.delete("backup", "one").await, Err(Error::SnapshotMissing { .. })));
    let removed = service.delete("backup", "two,copy-of-one").await.unwrap();
    assert!(removed.files > 0);
    assert!(!backups.path().join("one/contents").exists(), "all contents are gone");
    assert!(service.manifests("backup", &all()).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_are_those_of_opensearch() {
    let (data, other, backups) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engine = open(data.path()).await;
    let first = service(&engine, backups.path()).await;
    let mut expected = BTreeMap::new();
    fill(&engine, "logs", 0..10, 1, &mut expected).await;
    create(&first, "one").await;
    let system = Principal::system();
    let create_again = first.create(&system, ("backup", "one"), CreateSnapshot::default()).await;
    assert!(create_again.unwrap_err().to_string().contains("snapshot with the same name already exists"));
    let missing = CreateSnapshot { indices: Some("nope".to_owned()), ..CreateSnapshot::default() };
    let missing = first.create(&system, ("backup", "two"), missing).await.unwrap_err();
    assert!(missing.to_string().contains("no such index [nope]"), "{missing}");
    let nowhere = first.create(&system, ("tape", "two"), CreateSnapshot::default()).await;
    assert!(matches!(nowhere, Err(Error::RepositoryMissing { .. })));
    // Over an open index; over a closed one it takes its place.
    let over = first.restore(&system, ("backup", "one"), RestoreSnapshot::default()).await.unwrap_err();
    assert!(over.to_string().contains("an open index with same name already exists"), "{over}");
    let mut later = expected.clone();
    fill(&engine, "logs", 10..20, 1, &mut later).await;
    let close = |m: &millrace_catalog::metadata::Metadata| -> millrace_runtime::Result<Vec<MetadataChange>> {
        m.close_indices("logs", &IndicesOptions::open_only(), 0)
    };
    engine.change(&system, close).await.unwrap();
    first.restore(&system, ("backup", "one"), RestoreSnapshot::default()).await.unwrap();
    check(&engine, "logs", &expected).await;
    // A store that registers the repository takes it over.
    let rival = open(other.path()).await;
    let second = service(&rival, backups.path()).await;
    let refused = first.create(&system, ("backup", "two"), CreateSnapshot::default()).await.unwrap_err();
    assert!(refused.to_string().contains("register it again"), "{refused}");
    second.create(&system, ("backup", "two"), CreateSnapshot::default()).await.unwrap();
    // A place with files of something else is none.
    std::fs::create_dir(backups.path().join("foreign")).unwrap();
    std::fs::write(backups.path().join("foreign/index-7"), "x").unwrap();
    let body = json!({"type": "fs", "settings": {"location": "foreign"}});
    let foreign = first.put_repository("foreign", &body, true).await.unwrap_err();
    assert!(foreign.to_string().contains("index-7"), "{foreign}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_catalog_is_made_again_with_restored_indices() {
    let (data, backups) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engine = open(data.path()).await;
    let first = service(&engine, backups.path()).await;
    let (mut logs, mut gone) = (BTreeMap::new(), BTreeMap::new());
    fill(&engine, "logs", 0..100, 1, &mut logs).await;
    flush(&engine, "logs").await;
    fill(&engine, "logs", 50..120, 2, &mut logs).await;
    // An index whose operations have no row left.
    fill(&engine, "gone", 0..1, 1, &mut gone).await;
    delete(&engine, "gone", "d0", &mut gone).await;
    create(&first, "one").await;
    restore_copies(&first, "one").await.unwrap();
    let mut copied = logs.clone();
    fill(&engine, "copy-logs", 110..130, 3, &mut copied).await;
    fill(&engine, "copy-gone", 5..6, 3, &mut gone).await;
    flush(&engine, "copy-logs").await;
    drop(first);
    engine.shutdown().await.unwrap();
    drop(engine);
    for name in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(data.path().join(format!("catalog.sqlite{name}")));
    }
    let config = millrace_engine::Config { data_dir: data.path().to_owned(), ..Default::default() };
    loop {
        match millrace_engine::repair::repair(config.clone(), Default::default()).await {
            Err(millrace_runtime::Error::Locked(_)) => tokio::task::yield_now().await,
            other => break drop(other.unwrap()),
        }
    }
    let engine = open(data.path()).await;
    check(&engine, "logs", &logs).await;
    check(&engine, "copy-logs", &copied).await;
    check(&engine, "copy-gone", &gone).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn restored_documents_are_no_history() {
    let (data, backups) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engine = open(data.path()).await;
    let service = service(&engine, backups.path()).await;
    let mut expected = BTreeMap::new();
    fill(&engine, "logs", 0..30, 1, &mut expected).await;
    let one = create(&service, "one").await;
    restore_copies(&service, "one").await.unwrap();
    fill(&engine, "copy-logs", 100..103, 2, &mut expected).await;
    engine.durable().await.unwrap();
    let index = engine.index("copy-logs").unwrap();
    let count = async |mut reading: ReadBack| {
        let mut operations = 0;
        while let Some(frame) = reading.next().await.unwrap() {
            operations += frame.parts.iter().map(|part| part.ops.len()).sum::<usize>();
        }
        assert_eq!(reading.missing().map(<[_]>::len), Some(0));
        operations
    };
    let (indices, frames) = (std::slice::from_ref(&index), 0..u64::MAX);
    assert_eq!(count(engine.read_back(indices, frames.clone()).await.unwrap()).await, 3);
    assert_eq!(count(engine.read_back_stored(&index).await.unwrap()).await, 33);
    let restored = async |snapshot: Uuid| {
        let range = (frames.clone(), i64::MIN..i64::MAX);
        count(engine.read_back_restored(&snapshot, indices, range, None).await.unwrap()).await
    };
    assert_eq!((restored(one.uuid).await, restored(Uuid::new_v4()).await), (30, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_repository_lacks_of_an_unchanged_index_comes_again() {
    let (data, backups) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engine = open(data.path()).await;
    let service = service(&engine, backups.path()).await;
    let mut expected = BTreeMap::new();
    fill(&engine, "logs", 0..50, 1, &mut expected).await;
    let whole = create(&service, "one").await;
    assert_eq!(create(&service, "two").await.added_files, 0);
    // A file that is gone, whatever the server remembers of it.
    for file in files(&backups.path().join("one/contents")) {
        let bytes = std::fs::read(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        let again = create(&service, &format!("after-{}", bytes.len())).await;
        assert_eq!((again.added_files, again.added_bytes), (1, bytes.len() as u64));
        assert_eq!(std::fs::read(&file).unwrap(), bytes);
    }
    // Another repository has none of them.
    let body = json!({"type": "fs", "settings": {"location": "other"}});
    service.put_repository("other", &body, true).await.unwrap();
    let system = Principal::system();
    let other = service.create(&system, ("other", "one"), CreateSnapshot::default()).await.unwrap();
    assert_eq!((other.added_files, other.added_bytes), (whole.added_files, whole.added_bytes));
    // A deletion alone, and a setting alone, are changes.
    delete(&engine, "logs", "d7", &mut expected).await;
    assert!(create(&service, "deleted").await.added_files > 0);
    let setting = json!({"index.priority": 7});
    let options = IndicesOptions::open_only();
    engine.change(&system, |m| m.update_settings("logs", &options, &setting, false, 0)).await.unwrap();
    assert!(create(&service, "changed").await.added_files > 0);
    restore_copies(&service, "changed").await.unwrap();
    check(&engine, "copy-logs", &expected).await;
    assert_eq!(engine.metadata().index("copy-logs").unwrap().setting("index.priority"), Some("7"));
}
