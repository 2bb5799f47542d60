//! Indices whose stored mapping this version does not accept: the store starts without them, and they lose nothing.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millrace_catalog::Commit;
use millrace_catalog::access::{Origin, Principal};
use millrace_catalog::description::{self, IndexDescription};
use millrace_catalog::frame::{Entry, FrameNumber};
use millrace_catalog::metadata::IndicesOptions;
use millrace_runtime::{Error, Result};
use serde_json::{Value, json};
use uuid::Uuid;

use super::super::{Action, Engine, RefreshPolicy, WriteOp};
use super::open;
use crate::repair::{Options, repair};
use crate::{Config, Session, ShardFault};

const NOW_MS: i64 = 1_700_000_000_000;

async fn create(engine: &Engine, name: &str) {
    let body = json!({"mappings": {"properties": {"v": {"type": "long"}}}});
    let system = Principal::system();
    let created =
        engine.change(&system, |metadata| metadata.create_index(name, &body, NOW_MS, Uuid::new_v4()));
    created.await.unwrap();
}

async fn write(engine: &Engine, index: &str, id: u64) -> Result<()> {
    let op =
        WriteOp::new(index, Some(id.to_string()), Action::Index(Bytes::from(format!(r#"{{"v":{id}}}"#))));
    let wait = Duration::from_secs(5);
    let mut written = engine.write(&Principal::system(), vec![op], RefreshPolicy::None, wait).await?;
    written.remove(0).map(drop)
}

async fn flush(engine: &Engine, index: &str) {
    engine.flush(&[engine.index(index).unwrap()]).await.unwrap();
}

/// Counts the documents that searches see.
async fn count(engine: &Engine, index: &str) -> u64 {
    let index = engine.index(index).unwrap();
    engine.refresh(&[Arc::clone(&index)]).await.unwrap();
    index.snapshot().await.unwrap();
    index.figures().shards[0].docs
}

/// The encoded mapping of an index, with a field of a type that this version does not have.
fn of_later_version(engine: &Engine, index: &str, version: Option<u64>) -> Vec<u8> {
    let mut encoded: Value =
        serde_json::from_slice(&engine.index(index).unwrap().mapping().encode()).unwrap();
    encoded["mapping"]["properties"]["v"]["type"] = json!("of_a_later_version");
    if let Some(version) = version {
        encoded["version"] = json!(version);
    }
    serde_json::to_vec(&encoded).unwrap()
}

/// Makes a store with an index `a`, of which some documents are in the log only, and an index `b`.
async fn two_indices(dir: &Path) -> Arc<Engine> {
    let engine = open(dir).await;
    create(&engine, "a").await;
    create(&engine, "b").await;
    for id in 0..10 {
        write(&engine, "a", id).await.unwrap();
        write(&engine, "b", id).await.unwrap();
    }
    flush(&engine, "a").await;
    for id in 10..15 {
        write(&engine, "a", id).await.unwrap();
    }
    engine
}

fn is_unsupported<T>(result: Result<T>) {
    match result {
        Err(Error::IndexUnsupported { index, reason }) => {
            assert_eq!(index, "a");
            assert!(reason.contains("of_a_later_version"), "{reason}");
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was answered"),
    }
}

/// Checks that the index `a` is out of use, and that `b` is as it was.
async fn check_out_of_use(engine: &Arc<Engine>) {
    let a = engine.index("a").unwrap();
    assert_eq!(a.faults(), [Some(ShardFault::Unsupported)]);
    is_unsupported(a.snapshot().await);
    is_unsupported(write(engine, "a", 1).await);
    is_unsupported(engine.get(&Principal::system(), "a", "1", None, true).await);
    let system = Principal::system();
    is_unsupported(engine.put_mapping(&system, "a", &json!({"properties": {"w": {"type": "long"}}})).await);
    let settings = json!({"index.max_result_window": 5});
    let changed = engine.change(&system, |metadata| {
        metadata.update_settings("a", &IndicesOptions::open_only(), &settings, false, NOW_MS)
    });
    is_unsupported(changed.await);
    let body = Session::system(engine).mapping_body(&a).unwrap();
    assert_eq!(body["properties"]["v"]["type"], "of_a_later_version");
    assert_eq!(count(engine, "b").await, 10);
    write(engine, "b", 3).await.unwrap();
    flush(engine, "b").await;
    engine.inner.cut_log().await.unwrap();
}

async fn put_mapping(engine: &Engine, index: Uuid, mapping: Vec<u8>) {
    let commit = Commit { mappings: vec![(index, mapping)], ..Commit::default() };
    engine.inner.services.catalog.commit(&commit).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stored_mapping_that_is_not_accepted_puts_its_index_out_of_use() {
    let dir = tempfile::tempdir().unwrap();
    let engine = two_indices(dir.path()).await;
    let a = engine.index("a").unwrap();
    let (uuid, mapping) = (a.meta().uuid, a.mapping().encode());
    put_mapping(&engine, uuid, of_later_version(&engine, "a", None)).await;
    drop((a, engine));
    // Twice: a start takes nothing away.
    for _ in 0..2 {
        let engine = open(dir.path()).await;
        check_out_of_use(&engine).await;
        engine.shutdown().await.unwrap();
    }
    let engine = open(dir.path()).await;
    put_mapping(&engine, uuid, mapping).await;
    drop(engine);
    let engine = open(dir.path()).await;
    assert_eq!(engine.index("a").unwrap().faults(), [None]);
    assert_eq!(count(&engine, "a").await, 15);
    write(&engine, "a", 1).await.unwrap();
}

/// Appends a mapping of a later version to the log.
pub(super) async fn log_mapping(engine: &Engine, index: &str) -> FrameNumber {
    let mapping = Bytes::from(of_later_version(engine, index, Some(99)));
    let entry = Entry::Mapping { index: engine.index(index).unwrap().meta().uuid, mapping };
    let inner = &engine.inner;
    let appended = inner.wal().unwrap().append(&inner.frame(Origin::System, vec![entry])).unwrap();
    let frame = appended.hand_over(Vec::new(), 0);
    inner.wal().unwrap().synced(frame).await.unwrap();
    frame
}

#[tokio::test(flavor = "multi_thread")]
async fn a_logged_mapping_that_is_not_accepted_stays_in_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let engine = two_indices(dir.path()).await;
    let frame = log_mapping(&engine, "a").await;
    write(&engine, "a", 20).await.unwrap();
    drop(engine);
    for _ in 0..2 {
        let engine = open(dir.path()).await;
        check_out_of_use(&engine).await;
        assert!(engine.inner.wal().unwrap().first_frame() <= frame);
        engine.shutdown().await.unwrap();
    }
    // It can be deleted, and its name is free then.
    let engine = open(dir.path()).await;
    let system = Principal::system();
    let deleted =
        engine.change(&system, |metadata| metadata.delete_indices("a", &IndicesOptions::open_only(), NOW_MS));
    deleted.await.unwrap();
    create(&engine, "a").await;
    write(&engine, "a", 1).await.unwrap();
    drop(engine);
    let engine = open(dir.path()).await;
    assert_eq!((count(&engine, "a").await, count(&engine, "b").await), (1, 10));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repair_names_an_index_that_is_not_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let engine = two_indices(dir.path()).await;
    let meta = engine.index("a").unwrap().meta();
    let mapping = of_later_version(&engine, "a", Some(99));
    let described = IndexDescription::with_encoded_mapping(&meta, &mapping, 1).unwrap();
    let encoded = description::encode(&described).unwrap();
    engine.inner.env().objects.put(&description::index_path(meta.uuid), encoded).await.unwrap();
    engine.shutdown().await.unwrap();
    drop(engine);
    let config = Config { data_dir: dir.path().to_owned(), ..Config::default() };
    let options = Options { replace: true, ..Options::default() };
    let report = loop {
        match repair(config.clone(), options).await {
            Err(Error::Locked(_)) => tokio::task::yield_now().await,
            other => break other.unwrap(),
        }
    };
    assert_eq!(report.unsupported.len(), 1, "{report}");
    assert!(report.unsupported[0].starts_with("index [a]: "), "{report}");
    assert_eq!(report.indices.len(), 2, "{report}");
    check_out_of_use(&open(dir.path()).await).await;
}
