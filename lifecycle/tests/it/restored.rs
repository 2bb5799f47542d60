//! Policies that a restore of the global state puts in the place of others.

use millrace_catalog::access::Principal;
use millrace_snapshot::{CreateSnapshot, RestoreSnapshot};
use serde_json::json;

use crate::support::{START_MS, Store};

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

    let request = RestoreSnapshot {
        indices: Some("-*".to_owned()),
        include_global_state: true,
        ..RestoreSnapshot::default()
    };
    store.snapshots.restore(&system, ("backup", "one"), request).await.unwrap();
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
