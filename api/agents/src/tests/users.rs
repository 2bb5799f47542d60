//! Proofs: secrets, certificates, tokens of agents, and users with their rights.

use super::*;

const REGISTER: &str = "POST /register";

fn body(id: &str) -> String {
    json!({ "agent_id": id, "host": "h" }).to_string()
}

fn certificate(not_after_ms: i64) -> ClientCertificate {
    ClientCertificate { subject: "CN=agent".into(), common_name: Some("agent".into()), not_after_ms }
}

#[tokio::test]
async fn enrolment_asks_for_the_secret_or_a_certificate() {
    let config = AgentsConfig { takes_certificates: true, ..AgentsConfig::default() };
    let node = Node::start(config.with_secret("correct horse")).await;
    let from = |certificate, body: String| {
        node.send_from(IpAddr::from([10, 0, 0, 1]), certificate, REGISTER, &[], body)
    };
    let with_secret =
        |id: &str, secret: &str| json!({ "agent_id": id, "host": "h", "secret": secret }).to_string();
    for refused in
        [body("a"), with_secret("a", "wrong"), with_secret("a", ""), with_secret("a", "correct horse ")]
    {
        let answer = from(None, refused.clone()).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{refused}");
        assert!(answer.headers.contains_key("www-authenticate") && !answer.text.contains("correct"));
    }
    assert_eq!(from(Some(certificate(START_MS - 1)), body("a")).await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(from(None, with_secret("a", "correct horse")).await.status, StatusCode::CREATED);
    assert_eq!(from(Some(certificate(START_MS + 1)), body("b")).await.status, StatusCode::CREATED);
    // Without a secret in the configuration, none is good.
    let node = Node::start(AgentsConfig { takes_certificates: true, ..AgentsConfig::default() }).await;
    let answer = node.send(REGISTER, &[], with_secret("a", "correct horse")).await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn an_agent_is_enrolled_again_with_its_token_or_an_administrators_leave() {
    let node = Node::start(AgentsConfig::default().with_secret("correct horse")).await;
    node.user("watcher", &["monitor"]).await;
    node.user("keeper", &["cluster:admin/agents/put"]).await;
    let enrol = async |credentials: Option<&str>, secret: bool| {
        let mut body = json!({ "agent_id": "a", "host": "h" });
        if secret {
            body["secret"] = json!("correct horse");
        }
        let headers: Vec<_> =
            credentials.map(|credentials| ("authorization", credentials)).into_iter().collect();
        node.send(REGISTER, &headers, body.to_string()).await
    };
    let first = enrol(None, true).await.json()["token"].as_str().unwrap().to_owned();
    assert_eq!(enrol(None, true).await.status, StatusCode::CONFLICT);
    let wrong = bearer(&"0".repeat(64));
    assert_eq!(enrol(Some(&wrong), true).await.status, StatusCode::CONFLICT);
    assert_eq!(enrol(Some(&basic("watcher")), true).await.status, StatusCode::FORBIDDEN);
    assert_eq!(
        enrol(Some(&bearer(&first)), false).await.status,
        StatusCode::UNAUTHORIZED,
        "the secret is asked for"
    );
    let answer = enrol(Some(&bearer(&first)), true).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    let second = answer.json()["token"].as_str().unwrap().to_owned();
    assert_ne!(first, second);
    assert_eq!(
        node.keepalive("a", &first, json!({})).await.status,
        StatusCode::UNAUTHORIZED,
        "it was replaced"
    );
    assert_eq!(node.keepalive("a", &second, json!({})).await.status, StatusCode::OK);
    // A user needs no secret, by password or by login.
    assert_eq!(enrol(Some(&basic("keeper")), false).await.status, StatusCode::OK);
    let login =
        node.context.node.accounts.login("keeper", PASSWORD, IpAddr::from([10, 0, 0, 9])).await.unwrap();
    assert_eq!(enrol(Some(&bearer(&login.token)), false).await.status, StatusCode::OK);
    assert_eq!(node.status("a").await, "never_connected");
}

#[tokio::test]
async fn each_route_needs_its_own_right() {
    let node = Node::start(AgentsConfig::default()).await;
    let (token, other) = (node.enrol("a").await, node.enrol("b").await);
    node.user("watcher", &["monitor"]).await;
    node.user("nobody", &["cluster:monitor/main"]).await;
    let (watcher, nobody, own, foreign) = (basic("watcher"), basic("nobody"), bearer(&token), bearer(&other));
    let wrong = format!("Basic {}", STANDARD.encode("watcher:wrong"));
    for (line, credentials, status) in [
        ("GET /agents", None, 401),
        ("GET /agents", Some(&wrong), 401),
        ("GET /agents", Some(&nobody), 403),
        ("GET /agents", Some(&own), 401),
        ("GET /agents", Some(&watcher), 200),
        ("GET /agents/summary/status", Some(&nobody), 403),
        ("GET /agents/summary/status", Some(&watcher), 200),
        ("GET /agents/a", None, 401),
        ("GET /agents/a", Some(&foreign), 401),
        ("GET /agents/a", Some(&nobody), 403),
        ("GET /agents/a", Some(&own), 200),
        ("GET /agents/a", Some(&watcher), 200),
        ("GET /agents/none", Some(&own), 401),
        ("GET /agents/none", Some(&watcher), 404),
        ("POST /agents/a/keepalive", None, 401),
        ("POST /agents/a/keepalive", Some(&foreign), 401),
        ("POST /agents/a/keepalive", Some(&watcher), 401),
        ("POST /agents/a/keepalive", Some(&own), 200),
        ("DELETE /agents/a", None, 401),
        ("DELETE /agents/a", Some(&own), 401),
        ("DELETE /agents/a", Some(&watcher), 403),
        ("DELETE /agents/none", Some(&admin()), 404),
        ("DELETE /agents/a", Some(&admin()), 200),
        ("DELETE /agents/a", Some(&admin()), 404),
    ] {
        let headers: Vec<_> =
            credentials.map(|shown| ("authorization", shown.as_str())).into_iter().collect();
        let answer = node.send(line, &headers, "").await;
        assert_eq!(answer.status.as_u16(), status, "{line} {credentials:?}: {}", answer.text);
    }
}

#[tokio::test]
async fn scripts_log_in_as_they_do_at_wazuh() {
    let node = Node::start(AgentsConfig::default()).await;
    let line = "POST /security/user/authenticate";
    assert_eq!(node.send(line, &[], "").await.status, StatusCode::UNAUTHORIZED);
    let wrong = format!("Basic {}", STANDARD.encode("admin:wrong"));
    assert_eq!(node.send(line, &[("authorization", &wrong)], "").await.status, StatusCode::UNAUTHORIZED);
    let answer = node.send(line, &[("authorization", &admin())], "").await.json();
    let token = answer["data"]["token"].as_str().unwrap().to_owned();
    let raw = node.send(&format!("{line}?raw=true"), &[("authorization", &admin())], "").await;
    assert_eq!(raw.text.len(), 64);
    for token in [token, raw.text] {
        assert_eq!(
            node.send("GET /agents", &[("authorization", &bearer(&token))], "").await.status,
            StatusCode::OK
        );
    }
}

#[tokio::test]
async fn without_credentials_an_agent_is_still_replaced_by_its_token_alone() {
    let node = Node::open(tempfile::tempdir().unwrap(), START_MS, AgentsConfig::default(), true).await;
    let token = node.enrol("a").await;
    let wrong = bearer(&"0".repeat(64));
    for headers in [vec![], vec![("authorization", wrong.as_str())]] {
        assert_eq!(node.send(REGISTER, &headers, body("a")).await.status, StatusCode::CONFLICT);
    }
    assert_eq!(node.send("GET /agents", &[], "").await.status, StatusCode::OK);
    let own = bearer(&token);
    assert_eq!(node.send(REGISTER, &[("authorization", &own)], body("a")).await.status, StatusCode::OK);
}
