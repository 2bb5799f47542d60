//! Repositories, snapshots and restoring over HTTP.

use std::sync::Arc;

use millrace_api::{DataApi, SnapshotAccounts};
use millrace_snapshot::{Config, SnapshotService};
use serde_json::{Value, json};

use crate::support::{Node, Step, play};

const NONE: Value = Value::Null;

fn step(line: &str, body: Value, status: u16, expected: &[(&'static str, Value)]) -> Step {
    Step::new(line, body, status, expected)
}

/// Serves snapshots beside the rest, with repositories below a directory.
async fn with_snapshots(node: Node, backups: &std::path::Path) -> Node {
    let config = Config { path_repo: vec![backups.to_owned()], ..Config::default() };
    let snapshots = SnapshotService::open(Arc::clone(&node.api.engine), config).await.unwrap();
    let accounts = Arc::new(node.api.accounts.clone());
    snapshots.set_accounts(Arc::new(SnapshotAccounts::new(accounts)));
    node.with_data_api(DataApi::default().with_snapshots(snapshots))
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshots_live() {
    let backups = tempfile::tempdir().unwrap();
    let node = with_snapshots(Node::insecure().await, backups.path()).await;
    let (kind, reason) = ("/error/type", "/error/reason");
    let fs = |location: &str| json!({"type": "fs", "settings": {"location": location}});
    let names = |names: &[&str]| json!(names);
    play(
        &node,
        vec![
            step("GET /_snapshot", NONE, 200, &[("", json!({}))]),
            step("PUT /_snapshot/r", fs("/etc"), 500, &[(kind, json!("repository_exception"))]),
            step("PUT /_snapshot/r", json!({"type": "tape"}), 500, &[]),
            step("PUT /_snapshot/r", fs("one"), 200, &[("/acknowledged", json!(true))]),
            step("GET /_snapshot/r", NONE, 200, &[("/r/settings/location", json!("one"))]),
            step(
                "GET /_snapshot/q",
                NONE,
                404,
                &[(kind, json!("repository_missing_exception")), (reason, json!("[q] missing"))],
            ),
            step("POST /_snapshot/r/_verify", NONE, 200, &[]),
            step("GET /_snapshot/r/_all", NONE, 200, &[("/snapshots", json!([]))]),
            step("PUT /a/_doc/1?refresh=true", json!({"v": 1}), 201, &[]),
            step("PUT /b/_doc/1?refresh=true", json!({"v": 2}), 201, &[]),
            step(
                "PUT /_snapshot/r/s1?wait_for_completion=true",
                json!({"indices": "a,b", "metadata": {"by": "me"}}),
                200,
                &[
                    ("/snapshot/state", json!("SUCCESS")),
                    ("/snapshot/indices", names(&["a", "b"])),
                    ("/snapshot/shards", json!({"total": 2, "failed": 0, "successful": 2})),
                    ("/snapshot/metadata/by", json!("me")),
                ],
            ),
            step(
                "POST /_snapshot/r/_verify_integrity?snapshot=s1",
                NONE,
                200,
                &[
                    ("/results/result", json!("pass")),
                    ("/results/snapshots", json!(1)),
                    ("/results/total_anomalies", json!(0)),
                    ("/results/anomalies", json!([])),
                ],
            ),
            step("POST /_snapshot/r/_verify_integrity?snapshot=s9", NONE, 404, &[(reason, json!("[r:s9] is missing"))]),
            step(
                "POST /_snapshot/r/_verify_integrity?wait_for_completion=false",
                NONE,
                200,
                &[("/accepted", json!(true))],
            ),
            step("PUT /_snapshot/r/s1", NONE, 400, &[(kind, json!("invalid_snapshot_name_exception"))]),
            step("PUT /_snapshot/r/S1", NONE, 400, &[(kind, json!("invalid_snapshot_name_exception"))]),
            step(
                "PUT /_snapshot/r/s2",
                json!({"indices": "none"}),
                404,
                &[(kind, json!("index_not_found_exception"))],
            ),
            step(
                "PUT /_snapshot/r/s2",
                json!({"indecis": "a"}),
                400,
                &[(reason, json!("Unknown parameter indecis"))],
            ),
            step(
                "GET /_snapshot/r/s9",
                NONE,
                404,
                &[(kind, json!("snapshot_missing_exception")), (reason, json!("[r:s9] is missing"))],
            ),
            step("GET /_snapshot/r/s9?ignore_unavailable=true", NONE, 200, &[("/snapshots", json!([]))]),
            step(
                "GET /_snapshot/r/s*?verbose=false",
                NONE,
                200,
                &[("/snapshots/0/snapshot", json!("s1")), ("/snapshots/0/shards", NONE)],
            ),
            step("GET /_snapshot/r/s1/_status", NONE, 200, &[("/snapshots/0/shards_stats/done", json!(2))]),
            step("GET /_snapshot/_status", NONE, 200, &[("/snapshots", json!([]))]),
            step(
                "POST /_snapshot/r/s1/_restore?wait_for_completion=true",
                NONE,
                500,
                &[(kind, json!("snapshot_restore_exception"))],
            ),
            step("PUT /a/_doc/2?refresh=true", json!({"v": 3}), 201, &[]),
            step(
                "POST /_snapshot/r/s1/_restore?wait_for_completion=true",
                json!({
                    "indices": "a", "rename_pattern": "(.+)", "rename_replacement": "old-$1",
                    "index_settings": {"number_of_replicas": 0},
                }),
                200,
                &[("/snapshot/indices", names(&["old-a"])), ("/snapshot/shards/successful", json!(1))],
            ),
            step("GET /old-a/_count", NONE, 200, &[("/count", json!(1))]),
            step(
                "GET /old-a/_recovery?human=true",
                NONE,
                200,
                &[
                    ("/old-a/shards/0/type", json!("SNAPSHOT")),
                    ("/old-a/shards/0/stage", json!("DONE")),
                    ("/old-a/shards/0/source/repository", json!("r")),
                    ("/old-a/shards/0/source/snapshot", json!("s1")),
                    ("/old-a/shards/0/source/index", json!("a")),
                    ("/old-a/shards/0/index/files/percent", json!("100.0%")),
                    ("/old-a/shards/0/index/size/percent", json!("100.0%")),
                    ("/old-a/shards/0/index/size/reused_in_bytes", json!(0)),
                ],
            ),
            step("GET /_recovery?active_only=true", NONE, 200, &[("", json!({}))]),
            step("GET /b/_recovery", NONE, 200, &[("/b/shards/0/stage", json!("DONE"))]),
            step("GET /c/_recovery", NONE, 404, &[(kind, json!("index_not_found_exception"))]),
            step(
                "GET /_cat/recovery/old-a?format=json&h=type,stage,rep,snap,fp,bp",
                NONE,
                200,
                &[("/0", json!({
                    "type": "snapshot", "stage": "done", "rep": "r", "snap": "s1", "fp": "100.0%", "bp": "100.0%",
                }))],
            ),
            step("GET /old-a/_doc/1", NONE, 200, &[("/_source/v", json!(1))]),
            step(
                "GET /old-a/_settings",
                NONE,
                200,
                &[("/old-a/settings/index/number_of_replicas", json!("0"))],
            ),
            step("DELETE /a", NONE, 200, &[]),
            step("POST /_snapshot/r/s1/_restore?wait_for_completion=true", json!({"indices": "a"}), 200, &[]),
            step("GET /a/_count", NONE, 200, &[("/count", json!(1))]),
            step(
                "PUT /_snapshot/r/s1/_clone/s2",
                json!({"indices": "b"}),
                200,
                &[("/acknowledged", json!(true))],
            ),
            step("GET /_snapshot/r/s2", NONE, 200, &[("/snapshots/0/indices", names(&["b"]))]),
            step(
                "PUT /_snapshot/r/s1/_clone/s3",
                json!({"indices": "b,none"}),
                404,
                &[("/error/type", json!("index_not_found_exception"))],
            ),
            step(
                "PUT /_snapshot/r/s1/_clone/s3",
                json!({"indices": "none", "ignore_unavailable": true}),
                500,
                &[("/error/type", json!("snapshot_exception"))],
            ),
            step(
                "POST /_snapshot/r/s1/_restore",
                json!({"indices": "none*", "allow_no_indices": false}),
                404,
                &[("/error/type", json!("index_not_found_exception"))],
            ),
            step(
                "GET /_cat/snapshots?format=json",
                NONE,
                200,
                &[("/0/id", json!("s1")), ("/1/id", json!("s2"))],
            ),
            step(
                "GET /_cat/snapshots/r?format=json&h=id,total_shards",
                NONE,
                200,
                &[("/0/total_shards", json!("2"))],
            ),
            step(
                "GET /_cat/repositories?format=json",
                NONE,
                200,
                &[("/0/id", json!("r")), ("/0/type", json!("fs"))],
            ),
            step("DELETE /_snapshot/r/s1,s2", NONE, 200, &[("/acknowledged", json!(true))]),
            step("PUT /_index_template/flow", json!({"index_patterns": ["flow"], "data_stream": {}}), 200, &[]),
            step("PUT /_data_stream/flow", NONE, 200, &[]),
            step(
                "PUT /_snapshot/r/stream?wait_for_completion=true",
                json!({"indices": "flow"}),
                200,
                &[
                    ("/snapshot/indices", names(&[".ds-flow-000001"])),
                    ("/snapshot/data_streams", names(&["flow"])),
                ],
            ),
            step(
                "GET /_snapshot/r/_all?verbose=false",
                NONE,
                200,
                &[("/snapshots/0/data_streams", names(&["flow"]))],
            ),
            step("DELETE /_snapshot/r/stream", NONE, 200, &[]),
            step("POST /_snapshot/r/_cleanup", NONE, 200, &[("/results/deleted_blobs", json!(0))]),
            step("DELETE /_snapshot/r", NONE, 200, &[]),
            step("DELETE /_snapshot/r", NONE, 404, &[]),
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn global_state_and_the_servers_own_indices_are_in_it() {
    let backups = tempfile::tempdir().unwrap();
    let node = with_snapshots(Node::insecure().await, backups.path()).await;
    let template = json!({"index_patterns": ["t-*"], "template": {"settings": {"number_of_replicas": 0}}});
    let repository = json!({"type": "fs", "settings": {"location": "one"}});
    let settings = json!({"persistent": {"action.auto_create_index": "t-*"}});
    play(
        &node,
        vec![
            step("PUT /_snapshot/r", repository, 200, &[]),
            step("PUT /_index_template/t", template, 200, &[]),
            step("PUT /_cluster/settings", settings, 200, &[]),
            step("PUT /t-1/_doc/1", json!({}), 201, &[]),
            step(
                "PUT /_snapshot/r/s?wait_for_completion=true",
                NONE,
                200,
                &[("/snapshot/include_global_state", json!(true))],
            ),
            step("DELETE /t-1", NONE, 200, &[]),
            step("DELETE /_index_template/t", NONE, 200, &[]),
            step(
                "PUT /_cluster/settings",
                json!({"persistent": {"action.auto_create_index": null}}),
                200,
                &[],
            ),
            step(
                "POST /_snapshot/r/s/_restore?wait_for_completion=true",
                json!({"include_global_state": true}),
                200,
                &[("/snapshot/indices", json!(["t-1"]))],
            ),
            step("GET /_index_template/t", NONE, 200, &[]),
            step(
                "GET /_cluster/settings?flat_settings=true",
                NONE,
                200,
                &[("/persistent/action.auto_create_index", json!("t-*"))],
            ),
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_of_snapshots_are_their_own() {
    let backups = tempfile::tempdir().unwrap();
    let node = with_snapshots(Node::secured().await, backups.path()).await;
    let admin = [("authorization", "Basic YWRtaW46c2VjcmV0")];
    let ask = async |line: &str, body: Value, headers: &[(&str, &str)], status: u16| {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer = node.send(line, headers, body).await;
        assert_eq!(answer.status, status, "{line}: {}", answer.text());
        answer
    };
    let repository = json!({"type": "fs", "settings": {"location": "one"}});
    ask("PUT /_snapshot/r", repository, &admin, 200).await;
    for index in ["secret", "logs"] {
        ask(&format!("PUT /{index}/_doc/1"), json!({}), &admin, 201).await;
    }
    let role = json!({
        "cluster_permissions": ["manage_snapshots"],
        "index_permissions": [{"index_patterns": ["logs*"], "allowed_actions": ["indices_all"]}],
    });
    ask("PUT /_plugins/_security/api/roles/keeper", role, &admin, 201).await;
    let reader = json!({"cluster_permissions": ["cluster_monitor"], "index_permissions": []});
    ask("PUT /_plugins/_security/api/roles/watcher", reader, &admin, 201).await;
    for (name, role) in [("ann", "keeper"), ("bob", "watcher")] {
        let user = json!({"password": "long-enough-1", "opendistro_security_roles": [role]});
        ask(&format!("PUT /_plugins/_security/api/internalusers/{name}"), user, &admin, 201).await;
    }
    let ann = [("authorization", "Basic YW5uOmxvbmctZW5vdWdoLTE=")];
    let bob = [("authorization", "Basic Ym9iOmxvbmctZW5vdWdoLTE=")];
    for line in
        ["GET /_snapshot", "PUT /_snapshot/r/s", "DELETE /_snapshot/r/s", "POST /_snapshot/r/s/_restore"]
    {
        ask(line, NONE, &bob, 403).await;
    }
    // Indices that she may do nothing with are not there for her, nor are those of the server.
    let made = ask("PUT /_snapshot/r/hers?wait_for_completion=true", NONE, &ann, 200).await;
    assert_eq!(made.json()["snapshot"]["indices"], json!(["logs"]));
    ask("PUT /_snapshot/r/other", json!({"indices": "secret"}), &ann, 403).await;
    ask("PUT /_snapshot/r/all?wait_for_completion=true", NONE, &admin, 200).await;
    // The rules of others are not to be read under another name.
    let rules = json!({"indices": ".console", "rename_pattern": ".+", "rename_replacement": "logs-console"});
    ask("POST /_snapshot/r/all/_restore", rules, &ann, 404).await;
    ask(
        "POST /_snapshot/r/all/_restore",
        json!({"include_global_state": true, "indices": "none*"}),
        &ann,
        403,
    )
    .await;
    // Accounts are for those who could make them.
    ask("PUT /_snapshot/r/hers-2", json!({"feature_states": ["security"]}), &ann, 403).await;
    ask("POST /_snapshot/r/all/_restore", json!({"feature_states": ["security"]}), &ann, 403).await;
    let as_secret = json!({"indices": "logs", "rename_pattern": "logs", "rename_replacement": "secret-2"});
    ask("POST /_snapshot/r/all/_restore", as_secret, &ann, 403).await;
    let as_logs = json!({"indices": "logs", "rename_pattern": "logs", "rename_replacement": "logs-2"});
    ask("POST /_snapshot/r/all/_restore?wait_for_completion=true", as_logs, &ann, 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn accounts_are_in_a_snapshot_that_names_them() {
    let backups = tempfile::tempdir().unwrap();
    let admin = [("authorization", "Basic YWRtaW46c2VjcmV0")];
    let ann = [("authorization", "Basic YW5uOmxvbmctZW5vdWdoLTE=")];
    let ask = async |node: &Node, line: &str, body: Value, headers: &[(&str, &str)], status: u16| {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer = node.send(line, headers, body).await;
        assert_eq!(answer.status, status, "{line}: {}", answer.text());
        answer.json()
    };
    let repository = json!({"type": "fs", "settings": {"location": "one"}});
    let states = json!({"feature_states": ["security"]});
    {
        let node = with_snapshots(Node::secured().await, backups.path()).await;
        ask(&node, "PUT /_snapshot/r", repository.clone(), &admin, 200).await;
        ask(&node, "PUT /logs/_doc/1", json!({}), &admin, 201).await;
        let role = json!({"index_permissions": [{"index_patterns": ["logs*"], "allowed_actions": ["read"]}]});
        ask(&node, "PUT /_plugins/_security/api/roles/keeper", role, &admin, 201).await;
        let user = json!({
            "password": "long-enough-1", "opendistro_security_roles": ["keeper"],
            "attributes": {"certificate_subject": "CN=ann"},
        });
        ask(&node, "PUT /_plugins/_security/api/internalusers/ann", user, &admin, 201).await;
        let without =
            ask(&node, "PUT /_snapshot/r/without?wait_for_completion=true", NONE, &admin, 200).await;
        assert!(without["snapshot"]["feature_states"].is_null());
        let made =
            ask(&node, "PUT /_snapshot/r/with?wait_for_completion=true", states.clone(), &admin, 200).await;
        assert_eq!(made["snapshot"]["feature_states"][0]["feature_name"], "security");
        // What names no accounts has none, nor does a clone.
        ask(&node, "PUT /_snapshot/r/with/_clone/clone", json!({"indices": "logs"}), &admin, 200).await;
        for snapshot in ["without", "clone"] {
            let line = format!("POST /_snapshot/r/{snapshot}/_restore?wait_for_completion=true");
            let refused =
                ask(&node, &line, json!({"feature_states": "security", "indices": "-*"}), &admin, 500).await;
            let reason = refused["error"]["reason"].as_str().unwrap().to_owned();
            assert!(reason.contains("no feature state [security]"), "{reason}");
        }
        ask(&node, "DELETE /_snapshot/r/without,clone", NONE, &admin, 200).await;
    }

    let node = with_snapshots(Node::secured().await, backups.path()).await;
    ask(&node, "PUT /_snapshot/r", repository, &admin, 200).await;
    let line = "POST /_snapshot/r/with/_restore?wait_for_completion=true";
    // Without the name of the feature no account comes back.
    ask(&node, line, NONE, &admin, 200).await;
    ask(&node, "GET /logs/_count", NONE, &ann, 401).await;
    // Who does not wait finds the outcome at the task of the answer.
    let only_accounts = json!({"indices": "-*", "feature_states": ["security"]});
    let in_background = async || {
        let begun = ask(&node, "POST /_snapshot/r/with/_restore", only_accounts.clone(), &admin, 200).await;
        assert_eq!(begun["accepted"], true);
        let line = format!("GET /_tasks/{}?wait_for_completion=true", begun["task"].as_str().unwrap());
        let result = ask(&node, &line, NONE, &admin, 200).await;
        assert_eq!(result["completed"], true);
        assert_eq!(result["task"]["action"], "cluster:admin/snapshot/restore");
        result
    };
    let bob = "PUT /_plugins/_security/api/internalusers/bob";
    let user = json!({"password": "long-enough-2", "attributes": {"certificate_subject": "CN=ann"}});
    ask(&node, bob, user, &admin, 201).await;
    let refused = in_background().await;
    assert_eq!(refused["error"]["type"], "snapshot_restore_exception");
    let reason = refused["error"]["reason"].as_str().unwrap();
    assert!(reason.contains("accounts are not restored") && reason.contains("bob"), "{reason}");
    ask(&node, "GET /logs/_count", NONE, &ann, 401).await;
    ask(&node, "DELETE /_plugins/_security/api/internalusers/bob", NONE, &admin, 200).await;
    let restored = in_background().await;
    assert_eq!(restored["response"]["snapshot"]["shards"]["total"], 0);
    assert_eq!(ask(&node, "GET /logs/_count", NONE, &ann, 200).await["count"], 1);
    ask(&node, "GET /other/_count", NONE, &ann, 403).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_is_being_made_shows_its_progress_until_it_is_deleted() {
    let backups = tempfile::tempdir().unwrap();
    let node = with_snapshots(Node::insecure().await, backups.path()).await;
    let slow = json!({"type": "fs", "settings": {"location": "slow", "max_snapshot_bytes_per_sec": "1b"}});
    let wrong = json!({"type": "fs", "settings": {"location": "slow", "max_snapshot_bytes_per_sec": "fast"}});
    play(
        &node,
        vec![
            step("PUT /_snapshot/r", wrong, 500, &[("/error/type", json!("repository_exception"))]),
            step("PUT /_snapshot/r", slow, 200, &[]),
            step("GET /_snapshot/r", NONE, 200, &[("/r/settings/max_snapshot_bytes_per_sec", json!("1b"))]),
            step("PUT /logs/_doc/1", json!({"text": "hello"}), 201, &[]),
            step("PUT /_snapshot/r/s", NONE, 200, &[("/accepted", json!(true))]),
        ],
    )
    .await;
    let shown = loop {
        let status = node.ask("GET /_snapshot/r/s/_status", "", 200).await;
        let shown = status["snapshots"][0].clone();
        assert_eq!(shown["state"], "STARTED", "{status}");
        if shown["stats"]["processed"]["file_count"].as_u64() > Some(0) {
            break shown;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!((&shown["state"], &shown["shards_stats"]["total"]), (&json!("STARTED"), &json!(1)));
    let bytes = |kind: &str| shown["indices"]["logs"]["stats"][kind]["size_in_bytes"].as_u64().unwrap();
    assert!(bytes("processed") < bytes("total") && bytes("processed") == bytes("incremental"), "{shown}");
    play(
        &node,
        vec![
            step("DELETE /_snapshot/r/s", NONE, 200, &[]),
            step("GET /_snapshot/r/_all", NONE, 200, &[("/snapshots", json!([]))]),
        ],
    )
    .await;
}
