//! Bounded memory: writers wait and are refused, and it always goes on.

use std::sync::Arc;
use std::time::Duration;

use millrace_catalog::access::Principal;
use millrace_engine::{Config, Engine, RefreshPolicy, WriteOp};
use millrace_runtime::{Result, SystemClock};

use crate::documents::{config, index_op, write};

async fn open(dir: &std::path::Path, memtable_max_bytes: u64) -> Arc<Engine> {
    let config = Config { memtable_max_bytes, ..config(dir) };
    Engine::open(config, Arc::new(SystemClock)).await.unwrap()
}

fn batch(index: &str, docs: u32, bytes: usize) -> Vec<WriteOp> {
    let source = format!(r#"{{"p":"{}"}}"#, "x".repeat(bytes));
    (0..docs).map(|_| index_op(index, None, &source)).collect()
}

async fn docs(engine: &Engine) -> u64 {
    let mut docs = 0;
    for meta in engine.metadata().indices() {
        let name = &meta.name;
        let index = engine.index(name).unwrap();
        engine.refresh(&[Arc::clone(&index)]).await.unwrap();
        docs += index.figures().shards.iter().map(|s| s.docs).sum::<u64>();
    }
    docs
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_every_size_get_through_a_tiny_memory() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path(), 64 << 10).await;
    let mut tasks = Vec::new();
    // Larger than half of the bound, larger than the bound, tiny, and many indices with a little each.
    for (writer, docs, bytes) in [(0, 40, 1_000), (1, 100, 1_000), (2, 1, 10), (3, 8, 1_000), (4, 8, 4_000)] {
        for n in 0..12 {
            let engine = Arc::clone(&engine);
            let index = if writer == 3 { format!("many-{n}") } else { format!("index-{writer}") };
            tasks.push(tokio::spawn(async move {
                let ops = batch(&index, docs, bytes);
                let written = engine
                    .write(&Principal::system(), ops, RefreshPolicy::None, Duration::from_secs(60))
                    .await
                    .unwrap();
                assert!(written.iter().all(Result::is_ok));
                u64::from(docs)
            }));
        }
    }
    let mut total = 0;
    for task in tasks {
        total += tokio::time::timeout(Duration::from_secs(90), task).await.expect("it goes on").unwrap();
    }
    assert_eq!(docs(&engine).await, total);
    engine.flush(&all(&engine)).await.unwrap();
    assert_eq!(engine.memtable_bytes().0, 0, "all memory was given back");
    engine.shutdown().await.unwrap();
}

fn all(engine: &Engine) -> Vec<Arc<millrace_engine::Index>> {
    engine.metadata().indices().map(|meta| engine.index(&meta.name).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_of_a_deleted_index_is_given_back_whoever_still_writes_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path(), 8 << 20).await;
    for round in 0..6 {
        write(&engine, batch("a", 10, 1_000)).await;
        let writers: Vec<_> = (0..4)
            .map(|_| {
                let engine = Arc::clone(&engine);
                tokio::spawn(async move {
                    for _ in 0..5 {
                        // Some meet the index before, some after, some in the middle of its end.
                        write(&engine, batch("a", 20, 1_000)).await;
                    }
                })
            })
            .collect();
        let flushing = engine.index("a").map(|index| {
            let engine = Arc::clone(&engine);
            tokio::spawn(async move { engine.flush(&[index]).await })
        });
        if round % 2 == 0 {
            tokio::task::yield_now().await;
        }
        let options = millrace_catalog::metadata::IndicesOptions::open_only();
        engine.change(&Principal::system(), |m| m.delete_indices("a", &options, 0)).await.unwrap();
        for writer in writers {
            writer.await.unwrap();
        }
        if let Ok(flushing) = flushing {
            let _ = flushing.await.unwrap();
        }
    }
    engine.flush(&all(&engine)).await.unwrap();
    assert_eq!(engine.memtable_bytes().0, 0, "all memory was given back");
    engine.shutdown().await.unwrap();
}
