//! Stores, documents and repositories of the tests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millrace_catalog::access::Principal;
use millrace_engine::{Action, Config as EngineConfig, Engine, RefreshPolicy, WriteOp};
use millrace_runtime::{Error, SystemClock};
use millrace_snapshot::{
    Config, CreateSnapshot, Manifest, RestoreReport, RestoreSnapshot, SnapshotService, VerificationReport,
};
use serde_json::json;

pub(crate) async fn open(dir: &Path) -> Arc<Engine> {
    loop {
        let config = EngineConfig { data_dir: dir.to_owned(), ..EngineConfig::default() };
        match Engine::open(config, Arc::new(SystemClock)).await {
            Err(Error::Locked(_)) => tokio::task::yield_now().await,
            other => return other.unwrap(),
        }
    }
}

/// Opens the service of a store with repositories below a directory, and registers one there.
pub(crate) async fn service(engine: &Arc<Engine>, backups: &Path) -> SnapshotService {
    let config = Config { path_repo: vec![backups.to_owned()], ..Config::default() };
    let service = SnapshotService::open(Arc::clone(engine), config).await.unwrap();
    service
        .put_repository("backup", &json!({"type": "fs", "settings": {"location": "one"}}), true)
        .await
        .unwrap();
    service
}

pub(crate) fn index_op(index: &str, id: &str, source: &str) -> WriteOp {
    WriteOp::new(index, Some(id.to_owned()), Action::Index(Bytes::copy_from_slice(source.as_bytes())))
}

pub(crate) async fn write(engine: &Engine, ops: Vec<WriteOp>) {
    let written = engine.write(&Principal::system(), ops, RefreshPolicy::None, Duration::from_secs(5)).await;
    written.unwrap().into_iter().for_each(|outcome| drop(outcome.unwrap()));
}

/// Writes documents `from..to` with a value each, and keeps in `expected` what is there then.
pub(crate) async fn fill(
    engine: &Engine,
    index: &str,
    ids: std::ops::Range<u32>,
    value: u32,
    expected: &mut BTreeMap<String, u32>,
) {
    let ops = ids
        .clone()
        .map(|id| index_op(index, &format!("d{id}"), &format!(r#"{{"v":{value},"t":"doc {id}"}}"#)));
    write(engine, ops.collect()).await;
    expected.extend(ids.map(|id| (format!("d{id}"), value)));
}

pub(crate) async fn delete(engine: &Engine, index: &str, id: &str, expected: &mut BTreeMap<String, u32>) {
    write(engine, vec![WriteOp::new(index, Some(id.to_owned()), Action::Delete)]).await;
    expected.remove(id);
}

pub(crate) async fn flush(engine: &Engine, index: &str) {
    engine.flush(&[engine.index(index).unwrap()]).await.unwrap();
}

pub(crate) fn live(engine: &Engine, index: &str) -> u64 {
    engine.index(index).unwrap().figures().shards.iter().map(|shard| shard.docs).sum()
}

/// Checks that an index has exactly these documents.
pub(crate) async fn check(engine: &Engine, index: &str, expected: &BTreeMap<String, u32>) {
    engine.refresh(&[engine.index(index).unwrap()]).await.unwrap();
    assert_eq!(live(engine, index), expected.len() as u64, "documents of {index}");
    for (id, value) in expected {
        let found = engine.get(&Principal::system(), index, id, None, true).await.unwrap();
        let found = found.unwrap_or_else(|| panic!("{index} lacks {id}"));
        let source: serde_json::Value = serde_json::from_slice(&found.source).unwrap();
        assert_eq!(source["v"], *value, "{index}/{id}");
    }
}

pub(crate) async fn create(service: &SnapshotService, name: &str) -> Manifest {
    service.create(&Principal::system(), ("backup", name), CreateSnapshot::default()).await.unwrap()
}

/// Restores indices under the name `copy-<name>`.
pub(crate) async fn restore_copies(
    service: &SnapshotService,
    snapshot: &str,
) -> millrace_snapshot::Result<RestoreReport> {
    let request = RestoreSnapshot {
        rename_pattern: Some("(.+)".to_owned()),
        rename_replacement: Some("copy-$1".to_owned()),
        ..RestoreSnapshot::default()
    };
    service.restore(&Principal::system(), ("backup", snapshot), request).await
}

/// Verifies the files of some snapshots, of all without an expression.
pub(crate) async fn verify(
    service: &SnapshotService,
    snapshot: Option<&str>,
) -> millrace_snapshot::Result<VerificationReport> {
    service.begin_verification("backup", snapshot).await?.outcome().await.0
}

pub(crate) async fn delete_index(engine: &Engine, index: &str) {
    let uuid = engine.metadata().index(index).unwrap().uuid;
    let change = millrace_catalog::metadata::MetadataChange::DeleteIndex { name: index.into(), uuid };
    engine.change(&Principal::system(), |_| Ok(vec![change])).await.unwrap();
}

/// Lists the files below a directory, in order.
pub(crate) fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        // A store at work removes directories meanwhile.
        let Ok(entries) = std::fs::read_dir(dir) else { continue };
        for entry in entries {
            let path = entry.unwrap().path();
            if path.is_dir() { dirs.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    found
}
