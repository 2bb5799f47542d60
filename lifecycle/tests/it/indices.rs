//! Indices under policies.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::{DAY_MS, START_MS, Store};

const FIRST: &str = ".ds-logs-000001";
const SECOND: &str = ".ds-logs-000002";

fn stream_policy() -> Value {
    json!({
        "default_state": "hot",
        "states": [
            {"name": "hot", "actions": [{"rollover": {"min_doc_count": 2}}],
             "transitions": [{"state_name": "warm", "conditions": {"min_rollover_age": "1d"}}]},
            {"name": "warm", "actions": [{"read_only": {}}, {"force_merge": {"max_num_segments": 1}}, {"index_priority": {"priority": 7}}],
             "transitions": [{"state_name": "gone", "conditions": {"min_index_age": "10d"}}]},
            {"name": "gone", "actions": [{"delete": {}}]},
        ],
        "ism_template": [{"index_patterns": ["logs*"]}],
    })
}

/// Opens a store with the stream `logs` of one document, which its policy has taken.
async fn open_with_stream(dir: &Path) -> Store {
    let store = Store::open(dir, START_MS).await;
    store.put_stream_template().await;
    store.lifecycle.put_policy("p", &stream_policy(), None, Some("admin")).await.unwrap();
    store.fill("logs", 1).await;
    store.advance(0).await;
    store
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_rolls_over_ages_and_is_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_with_stream(dir.path()).await;
    let shown = store.explain(FIRST).await;
    assert_eq!(shown["policy_id"], "p", "{shown}");
    assert_eq!(
        (&shown["action"]["name"], &shown["step"]["step_status"]),
        (&json!("rollover"), &json!("condition_not_met"))
    );
    store.fill("logs", 1).await;
    store.advance(1).await;
    assert_eq!(store.names(), [FIRST, SECOND]);
    store.advance(1).await;
    assert_eq!(store.names(), [FIRST, SECOND], "it is rolled over once");
    assert_eq!(store.explain(SECOND).await["policy_id"], "p");
    store.advance(DAY_MS).await;
    let meta = store.meta(FIRST);
    assert_eq!(
        (meta.setting("index.blocks.write"), meta.setting("index.priority")),
        (Some("true"), Some("7"))
    );
    assert_eq!(store.explain(FIRST).await["state"]["name"], "warm");
    // A hold keeps it, whatever its policy says. The deletion waits for its end.
    let hold = |held: &str| json!({"index.retention.hold": held});
    let options = millrace_catalog::metadata::IndicesOptions::open_and_closed();
    store.change(|state| state.update_settings(FIRST, &options, &hold("true"), false, 0)).await.unwrap();
    store.kill().await;
    let store = Store::open(dir.path(), START_MS + 10 * DAY_MS).await;
    store.advance(1).await;
    for _ in 0..5 {
        store.advance(3_600_000).await;
    }
    let shown = store.explain(FIRST).await;
    assert!(shown["info"]["message"].as_str().unwrap().contains("index.retention.hold"), "{shown}");
    assert_eq!(shown["action"]["failed"], false, "{shown}");
    store.change(|state| state.update_settings(FIRST, &options, &hold("false"), false, 0)).await.unwrap();
    store.advance(120_000).await;
    assert_eq!(store.names(), [SECOND]);
    let audit = store.audit.0.lock().join("\n");
    assert!(audit.contains("indices:admin/delete DELETE .ds-logs-000001"), "{audit}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_index_waits_and_templates_do_not_contend() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), START_MS).await;
    store.put_stream_template().await;
    let mut body = stream_policy();
    body["states"][0]["actions"][0] =
        json!({"rollover": {"min_index_age": "1h", "prevent_empty_rollover": true}});
    store.lifecycle.put_policy("p", &body, None, Some("admin")).await.unwrap();
    let refused = store.lifecycle.put_policy("q", &body, None, Some("admin")).await.unwrap_err();
    assert!(refused.to_string().contains("use a different priority than 0"), "{refused}");
    store
        .change(|state| {
            state.create_data_stream("logs", START_MS, millrace_catalog::metadata::Uuid::new_v4())
        })
        .await
        .unwrap();
    store.advance(3_600_000).await;
    assert_eq!(store.names(), [FIRST]);
    assert_eq!(store.explain(FIRST).await["info"]["message"], "The index has no documents");
    store.fill("logs", 1).await;
    store.advance(60_000).await;
    assert_eq!(store.names(), [FIRST, SECOND]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollover_that_a_crash_left_done_is_not_done_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_with_stream(dir.path()).await;
    // The action has begun; it is done, and nothing of that is on the record.
    store.roll_over("logs").await;
    store.kill().await;
    let store = Store::open(dir.path(), START_MS + 1).await;
    store.advance(0).await;
    assert_eq!(store.names(), [FIRST, SECOND]);
    assert_eq!(store.explain(FIRST).await["rolled_over"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn indices_are_added_changed_retried_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), START_MS).await;
    store.create_index("a", Value::Null).await;
    let policy =
        |action: Value| json!({"default_state": "s", "states": [{"name": "s", "actions": [action]}]});
    let fails = policy(json!({"rollover": {}, "retry": {"count": 0, "delay": "1m"}}));
    let (stored, created) = store.lifecycle.put_policy("p", &fails, None, Some("admin")).await.unwrap();
    assert!(created);
    assert!(
        store
            .lifecycle
            .put_policy("p", &fails, None, Some("admin"))
            .await
            .unwrap_err()
            .to_string()
            .contains("version conflict")
    );
    let again = store
        .lifecycle
        .put_policy("p", &fails, Some(stored.document_version()), Some("admin"))
        .await
        .unwrap();
    assert_eq!((again.0.revision, again.1), (2, false));
    let closes = policy(json!({"close": {}}));
    store.lifecycle.put_policy("q", &closes, None, Some("admin")).await.unwrap();
    let index = [store.meta("a")];
    assert_eq!(store.lifecycle.add_policy(&index, "p").await.unwrap().updated, 1);
    let twice = store.lifecycle.add_policy(&index, "p").await.unwrap();
    assert!(twice.failures[0].reason.contains("already has a policy"));
    assert!(store.lifecycle.add_policy(&index, "none").await.is_err());
    store.advance(1).await;
    let shown = store.explain("a").await;
    assert_eq!(shown["action"]["failed"], true, "{shown}");
    assert!(shown["info"]["cause"].as_str().unwrap().contains("Missing rollover_alias"), "{shown}");
    assert_eq!(store.lifecycle.retry(&index, None).await.updated, 1);
    assert_eq!(store.lifecycle.retry(&index, None).await.failures.len(), 1);
    assert_eq!(store.lifecycle.change_policy(&index, "q", None, &[]).await.unwrap().updated, 1);
    store.advance(1).await;
    assert!(!store.meta("a").open);
    let index = [store.meta("a")];
    assert_eq!(store.lifecycle.remove_policy(&index).await.updated, 1);
    assert_eq!(store.lifecycle.remove_policy(&index).await.failures.len(), 1);
    assert!(store.explain("a").await["policy_id"].is_null());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollover_without_its_alias_deletes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), START_MS).await;
    let body = json!({"policy": {"phases": {
        "hot": {"actions": {"rollover": {"max_docs": 1}}},
        "delete": {"min_age": "2d", "actions": {"delete": {}}},
    }}});
    store.lifecycle.put_ilm_policy("shipped", &body, Some("admin")).await.unwrap();
    let settings = json!({"index.lifecycle.name": "shipped", "index.lifecycle.rollover_alias": "none"});
    store.create_index("beat-000001", json!({ "settings": settings })).await;
    store.advance(1).await;
    let shown = store.explain("beat-000001").await;
    let cause = shown["info"]["cause"].as_str().unwrap();
    assert!(cause.contains("rollover target [none] does not exist"), "{shown}");
    for _ in 0..5 {
        store.advance(DAY_MS).await;
    }
    assert_eq!(store.names(), ["beat-000001"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_with_its_defaults_fits_the_bound() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), START_MS).await;
    let long = json!({
        "description": "d".repeat((256 << 10) - 150),
        "default_state": "s",
        "states": [{"name": "s", "actions": [{"close": {}}]}],
    });
    assert!(long.to_string().len() <= 256 << 10);
    let refused = store.lifecycle.put_policy("p", &long, None, Some("admin")).await.unwrap_err().to_string();
    assert!(refused.contains("with its defaults"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_of_ilm_are_followed_by_their_name() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), START_MS).await;
    let body = json!({"policy": {"phases": {
        "hot": {"actions": {"rollover": {"max_docs": 1}}},
        "delete": {"min_age": "2d", "actions": {"delete": {}}},
    }}});
    assert!(store.lifecycle.put_ilm_policy("shipped", &body, Some("admin")).await.unwrap().is_empty());
    let index = json!({
        "settings": {"index.lifecycle.name": "shipped", "index.lifecycle.rollover_alias": "beat"},
        "aliases": {"beat": {"is_write_index": true}},
    });
    store.create_index("beat-000001", index).await;
    store.fill("beat", 1).await;
    store.advance(1).await;
    assert_eq!(store.names(), ["beat-000001", "beat-000002"]);
    store.advance(2 * DAY_MS).await;
    assert_eq!(store.names(), ["beat-000002"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_of_the_server_go_by_their_age() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), START_MS).await;
    store.create_index("alert", Value::Null).await;
    store.advance(DAY_MS).await;
    let deleted = store.audit.0.lock().last().cloned();
    assert_eq!(deleted, Some(format!("alert @timestamp {}", START_MS + DAY_MS - 365 * DAY_MS)));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_oldest_indices_go_where_space_is_short() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), START_MS).await;
    for day in ["2026.01.01", "2026.01.02", "2026.01.03"] {
        store.create_index(&format!("day-{day}"), Value::Null).await;
        store.fill(&format!("day-{day}"), 10).await;
    }
    store.create_index("plain", Value::Null).await;
    store.fill("plain", 10).await;
    store.set(json!({"retention.max_bytes": "day-*:1gb"})).await;
    store.advance(3 * DAY_MS).await;
    assert_eq!(store.names().len(), 4);
    let shown = store.explain("day-2026.01.01").await;
    assert_eq!(shown["retention"]["position"], 0, "{shown}");
    assert!(shown["retention"]["expected_at"].as_i64().unwrap() > START_MS + 3 * DAY_MS, "{shown}");
    assert!(store.explain("day-2026.01.03").await["retention"].is_null());
    store.set(json!({"retention.max_bytes": "day-*:1b,plain:1b"})).await;
    store.advance(1).await;
    assert_eq!(store.names(), ["day-2026.01.03", "plain"]);
    // An event with a wrong clock makes the index of a far day; today's index stays, and so does the write index of an alias.
    store.create_index("day-2027.01.01", Value::Null).await;
    let written = json!({"aliases": {"day": {"is_write_index": true}}});
    store.create_index("day-2025.12.01", written).await;
    for index in ["day-2027.01.01", "day-2025.12.01"] {
        store.fill(index, 10).await;
    }
    store.advance(DAY_MS / 2).await;
    assert_eq!(store.names(), ["day-2025.12.01", "day-2026.01.03", "day-2027.01.01", "plain"]);
    store.advance(DAY_MS / 2).await;
    assert_eq!(store.names(), ["day-2025.12.01", "day-2027.01.01", "plain"]);
}
