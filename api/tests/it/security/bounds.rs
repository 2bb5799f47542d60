//! Refused requests: an expired certificate, half a change, rights that nobody granted, work for clients that have gone.

use futures::FutureExt;
use futures::future::{Either, select};
use millrace_api::{DataApi, HttpConfig, Service};

use super::*;

/// Longest that anything is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_certificate_that_has_ended_opens_nothing_over_a_connection_that_has_not() {
    let site = Site::start().await;
    site.user("shipper", &["reader"]).await;
    let ask = async |line: &str, not_after_ms: i64, authorization: Option<String>| {
        let certificate = ClientCertificate { not_after_ms, ..certificate("shipper") };
        let (method, uri) = line.split_once(' ').unwrap();
        let mut request = http::Request::builder().method(method).uri(uri).extension(certificate);
        if let Some(authorization) = authorization {
            request = request.header("authorization", authorization);
        }
        let body = json!({ "username": "shipper", "password": "shippershipper" }).to_string();
        let body = if method == "PUT" { Bytes::from(body) } else { Bytes::new() };
        let request = request.header("content-type", "application/json").body(Full::new(body)).unwrap();
        site.node.service.call(request).await.status().as_u16()
    };
    let now_ms = site.node.api.engine.clock().now_ms();
    let (ended, ends) = (now_ms - 1, now_ms + HOUR_MS);
    assert_eq!(ask("GET /_security/_authenticate", ends, None).await, 200);
    assert_eq!(ask("GET /_security/_authenticate", ended, None).await, 401);
    // A new connection would not even come that far, whatever else is shown.
    assert_eq!(ask("GET /_security/_authenticate", ended, Some(basic("admin", "secret"))).await, 401);
    assert_eq!(ask("PUT /_service/login", ends, None).await, 200);
    assert_eq!(ask("PUT /_service/login", ended, None).await, 401);
}

#[tokio::test]
async fn a_patch_of_several_is_made_whole_or_not_at_all() {
    let site = Site::start().await;
    site.user("ann", &["reader"]).await;
    for name in ["a", "b"] {
        site.admin(&format!("PUT /_security/role/{name}"), reads("logs-*"), 200).await;
    }
    let of = async |line: &str| site.admin(line, Value::Null, 200).await;
    let (users, roles) = ("GET /_plugins/_security/api/internalusers", "GET /_plugins/_security/api/roles");
    let mappings = "GET /_plugins/_security/api/rolesmapping";
    let before = [of(users).await, of(roles).await, of(mappings).await];
    for (kind, operations, status) in [
        // New, and without a password.
        (
            "internalusers",
            json!([
                { "op": "replace", "path": "/ann/backend_roles", "value": ["ops"] },
                { "op": "add", "path": "/zoe", "value": {} },
            ]),
            400,
        ),
        (
            "rolesmapping",
            json!([
                { "op": "add", "path": "/a", "value": { "users": ["ann"] } },
                { "op": "add", "path": "/none", "value": { "users": ["ann"] } },
            ]),
            404,
        ),
        (
            "roles",
            json!([
                { "op": "remove", "path": "/a" },
                { "op": "add", "path": "/admin", "value": {} },
            ]),
            403,
        ),
    ] {
        site.admin(&format!("PATCH /_plugins/_security/api/{kind}"), operations, status).await;
        assert_eq!([of(users).await, of(roles).await, of(mappings).await], before, "{kind}");
    }
    let operations = json!([
        { "op": "remove", "path": "/a" },
        { "op": "add", "path": "/c", "value": { "cluster_permissions": ["cluster_monitor"] } },
    ]);
    site.admin("PATCH /_plugins/_security/api/roles", operations, 200).await;
    let after = of(roles).await;
    assert!(after.get("a").is_none() && after.get("b").is_some() && after.get("c").is_some(), "{after}");
}

#[tokio::test]
async fn a_patch_is_right_that_is_so_once_it_is_whole() {
    let site = Site::start().await;
    let line = "/_plugins/_security/api/internalusers";
    let with = |subject: &str| json!({ "attributes": { "certificate_subject": subject } });
    for (name, subject) in [("ann", "CN=1"), ("ben", "CN=2")] {
        site.admin(&format!("PUT {line}/{name}"), with(subject), 201).await;
    }
    let subject = |name: &str, subject: &str| {
        let path = format!("/{name}/attributes/certificate_subject");
        json!({ "op": "replace", "path": path, "value": subject })
    };
    let renamed =
        json!([{ "op": "add", "path": "/adam", "value": with("CN=1") }, { "op": "remove", "path": "/ben" }]);
    for (operations, status) in [
        // They change places, one gets another name, one has what the other keeps.
        (json!([subject("ann", "CN=2"), subject("ben", "CN=1")]), 200),
        (renamed, 200),
        (json!([subject("adam", "CN=2"), subject("ann", "CN=2")]), 409),
    ] {
        site.admin(&format!("PATCH {line}"), operations, status).await;
    }
    let users = site.admin(&format!("GET {line}"), Value::Null, 200).await;
    assert!(users.get("ben").is_none(), "{users}");
    for (name, subject) in [("ann", "CN=2"), ("adam", "CN=1")] {
        assert_eq!(users[name]["attributes"]["certificate_subject"], subject);
    }
}

