//! Hostile input: malformed and oversized bodies, hostile ids, wrong methods, floods, pages of other hosts.

use super::*;

#[tokio::test]
async fn malformed_bodies_are_refused_and_change_nothing() {
    let node = Node::start(AgentsConfig::default()).await;
    let long = "x".repeat(300);
    let deep = "[".repeat(10_000);
    for body in [
        String::new(),
        "{".to_owned(),
        "[]".to_owned(),
        "null".to_owned(),
        "\u{0}".to_owned(),
        deep,
        json!({ "agent_id": "a" }).to_string(),
        json!({ "host": "h" }).to_string(),
        json!({ "agent_id": 7, "host": "h" }).to_string(),
        json!({ "agent_id": "a", "host": null }).to_string(),
        json!({ "agent_id": "a", "host": "" }).to_string(),
        json!({ "agent_id": "a", "host": "  " }).to_string(),
        json!({ "agent_id": "a", "host": long }).to_string(),
        json!({ "agent_id": "a", "host": "h\n" }).to_string(),
        json!({ "agent_id": "a", "host": "h", "ip": "999.1.1.1" }).to_string(),
        json!({ "agent_id": "a", "host": "h", "status": "active" }).to_string(),
        json!({ "agent_id": "a", "host": "h", "token_hash": "0" }).to_string(),
        r#"{"agent_id":"a","agent_id":"b","host":"h"}"#.to_owned(),
    ] {
        let answer = node.send("POST /register", &[], body.clone()).await;
        let shown: String = body.chars().take(60).collect();
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{shown}: {}", answer.text);
        let answer = answer.json();
        assert!(answer["message"].as_str().unwrap().len() < 400 && answer["error"] == 400, "{shown}");
    }
    let answer = node.send("POST /register", &[], vec![0xff, 0xfe]).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert!(node.agents.registry.filter(|_| true).is_empty());
}

#[tokio::test]
async fn hostile_ids_are_refused_on_every_route() {
    let node = Node::start(AgentsConfig::default()).await;
    let long = "a".repeat(129);
    for id in ["", ".agents", "-a", "_a", "a b", "a/b", "../a", "a\u{0}", "ä", "a*", "<script>", &long] {
        let body = json!({ "agent_id": id, "host": "h" }).to_string();
        let answer = node.send("POST /register", &[], body).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{id}");
        assert!(!answer.text.contains("script"), "{}", answer.text);
    }
    let admin = admin();
    for (path, status) in [
        ("/agents/%2e%2e%2fa", 400),
        ("/agents/%00", 400),
        ("/agents/%ff", 400),
        ("/agents/%c3%a4", 400),
        ("/agents/.security", 400),
        (format!("/agents/{long}").as_str(), 400),
        ("/agents/", 404),
        ("/agents/a/b/c", 404),
        ("/", 404),
        ("/_search", 404),
    ] {
        for method in ["GET", "DELETE"] {
            let answer = node.send(&format!("{method} {path}"), &[("authorization", &admin)], "").await;
            assert_eq!(answer.status.as_u16(), status, "{method} {path}: {}", answer.text);
        }
    }
    let answer =
        node.send("POST /agents/..%2f..%2fregister/keepalive", &[("authorization", &admin)], "").await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn bodies_and_facts_are_bounded() {
    let node = Node::start(AgentsConfig::default()).await;
    let token = node.enrol("a").await;
    let large = json!({ "agent_id": "b", "host": "h", "name": "x".repeat(20 << 10) }).to_string();
    let answer = node.send("POST /register", &[], large.clone()).await;
    assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE, "{}", answer.text);
    assert_eq!(node.keepalive("a", &token, json!(large)).await.status, StatusCode::PAYLOAD_TOO_LARGE);
    let own = bearer(&token);
    // A body that says it is inflated to a thousand times its size.
    let coding = [("authorization", own.as_str()), ("content-encoding", "br")];
    let answer = node.send("POST /agents/a/keepalive", &coding, "{}").await;
    assert!(answer.status.is_client_error(), "{}", answer.text);
    for facts in [
        json!({ "os": "x".repeat(256) }),
        json!({ "version": "" }),
        json!({ "ip": "localhost" }),
        json!({ "os": { "name": "x" } }),
        json!({ "agent_id": "b" }),
        json!({ "last_keepalive": 1 }),
        json!([]),
    ] {
        let answer = node.keepalive("a", &token, facts.clone()).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{facts}: {}", answer.text);
    }
    assert_eq!(node.status("a").await, "never_connected");
}

