use futures::FutureExt;
use millrace_runtime::Kind;

use super::*;
use crate::{ApiKeyChange, NewApiKey, QueryCheck};

#[tokio::test]
async fn roles_grant_what_they_say_from_the_next_request_on() {
    let server = Server::start().await;
    server.user("ann", &["logs"]).await;
    let ann = basic("ann:ann-secret");
    // The role is not there yet.
    assert!(!server.may(&ann, Action::Search, "logs-1").await);
    server.role("logs", json!({"indices": [{"names": ["logs-*"], "privileges": ["read"]}]})).await;
    assert!(server.may(&ann, Action::Search, "logs-1").await);
    assert!(!server.may(&ann, Action::Search, "metrics").await);
    server.role("logs", json!({"indices": [{"names": ["metrics"], "privileges": ["read"]}]})).await;
    assert!(!server.may(&ann, Action::Search, "logs-1").await);
    assert!(server.may(&ann, Action::Search, "metrics").await);
    let server = server.restart().await;
    assert!(server.may(&ann, Action::Search, "metrics").await);
    server.accounts.delete_role("logs").await.unwrap();
    assert!(!server.may(&ann, Action::Search, "metrics").await);
    assert_eq!(server.accounts.delete_role("logs").await.unwrap_err().kind(), Kind::NotFound);
}

#[tokio::test]
async fn built_in_roles_are_what_they_are() {
    let server = Server::start().await;
    for name in ["admin", "reader"] {
        let put = server.accounts.put_role(name, Role::default()).await.unwrap_err();
        assert_eq!(put.kind(), Kind::Forbidden);
        assert_eq!(server.accounts.delete_role(name).await.unwrap_err().kind(), Kind::Forbidden);
    }
    let of = async |role: &str| {
        server.user(role, &[role]).await;
        server.accounts.principal(role).unwrap()
    };
    let superuser = of("superuser").await;
    let may = |index: &str, action| superuser.privileges().on(index).allows(action);
    assert!(may("logs", Action::DeleteIndex) && may(".console", Action::Search));
    assert!(!may(".console", Action::IndexDocument) && !may("alert", Action::IndexDocument));
    assert!(superuser.privileges().allows(Action::PutSecurity));
    let reader = of("reader").await;
    assert!(reader.privileges().on("logs").allows(Action::GetMappings));
    assert!(!reader.privileges().on(".console").allows(Action::Search));
    assert!(!reader.privileges().allows(Action::PutTemplates) && reader.privileges().allows(Action::Health));
    let ingest = of("ingest").await;
    assert!(ingest.privileges().on("logs").allows(Action::AutoCreate));
    assert!(!ingest.privileges().on("logs").allows(Action::Search));
    let alert = of("alert").await;
    assert!(
        alert.privileges().allows(Action::PutAlerts) && !alert.privileges().allows(Action::PutIntelligence)
    );
    assert!(alert.privileges().on("alert").allows(Action::Search));
    let monitor = of("monitor").await;
    assert!(monitor.privileges().on("logs").allows(Action::IndexStats));
    assert!(!monitor.privileges().on("logs").allows(Action::Search));
}

#[tokio::test]
async fn users_of_the_same_roles_share_what_these_grant() {
    let server = Server::start().await;
    let personal = json!({"indices": [{
        "names": ["mine"], "privileges": ["read"],
        "query": {"bool": {"filter": [{"term": {"owner": "${user.name}"}}]}},
    }]});
    server.role("personal", personal).await;
    for (name, roles) in [
        ("a", &["reader", "monitor"][..]),
        ("b", &["monitor", "reader"]),
        ("c", &["reader"]),
        ("d", &["personal"]),
        ("e\"", &["personal"]),
    ] {
        server.user(name, roles).await;
    }
    let of = |name: &str| Arc::clone(server.accounts.principal(name).unwrap().privileges());
    assert!(Arc::ptr_eq(&of("a"), &of("b")) && !Arc::ptr_eq(&of("a"), &of("c")));
    assert!(Arc::ptr_eq(&of("d"), &of("d")) && !Arc::ptr_eq(&of("d"), &of("e\"")));
    let documents = of("e\"").on("mine").documents(Action::Search);
    let query: Value = serde_json::from_str(&documents[0].any_of[0]).unwrap();
    assert_eq!(query["bool"]["filter"][0]["term"]["owner"], "e\"");
}

#[derive(Debug)]
struct NoScripts;

impl QueryCheck for NoScripts {
    fn check(&self, query: &Value) -> std::result::Result<(), String> {
        if query.get("script").is_some() { Err("[script] is not available".to_owned()) } else { Ok(()) }
    }
}

