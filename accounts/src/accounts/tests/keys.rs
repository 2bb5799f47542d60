use std::time::Duration;

use futures::FutureExt;
use millrace_catalog::access::{ActionSet, Scope};
use millrace_runtime::Kind;
use proptest::prelude::*;

use super::*;
use crate::limits::MAX_KEYS_OF_USER;
use crate::{ApiKeyChange, ApiKeyQuery, CreatedApiKey, IndexGrant, InvalidationReport, NewApiKey};

fn key(created: &CreatedApiKey) -> HeaderMap {
    authorization(&format!("ApiKey {}", created.encoded))
}

fn descriptors(body: Value) -> BTreeMap<String, Role> {
    [("key".to_owned(), Role::from_elasticsearch(&body).unwrap())].into()
}

fn reads(index: &str) -> BTreeMap<String, Role> {
    descriptors(json!({"index": [{"names": [index], "privileges": ["read"]}]}))
}

impl Server {
    async fn key(&self, owner: &str, roles: BTreeMap<String, Role>) -> CreatedApiKey {
        let owner = self.accounts.principal(owner).unwrap();
        let new = NewApiKey { name: "shipper".to_owned(), roles, ..NewApiKey::default() };
        self.accounts.create_api_key(&owner, new).await.unwrap()
    }
}

#[tokio::test]
async fn a_key_does_what_it_says_of_what_its_owner_may() {
    let server = Server::start().await;
    server.user("ann", &["reader"]).await;
    let all = server.key("ann", BTreeMap::new()).await;
    let logs = descriptors(json!({
        "cluster": ["all"],
        "index": [{"names": ["logs-*", ".console"], "privileges": ["all"], "allow_restricted_indices": true}],
    }));
    let some = server.key("ann", logs).await;
    assert_eq!((some.key.id.len(), some.secret.len()), (20, 22));
    let shown = server.ask(&key(&all)).await.unwrap();
    assert_eq!((shown.principal.name(), shown.scheme), ("ann", Scheme::ApiKey));
    assert_eq!(shown.principal.caller().to_string(), format!("API key id [{}] of user [ann]", all.key.id));
    assert!(server.may(&key(&all), Action::Search, "metrics").await);
    assert!(server.may(&key(&some), Action::Search, "logs-1").await);
    for (action, index) in
        [(Action::Search, "metrics"), (Action::IndexDocument, "logs-1"), (Action::Search, ".console")]
    {
        assert!(!server.may(&key(&some), action, index).await, "{action} {index}");
    }
    let some_principal = server.ask(&key(&some)).await.unwrap().principal;
    assert!(!some_principal.privileges().allows(Action::PutSecurity));
    assert!(some_principal.roles().is_empty());
    // It follows its owner at once, and through restarts.
    let writer = User { roles: list(&["ingest"]), ..User::default() };
    server.accounts.put_user("ann", writer, None).await.unwrap();
    assert!(!server.may(&key(&some), Action::Search, "logs-1").await);
    assert!(server.may(&key(&some), Action::IndexDocument, "logs-1").await);
    let server = server.restart().await;
    assert!(server.may(&key(&some), Action::IndexDocument, "logs-1").await);
    assert!(!server.may(&key(&some), Action::IndexDocument, "metrics").await);
    server.accounts.enable_user("ann", false).await.unwrap();
    assert_eq!(status(&server.ask(&key(&some)).await), 401);
    server.accounts.enable_user("ann", true).await.unwrap();
    assert_eq!(status(&server.ask(&key(&some)).await), 200);
    // Whoever gets the name has none of the keys.
    server.accounts.delete_user("ann").await.unwrap();
    server.user("ann", &["reader"]).await;
    assert_eq!(status(&server.ask(&key(&all)).await), 401);
}