#[tokio::test]
async fn opensearchs_form_never_brings_a_role_to_system_indices() {
    let site = Site::start().await;
    let ours = json!({ "indices": [
        { "names": [".audit-*"], "privileges": ["read"], "allow_restricted_indices": true },
        { "names": ["logs"], "privileges": ["read"] },
    ] });
    let reaches = async || {
        let role = site.admin("GET /_security/role/auditor", Value::Null, 200).await;
        let grants = role["auditor"]["indices"].as_array().unwrap().clone();
        grants.iter().map(|grant| grant["allow_restricted_indices"] == true).collect::<Vec<_>>()
    };
    let line = "/_plugins/_security/api/roles/auditor";
    for (privileges, expected) in [(json!(["read"]), true), (json!(["read", "write"]), false)] {
        site.admin("PUT /_security/role/auditor", ours.clone(), 200).await;
        let patch = json!([{ "op": "replace", "path": "/description", "value": "another" }]);
        site.admin(&format!("PATCH {line}"), patch, 200).await;
        assert_eq!(reaches().await, [true, false]);
        let theirs = json!({ "index_permissions": [
            { "index_patterns": [".audit-*"], "allowed_actions": privileges },
            { "index_patterns": ["logs"], "allowed_actions": ["read"] },
        ] });
        site.admin(&format!("PUT {line}"), theirs, 200).await;
        assert_eq!(reaches().await, [expected, false], "{privileges}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_that_is_not_hashed_yet_is_not_set_for_a_client_that_has_gone() {
    let site = Site::start().await;
    site.user("ann", &["reader"]).await;
    let line = |name: &str| format!("POST /_security/user/{name}/_password");
    let mut others = Vec::new();
    for number in 0..10 {
        let name = format!("user-{number}");
        site.user(&name, &[]).await;
        others.push(name);
    }
    let admin = [("authorization", basic("admin", "secret"))];
    let admin: Vec<_> = admin.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let body = json!({ "password": "another" }).to_string();
    let others: Vec<_> = others.iter().map(|name| line(name)).collect();
    let hashed = others.iter().map(|line| site.node.send(line, &admin, body.clone()));
    let mut hashed = Box::pin(futures::future::join_all(hashed));
    assert!(hashed.as_mut().now_or_never().is_none(), "they wait for their hashes");
    let ann = line("ann");
    let mut gone = Box::pin(site.node.send(&ann, &admin, body.clone()));
    assert!(gone.as_mut().now_or_never().is_none());
    drop(gone);
    for answer in hashed.await {
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    // Whatever was before it has been hashed by then.
    site.user("last", &[]).await;
    site.ask(&basic("ann", "annann"), "GET /_security/_authenticate", Value::Null, 200).await;
    site.ask(&basic("ann", "another"), "GET /_security/_authenticate", Value::Null, 401).await;
}

#[tokio::test]
async fn requests_of_clients_that_have_gone_are_bounded_however_small_they_are() {
    let site = Site::start().await;
    let ann = site.user("ann", &["reader"]).await;
    site.ask(&ann, "GET /_security/_authenticate", Value::Null, 200).await;
    // Room for a mebibyte and a little more.
    let config = HttpConfig { max_content_length: 1 << 10, max_in_flight_bytes: 0, ..HttpConfig::default() };
    let service = Service::new(site.node.api.clone(), &config, Arc::new(DataApi::default()));
    let ask = || {
        let body = json!({ "password": "another" }).to_string();
        let request = http::Request::post("/_security/user/_password").header("authorization", &ann);
        let request = request.header("content-type", "application/json");
        service.call(request.body(Full::new(Bytes::from(body))).unwrap())
    };
    // Nothing that was begun gets on while this does not wait.
    let mut begun = 0;
    let refused = loop {
        match Box::pin(ask()).as_mut().now_or_never() {
            None => begun += 1,
            Some(answer) => break answer.status().as_u16(),
        }
        assert!(begun < 1_000, "without a bound");
    };
    assert_eq!(refused, 429);
    assert!(begun > 50, "{begun}");
    // They end without having changed anything, and leave their room.
    while Box::pin(ask()).as_mut().now_or_never().is_some() {
        tokio::task::yield_now().await;
    }
    site.ask(&ann, "GET /_security/_authenticate", Value::Null, 200).await;
}

/// Counts the documents of `logs-1`.
async fn left(site: &Site) -> u64 {
    site.admin("POST /logs-1/_refresh", Value::Null, 200).await;
    site.admin("GET /logs-1/_count", Value::Null, 200).await["count"].as_u64().unwrap()
}

/// Has three documents deleted, slowly. Once the first of them is gone something happens: returns what refuses the rest, with a status.
async fn interrupted(
    site: &Site,
    authorization: &str,
    status: u16,
    happens: impl Future<Output = ()>,
) -> String {
    for id in 1..=3 {
        site.admin(&format!("PUT /logs-1/_doc/{id}?refresh=true"), json!({ "n": id }), 201).await;
    }
    let line = "POST /logs-1/_delete_by_query?requests_per_second=0.001&scroll_size=1";
    let deletion = site.ask(authorization, line, json!({ "query": { "match_all": {} } }), status);
    let change = async {
        while left(site).await == 3 {
            tokio::task::yield_now().await;
        }
        happens.await;
    };
    let both = async { futures::join!(deletion, change) };
    let (answer, ()) = tokio::time::timeout(PATIENCE, both).await.unwrap();
    answer["error"]["reason"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_throttled_deletion_ends_with_the_rights_of_its_sender() {
    let site = Site::start().await;
    let deletes = json!({ "index": [{ "names": ["logs-*"], "privileges": ["read", "delete"] }] });
    let body = json!({ "name": "cleaner", "role_descriptors": { "all": deletes } });
    let (made, header) = key(&site, &basic("admin", "secret"), body).await;
    let revoked = async {
        site.admin("DELETE /_security/api_key", json!({ "ids": [made["id"]] }), 200).await;
    };
    let reason = interrupted(&site, &header, 403, revoked).await;
    assert_eq!(left(&site).await, 2);
    assert!(reason.contains("delete/byquery") && reason.contains("not good any more"), "{reason}");
}

#[tokio::test]
async fn a_throttled_deletion_ends_where_its_sender_reads_otherwise() {
    let site = Site::start().await;
    let role = async |fields: Value| {
        let mut grant = json!({ "names": ["logs-*"], "privileges": ["read", "delete"] });
        grant["field_security"] = fields;
        site.admin("PUT /_security/role/cleaner", json!({ "indices": [grant] }), 200).await;
    };
    role(json!({ "grant": ["*"], "except": ["secret"] })).await;
    let ann = site.user("ann", &["cleaner"]).await;
    let hidden = role(json!({ "grant": ["*"], "except": ["secret", "n"] }));
    let reason = interrupted(&site, &ann, 403, hidden).await;
    assert_eq!(left(&site).await, 2);
    assert!(reason.contains("data/read/search") && reason.contains("roles have changed"), "{reason}");
}

#[tokio::test]
async fn a_throttled_deletion_ends_with_its_index_and_spares_one_that_is_called_alike() {
    let site = Site::start().await;
    let anew = async {
        site.admin("DELETE /logs-1", Value::Null, 200).await;
        // The same once more: under the same sequence numbers.
        for id in 1..=3 {
            site.admin(&format!("PUT /logs-1/_doc/{id}?refresh=true"), json!({ "n": id }), 201).await;
        }
    };
    let reason = interrupted(&site, &basic("admin", "secret"), 404, anew).await;
    assert_eq!((left(&site).await, reason.as_str()), (3, "no such index [logs-1]"));
}

#[tokio::test]
async fn throttled_deletions_hold_no_bodies_and_are_bounded_for_each_user() {
    let site = Site::start().await;
    let (admin, bob) = (basic("admin", "secret"), site.user("bob", &["admin"]).await);
    for id in 0..20 {
        site.admin(&format!("PUT /logs/_doc/{id}"), json!({ "n": id }), 201).await;
    }
    site.admin("POST /logs/_refresh", Value::Null, 200).await;
    // Room for the bodies of three.
    let config = HttpConfig { max_content_length: 1 << 20, max_in_flight_bytes: 0, ..HttpConfig::default() };
    let service = Service::new(site.node.api.clone(), &config, Arc::new(DataApi::default()));
    let line = "/logs/_delete_by_query?requests_per_second=0.001&scroll_size=1";
    let two =
        |number: u64| json!({ "query": { "range": { "n": { "gte": 2 * number, "lt": 2 * number + 2 } } } });
    let count = async || {
        site.admin("POST /logs/_refresh", Value::Null, 200).await;
        site.admin("GET /logs/_count", Value::Null, 200).await["count"].as_u64().unwrap()
    };
    // Each goes on with its second document when nobody waits any more.
    let begin = async |authorization: &str, number: u64| {
        let body = Bytes::from(format!("{}{}", two(number), " ".repeat(900 << 10)));
        let request = http::Request::post(line).header("authorization", authorization);
        let request = request.header("content-type", "application/json").body(Full::new(body)).unwrap();
        let deletion = Box::pin(service.call(request));
        let first = async {
            while count().await > 19 - number {
                tokio::task::yield_now().await;
            }
        };
        let begun = tokio::time::timeout(PATIENCE, select(deletion, Box::pin(first))).await;
        if let Either::Left((answer, _)) = begun.expect("the first document is deleted") {
            panic!("{number}: {}", answer.status());
        }
    };
    for number in 0..8 {
        begin(&admin, number).await;
    }
    let (_, by_key) = key(&site, &admin, json!({ "name": "cleaner" })).await;
    for authorization in [&admin, &by_key] {
        let refused = site.ask(authorization, &format!("POST {line}"), two(8), 429).await;
        let reason = refused["error"]["reason"].as_str().unwrap();
        assert!(reason.contains("too many throttled deletions are running: [8]"), "{reason}");
    }
    begin(&bob, 8).await;
    // Those that take no longer than they have to are not counted.
    let done = site.ask(&admin, "POST /logs/_delete_by_query", two(9), 200).await;
    assert_eq!(done["deleted"], 2);
}

#[tokio::test]
async fn a_statement_deletes_where_deletion_by_query_is_granted() {
    let site = Site::start().await;
    let set = json!({ "transient": { "plugins.sql.delete.enabled": true } });
    site.admin("PUT /_plugins/_query/settings", set, 200).await;
    site.admin("PUT /logs-1/_doc/1?refresh=true", json!({ "n": 1 }), 201).await;
    let statement = json!({ "query": "DELETE FROM logs-1 WHERE n = 1" });
    for (write, status) in [("indices:data/write/delete", 403), ("delete", 200)] {
        let grant = json!({ "index": [{ "names": ["logs-*"], "privileges": ["read", write] }] });
        let body = json!({ "name": "cleaner", "role_descriptors": { "all": grant } });
        let (_, header) = key(&site, &basic("admin", "secret"), body).await;
        let answer = site.ask(&header, "POST /_plugins/_sql", statement.clone(), status).await;
        match status {
            403 => assert!(answer.to_string().contains("indices:data/write/delete/byquery"), "{answer}"),
            _ => assert_eq!(answer["datarows"], json!([[1]])),
        }
    }
}

#[tokio::test]
async fn a_key_has_so_many_grants_and_patterns() {
    let site = Site::start().await;
    let make = async |grants: usize, patterns: usize, status: u16| {
        let grant = json!({ "names": vec!["*"; patterns], "privileges": ["read"] });
        let body = json!({ "name": "k", "role_descriptors": { "all": { "index": vec![grant; grants] } } });
        site.admin("POST /_security/api_key", body, status).await
    };
    for (grants, patterns) in [(201, 1), (2, 501)] {
        let refused = make(grants, patterns, 400).await;
        let reason = refused["error"]["reason"].as_str().unwrap();
        assert!(reason.contains("of an API key"), "{reason}");
    }
    make(200, 5, 200).await;
}

#[tokio::test]
async fn patterns_of_names_of_keys_are_bounded() {
    let site = Site::start().await;
    let pattern = "*a".repeat(9);
    let query = json!({ "query": { "wildcard": { "name": pattern } } });
    for (line, body) in [
        (format!("GET /_security/api_key?name={pattern}"), Value::Null),
        ("POST /_security/_query/api_key".to_owned(), query),
        ("DELETE /_security/api_key".to_owned(), json!({ "name": pattern })),
    ] {
        let refused = site.admin(&line, body, 400).await;
        let reason = refused["error"]["reason"].as_str().unwrap();
        assert!(reason.contains("wildcards in a pattern of names of API keys"), "{line}: {reason}");
    }
}

#[tokio::test]
async fn what_several_roles_grant_is_listed_once() {
    let site = Site::start().await;
    let plain = json!({ "names": ["logs"], "privileges": ["read"] });
    let query = json!({ "names": ["logs"], "privileges": ["read"], "query": r#"{"term":{"n":1}}"# });
    let fields = json!({ "names": ["logs"], "privileges": ["read"], "field_security": { "grant": ["a"] } });
    let application = json!({ "application": "kibana", "privileges": ["read"], "resources": ["*"] });
    for (name, grants) in [("a", json!([plain, query])), ("b", json!([query, plain, fields, plain]))] {
        let body = json!({ "cluster": ["monitor"], "indices": grants, "applications": [application] });
        site.admin(&format!("PUT /_security/role/{name}"), body, 200).await;
    }
    let ann = site.user("ann", &["a", "b"]).await;
    let granted = site.ask(&ann, "GET /_security/user/_privileges", Value::Null, 200).await;
    let entry = |further: Value| {
        let mut entry =
            json!({ "names": ["logs"], "privileges": ["read"], "allow_restricted_indices": false });
        entry.as_object_mut().unwrap().extend(further.as_object().unwrap().clone());
        entry
    };
    let expected = json!({
        "cluster": ["monitor"],
        "global": [],
        "indices": [
            entry(json!({})),
            entry(json!({ "query": [r#"{"term":{"n":1}}"#] })),
            entry(json!({ "field_security": [{ "grant": ["a"], "except": [] }] })),
        ],
        "applications": [application, application],
        "run_as": [],
    });
    assert_eq!(granted, expected);
}

#[tokio::test]
async fn pages_of_another_host_change_nothing_whatever_a_browser_adds() {
    let site = Site::start().await;
    site.user("ann", &[]).await;
    let set = json!({ "transient": { "plugins.sql.delete.enabled": true } });
    site.admin("PUT /_plugins/_query/settings", set, 200).await;
    site.admin("PUT /logs/_doc/1?refresh=true", json!({ "n": 1 }), 201).await;
    let statement = "POST /_plugins/_sql?source_content_type=application/json&source=%7B%22query%22:%22DELETE%20FROM%20logs%22%7D";
    let disable = "POST /_security/user/ann/_disable";
    let admin = basic("admin", "secret");
    let send = async |line: &str, more: &[(&str, &str)]| {
        let mut headers = vec![("authorization", admin.as_str()), ("host", "logs.example:9200")];
        headers.extend(more);
        site.node.send(line, &headers, "").await.status
    };
    let extension = "chrome-extension://hkedbapjpblbodpgbajblpnlpenaebaa";
    for (name, value) in [
        ("origin", "https://evil.example"),
        ("origin", "null"),
        ("origin", extension),
        ("sec-fetch-site", "cross-site"),
    ] {
        for line in [statement, disable, "DELETE /logs", "GET /_flush", "GET /logs/_refresh"] {
            assert_eq!(send(line, &[(name, value)]).await, 403, "{line} {name} {value}");
        }
        assert_eq!(send("GET /logs/_doc/1", &[(name, value)]).await, 200, "{name} {value}");
    }
    site.ask(&basic("ann", "annann"), "GET /_security/_authenticate", Value::Null, 200).await;
    // Pages of its own, and what is no browser.
    let own = [("origin", "https://logs.example:9200"), ("sec-fetch-site", "same-origin")];
    assert_eq!(send(statement, &own).await, 200);
    assert_eq!(send("GET /logs/_doc/1", &[]).await, 404);
    for line in [disable, "GET /_flush", "GET /logs/_refresh"] {
        assert_eq!(send(line, &[]).await, 200, "{line}");
        assert_eq!(send(line, &own).await, 200, "{line}");
    }
    site.ask(&basic("ann", "annann"), "GET /_security/_authenticate", Value::Null, 401).await;
    // No browser adds a key or a token by itself.
    let key = site.admin("POST /_security/api_key", json!({ "name": "k" }), 200).await;
    let key = format!("ApiKey {}", key["encoded"].as_str().unwrap());
    let token = site.login("admin", "secret").await;
    let bearer = format!("Bearer {token}");
    for shown in
        [("authorization", key.as_str()), ("authorization", bearer.as_str()), ("token", token.as_str())]
    {
        for origin in ["https://evil.example", extension] {
            let headers = [shown, ("host", "logs.example:9200"), ("origin", origin)];
            let answer = site.node.send("POST /logs/_search", &headers, "").await;
            assert_eq!(answer.status, 200, "{}: {}", shown.0, answer.text());
        }
    }
    // A browser that asks whether a page of elsewhere may send one is not told that it may.
    let asks = [("origin", "https://evil.example"), ("access-control-request-headers", "authorization")];
    let answer = site.node.send("OPTIONS /logs/_search", &asks, "").await;
    let allows = answer.headers.keys().any(|name| name.as_str().starts_with("access-control-"));
    assert_eq!((answer.status, allows), (401, false));
}
