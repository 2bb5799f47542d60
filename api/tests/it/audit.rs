//! The audit: what was refused and changed can be read, and holds no secret.

use std::time::Duration;

use millrace_storage::Session;
use millrace_storage::metadata::IndicesOptions;
use serde_json::{Value, json};

use crate::support::Node;

/// Waits until the audit has so many documents, and returns them.
async fn audited(node: &Node, least: usize) -> Vec<Value> {
    for _ in 0..200 {
        let session = Session::system(&node.api.engine);
        let options = IndicesOptions { expand_hidden: true, ..IndicesOptions::open_only() };
        let found = session.resolve(".audit-*", &options).unwrap();
        session.refresh(&found).await.unwrap();
        if !found.is_empty() {
            let body = json!({"size": 100, "sort": ["@timestamp"]});
            let answer = node.api.search.search(&session, ".audit-*", Vec::new(), Some(body)).await.unwrap();
            let millrace_query::OutcomeBody::Raw(text) = answer.body else { panic!("no text") };
            let answer: Value = serde_json::from_slice(&text).unwrap();
            let hits = answer["hits"]["hits"].as_array().unwrap();
            if hits.len() >= least {
                return hits.iter().map(|hit| hit["_source"].clone()).collect();
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the audit has no {least} documents");
}

#[tokio::test]
async fn refusals_and_changes_of_security_are_taken_down() {
    let node = Node::secured().await;
    let admin = ("authorization", "Basic YWRtaW46c2VjcmV0");
    let wrong = ("authorization", "Basic YWRtaW46bm90LWl0LWhvbmVzdGx5");
    assert_eq!(node.send("GET /_search?q=private", &[wrong], "").await.status, 401);
    let user = r#"{"password":"very-private","roles":["monitor"]}"#;
    let json = ("content-type", "application/json");
    let made = node.send("PUT /_security/user/ann", &[admin, json], user).await;
    assert_eq!(made.status, 200, "{}", made.text());
    // ann:very-private
    let ann = ("authorization", "Basic YW5uOnZlcnktcHJpdmF0ZQ==");
    assert_eq!(node.send("GET /secret/_search?q=private", &[ann], "").await.status, 403);
    assert_eq!(node.send("GET /_cluster/health", &[ann], "").await.status, 200);
    let events = audited(&node, 3).await;
    assert_eq!(events.len(), 3, "{events:?}");
    let of = |outcome: &str| events.iter().find(|event| event["outcome"] == outcome).unwrap();
    assert_eq!(
        (&of("login_failed")["path"], &of("login_failed")["status"]),
        (&json!("/_search"), &json!(401))
    );
    let changed = of("changed");
    assert_eq!(changed["caller"], json!({"kind": "user", "name": "admin"}));
    assert_eq!((&changed["path"], &changed["method"]), (&json!("/_security/user/ann"), &json!("PUT")));
    assert_eq!(changed["action"], "cluster:admin/opensearch/security/put");
    let refused = of("refused");
    assert_eq!((&refused["caller"]["name"], &refused["roles"]), (&json!("ann"), &json!(["monitor"])));
    assert!(refused["reason"].as_str().unwrap().contains("indices:data/read/search"));
    let text = serde_json::to_string(&events).unwrap();
    for secret in ["private", "honestly", "YW5uO", "c2Vjc"] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
    // The administrator reads it by name, nobody finds it by a wildcard that does not.
    let found = node.send("GET /.audit-*/_count", &[admin], "").await;
    assert_eq!(found.json()["count"], 3, "{}", found.text());
    assert_eq!(node.send("GET /*/_count", &[admin], "").await.json()["count"], 0);
    assert_eq!(node.send("GET /.audit-*/_count", &[ann], "").await.status, 403);
}
