//! Snapshots by schedule, and as actions of policies.

use std::path::Path;

use millrace_catalog::access::Principal;
use millrace_snapshot::{CreateSnapshot, SnapshotFilter};
use serde_json::{Value, json};

use crate::support::{DAY_MS, START_MS, Store};

async fn listed(store: &Store) -> Vec<String> {
    let filter = SnapshotFilter { expression: "_all".to_owned(), ignore_unavailable: true };
    let manifests = store.snapshots.manifests("backup", &filter).await.unwrap();
    manifests.into_iter().map(|manifest| manifest.snapshot).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshots_come_and_go_by_their_policy() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), START_MS).await;
    store.register_repository().await;
    store.create_index("a", Value::Null).await;
    let body = json!({
        "creation": {"schedule": {"cron": {"expression": "0 8 * * *", "timezone": "UTC"}}},
        "deletion": {"schedule": {"cron": {"expression": "0 9 * * *", "timezone": "UTC"}}, "condition": {"max_count": 2}},
        "snapshot_config": {"repository": "backup", "date_format": "yyyy-MM-dd", "indices": "a"},
    });
    store.lifecycle.put_snapshot_policy("daily", &body, None).await.unwrap();
    store.advance(DAY_MS / 3 - 1).await;
    assert!(listed(&store).await.is_empty());
    store.advance(1).await;
    let first = listed(&store).await;
    assert!(first.len() == 1 && first[0].starts_with("daily-2026-01-01-"), "{first:?}");
    store.advance(1).await;
    assert_eq!(listed(&store).await.len(), 1);
    store.kill().await;
    // What was missed is made up once.
    let store = Store::open(dir.path(), START_MS + 3 * DAY_MS).await;
    store.advance(0).await;
    assert_eq!(listed(&store).await.len(), 2);
    store.advance(DAY_MS / 3).await;
    assert_eq!(listed(&store).await.len(), 3);
    store.advance(DAY_MS).await;
    let left = listed(&store).await;
    assert!(left.len() <= 3 && !left.contains(&first[0]), "{left:?}");
    let shown = store.lifecycle.snapshot_policy("daily").unwrap().explain();
    assert_eq!(shown["creation"]["latest_execution"]["status"], "SUCCESS", "{shown}");
    store.lifecycle.enable_snapshot_policy("daily", false).await.unwrap();
    let before = listed(&store).await;
    store.advance(5 * DAY_MS).await;
    assert_eq!(listed(&store).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_creation_is_waited_for_as_long_as_its_policy_says() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), START_MS).await;
    let slow = json!({"type": "fs", "settings": {"location": "slow", "max_snapshot_bytes_per_sec": "1b"}});
    store.snapshots.put_repository("slow", &slow, true).await.unwrap();
    store.create_index("a", Value::Null).await;
    store.fill("a", 10).await;
    let body = json!({
        "creation": {"schedule": {"cron": {"expression": "0 8 * * *"}}, "time_limit": "20ms"},
        "snapshot_config": {"repository": "slow", "indices": "a"},
    });
    store.lifecycle.put_snapshot_policy("daily", &body, None).await.unwrap();
    store.advance(DAY_MS / 3).await;
    let shown = store.lifecycle.snapshot_policy("daily").unwrap().explain();
    assert_eq!(shown["creation"]["latest_execution"]["status"], "TIME_LIMIT_EXCEEDED", "{shown}");
    assert_eq!(shown["creation"]["current_state"], "CREATION_START", "{shown}");
    let running = store.snapshots.running(Some("slow"));
    assert_eq!(running.len(), 1, "it goes on");
    // A deletion ends it.
    store.snapshots.delete("slow", "daily-*").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_of_an_index_makes_one_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), START_MS).await;
    let policy = json!({"default_state": "s", "states": [
        {"name": "s", "actions": [{"snapshot": {"repository": "backup", "snapshot": "of-{{ctx.index}}"}}, {"delete": {}}]},
    ]});
    store.lifecycle.put_policy("p", &policy, None, Some("admin")).await.unwrap();
    store.create_index("a", Value::Null).await;
    store.lifecycle.add_policy(&[store.meta("a")], "p").await.unwrap();
    // There is no such repository yet: the action fails, and is tried again.
    store.advance(1).await;
    assert_eq!(store.explain("a").await["retry_info"]["consumed_retries"], 1);
    store.register_repository().await;
    store.advance(60_000).await;
    let made = listed(&store).await;
    assert!(made.len() == 1 && made[0].starts_with("of-a-2026.01.01"), "{made:?}");
    assert!(store.names().is_empty());
}

