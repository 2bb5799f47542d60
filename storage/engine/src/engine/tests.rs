//! Tests that need small bounds.

mod cancellation;
mod feed;
mod remote;
mod unreliable;
mod unsupported;
mod upgrade;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millrace_catalog::access::Principal;
use millrace_runtime::{Error, SystemClock};
use serde_json::json;

use super::{Action, Engine, RefreshPolicy, WriteOp};
use crate::Config;

const IDS: u64 = 30;

async fn open(dir: &std::path::Path) -> Arc<Engine> {
    let config = Config { data_dir: dir.to_owned(), ..Config::default() };
    loop {
        match Engine::open(config.clone(), Arc::new(SystemClock)).await {
            Err(Error::Locked(_)) => tokio::task::yield_now().await,
            other => return other.unwrap(),
        }
    }
}

async fn check(engine: &Engine, rounds: u64) {
    let index = engine.index("a").unwrap();
    engine.refresh(&[Arc::clone(&index)]).await.unwrap();
    assert_eq!(index.figures().shards[0].docs, IDS);
    for id in 0..IDS {
        let id = id.to_string();
        let found = engine.get(&Principal::system(), "a", &id, None, true).await.unwrap().unwrap();
        assert_eq!(found.version, rounds, "{id}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_memtable_of_any_size_becomes_segments_that_are_not_too_large() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).await;
    let padding = "x".repeat(6_000);
    for round in 0..3 {
        for id in 0..IDS {
            let source = format!(r#"{{"v":{round},"p":"{id}-{round}-{padding}"}}"#);
            let op = WriteOp::new("a", Some(id.to_string()), Action::Index(Bytes::from(source)));
            let wait = Duration::from_secs(5);
            let written =
                engine.write(&Principal::system(), vec![op], RefreshPolicy::None, wait).await.unwrap();
            assert_eq!(written[0].as_ref().unwrap().version, round + 1);
        }
    }
    check(&engine, 3).await;
    assert!(engine.index("a").unwrap().figures().shards[0].segments > 3);
    drop(engine);
    let engine = open(dir.path()).await;
    check(&engine, 3).await;
    assert!(engine.index("a").unwrap().figures().shards[0].segments > 3);
    engine.flush(&[engine.index("a").unwrap()]).await.unwrap();
    check(&engine, 3).await;
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_compress_well_are_decoded_few_at_a_time() {
    const ROW: u64 = 100_000;
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).await;
    let source = Bytes::from(format!(r#"{{"p":"{}"}}"#, "y".repeat(ROW as usize)));
    let op = |id: u64| WriteOp::new("a", Some(id.to_string()), Action::Index(source.clone()));
    let ops = (0..IDS).map(op).collect();
    let wait = Duration::from_secs(5);
    engine.write(&Principal::system(), ops, RefreshPolicy::None, wait).await.unwrap();
    let index = engine.index("a").unwrap();
    engine.flush(&[Arc::clone(&index)]).await.unwrap();
    let snapshot = index.snapshot().await.unwrap();
    for view in &snapshot.shards[0].segments {
        assert!(view.segment.as_stored().unwrap().record.data_bytes < ROW);
        assert!(view.segment.row_bytes() >= ROW);
    }
    drop(snapshot);
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_compressed_at_the_level_that_their_index_sets() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).await;
    let mut lengths = Vec::new();
    for level in [1, 6] {
        let name = format!("level-{level}");
        let body = json!({"settings": {"index.codec": "zstd", "index.codec.compression_level": level}});
        engine.make_own_index(&name, &body).await.unwrap();
        let op = |id: u64| {
            let words: Vec<String> = (0..200).map(|word| (id * 7 + word * word % 91).to_string()).collect();
            let source = Bytes::from(json!({"message": words.join(" ")}).to_string());
            WriteOp::new(name.as_str(), Some(id.to_string()), Action::Index(source))
        };
        let ops = (0..300).map(op).collect();
        engine.write(&Principal::system(), ops, RefreshPolicy::None, Duration::from_secs(5)).await.unwrap();
        let index = engine.index(&name).unwrap();
        engine.flush(&[Arc::clone(&index)]).await.unwrap();
        let snapshot = index.snapshot().await.unwrap();
        lengths.push(snapshot.shards[0].segments[0].segment.as_stored().unwrap().record.data_bytes);
    }
    assert!(lengths[0] > lengths[1], "{lengths:?}");
    engine.shutdown().await.unwrap();
}
