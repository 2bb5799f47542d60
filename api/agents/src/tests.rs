//! Both listeners over a store on disk: enrolment, keep-alives, statuses, lists, rights and hostile input.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use millrace_accounts::{Accounts, Role, TokenLifetimes, User};
use millrace_data_api::{DataApi, SearchQueryParser};
use millrace_engine::{Config, Engine};
use millrace_gateway::{HttpConfig, Identity, ListenerContext, Node as SharedNode, Service};
use millrace_listen::{ClientCertificate, Peer};
use millrace_query::SearchService;
use millrace_runtime::metrics::{MetricSource, MetricValue};
use millrace_runtime::{Clock, ManualClock};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{AgentListener, AgentStatus, Agents, AgentsConfig, ListenerKind, ROUTES};

mod hostile;
mod registry;
mod users;

const START_MS: i64 = 1_800_000_000_000;
const PASSWORD: &str = "password of the test";

/// A server of agents on a directory, which may be started again.
struct Node {
    engine: Arc<Engine>,
    clock: Arc<ManualClock>,
    agents: Agents,
    enrolment: AgentListener,
    management: AgentListener,
    context: ListenerContext,
    data: TempDir,
}

/// Answer of a listener.
#[derive(Debug)]
struct Answer {
    status: StatusCode,
    headers: http::HeaderMap,
    text: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("no JSON: {}", self.text))
    }
}

impl Node {
    async fn start(config: AgentsConfig) -> Self {
        Self::open(tempfile::tempdir().unwrap(), START_MS, config, false).await
    }

    async fn open(data: TempDir, now_ms: i64, config: AgentsConfig, insecure: bool) -> Self {
        let clock = Arc::new(ManualClock::new(now_ms));
        let storage = Config { data_dir: data.path().to_owned(), ..Config::default() };
        let engine = Engine::open(storage, clock.clone()).await.unwrap();
        let search = Arc::new(SearchService::new(Arc::clone(&engine), millrace_query::Config::default()));
        let accounts = millrace_accounts::Config {
            admin_password: (!insecure).then(|| PASSWORD.to_owned()),
            password_file: None,
            insecure,
            lifetimes: TokenLifetimes::default(),
        };
        let parser = Arc::new(SearchQueryParser);
        let (accounts, _) = Accounts::open(engine.clone(), accounts, clock.clone(), parser).await.unwrap();
        let identity =
            Identity::open(&*engine, "n", "c", data.path().to_owned(), String::new()).await.unwrap();
        let node = Arc::new(SharedNode::new(Arc::clone(&engine), search, accounts, identity));
        let service = Service::new(node, &HttpConfig::default(), Arc::new(DataApi::default()));
        let context = service.listener_context();
        let agents = Agents::start(&engine, config).await.unwrap();
        let enrolment = AgentListener::new(ListenerKind::Enrolment, context.clone(), &agents);
        let management = AgentListener::new(ListenerKind::Management, context.clone(), &agents);
        Self { engine, clock, agents, enrolment, management, context, data }
    }

    /// Stops it and starts it again so much later.
    async fn restart(self, later: Duration, config: AgentsConfig) -> Self {
        let Self { engine, clock, agents, data, enrolment, management, context } = self;
        agents.stop().await;
        drop((agents, enrolment, management, context));
        engine.shutdown().await.unwrap();
        drop(engine);
        let now_ms = clock.now_ms() + i64::try_from(later.as_millis()).unwrap();
        Self::open(data, now_ms, config, false).await
    }

    async fn send(&self, line: &str, headers: &[(&str, &str)], body: impl Into<Body>) -> Answer {
        self.send_from(IpAddr::from([10, 0, 0, 1]), None, line, headers, body).await
    }

    async fn send_from(
        &self,
        address: IpAddr,
        certificate: Option<ClientCertificate>,
        line: &str,
        headers: &[(&str, &str)],
        body: impl Into<Body>,
    ) -> Answer {
        let (method, path) = line.split_once(' ').unwrap();
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut request = request.body(body.into()).unwrap();
        request.extensions_mut().insert(Peer(SocketAddr::new(address, 40_000)));
        if let Some(certificate) = certificate {
            request.extensions_mut().insert(certificate);
        }
        let listener = if path.starts_with("/register") { &self.enrolment } else { &self.management };
        let (head, body) = listener.answer(request).await.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Answer {
            status: head.status,
            headers: head.headers,
            text: String::from_utf8(bytes.to_vec()).unwrap(),
        }
    }

