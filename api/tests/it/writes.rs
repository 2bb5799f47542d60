//! Writes through aliases, conditions and routing, as tables of requests.

use serde_json::{Value, json};

use crate::support::{Node, Step, play};

const NONE: Value = Value::Null;
const LINES: [(&str, &str); 1] = [("content-type", "application/x-ndjson")];

fn step(line: &str, body: Value, status: u16, expected: &[(&'static str, Value)]) -> Step {
    Step::new(line, body, status, expected)
}

#[tokio::test]
async fn an_alias_gives_its_routing_to_writes() {
    let node = Node::insecure().await;
    let alias = json!({"settings": {"number_of_shards": 5}, "aliases": {"al": {"index_routing": "abc"}}});
    let refused = json!(
        "Alias [al] has index routing associated with it [abc], and was provided with routing value [x], rejecting operation"
    );
    play(
        &node,
        vec![
            step("PUT /a", alias, 200, &[]),
            step("PUT /al/_doc/1", json!({"n": 1}), 201, &[("/_index", json!("a"))]),
            step("GET /al/_doc/1", NONE, 200, &[("/_routing", json!("abc"))]),
            step("GET /a/_doc/1?routing=abc", NONE, 200, &[("/_source/n", json!(1))]),
            step("PUT /al/_doc/1?routing=x", json!({}), 400, &[("/error/reason", refused.clone())]),
            step("PUT /al/_doc/1?routing=abc", json!({"n": 2}), 200, &[]),
            step("POST /al/_update/1", json!({"doc": {"m": 1}}), 200, &[]),
            step("GET /a/_source/1?routing=abc", NONE, 200, &[("", json!({"n": 2, "m": 1}))]),
            step("DELETE /al/_doc/1", NONE, 200, &[("/result", json!("deleted"))]),
        ],
    )
    .await;
    let body = concat!(
        "{\"index\":{\"_id\":\"1\"}}\n{\"n\":1}\n",
        "{\"index\":{\"_id\":\"2\",\"routing\":\"x\"}}\n{}\n",
        "{\"update\":{\"_id\":\"1\"}}\n{\"doc\":{\"n\":2}}\n"
    );
    let answer = node.send("POST /al/_bulk", &LINES, body).await.json();
    assert_eq!(answer["items"][1]["index"]["error"]["reason"], refused);
    assert_eq!(
        (&answer["items"][0]["index"]["status"], &answer["items"][2]["update"]["status"]),
        (&json!(201), &json!(200))
    );
    assert_eq!(node.ask("GET /a/_source/1?routing=abc", "", 200).await, json!({"n": 2}));
}

#[tokio::test]
async fn an_alias_of_many_needs_a_write_index() {
    let node = Node::insecure().await;
    let none = json!(
        "no write index is defined for alias [al]. The write index may be explicitly disabled using is_write_index=false or the alias points to multiple indices without one being designated as a write index"
    );
    play(
        &node,
        vec![
            step("PUT /a", json!({"aliases": {"al": {}}}), 200, &[]),
            step("PUT /b", json!({"aliases": {"al": {}}}), 200, &[]),
            step("PUT /al/_doc/1", json!({}), 400, &[("/error/reason", none)]),
            step("GET /al/_doc/1", NONE, 400, &[("/error/reason", json!(
                "alias [al] has more than one index associated with it [a, b], can't execute a single index op"
            ))]),
            step("PUT /b/_alias/al", json!({"is_write_index": true}), 200, &[]),
            step("PUT /al/_doc/1?require_alias=true", json!({}), 201, &[("/_index", json!("b"))]),
            step("PUT /b/_doc/1?require_alias=true", json!({}), 404, &[("/error/type", json!("index_not_found_exception"))]),
        ],
    )
    .await;
}

#[tokio::test]
async fn deletes_create_no_index_unless_they_bring_a_version() {
    let node = Node::insecure().await;
    let delete = "{\"delete\":{\"_index\":\"a\",\"_id\":\"1\"}}\n";
    let answer = node.send("POST /_bulk", &LINES, delete).await.json();
    assert_eq!(answer["items"][0]["delete"]["status"], 404);
    assert_eq!(answer["items"][0]["delete"]["error"]["type"], "index_not_found_exception");
    node.ask("DELETE /a/_doc/1", "", 404).await;
    node.ask("HEAD /a", "", 404).await;
    // One operation that does makes it for all.
    let body = format!("{delete}{{\"index\":{{\"_index\":\"a\",\"_id\":\"2\"}}}}\n{{}}\n");
    let answer = node.send("POST /_bulk", &LINES, body).await.json();
    assert_eq!(answer["items"][0]["delete"]["result"], "not_found");
    assert_eq!(answer["items"][1]["index"]["status"], 201);
    let versioned =
        "{\"delete\":{\"_index\":\"b\",\"_id\":\"1\",\"version\":3,\"version_type\":\"external\"}}\n";
    let answer = node.send("POST /_bulk", &LINES, versioned).await.json();
    assert_eq!(answer["items"][0]["delete"]["_version"], 3);
    node.ask("HEAD /b", "", 200).await;
}

#[tokio::test]
async fn items_fail_with_the_index_that_they_name() {
    let node = Node::insecure().await;
    node.ask("PUT /closed", "", 200).await;
    node.ask("POST /closed/_close", "", 200).await;
    node.ask("PUT /_cluster/settings", r#"{"transient":{"action.auto_create_index":"ok*,closed"}}"#, 200)
        .await;
    let body = concat!(
        "{\"index\":{\"_index\":\"Bad\"}}\n{}\n",
        "{\"index\":{\"_index\":\"no\"}}\n{}\n",
        "{\"index\":{\"_index\":\"no\"}}\n{}\n",
        "{\"index\":{\"_index\":\"closed\"}}\n{}\n",
        "{\"update\":{\"_index\":\"ok\",\"_id\":\"1\"}}\n{\"doc\":{}}\n",
        "{\"index\":{\"_index\":\"ok\"}}\n{\"a\":1}\n"
    );
    let answer = node.send("POST /_bulk", &LINES, body).await.json();
    let failures: Vec<(u64, &str)> = answer["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item.as_object().unwrap().values().next().unwrap())
        .map(|item| (item["status"].as_u64().unwrap(), item["error"]["type"].as_str().unwrap_or_default()))
        .collect();
    assert_eq!(
        failures,
        [
            (404, "index_not_found_exception"),
            (404, "index_not_found_exception"),
            (404, "index_not_found_exception"),
            (400, "index_closed_exception"),
            (404, "document_missing_exception"),
            (201, ""),
        ]
    );
    let missing = &answer["items"][4]["update"]["error"];
    assert_eq!((&missing["reason"], &missing["shard"]), (&json!("[_doc][1]: document missing"), &json!("0")));
    assert_eq!(missing["index_uuid"].as_str().unwrap().len(), 22);
}

#[tokio::test]
async fn conditions_hold_for_every_kind_of_write() {
    let node = Node::insecure().await;
    let conflict = [("/error/type", json!("version_conflict_engine_exception"))];
    play(
        &node,
        vec![
            step("PUT /a/_doc/1", json!({"n": 1}), 201, &[]),
            step("PUT /a/_doc/1?if_seq_no=7&if_primary_term=1", json!({}), 409, &conflict),
            step("PUT /a/_doc/1?if_seq_no=0&if_primary_term=2", json!({}), 409, &conflict),
            step("POST /a/_update/1?if_seq_no=7&if_primary_term=1", json!({"doc": {}}), 409, &conflict),
            step(
                "POST /a/_update/1?if_seq_no=0&if_primary_term=1",
                json!({"doc": {"n": 2}}),
                200,
                &[("/_seq_no", json!(1))],
            ),
            step("DELETE /a/_doc/1?if_seq_no=0&if_primary_term=1", NONE, 409, &conflict),
            step("DELETE /a/_doc/1?if_seq_no=1", NONE, 400, &[]),
            step("DELETE /a/_doc/1?if_seq_no=1&if_primary_term=1", NONE, 200, &[]),
            step("DELETE /a/_doc/1?if_seq_no=2&if_primary_term=1", NONE, 409, &conflict),
            step("PUT /a/_doc/2?version=5&version_type=external", json!({}), 201, &[("/_version", json!(5))]),
            step("PUT /a/_doc/2?version=4&version_type=external_gte", json!({}), 409, &conflict),
            step(
                "DELETE /a/_doc/2?version=5&version_type=external_gte",
                NONE,
                200,
                &[("/_version", json!(5))],
            ),
            step("DELETE /a/_doc/2?version=6&version_type=external", NONE, 404, &[("/_version", json!(6))]),
            step("PUT /a/_doc/3?version=5", json!({}), 400, &[]),
            step("PUT /a/_doc/3?version_type=external", json!({}), 400, &[]),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_required_routing_is_asked_for() {
    let node = Node::insecure().await;
    let missing = [("/error/type", json!("routing_missing_exception"))];
    play(
        &node,
        vec![
            step(
                "PUT /a",
                json!({"settings": {"number_of_shards": 5}, "mappings": {"_routing": {"required": true}}}),
                200,
                &[],
            ),
            step("PUT /a/_doc/1", json!({}), 400, &missing),
            step("PUT /a/_doc/1?routing=5", json!({"n": 1}), 201, &[]),
            step("GET /a/_doc/1", NONE, 400, &missing),
            step("GET /a/_source/1", NONE, 400, &missing),
            step("DELETE /a/_doc/1", NONE, 400, &missing),
            step("POST /a/_update/1", json!({"doc": {}}), 400, &missing),
            step("HEAD /a/_doc/1", NONE, 400, &[]),
            step(
                "GET /a/_doc/1?routing=5&stored_fields=_routing",
                NONE,
                200,
                &[("/_routing", json!("5")), ("/_source", NONE)],
            ),
            step(
                "POST /a/_mget",
                json!({"docs": [{"_id": "1"}, {"_id": "1", "routing": "5"}]}),
                200,
                &[("/docs/0/error/type", json!("routing_missing_exception")), ("/docs/1/found", json!(true))],
            ),
            step("DELETE /a/_doc/1?routing=5", NONE, 200, &[]),
        ],
    )
    .await;
}
