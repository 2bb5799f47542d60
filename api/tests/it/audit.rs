//! What is told of requests, read as an auditor reads it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::Utc;
use serde_json::{Value, json};

use crate::support::Node;

fn basic(name: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{name}:{password}")))
}

async fn ask(node: &Node, who: &str, line: &str, body: Value, status: u16) -> Value {
    let headers = [("authorization", who), ("x-opaque-id", "trace-1")];
    let headers = if who.is_empty() { &headers[1..] } else { &headers[..] };
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let answer = node.send(line, headers, body).await;
    assert_eq!(answer.status, status, "{line}: {}", answer.text());
    if answer.bytes.is_empty() { Value::Null } else { answer.json() }
}

/// Reads the documents with an outcome, as who may.
async fn told(node: &Node, outcome: &str) -> Vec<Value> {
    node.api.audit().flush().await.unwrap();
    // A test may run over midnight.
    let days = [Utc::now() - chrono::TimeDelta::days(1), Utc::now()];
    let days = days.map(|day| format!(".audit-{}", day.format("%Y.%m.%d"))).join(",");
    let reader = basic("auditor", "auditorauditor");
    ask(node, &reader, &format!("POST /{days}/_refresh?ignore_unavailable=true"), Value::Null, 200).await;
    let body = json!({"size": 100, "query": {"term": {"outcome": outcome}}});
    let line = format!("POST /{days}/_search?ignore_unavailable=true");
    let found = ask(node, &reader, &line, body, 200).await;
    let hits = found["hits"]["hits"].as_array().unwrap();
    hits.iter().map(|hit| hit["_source"].clone()).collect()
}

/// Finds the one document in which members have these values.
fn one<'a>(documents: &'a [Value], members: &[(&str, Value)]) -> &'a Value {
    let matches = |document: &&Value| members.iter().all(|(name, value)| document[*name] == *value);
    let found: Vec<&Value> = documents.iter().filter(matches).collect();
    assert_eq!(found.len(), 1, "{members:?} in {documents:#?}");
    found[0]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logins_refusals_and_changes_are_told_without_secrets() {
    let node = Node::secured().await;
    let admin = basic("admin", "secret");
    let role = json!({"cluster": [], "indices": [{
        "names": [".audit-*"], "privileges": ["read", "maintenance"], "allow_restricted_indices": true,
    }]});
    ask(&node, &admin, "PUT /_security/role/auditor", role, 200).await;
    let user = |name: &str, roles: Value| json!({"password": format!("{name}{name}"), "roles": roles});
    let auditor = user("auditor", json!(["auditor"]));
    ask(&node, &admin, "PUT /_security/user/auditor", auditor, 200).await;
    ask(&node, &admin, "PUT /_security/user/ann", user("ann", json!([])), 200).await;
    let ann = basic("ann", "annann");

    for _ in 0..3 {
        ask(&node, &basic("bob", "guessed-word"), "GET /logs/_search?q=hidden-query", Value::Null, 401).await;
    }
    ask(&node, "", "GET /", Value::Null, 401).await;
    let login = |password: &str| json!({"username": "ann", "password": password});
    ask(&node, "", "POST /_service/login", login("guessed-word"), 401).await;
    let token = ask(&node, "", "POST /_service/login", login("annann"), 200).await["token"].clone();
    let token = token.as_str().unwrap();
    ask(&node, &ann, "GET /logs/_search?q=hidden-query", Value::Null, 403).await;
    ask(&node, &format!("Bearer {token}"), "DELETE /_service/login", Value::Null, 200).await;
    let key = ask(&node, &admin, "PUT /_security/api_key", json!({"name": "ci"}), 200).await;
    let secret = key["api_key"].as_str().unwrap();
    let encoded = STANDARD.encode(format!("{}:{secret}", key["id"].as_str().unwrap()));
    let by_key = format!("ApiKey {encoded}");
    ask(&node, &by_key, "PUT /.audit-2026.01.01/_doc/1", json!({"forged": true}), 403).await;
    ask(&node, &admin, "GET /_cluster/health", Value::Null, 200).await;
    ask(&node, &admin, "PUT /_security/user/ann", json!({"password": ""}), 400).await;

    let failed = told(&node, "authentication_failed").await;
    let count: u64 = failed.iter().filter(|d| d["user"] == "bob").map(|d| d["count"].as_u64().unwrap()).sum();
    assert_eq!(count, 3);
    one(&failed, &[("caller", json!("nobody")), ("path", json!("/"))]);
    let login = [("user", json!("ann")), ("route", json!("/_service/login")), ("status", json!(401))];
    one(&failed, &login);
    let logins = told(&node, "authenticated").await;
    one(&logins, &[("user", json!("ann")), ("path", json!("/_service/login"))]);
    assert_eq!(logins.len(), 1, "what is read is not told: {logins:#?}");
    let denied = told(&node, "access_denied").await;
    let search = one(&denied, &[("user", json!("ann"))]);
    for (name, value) in [
        ("action", json!("indices:data/read/search")),
        ("indices", json!("logs")),
        ("method", json!("GET")),
        ("path", json!("/logs/_search")),
        ("address", json!("0.0.0.0")),
        ("listener", json!("data")),
        ("opaque_id", json!("trace-1")),
        ("cluster", json!("millrace")),
        ("node", json!("node-1")),
    ] {
        assert_eq!(search[name], value, "{name}");
    }
    one(&denied, &[("caller", json!("api_key")), ("api_key_name", json!("ci")), ("user", json!("admin"))]);
    let changed = told(&node, "changed").await;
    for path in ["/_security/role/auditor", "/_security/user/ann", "/_security/api_key", "/_service/login"] {
        one(&changed, &[("path", json!(path))]);
    }
    assert!(one(&changed, &[("path", json!("/_security/user/ann"))])["roles"].is_array());
    let all = format!("{failed:?}{logins:?}{denied:?}{changed:?}");
    for hidden in ["guessed-word", "annann", "auditorauditor", "hidden-query", secret, token, "Basic "] {
        assert!(!all.contains(hidden), "{hidden}");
    }
    // Nobody changes it, the administrator neither.
    let day = Utc::now().format("%Y.%m.%d");
    ask(&node, &admin, &format!("DELETE /.audit-{day}"), Value::Null, 403).await;
}
