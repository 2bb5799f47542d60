//! What finding out who asks, and what they may do, adds to each request: credentials of every kind that were seen before, one of
//! 100,000 API keys, and an index expression under 1,000 roles of 1,000 patterns each.
//!
//! Accounts are kept in memory, as they are in a server; what is measured never asks the store.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use anyhow::{Context, Result};
use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use criterion::{BatchSize, Criterion};
use http::{HeaderMap, HeaderValue};
use millrace_accounts::{Accounts, AnyQuery, Config, IndexGrant, NewApiKey, Role, Store, User};
use millrace_storage::access::Action;
use millrace_storage::catalog::{AccountChange, AccountRecord};
use millrace_storage::metadata::IndicesOptions;
use millrace_storage::{Engine, Principal, Session, SystemClock};
use serde_json::json;
use tokio::runtime::Runtime;

/// API keys that there are.
const KEYS: usize = 100_000;
/// Roles of the user with many.
const ROLES: usize = 1_000;
/// Patterns of each.
const PATTERNS: usize = 1_000;
/// Indices that there are.
const INDICES: usize = 1_000;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const PASSWORD: &str = "correct horse";

/// Takes changes and keeps none.
#[derive(Debug)]
struct Nowhere;

#[async_trait]
impl Store for Nowhere {
    async fn accounts(&self) -> millrace_storage::Result<Vec<AccountRecord>> {
        Ok(Vec::new())
    }

    async fn put_accounts(&self, _: &[AccountChange]) -> millrace_storage::Result<()> {
        Ok(())
    }

    async fn secret(&self, _: &str) -> millrace_storage::Result<Option<Vec<u8>>> {
        Ok(None)
    }

    async fn put_secret(&self, _: &str, _: &[u8]) -> millrace_storage::Result<()> {
        Ok(())
    }
}

async fn accounts() -> Result<Accounts> {
    let config = Config { admin_password: Some(PASSWORD.to_owned()), ..Config::default() };
    let opened = Accounts::open(Arc::new(Nowhere), config, Arc::new(SystemClock), Arc::new(AnyQuery)).await;
    Ok(opened?.0)
}

fn header(name: &'static str, value: &str) -> Result<HeaderMap> {
    Ok(HeaderMap::from_iter([(http::HeaderName::from_static(name), HeaderValue::from_str(value)?)]))
}

fn basic(name: &str) -> Result<HeaderMap> {
    header("authorization", &format!("Basic {}", STANDARD.encode(format!("{name}:{PASSWORD}"))))
}

async fn key(accounts: &Accounts, owner: &Principal) -> Result<HeaderMap> {
    let new = NewApiKey { name: "key".to_owned(), ..NewApiKey::default() };
    let made = accounts.create_api_key(owner, new).await?;
    header("authorization", &format!("ApiKey {}", made.encoded))
}

/// Credentials that were seen before.
fn authenticate(criterion: &mut Criterion, runtime: &Runtime) -> Result<()> {
    let (accounts, shown) = runtime.block_on(async {
        let accounts = accounts().await?;
        let user = User { roles: vec!["reader".to_owned()], ..User::default() };
        accounts.put_user("ann", user, Some(PASSWORD.to_owned())).await?;
        let login = accounts.login("ann", PASSWORD, HERE).await?;
        let key = key(&accounts, &login.principal).await?;
        let shown = [("basic", basic("ann")?), ("token", header("token", &login.token)?), ("api_key", key)];
        anyhow::Ok((accounts, shown))
    })?;
    let mut group = criterion.benchmark_group("authenticate");
    for (kind, headers) in &shown {
        let ask = || runtime.block_on(accounts.authenticate(headers, "/_search", HERE));
        ask()?;
        group.bench_function(*kind, |bench| bench.iter(|| black_box(ask())));
    }
    group.finish();
    Ok(())
}

/// Each request by another one of very many keys.
fn many_keys(criterion: &mut Criterion, runtime: &Runtime) -> Result<()> {
    let (accounts, keys) = runtime.block_on(async {
        let accounts = accounts().await?;
        let owner = accounts.administrator();
        let mut keys = Vec::with_capacity(KEYS);
        for _ in 0..KEYS {
            keys.push(key(&accounts, &owner).await?);
        }
        anyhow::Ok((accounts, keys))
    })?;
    let mut next = 0;
    criterion.bench_function("authenticate/one_of_100000_api_keys", |bench| {
        bench.iter(|| {
            // A step that has no divisor in common with the number of keys.
            next = (next + 7_919) % KEYS;
            black_box(runtime.block_on(accounts.authenticate(&keys[next], "/_search", HERE)))
        });
    });
    Ok(())
}

async fn many_patterns() -> Result<Accounts> {
    let accounts = accounts().await?;
    let mut roles = Vec::with_capacity(ROLES);
    for number in 0..ROLES {
        let names = (0..PATTERNS).map(|pattern| format!("logs-{number}-{pattern}-*")).collect();
        let grant = IndexGrant { names, privileges: vec!["read".to_owned()], ..IndexGrant::default() };
        let name = format!("role-{number}");
        accounts.put_role(&name, Role { indices: vec![grant], ..Role::default() }).await?;
        roles.push(name);
    }
    accounts.put_user("ann", User { roles, ..User::default() }, Some(PASSWORD.to_owned())).await?;
    Ok(accounts)
}

/// What a million patterns are made into, and an expression resolved under them.
fn resolve(criterion: &mut Criterion, runtime: &Runtime) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let config = millrace_storage::Config {
        data_dir: directory.path().to_owned(),
        ..millrace_storage::Config::default()
    };
    let (engine, accounts) = runtime.block_on(async {
        let engine = Engine::open(config, Arc::new(SystemClock)).await?;
        for number in 0..INDICES {
            // Every second one may be read.
            let name = if number % 2 == 0 { format!("logs-{number}-1-a") } else { format!("other-{number}") };
            engine.make_own_index(&name, &json!({"settings": {"index.number_of_replicas": 0}})).await?;
        }
        anyhow::Ok((engine, many_patterns().await?))
    })?;
    let headers = basic("ann")?;
    let ask = || runtime.block_on(accounts.authenticate(&headers, "/_search", HERE));
    let mut group = criterion.benchmark_group("1000_roles_of_1000_patterns");
    group.sample_size(10);
    group.bench_function("made_anew", |bench| {
        bench.iter_batched(|| accounts.forget_privileges(), |()| black_box(ask()), BatchSize::PerIteration);
    });
    let principal = ask().context("the user with many roles")?.principal;
    for (kind, expression) in [("one", "logs-500-1-a"), ("wildcard", "logs-5*"), ("all", "*")] {
        let resolve = || {
            // A session for each request.
            let session = Session::new(&engine, principal.clone(), Action::Search)?;
            session.resolve(expression, &IndicesOptions::open_only())
        };
        resolve()?;
        group.bench_function(kind, |bench| bench.iter(|| black_box(resolve())));
    }
    group.finish();
    runtime.block_on(engine.shutdown())?;
    Ok(())
}

fn main() -> Result<()> {
    let runtime = Runtime::new()?;
    let mut criterion = Criterion::default().configure_from_args();
    authenticate(&mut criterion, &runtime)?;
    many_keys(&mut criterion, &runtime)?;
    resolve(&mut criterion, &runtime)?;
    criterion.final_summary();
    Ok(())
}
