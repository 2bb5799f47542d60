//! Policies that a restore of the global state puts in the place of others.

use millrace_catalog::access::Principal;
use millrace_snapshot::{CreateSnapshot, RestoreSnapshot, SnapshotFilter};
use serde_json::json;

use crate::support::{DAY_MS, START_MS, Store};

fn global_state_alone() -> RestoreSnapshot {
    RestoreSnapshot {
        indices: Some("-*".to_owned()),
        include_global_state: true,
        ..RestoreSnapshot::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn restored_policies_count_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), START_MS).await;
    store.register_repository().await;
    let index_policy = |description: &str| {
        let states = json!([{"name": "a", "actions": [], "transitions": []}]);
        json!({"description": description, "default_state": "a", "states": states})
    };
    let snapshot_policy = |description: &str| {
        json!({
            "description": description,
            "creation": {"schedule": {"cron": {"expression": "0 8 1 1 *", "timezone": "UTC"}}},
            "snapshot_config": {"repository": "backup"},
        })
    };
    let lifecycle = &store.lifecycle;
    lifecycle.put_policy("p", &index_policy("one"), None, None).await.unwrap();
    lifecycle.put_snapshot_policy("p", &snapshot_policy("one"), None).await.unwrap();
    let system = Principal::system();
    store.snapshots.create(&system, ("backup", "one"), CreateSnapshot::default()).await.unwrap();
    let version = lifecycle.policy("p").unwrap().document_version();
    lifecycle.put_policy("p", &index_policy("two"), Some(version), None).await.unwrap();
    lifecycle.put_policy("q", &index_policy("two"), None, None).await.unwrap();
    let version = lifecycle.snapshot_policy("p").unwrap().document_version();
    lifecycle.put_snapshot_policy("p", &snapshot_policy("two"), Some(version)).await.unwrap();

    store.snapshots.restore(&system, ("backup", "one"), global_state_alone()).await.unwrap();
    let policies = lifecycle.policies();
    assert_eq!(policies.len(), 1);
    assert_eq!(policies[0].policy.body["description"], "one");
    let policy = lifecycle.snapshot_policy("p").unwrap();
    assert_eq!(policy.body["description"], "one");
    // They are changed by the versions that they have now.
    let version = lifecycle.policy("p").unwrap().document_version();
    lifecycle.put_policy("p", &index_policy("three"), Some(version), None).await.unwrap();
    lifecycle.enable_snapshot_policy("p", false).await.unwrap();
    store.kill().await;
    let store = Store::open(dir.path(), START_MS).await;
    assert_eq!(store.lifecycle.policy("p").unwrap().policy.body["description"], "three");
    assert!(!store.lifecycle.snapshot_policy("p").unwrap().enabled);
    store.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_policy_deletes_nothing_before_its_next_time_and_makes_its_next_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), START_MS).await;
    store.register_repository().await;
    let body = json!({
        "creation": {"schedule": {"cron": {"expression": "0 8 * * *", "timezone": "UTC"}}},
        "deletion": {"schedule": {"cron": {"expression": "0 9 * * *", "timezone": "UTC"}}, "condition": {"max_count": 1}},
        "snapshot_config": {"repository": "backup", "date_format": "yyyy-MM-dd"},
    });
    store.lifecycle.put_snapshot_policy("daily", &body, None).await.unwrap();
    let listed = async || {
        let filter = SnapshotFilter { expression: "daily*".to_owned(), ignore_unavailable: true };
        store.snapshots.manifests("backup", &filter).await.unwrap()
    };
    store.advance(DAY_MS / 3).await;
    let first = listed().await.remove(0).snapshot;
    // The policy is to keep more by now.
    let mut kept = body.clone();
    kept["deletion"]["condition"]["max_count"] = json!(10);
    let version = store.lifecycle.snapshot_policy("daily").unwrap().document_version();
    store.lifecycle.put_snapshot_policy("daily", &kept, Some(version)).await.unwrap();
    store.advance(3 * DAY_MS).await;
    let before = listed().await.len();
    assert!(before > 1);
    store.snapshots.restore(&Principal::system(), ("backup", &first), global_state_alone()).await.unwrap();
    let policy = store.lifecycle.snapshot_policy("daily").unwrap();
    assert_eq!(
        (policy.creation.current.as_ref(), policy.body["deletion"]["condition"]["max_count"].as_u64()),
        (None, Some(1))
    );
    store.advance(0).await;
    assert_eq!(listed().await.len(), before, "nothing is due");
    // 08:00 of the next day.
    store.advance(DAY_MS).await;
    assert!(listed().await.iter().any(|manifest| manifest.started_ms >= START_MS + 4 * DAY_MS));
}
