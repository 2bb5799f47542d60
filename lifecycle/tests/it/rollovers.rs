//! Rollovers by policies, by requests and by clients, and the ages that count from them.

use millrace_catalog::metadata::parse_alias_actions;
use serde_json::{Value, json};

use crate::support::{DAY_MS, START_MS, Store};

/// A policy of `_ilm` that deletes two days after the rollover.
fn rolls_over_and_deletes() -> Value {
    json!({"policy": {"phases": {
        "hot": {"actions": {"rollover": {"max_docs": 1_000}}},
        "delete": {"min_age": "2d", "actions": {"delete": {}}},
    }}})
}

fn index(alias: &str, carried: Value) -> Value {
    let aliases = if carried.is_null() { json!({}) } else { json!({ alias: carried }) };
    let settings = json!({"index.lifecycle.name": "shipped", "index.lifecycle.rollover_alias": alias});
    json!({ "settings": settings, "aliases": aliases })
}

/// A policy without a rollover, for indices of a pattern, that deletes two days after the rollover.
fn waits_and_deletes(pattern: &str) -> Value {
    json!({
        "default_state": "hot",
        "states": [
            {"name": "hot", "transitions": [{"state_name": "gone", "conditions": {"min_rollover_age": "2d"}}]},
            {"name": "gone", "actions": [{"delete": {}}]},
        ],
        "ism_template": [{"index_patterns": [pattern]}],
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_its_alias_does_not_write_to_is_not_rolled_over() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), START_MS).await;
    store.lifecycle.put_ilm_policy("shipped", &rolls_over_and_deletes(), Some("admin")).await.unwrap();
    store.create_index("beat-000001", index("beat", json!({"is_write_index": true}))).await;
    // A shipper with an index name of its own, and the settings of the template.
    store.create_index("custom", index("beat", Value::Null)).await;
    store.create_index("read", index("beat", json!({}))).await;
    store.fill("custom", 1).await;
    store.advance(1).await;
    for (name, needle) in [
        ("custom", "rollover alias [beat] does not point to index [custom]"),
        ("read", "index [read] is not the write index of alias [beat]"),
    ] {
        let shown = store.explain(name).await;
        assert!(shown["info"]["cause"].as_str().unwrap_or_default().contains(needle), "{shown}");
        assert_eq!(shown["rolled_over"], false, "{shown}");
    }
    for _ in 0..5 {
        store.advance(DAY_MS).await;
    }
    assert_eq!(store.names(), ["beat-000001", "custom", "read"]);
    assert_eq!(store.explain("custom").await["action"]["failed"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollover_by_a_request_counts_from_its_time() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), START_MS).await;
    let waits = waits_and_deletes("app-*");
    store.lifecycle.put_policy("waits", &waits, None, Some("admin")).await.unwrap();
    store.lifecycle.put_ilm_policy("shipped", &rolls_over_and_deletes(), Some("admin")).await.unwrap();
    store.create_index("app-000001", json!({"aliases": {"app": {}}})).await;
    store.create_index("beat-000001", index("beat", json!({"is_write_index": true}))).await;
    store.advance(1).await;
    for alias in ["app", "beat"] {
        store.roll_over(alias).await;
    }
    store.advance(DAY_MS).await;
    let shown = store.explain("app-000001").await;
    assert_eq!((&shown["rolled_over"], &shown["action"]["last_rollover"]), (&json!(true), &json!(START_MS)));
    assert_eq!(store.names(), ["app-000001", "app-000002", "beat-000001", "beat-000002"]);
    // The age of each counts from its rollover, whenever its policy came to know of it.
    store.kill().await;
    let store = Store::open(dir.path(), START_MS + 2 * DAY_MS).await;
    store.advance(1).await;
    store.advance(1).await;
    assert_eq!(store.names(), ["app-000002", "beat-000002"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_may_say_that_an_index_is_complete() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), START_MS).await;
    store.lifecycle.put_ilm_policy("shipped", &rolls_over_and_deletes(), Some("admin")).await.unwrap();
    let complete = |carried: Value| {
        let mut body = index("beat", carried);
        body["settings"]["index.lifecycle.indexing_complete"] = true.into();
        body
    };
    store.create_index("beat-000001", complete(json!({"is_write_index": false}))).await;
    store.create_index("beat-000002", complete(json!({"is_write_index": true}))).await;
    store.create_index("beat-old", complete(Value::Null)).await;
    store.advance(1).await;
    let shown = store.explain("beat-000002").await;
    assert!(shown["info"]["cause"].as_str().unwrap_or_default().contains("still the write index"), "{shown}");
    assert_eq!(store.explain("beat-old").await["rolled_over"], true);
    store.advance(2 * DAY_MS).await;
    store.advance(1).await;
    assert_eq!(store.names(), ["beat-000002"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollover_of_an_earlier_version_counts() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), START_MS).await;
    store.lifecycle.put_ilm_policy("shipped", &rolls_over_and_deletes(), Some("admin")).await.unwrap();
    // Without a record of the rollover.
    store.create_index("beat-000001", index("beat", json!({"is_write_index": false}))).await;
    store.create_index("beat-000002", index("beat", json!({"is_write_index": true}))).await;
    store.advance(1).await;
    assert_eq!(store.explain("beat-000001").await["rolled_over"], true);
    assert_eq!(store.explain("beat-000002").await["rolled_over"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_origination_date_is_the_begin_of_an_age() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), START_MS).await;
    let body = json!({"policy": {"phases": {"delete": {"min_age": "10d", "actions": {"delete": {}}}}}});
    store.lifecycle.put_ilm_policy("shipped", &body, Some("admin")).await.unwrap();
    let mut moved = index("none", Value::Null);
    moved["settings"]["index.lifecycle.origination_date"] = (START_MS - 9 * DAY_MS).into();
    store.create_index("moved", moved).await;
    store.create_index("new", index("none", Value::Null)).await;
    store.advance(1).await;
    assert_eq!(store.names(), ["moved", "new"]);
    store.advance(DAY_MS).await;
    store.advance(1).await;
    assert_eq!(store.names(), ["new"]);
}

