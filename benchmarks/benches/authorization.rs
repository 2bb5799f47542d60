//! Cost of authentication and authorization per request: credentials of every kind that were seen before, alone and beside
//! 100,000 API keys and as many login tokens, and an index expression under 1,000 roles of 1,000 patterns each.
//!
//! Accounts are kept in memory, as they are in a server; what is measured never asks the store. Beside the means of Criterion it tells
//! percentiles of single requests, with the goals: 99 of 100 are authenticated within 50 µs, and authorized within a millisecond.
//! `cargo bench -p millrace-benchmarks --bench authorization`

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use criterion::{BatchSize, Criterion};
use http::{HeaderMap, HeaderValue};
use millrace_accounts::{Accounts, AnyQuery, Config, Edit, IndexGrant, NewApiKey, Role, Setter, Store, User};
use millrace_catalog::access::{Action, Principal};
use millrace_catalog::metadata::IndicesOptions;
use millrace_catalog::{AccountChange, AccountRecord};
use millrace_engine::{Engine, Session};
use millrace_runtime::SystemClock;
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::time::Instant;

/// API keys that there are, and login tokens.
const KEYS: usize = 100_000;
const TOKENS: usize = 100_000;
/// Users that have them, each as many as the others: of tokens as many as one may have.
const USERS: usize = 100;
/// Distance between consecutive credentials: it has no divisor in common with their numbers.
const STEP: usize = 7_919;
/// Requests of which percentiles are told: those that are authenticated, and those that are authorized.
const AUTHENTICATED: usize = 100_000;
const AUTHORIZED: usize = 10_000;
/// Goal for the 99th percentile of them.
const GOAL_AUTHENTICATED: Duration = Duration::from_micros(50);
const GOAL_AUTHORIZED: Duration = Duration::from_millis(1);
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
struct NullStore;

#[async_trait]
impl Store for NullStore {
    async fn accounts(&self) -> millrace_runtime::Result<Vec<AccountRecord>> {
        Ok(Vec::new())
    }

    async fn put_accounts(&self, _: &[AccountChange]) -> millrace_runtime::Result<()> {
        Ok(())
    }

    async fn secret(&self, _: &str) -> millrace_runtime::Result<Option<Vec<u8>>> {
        Ok(None)
    }

    async fn put_secret(&self, _: &str, _: &[u8]) -> millrace_runtime::Result<()> {
        Ok(())
    }
}

