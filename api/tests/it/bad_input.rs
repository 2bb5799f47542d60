//! Requests that are wrong: each is refused by name, does nothing, and leaves the server as it was.

use serde_json::{Value, json};

use crate::support::{Node, Step, play};

/// Levels of nesting that no reader follows down.
const DEEP: usize = 10_000;

fn deep() -> String {
    format!("{}1{}", "{\"a\":".repeat(DEEP), "}".repeat(DEEP))
}

async fn alive(node: &Node) {
    play(
        node,
        vec![
            Step::new("PUT /alive/_doc/1?refresh=true", json!({"n": 1}), 201, &[]),
            Step::new("GET /alive/_count", Value::Null, 200, &[("/count", json!(1))]),
            Step::new("DELETE /alive", Value::Null, 200, &[]),
        ],
    )
    .await;
}

#[tokio::test]
async fn nesting_is_bounded_everywhere() {
    let node = Node::insecure().await;
    node.ask("PUT /a", "", 200).await;
    for line in [
        "PUT /a/_doc/1",
        "POST /a/_update/1",
        "POST /a/_search",
        "POST /a/_count",
        "POST /a/_delete_by_query",
        "PUT /b",
        "PUT /a/_mapping",
        "PUT /a/_settings",
        "PUT /_cluster/settings",
        "POST /_aliases",
        "PUT /_template/t",
        "PUT /_index_template/t",
        "PUT /_component_template/t",
        "POST /_mget",
        "POST /_search/scroll",
        "PUT /a/_alias/x",
    ] {
        let body = node.ask(line, &deep(), 400).await;
        assert!(body["error"]["reason"].is_string(), "{line}: {body}");
    }
    let lines =
        format!("{{\"index\":{{\"_id\":\"1\"}}}}\n{}\n{{\"index\":{{\"_id\":\"2\"}}}}\n{{}}\n", deep());
    let answer = node.ask("POST /a/_bulk", &lines, 200).await;
    assert_eq!(
        (&answer["items"][0]["index"]["status"], &answer["items"][1]["index"]["status"]),
        (&json!(400), &json!(201))
    );
    node.ask("GET /a/_doc/1", "", 404).await;
    let arrays = format!("{{\"a\":{}1{}}}", "[".repeat(DEEP), "]".repeat(DEEP));
    node.ask("PUT /a/_doc/1", &arrays, 400).await;
    assert_eq!(node.ask("GET /a/_mapping", "", 200).await, json!({"a": {"mappings": {}}}));
    alive(&node).await;
}

#[tokio::test]
async fn documents_that_are_none_name_their_fault() {
    let node = Node::insecure().await;
    for (body, fault) in [
        ("1", "must start with an object"),
        ("null", "must start with an object"),
        ("[{}]", "must start with an object"),
        ("{}{}", "found extra data after parsing: START_OBJECT"),
        ("{\"a\":1} x", "Unexpected character ('x')"),
        ("{\"a\":1,\"a\":2}", "Duplicate field 'a'"),
        ("{\"a\":", "Unexpected end-of-input"),
        ("{\"a\":NaN}", "[line: 1, column: 6]"),
        ("{\"\":1}", "field name cannot be an empty string"),
        ("{\"a..b\":1}", "[a..b]"),
        ("{\"_id\":1}", "Field [_id] is a metadata field"),
    ] {
        let answer = node.ask("PUT /a/_doc/1", body, 400).await;
        assert_eq!(answer["error"]["type"], "mapper_parsing_exception", "{body}");
        assert!(answer.to_string().contains(fault), "{body}: {answer}");
    }
    let bytes = node.send("PUT /a/_doc/1", &[], &b"{\"a\":\"\xff\"}"[..]).await;
    assert_eq!((bytes.status, &bytes.json()["error"]["type"]), (400, &json!("mapper_parsing_exception")));
    node.ask("GET /a/_doc/1", "", 404).await;
    alive(&node).await;
}

