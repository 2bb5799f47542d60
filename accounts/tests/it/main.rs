//! Accounts in the catalog of a real engine.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;

use http::HeaderMap;
use millrace_accounts::{Accounts, AnyQuery, Config, Mapping, NewApiKey, Role, Scheme, Store, User};
use millrace_catalog::access::Action;
use millrace_engine::Engine;
use millrace_runtime::SystemClock;
use serde_json::json;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

async fn open(dir: &Path, password: &str) -> (Arc<Engine>, Accounts) {
    let config = millrace_engine::Config { data_dir: dir.to_owned(), ..millrace_engine::Config::default() };
    let engine = Engine::open(config, Arc::new(SystemClock)).await.unwrap();
    let store: Arc<dyn Store> = Arc::clone(&engine) as Arc<dyn Store>;
    let config = Config { admin_password: Some(password.to_owned()), ..Config::default() };
    let (accounts, generated) =
        Accounts::open(store, config, Arc::new(SystemClock), Arc::new(AnyQuery)).await.unwrap();
    assert_eq!(generated, None);
    (engine, accounts)
}

fn header(name: &'static str, value: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(name, value.parse().unwrap());
    headers
}

#[tokio::test]
async fn everything_survives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, accounts) = open(dir.path(), "secret").await;
    let role = json!({"cluster": ["manage_own_api_key"], "indices": [{"names": ["logs-*"], "privileges": ["read"]}]});
    accounts.put_role("logs", Role::from_elasticsearch(&role).unwrap()).await.unwrap();
    let user = User { backend_roles: vec!["ops".to_owned()], ..User::default() };
    accounts.put_user("ann", user, Some("ann-secret".to_owned())).await.unwrap();
    let mapping = Mapping { backend_roles: vec!["ops".to_owned()], ..Mapping::default() };
    accounts.put_mapping("logs", mapping).await.unwrap();
    let login = accounts.login("ann", "ann-secret", HERE).await.unwrap();
    let new = NewApiKey { name: "key".to_owned(), roles: BTreeMap::new(), ..NewApiKey::default() };
    let key = accounts.create_api_key(&login.principal, new).await.unwrap();
    engine.shutdown().await.unwrap();
    drop((engine, accounts));

    let (engine, accounts) = open(dir.path(), "secret").await;
    for (headers, scheme) in [
        (header("authorization", "Basic YW5uOmFubi1zZWNyZXQ="), Scheme::Basic),
        (header("token", &login.token), Scheme::Token),
        (header("authorization", &format!("ApiKey {}", key.encoded)), Scheme::ApiKey),
        (header("authorization", "Basic YWRtaW46c2VjcmV0"), Scheme::Basic),
    ] {
        let shown = accounts.authenticate(&headers, "/", HERE).await.unwrap();
        assert_eq!(shown.scheme, scheme);
        assert!(shown.principal.privileges().on("logs-1").allows(Action::Search), "{scheme:?}");
    }
    engine.shutdown().await.unwrap();
}
