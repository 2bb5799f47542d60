//! Damaged repositories and damaged stores: what is wrong is named, nothing wrong is taken for right.

use std::collections::BTreeMap;

use millrace_catalog::access::Principal;
use millrace_snapshot::{CreateSnapshot, RestoreSnapshot, SnapshotState};

use crate::support::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_bit_of_any_file_fails_the_index_by_name() {
    let (data, backups) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engine = open(data.path()).await;
    let service = service(&engine, backups.path()).await;
    let (mut a, mut b) = (BTreeMap::new(), BTreeMap::new());
    fill(&engine, "a", 0..50, 1, &mut a).await;
    flush(&engine, "a").await;
    delete(&engine, "a", "d1", &mut a).await;
    // Other ids: files of one content are one file.
    fill(&engine, "b", 100..150, 2, &mut b).await;
    let request = CreateSnapshot { include_global_state: false, ..CreateSnapshot::default() };
    service.create(&Principal::system(), ("backup", "one"), request).await.unwrap();
    let all = files(&backups.path().join("one/contents"));
    assert!(all.len() >= 8, "{all:?}");
    for (number, file) in all.iter().enumerate() {
        let right = std::fs::read(file).unwrap();
        let mut wrong = right.clone();
        let at = number * 37 % wrong.len();
        wrong[at] ^= 1 << (number % 8);
        std::fs::write(file, &wrong).unwrap();
        let error = restore_copies(&service, "one").await.unwrap_err().to_string();
        assert!(error.contains("cannot restore index [copy-"), "{error}");
        assert!(engine.metadata().index("copy-a").is_none() && engine.metadata().index("copy-b").is_none());
        // The other one is restored where that is enough.
        let partial = RestoreSnapshot {
            partial: true,
            rename_pattern: Some("(.+)".to_owned()),
            rename_replacement: Some("copy-$1".to_owned()),
            ..RestoreSnapshot::default()
        };
        let report = service.restore(&Principal::system(), ("backup", "one"), partial).await.unwrap();
        assert_eq!((report.total, report.successful, report.failures.len()), (2, 1, 1));
        let restored = report.indices[0].clone();
        check(&engine, &restored, if restored == "copy-a" { &a } else { &b }).await;
        delete_index(&engine, &restored).await;
        std::fs::remove_file(file).unwrap();
        let missing = restore_copies(&service, "one").await.unwrap_err().to_string();
        assert!(missing.contains("cannot restore index [copy-"), "{missing}");
        std::fs::write(file, &right).unwrap();
    }
    restore_copies(&service, "one").await.unwrap();
    check(&engine, "copy-a", &a).await;
    check(&engine, "copy-b", &b).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_manifest_is_no_snapshot_and_keeps_its_files() {
    let (data, backups) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engine = open(data.path()).await;
    let service = service(&engine, backups.path()).await;
    let mut expected = BTreeMap::new();
    fill(&engine, "logs", 0..50, 1, &mut expected).await;
    create(&service, "one").await;
    create(&service, "two").await;
    let manifest = backups.path().join("one/snapshots/one.manifest");
    let right = std::fs::read(&manifest).unwrap();
    let mut wrong = right.clone();
    wrong[60] ^= 4;
    std::fs::write(&manifest, &wrong).unwrap();
    assert!(restore_copies(&service, "one").await.unwrap_err().to_string().contains("checksum"));
    // Nobody knows what it needs: nothing is removed.
    assert_eq!(service.delete("backup", "two").await.unwrap().files, 0);
    assert!(service.cleanup_repository("backup").await.is_err());
    std::fs::write(&manifest, &right).unwrap();
    restore_copies(&service, "one").await.unwrap();
    check(&engine, "copy-logs", &expected).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_segment_is_not_backed_up_as_if_it_were_right() {
    let (data, backups) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engine = open(data.path()).await;
    let service = service(&engine, backups.path()).await;
    let (mut a, mut b) = (BTreeMap::new(), BTreeMap::new());
    fill(&engine, "a", 0..200, 1, &mut a).await;
    flush(&engine, "a").await;
    fill(&engine, "b", 0..50, 2, &mut b).await;
    let uuid = engine.metadata().index("a").unwrap().uuid.simple().to_string();
    let segments = files(&data.path().join("segments").join(uuid));
    let parquet = segments.iter().find(|file| file.ends_with("data.parquet")).unwrap();
    let mut bytes = std::fs::read(parquet).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(parquet, &bytes).unwrap();
    let system = Principal::system();
    let refused = service.create(&system, ("backup", "one"), CreateSnapshot::default()).await.unwrap_err();
    assert!(refused.to_string().contains("[a][0]"), "{refused}");
    let partial = CreateSnapshot { partial: true, ..CreateSnapshot::default() };
    let made = service.create(&system, ("backup", "one"), partial).await.unwrap();
    assert_eq!((made.state, made.failures.len()), (SnapshotState::Partial, 1));
    assert_eq!(made.shard_counts(), (1, 1));
    restore_copies(&service, "one").await.unwrap();
    check(&engine, "copy-b", &b).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_file_is_found_and_the_next_snapshot_writes_it_anew() {
    let (data, backups) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engine = open(data.path()).await;
    let service = service(&engine, backups.path()).await;
    let mut expected = BTreeMap::new();
    fill(&engine, "logs", 0..200, 1, &mut expected).await;
    flush(&engine, "logs").await;
    create(&service, "one").await;
    create(&service, "two").await;
    let all = files(&backups.path().join("one/contents"));
    let report = verify(&service, None).await.unwrap();
    assert_eq!((report.snapshots, report.total_damaged), (2, 0), "{report:?}");
    assert_eq!(report.files, all.len() as u64, "each file is read once");
    for file in &all {
        let right = std::fs::read(file).unwrap();
        let mut wrong = right.clone();
        let middle = wrong.len() / 2;
        wrong[middle] ^= 1;
        std::fs::write(file, &wrong).unwrap();
        let report = verify(&service, Some("one")).await.unwrap();
        assert_eq!(report.total_damaged, 1, "{}: {report:?}", file.display());
        let found = &report.damaged[0];
        assert!(file.ends_with(&found.file), "{found:?}");
        assert_eq!(found.snapshot, "one");
        // It has the length that it should have, so only the verification has told.
        create(&service, "three").await;
        assert_eq!(std::fs::read(file).unwrap(), right, "{}", file.display());
        assert_eq!(verify(&service, None).await.unwrap().total_damaged, 0);
        service.delete("backup", "three").await.unwrap();
    }
    // A restore finds one, too.
    let largest = all.iter().max_by_key(|file| std::fs::metadata(file).unwrap().len()).unwrap();
    let right = std::fs::read(largest).unwrap();
    let mut wrong = right.clone();
    wrong[10] ^= 1;
    std::fs::write(largest, &wrong).unwrap();
    restore_copies(&service, "one").await.unwrap_err();
    create(&service, "three").await;
    assert_eq!(std::fs::read(largest).unwrap(), right);
    restore_copies(&service, "one").await.unwrap();
    check(&engine, "copy-logs", &expected).await;

    std::fs::remove_file(largest).unwrap();
    let report = verify(&service, Some("t*")).await.unwrap();
    assert_eq!((report.snapshots, report.total_damaged), (2, 1));
    assert_eq!(report.damaged[0].reason, "it is missing");
    std::fs::write(backups.path().join("one/snapshots/one.manifest"), b"none").unwrap();
    let report = verify(&service, Some("one")).await.unwrap();
    assert_eq!((report.snapshots, report.damaged[0].file.as_str()), (0, "snapshots/one.manifest"));
    assert!(
        verify(&service, Some("four")).await.unwrap_err().to_string().contains("[backup:four] is missing")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn one_verification_of_a_repository_runs_at_a_time_and_ends_when_cancelled() {
    let (data, backups) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engine = open(data.path()).await;
    let service = service(&engine, backups.path()).await;
    let mut expected = BTreeMap::new();
    fill(&engine, "logs", 0..10, 1, &mut expected).await;
    create(&service, "one").await;
    let slow =
        serde_json::json!({"type": "fs", "settings": {"location": "one", "max_restore_bytes_per_sec": "1b"}});
    service.put_repository("backup", &slow, false).await.unwrap();
    let first = service.begin_verification("backup", None).await.unwrap();
    let refused = service.begin_verification("backup", Some("one")).await.unwrap_err();
    assert!(refused.to_string().contains("is running already"), "{refused}");
    engine.tasks().cancel(first.task().id(), "by user request");
    let cancelled = first.outcome().await.0.unwrap_err();
    assert!(cancelled.to_string().contains("cancelled"), "{cancelled}");
    let second = service.begin_verification("backup", None).await.unwrap();
    engine.tasks().cancel(second.task().id(), "by user request");
    second.outcome().await.0.unwrap_err();
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_of_a_file_that_others_need_is_told_though_its_first_snapshot_is_deleted_meanwhile() {
    let (data, backups) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engine = open(data.path()).await;
    let service = service(&engine, backups.path()).await;
    let mut expected = BTreeMap::new();
    fill(&engine, "logs", 0..10, 1, &mut expected).await;
    flush(&engine, "logs").await;
    let request = CreateSnapshot { include_global_state: false, ..CreateSnapshot::default() };
    for name in ["one", "two"] {
        service.create(&Principal::system(), ("backup", name), request.clone()).await.unwrap();
    }
    let all = files(&backups.path().join("one/contents"));
    let file = all.iter().max_by_key(|file| std::fs::metadata(file).unwrap().len()).unwrap();
    let mut wrong = std::fs::read(file).unwrap();
    wrong[3] ^= 1;
    std::fs::write(file, &wrong).unwrap();
    // Slow enough to be at it while the snapshot goes.
    let slow = serde_json::json!({"type": "fs", "settings": {"location": "one", "max_restore_bytes_per_sec": "20kb"}});
    service.put_repository("backup", &slow, false).await.unwrap();
    let running = service.begin_verification("backup", None).await.unwrap();
    service.delete("backup", "one").await.unwrap();
    let report = running.outcome().await.0.unwrap();
    assert_eq!(report.total_damaged, 1, "{report:?}");
    assert_eq!(
        (report.damaged[0].snapshot.as_str(), report.damaged[0].index.as_deref()),
        ("two", Some("logs"))
    );
}