    /// Enrols an agent that is new; returns its token.
    async fn enrol(&self, id: &str) -> String {
        let body = json!({ "agent_id": id, "host": format!("host-{id}") });
        let answer = self.send("POST /register", &[], body.to_string()).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text);
        answer.json()["token"].as_str().unwrap().to_owned()
    }

    async fn keepalive(&self, id: &str, token: &str, facts: Value) -> Answer {
        let bearer = bearer(token);
        let line = format!("POST /agents/{id}/keepalive");
        self.send(&line, &[("authorization", &bearer)], facts.to_string()).await
    }

    async fn status(&self, id: &str) -> String {
        let answer = self.send(&format!("GET /agents/{id}"), &[("authorization", &admin())], "").await;
        answer.json()["status"].as_str().unwrap_or_else(|| panic!("{}", answer.text)).to_owned()
    }

    fn advance(&self, by: Duration) {
        self.clock.advance_ms(i64::try_from(by.as_millis()).unwrap());
    }

    async fn user(&self, name: &str, cluster: &[&str]) {
        let role: Role = serde_json::from_value(json!({ "cluster": cluster })).unwrap();
        let accounts = &self.context.node.accounts;
        accounts.put_role(name, role).await.unwrap();
        let user = User { roles: vec![name.to_owned()], enabled: true, ..User::default() };
        accounts.put_user(name, user, Some(PASSWORD.to_owned())).await.unwrap();
    }
}

fn basic(name: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{name}:{PASSWORD}")))
}

fn admin() -> String {
    basic("admin")
}

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Between these is the table of routes of agents.
const MARKERS: (&str, &str) = ("<!-- agent routes -->\n", "<!-- /agent routes -->");

#[test]
fn routes_are_documented() {
    use std::fmt::Write as _;
    let mut table = "| method | path | action of a user | listener |\n|---|---|---|---|\n".to_owned();
    for route in &ROUTES {
        let _ = writeln!(
            table,
            "| {} | `{}` | `{}` | {} |",
            route.method,
            route.path,
            route.action,
            route.listener.name()
        );
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/security.md");
    let text = std::fs::read_to_string(&file).unwrap();
    let (before, rest) =
        text.split_once(MARKERS.0).expect("docs/security.md has a place for routes of agents");
    let (written, after) = rest.split_once(MARKERS.1).expect("the place for routes of agents ends");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&file, format!("{before}{}{table}{}{after}", MARKERS.0, MARKERS.1)).unwrap();
        return;
    }
    assert_eq!(written, table, "docs/security.md is old: run the test with UPDATE_DOCS=1");
}

#[tokio::test]
async fn an_agent_enrols_reports_and_is_listed() {
    let node = Node::start(AgentsConfig::default()).await;
    let token = node.enrol("web-1").await;
    assert_eq!(token.len(), 64);
    let answer = node.send("GET /agents/web-1", &[("authorization", &bearer(&token))], "").await;
    let record = answer.json();
    assert_eq!(
        record,
        json!({
            "agent_id": "web-1", "host": "host-web-1", "name": "host-web-1", "ip": "10.0.0.1", "os": null, "version": null,
            "status": "never_connected", "registered": "2027-01-15T08:00:00.000Z", "last_keepalive": null,
        })
    );
    node.advance(seconds(5));
    let facts = json!({ "os": "Debian 13", "version": "4.9", "ip": "192.0.2.7" });
    let answer = node.keepalive("web-1", &token, facts).await;
    assert_eq!((answer.status, &answer.json()["data"]["status"]), (StatusCode::OK, &json!("active")));
    let listed = node.send("GET /agents", &[("authorization", &admin())], "").await.json();
    assert_eq!((&listed["error"], &listed["data"]["total_affected_items"]), (&json!(0), &json!(1)));
    let item = &listed["data"]["affected_items"][0];
    for (member, value) in [
        ("id", json!("web-1")),
        ("status", json!("active")),
        ("os", json!({ "name": "Debian 13" })),
        ("ip", json!("192.0.2.7")),
        ("registerIP", json!("10.0.0.1")),
        ("dateAdd", json!("2027-01-15T08:00:00.000Z")),
        ("lastKeepAlive", json!("2027-01-15T08:00:05.000Z")),
        ("version", json!("4.9")),
    ] {
        assert_eq!(item[member], value, "{member}");
    }
    assert!(!listed.to_string().contains("hash"));
}

