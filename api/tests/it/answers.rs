//! Bytes of answers: how many there may be that nobody has read yet, and long ones in other forms.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use millrace_api::{DataApi, HttpConfig, Service};
use serde_json::{Value, json};

use crate::support::Node;

/// Bytes of a document.
const DOCUMENT: usize = 300 << 10;

async fn node() -> Node {
    let node = Node::insecure().await;
    let source = json!({ "a": "x".repeat(DOCUMENT), "big": 1, "t_in_millis": 61_000 }).to_string();
    // A number that takes more than 64 bits.
    let source = source.replace("\"big\":1", "\"big\":123456789012345678901234567890");
    node.ask("PUT /docs", r#"{"mappings":{"dynamic":false}}"#, 200).await;
    node.ask("PUT /docs/_doc/1?refresh=true", &source, 201).await;
    node
}

#[tokio::test]
async fn answers_that_nobody_reads_are_bounded() {
    let node = node().await;
    let config = HttpConfig { max_answer_bytes: 1 << 20, ..HttpConfig::default() };
    let service = Service::new(node.api.clone(), &config, Arc::new(DataApi::default()));
    let get = |line: &str, body: &str| {
        let request = http::Request::post(line).header("content-type", "application/json");
        let request = match body {
            "" => http::Request::get(line),
            _ => request,
        };
        service.call(request.body(Full::new(Bytes::from(body.to_owned()))).unwrap())
    };
    let several = r#"{"ids":["1"]}"#;
    let asked = [
        ("/docs/_doc/1", ""),
        ("/docs/_source/1", ""),
        ("/docs/_doc/1?pretty", ""),
        ("/docs/_mget", several),
    ];
    for (line, body) in asked {
        let mut unread = Vec::new();
        let refused = loop {
            let answer = get(line, body).await;
            if answer.status() != 200 {
                break answer;
            }
            unread.push(answer);
            assert!(unread.len() < 10, "{line}: without a bound");
        };
        assert!(!unread.is_empty(), "{line}");
        assert_eq!(refused.status(), 429, "{line}");
        let error: Value =
            serde_json::from_slice(&refused.into_body().collect().await.unwrap().to_bytes()).unwrap();
        assert_eq!(error["error"]["type"], "circuit_breaking_exception");
        let reason = error["error"]["reason"].as_str().unwrap();
        assert!(reason.contains("the limit is [1048576]"), "{reason}");
        // What is read makes room.
        let read = unread.pop().unwrap().into_body().collect().await.unwrap().to_bytes();
        assert!(read.len() > DOCUMENT);
        drop(read);
        assert_eq!(get(line, body).await.status(), 200, "{line}");
    }
    let many = format!(r#"{{"ids":[{}"1"]}}"#, "\"1\",".repeat(20));
    assert_eq!(get("/docs/_mget", &many).await.status(), 413, "it will never fit");
}

#[tokio::test]
async fn long_answers_in_other_forms_keep_numbers() {
    let node = node().await;
    let big = "123456789012345678901234567890";
    for form in [
        "pretty",
        "human",
        "format=yaml",
        "human&format=yaml",
        "human&filter_path=hits",
        "filter_path=**.big&pretty",
    ] {
        for line in ["GET /docs/_doc/1", "GET /docs/_search"] {
            let answer = node.send(&format!("{line}?{form}"), &[], "").await;
            assert_eq!(answer.status, 200);
            let text = answer.text();
            match line.ends_with("_doc/1") && form.contains("hits") {
                true => assert_eq!(text, "{}"),
                false => assert!(text.contains(big), "{line}?{form}"),
            }
            assert!(!text.contains("1m"), "{line}?{form}: documents have no twins");
        }
    }
    let plain = node.send("GET /docs/_search", &[], "").await;
    let zipped = node.send("GET /docs/_search", &[("accept-encoding", "gzip")], "").await;
    assert!(zipped.bytes.len() < 20_000 && zipped.headers["content-encoding"] == "gzip");
    let took = |text: &str| text.split_once(',').unwrap().1.to_owned();
    let mut inflated = String::new();
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&zipped.bytes[..]), &mut inflated)
        .unwrap();
    assert_eq!(took(&inflated), took(plain.text()));
}
