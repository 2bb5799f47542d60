//! Policies of indices and of snapshots, and resizing, over HTTP.

use std::sync::Arc;

use millrace_api::DataApi;
use millrace_lifecycle::{Lifecycle, LifecycleHooks};
use millrace_snapshot::{Config, SnapshotService};
use serde_json::{Value, json};

use crate::support::{Node, Step, play};

const NONE: Value = Value::Null;

fn step(line: &str, body: Value, status: u16, expected: &[(&'static str, Value)]) -> Step {
    Step::new(line, body, status, expected)
}

async fn with_policies(node: Node, backups: &std::path::Path) -> (Node, Lifecycle) {
    let config = Config { path_repo: vec![backups.to_owned()], ..Config::default() };
    let snapshots = SnapshotService::open(Arc::clone(&node.api.engine), config).await.unwrap();
    let lifecycle =
        Lifecycle::start(&node.api.engine, snapshots.clone(), LifecycleHooks::default()).await.unwrap();
    let api = DataApi::default().with_snapshots(snapshots).with_lifecycle(lifecycle.clone());
    (node.with_data_api(api), lifecycle)
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_of_indices_are_managed() {
    let dir = tempfile::tempdir().unwrap();
    let (node, lifecycle) = with_policies(Node::insecure().await, dir.path()).await;
    let (kind, reason) = ("/error/type", "/error/reason");
    let policy = json!({"policy": {
        "description": "d",
        "default_state": "a",
        "states": [{"name": "a", "actions": [{"read_only": {}}], "transitions": []}],
    }});
    let named = json!({"policy_id": "p"});
    play(
        &node,
        vec![
            step("GET /_plugins/_ism/policies", NONE, 200, &[("/total_policies", json!(0))]),
            step("GET /_plugins/_ism/policies/p", NONE, 404, &[(reason, json!("Policy not found"))]),
            step("HEAD /_plugins/_ism/policies/p", NONE, 404, &[]),
            step(
                "PUT /_plugins/_ism/policies/p",
                policy.clone(),
                201,
                &[("/_id", json!("p")), ("/_version", json!(1)), ("/policy/policy/policy_id", json!("p"))],
            ),
            step(
                "PUT /_plugins/_ism/policies/p",
                policy.clone(),
                409,
                &[(kind, json!("version_conflict_engine_exception"))],
            ),
            step(
                "PUT /_plugins/_ism/policies?policyID=p&if_seq_no=0&if_primary_term=1",
                policy,
                200,
                &[("/_version", json!(2))],
            ),
            step("PUT /_plugins/_ism/policies/q", json!({"policy": {"states": []}}), 400, &[]),
            step("PUT /i", NONE, 200, &[]),
            step(
                "GET /_plugins/_ism/explain/i",
                NONE,
                200,
                &[("/i/enabled", NONE), ("/total_managed_indices", json!(0))],
            ),
            step(
                "POST /_plugins/_ism/add/i",
                named.clone(),
                200,
                &[("/updated_indices", json!(1)), ("/failures", json!(false))],
            ),
            step(
                "POST /_plugins/_ism/add?index=i",
                named,
                200,
                &[("/failed_indices/0/index_name", json!("i"))],
            ),
            step("POST /_plugins/_ism/add/none", json!({"policy_id": "p"}), 404, &[]),
        ],
    )
    .await;
    lifecycle.run_now().await;
    let none = || json!({"total_managed_indices": 0});
    let found = &[("/i/policy_id", json!("p")), ("/total_managed_indices", json!(1))];
    play(
        &node,
        vec![
            step(
                "GET /i/_settings?flat_settings",
                NONE,
                200,
                &[("/i/settings/index.blocks.write", json!("true"))],
            ),
            step(
                "GET /_plugins/_ism/explain/i?show_policy=true",
                NONE,
                200,
                &[
                    ("/i/policy_id", json!("p")),
                    ("/i/state/name", json!("a")),
                    ("/i/policy/policy_id", json!("p")),
                ],
            ),
            step(
                "GET /_plugins/_ism/explain/i?size=0",
                NONE,
                200,
                &[("", json!({"total_managed_indices": 1}))],
            ),
            step("GET /_plugins/_ism/explain?queryString=none*", NONE, 200, &[("", none())]),
            step("GET /_plugins/_ism/explain?queryString=*i*,*x*", NONE, 200, found),
            step("GET /_plugins/_ism/explain?queryString=*%20-.ds*", NONE, 200, found),
            step("GET /_plugins/_ism/explain?queryString=*%20-i", NONE, 200, &[("", none())]),
            step("POST /_plugins/_ism/retry/i", NONE, 200, &[("/failures", json!(true))]),
            step("POST /_plugins/_ism/change_policy/i", json!({"policy_id": "none"}), 404, &[]),
            step("POST /_plugins/_ism/remove/i", NONE, 200, &[("/updated_indices", json!(1))]),
            step("DELETE /_plugins/_ism/policies/p", NONE, 200, &[("/result", json!("deleted"))]),
            step("DELETE /_plugins/_ism/policies/p", NONE, 404, &[]),
            step(
                "PUT /_ilm/policy/beat",
                json!({"policy": {"phases": {"hot": {"actions": {"rollover": {"max_size": "50gb"}}}}}}),
                200,
                &[("/acknowledged", json!(true))],
            ),
            step(
                "GET /_ilm/policy/beat",
                NONE,
                200,
                &[("/beat/policy/phases/hot/actions/rollover/max_size", json!("50gb"))],
            ),
            step("GET /_ilm/policy/none", NONE, 404, &[]),
            step("DELETE /_ilm/policy/beat", NONE, 200, &[]),
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_of_snapshots_are_managed() {
    let dir = tempfile::tempdir().unwrap();
    let (node, _lifecycle) = with_policies(Node::insecure().await, dir.path()).await;
    let policy = json!({
        "creation": {"schedule": {"cron": {"expression": "0 8 * * *", "timezone": "UTC"}}},
        "snapshot_config": {"repository": "r"},
    });
    play(
        &node,
        vec![
            step(
                "POST /_plugins/_sm/policies/d",
                policy.clone(),
                201,
                &[("/_id", json!("d-sm-policy")), ("/sm_policy/enabled", json!(true))],
            ),
            step("POST /_plugins/_sm/policies/d", policy.clone(), 409, &[]),
            step("PUT /_plugins/_sm/policies/d", policy.clone(), 400, &[]),
            step(
                "PUT /_plugins/_sm/policies/d?if_seq_no=0&if_primary_term=1",
                policy,
                200,
                &[("/_version", json!(2))],
            ),
            step("POST /_plugins/_sm/policies/d/_stop", NONE, 200, &[("/acknowledged", json!(true))]),
            step("GET /_plugins/_sm/policies/d", NONE, 200, &[("/sm_policy/enabled", json!(false))]),
            step("GET /_plugins/_sm/policies", NONE, 200, &[("/total_policies", json!(1))]),
            step(
                "GET /_plugins/_sm/policies/d/_explain",
                NONE,
                200,
                &[("/policies/0/enabled", json!(false))],
            ),
            step("POST /_plugins/_sm/policies/d/_start", NONE, 200, &[]),
            step("DELETE /_plugins/_sm/policies/d", NONE, 200, &[("/result", json!("deleted"))]),
            step("GET /_plugins/_sm/policies/d", NONE, 404, &[]),
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_of_reading_hold_for_policies_copies_and_figures() {
    let dir = tempfile::tempdir().unwrap();
    let (node, _lifecycle) = with_policies(Node::secured().await, dir.path()).await;
    let admin = [("authorization", "Basic YWRtaW46c2VjcmV0")];
    let ask = async |line: &str, body: Value, headers: &[(&str, &str)], status: u16| {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer = node.send(line, headers, body).await;
        assert_eq!(answer.status, status, "{line}: {}", answer.text());
        answer.json()
    };
    let template = json!({"index_patterns": ["log*"], "data_stream": {}});
    ask("PUT /_index_template/t", template, &admin, 200).await;
    let document = json!({"@timestamp": "2026-01-01T00:00:00Z"});
    ask("POST /logs/_doc?refresh=true", document, &admin, 201).await;
    ask("PUT /secret/_doc/1", json!({}), &admin, 201).await;
    ask("PUT /secret/_settings", json!({"index.blocks.write": true}), &admin, 200).await;
    let role = json!({
        "cluster_permissions": ["cluster:admin/opensearch/snapshot_management/*"],
        "index_permissions": [
            {"index_patterns": ["secret", "logs"], "allowed_actions": ["indices:admin/*", "indices:monitor/*"]},
            {"index_patterns": ["copy*"], "allowed_actions": ["indices_all"]},
        ],
    });
    ask("PUT /_plugins/_security/api/roles/keeper", role, &admin, 201).await;
    let user = json!({"password": "long-enough-1", "opendistro_security_roles": ["keeper"]});
    ask("PUT /_plugins/_security/api/internalusers/ann", user, &admin, 201).await;
    let ann = [("authorization", "Basic YW5uOmxvbmctZW5vdWdoLTE=")];
    let refused = ask("PUT /secret/_clone/copy", NONE, &ann, 403).await;
    assert!(refused["error"]["reason"].as_str().unwrap().contains("indices:data/read/search"), "{refused}");
    ask("PUT /secret/_clone/copy", NONE, &admin, 200).await;
    let time = |stats: &Value| stats["data_streams"][0]["maximum_timestamp"].as_i64();
    let stats = ask("GET /_data_stream/logs/_stats", NONE, &ann, 200).await;
    assert_eq!(time(&stats), Some(0), "{stats}");
    let stats = ask("GET /_data_stream/logs/_stats", NONE, &admin, 200).await;
    assert_eq!(time(&stats), Some(1_767_225_600_000), "{stats}");
    let policy = json!({
        "creation": {"schedule": {"cron": {"expression": "0 8 * * *", "timezone": "UTC"}}},
        "snapshot_config": {"repository": "r"},
    });
    ask("POST /_plugins/_sm/policies/d", policy.clone(), &ann, 403).await;
    ask("POST /_plugins/_sm/policies/d", policy.clone(), &admin, 201).await;
    let change = "PUT /_plugins/_sm/policies/d?if_seq_no=0&if_primary_term=1";
    ask(change, policy, &ann, 403).await;
    ask("POST /_plugins/_sm/policies/d/_stop", NONE, &ann, 200).await;

    // A policy that an API key puts has nobody's rights, also where its body names a user.
    let key = ask("POST /_security/api_key", json!({"name": "k"}), &admin, 200).await;
    let key = format!("ApiKey {}", key["encoded"].as_str().unwrap());
    let key = [("authorization", key.as_str())];
    let states = json!([{"name": "s", "actions": [{"read_only": {}}]}]);
    let policy = json!({"policy": {"default_state": "s", "states": states, "user": {"name": "admin"}}});
    ask("PUT /_plugins/_ism/policies/p", policy.clone(), &key, 201).await;
    let stored = ask("GET /_plugins/_ism/policies/p", NONE, &admin, 200).await;
    assert!(stored["policy"]["user"].is_null(), "{stored}");
    ask("PUT /_plugins/_ism/policies/q", policy, &admin, 201).await;
    let stored = ask("GET /_plugins/_ism/policies/q", NONE, &admin, 200).await;
    assert_eq!(stored["policy"]["user"]["name"], "admin", "{stored}");
    ask("PUT /_ilm/policy/q", json!({"policy": {"phases": {"hot": {"actions": {}}}}}), &key, 200).await;
    let stored = ask("GET /_plugins/_ism/policies/q", NONE, &admin, 200).await;
    assert!(stored["policy"]["user"].is_null(), "{stored}");
}

#[tokio::test(flavor = "multi_thread")]
async fn indices_are_resized() {
    let node = Node::insecure().await;
    let source = json!({
        "settings": {"number_of_shards": 2, "number_of_replicas": 0},
        "mappings": {"properties": {"f": {"type": "keyword"}}},
    });
    let shards = |count: u32| json!({"settings": {"index.number_of_shards": count}});
    let both = json!({"max_shard_size": "1gb", "settings": {"index.number_of_shards": 1}});
    node.ask("PUT /s", &source.to_string(), 200).await;
    for id in 0..20 {
        node.ask(&format!("PUT /s/_doc/{id}?routing=r{}", id % 3), &json!({"f": "v"}).to_string(), 201).await;
    }
    node.ask("PUT /s/_doc/0?routing=r0", "{\"f\":\"w\"}", 200).await;
    node.ask("DELETE /s/_doc/1?routing=r1", "", 200).await;
    play(
        &node,
        vec![
            step("PUT /s/_clone/c", NONE, 400, &[]),
            step("PUT /s/_settings", json!({"index.blocks.write": true}), 200, &[]),
            step("PUT /s/_clone/c", NONE, 200, &[("/index", json!("c"))]),
            step("PUT /s/_split/x", shards(4), 200, &[]),
            step("PUT /s/_shrink/h", json!({"settings": {"index.blocks.write": null}}), 200, &[]),
            step(
                "PUT /s/_clone/c",
                NONE,
                400,
                &[("/error/type", json!("resource_already_exists_exception"))],
            ),
            step("PUT /s/_clone/d?copy_settings=false", NONE, 400, &[]),
            step("PUT /s/_clone/d", json!({"max_shard_size": "1gb"}), 400, &[]),
            step("PUT /s/_shrink/d", json!({"max_shard_size": "0b"}), 400, &[]),
            step("PUT /s/_shrink/d", both, 400, &[]),
            step("PUT /s/_shrink/few", json!({"max_shard_size": "1gb"}), 200, &[]),
            step("PUT /s/_shrink/many", json!({"max_shard_size": "1b"}), 200, &[]),
            step(
                "GET /few,many/_settings?flat_settings",
                NONE,
                200,
                &[
                    ("/few/settings/index.number_of_shards", json!("1")),
                    ("/many/settings/index.number_of_shards", json!("2")),
                ],
            ),
            step("GET /c,x,h/_count", NONE, 200, &[("/count", json!(57))]),
            step(
                "GET /x/_doc/0?routing=r0",
                NONE,
                200,
                &[("/_version", json!(2)), ("/_source/f", json!("w"))],
            ),
            step("GET /h/_doc/1?routing=r1", NONE, 404, &[]),
            step("GET /x/_mapping", NONE, 200, &[("/x/mappings/properties/f/type", json!("keyword"))]),
            step("PUT /x/_doc/new", json!({"f": 1}), 403, &[]),
            step("PUT /h/_doc/new", json!({"f": 1}), 201, &[]),
        ],
    )
    .await;
}