#[tokio::test]
async fn the_status_follows_the_age_of_the_last_keepalive() {
    let node = Node::start(AgentsConfig::default()).await;
    let token = node.enrol("a").await;
    assert_eq!(node.status("a").await, "never_connected");
    node.advance(seconds(3_600));
    assert_eq!(node.status("a").await, "never_connected");
    node.keepalive("a", &token, json!({})).await;
    for (after, status) in
        [(0, "active"), (59, "active"), (1, "pending"), (539, "pending"), (1, "disconnected")]
    {
        node.advance(seconds(after));
        assert_eq!(node.status("a").await, status, "after {after} s more");
    }
    node.keepalive("a", &token, json!({})).await;
    assert_eq!(node.status("a").await, "active");
    // The clock is set back by a day.
    node.clock.advance_ms(-86_400_000);
    assert_eq!(node.status("a").await, "active");
    let counts = node.agents.families();
    let active = counts[0].samples.iter().find(|sample| sample.labels[0].1 == AgentStatus::Active.name());
    assert_eq!(active.unwrap().value, MetricValue::Gauge(1.0));
}

#[tokio::test]
async fn lists_are_paged_filtered_searched_and_sorted() {
    let node = Node::start(AgentsConfig::default()).await;
    for number in 0..25 {
        let token = node.enrol(&format!("agent-{number:02}")).await;
        if number < 10 {
            let facts = json!({ "os": if number % 2 == 0 { "Debian" } else { "Windows" } });
            node.keepalive(&format!("agent-{number:02}"), &token, facts).await;
        }
        node.advance(seconds(1));
    }
    let admin = admin();
    let ids = async |query: &str| {
        let answer = node.send(&format!("GET /agents?{query}"), &[("authorization", &admin)], "").await;
        assert_eq!(answer.status, StatusCode::OK, "{query}: {}", answer.text);
        let answer = answer.json();
        let items = answer["data"]["affected_items"].as_array().unwrap();
        let ids: Vec<String> =
            items.iter().map(|item| item["id"].as_str().unwrap()[6..].to_owned()).collect();
        (ids.join(" "), answer["data"]["total_affected_items"].as_u64().unwrap())
    };
    assert_eq!(ids("limit=3&offset=4").await, ("04 05 06".to_owned(), 25));
    assert_eq!(ids("limit=3&offset=24&pretty=true").await, ("24".to_owned(), 25));
    assert_eq!(ids("offset=99").await, (String::new(), 25));
    assert_eq!(ids("limit=0").await, (String::new(), 25));
    assert_eq!(ids("status=active&search=debian").await, ("00 02 04 06 08".to_owned(), 5));
    assert_eq!(ids("status=active&search=-debian&sort=-id&limit=2").await, ("09 07".to_owned(), 5));
    assert_eq!(ids("status=active,never_connected&limit=1").await.1, 25);
    assert_eq!(ids("sort=-dateAdd&limit=2").await.0, "24 23");
    assert_eq!(ids("sort=%2BlastKeepAlive,-id&limit=2").await.0, "24 23");
    assert_eq!(ids("agents_list=agent-03,agent-01").await, ("01 03".to_owned(), 2));
    let answer =
        node.send("GET /agents?agents_list=agent-03,none", &[("authorization", &admin)], "").await.json();
    assert_eq!((&answer["error"], &answer["data"]["total_failed_items"]), (&json!(2), &json!(1)));
    for query in ["limit=-1", "limit=10001", "offset=-1", "limit=x", "status=gone", "sort=hash", "what=1"] {
        let answer = node.send(&format!("GET /agents?{query}"), &[("authorization", &admin)], "").await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{query}: {}", answer.text);
    }
    let summary = node.send("GET /agents/summary/status", &[("authorization", &admin)], "").await.json();
    assert_eq!(
        summary["data"]["connection"],
        json!({ "total": 25, "active": 10, "disconnected": 0, "never_connected": 15, "pending": 0 })
    );
}