async fn accounts() -> Result<Accounts> {
    let config = Config { admin_password: Some(PASSWORD.to_owned()), ..Config::default() };
    let opened = Accounts::open(Arc::new(NullStore), config, Arc::new(SystemClock), Arc::new(AnyQuery)).await;
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

/// Times requests one by one.
async fn each(count: usize, mut request: impl AsyncFnMut(usize) -> Result<()>) -> Result<Vec<Duration>> {
    let mut took = Vec::with_capacity(count);
    for number in 0..count {
        let began = Instant::now();
        request(number).await?;
        took.push(began.elapsed());
    }
    Ok(took)
}

/// Tells percentiles, and whether 99 of 100 have met a goal.
fn tell(what: &str, mut took: Vec<Duration>, goal: Duration) {
    took.sort_unstable();
    let at = |share: f64| {
        let rank = (took.len() as f64 * share).ceil() as usize;
        took.get(rank.saturating_sub(1)).copied().unwrap_or_default()
    };
    let p99 = at(0.99);
    let met = if p99 < goal { "met" } else { "missed" };
    let (p50, most) = (at(0.5), at(1.0));
    println!("{what}: {p50:?} at p50, {p99:?} at p99 (goal {goal:?}: {met}), {most:?} at most");
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

/// Makes users with very many tokens and keys; returns credentials by their kind.
async fn crowd(accounts: &Accounts) -> Result<[(&'static str, Vec<HeaderMap>); 3]> {
    let name = |number: usize| format!("user-{number}");
    // Hashing it for each would take longer than all the rest.
    let password =
        accounts.hash_password(PASSWORD.to_owned(), Setter { name: "crowd", address: HERE }).await?;
    let put = |number| {
        let user = User { roles: vec!["reader".to_owned()], ..User::default() };
        Edit::PutUser { name: name(number), user, password: Some(password.clone()) }
    };
    accounts.edit((0..USERS).map(put).collect()).await?;
    let (mut passwords, mut tokens, mut keys) = (Vec::new(), Vec::new(), Vec::new());
    for name in (0..USERS).map(name) {
        passwords.push(basic(&name)?);
        for _ in 0..TOKENS / USERS {
            tokens.push(header("token", &accounts.login(&name, PASSWORD, HERE).await?.token)?);
        }
        let owner = accounts.principal(&name).context("a user that was made")?;
        for _ in 0..KEYS / USERS {
            keys.push(key(accounts, &owner).await?);
        }
    }
    Ok([("passwords", passwords), ("tokens", tokens), ("api_keys", keys)])
}

/// Each request by another one of very many credentials.
fn many_credentials(criterion: &mut Criterion, runtime: &Runtime) -> Result<()> {
    let (accounts, shown) = runtime.block_on(async {
        let accounts = accounts().await?;
        let shown = crowd(&accounts).await?;
        anyhow::Ok((accounts, shown))
    })?;
    for (kind, shown) in &shown {
        let name = format!("authenticate/one_of_{}_{kind}", shown.len());
        let mut next = 0;
        criterion.bench_function(&name, |bench| {
            bench.iter(|| {
                next = (next + STEP) % shown.len();
                black_box(runtime.block_on(accounts.authenticate(&shown[next], "/_search", HERE)))
            });
        });
        let took = runtime.block_on(each(AUTHENTICATED, async |number| {
            let headers = &shown[number * STEP % shown.len()];
            black_box(accounts.authenticate(headers, "/_search", HERE).await?);
            anyhow::Ok(())
        }))?;
        tell(&name, took, GOAL_AUTHENTICATED);
    }
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

/// Measures the compilation of a million patterns, and the resolution of an expression under them; requests from their
/// credentials to that, and by names that nobody has asked for before.
fn resolve(criterion: &mut Criterion, runtime: &Runtime) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let config = millrace_engine::Config {
        data_dir: directory.path().to_owned(),
        ..millrace_engine::Config::default()
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
        let took = runtime.block_on(each(AUTHORIZED, async |_| {
            let principal = accounts.authenticate(&headers, "/_search", HERE).await?.principal;
            let session = Session::new(&engine, principal, Action::Search)?;
            black_box(session.resolve(expression, &IndicesOptions::open_only())?);
            anyhow::Ok(())
        }))?;
        tell(
            &format!("1000_roles_of_1000_patterns/{kind}, authenticated and authorized"),
            took,
            GOAL_AUTHORIZED,
        );
    }
    group.finish();
    let took = runtime.block_on(each(AUTHORIZED, async |number| {
        let principal = accounts.authenticate(&headers, "/_search", HERE).await?.principal;
        let session = Session::new(&engine, principal, Action::Search)?;
        let name = format!("logs-{}-{}-new-{number}", number % ROLES, number % PATTERNS);
        session.check_all(std::iter::once(name.as_str()))?;
        anyhow::Ok(())
    }))?;
    tell("1000_roles_of_1000_patterns/name_that_is_new, authenticated and authorized", took, GOAL_AUTHORIZED);
    runtime.block_on(engine.shutdown())?;
    Ok(())
}

fn main() -> Result<()> {
    let runtime = Runtime::new()?;
    let mut criterion = Criterion::default().configure_from_args();
    authenticate(&mut criterion, &runtime)?;
    many_credentials(&mut criterion, &runtime)?;
    resolve(&mut criterion, &runtime)?;
    criterion.final_summary();
    Ok(())
}