/// Makes one index of an alias its write index.
async fn write_to(store: &Store, alias: &str, written: &str, other: &str) {
    let add =
        |index: &str| json!({"add": {"index": index, "alias": alias, "is_write_index": index == written}});
    let actions = parse_alias_actions(&json!({"actions": [add(other), add(written)]})).unwrap();
    store.change(|state| state.update_aliases(&actions, 0)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_its_alias_writes_to_again_stays() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), START_MS).await;
    store.lifecycle.put_ilm_policy("shipped", &rolls_over_and_deletes(), Some("admin")).await.unwrap();
    store.create_index("beat-000001", index("beat", json!({"is_write_index": true}))).await;
    store.roll_over("beat").await;
    store.advance(1).await;
    assert_eq!(store.explain("beat-000001").await["rolled_over"], true);
    write_to(&store, "beat", "beat-000001", "beat-000002").await;
    for _ in 0..4 {
        store.advance(DAY_MS).await;
    }
    assert_eq!(store.names(), ["beat-000001", "beat-000002"]);
    // An index that waits for its deletion is written to again.
    let hold = |held: bool| json!({ "index.retention.hold": held });
    store.set_index("beat-000001", hold(true)).await;
    write_to(&store, "beat", "beat-000002", "beat-000001").await;
    store.advance(1).await;
    store.advance(1).await;
    assert_eq!(store.explain("beat-000001").await["action"]["name"], "delete");
    write_to(&store, "beat", "beat-000001", "beat-000002").await;
    store.set_index("beat-000001", hold(false)).await;
    store.advance(1).await;
    assert_eq!(store.names(), ["beat-000001", "beat-000002"]);
    let waits = store.explain("beat-000001").await;
    assert!(waits["info"]["message"].as_str().unwrap_or_default().contains("[beat] writes to it"), "{waits}");
    write_to(&store, "beat", "beat-000002", "beat-000001").await;
    store.advance(1).await;
    assert_eq!(store.names(), ["beat-000002"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_another_alias_writes_to_stays() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), START_MS).await;
    let waits = waits_and_deletes("*-000001");
    store.lifecycle.put_policy("waits", &waits, None, Some("admin")).await.unwrap();
    store.create_index("app-000001", json!({"aliases": {"app": {}, "second": {}}})).await;
    store.roll_over("second").await;
    for _ in 0..4 {
        store.advance(DAY_MS).await;
    }
    assert_eq!(store.names(), ["app-000001", "app-000002"]);
}