/// A policy that deletes an index once it is in a snapshot, whose name has the same beginning for each index.
fn saves_and_deletes() -> Value {
    json!({"default_state": "s", "states": [
        {"name": "s", "actions": [{"snapshot": {"repository": "backup", "snapshot": "daily"}}, {"delete": {}}]},
    ]})
}

/// Opens a store with this policy, a repository, and indices of one document each.
async fn open_with_indices(dir: &Path, indices: &[&str]) -> Store {
    let store = Store::open(dir, START_MS).await;
    store.register_repository().await;
    store.lifecycle.put_policy("p", &saves_and_deletes(), None, Some("admin")).await.unwrap();
    for index in indices {
        store.create_index(index, Value::Null).await;
        store.fill(index, 1).await;
    }
    store
}

/// Makes a snapshot of an index under the name that a policy takes for another one at the begin of a test.
async fn take_name(store: &Store, index: &str, of: &str) -> String {
    let uuid = store.meta(of).uuid.simple().to_string();
    let name = format!("daily-2026.01.01-00.00.00.000-{}", &uuid[..8]);
    let request = CreateSnapshot {
        indices: Some(index.to_owned()),
        include_global_state: false,
        ..CreateSnapshot::default()
    };
    store.snapshots.create(&Principal::system(), ("backup", &name), request).await.unwrap();
    name
}

/// Lists the indices of each snapshot.
async fn saved(store: &Store) -> Vec<Vec<String>> {
    let filter = SnapshotFilter { expression: "_all".to_owned(), ignore_unavailable: true };
    let manifests = store.snapshots.manifests("backup", &filter).await.unwrap();
    let names = |manifest: millrace_snapshot::Manifest| {
        manifest.indices.into_iter().map(|index| index.name).collect::<Vec<_>>()
    };
    let mut saved: Vec<Vec<String>> = manifests.into_iter().map(names).collect();
    saved.sort();
    saved
}

#[tokio::test(flavor = "multi_thread")]
async fn each_index_is_in_a_snapshot_before_it_is_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let indices = ["a", "b", "c"];
    let store = open_with_indices(dir.path(), &indices).await;
    for index in indices {
        store.lifecycle.add_policy(&[store.meta(index)], "p").await.unwrap();
    }
    // All of them at the same millisecond.
    store.advance(0).await;
    assert!(store.names().is_empty());
    assert_eq!(saved(&store).await, [["a"], ["b"], ["c"]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_counts_for_the_indices_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_with_indices(dir.path(), &["a", "b"]).await;
    let taken = take_name(&store, "b", "a").await;
    store.lifecycle.add_policy(&[store.meta("a")], "p").await.unwrap();
    store.advance(0).await;
    let failed = store.explain("a").await;
    let reason = format!("snapshot [backup:{taken}] does not have all of index [a]");
    assert!(failed["info"]["cause"].as_str().unwrap_or_default().contains(&reason), "{failed}");
    // The next try takes another name.
    store.advance(60_000).await;
    assert_eq!(store.names(), ["b"]);
    assert_eq!(saved(&store).await, [["a"], ["b"]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_a_crash_left_made_is_not_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_with_indices(dir.path(), &["a"]).await;
    take_name(&store, "a", "a").await;
    store.lifecycle.add_policy(&[store.meta("a")], "p").await.unwrap();
    store.advance(0).await;
    assert!(store.names().is_empty());
    assert_eq!(saved(&store).await, [["a"]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn outcomes_are_sent_where_the_policy_says() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), START_MS).await;
    store.register_repository().await;
    store.create_index("a", Value::Null).await;
    let mut body = json!({
        "creation": {"schedule": {"cron": {"expression": "0 8 * * *"}}},
        "snapshot_config": {"repository": "backup", "indices": "a"},
        "notification": {"channel": {"id": "c"}},
    });
    let refused = store.lifecycle.put_snapshot_policy("daily", &body, None).await.unwrap_err().to_string();
    assert!(refused.contains("[channel]") && refused.contains("[destination]"), "{refused}");
    body["notification"] = json!({"destination": {"slack": {"url": {"secret": "slack-ops"}}}});
    store.lifecycle.put_snapshot_policy("daily", &body, None).await.unwrap();
    store.advance(DAY_MS / 3).await;
    store.advance(1).await;
    let sent = store.audit.0.lock().clone();
    let sent: Vec<&String> = sent.iter().filter(|line| line.starts_with("daily/creation/")).collect();
    assert!(sent.len() == 1 && sent[0].contains("creation has finished successfully"), "{sent:?}");
}
