//! Indices that nobody searched for a while: the search that comes refreshes them.

use std::sync::Arc;

use futures::future::join_all;
use millrace_catalog::access::Principal;
use millrace_engine::Engine;
use millrace_runtime::ManualClock;
use serde_json::json;

use crate::documents::{config, index_op, write};

async fn open(dir: &std::path::Path) -> (Arc<Engine>, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(1_700_000_000_000));
    let engine = Engine::open(config(dir), Arc::clone(&clock) as _).await.unwrap();
    (engine, clock)
}

async fn create(engine: &Engine, index: &str, settings: serde_json::Value) {
    let body = json!({"settings": settings});
    let uuid = millrace_catalog::metadata::Uuid::new_v4();
    engine.change(&Principal::system(), |m| m.create_index(index, &body, 0, uuid)).await.unwrap();
}

/// Counts what a search that comes now sees.
async fn count(engine: &Engine, index: &str) -> u64 {
    let snapshot = engine.index(index).unwrap().snapshot().await.unwrap();
    let segments = snapshot.shards.iter().flat_map(|shard| &shard.segments);
    segments.map(|view| u64::from(view.live_rows())).sum()
}

async fn write_docs(engine: &Engine, index: &str, ids: std::ops::Range<u32>) {
    let ops = ids.map(|id| index_op(index, Some(&id.to_string()), r#"{"v":1}"#)).collect();
    assert!(write(engine, ops).await.iter().all(Result::is_ok));
}

/// Waits until searches see so many documents.
async fn until(engine: &Engine, index: &str, docs: u64) {
    while count(engine, index).await != docs {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn searches_side_by_side_wait_for_the_refresh_of_an_idle_index() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, clock) = open(dir.path()).await;
    create(&engine, "a", json!({"number_of_shards": 3})).await;
    write_docs(&engine, "a", 0..1).await;
    assert_eq!(count(&engine, "a").await, 1);
    for round in 1..6 {
        clock.advance_ms(30_000);
        write_docs(&engine, "a", 0..round * 498).await;
        let counts = join_all((0..8).map(|_| count(&engine, "a"))).await;
        assert_eq!(counts, [u64::from(round) * 498; 8]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_sees_what_was_written_while_the_refresh_of_another_ran() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, clock) = open(dir.path()).await;
    create(&engine, "a", json!({})).await;
    for round in 0..20u32 {
        clock.advance_ms(30_000);
        write_docs(&engine, "a", 0..round * 20 + 10).await;
        let late = async {
            write_docs(&engine, "a", 0..round * 20 + 20).await;
            // The first search may have ended: then the index is in use, and refreshed by the clock.
            clock.advance_ms(1_000);
            until(&engine, "a", u64::from(round) * 20 + 20).await;
        };
        let (first, ()) = tokio::join!(count(&engine, "a"), late);
        assert!(first >= u64::from(round) * 20 + 10);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_settings_say_when_an_index_is_idle() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, clock) = open(dir.path()).await;
    create(&engine, "short", json!({"search.idle.after": "5s"})).await;
    create(&engine, "long", json!({"search.idle.after": "1h"})).await;
    create(&engine, "never", json!({"search.idle.after": "5s", "refresh_interval": "-1"})).await;
    for index in ["short", "long", "never"] {
        assert_eq!(count(&engine, index).await, 0);
    }
    clock.advance_ms(10_000);
    for index in ["short", "long", "never"] {
        write_docs(&engine, index, 0..10).await;
    }
    // It was not searched for longer than it says.
    assert_eq!(count(&engine, "short").await, 10);
    // This one is in use, and so refreshed by the clock.
    until(&engine, "long", 10).await;
    assert_eq!(count(&engine, "never").await, 0);
    let settings = json!({"index.search.idle.after": "2h"});
    let options = millrace_catalog::metadata::IndicesOptions::open_only();
    let change =
        |m: &millrace_catalog::metadata::Metadata| m.update_settings("short", &options, &settings, true, 0);
    engine.change(&Principal::system(), change).await.unwrap();
    clock.advance_ms(3_600_000);
    write_docs(&engine, "short", 0..20).await;
    until(&engine, "short", 20).await;
}