#[tokio::test]
async fn wrong_methods_and_pages_of_other_hosts_are_refused() {
    let node = Node::start(AgentsConfig::default()).await;
    node.enrol("a").await;
    let admin = admin();
    for line in [
        "GET /register",
        "PUT /register",
        "POST /agents",
        "PATCH /agents/a",
        "PUT /agents/a/keepalive",
        "GET /agents/a/keepalive",
        "GET /security/user/authenticate",
    ] {
        let answer = node.send(line, &[("authorization", &admin)], "").await;
        assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED, "{line}: {}", answer.text);
        assert!(answer.headers.contains_key("allow"), "{line}");
    }
    let page =
        [("origin", "https://elsewhere.example"), ("host", "millrace.example"), ("authorization", &admin)];
    let body = json!({ "agent_id": "b", "host": "h" }).to_string();
    for (line, body) in [("POST /register", body), ("DELETE /agents/a", String::new())] {
        assert_eq!(node.send(line, &page, body).await.status, StatusCode::FORBIDDEN, "{line}");
    }
    assert_eq!(node.status("a").await, "never_connected");
}

#[tokio::test]
async fn enrolment_is_limited_by_address_and_by_number() {
    let config = AgentsConfig { enrolments_per_minute: 5, max_agents: 3, ..AgentsConfig::default() };
    let node = Node::start(config).await;
    let body = |id: &str| json!({ "agent_id": id, "host": "h" }).to_string();
    let (one, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
    for _ in 0..5 {
        node.send_from(one, None, "POST /register", &[], "x").await;
    }
    let answer = node.send_from(one, None, "POST /register", &[], body("a")).await;
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    let wait: u64 = answer.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=12).contains(&wait), "{wait}");
    for id in ["a", "b", "c"] {
        assert_eq!(
            node.send_from(other, None, "POST /register", &[], body(id)).await.status,
            StatusCode::CREATED
        );
    }
    let answer = node.send_from(other, None, "POST /register", &[], body("d")).await;
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    assert!(answer.text.contains("agents.max"), "{}", answer.text);
}

#[tokio::test]
async fn no_route_serves_strangers_or_takes_long_bodies() {
    let node = Node::start(AgentsConfig::default().with_secret("correct horse")).await;
    node.user("nobody", &["cluster:monitor/main"]).await;
    let (nobody, long) = (basic("nobody"), "x".repeat(32 << 10));
    let body = json!({ "agent_id": "a", "host": "h" }).to_string();
    let unknown = format!("Basic {}", STANDARD.encode("somebody:guess"));
    for (number, route) in (1..).zip(ROUTES) {
        let line = format!("{} {}", route.method, route.path.replace("{agent_id}", "a"));
        let stranger = node.send(&line, &[], body.clone()).await;
        assert_eq!(stranger.status, StatusCode::UNAUTHORIZED, "{line}: {}", stranger.text);
        // Wrong logins of one address are bounded.
        let address = IpAddr::from([10, 0, 1, number]);
        let answer = node.send_from(address, None, &line, &[("authorization", &unknown)], body.clone()).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{line}: {}", answer.text);
        let without_right = match route.path {
            "/security/user/authenticate" => StatusCode::OK,
            // No user sends the keep-alives of an agent.
            path if path.ends_with("/keepalive") => StatusCode::UNAUTHORIZED,
            _ => StatusCode::FORBIDDEN,
        };
        let answer = node.send(&line, &[("authorization", &nobody)], body.clone()).await;
        assert_eq!(answer.status, without_right, "{line}: {}", answer.text);
        for credentials in ["", "Basic", "Basic %%%", "Bearer ", "Digest x"] {
            let answer = node.send(&line, &[("authorization", credentials)], long.clone()).await;
            assert!(answer.status.is_client_error(), "{line} {credentials:?}: {}", answer.status);
        }
    }
    assert!(node.agents.registry.filter(|_| true).is_empty());
}