#[tokio::test]
async fn queries_are_checked_by_who_knows_them() {
    let store: Arc<Memory> = Arc::default();
    let config = Config { admin_password: Some("secret".to_owned()), ..Config::default() };
    let clock: SharedClock = Arc::new(ManualClock::new(START_MS));
    let (accounts, _) = Accounts::open(store, config, clock, Arc::new(NoScripts)).await.unwrap();
    let role = |query: Value| {
        Role::from_elasticsearch(
            &json!({"indices": [{"names": ["a"], "privileges": ["read"], "query": query}]}),
        )
        .unwrap()
    };
    accounts.put_role("a", role(json!({"match_all": {}}))).await.unwrap();
    let refused = accounts.put_role("a", role(json!({"script": {}}))).await.unwrap_err();
    assert_eq!(refused.to_string(), "query of a role: [script] is not available");
}

/// Notes the threads that queries are checked on.
#[derive(Debug, Default)]
struct Threads(parking_lot::Mutex<Vec<std::thread::ThreadId>>);

impl QueryCheck for Threads {
    fn check(&self, _: &Value) -> std::result::Result<(), String> {
        self.0.lock().push(std::thread::current().id());
        Ok(())
    }
}

#[tokio::test]
async fn roles_are_not_understood_on_the_thread_of_requests() {
    let (store, threads): (Arc<Memory>, Arc<Threads>) = Default::default();
    let clock: SharedClock = Arc::new(ManualClock::new(START_MS));
    let config = Config { admin_password: Some("secret".to_owned()), ..Config::default() };
    let meaning = Arc::clone(&threads) as Arc<dyn QueryCheck>;
    let (accounts, _) = Accounts::open(store, config, clock, meaning).await.unwrap();
    let grant = json!({"names": ["a"], "privileges": ["read"], "query": {"match_all": {}}});
    let role = Role::from_elasticsearch(&json!({"indices": [grant]})).unwrap();
    assert!(accounts.put_role("a", role.clone()).await.unwrap());
    assert!(!accounts.put_role("a", role.clone()).await.unwrap(), "it is there");
    let of_role = threads.0.lock().len();
    // Nor are those that API keys describe.
    let (owner, roles) = (accounts.administrator(), BTreeMap::from([("a".to_owned(), role)]));
    let new = NewApiKey { name: "k".to_owned(), roles: roles.clone(), ..NewApiKey::default() };
    let made = accounts.create_api_key(&owner, new).await.unwrap();
    let change = ApiKeyChange { roles: Some(roles), ..ApiKeyChange::default() };
    accounts.update_api_key("admin", &made.key.id, change).await.unwrap();
    let threads = threads.0.lock();
    assert!(
        of_role > 0 && threads.len() > of_role && !threads.contains(&std::thread::current().id()),
        "{threads:?}"
    );
}

#[tokio::test]
async fn a_thousand_roles_of_a_thousand_patterns_answer() {
    let server = Server::start().await;
    let mut records = Vec::new();
    for role in 0..1_000 {
        let names: Vec<_> = (0..1_000).map(|name| format!("index-{role}-{name}-*")).collect();
        let body = json!({"v": 1, "indices": [{"names": names, "privileges": ["read"]}]}).to_string();
        records.push(AccountChange::Put(AccountRecord {
            kind: "role".into(),
            name: format!("r{role}"),
            body,
        }));
    }
    server.store.put_accounts(&records).await.unwrap();
    let server = server.restart().await;
    let roles: Vec<_> = (0..1_000).map(|role| format!("r{role}")).collect();
    let user = User { roles, ..User::default() };
    server.accounts.put_user("ann", user, Some("ann-secret".to_owned())).await.unwrap();
    let ann = basic("ann:ann-secret");
    assert!(server.may(&ann, Action::Search, "index-999-999-x").await);
    assert!(!server.may(&ann, Action::Search, "index-999-1000-x").await);
    // No more than that.
    let one = json!({"indices": [{"names": ["x"], "privileges": ["read"]}]});
    let more = server.accounts.put_role("more", Role::from_elasticsearch(&one).unwrap()).await.unwrap_err();
    assert_eq!(more.kind(), Kind::TooLarge);
}

/// A server with a user ann whose roles have a great many patterns.
async fn with_many_patterns() -> Server {
    let server = Server::start().await;
    let roles: Vec<_> = (0..11).map(|role| format!("r{role}")).collect();
    for role in &roles {
        let names: Vec<_> = (0..1_000).map(|name| format!("index-{role}-{name}-*")).collect();
        server.role(role, json!({"indices": [{"names": names, "privileges": ["read"]}]})).await;
    }
    let roles: Vec<_> = roles.iter().map(String::as_str).collect();
    server.user("ann", &roles).await;
    server
}

#[tokio::test]
async fn what_others_may_do_is_found_off_the_thread_of_requests_where_it_is_much() {
    let server = with_many_patterns().await;
    server.user("ben", &["reader"]).await;
    let accounts = &server.accounts;
    let under_way = accounts.0.compiling.lock().await;
    let mut ann = Box::pin(accounts.find_principal("ann"));
    assert!(ann.as_mut().now_or_never().is_none(), "they come one behind another");
    assert_eq!(accounts.find_principal("ben").await.unwrap().unwrap().name(), "ben");
    drop(under_way);
    let ann = ann.await.unwrap().unwrap();
    assert!(ann.privileges().on("index-r10-999-x").allows(Action::Search));
    assert!(Arc::ptr_eq(ann.privileges(), accounts.principal("ann").unwrap().privileges()));
}

