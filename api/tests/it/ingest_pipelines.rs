//! Ingest pipelines over HTTP.

use std::sync::Arc;

use millrace_api::{DataApi, IngestService};
use millrace_snapshot::{Config, SnapshotService};
use serde_json::{Value, json};

use crate::support::{Node, Step, play};

const NONE: Value = Value::Null;

fn step(line: &str, body: Value, status: u16, expected: &[(&'static str, Value)]) -> Step {
    Step::new(line, body, status, expected)
}

fn set(field: &str, value: Value) -> Value {
    json!({ "processors": [{ "set": { "field": field, "value": value } }] })
}

#[tokio::test(flavor = "multi_thread")]
async fn definitions_are_stored() {
    let node = Node::insecure().await;
    let bad = json!({"processors": [{"set": {"field": "a", "tag": "T"}}]});
    play(
        &node,
        vec![
            step("GET /_ingest/pipeline", NONE, 404, &[("", json!({}))]),
            step("PUT /_ingest/pipeline/one", set("a", json!(1)), 200, &[("/acknowledged", json!(true))]),
            step("PUT /_ingest/pipeline/two", json!({"processors": [], "version": 3}), 200, &[]),
            step("GET /_ingest/pipeline/two", NONE, 200, &[("/two/version", json!(3))]),
            step("GET /_ingest/pipeline/o*,zz", NONE, 200, &[("", json!({"one": set("a", json!(1))}))]),
            step("GET /_ingest/pipeline/zz", NONE, 404, &[("", json!({}))]),
            step(
                "PUT /_ingest/pipeline/bad",
                bad,
                400,
                &[
                    ("/error/type", json!("parse_exception")),
                    ("/error/root_cause/0/property_name", json!("value")),
                    ("/error/root_cause/0/processor_tag", json!("T")),
                ],
            ),
            step("PUT /_ingest/pipeline/_none", set("a", json!(1)), 400, &[]),
            step(
                "GET /_cluster/state/metadata",
                NONE,
                200,
                &[("/metadata/ingest/pipeline/1/id", json!("two"))],
            ),
            step("DELETE /_ingest/pipeline/two", NONE, 200, &[]),
            step(
                "DELETE /_ingest/pipeline/two",
                NONE,
                404,
                &[("/error/reason", json!("pipeline [two] is missing"))],
            ),
        ],
    )
    .await;
    let node = node.restarted().await;
    play(
        &node,
        vec![
            step("GET /_ingest/pipeline", NONE, 200, &[("", json!({"one": set("a", json!(1))}))]),
            step("PUT /x/_doc/1?pipeline=one", json!({"b": 2}), 201, &[]),
            step("GET /x/_doc/1", NONE, 200, &[("/_source", json!({"b": 2, "a": 1}))]),
            step("DELETE /_ingest/pipeline/*", NONE, 200, &[]),
            step("GET /_ingest/pipeline/*", NONE, 404, &[]),
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_go_through_pipelines() {
    let node = Node::insecure().await;
    let settings =
        json!({"settings": {"index.default_pipeline": "default", "index.final_pipeline": "final"}});
    let template = json!({"index_patterns": ["made-*"], "template": settings});
    let relocates = json!({"processors": [
        {"set": {"field": "_index", "value": "elsewhere"}},
        {"set": {"field": "_id", "value": "another"}},
        {"set": {"field": "_routing", "value": "r"}},
    ]});
    let reason = "/error/reason";
    play(
        &node,
        vec![
            step("PUT /_ingest/pipeline/default", set("d", json!(1)), 200, &[]),
            step("PUT /_ingest/pipeline/final", set("f", json!("{{_index}}")), 200, &[]),
            step("PUT /_ingest/pipeline/drops", json!({"processors": [{"drop": {}}]}), 200, &[]),
            step("PUT /_ingest/pipeline/moves", set("_index", json!("elsewhere")), 200, &[]),
            step("PUT /_ingest/pipeline/names", set("_id", json!("named")), 200, &[]),
            step(
                "PUT /_ingest/pipeline/fails",
                json!({"processors": [{"fail": {"message": "no"}}]}),
                200,
                &[],
            ),
            step("PUT /own", settings, 200, &[]),
            step("PUT /_index_template/t", template, 200, &[]),
            step("PUT /own/_doc/1", json!({}), 201, &[]),
            step("GET /own/_doc/1", NONE, 200, &[("/_source", json!({"d": 1, "f": "own"}))]),
            step("PUT /made-1/_doc/1", json!({}), 201, &[]),
            step("GET /made-1/_doc/1", NONE, 200, &[("/_source", json!({"d": 1, "f": "made-1"}))]),
            step("PUT /own/_doc/2?pipeline=_none", json!({}), 201, &[]),
            step("GET /own/_doc/2", NONE, 200, &[("/_source", json!({"f": "own"}))]),
            step("POST /own/_update/3", json!({"doc": {"a": 1}, "doc_as_upsert": true}), 201, &[]),
            step("GET /own/_doc/3", NONE, 200, &[("/_source", json!({"a": 1, "d": 1, "f": "own"}))]),
            step(
                "PUT /moving",
                json!({"settings": {"index.default_pipeline": "relocates", "index.final_pipeline": "final"}}),
                200,
                &[],
            ),
            step("PUT /_ingest/pipeline/relocates", relocates, 200, &[]),
            step(
                "POST /moving/_update/1",
                json!({"doc": {"a": 1}, "doc_as_upsert": true}),
                201,
                &[("/_index", json!("moving")), ("/_id", json!("1"))],
            ),
            step("GET /moving/_doc/1", NONE, 200, &[("/_source", json!({"a": 1, "f": "elsewhere"}))]),
            step("POST /own/_doc", json!({"_id": "own-field"}), 201, &[]),
            step("GET /own/_doc/own-field", NONE, 404, &[]),
            step("PUT /own/_doc/4?pipeline=moves", json!({"a": 1}), 201, &[("/_index", json!("elsewhere"))]),
            step("GET /elsewhere/_doc/4", NONE, 200, &[("/_source", json!({"a": 1}))]),
            step("POST /elsewhere/_doc?pipeline=names", json!({}), 201, &[("/_id", json!("named"))]),
            step(
                "PUT /own/_doc/5?pipeline=drops",
                json!({}),
                200,
                &[("/result", json!("noop")), ("/_version", json!(-3)), ("/_id", json!("5"))],
            ),
            step("GET /own/_doc/5", NONE, 404, &[]),
            step(
                "PUT /own/_doc/6?pipeline=nope",
                json!({}),
                400,
                &[(reason, json!("pipeline with id [nope] does not exist"))],
            ),
            step("PUT /own/_doc/6?pipeline=", json!({}), 400, &[]),
            step(
                "PUT /own/_doc/6?pipeline=fails",
                json!({}),
                500,
                &[("/error/type", json!("fail_processor_exception"))],
            ),
            step("PUT /_ingest/pipeline/final", set("_index", json!("other")), 200, &[]),
            step(
                "PUT /own/_doc/7",
                json!({}),
                500,
                &[(reason, json!("final pipeline [final] can't change the target index"))],
            ),
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn items_of_bulks_have_pipelines_of_their_own() {
    let node = Node::insecure().await;
    for (name, body) in [
        ("one", set("a", json!(1))),
        ("drops", json!({"processors": [{"drop": {}}]})),
        ("fails", json!({"processors": [{"rename": {"field": "z", "target_field": "y"}}]})),
        ("moves", set("_index", json!("elsewhere"))),
    ] {
        node.ask(&format!("PUT /_ingest/pipeline/{name}"), &body.to_string(), 200).await;
    }
    let body = concat!(
        "{\"index\":{\"_id\":\"1\"}}\n{}\n",
        "{\"index\":{\"_id\":\"2\",\"pipeline\":\"drops\"}}\n{}\n",
        "{\"create\":{\"_id\":\"3\",\"pipeline\":\"fails\"}}\n{}\n",
        "{\"index\":{\"_id\":\"4\",\"pipeline\":\"_none\"}}\n{}\n",
        "{\"index\":{\"_id\":\"5\",\"pipeline\":\"nope\"}}\n{}\n",
        "{\"delete\":{\"_id\":\"6\"}}\n",
        "{\"index\":{\"_id\":\"7\",\"pipeline\":\"moves\"}}\n{}\n",
        "{\"index\":{\"pipeline\":\"drops\"}}\n{}\n",
    );
    let answer = node.ask("POST /x/_bulk?pipeline=one&refresh=true", body, 200).await;
    assert_eq!(answer["errors"], true);
    assert!(answer["ingest_took"].is_u64(), "{answer}");
    let items = answer["items"].as_array().unwrap();
    assert_eq!(items.len(), 8);
    assert_eq!(items[0]["index"]["result"], "created");
    assert_eq!((&items[1]["index"]["result"], &items[1]["index"]["status"]), (&json!("noop"), &json!(200)));
    assert_eq!(items[2]["create"]["error"]["reason"], "field [z] doesn't exist");
    assert_eq!(items[4]["index"]["error"]["reason"], "pipeline with id [nope] does not exist");
    assert_eq!(items[5]["delete"]["result"], "not_found");
    assert_eq!((&items[6]["index"]["_index"], &items[6]["index"]["_id"]), (&json!("elsewhere"), &json!("7")));
    assert_eq!(items[7]["index"]["_id"], "auto-generated");
    let found = node.ask("GET /x,elsewhere/_search?sort=_id", "", 200).await;
    let ids: Vec<_> = found["hits"]["hits"].as_array().unwrap().iter().map(|hit| &hit["_id"]).collect();
    assert_eq!(ids, ["1", "4", "7"]);
    assert_eq!(found["hits"]["hits"][0]["_source"], json!({"a": 1}));
    let figures = node.ask("GET /_nodes/stats/ingest", "", 200).await;
    let node_figures = figures["nodes"].as_object().unwrap().values().next().unwrap();
    assert_eq!(node_figures["ingest"]["total"]["count"], 6);
    assert_eq!(node_figures["ingest"]["pipelines"]["fails"]["failed"], 1);
    assert_eq!(node_figures["ingest"]["pipelines"]["drops"]["processors"][0]["drop"]["stats"]["count"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn simulations_store_nothing() {
    let node = Node::insecure().await;
    let body = json!({
        "pipeline": set("b", json!("{{a}}")),
        "docs": [{"_source": {"a": "x"}}, {"_index": "i", "_id": "7", "_source": {}}],
    });
    let verbose = json!({
        "pipeline": {"processors": [
            {"set": {"field": "a", "value": 1, "tag": "t", "if": "true"}},
            {"rename": {"field": "z", "target_field": "y", "ignore_failure": true}},
            {"drop": {"if": "false"}},
            {"drop": {}},
        ]},
        "docs": [{"_source": {}}],
    });
    play(
        &node,
        vec![
            step(
                "POST /_ingest/pipeline/_simulate",
                body,
                200,
                &[
                    ("/docs/0/doc/_source", json!({"a": "x", "b": "x"})),
                    ("/docs/1/doc/_id", json!("7")),
                    ("/docs/1/doc/_index", json!("i")),
                ],
            ),
            step(
                "GET /_ingest/pipeline/_simulate?verbose",
                verbose,
                200,
                &[
                    ("/docs/0/processor_results/0/if", json!({"condition": "true", "result": true})),
                    ("/docs/0/processor_results/0/doc/_source", json!({"a": 1})),
                    ("/docs/0/processor_results/1/status", json!("error_ignored")),
                    ("/docs/0/processor_results/2/status", json!("skipped")),
                    ("/docs/0/processor_results/3/status", json!("dropped")),
                ],
            ),
            step("POST /_ingest/pipeline/_simulate", json!({"docs": [{"_source": {}}]}), 400, &[]),
            step("POST /_ingest/pipeline/nope/_simulate", json!({"docs": [{"_source": {}}]}), 400, &[]),
            step(
                "POST /_ingest/pipeline/_simulate",
                json!({"pipeline": {"processors": []}, "docs": []}),
                400,
                &[],
            ),
            step(
                "GET /_ingest/processor/grok",
                NONE,
                200,
                &[("/patterns/PATH", json!("(?:%{UNIXPATH}|%{WINPATH})"))],
            ),
            step("GET /_cat/indices", NONE, 200, &[]),
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_count_where_a_document_goes() {
    let node = Node::secured().await;
    let admin = [("authorization", "Basic YWRtaW46c2VjcmV0")];
    let ask = async |line: &str, body: Value, headers: &[(&str, &str)], status: u16| {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer = node.send(line, headers, body).await;
        assert_eq!(answer.status, status, "{line}: {}", answer.text());
        answer
    };
    ask("PUT /_ingest/pipeline/moves", set("_index", json!("secret")), &admin, 200).await;
    ask("PUT /_ingest/pipeline/hides", set("_index", json!(".ingest-pipelines")), &admin, 200).await;
    let role = json!({
        "cluster_permissions": ["cluster_monitor"],
        "index_permissions": [{"index_patterns": ["logs*"], "allowed_actions": ["indices_all"]}],
    });
    ask("PUT /_plugins/_security/api/roles/writer", role, &admin, 201).await;
    let user = json!({"password": "long-enough-1", "opendistro_security_roles": ["writer"]});
    ask("PUT /_plugins/_security/api/internalusers/ann", user, &admin, 201).await;
    let ann = [("authorization", "Basic YW5uOmxvbmctZW5vdWdoLTE=")];
    ask("PUT /logs/_doc/1", json!({}), &ann, 201).await;
    for pipeline in ["moves", "hides"] {
        ask(&format!("PUT /logs/_doc/1?pipeline={pipeline}"), json!({}), &ann, 403).await;
    }
    for line in ["PUT /_ingest/pipeline/hers", "GET /_ingest/pipeline", "POST /_ingest/pipeline/_simulate"] {
        ask(line, set("a", json!(1)), &ann, 403).await;
    }
}

/// Serves snapshots and pipelines, with repositories below a directory.
async fn with_snapshots(backups: &std::path::Path) -> Node {
    let node = Node::insecure().await;
    let config = Config { path_repo: vec![backups.to_owned()], ..Config::default() };
    let snapshots = SnapshotService::open(Arc::clone(&node.api.engine), config).await.unwrap();
    let ingest = IngestService::open(&node.api.engine, &node.api.search).await;
    node.with_data_api(DataApi::default().with_snapshots(snapshots).with_ingest(ingest))
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshots_take_pipelines_with_the_global_state() {
    let backups = tempfile::tempdir().unwrap();
    let repository = json!({"type": "fs", "settings": {"location": "one"}});
    let state = ("/snapshot/state", json!("SUCCESS"));
    let steps = vec![
        step("PUT /_snapshot/r", repository.clone(), 200, &[]),
        step("PUT /_ingest/pipeline/one", set("a", json!(1)), 200, &[]),
        step("PUT /_snapshot/r/s?wait_for_completion=true", NONE, 200, &[state]),
    ];
    play(&with_snapshots(backups.path()).await, steps).await;
    let restore = json!({"indices": ".ingest-pipelines"});
    let steps = vec![
        step("PUT /_snapshot/r", repository, 200, &[]),
        step("GET /_ingest/pipeline", NONE, 404, &[]),
        step("POST /_snapshot/r/s/_restore?wait_for_completion=true", restore, 200, &[]),
        step("GET /_ingest/pipeline", NONE, 200, &[("", json!({"one": set("a", json!(1))}))]),
        step("PUT /x/_doc/1?pipeline=one", json!({}), 201, &[]),
        step("GET /x/_doc/1", NONE, 200, &[("/_source", json!({"a": 1}))]),
    ];
    play(&with_snapshots(backups.path()).await, steps).await;
}
