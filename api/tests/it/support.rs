//! A service over an empty store, and requests to it.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use millrace_accounts::{Accounts, Config as AccountsConfig, Store, TokenLifetimes};
use millrace_alerting::Alerting;
use millrace_api::{
    AuditConfig, Console, DataApi, HttpConfig, Identity, IngestService, Node as Shared, SearchQueryParser,
    Service,
};
use millrace_catalog::{AccountChange, AccountRecord};
use millrace_engine::{Config, Engine};
use millrace_intelligence::Intelligence;
use millrace_notifications::Notifications;
use millrace_query::SearchService;
use millrace_runtime::{Result, SharedClock, SystemClock};
use parking_lot::Mutex;
use serde_json::Value;
use tempfile::TempDir;

/// Accounts and secrets in memory.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    secrets: Mutex<HashMap<String, Vec<u8>>>,
    /// By kind and name.
    records: Mutex<HashMap<(String, String), String>>,
}

impl Memory {
    /// Returns everything that is kept of accounts, as text.
    pub(crate) fn text(&self) -> String {
        format!("{:?}", self.records.lock())
    }
}

#[async_trait]
impl Store for Memory {
    async fn accounts(&self) -> Result<Vec<AccountRecord>> {
        let records = self.records.lock();
        let record = |((kind, name), body): (&(String, String), &String)| AccountRecord {
            kind: kind.clone(),
            name: name.clone(),
            body: body.clone(),
        };
        Ok(records.iter().map(record).collect())
    }

    async fn put_accounts(&self, changes: &[AccountChange]) -> Result<()> {
        let mut records = self.records.lock();
        for change in changes {
            match change.clone() {
                AccountChange::Put(AccountRecord { kind, name, body }) => {
                    records.insert((kind, name), body);
                }
                AccountChange::Delete { kind, name } => {
                    records.remove(&(kind, name));
                }
            }
        }
        Ok(())
    }

    async fn secret(&self, key: &str) -> Result<Option<Vec<u8>>> {
        Ok(self.secrets.lock().get(key).cloned())
    }

    async fn put_secret(&self, key: &str, value: &[u8]) -> Result<()> {
        self.secrets.lock().insert(key.to_owned(), value.to_owned());
        Ok(())
    }
}

/// Opens accounts with the administrator's password `secret`.
pub(crate) async fn accounts(
    store: Arc<dyn Store>,
    insecure: bool,
    clock: SharedClock,
    lifetimes: TokenLifetimes,
) -> Accounts {
    let admin_password = (!insecure).then(|| "secret".to_owned());
    let config = AccountsConfig { admin_password, password_file: None, insecure, lifetimes };
    Accounts::open(store, config, clock, Arc::new(SearchQueryParser)).await.unwrap().0
}

/// A running store with its service.
pub(crate) struct Node {
    pub(crate) api: Arc<Shared>,
    pub(crate) service: Service,
    console: Arc<Console>,
    data: TempDir,
}

/// Answer of the server.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: http::HeaderMap,
    pub(crate) bytes: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_else(|_| panic!("not JSON: {:?}", self.bytes))
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes).unwrap()
    }
}

impl Node {
    /// Starts one that takes every request for the administrator's.
    pub(crate) async fn insecure() -> Self {
        let (store, clock) = (Arc::new(Memory::default()), Arc::new(SystemClock));
        Self::start(accounts(store, true, clock, TokenLifetimes::default()).await).await
    }

    /// Starts one whose administrator has the password `secret`.
    pub(crate) async fn secured() -> Self {
        let (store, clock) = (Arc::new(Memory::default()), Arc::new(SystemClock));
        Self::start(accounts(store, false, clock, TokenLifetimes::default()).await).await
    }

    pub(crate) async fn start(accounts: Accounts) -> Self {
        Self::over(tempfile::tempdir().unwrap(), accounts, false).await
    }

    /// Starts one with rules at work, whose administrator has the password `secret`.
    pub(crate) async fn with_rules() -> Self {
        let (store, clock) = (Arc::new(Memory::default()), Arc::new(SystemClock));
        let accounts = accounts(store, false, clock, TokenLifetimes::default()).await;
        Self::over(tempfile::tempdir().unwrap(), accounts, true).await
    }

    /// Stops it and starts it again over its data.
    pub(crate) async fn restarted(self) -> Self {
        let Self { api, service, console, data } = self;
        api.engine.shutdown().await.unwrap();
        let accounts = api.accounts.clone();
        drop((api, service, console));
        Self::over(data, accounts, false).await
    }

