//! Repositories of earlier builds: each format that was ever written stays readable.
//!
//! `tests/fixtures/repository-1.tar.gz` was written by `write_fixture`, which is run by hand, for a new format alone:
//! `MILLRACE_WRITE_FIXTURE=<file> cargo test -p millrace-snapshot --test it write_fixture -- --ignored`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use millrace_catalog::AccountRecord;
use millrace_catalog::access::Principal;
use millrace_catalog::frame::PositionDelta;
use millrace_catalog::metadata::MetadataChange;
use millrace_engine::{DeadLetter, OnReject, SourceWrite};
use millrace_snapshot::{
    AccountStore, CreateSnapshot, RestoreSnapshot, SnapshotFilter, SnapshotService, SnapshotState,
};
use parking_lot::Mutex;
use serde_json::json;

use crate::support::*;

/// Accounts of the fixture, or those that a restore brings.
#[derive(Debug, Default)]
struct ListedAccounts(Mutex<Vec<AccountRecord>>);

#[async_trait]
impl AccountStore for ListedAccounts {
    async fn export(&self) -> Result<Vec<AccountRecord>, String> {
        Ok(self.0.lock().clone())
    }

    async fn import(&self, records: Vec<AccountRecord>) -> Result<(), String> {
        *self.0.lock() = records;
        Ok(())
    }
}

fn accounts() -> Vec<AccountRecord> {
    vec![AccountRecord { kind: "role".into(), name: "reader".into(), body: r#"{"cluster":[]}"#.into() }]
}

/// Documents of the index `logs` at the moment of the snapshot `two`.
fn documents() -> BTreeMap<String, u32> {
    (1..40).map(|id| (format!("d{id}"), if id < 30 { 1 } else { 2 })).collect()
}

/// Runs `tar` in a directory.
fn tar(args: &[&str], archive: &Path, directory: &Path) {
    let ended = Command::new("tar").args(args).arg(archive).arg("-C").arg(directory).arg("one").status();
    assert!(ended.unwrap().success());
}

async fn register(service: &SnapshotService, readonly: bool) {
    let body = json!({"type": "fs", "settings": {"location": "one", "readonly": readonly}});
    service.put_repository("backup", &body, true).await.unwrap();
}

/// Writes the fixture; without its variable it does nothing.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by hand, for a new format"]
async fn write_fixture() {
    let Ok(target) = std::env::var("MILLRACE_WRITE_FIXTURE") else { return };
    let (data, backups) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engine = open(data.path()).await;
    let service = service(&engine, backups.path()).await;
    service.set_accounts(Arc::new(ListedAccounts(Mutex::new(accounts()))));
    let body = json!({"settings": {"index.number_of_shards": 1, "index.number_of_replicas": 0}});
    engine.make_own_index(".console", &body).await.unwrap();
    write(&engine, vec![index_op(".console", "o", r#"{"v":7}"#)]).await;
    let mut written = BTreeMap::new();
    fill(&engine, "logs", 0..30, 1, &mut written).await;
    flush(&engine, "logs").await;
    create(&service, "one").await;
    // Deleted rows, and rows that are in memory alone.
    delete(&engine, "logs", "d0", &mut written).await;
    fill(&engine, "logs", 30..40, 2, &mut written).await;
    assert_eq!(written, documents());
    engine.claim_position("main", "topic", "0").await.unwrap();
    let moves = vec![PositionDelta {
        pipeline: "main".to_owned(),
        source: "topic".to_owned(),
        partition: "0".to_owned(),
        previous: None,
        new: Bytes::from_static(b"5"),
        owner_epoch: 1,
    }];
    let abort: DeadLetter = Arc::new(|_, _| OnReject::Abort);
    let moved = SourceWrite { moves, ..SourceWrite::default() };
    engine.write_from_source(&Principal::system(), moved, abort, Duration::from_secs(5)).await.unwrap();
    let changes = vec![
        MetadataChange::PutPersistent(
            json!({"action.auto_create_index": "logs*"}).as_object().unwrap().clone(),
        ),
        MetadataChange::PutTemplate {
            kind: "index".to_owned(),
            name: "t".to_owned(),
            body: json!({"index_patterns": ["t-*"]}),
        },
    ];
    engine.change(&Principal::system(), |_| Ok(changes)).await.unwrap();
    let metadata = json!({"by": "fixture"}).as_object().cloned();
    let request = CreateSnapshot { include_accounts: true, metadata, ..CreateSnapshot::default() };
    service.create(&Principal::system(), ("backup", "two"), request).await.unwrap();
    tar(&["-czf"], Path::new(&target), backups.path());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_of_format_1_is_read() {
    let (data, backups) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/repository-1.tar.gz");
    tar(&["-xzf"], &fixture, backups.path());
    let engine = open(data.path()).await;
    let config = millrace_snapshot::Config {
        path_repo: vec![backups.path().to_owned()],
        ..millrace_snapshot::Config::default()
    };
    let service = SnapshotService::open(Arc::clone(&engine), config).await.unwrap();
    let restored = Arc::new(ListedAccounts::default());
    service.set_accounts(restored.clone());
    register(&service, true).await;
    let filter = SnapshotFilter { expression: "_all".to_owned(), ignore_unavailable: false };
    let listed = service.manifests("backup", &filter).await.unwrap();
    let names: Vec<_> = listed.iter().map(|one| (one.snapshot.as_str(), one.state)).collect();
    assert_eq!(names, [("one", SnapshotState::Success), ("two", SnapshotState::Success)]);
    assert_eq!(listed[1].metadata.as_ref().unwrap()["by"], "fixture");
    let verified = verify(&service, None).await.unwrap();
    assert_eq!((verified.snapshots, verified.total_damaged), (2, 0), "{verified:?}");

    // The files come later, and at once.
    let early = RestoreSnapshot {
        early_search_bytes: 0,
        rename_pattern: Some("(.+)".to_owned()),
        rename_replacement: Some("copy-$1".to_owned()),
        ..RestoreSnapshot::default()
    };
    service.restore(&Principal::system(), ("backup", "two"), early).await.unwrap();
    check(&engine, "copy-logs", &documents()).await;
    let all =
        RestoreSnapshot { include_global_state: true, include_accounts: true, ..RestoreSnapshot::default() };
    let report = service.restore(&Principal::system(), ("backup", "two"), all).await.unwrap();
    assert_eq!(report.indices, [".console", "logs"]);
    check(&engine, "logs", &documents()).await;
    check(&engine, ".console", &[("o".to_owned(), 7)].into()).await;
    assert_eq!(engine.positions("main", "topic"), [("0".to_owned(), Bytes::from_static(b"5"))]);
    let metadata = engine.metadata();
    assert_eq!(metadata.persistent["action.auto_create_index"], "logs*");
    assert_eq!(metadata.index_templates["t"]["index_patterns"], json!(["t-*"]));
    let names: Vec<_> = restored.0.lock().iter().map(|record| record.name.clone()).collect();
    assert_eq!(names, ["reader"]);

    // This build writes on in it: what is there is not sent again.
    register(&service, false).await;
    let mut written = documents();
    fill(&engine, "logs", 40..50, 3, &mut written).await;
    create(&service, "three").await;
    service.delete("backup", "one").await.unwrap();
    let filter = SnapshotFilter { expression: "two,three".to_owned(), ignore_unavailable: false };
    assert_eq!(service.manifests("backup", &filter).await.unwrap().len(), 2);
    let verified = verify(&service, None).await.unwrap();
    assert_eq!((verified.snapshots, verified.total_damaged), (2, 0), "{verified:?}");
}
