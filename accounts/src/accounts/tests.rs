//! The operations as those who use them see them.

mod feature_state;
mod keys;
mod passwords;
mod roles;
mod tokens;
mod users;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use millrace_catalog::access::Action;
use millrace_catalog::{AccountChange, AccountRecord};
use millrace_runtime::ManualClock;
use serde_json::{Value, json};

use super::*;
use crate::{AnyQuery, Refusal, Role, Store, User};

/// A store in memory that can be made to fail.
#[derive(Debug, Default)]
struct Memory {
    records: parking_lot::Mutex<BTreeMap<(String, String), String>>,
    secrets: parking_lot::Mutex<BTreeMap<String, Vec<u8>>>,
    fails: AtomicBool,
}

#[async_trait]
impl Store for Memory {
    async fn accounts(&self) -> millrace_runtime::Result<Vec<AccountRecord>> {
        let record = |((kind, name), body): (&(String, String), &String)| AccountRecord {
            kind: kind.clone(),
            name: name.clone(),
            body: body.clone(),
        };
        Ok(self.records.lock().iter().map(record).collect())
    }

    async fn put_accounts(&self, changes: &[AccountChange]) -> millrace_runtime::Result<()> {
        if self.fails.load(Ordering::Relaxed) {
            return Err(millrace_runtime::Error::Rejected("disk full".to_owned()));
        }
        let mut records = self.records.lock();
        for change in changes.iter().cloned() {
            match change {
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

    async fn secret(&self, key: &str) -> millrace_runtime::Result<Option<Vec<u8>>> {
        Ok(self.secrets.lock().get(key).cloned())
    }

    async fn put_secret(&self, key: &str, value: &[u8]) -> millrace_runtime::Result<()> {
        self.secrets.lock().insert(key.to_owned(), value.to_owned());
        Ok(())
    }
}

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const START_MS: i64 = 1_700_000_000_000;
const HOUR_MS: i64 = 60 * 60 * 1000;

/// A server that can be started again.
struct Server {
    store: Arc<Memory>,
    clock: Arc<ManualClock>,
    accounts: Accounts,
}

impl Server {
    /// One whose administrator's password is `secret`.
    async fn start() -> Self {
        let (store, clock) = (Arc::<Memory>::default(), Arc::new(ManualClock::new(START_MS)));
        let accounts = open(&store, &clock).await;
        Self { store, clock, accounts }
    }

    async fn restart(self) -> Self {
        let Self { store, clock, accounts } = self;
        drop(accounts);
        let accounts = open(&store, &clock).await;
        Self { store, clock, accounts }
    }

    /// Makes a user whose password is its name and `-secret`.
    async fn user(&self, name: &str, roles: &[&str]) {
        let user = User { roles: list(roles), ..User::default() };
        let made = self.accounts.put_user(name, user, Some(format!("{name}-secret"))).await.unwrap();
        assert!(made, "{name}");
    }

    async fn role(&self, name: &str, body: Value) {
        self.accounts.put_role(name, Role::from_elasticsearch(&body).unwrap()).await.unwrap();
    }

    async fn ask(&self, headers: &HeaderMap) -> Result<Authenticated, Refusal> {
        self.accounts.authenticate(headers, "/", HERE).await
    }

    /// Returns whether who shows this may do something with an index.
    async fn may(&self, headers: &HeaderMap, action: Action, index: &str) -> bool {
        let principal = self.ask(headers).await.unwrap().principal;
        principal.privileges().on(index).allows(action)
    }
}

async fn open(store: &Arc<Memory>, clock: &Arc<ManualClock>) -> Accounts {
    let config = Config { admin_password: Some("secret".to_owned()), ..Config::default() };
    open_as(store, clock, config).await.unwrap().0
}

async fn open_as(
    store: &Arc<Memory>,
    clock: &Arc<ManualClock>,
    config: Config,
) -> Result<(Accounts, Option<String>)> {
    let store: Arc<dyn Store> = Arc::clone(store) as Arc<dyn Store>;
    Accounts::open(store, config, Arc::clone(clock) as SharedClock, Arc::new(AnyQuery)).await
}

fn list(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn authorization(value: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, value.parse().unwrap());
    headers
}

fn basic(pair: &str) -> HeaderMap {
    authorization(&format!("Basic {}", STANDARD.encode(pair)))
}

fn token(text: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("token", text.parse().unwrap());
    headers
}

/// 401, 429 or 500, or 200 where there is no refusal.
fn status<T>(answer: &Result<T, Refusal>) -> u16 {
    match answer {
        Ok(_) => 200,
        Err(Refusal::Unauthenticated(_)) => 401,
        Err(Refusal::Later { .. }) => 429,
        Err(Refusal::Failed(_)) => 500,
    }
}
