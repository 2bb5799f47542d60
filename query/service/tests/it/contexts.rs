//! Resources that scrolls, points in time and cursors pin, and their end though nobody closes them.

use std::path::Path;
use std::time::Duration;

use millrace_engine::ShardFigures;
use millrace_query::Config;
use serde_json::{Value, json};

use crate::fixture::{Store, ids, owned, value};

/// More than a scroll keeps of a small request.
const QUERY_BYTES: u64 = 16 << 10;

/// Waits until something is so.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    let wait = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(60), wait).await.is_ok(), "never: {what}");
}

fn figures(store: &Store, index: &str) -> ShardFigures {
    store.engine.index(index).unwrap().figures().shards.remove(0)
}

/// Open scrolls, points in time, cursors.
fn open(store: &Store, index: &str) -> [u64; 3] {
    let figures = figures(store, index);
    [figures.scrolls.current, figures.points_in_time.current, figures.cursors.current]
}

/// Counts the directories that hold a segment's data.
fn segments_on_disk(directory: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
    let entries: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    let own = entries.iter().any(|path| path.file_name().is_some_and(|name| name == "data.parquet"));
    usize::from(own)
        + entries.iter().filter(|path| path.is_dir()).map(|path| segments_on_disk(path)).sum::<usize>()
}

async fn scroll(store: &Store, index: &str, size: usize) -> Value {
    store.search(index, &[("scroll", "1m")], json!({"size": size, "sort": ["n"]})).await.unwrap()
}

async fn next(store: &Store, page: &Value) -> Value {
    let body = json!({"scroll_id": page["_scroll_id"], "scroll": "1m"});
    value(store.service.scroll(&store.session, "", Vec::new(), Some(body)).await.unwrap())
}

async fn point_in_time(store: &Store, index: &str) {
    let life = owned(&[("keep_alive", "1m")]);
    store.service.open_point_in_time(&store.session, index, life, None).await.unwrap();
}

async fn cursor(store: &Store, query: &str, size: usize) -> Value {
    let body = json!({"query": query, "fetch_size": size});
    value(store.service.sql(&store.session, Vec::new(), Some(body)).await)
}

/// Documents that are a good deal larger than what is kept beside them.
fn large(rows: i64) -> Vec<Value> {
    (0..rows).map(|n| json!({"n": n, "text": format!("{n} ").repeat(20_000)})).collect()
}

#[tokio::test]
async fn what_nobody_closes_ends_by_itself_and_lets_go_of_memory_and_files() {
    let store = Store::open().await;
    store.create("updated", &json!({"settings": {"number_of_shards": 1}})).await;
    let documents: Vec<Value> = (0..50).map(|n| json!({"n": n, "text": "some words"})).collect();
    let index = [store.engine.index("updated").unwrap()];
    for round in 0..12 {
        store.index("updated", &documents).await;
        scroll(&store, "updated", 10).await;
        if round % 3 == 0 {
            point_in_time(&store, "updated").await;
            let first = cursor(&store, "SELECT n FROM updated", 10).await;
            assert!(first["cursor"].is_string(), "{first}");
        }
        if round % 4 == 3 {
            store.engine.flush(&index).await.unwrap();
        }
    }
    store.engine.force_merge(&index, 1).await.unwrap();
    assert_eq!(open(&store, "updated"), [12, 4, 4]);
    assert!(store.service.pinned().bytes > 0);
    assert!(store.service.pinned().replaced > 0);
    let data = store.engine.data_dir().to_owned();
    assert!(segments_on_disk(&data) > 1);
    store.clock.advance_ms(59_999);
    // Another one, which outlives them.
    let last = scroll(&store, "updated", 30).await;
    store.clock.advance_ms(1);
    until("only the last is open", || open(&store, "updated") == [1, 0, 0]).await;
    until("files of replaced segments are gone", || segments_on_disk(&data) == 1).await;
    until("memory is what the last needs for its query", || store.service.pinned().bytes < QUERY_BYTES).await;
    assert_eq!(store.service.pinned().replaced, 0);
    assert_eq!(figures(&store, "updated").scrolls.total, 12);
    assert_eq!(figures(&store, "updated").scrolls.time_ms, 12 * 60_000);
    assert_eq!(ids(&next(&store, &last).await).len(), 20);
}