#[tokio::test]
async fn secrets_are_needed_and_not_kept() {
    let server = Server::start().await;
    server.user("ann", &["reader"]).await;
    let (mine, other) = (server.key("ann", BTreeMap::new()).await, server.key("ann", BTreeMap::new()).await);
    for pair in [
        format!("{}:{}", mine.key.id, other.secret),
        format!("{}:", mine.key.id),
        format!("nothing:{}", mine.secret),
    ] {
        let headers = authorization(&format!("ApiKey {}", STANDARD.encode(pair)));
        assert_eq!(status(&server.ask(&headers).await), 401);
    }
    assert!(server.store.records.lock().values().all(|body| !body.contains(&mine.secret)));
    // A key makes no keys.
    let principal = server.ask(&key(&mine)).await.unwrap().principal;
    let new = NewApiKey { name: "child".to_owned(), ..NewApiKey::default() };
    let refused = server.accounts.create_api_key(&principal, new).await.unwrap_err();
    assert_eq!(refused.kind(), Kind::Forbidden);
}

#[tokio::test]
async fn keys_expire_are_revoked_and_forgotten() {
    let server = Server::start().await;
    for name in ["ann", "ben"] {
        server.user(name, &["reader"]).await;
    }
    let accounts = &server.accounts;
    let ann = accounts.principal("ann").unwrap();
    let new = |name: &str, hours: u64| NewApiKey {
        name: name.to_owned(),
        expires_in: Some(Duration::from_secs(hours * 3600)),
        ..NewApiKey::default()
    };
    let short = accounts.create_api_key(&ann, new("short", 1)).await.unwrap();
    let long = accounts.create_api_key(&ann, new("long", 10_000)).await.unwrap();
    let bens = server.key("ben", BTreeMap::new()).await;
    assert_eq!(short.key.expires_ms, Some(START_MS + HOUR_MS));
    let never = NewApiKey { expires_in: Some(Duration::ZERO), ..new("never", 0) };
    assert_eq!(accounts.create_api_key(&ann, never).await.unwrap_err().kind(), Kind::InvalidInput);
    server.clock.advance_ms(HOUR_MS - 1);
    assert_eq!(status(&server.ask(&key(&short)).await), 200);
    server.clock.advance_ms(1);
    assert_eq!(status(&server.ask(&key(&short)).await), 401);
    let names = async |query: ApiKeyQuery| {
        let keys = accounts.api_keys(query).await.unwrap();
        let mut names: Vec<_> = keys.iter().map(|key| key.name.to_string()).collect();
        names.sort();
        names
    };
    let of_ann = ApiKeyQuery { owner: Some("ann".to_owned()), ..ApiKeyQuery::default() };
    assert_eq!(names(of_ann.clone()).await, ["long", "short"]);
    assert_eq!(names(ApiKeyQuery { active_only: true, ..of_ann.clone() }).await, ["long"]);
    assert_eq!(
        names(ApiKeyQuery { name: Some("s*".to_owned()), ..ApiKeyQuery::default() }).await,
        ["shipper", "short"]
    );
    // Of somebody else's there is none.
    let ids = Some(vec![bens.key.id.to_string(), long.key.id.to_string()]);
    let done = accounts.invalidate_api_keys(ApiKeyQuery { ids, ..of_ann.clone() }).await.unwrap();
    assert_eq!(
        done,
        InvalidationReport { invalidated: vec![Arc::clone(&long.key.id)], previously: Vec::new() }
    );
    assert_eq!(status(&server.ask(&key(&long)).await), 401);
    assert_eq!(status(&server.ask(&key(&bens)).await), 200);
    let again = accounts.invalidate_api_keys(of_ann.clone()).await.unwrap();
    assert_eq!(
        (again.invalidated, again.previously),
        (vec![short.key.id.clone()], vec![long.key.id.clone()])
    );
    server.clock.advance_ms(7 * 24 * HOUR_MS - HOUR_MS);
    accounts.sweep().await.unwrap();
    server.clock.advance_ms(HOUR_MS);
    assert_eq!(accounts.sweep().await.unwrap(), 2);
    let server = server.restart().await;
    assert_eq!(server.accounts.api_keys(ApiKeyQuery::default()).await.unwrap().len(), 1);
    assert_eq!(status(&server.ask(&key(&bens)).await), 200);
}

