//! Retention by space, and documents of the server's own by their age.

use std::time::Duration;

use millrace_catalog::metadata::{IndicesOptions, Metadata, MetadataChange, ResizeIndex, ResizeKind, Uuid};
use millrace_engine::Session;
use serde_json::{Value, json};

use crate::support::{DAY_MS, START_MS, Store};

async fn hold(store: &Store, index: &str) {
    store.set_index(index, json!({"index.retention.hold": true})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_a_name_writes_to_stays() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), START_MS).await;
    store.put_stream_template().await;
    for (index, aliases) in [
        // The alias has no other index, so it writes to this one.
        ("products-2026-01-01", json!({"products": {}})),
        ("products-2026-01-02", json!({})),
        ("products-2026-01-03", json!({})),
        ("app-000001", json!({"app": {}})),
        ("web-000001", json!({"web": {"is_write_index": true}, "legacy": {}})),
        ("held-000001", json!({"held": {"is_write_index": true}})),
    ] {
        store.create_index(index, json!({ "aliases": aliases })).await;
        store.fill(index, 5).await;
    }
    store.fill("logs", 5).await;
    for target in ["app", "web", "held", "logs"] {
        store.roll_over(target).await;
        store.fill(target, 5).await;
    }
    hold(&store, "held-000001").await;
    store.set(json!({"retention.max_bytes": "*:1b"})).await;
    store.advance(5 * DAY_MS).await;
    let stays = [
        ".ds-logs-000002",
        "app-000002",
        "held-000001",
        "held-000002",
        "products-2026-01-01",
        "products-2026-01-03",
        "web-000001",
        "web-000002",
    ];
    assert_eq!(store.names(), stays);
}

#[tokio::test(flavor = "multi_thread")]
async fn retention_goes_on_while_policies_are_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), START_MS).await;
    let closes = json!({"default_state": "s", "states": [{"name": "s", "actions": [{"close": {}}]}]});
    store.lifecycle.put_policy("p", &closes, None, Some("admin")).await.unwrap();
    for index in ["alert", "day-2026.01.01", "day-2026.01.02", "plain"] {
        store.create_index(index, Value::Null).await;
    }
    store.fill("day-2026.01.01", 5).await;
    store.lifecycle.add_policy(&[store.meta("plain")], "p").await.unwrap();
    let enabled = "plugins.index_state_management.enabled";
    store.set(json!({ enabled: false, "retention.max_bytes": "day-*:1b" })).await;
    store.advance(3 * DAY_MS).await;
    assert_eq!(store.names(), ["alert", "day-2026.01.02", "plain"]);
    assert!(store.audit.0.lock().iter().any(|line| line.starts_with("alert @timestamp")));
    assert!(store.meta("plain").open, "policies are stopped");
    store.set(json!({ enabled: true })).await;
    store.advance(1).await;
    assert!(!store.meta("plain").open);
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_of_a_held_index_stay() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), START_MS).await;
    for index in ["alert", "alert_error"] {
        store.create_index(index, Value::Null).await;
    }
    store.set(json!({"retention.hold": "alert, .audit-*"})).await;
    store.advance(DAY_MS).await;
    let deleted: Vec<String> = store.audit.0.lock().clone();
    assert!(deleted.iter().any(|line| line.starts_with("alert_error @timestamp")), "{deleted:?}");
    assert!(!deleted.iter().any(|line| line.starts_with("alert @timestamp")), "{deleted:?}");
}

