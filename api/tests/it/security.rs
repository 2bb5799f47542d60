//! Users, roles, API keys and logins, as those who send requests see them.

mod bounds;
mod hidden;
mod keys;
mod logins;
mod roles;
mod users;

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::Full;
use millrace_accounts::TokenLifetimes;
use millrace_listen::ClientCertificate;
use millrace_runtime::ManualClock;
use serde_json::{Value, json};

use crate::support::{Answer, Memory, Node, accounts};

/// A server with what its accounts are kept in, and its clock.
struct Site {
    node: Node,
    store: Arc<Memory>,
    clock: Arc<ManualClock>,
}

const LIFETIMES: TokenLifetimes =
    TokenLifetimes { idle: Duration::from_secs(3_600), absolute: Duration::from_secs(3 * 3_600) };
const HOUR_MS: i64 = 3_600_000;

pub(crate) fn basic(name: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{name}:{password}")))
}

impl Site {
    async fn start() -> Self {
        let (store, clock) = (Arc::new(Memory::default()), Arc::new(ManualClock::new(1_700_000_000_000)));
        let accounts = accounts(store.clone(), false, clock.clone(), LIFETIMES).await;
        Self { node: Node::start(accounts).await, store, clock }
    }

    async fn send(&self, header: (&str, &str), line: &str, body: &Value) -> Answer {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.node.send(line, &[header], body).await
    }

    /// Sends a request with an authorization, and checks the status.
    async fn ask(&self, authorization: &str, line: &str, body: Value, status: u16) -> Value {
        let answer = self.send(("authorization", authorization), line, &body).await;
        assert_eq!(answer.status, status, "{line} {body}: {}", answer.text());
        if answer.bytes.is_empty() { Value::Null } else { answer.json() }
    }

    /// The same as the administrator.
    async fn admin(&self, line: &str, body: Value, status: u16) -> Value {
        self.ask(&basic("admin", "secret"), line, body, status).await
    }

    /// Makes a user with the password of its name twice.
    async fn user(&self, name: &str, roles: &[&str]) -> String {
        let password = format!("{name}{name}");
        let body = json!({ "password": password, "roles": roles });
        self.admin(&format!("PUT /_security/user/{name}"), body, 200).await;
        basic(name, &password)
    }

    async fn login(&self, name: &str, password: &str) -> String {
        let body = json!({ "username": name, "password": password });
        let answer = self.node.ask("PUT /_service/login", &body.to_string(), 200).await;
        answer["token"].as_str().unwrap().to_owned()
    }

    /// Asks with a token who it is of.
    async fn status_of(&self, header: (&str, &str)) -> u16 {
        self.send(header, "GET /_security/_authenticate", &Value::Null).await.status
    }
}

fn reads(index: &str) -> Value {
    json!({ "cluster": ["monitor"], "indices": [{ "names": [index], "privileges": ["read"] }] })
}

/// Makes a key and returns its answer with the header.
async fn key(site: &Site, authorization: &str, body: Value) -> (Value, String) {
    let made = site.ask(authorization, "POST /_security/api_key", body, 200).await;
    let header = format!("ApiKey {}", made["encoded"].as_str().unwrap());
    (made, header)
}

fn certificate(subject: &str) -> ClientCertificate {
    ClientCertificate { subject: subject.into(), common_name: None, not_after_ms: i64::MAX }
}