#[tokio::test]
async fn keys_are_changed_by_their_owners() {
    let server = Server::start().await;
    for name in ["ann", "ben"] {
        server.user(name, &["reader"]).await;
    }
    let accounts = &server.accounts;
    let created = server.key("ann", reads("a")).await;
    assert!(server.may(&key(&created), Action::Search, "a").await);
    let change = || ApiKeyChange { roles: Some(reads("b")), ..ApiKeyChange::default() };
    assert!(accounts.update_api_key("ann", &created.key.id, change()).await.unwrap());
    assert!(!accounts.update_api_key("ann", &created.key.id, change()).await.unwrap());
    assert!(!server.may(&key(&created), Action::Search, "a").await);
    assert!(server.may(&key(&created), Action::Search, "b").await);
    let others = accounts.update_api_key("ben", &created.key.id, change()).await.unwrap_err();
    assert_eq!(others.kind(), Kind::NotFound);
    accounts.invalidate_api_keys(ApiKeyQuery::default()).await.unwrap();
    let over = accounts.update_api_key("ann", &created.key.id, change()).await.unwrap_err();
    assert_eq!(over.kind(), Kind::InvalidInput);
}

#[tokio::test]
async fn what_a_key_cannot_be_is_refused() {
    let server = Server::start().await;
    let admin = server.accounts.administrator();
    let many: BTreeMap<_, _> = (0..101).map(|n| (n.to_string(), Role::default())).collect();
    let long: Vec<_> = (0..1000).map(|n| format!("{n}{}", "x".repeat(100))).collect();
    for (name, roles) in [
        ("", BTreeMap::new()),
        ("key", many),
        ("key", descriptors(json!({"index": [{"names": long, "privileges": ["read"]}]}))),
        ("key", descriptors(json!({"index": [{"names": ["/a.*/"], "privileges": ["read"]}]}))),
        ("key", descriptors(json!({"index": [{"names": ["a"], "privileges": ["reed"]}]}))),
    ] {
        let new = NewApiKey { name: name.to_owned(), roles, ..NewApiKey::default() };
        server.accounts.create_api_key(&admin, new).await.unwrap_err();
    }
    assert!(server.accounts.api_keys(ApiKeyQuery::default()).await.unwrap().is_empty());
}

#[tokio::test]
async fn patterns_of_names_are_bounded() {
    let server = Server::start().await;
    let accounts = &server.accounts;
    server.key("admin", BTreeMap::new()).await;
    let named = |name: String| ApiKeyQuery { name: Some(name), ..ApiKeyQuery::default() };
    for pattern in ["*i".repeat(9), "s".repeat(508)] {
        accounts.api_keys(named(pattern.clone())).await.unwrap_err();
        accounts.invalidate_api_keys(named(pattern)).await.unwrap_err();
    }
    // Whoever changes accounts waits for no search, and the other way round.
    let changing = accounts.0.changing.lock().await;
    assert_eq!(accounts.api_keys(named("*s*h*i*p*p*e*r*".to_owned())).await.unwrap().len(), 1);
    drop(changing);
    assert_eq!(accounts.invalidate_api_keys(named("s*r".to_owned())).await.unwrap().invalidated.len(), 1);
}

