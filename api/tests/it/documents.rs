//! Documents one at a time.

use serde_json::json;

use crate::support::Node;

#[tokio::test]
async fn a_document_lives() {
    let node = Node::insecure().await;
    let body = node.ask("PUT /logs/_doc/1", r#"{"foo":"bar"}"#, 201).await;
    assert_eq!(
        (&body["_type"], &body["result"], &body["_version"]),
        (&json!("_doc"), &json!("created"), &json!(1))
    );
    assert_eq!(body["_shards"], json!({ "total": 2, "successful": 1, "failed": 0 }));
    assert_eq!((&body["_seq_no"], &body["_primary_term"]), (&json!(0), &json!(1)));
    assert_eq!(body.get("created"), None);

    let body = node.ask("GET /logs/_doc/1", "", 200).await;
    assert_eq!((&body["found"], &body["_source"]), (&json!(true), &json!({ "foo": "bar" })));
    assert_eq!(node.ask("HEAD /logs/_doc/1", "", 200).await, json!(null));

    let body = node.ask("PUT /logs/_doc/1?refresh=true", r#"{"foo":"baz"}"#, 200).await;
    assert_eq!((&body["result"], &body["forced_refresh"]), (&json!("updated"), &json!(true)));
    node.ask("PUT /logs/_create/1", "{}", 409).await;
    node.ask("PUT /logs/_doc/1?op_type=create", "{}", 409).await;

    let body = node.ask("DELETE /logs/_doc/1", "", 200).await;
    assert_eq!((&body["result"], &body["_version"]), (&json!("deleted"), &json!(3)));
    let body = node.ask("GET /logs/_doc/1", "", 404).await;
    assert_eq!(body, json!({ "_index": "logs", "_type": "_doc", "_id": "1", "found": false }));
    let body = node.ask("DELETE /logs/_doc/1", "", 404).await;
    assert_eq!(body["result"], "not_found");
}

#[tokio::test]
async fn typed_paths_echo_their_type() {
    let node = Node::insecure().await;
    let body = node.ask("PUT /logs/event/1", r#"{"a":1}"#, 201).await;
    assert_eq!((&body["_type"], &body["created"]), (&json!("event"), &json!(true)));
    let body = node.ask("PUT /logs/event/1", r#"{"a":2}"#, 200).await;
    assert_eq!(body["created"], false);
    assert_eq!(node.ask("GET /logs/event/1", "", 200).await["_type"], "event");
    assert_eq!(node.ask("GET /logs/_doc/1", "", 200).await["_type"], "_doc");
    let body = node.ask("POST /logs/event", r#"{"a":3}"#, 201).await;
    assert_eq!(body["_id"].as_str().unwrap().len(), 20);
}

#[tokio::test]
async fn sources() {
    let node = Node::insecure().await;
    node.ask("PUT /logs/_doc/1", r#"{"a": {"b":1,"c":2}, "d":3}"#, 201).await;
    let answer = node.send("GET /logs/_doc/1?_source", &[], "").await;
    assert_eq!(answer.text(), r#"{"a": {"b":1,"c":2}, "d":3}"#);
    assert_eq!(node.send("GET /logs/_source/1", &[], "").await.text(), answer.text());
    assert_eq!(
        node.ask("GET /logs/_doc/1?_source=a.b", "", 200).await["_source"],
        json!({ "a": { "b": 1 } })
    );
    assert_eq!(node.ask("GET /logs/_doc/1?_source=false", "", 200).await.get("_source"), None);
    let body = node.ask("GET /logs/_source/2", "", 404).await;
    assert_eq!(body["error"]["reason"], "Document not found [logs]/[_doc]/[2]");
    assert_eq!(node.send("HEAD /logs/_source/2", &[], "").await.status, 404);
}

#[tokio::test]
async fn versions_and_conditions() {
    let node = Node::insecure().await;
    node.ask("PUT /logs/_doc/1?version=5&version_type=external", "{}", 201).await;
    let body = node.ask("PUT /logs/_doc/1?version=5&version_type=external", "{}", 409).await;
    assert_eq!(body["error"]["type"], "version_conflict_engine_exception");
    node.ask("PUT /logs/_doc/1?version=5&version_type=external_gte", "{}", 200).await;
    node.ask("GET /logs/_doc/1?version=5", "", 200).await;
    node.ask("GET /logs/_doc/1?version=4", "", 409).await;
    node.ask("PUT /logs/_doc/1?if_seq_no=9&if_primary_term=1", "{}", 409).await;
    node.ask("PUT /logs/_doc/1?if_seq_no=1&if_primary_term=1", "{}", 200).await;
    let body = node.ask("PUT /logs/_create/2?version=1&version_type=external", "{}", 400).await;
    assert_eq!(
        body["error"]["reason"],
        "Validation Failed: 1: create operations only support internal versioning. use index instead;"
    );
}

#[tokio::test]
async fn bad_documents_are_refused() {
    let node = Node::insecure().await;
    let body = node.ask("GET /missing/_doc/1", "", 404).await;
    assert_eq!(body["error"]["type"], "index_not_found_exception");
    assert_eq!(body["error"]["resource.id"], "missing");
    node.ask("DELETE /missing/_doc/1", "", 404).await;
    let long = format!("PUT /logs/_doc/{}", "x".repeat(513));
    let body = node.ask(&long, "{}", 400).await;
    assert!(
        body["error"]["reason"].as_str().unwrap().contains("must be no longer than 512 bytes but was: 513")
    );
    assert_eq!(node.ask("PUT /logs/_doc/1", "", 400).await["error"]["reason"], "request body is required");
    assert_eq!(
        node.ask("PUT /logs/_doc/1", "{\"a\":", 400).await["error"]["type"],
        "mapper_parsing_exception"
    );
    node.ask("PUT /logs/_doc/1?pipeline=p", "{}", 400).await;
    node.ask("PUT /alias/_doc/1?require_alias=true", "{}", 404).await;
}

#[tokio::test]
async fn updates() {
    let node = Node::insecure().await;
    node.ask("POST /logs/_update/1", r#"{"doc":{"a":1}}"#, 404).await;
    let upsert = r#"{"doc":{"a":{"b":1}},"doc_as_upsert":true}"#;
    assert_eq!(node.ask("POST /logs/_update/1", upsert, 201).await["result"], "created");
    let body = node.ask("POST /logs/_update/1", upsert, 200).await;
    assert_eq!((&body["result"], &body["_shards"]["total"]), (&json!("noop"), &json!(0)));
    let body = node.ask("POST /logs/_update/1?_source=true", r#"{"doc":{"a":{"c":2}}}"#, 200).await;
    assert_eq!(body["get"]["_source"], json!({ "a": { "b": 1, "c": 2 } }));
    let body = node.ask("POST /logs/_update/1", r#"{"script":"x"}"#, 400).await;
    assert!(body["error"]["reason"].as_str().unwrap().contains("not supported"));
    node.ask("POST /logs/event/1/_update", r#"{"doc":{"d":1}}"#, 200).await;
}

#[tokio::test]
async fn documents_without_a_source_are_not_updated() {
    let node = Node::insecure().await;
    node.ask("PUT /logs", r#"{"mappings": {"_source": {"enabled": false}}}"#, 200).await;
    node.ask("PUT /logs/_doc/1", r#"{"a":1}"#, 201).await;
    for body in [r#"{"doc":{"a":2}}"#, r#"{"doc":{"a":2},"doc_as_upsert":true}"#] {
        let error = &node.ask("POST /logs/_update/1", body, 400).await["error"];
        assert_eq!(error["type"], "document_source_missing_exception");
        assert_eq!(error["reason"], "[_doc][1]: document source missing");
    }
    node.ask("POST /logs/_update/2", r#"{"doc":{"a":2}}"#, 404).await;
    node.ask("POST /logs/_update/2", r#"{"doc":{"a":2},"doc_as_upsert":true}"#, 201).await;
    let bulk = "{\"index\":{\"_id\":\"3\"}}\n{\"a\":1}\n{\"update\":{\"_id\":\"3\"}}\n{\"doc\":{\"a\":2}}\n";
    let items = node.ask("POST /logs/_bulk", bulk, 200).await["items"].clone();
    assert_eq!((&items[0]["index"]["status"], &items[1]["update"]["status"]), (&json!(201), &json!(400)));
}

#[tokio::test]
async fn many_gets() {
    let node = Node::insecure().await;
    node.ask("PUT /logs/_doc/1", r#"{"foo":"bar"}"#, 201).await;
    let body = node
        .ask(
            "POST /_mget",
            r#"{"docs":[{"_index":"logs","_id":1},{"_index":"logs","_id":"2"},{"_index":"nope","_id":"3"}]}"#,
            200,
        )
        .await;
    assert_eq!(body["docs"][0]["_source"], json!({ "foo": "bar" }));
    assert_eq!(body["docs"][1], json!({ "_index": "logs", "_type": "_doc", "_id": "2", "found": false }));
    assert_eq!(body["docs"][2]["error"]["type"], "index_not_found_exception");
    assert_eq!(body["docs"][2]["_type"], json!(null));
    let body = node.ask("GET /logs/_mget?_source=false", r#"{"ids":["1"]}"#, 200).await;
    assert_eq!(body["docs"][0].get("_source"), None);
}