#[tokio::test]
async fn names_and_parameters_are_bounded() {
    let node = Node::insecure().await;
    node.ask("PUT /a", "", 200).await;
    node.ask(&format!("PUT /a/_doc/{}", "%C3%A9".repeat(256)), "{}", 201).await;
    node.ask(&format!("PUT /a/_doc/{}", "%C3%A9".repeat(257)), "{}", 400).await;
    let long = "x".repeat(256);
    let answer = node.ask(&format!("PUT /{long}"), "", 400).await;
    assert_eq!(answer["error"]["index"], json!(long));
    node.ask(&format!("PUT /{long}/_doc/1"), "{}", 400).await;
    let many = (0..2000).map(|n| format!("p{n}=1")).collect::<Vec<_>>().join("&");
    node.ask(&format!("GET /?{many}"), "", 400).await;
    node.ask(&format!("GET /?filter_path={}", ["a.b"; 1000].join(",")), "", 400).await;
    node.ask(&format!("GET /_nodes/stats?filter_path={}x", "**.".repeat(500)), "", 400).await;
    for line in [
        "PUT /a/_doc/%FF",
        "GET /%zz",
        "GET /a/_search?q=%FF",
        "GET /a/_search?size=-1",
        "GET /a/_search?size=abc",
        "GET /a/_search?size=99999999999999999999",
        "GET /a/_search?from=9999&size=2",
        "GET /a/_search?scroll=9000d",
        "GET /a/_search?unheard_of=1",
        "GET /a/_doc/1?version=x",
        "PUT /a/_doc/1?refresh=maybe",
        "PUT /b?timeout=1",
    ] {
        let answer = node.ask(line, if line.starts_with("PUT") { "{}" } else { "" }, 400).await;
        assert!(answer["error"]["reason"].is_string(), "{line}: {answer}");
    }
    alive(&node).await;
}

#[tokio::test]
async fn a_cut_bulk_does_nothing() {
    let node = Node::insecure().await;
    let whole = "{\"index\":{\"_index\":\"a\",\"_id\":\"1\"}}\n{\"n\":1}\n{\"index\":{\"_index\":\"a\",\"_id\":\"2\"}}\n{\"n\":2}\n";
    let first = whole.find("}\n{\"index").unwrap() + 2;
    for cut in 1..whole.len() {
        if cut == first {
            continue;
        }
        let answer = node.send("POST /_bulk", &[], whole[..cut].to_owned()).await;
        assert_eq!(answer.status, 400, "{cut}: {}", answer.text());
        assert!(answer.json()["error"]["reason"].is_string());
    }
    node.ask("HEAD /a", "", 404).await;
    assert_eq!(node.ask("POST /_bulk", whole, 200).await["errors"], false);
}

#[tokio::test]
async fn many_bulks_at_once_are_all_kept() {
    let node = std::sync::Arc::new(Node::insecure().await);
    let writers = (0..100).map(|writer| {
        let node = node.clone();
        tokio::spawn(async move {
            let lines: String = (0..20)
                .map(|n| {
                    format!("{{\"index\":{{\"_id\":\"{writer}-{n}\"}}}}\n{{\"f{}\":{n}}}\n", writer % 10)
                })
                .collect();
            let answer = node.ask("POST /a/_bulk", &lines, 200).await;
            assert_eq!(answer["errors"], false, "{answer}");
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    node.ask("POST /a/_refresh", "", 200).await;
    assert_eq!(node.ask("GET /a/_count", "", 200).await["count"], 2000);
}

#[tokio::test]
async fn the_tokens_of_an_analysis_are_bounded_by_their_bytes() {
    let node = Node::insecure().await;
    let text = "directory/".repeat(3000);
    let body = json!({ "tokenizer": "path_hierarchy", "text": text }).to_string();
    let answer = node.ask("POST /_analyze", &body, 400).await;
    let reason = answer["error"]["reason"].as_str().unwrap();
    assert!(reason.contains("analyze less of it at a time"), "{reason}");
    let few = json!({ "tokenizer": "path_hierarchy", "text": "a/b/c" }).to_string();
    assert_eq!(node.ask("POST /_analyze", &few, 200).await["tokens"].as_array().unwrap().len(), 3);
}
