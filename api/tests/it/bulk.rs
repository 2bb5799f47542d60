//! `_bulk` end to end.

use serde_json::json;

use crate::support::Node;

const LINES: [(&str, &str); 2] = [("content-type", "application/x-ndjson"), ("accept", "application/json")];

#[tokio::test]
async fn every_action_answers_for_itself() {
    let node = Node::insecure().await;
    let body = concat!(
        "{\"index\":{\"_id\":\"1\"}}\n{\"f\":1}\n",
        "{\"create\":{\"_id\":\"1\"}}\n{\"f\":2}\n",
        "{\"update\":{\"_id\":\"1\"}}\n{\"doc\":{\"g\":3}}\n",
        "{\"delete\":{\"_id\":\"2\"}}\n",
        "{\"index\":{\"_id\":\"\"}}\n{}\n",
        "{\"index\":{\"_index\":\"Bad\"}}\n{}\n"
    );
    let answer = node.send("POST /logs/_bulk?refresh", &LINES, body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let answer = answer.json();
    assert_eq!(answer["errors"], true);
    let items = answer["items"].as_array().unwrap();
    let status =
        items.iter().map(|item| item.as_object().unwrap().values().next().unwrap()["status"].clone());
    assert_eq!(status.collect::<Vec<_>>(), [201, 409, 200, 404, 400, 400].map(|status| json!(status)));
    assert_eq!(items[0]["index"]["forced_refresh"], true);
    assert_eq!(items[5]["index"]["error"]["type"], "invalid_index_name_exception");
    assert_eq!(node.ask("GET /logs/_source/1", "", 200).await, json!({ "f": 1, "g": 3 }));
}

#[tokio::test]
async fn a_refused_bulk_does_nothing() {
    let node = Node::insecure().await;
    for body in
        ["{\"index\":{\"_id\":\"1\"}}\n{}\n{\"index\":{\"_id\":\"2\"}}\n{}", "{\"index\":{}}\n{}\nnonsense\n"]
    {
        let answer = node.send("PUT /logs/_bulk", &LINES, body).await;
        assert_eq!(answer.status, 400, "{}", answer.text());
    }
    node.ask("GET /logs/_doc/1", "", 404).await;
}

#[tokio::test]
async fn the_answer_can_be_filtered() {
    let node = Node::insecure().await;
    let line = "POST /_bulk?filter_path=errors,items.*.status";
    let answer = node.send(line, &LINES, "{\"index\":{\"_index\":\"logs\"}}\n{\"f\":1}\n").await;
    assert_eq!(answer.json(), json!({ "errors": false, "items": [{ "index": { "status": 201 } }] }));
}
