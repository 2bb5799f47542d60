//! The stored agents: restarts, gathered keep-alives, changes of status.

use millrace_engine::{Session, SystemDocument};

use super::*;
use crate::agent::{Agent, HostFacts};
use crate::document::StatusChange;

impl Node {
    /// Returns the documents of an index.
    async fn documents(&self, index: &str) -> Vec<Value> {
        let session = Session::system(&self.engine);
        let Ok(running) = self.engine.index(index) else { return Vec::new() };
        session.refresh(&[running]).await.unwrap();
        let search = SearchService::new(Arc::clone(&self.engine), millrace_query::Config::default());
        let body = json!({ "size": 1_000, "query": { "match_all": {} } });
        let answer: Value =
            search.read(&session, index, body, millrace_runtime::Priority::Foreground).await.unwrap();
        answer["hits"]["hits"].as_array().unwrap().iter().map(|hit| hit["_source"].clone()).collect()
    }

    /// Returns the changes of status that are noted, with their agents.
    async fn changes(&self) -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let mut changes = self.documents(StatusChange::INDEX).await;
        changes.sort_by_key(|change| change["@timestamp"].as_i64());
        changes.iter().map(|change| (text(&change["agent_id"]), text(&change["status"]))).collect()
    }
}

#[tokio::test]
async fn agents_and_tokens_survive_a_restart_and_only_hashes_are_stored() {
    let node = Node::start(AgentsConfig::default()).await;
    let (kept, gone) = (node.enrol("kept").await, node.enrol("gone").await);
    node.advance(seconds(3));
    node.keepalive("kept", &kept, json!({ "os": "Debian" })).await;
    let deleted = node.send("DELETE /agents/gone", &[("authorization", &admin())], "").await;
    assert_eq!(deleted.status, StatusCode::OK, "{}", deleted.text);
    let node = node.restart(seconds(30), AgentsConfig::default()).await;
    assert_eq!(node.status("kept").await, "active");
    let record = node.send("GET /agents/kept", &[("authorization", &bearer(&kept))], "").await.json();
    assert_eq!(
        (&record["os"], &record["last_keepalive"]),
        (&json!("Debian"), &json!("2027-01-15T08:00:03.000Z"))
    );
    assert_eq!(node.keepalive("kept", &kept, json!({})).await.status, StatusCode::OK);
    assert_eq!(node.keepalive("gone", &gone, json!({})).await.status, StatusCode::UNAUTHORIZED);
    let missing = node.send("GET /agents/gone", &[("authorization", &admin())], "").await;
    assert_eq!(missing.status, StatusCode::NOT_FOUND);
    let stored = node.documents(Agent::INDEX).await;
    assert_eq!(stored.len(), 1);
    let text = serde_json::to_string(&stored).unwrap();
    assert!(text.contains("token_hash") && !text.contains(&kept), "{text}");
}

#[tokio::test]
async fn keepalives_of_many_agents_are_gathered_into_one_write() {
    let node = Node::start(AgentsConfig::default()).await;
    let registry = node.agents.registry.clone();
    // The service's own task would store what is due meanwhile.
    node.agents.stop().await;
    for number in 0..1_000 {
        let enrolment = crate::registry::Enrolment {
            agent_id: format!("agent-{number}"),
            host: "h".to_owned(),
            facts: HostFacts::default(),
            address: IpAddr::from([10, 0, 0, 1]),
            proof: crate::registry::ReplacementProof::Absent,
        };
        registry.enrol(enrolment).await.unwrap();
    }
    let all = || {
        for number in 0..1_000 {
            registry.note_keepalive(&format!("agent-{number}"), HostFacts::default()).unwrap();
        }
    };
    all();
    assert_eq!(registry.flush().await.unwrap(), 1_000, "the first keep-alives");
    let written = node.engine.feed_end().unwrap();
    for _ in 0..2 {
        node.advance(seconds(10));
        all();
        assert_eq!(registry.flush().await.unwrap(), 0, "nothing but times changed, and not for long");
    }
    assert_eq!(node.engine.feed_end().unwrap(), written, "nothing is written for it");
    node.advance(seconds(10));
    all();
    assert_eq!(registry.flush().await.unwrap(), 1_000);
    assert_eq!(node.engine.feed_end().unwrap(), written + 1, "one write has them all");
    let facts = HostFacts { os: Some("other".to_owned()), ..HostFacts::default() };
    registry.note_keepalive("agent-7", facts).unwrap();
    assert_eq!(registry.flush().await.unwrap(), 1, "a fact that changed is stored at once");
}

#[tokio::test]
async fn changes_to_active_and_disconnected_are_noted_once_each() {
    let node = Node::start(AgentsConfig::default()).await;
    let token = node.enrol("a").await;
    node.enrol("silent").await;
    node.agents.stop().await;
    let registry = node.agents.registry.clone();
    node.keepalive("a", &token, json!({})).await;
    registry.flush().await.unwrap();
    node.advance(seconds(120));
    registry.flush().await.unwrap();
    assert_eq!(node.changes().await, [("a".to_owned(), "active".to_owned())], "pending is not noted");
    node.advance(seconds(600));
    registry.flush().await.unwrap();
    registry.flush().await.unwrap();
    let disconnected = [("a".to_owned(), "active".to_owned()), ("a".to_owned(), "disconnected".to_owned())];
    assert_eq!(node.changes().await, disconnected);
    node.advance(seconds(1));
    node.keepalive("a", &token, json!({})).await;
    registry.flush().await.unwrap();
    let changes = node.changes().await;
    assert_eq!((changes.len(), changes[2].1.as_str()), (3, "active"));
    assert_eq!(node.documents(StatusChange::INDEX).await.len(), 3);
}

#[tokio::test]
async fn agents_have_time_to_come_back_after_the_server_was_down() {
    let node = Node::start(AgentsConfig::default()).await;
    let token = node.enrol("a").await;
    node.keepalive("a", &token, json!({})).await;
    let node = node.restart(seconds(3_600), AgentsConfig::default()).await;
    assert_eq!(node.status("a").await, "disconnected");
    node.agents.stop().await;
    let registry = node.agents.registry.clone();
    registry.flush().await.unwrap();
    assert_eq!(node.changes().await.len(), 1, "the pause was the server's own");
    node.advance(seconds(600));
    registry.flush().await.unwrap();
    assert_eq!(node.changes().await.len(), 2);
}
