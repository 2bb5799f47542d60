//! Tests that hold for every request of any route.

use std::io::Write;

use base64::Engine as _;
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::support::Node;

#[tokio::test]
async fn the_root_says_who_answers() {
    let node = Node::insecure().await;
    let answer = node.send("GET /", &[], "").await;
    assert_eq!(answer.headers["x-elastic-product"], "Elasticsearch");
    assert_eq!(answer.headers["content-type"], "application/json; charset=UTF-8");
    let body = answer.json();
    assert_eq!(body["version"]["number"], "7.10.2");
    assert_eq!(body["version"]["distribution"], "opensearch");
    assert_eq!(body["tagline"], "You Know, for Search");
    let head = node.send("HEAD /", &[], "").await;
    assert_eq!((head.status, head.bytes.len()), (200, 0));
}

#[tokio::test]
async fn unknown_paths_methods_and_parameters_are_named() {
    let node = Node::insecure().await;
    let body = node.ask("GET /_nope/x?y=1", "", 400).await;
    assert_eq!(body["error"], "no handler found for uri [/_nope/x?y=1] and method [GET]");
    let answer = node.send("DELETE /_bulk", &[], "").await;
    assert_eq!(answer.status, 405);
    assert_eq!(answer.headers["allow"], "POST,PUT");
    assert_eq!(
        answer.json()["error"],
        "Incorrect HTTP method for uri [/_bulk] and method [DELETE], allowed: [POST, PUT]"
    );
    let body = node.ask("PUT /logs/_doc/1?refersh=true", "{}", 400).await;
    assert_eq!(
        body["error"]["reason"],
        "request [/logs/_doc/1] contains unrecognized parameter: [refersh] -> did you mean [refresh]?"
    );
    let options = node.send("OPTIONS /_bulk", &[], "").await;
    assert_eq!(
        (options.status, &options.headers["allow"]),
        (200, &http::HeaderValue::from_static("POST,PUT"))
    );
}

#[tokio::test]
async fn forms_of_the_answer() {
    let node = Node::insecure().await;
    let answer = node.send("GET /?filter_path=version.number&pretty", &[], "").await;
    assert_eq!(answer.text(), "{\n  \"version\" : {\n    \"number\" : \"7.10.2\"\n  }\n}\n");
    let answer = node.send("GET /?format=yaml&filter_path=tagline", &[], "").await;
    assert_eq!(answer.headers["content-type"], "application/yaml");
    assert_eq!(answer.text(), "---\ntagline: \"You Know, for Search\"\n");
    let vendor = "application/vnd.elasticsearch+json; compatible-with=8";
    let answer = node.send("GET /", &[("accept", vendor), ("x-opaque-id", "q1")], "").await;
    assert_eq!(answer.headers["content-type"], "application/vnd.elasticsearch+json;compatible-with=8");
    assert_eq!(answer.headers["x-opaque-id"], "q1");
}

#[tokio::test]
async fn bodies_are_bounded_and_typed() {
    let node = Node::insecure().await;
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let answer = node.send("POST /_bulk", &form, "{}").await;
    assert_eq!(answer.status, 406);
    assert_eq!(
        answer.json()["error"],
        "Content-Type header [application/x-www-form-urlencoded] is not supported"
    );
    let answer = node.send("POST /_bulk", &[], vec![b' '; 2 << 20]).await;
    assert_eq!(answer.status, 413);
    assert_eq!(answer.json()["error"]["type"], "content_too_long_exception");
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&vec![b' '; 2 << 20]).unwrap();
    let answer = node.send("POST /_bulk", &[("content-encoding", "gzip")], encoder.finish().unwrap()).await;
    assert_eq!(answer.status, 413);
    let body = node.ask("POST /_mget", "{\"ids\": [", 400).await;
    assert_eq!(body["error"]["type"], "json_e_o_f_exception");
}

#[tokio::test]
async fn everything_but_the_probe_needs_credentials() {
    let node = Node::secured().await;
    for probe in ["live", "ready"] {
        let answer = node.send(&format!("GET /_health/{probe}"), &[], "").await;
        assert_eq!((answer.status, answer.text()), (200, &*format!("{{\"status\":\"{probe}\"}}")));
    }
    assert_eq!(node.send("GET /_health/other", &[], "").await.status, 401);
    let answer = node.send("POST /_bulk", &[], vec![b' '; 64 << 10]).await;
    assert_eq!(answer.status, 401);
    for line in ["GET /", "POST /_bulk", "GET /_nope", "HEAD /"] {
        let answer = node.send(line, &[], "").await;
        assert_eq!(answer.status, 401, "{line}");
        let challenges: Vec<_> = answer.headers.get_all("www-authenticate").iter().collect();
        assert_eq!(
            challenges,
            ["Basic realm=\"security\", charset=\"UTF-8\"", "Bearer realm=\"security\"", "ApiKey"]
        );
    }
    let basic = |pair: &str| format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(pair));
    assert_eq!(node.send("GET /", &[("authorization", &basic("admin:secret"))], "").await.status, 200);
    let answer = node.send("GET /", &[("authorization", &basic("admin:wrong"))], "").await;
    assert_eq!(answer.json()["error"]["type"], "security_exception");
}