#[tokio::test]
async fn a_scroll_that_was_read_to_its_end_pins_nothing() {
    let store = Store::open().await;
    store.create("read", &json!({"settings": {"number_of_shards": 1}})).await;
    store.index("read", &large(3)).await;
    let page = scroll(&store, "read", 2).await;
    assert!(store.service.pinned().bytes > 100_000);
    assert_eq!(ids(&next(&store, &page).await), ["3"]);
    until("nothing is held", || store.service.pinned().bytes == 0).await;
    assert_eq!(open(&store, "read"), [1, 0, 0]);
    assert_eq!(next(&store, &page).await["hits"]["total"]["value"], 3);
    scroll(&store, "read", 10).await;
    assert_eq!((store.service.pinned().bytes, open(&store, "read")), (0, [2, 0, 0]));
}

#[tokio::test]
async fn what_is_more_than_contexts_may_hold_is_flushed_or_spooled_for_them() {
    let store = Store::open_with(Config { memory_bytes: 4 << 20, ..Config::default() }).await;
    store.create("large", &json!({"settings": {"number_of_shards": 1}})).await;
    let committed = || figures(&store, "large").store_bytes > 0;
    store.index("large", &large(40)).await;
    let first = cursor(&store, "SELECT n FROM large", 30).await;
    assert_eq!((store.service.pinned().bytes, committed()), (0, false), "{first}");
    let body = json!({"cursor": first["cursor"]});
    let second = value(store.service.sql(&store.session, Vec::new(), Some(body)).await);
    assert_eq!(second["datarows"].as_array().unwrap().len(), 10, "{second}");
    let mut page = scroll(&store, "large", 3).await;
    assert!(store.service.pinned().bytes < QUERY_BYTES && committed());
    store.index("large", &large(40)).await;
    point_in_time(&store, "large").await;
    let mut found = Vec::new();
    while !ids(&page).is_empty() {
        found.extend(ids(&page));
        page = next(&store, &page).await;
    }
    assert_eq!(found, (1..=40).map(|id| id.to_string()).collect::<Vec<_>>());
    assert_eq!((open(&store, "large"), store.service.pinned().refused), ([1, 1, 0], 0));
}

#[tokio::test]
async fn what_a_scroll_asks_counts_until_its_last_page() {
    let store = Store::open_with(Config { memory_bytes: 4 << 20, ..Config::default() }).await;
    store.create("asked", &json!({"settings": {"number_of_shards": 1}})).await;
    store.index("asked", &(0..20).map(|n| json!({"n": n})).collect::<Vec<_>>()).await;
    let index = [store.engine.index("asked").unwrap()];
    store.engine.flush(&index).await.unwrap();
    let body = |values: i64| {
        let list: Vec<i64> = (0..values).collect();
        json!({"size": 12, "sort": ["n"], "query": {"terms": {"n": list}}})
    };
    let life = [("scroll", "1m")];
    let error = store.search("asked", &life, body(50_000)).await.unwrap_err();
    // As every shard answers it.
    let body_of_error = error.to_body().unwrap().to_string();
    assert!(error.status() == 429 && body_of_error.contains("circuit_breaking_exception"), "{body_of_error}");
    assert_eq!(store.service.pinned().refused, 1);
    let page = store.search("asked", &life, body(5_000)).await.unwrap();
    assert!(store.service.pinned().bytes > 5_000 * 64, "{:?}", store.service.pinned());
    assert_eq!(ids(&next(&store, &page).await).len(), 8);
    until("nothing is held", || store.service.pinned().bytes == 0).await;
    let page = store.search("asked", &life, body(5_000)).await.unwrap();
    store
        .service
        .clear_scroll(&store.session, page["_scroll_id"].as_str().unwrap(), Vec::new(), None)
        .await
        .unwrap();
    assert_eq!(open(&store, "asked"), [1, 0, 0]);
    until("nothing is held", || store.service.pinned().bytes == 0).await;
}