#[test]
fn what_is_found_for_a_request_that_has_gone_is_found_before_the_next() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build();
    runtime.unwrap().block_on(async {
        let server = with_many_patterns().await;
        let accounts = &server.accounts;
        // No thread is left to begin it on.
        let (free, freed) = std::sync::mpsc::channel::<()>();
        let busy = tokio::task::spawn_blocking(move || freed.recv());
        let mut gone = Box::pin(accounts.find_principal("ann"));
        assert!(gone.as_mut().now_or_never().is_none());
        drop(gone);
        assert!(accounts.0.compiling.try_lock().is_err(), "it is still to be done");
        free.send(()).unwrap();
        busy.await.unwrap().unwrap();
        drop(accounts.0.compiling.lock().await);
        assert!(accounts.find_principal("ann").now_or_never().is_some(), "it is remembered");
    });
}

#[tokio::test]
async fn a_stored_role_of_another_version_grants_nothing_it_does_not_say() {
    let server = Server::start().await;
    server.user("ann", &["later", "reader"]).await;
    let later =
        r#"{"v":2,"cluster":["all"],"indices":[{"names":["x"],"privileges":["new_privilege"]}],"new":1}"#;
    let put = |kind: &str, name: &str, body: &str| {
        AccountChange::Put(AccountRecord { kind: kind.into(), name: name.into(), body: body.into() })
    };
    server.store.put_accounts(&[put("role", "later", later), put("new_kind", "x", "?")]).await.unwrap();
    let server = server.restart().await;
    let ann = server.accounts.principal("ann").unwrap();
    assert!(!ann.privileges().allows(Action::PutSecurity) && ann.privileges().allows(Action::Health));
    // What cannot be read at all stops the start, by name.
    server.store.put_accounts(&[put("user", "broken", "{")]).await.unwrap();
    let error = open_as(&server.store, &server.clock, Config::default()).await.unwrap_err();
    assert!(error.to_string().contains("stored user [broken] cannot be read"), "{error}");
}

#[tokio::test]
async fn more_sets_of_roles_than_are_remembered_are_right_all_the_same() {
    let server = Server::start().await;
    let put = |kind: &str, name: String, body: Value| {
        AccountChange::Put(AccountRecord { kind: kind.into(), name, body: body.to_string() })
    };
    let mut records = Vec::new();
    for number in 0..1_500 {
        let role =
            json!({"v": 1, "indices": [{"names": [format!("index-{number}")], "privileges": ["read"]}]});
        records.push(put("role", format!("r{number}"), role));
        records.push(put("user", format!("u{number}"), json!({"v": 1, "roles": [format!("r{number}")]})));
    }
    server.store.put_accounts(&records).await.unwrap();
    let server = server.restart().await;
    for _ in 0..2 {
        for number in 0..1_500 {
            let principal = server.accounts.principal(&format!("u{number}")).unwrap();
            assert!(principal.privileges().on(&format!("index-{number}")).allows(Action::Search));
            assert!(!principal.privileges().on(&format!("index-{}", number + 1)).allows(Action::Search));
        }
    }
}

#[tokio::test]
async fn documents_of_rules_are_for_their_roles_and_for_full_rights() {
    let server = Server::start().await;
    let all = |documents: Value| {
        let mut grant = json!({"names": ["*"], "privileges": ["all"], "allow_restricted_indices": true});
        grant.as_object_mut().unwrap().extend(documents.as_object().unwrap().clone());
        json!({"cluster": ["all"], "indices": [grant]})
    };
    server.role("everything", all(json!({}))).await;
    server.role("nearly", all(json!({"query": "{\"match_all\":{}}"}))).await;
    server.role("soc", json!({})).await;
    for role in ["superuser", "all_access", "everything"] {
        server.user(role, &[role]).await;
    }
    for role in ["admin", "superuser", "all_access", "everything"] {
        let principal = server.accounts.principal(role).unwrap();
        assert!(principal.privileges().sees_all_of_rules(), "{role}");
        assert!(principal.privileges().on("alert").sees_all(Action::Search), "{role}");
    }
    for (user, roles) in [("reader", &["reader"][..]), ("ann", &["soc", "reader"]), ("nearly", &["nearly"])] {
        server.user(user, roles).await;
        let principal = server.accounts.principal(user).unwrap();
        let privileges = principal.privileges();
        assert!(!privileges.sees_all_of_rules(), "{user}");
        for index in ["alert", "alert_status", "alert_error", "alert_silence"] {
            let rules = privileges.on(index).documents(Action::Search);
            let of_roles = rules.last().unwrap();
            assert!(
                of_roles.any_of.len() == 1 && of_roles.any_of[0].contains("\"field\":\"roles\""),
                "{rules:?}"
            );
            assert_eq!(of_roles.any_of[0].contains("soc"), user == "ann", "{rules:?}");
        }
        assert!(user == "nearly" || privileges.on("alerts").sees_all(Action::Search));
    }
}
