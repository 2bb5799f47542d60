//! Data streams over HTTP.

use serde_json::{Value, json};

use crate::support::{Node, Step, play};

const NONE: Value = Value::Null;

fn step(line: &str, body: Value, status: u16, expected: &[(&'static str, Value)]) -> Step {
    Step::new(line, body, status, expected)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_lives() {
    let node = Node::insecure().await;
    let (kind, reason) = ("/error/type", "/error/reason");
    let template = json!({"index_patterns": ["log*"], "data_stream": {}});
    let document = json!({"@timestamp": "2026-01-01T00:00:00Z", "m": "a"});
    let appends = json!("only write ops with an op_type of create are allowed in data streams");
    play(
        &node,
        vec![
            step("PUT /_index_template/t", template, 200, &[]),
            step("PUT /_data_stream/logs", NONE, 200, &[("/acknowledged", json!(true))]),
            step("PUT /_data_stream/logs", NONE, 400, &[(kind, json!("resource_already_exists_exception"))]),
            step("PUT /logs-x", NONE, 400, &[(kind, json!("illegal_argument_exception"))]),
            step(
                "POST /logs/_doc?refresh=true",
                document.clone(),
                201,
                &[("/_index", json!(".ds-logs-000001"))],
            ),
            step("PUT /logs/_create/1?refresh=true", document.clone(), 201, &[]),
            step("PUT /logs/_doc/2", document.clone(), 400, &[(reason, appends.clone())]),
            step("DELETE /logs/_doc/1", NONE, 400, &[(reason, appends)]),
            step("POST /.ds-logs-000001/_doc", document.clone(), 400, &[]),
            step(
                "POST /logs/_doc",
                json!({"m": "b"}),
                400,
                &[
                    (kind, json!("mapper_parsing_exception")),
                    ("/error/caused_by/reason", json!("data stream timestamp field [@timestamp] is missing")),
                ],
            ),
            step("POST /logs/_doc", json!({"@timestamp": [1, 2]}), 400, &[]),
            step("POST /logs/_rollover", NONE, 200, &[("/new_index", json!(".ds-logs-000002"))]),
            step("POST /logs/_rollover/x", NONE, 400, &[]),
            step(
                "POST /logs-auto/_doc?refresh=true",
                document.clone(),
                201,
                &[("/_index", json!(".ds-logs-auto-000001"))],
            ),
            step("POST /plain/_doc?require_data_stream=true", document.clone(), 404, &[]),
            step("POST /log-new/_doc?require_data_stream=true&refresh=true", document, 201, &[]),
            step("GET /logs/_search", NONE, 200, &[("/hits/total/value", json!(2))]),
            step("GET /*/_count", NONE, 200, &[("/count", json!(4))]),
            step(
                "POST /_plugins/_sql",
                json!({"query": "SELECT COUNT(*) FROM logs"}),
                200,
                &[("/datarows/0/0", json!(2))],
            ),
            step(
                "GET /_data_stream/logs",
                NONE,
                200,
                &[
                    ("/data_streams/0/name", json!("logs")),
                    ("/data_streams/0/timestamp_field/name", json!("@timestamp")),
                    ("/data_streams/0/generation", json!(2)),
                    ("/data_streams/0/status", json!("GREEN")),
                    ("/data_streams/0/template", json!("t")),
                    ("/data_streams/0/indices/1/index_name", json!(".ds-logs-000002")),
                ],
            ),
            step("GET /_data_stream/none", NONE, 404, &[(kind, json!("index_not_found_exception"))]),
            step(
                "GET /_data_stream/logs/_stats",
                NONE,
                200,
                &[
                    ("/data_stream_count", json!(1)),
                    ("/backing_indices", json!(2)),
                    ("/data_streams/0/maximum_timestamp", json!(1_767_225_600_000_i64)),
                ],
            ),
            step(
                "GET /_resolve/index/logs",
                NONE,
                200,
                &[("/data_streams/0/backing_indices", json!([".ds-logs-000001", ".ds-logs-000002"]))],
            ),
            step("DELETE /.ds-logs-000002", NONE, 400, &[]),
            step("DELETE /.ds-logs-000001", NONE, 200, &[]),
            step("DELETE /_index_template/t", NONE, 400, &[]),
            step("DELETE /_data_stream/log*", NONE, 200, &[]),
            step("DELETE /_index_template/t", NONE, 200, &[]),
            step("GET /_data_stream", NONE, 200, &[("/data_streams", json!([]))]),
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bulks_create_in_streams_alone() {
    let node = Node::insecure().await;
    let template = json!({"index_patterns": ["log*"], "data_stream": {"timestamp_field": {"name": "time"}}});
    node.ask("PUT /_index_template/t", &template.to_string(), 200).await;
    let lines =
        "{\"create\":{\"_index\":\"logs\"}}\n{\"time\":1}\n{\"index\":{\"_index\":\"logs\"}}\n{\"time\":1}\n";
    let answer = node.ask("POST /_bulk", lines, 200).await;
    assert_eq!(answer["items"][0]["create"]["status"], 201, "{answer}");
    assert_eq!(answer["items"][1]["index"]["status"], 400, "{answer}");
}