/// Waits until no file of a deleted index is left.
async fn all_freed(store: &Store) {
    let freed = async {
        while store.engine.unfreed_bytes() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), freed).await.expect("files of deleted indices stay");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_a_deleted_index_are_counted_until_they_go() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), START_MS).await;
    store.create_index("a", Value::Null).await;
    let index = [store.engine.index("a").unwrap()];
    for _ in 0..2 {
        store.fill("a", 10).await;
        store.engine.flush(&index).await.unwrap();
    }
    let before_merge = index[0].snapshot().await.unwrap();
    Session::system(&store.engine).force_merge(&index, 1).await.unwrap();
    assert_eq!(store.engine.unfreed_bytes(), 0, "no deletion is to wait for replaced segments");
    let snapshot = index[0].snapshot().await.unwrap();
    drop(index);
    let options = IndicesOptions::open_only();
    store.change(|state| state.delete_indices("a", &options, 0)).await.unwrap();
    assert!(store.engine.unfreed_bytes() > 0, "the snapshot holds the files");
    drop(snapshot);
    all_freed(&store).await;
    drop(before_merge);
    assert_eq!(store.engine.unfreed_bytes(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn indices_of_a_resizing_stay_until_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), START_MS).await;
    let body = json!({"settings": {"number_of_shards": 2}, "aliases": {"app": {"is_write_index": true}}});
    store.create_index("app-000001", body).await;
    store.fill("app", 5).await;
    store.roll_over("app").await;
    store.set_index("app-000001", json!({"index.blocks.write": true})).await;
    let request = ResizeIndex::parse(ResizeKind::Shrink, "app-000001", "small", &Value::Null).unwrap();
    let mapping = store.engine.index("app-000001").unwrap().mapping().to_json();
    let begin = |state: &Metadata| {
        let plan = state.plan_resize(&request, START_MS, Uuid::new_v4())?;
        Ok(vec![MetadataChange::PutIndex { meta: plan.pending, mapping: Some(mapping) }])
    };
    store.change(begin).await.unwrap();
    store.set(json!({"retention.max_disk_used": "*:1b"})).await;
    store.advance(5 * DAY_MS).await;
    assert_eq!(store.names(), ["app-000001", "app-000002", "small"]);
    let broken = |state: &Metadata| Ok(state.delete_unfinished(None));
    store.change(broken).await.unwrap();
    store.advance(300_000).await;
    assert_eq!(store.names(), ["app-000002"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shrunken_index_of_a_day_goes_as_its_source_would() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), START_MS).await;
    let phases = json!({"warm": {"min_age": "0ms", "actions": {"shrink": {"number_of_shards": 1}}}});
    let body = json!({"policy": {"phases": phases}});
    store.lifecycle.put_ilm_policy("shipped", &body, Some("admin")).await.unwrap();
    for day in ["logs-2026.01.01", "logs-2026.01.02"] {
        let settings = json!({"number_of_shards": 2, "index.lifecycle.name": "shipped"});
        store.create_index(day, json!({ "settings": settings })).await;
        store.fill(day, 5).await;
    }
    for _ in 0..3 {
        store.advance(1).await;
    }
    let newest = "logs-2026.01.02_shrunken";
    assert_eq!(store.names(), ["logs-2026.01.01_shrunken", newest]);
    store.set(json!({"retention.max_bytes": "logs-*:1b"})).await;
    store.advance(5 * DAY_MS).await;
    assert_eq!(store.names(), [newest]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_takes_whole_indices_alone() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), START_MS).await;
    store.put_stream_template().await;
    for day in ["day-2026.01.01", "day-2026.01.02", "day-2026.01.03", "plain"] {
        store.create_index(day, Value::Null).await;
    }
    store.fill("logs", 5).await;
    store.roll_over("logs").await;
    hold(&store, "day-2026.01.02").await;
    // Every file system has more than this.
    store.set(json!({"retention.max_disk_used": "*:1b"})).await;
    store.advance(5 * DAY_MS).await;
    assert_eq!(store.names(), [".ds-logs-000002", "day-2026.01.02", "day-2026.01.03", "plain"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_that_a_crash_left_done_is_off_the_record() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), START_MS).await;
    let deletes = json!({"default_state": "s", "states": [{"name": "s", "actions": [{"delete": {}}]}]});
    store.lifecycle.put_policy("p", &deletes, None, Some("admin")).await.unwrap();
    store.create_index("a", Value::Null).await;
    hold(&store, "a").await;
    store.lifecycle.add_policy(&[store.meta("a")], "p").await.unwrap();
    store.advance(1).await;
    assert_eq!(store.explain("a").await["action"]["name"], "delete");
    // The action has begun; it is done, and nothing of that is on the record. Another index has the name.
    let options = IndicesOptions::open_only();
    store.change(|state| state.delete_indices("a", &options, 0)).await.unwrap();
    store.create_index("a", Value::Null).await;
    store.kill().await;
    let store = Store::open(dir.path(), START_MS + 1).await;
    store.advance(1).await;
    assert_eq!(store.names(), ["a"]);
    assert_eq!(store.lifecycle.figures().await.managed, 0);
}