#[tokio::test]
async fn searches_wait_for_their_turn_and_end_with_those_who_wait() {
    let server = Server::start().await;
    let searching = Arc::clone(&server.accounts.0.searching);
    let created = server.key("admin", BTreeMap::new()).await;
    let search = || Box::pin(server.accounts.api_keys(ApiKeyQuery::default()));
    let under_way = searching.acquire_many(SEARCHES as u32).await.unwrap();
    let mut waits = search();
    assert!(waits.as_mut().now_or_never().is_none());
    // What has an id is found all the same.
    let ids = Some(vec![created.key.id.to_string(); 2]);
    let of_id = ApiKeyQuery { ids, ..ApiKeyQuery::default() };
    assert_eq!(server.accounts.api_keys(of_id).await.unwrap().len(), 1);
    // So is what those look for who manage all keys, and they revoke it.
    let managed = ApiKeyQuery { by_manager: true, ..ApiKeyQuery::default() };
    assert_eq!(server.accounts.api_keys(managed.clone()).await.unwrap().len(), 1);
    assert_eq!(server.accounts.invalidate_api_keys(managed).await.unwrap().invalidated.len(), 1);
    drop(under_way);
    assert_eq!(waits.await.unwrap().len(), 1);
    for _ in 0..10 {
        let _gone = search().as_mut().now_or_never();
    }
    drop(searching.acquire_many(SEARCHES as u32).await.unwrap());
    assert_eq!(search().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_user_has_a_share_of_the_room_for_keys_and_gives_it_back() {
    let server = Server::start().await;
    let accounts = &server.accounts;
    let bytes = || accounts.0.state.load().key_bytes;
    // A value that is kept is more than its text.
    let values = vec![0; 30_000];
    let noted = NewApiKey {
        name: "noted".to_owned(),
        metadata: [("a".to_owned(), json!(values))].into_iter().collect(),
        ..NewApiKey::default()
    };
    let described = NewApiKey {
        name: "described".to_owned(),
        roles: descriptors(json!({ "applications": [values] })),
        ..NewApiKey::default()
    };
    for (name, heavy) in [("ann", noted), ("ben", described)] {
        server.user(name, &["reader"]).await;
        let owner = accounts.principal(name).unwrap();
        let make = || accounts.create_api_key(&owner, heavy.clone());
        let mut made = 0;
        let refused = loop {
            match make().await {
                Ok(_) => made += 1,
                Err(error) => break error,
            }
            assert!(made < 100, "without a bound");
        };
        assert!(made > 0, "{refused}");
        assert!(refused.to_string().contains("bytes of API keys of one user"), "{refused}");
        // What is over needs little, though it can be listed.
        let before = bytes();
        let of_user = ApiKeyQuery { owner: Some(name.to_owned()), ..ApiKeyQuery::default() };
        accounts.invalidate_api_keys(of_user.clone()).await.unwrap();
        let left = accounts.api_keys(of_user).await.unwrap();
        assert_eq!(left.len(), made);
        assert!(left.iter().all(|key| key.metadata.is_empty() && key.roles.is_empty()));
        assert!(bytes() < before / 10, "{} of {before}", bytes());
        make().await.unwrap();
        accounts.delete_user(name).await.unwrap();
        assert!(bytes() < before / 10, "{} of {before}", bytes());
    }
}

/// Stores so many keys and tokens of a user, of which each secret is its number, and starts again.
async fn with_many(server: Server, count: usize) -> Server {
    let mut records = Vec::new();
    for number in 0..count {
        let hash = crate::secret::Hash::new(&format!("{number:064}")).hex();
        let put = |kind: &str, name: String, body: String| {
            AccountChange::Put(AccountRecord { kind: kind.into(), name, body })
        };
        let key = format!(r#"{{"v":1,"name":"k","owner":"ann","hash":"{hash}","created_ms":{START_MS}}}"#);
        records.push(put("api_key", format!("id-{number}"), key));
        let body = format!(r#"{{"v":1,"user":"ann","created_ms":{START_MS},"used_ms":{START_MS}}}"#);
        records.push(put("token", hash, body));
    }
    server.store.put_accounts(&records).await.unwrap();
    server.restart().await
}

#[tokio::test]
async fn a_hundred_thousand_keys_and_tokens_are_found() {
    const COUNT: usize = MAX_KEYS_OF_USER - 1;
    let server = Server::start().await;
    server.user("ann", &["reader"]).await;
    let server = with_many(server, COUNT).await;
    for number in [0, 1, 77_777, COUNT - 1] {
        let pair = STANDARD.encode(format!("id-{number}:{number:064}"));
        assert_eq!(status(&server.ask(&authorization(&format!("ApiKey {pair}"))).await), 200);
        assert_eq!(status(&server.ask(&token(&format!("{number:064}"))).await), 200);
    }
    let pair = STANDARD.encode(format!("id-{COUNT}:{COUNT:064}"));
    assert_eq!(status(&server.ask(&authorization(&format!("ApiKey {pair}"))).await), 401);
    assert_eq!(status(&server.ask(&token(&format!("{COUNT:064}"))).await), 401);
    let created = server.key("ann", BTreeMap::new()).await;
    assert_eq!(status(&server.ask(&key(&created)).await), 200);
    let owner = server.accounts.principal("ann").unwrap();
    let new = NewApiKey { name: "more".to_owned(), ..NewApiKey::default() };
    let more = server.accounts.create_api_key(&owner, new).await.unwrap_err();
    assert!(matches!(more, Error::TooMany { what: "API keys of one user", .. }), "{more}");
}

#[tokio::test]
async fn a_user_has_half_of_the_keys_that_others_leave() {
    let server = Server::start().await;
    for name in ["ann", "ben", "cid"] {
        server.user(name, &["reader"]).await;
    }
    let hash = crate::secret::Hash::new("secret").hex();
    let put = |owner: &str, number: usize| {
        let (kind, name) = ("api_key".into(), format!("{owner}-{number}"));
        let body =
            format!(r#"{{"v":1,"name":"k","owner":"{owner}","hash":"{hash}","created_ms":{START_MS}}}"#);
        AccountChange::Put(AccountRecord { kind, name, body })
    };
    // One less than ben may have beside ann.
    let (of_ann, of_ben) = (MAX_KEYS_OF_USER, MAX_KEYS_OF_USER / 2 - 1);
    let records = (0..of_ann).map(|number| put("ann", number));
    let records: Vec<_> = records.chain((0..of_ben).map(|number| put("ben", number))).collect();
    server.store.put_accounts(&records).await.unwrap();
    let server = server.restart().await;
    server.key("ben", BTreeMap::new()).await;
    for (name, expected) in [("ann", of_ann - of_ann / 4), ("ben", of_ann / 2)] {
        let owner = server.accounts.principal(name).unwrap();
        let new = NewApiKey { name: "more".to_owned(), ..NewApiKey::default() };
        let refused = server.accounts.create_api_key(&owner, new).await.unwrap_err();
        let Error::TooMany { what: "API keys of one user", limit } = refused else {
            panic!("{name}: {refused}")
        };
        assert_eq!(limit, expected, "{name}");
    }
    server.key("cid", BTreeMap::new()).await;
}

#[tokio::test]
async fn a_key_gets_smaller_however_much_its_owner_has() {
    let server = Server::start().await;
    server.user("ann", &["reader"]).await;
    let hash = crate::secret::Hash::new("secret").hex();
    let put = |number: usize| {
        let metadata = json!({"a": "x".repeat(60_000)});
        let body = json!({
            "v": 1, "name": "k", "owner": "ann", "hash": hash, "created_ms": START_MS, "metadata": metadata,
        });
        let (kind, name) = ("api_key".into(), format!("id-{number}"));
        AccountChange::Put(AccountRecord { kind, name, body: body.to_string() })
    };
    server.store.put_accounts(&(0..300).map(put).collect::<Vec<_>>()).await.unwrap();
    let server = server.restart().await;
    let noted = |length: usize| ApiKeyChange {
        metadata: Some([("a".to_owned(), json!("x".repeat(length)))].into_iter().collect()),
        ..ApiKeyChange::default()
    };
    assert!(server.accounts.update_api_key("ann", "id-1", noted(59_000)).await.unwrap());
    let larger = server.accounts.update_api_key("ann", "id-1", noted(59_001)).await.unwrap_err();
    assert!(matches!(larger, Error::TooMany { what: "bytes of API keys of one user", .. }), "{larger}");
}

#[tokio::test]
async fn all_that_a_user_had_goes_with_it() {
    const COUNT: usize = 11_000;
    let server = Server::start().await;
    server.user("ann", &["reader"]).await;
    let server = with_many(server, COUNT).await;
    server.accounts.delete_user("ann").await.unwrap();
    server.user("ann", &["reader"]).await;
    let active = ApiKeyQuery { active_only: true, ..ApiKeyQuery::default() };
    assert!(server.accounts.api_keys(active).await.unwrap().is_empty());
    assert_eq!(status(&server.ask(&token(&format!("{:064}", 1))).await), 401);
    server.clock.advance_ms(8 * 24 * HOUR_MS);
    assert_eq!(server.accounts.sweep().await.unwrap(), COUNT);
    let kinds = server.store.records.lock().keys().map(|(kind, _)| kind.clone()).collect::<Vec<_>>();
    assert_eq!(kinds, ["user", "user"]);
}

fn grants() -> impl Strategy<Value = Role> {
    let names = proptest::sample::subsequence(vec!["a*", "ab", "*", "b?", ".console", "alert", "/a./"], 1..4);
    let privileges = proptest::sample::subsequence(
        vec!["read", "write", "manage", "create_doc", "monitor", "indices:data/read/*", "all"],
        0..4,
    );
    let query =
        proptest::option::of(proptest::sample::select(vec![r#"{"term":{"a":1}}"#, r#"{"match_all":{}}"#]));
    let grant =
        (names, privileges, any::<bool>(), query).prop_map(|(names, privileges, system, query)| IndexGrant {
            names: list(&names),
            privileges: list(&privileges),
            allow_restricted_indices: system,
            query: query.map(str::to_owned),
            field_security: None,
        });
    let cluster = proptest::sample::subsequence(vec!["all", "monitor", "manage_security", "none"], 0..3);
    (cluster, proptest::collection::vec(grant, 0..4)).prop_map(|(cluster, indices)| Role {
        cluster: list(&cluster),
        indices,
        ..Role::default()
    })
}

proptest! {
    #[test]
    fn a_key_never_may_what_its_owner_may_not(owner in grants(), of_key in proptest::collection::vec(grants(), 1..3)) {
        use crate::privileges::{CompiledRole, Reader, privileges};
        let reader = Reader { user: "ann", roles: &[] };
        let compiled: Vec<_> = of_key.iter().map(|role| CompiledRole::new(role).unwrap()).collect();
        let owner = Arc::new(privileges([CompiledRole::new(&owner).unwrap()].iter(), reader));
        let alone = privileges(compiled.iter(), reader);
        let key = privileges(compiled.iter(), reader).within(Arc::clone(&owner));
        for action in Action::ALL.iter().copied().filter(|action| action.scope() != Scope::Own) {
            prop_assert!(!key.allows(action) || (owner.allows(action) && alone.allows(action)), "{}", action);
        }
        for index in ["a", "ab", "b1", "zz", ".console", "alert", ".audit-1"] {
            let (of_key, of_owner, own) = (key.on(index), owner.on(index), alone.on(index));
            let both: ActionSet = of_owner.actions().and(own.actions());
            prop_assert_eq!(of_key.actions(), both, "{}", index);
            // Each rule of the owner's holds for the key, too.
            for action in both.iter() {
                let rules = of_key.documents(action);
                prop_assert!(of_owner.documents(action).iter().all(|rule| rules.contains(rule)));
                prop_assert!(own.documents(action).iter().all(|rule| rules.contains(rule)));
            }
        }
    }

    #[test]
    fn bodies_of_roles_are_read_or_refused(role in grants(), cut in 0..400usize, junk in "\\PC{0,8}") {
        let body = role.to_elasticsearch().to_string();
        crate::fuzzing::role(body.as_bytes());
        let mut at = cut.min(body.len());
        while !body.is_char_boundary(at) { at -= 1; }
        crate::fuzzing::role(format!("{}{junk}{}", &body[..at], &body[at..]).as_bytes());
        crate::fuzzing::credentials(junk.as_bytes());
    }
}
