//! Audit events, read as an auditor reads them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use chrono::Utc;
use futures::{StreamExt, stream};
use http_body::Frame;
use http_body_util::StreamBody;
use millrace_accounts::{CERTIFICATE_SUBJECT, Edit, User};
use millrace_listen::ClientCertificate;
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

/// Starts a node with a user `auditor` who reads the audit.
async fn audited() -> Node {
    let node = Node::secured().await;
    let role = json!({"cluster": [], "indices": [{
        "names": [".audit-*"], "privileges": ["read", "maintenance"], "allow_restricted_indices": true,
    }]});
    ask(&node, &basic("admin", "secret"), "PUT /_security/role/auditor", role, 200).await;
    user(&node, "auditor", &["auditor"]).await;
    node
}

/// Makes a user with the password of its name twice.
async fn user(node: &Node, name: &str, roles: &[&str]) -> String {
    let password = format!("{name}{name}");
    let body = json!({"password": password, "roles": roles});
    ask(node, &basic("admin", "secret"), &format!("PUT /_security/user/{name}"), body, 200).await;
    basic(name, &password)
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
    let node = audited().await;
    let admin = basic("admin", "secret");
    let ann = user(&node, "ann", &[]).await;

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
    // That changes nothing.
    ask(&node, &admin, "DELETE /_security/api_key", json!({"name": "none"}), 200).await;
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
    ask(&node, &admin, "DELETE /_security/api_key", json!({"name": "ci"}), 200).await;
    let revocation = [("path", json!("/_security/api_key")), ("method", json!("DELETE"))];
    one(&told(&node, "changed").await, &revocation);
    // Nobody changes it, the administrator neither.
    let day = Utc::now().format("%Y.%m.%d");
    ask(&node, &admin, &format!("DELETE /.audit-{day}"), Value::Null, 403).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_refused_of_a_request_of_many_is_told_in_one_document() {
    let node = audited().await;
    let admin = basic("admin", "secret");
    let writer = json!({"indices": [{"names": ["mine-*"], "privileges": ["read", "write", "create_index"]}]});
    ask(&node, &admin, "PUT /_security/role/writer", writer, 200).await;
    let ann = user(&node, "ann", &["writer"]).await;
    let send = async |line: &str, lines: &[Value]| {
        let body: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let headers = [("authorization", ann.as_str()), ("content-type", "application/x-ndjson")];
        let answer = node.send(line, &headers, body).await;
        assert_eq!(answer.status, 200, "{line}: {}", answer.text());
        answer.json()
    };
    let mut items = vec![json!({"index": {"_index": "mine-1", "_id": "1"}}), json!({"n": 1})];
    for number in 0..60 {
        items.push(json!({"index": {"_index": format!("foreign-{}", number % 30)}}));
        items.push(json!({"n": 1}));
    }
    let done = send("POST /_bulk", &items).await;
    assert_eq!(done["items"][0]["index"]["status"], 201, "{done}");
    assert_eq!(done["items"][1]["index"]["status"], 403);
    let docs = json!({"docs": [{"_index": "mine-1", "_id": "1"}, {"_index": "foreign-1", "_id": "1"}]});
    let got = ask(&node, &ann, "POST /_mget", docs, 200).await;
    assert_eq!(got["docs"][0]["found"], true, "{got}");
    let searches = [json!({"index": "mine-1"}), json!({}), json!({"index": "foreign-2"}), json!({})];
    let found = send("POST /_msearch", &searches).await;
    assert_eq!(found["responses"][1]["status"], 403, "{found}");
    // Nothing is refused of this one.
    send("POST /_bulk", &items[..2]).await;

    let denied = told(&node, "access_denied").await;
    assert_eq!(denied.len(), 3, "{denied:#?}");
    let told = |path: &str| one(&denied, &[("path", json!(path)), ("user", json!("ann"))]);
    let bulk = told("/_bulk");
    let refused = bulk["refused"].as_array().unwrap();
    assert_eq!((refused.len(), &bulk["more_refused"], &bulk["status"]), (20, &json!(20), &json!(200)));
    assert_eq!((&refused[0]["index"], &refused[0]["count"]), (&json!("foreign-0"), &json!(2)));
    assert!(refused[0]["action"].as_str().unwrap().starts_with("indices:data/write/"), "{bulk}");
    let get = json!([{"action": "indices:data/read/get", "index": "foreign-1", "count": 1}]);
    assert_eq!(told("/_mget")["refused"], get);
    let search = json!([{"action": "indices:data/read/search", "index": "foreign-2", "count": 1}]);
    assert_eq!(told("/_msearch")["refused"], search);

    let stats = ask(&node, &admin, "GET /_nodes/stats/breaker", Value::Null, 200).await;
    let node = stats["nodes"].as_object().unwrap().values().next().unwrap();
    let audit = &node["breakers"]["audit"];
    assert_eq!((&audit["limit_size_in_bytes"], &audit["tripped"]), (&json!(8 << 20), &json!(0)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocks_of_indices_are_not_told_as_refusals_of_rights() {
    let node = audited().await;
    let admin = basic("admin", "secret");
    // Holds of the server's own indices are set here alone.
    let settings =
        json!({"persistent": {"plugins.sql.delete.enabled": true, "retention.hold": "alert,.audit-*"}});
    ask(&node, &admin, "PUT /_cluster/settings", settings, 200).await;
    ask(&node, &admin, "PUT /logs/_doc/1?refresh=true", json!({"n": 1}), 201).await;
    ask(&node, &admin, "PUT /logs/_settings", json!({"index.blocks.write": true}), 200).await;
    let (all, delete) = (json!({"query": {"match_all": {}}}), json!({"query": "DELETE FROM logs"}));
    ask(&node, &admin, "PUT /logs/_doc/2", json!({"n": 2}), 403).await;
    ask(&node, &admin, "POST /logs/_delete_by_query", all.clone(), 403).await;
    ask(&node, &admin, "POST /_plugins/_sql", delete.clone(), 403).await;
    let denied = told(&node, "access_denied").await;
    assert!(denied.is_empty(), "{denied:#?}");
    one(&told(&node, "changed").await, &[("path", json!("/_cluster/settings")), ("user", json!("admin"))]);

    let role = json!({"indices": [{"names": ["mine"], "privileges": ["all"]}]});
    ask(&node, &admin, "PUT /_security/role/owner", role, 200).await;
    let ann = user(&node, "ann", &["owner"]).await;
    ask(&node, &ann, "POST /logs/_delete_by_query", all, 403).await;
    ask(&node, &ann, "POST /_plugins/_sql", delete, 403).await;
    ask(&node, &ann, "POST /_sql", json!({"query": "SELECT * FROM logs"}), 403).await;
    let denied = told(&node, "access_denied").await;
    assert_eq!(denied.len(), 3, "{denied:#?}");
    let statement = one(&denied, &[("path", json!("/_sql")), ("user", json!("ann"))]);
    let read = json!([{"action": "indices:data/read/sql", "index": "logs", "count": 1}]);
    assert_eq!((&statement["refused"], &statement["status"]), (&read, &json!(403)));
    one(&denied, &[("path", json!("/logs/_delete_by_query")), ("user", json!("ann"))]);
    let statement = one(&denied, &[("path", json!("/_plugins/_sql")), ("user", json!("ann"))]);
    assert_eq!((&statement["refused"][0]["index"], &statement["status"]), (&json!("logs"), &json!(403)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_many_attempts_are_told_of_logins_and_of_changes() {
    let node = audited().await;
    let ann = user(&node, "ann", &["reader"]).await;
    // Who was right lately is let in whoever guesses.
    for who in [ann.as_str(), &basic("auditor", "auditorauditor")] {
        ask(&node, who, "GET /_security/_authenticate", Value::Null, 200).await;
    }
    // More than are checked of one address.
    let (node, ann) = (&node, ann.as_str());
    let attempt = |number: u32| async move {
        let body = json!({"password": "another", "old_password": format!("guess-{number}")}).to_string();
        let line = "PUT /_service/user/password";
        node.send(line, &[("authorization", ann)], body).await.status
    };
    let statuses = futures::future::join_all((0..48).map(attempt)).await;
    let count = |status: u16| statuses.iter().filter(|known| **known == status).count() as u64;
    assert!(count(429) > 0 && count(403) + count(429) == 48, "{statuses:?}");
    let login = |number: u32| async move {
        let body = json!({"username": "ann", "password": format!("guess-{number}")}).to_string();
        node.send("POST /_service/login", &[], body).await.status
    };
    let logins = futures::future::join_all((48..96).map(login)).await;
    assert!(logins.contains(&429), "{logins:?}");

    let counted = |documents: &[Value], path: &str, status: u16| -> u64 {
        let of = |document: &&Value| {
            document["path"] == path && document["status"] == status && document["user"] == "ann"
        };
        documents.iter().filter(of).map(|document| document["count"].as_u64().unwrap()).sum()
    };
    let denied = told(node, "access_denied").await;
    for status in [403, 429] {
        assert_eq!(counted(&denied, "/_service/user/password", status), count(status), "{denied:#?}");
    }
    let failed = told(node, "authentication_failed").await;
    let refused = logins.iter().filter(|status| **status == 429).count() as u64;
    assert_eq!(counted(&failed, "/_service/login", 429), refused, "{failed:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_page_of_another_host_sends_is_told_with_who_it_says_to_be() {
    let node = audited().await;
    let admin = basic("admin", "secret");
    let headers = [("authorization", admin.as_str()), ("origin", "https://evil.example")];
    assert_eq!(node.send("PUT /logs/_doc/1", &headers, "{}").await.status, 403);
    let denied = told(&node, "access_denied").await;
    one(&denied, &[("path", json!("/logs/_doc/1")), ("caller", json!("user")), ("user", json!("admin"))]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_that_end_while_a_body_is_sent_are_told() {
    let node = audited().await;
    let login = json!({"username": "eve", "password": "eveeve"});
    user(&node, "eve", &["ingest"]).await;
    let token = ask(&node, "", "POST /_service/login", login, 200).await["token"].clone();
    let accounts = node.api.accounts.clone();
    let body = stream::once(async move {
        // It was known who asks before this is read.
        accounts.delete_user("eve").await.unwrap();
        Ok::<_, std::convert::Infallible>(Frame::data(Bytes::from_static(b"{\"n\":1}")))
    });
    let request = http::Request::put("/logs/_doc/1").header("token", token.as_str().unwrap());
    let request = request.header("content-type", "application/json");
    let answer = node.service.call(request.body(StreamBody::new(body.boxed())).unwrap()).await;
    assert_eq!(answer.status().as_u16(), 401);
    let failed = told(&node, "authentication_failed").await;
    let ended = [("user", json!("eve")), ("roles", json!(["ingest"])), ("path", json!("/logs/_doc/1"))];
    assert_eq!(one(&failed, &ended)["action"], "indices:data/write/index");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whose_a_certificate_has_become_while_a_body_is_sent_is_told() {
    let node = audited().await;
    let put = |name: &str, role: &str, subject: &str| {
        let attributes = [(CERTIFICATE_SUBJECT.to_owned(), subject.to_owned())].into();
        let user = User { roles: vec![role.to_owned()], attributes, ..User::default() };
        Edit::PutUser { name: name.to_owned(), user, password: None }
    };
    let accounts = node.api.accounts.clone();
    accounts.edit(vec![put("ann", "ingest", "CN=1"), put("ben", "reader", "CN=2")]).await.unwrap();
    let exchanged = vec![put("ann", "ingest", "CN=2"), put("ben", "reader", "CN=1")];
    let body = stream::once(async move {
        accounts.edit(exchanged).await.unwrap();
        Ok::<_, std::convert::Infallible>(Frame::data(Bytes::from_static(b"{\"n\":1}")))
    });
    let certificate = ClientCertificate { subject: "CN=1".into(), common_name: None, not_after_ms: i64::MAX };
    let request = http::Request::put("/logs/_doc/1").header("content-type", "application/json");
    let request = request.extension(certificate).body(StreamBody::new(body.boxed())).unwrap();
    assert_eq!(node.service.call(request).await.status().as_u16(), 403);
    let denied = told(&node, "access_denied").await;
    one(&denied, &[("user", json!("ben")), ("roles", json!(["reader"])), ("path", json!("/logs/_doc/1"))]);
}