    /// Has it answer by another router of the data API.
    pub(crate) fn with_data_api(self, router: DataApi) -> Self {
        Self { service: self.service.with_router(Arc::new(router)), ..self }
    }

    /// Has it answer as the console.
    pub(crate) fn into_console(self) -> Self {
        let router = Arc::clone(&self.console);
        Self { service: self.service.with_router(router), ..self }
    }

    async fn over(data: TempDir, accounts: Accounts, rules: bool) -> Self {
        let config = Config { data_dir: data.path().to_owned(), ..Config::default() };
        let engine = Engine::open(config, Arc::new(SystemClock)).await.unwrap();
        let search = Arc::new(SearchService::new(engine.clone(), millrace_query::Config::default()));
        let data_dir = data.path().to_owned();
        let address = "127.0.0.1:9200".to_owned();
        let identity =
            Identity::open(&Memory::default(), "node-1", "millrace", data_dir, address).await.unwrap();
        let (store, users) = (Arc::clone(&engine), Arc::new(accounts.clone()));
        let api = Shared::new(engine, search, accounts, identity).with_audit(AuditConfig::default());
        let mut console = Console::new(&store, &api.search);
        if rules {
            let notifying = millrace_notifications::Config {
                secret_key: Some([7; 32]),
                allow: "127.0.0.1".parse().unwrap(),
                ..millrace_notifications::Config::default()
            };
            let notifications = Notifications::start(&store, &api.search, &users, notifying).await.unwrap();
            let alerting = Alerting::start_with(&store, &users, Some(notifications)).await.unwrap();
            let intelligence = Intelligence::start(&store, &api.search, &users).await.unwrap();
            console = console.with_alerting(alerting).with_intelligence(intelligence);
        }
        let console = Arc::new(console);
        let ingest = IngestService::new(&store, &api.search);
        let api = api.with_faults(Arc::clone(&console) as _).with_write_pipelines(Arc::new(ingest.clone()));
        let api = Arc::new(api);
        let config = HttpConfig { max_content_length: 1 << 20, ..HttpConfig::default() };
        let data_api = DataApi::default().with_ingest(ingest);
        let service = Service::new(api.clone(), &config, Arc::new(data_api));
        Self { service, console, api, data }
    }

    /// Sends a request; a JSON body unless a header says otherwise.
    pub(crate) async fn send(&self, line: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Answer {
        Self::send_to(&self.service, line, headers, body).await
    }

    /// Sends a request to the console beside it.
    pub(crate) async fn send_to_console(
        &self,
        line: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        let router = Arc::clone(&self.console);
        Self::send_to(&self.service.clone().with_router(router), line, headers, body).await
    }

    async fn send_to(
        service: &Service,
        line: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        let (method, uri) = line.split_once(' ').unwrap();
        let body = body.into();
        let mut request = http::Request::builder().method(method).uri(uri);
        if !body.is_empty() && !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
            request = request.header("content-type", "application/json");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = service.call(request.body(Full::new(body)).unwrap()).await;
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Answer { status: parts.status.as_u16(), headers: parts.headers, bytes }
    }

    /// Sends a request and checks its status.
    pub(crate) async fn ask(&self, line: &str, body: &str, status: u16) -> Value {
        let answer = self.send(line, &[], body.to_owned()).await;
        assert_eq!(answer.status, status, "{line}: {}", answer.text());
        if answer.bytes.is_empty() { Value::Null } else { answer.json() }
    }
}

/// A request with what its answer must be.
pub(crate) struct Step {
    line: String,
    body: Value,
    status: u16,
    expected: Vec<(&'static str, Value)>,
}

impl Step {
    /// Makes one; a null body is none. `expected` are JSON pointers into the answer with the values
    /// there, null for nothing.
    pub(crate) fn new(line: &str, body: Value, status: u16, expected: &[(&'static str, Value)]) -> Self {
        Self { line: line.to_owned(), body, status, expected: expected.to_vec() }
    }
}

/// Sends requests one after the other and checks their answers.
pub(crate) async fn play(node: &Node, steps: Vec<Step>) {
    for step in steps {
        let body = if step.body.is_null() { String::new() } else { step.body.to_string() };
        let answer = node.ask(&step.line, &body, step.status).await;
        for (pointer, expected) in &step.expected {
            let found = answer.pointer(pointer).unwrap_or(&Value::Null);
            assert_eq!(found, expected, "{} {body}: {pointer} of {answer}", step.line);
        }
    }
}
