//! Logs of OpenTelemetry over HTTP: documents, refusals of records, and of requests.

use bytes::Bytes;
use millrace_api::{DataApi, DocumentMapping, OtlpConfig};
use serde_json::{Value, json};

use crate::support::Node;

const JSON: &[(&str, &str)] = &[("content-type", "application/json")];
const PROTOBUF: &[(&str, &str)] = &[("content-type", "application/x-protobuf")];

fn request(records: &Value) -> String {
    let resource = json!({"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]});
    json!({"resourceLogs": [{"resource": resource, "scopeLogs": [{"logRecords": records}]}]}).to_string()
}

fn record(text: &str) -> Value {
    json!({"timeUnixNano": "1544712660300000000", "severityText": "INFO", "body": {"stringValue": text}})
}

/// Appends a field of protobuf that has a length.
fn field(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag << 3 | 2];
    let mut length = content.len();
    while length >= 128 {
        bytes.push(u8::try_from(length % 128).unwrap() | 128);
        length /= 128;
    }
    bytes.push(u8::try_from(length).unwrap());
    bytes.extend(content);
    bytes
}

/// A request of protobuf with a record for each text.
fn protobuf(texts: &[&str]) -> Vec<u8> {
    let records = texts.iter().flat_map(|text| field(2, &field(5, &field(1, text.as_bytes()))));
    field(1, &field(2, &records.collect::<Vec<u8>>()))
}

async fn count(node: &Node, index: &str) -> Value {
    node.ask(&format!("POST /{index}/_refresh"), "", 200).await;
    node.ask(&format!("GET /{index}/_count"), "", 200).await["count"].clone()
}

#[tokio::test]
async fn records_become_documents_in_both_encodings() {
    let node = Node::insecure().await;
    let body = request(&json!([record("one"), record("two")]));
    let answer = node.send("POST /v1/logs", JSON, body.clone()).await;
    assert_eq!((answer.status, answer.text()), (200, "{}"));
    let answer = node.send("POST /v1/logs", PROTOBUF, protobuf(&["three"])).await;
    assert_eq!((answer.status, &answer.bytes[..]), (200, &b""[..]));
    assert_eq!(count(&node, "logs-generic.otel-default").await, 3);
    let found = node.ask("GET /logs-*/_search?q=body.text:one", "", 200).await;
    let source = &found["hits"]["hits"][0]["_source"];
    assert_eq!(source["resource"]["attributes"]["service.name"], "shop");
    assert_eq!(source["@timestamp"], "2018-12-13T14:51:00.300Z");
    // By the settings.
    let otlp = OtlpConfig { mapping: DocumentMapping::Ecs, index: Some("mine".into()) };
    let node = node.with_data_api(DataApi::default().with_otlp(otlp));
    assert_eq!(node.send("POST /v1/logs", JSON, body).await.status, 200);
    assert_eq!(count(&node, "mine").await, 2);
    let found = node.ask("GET /mine/_search?q=message:two", "", 200).await;
    assert_eq!(found["hits"]["hits"][0]["_source"]["log.level"], "INFO");
}

#[tokio::test]
async fn refused_records_are_counted_and_the_others_stored() {
    let node = Node::insecure().await;
    node.ask(
        "PUT /logs-n.otel-default",
        r#"{"settings":{"index.mapping.overflow":"refuse"},
            "mappings":{"properties":{"attributes":{"properties":{"n":{"type":"long"}}}}}}"#,
        200,
    )
    .await;
    let attribute = |key: &str, text: &str| json!({"key": key, "value": {"stringValue": text}});
    let with = |n: &str| json!({"attributes": [attribute("n", n), attribute("data_stream.dataset", "n")]});
    let body = request(&json!([with("1"), with("none"), {"traceId": "abc"}, with("2")]));
    let answer = node.send("POST /v1/logs", JSON, body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let partial = &answer.json()["partialSuccess"];
    assert_eq!(partial["rejectedLogRecords"], "2");
    assert!(!partial["errorMessage"].as_str().unwrap().is_empty(), "{partial}");
    assert_eq!(count(&node, "logs-n.otel-default").await, 2);
    // A block passes: clients send the request again.
    node.ask("PUT /logs-n.otel-default/_settings", r#"{"index":{"blocks":{"write":true}}}"#, 200).await;
    let answer = node.send("POST /v1/logs", JSON, request(&json!([with("3")]))).await;
    assert_eq!(answer.status, 503, "{}", answer.text());
}

#[tokio::test]
async fn attributes_that_contradict_each_other_are_kept() {
    let node = Node::insecure().await;
    let attribute = |key: &str, value: Value| json!({ "key": key, "value": value });
    let text = |text: &str| json!({ "stringValue": text });
    let with = |attributes: &[Value]| json!({ "body": text("x"), "attributes": attributes });
    let records = json!([
        with(&[attribute("app", text("shop")), attribute("app.kubernetes.io/name", text("shop"))]),
        with(&[attribute("error", json!({"boolValue": true})), attribute("n", json!({"intValue": "7"}))]),
        with(&[attribute("error.type", text("timeout")), attribute("n", text("none"))]),
        with(&[attribute("day", text("2026-01-02"))]),
        with(&[attribute("day", text("Friday"))]),
    ]);
    let answer = node.send("POST /v1/logs", JSON, request(&records)).await;
    assert_eq!((answer.status, answer.text()), (200, "{}"));
    assert_eq!(count(&node, "logs-generic.otel-default").await, 5);
    let streams = node.ask("GET /_data_stream/logs-generic.otel-default", "", 200).await;
    assert_eq!(streams["data_streams"][0]["indices"].as_array().map(Vec::len), Some(1));
    for (query, hits) in [
        ("attributes.app:shop", 1),
        ("attributes.n:7", 1),
        ("attributes.day:Friday", 1),
        ("_ignored:attributes.n", 1),
        ("resource.attributes.service.name:shop", 5),
    ] {
        let found = node.ask(&format!("GET /logs-*/_count?q={query}"), "", 200).await;
        assert_eq!(found["count"], hits, "{query}");
    }
    let found = node.ask("GET /logs-*/_search?q=_ignored:attributes.n", "", 200).await;
    let source = &found["hits"]["hits"][0]["_source"]["attributes"];
    assert_eq!((&source["error.type"], &source["n"]), (&json!("timeout"), &json!("none")));
}

#[tokio::test]
async fn exporters_that_require_a_data_stream_need_no_template() {
    let node = Node::insecure().await;
    let document = json!({"@timestamp": "2026-01-02T03:04:05Z", "body": {"text": "hello"}});
    let lines = format!("{{\"create\":{{\"_index\":\"logs-generic.otel-default\"}}}}\n{document}\n");
    let answer = node.ask("POST /_bulk?require_data_stream=true", &lines, 200).await;
    assert_eq!(answer["items"][0]["create"]["status"], 201, "{answer}");
    let lines = lines.replace("logs-generic.otel-default", "logs-generic-default");
    let answer = node.ask("POST /_bulk?require_data_stream=true", &lines, 200).await;
    assert_eq!(answer["items"][0]["create"]["status"], 404, "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn records_go_through_the_pipelines_of_their_index() {
    let node = Node::insecure().await;
    let processors = json!([
        {"drop": {"if": "ctx.body.text == 'drop'"}},
        {"fail": {"if": "ctx.body.text == 'fail'", "message": "no"}},
        {"set": {"field": "seen", "value": true}},
    ]);
    node.ask("PUT /_ingest/pipeline/p", &json!({ "processors": processors }).to_string(), 200).await;
    let settings = json!({"settings": {"index.default_pipeline": "p"}});
    let template = json!({"index_patterns": ["logs-*"], "template": settings});
    node.ask("PUT /_index_template/t", &template.to_string(), 200).await;
    let body = request(&json!([record("one"), record("drop"), record("fail"), record("two")]));
    let answer = node.send("POST /v1/logs", JSON, body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let partial = &answer.json()["partialSuccess"];
    assert_eq!((&partial["rejectedLogRecords"], &partial["errorMessage"]), (&json!("1"), &json!("no")));
    assert_eq!(count(&node, "logs-generic.otel-default").await, 2);
    let found = node.ask("GET /logs-*/_search?q=seen:true", "", 200).await;
    assert_eq!(found["hits"]["total"]["value"], 2);
}

#[tokio::test]
async fn requests_that_are_none_are_refused() {
    let node = Node::insecure().await;
    for (headers, body, status) in [
        (JSON, &b"[]"[..], 400),
        (JSON, b"{", 400),
        (PROTOBUF, b"\xff\xff", 400),
        (&[("content-type", "text/plain")], b"{}", 415),
        (&[("content-type", "application/json"), ("content-encoding", "zstd")], b"{}", 400),
        (&[("content-type", "application/json"), ("content-encoding", "br")], b"{}", 415),
    ] {
        let answer = node.send("POST /v1/logs", headers, Bytes::copy_from_slice(body)).await;
        assert_eq!(answer.status, status, "{headers:?} {}", answer.text());
    }
    assert_eq!(node.send("POST /v1/logs", PROTOBUF, "").await.status, 200);
    assert_eq!(node.send("POST /v1/logs?x=1", JSON, "{}").await.status, 400);
    assert_eq!(node.send("GET /v1/logs", &[], "").await.status, 405);
}

#[tokio::test]
async fn rights_are_asked_for() {
    let node = Node::secured().await;
    let body = request(&json!([record("one")]));
    assert_eq!(node.send("POST /v1/logs", JSON, body.clone()).await.status, 401);
    // admin:secret
    let admin = [("content-type", "application/json"), ("authorization", "Basic YWRtaW46c2VjcmV0")];
    let role = r#"{"indices":[{"names":["logs-*"],"privileges":["create_doc","create_index"]}]}"#;
    for (line, body) in [
        ("PUT /_security/role/shipper", role),
        ("PUT /_security/role/other", r#"{"indices":[{"names":["x-*"],"privileges":["all"]}]}"#),
        ("PUT /_security/user/ship", r#"{"password":"secret","roles":["shipper"]}"#),
        ("PUT /_security/user/other", r#"{"password":"secret","roles":["other"]}"#),
    ] {
        let answer = node.send(line, &admin, body).await;
        assert_eq!(answer.status, 200, "{line} {}", answer.text());
    }
    let ship = [("content-type", "application/json"), ("authorization", "Basic c2hpcDpzZWNyZXQ=")];
    let answer = node.send("POST /v1/logs", &ship, body.clone()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let other = [("content-type", "application/json"), ("authorization", "Basic b3RoZXI6c2VjcmV0")];
    let answer = node.send("POST /v1/logs", &other, body).await;
    assert_eq!(answer.status, 403, "{}", answer.text());
}
