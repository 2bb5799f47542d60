//! Users, roles, API keys and logins, as those who send requests see them.

mod bounds;
mod hidden;

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use millrace_accounts::TokenLifetimes;
use millrace_listen::ClientCertificate;
use millrace_storage::ManualClock;
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

fn basic(name: &str, password: &str) -> String {
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

#[tokio::test]
async fn who_logs_in_gets_a_token() {
    let site = Site::start().await;
    let role = json!({
        "cluster": ["monitor"],
        "applications": [{ "application": "alerts", "privileges": ["all"], "resources": ["*"] }],
    });
    site.admin("PUT /_security/role/operator", role, 200).await;
    site.user("ann", &["operator", "reader"]).await;
    let body = json!({ "username": "ann", "password": "annann" }).to_string();
    let answer = site.node.ask("PUT /_service/login", &body, 200).await;
    let token = answer["token"].as_str().unwrap();
    let expected = json!({
        "status": 200, "username": "ann", "roles": ["operator", "reader"], "apps": ["alerts"], "token": token,
    });
    assert_eq!(answer, expected);
    let bearer = format!("Bearer {token}");
    for header in [("token", token), ("authorization", &*bearer)] {
        let who = site.send(header, "GET /_security/_authenticate", &Value::Null).await.json();
        assert_eq!((&who["username"], &who["authentication_type"]), (&json!("ann"), &json!("token")));
    }
    // Another login is another token.
    let other = site.login("ann", "annann").await;
    let ended = site.send(("token", token), "DELETE /_service/login", &Value::Null).await;
    assert_eq!(ended.json(), json!({ "status": 200, "username": "ann" }));
    assert_eq!(site.status_of(("token", token)).await, 401);
    assert_eq!(site.status_of(("token", &other)).await, 200);
    // Only a token can be ended.
    site.ask(&basic("ann", "annann"), "DELETE /_service/login", Value::Null, 400).await;
}

#[tokio::test]
async fn wrong_logins_all_look_the_same() {
    let site = Site::start().await;
    site.user("ann", &[]).await;
    site.user("off", &[]).await;
    site.admin("PUT /_security/user/off/_disable", Value::Null, 200).await;
    for (name, password) in [("ann", "wrong"), ("nobody", "wrong"), ("off", "offoff"), ("", "")] {
        let body = json!({ "username": name, "password": password }).to_string();
        let answer = site.node.ask("POST /_service/login", &body, 401).await;
        assert_eq!((&answer["status"], answer.get("token")), (&json!(401), None));
        let reason = format!("unable to authenticate user [{name}] for REST request [/_service/login]");
        assert_eq!(answer["error"]["reason"], reason);
        assert_eq!(answer["error"]["type"], "security_exception");
    }
    for (body, reason) in [
        ("", "request body of login is required"),
        ("[]", "login must be an object, found an array"),
        (r#"{"username":"ann"}"#, "[password] of login is missing"),
        (r#"{"username":"ann","password":["hunter2"]}"#, "[password] must be a string, found an array"),
        (r#"{"username":"ann","password":"annann","otp":1}"#, "unexpected member [otp] in login"),
    ] {
        let answer = site.node.ask("PUT /_service/login", body, 400).await;
        let found = answer["error"]["reason"].as_str().unwrap();
        assert!(found.contains(reason) && !found.contains("hunter2"), "{body}: {found}");
    }
    // Who shows no credentials sends little.
    let long = json!({ "username": "ann", "password": "x".repeat(20 << 10) }).to_string();
    site.node.ask("PUT /_service/login", &long, 413).await;
    for line in
        ["GET /_service/login", "PUT /_service/accounts", "DELETE /_service/login", "GET /_security/user"]
    {
        assert_eq!(site.node.send(line, &[], "").await.status, 401, "{line}");
    }
}

#[tokio::test]
async fn tokens_end_when_idle_and_after_their_lifetime() {
    let site = Site::start().await;
    site.user("ann", &[]).await;
    let (idle, used) = (site.login("ann", "annann").await, site.login("ann", "annann").await);
    for _ in 0..3 {
        site.clock.advance_ms(HOUR_MS * 9 / 10);
        assert_eq!(site.status_of(("token", &used)).await, 200);
    }
    assert_eq!(site.status_of(("token", &idle)).await, 401);
    site.clock.advance_ms(HOUR_MS * 4 / 10);
    assert_eq!(site.status_of(("token", &used)).await, 401);
    // Another password ends them, and so does the end of the user.
    let token = site.login("ann", "annann").await;
    let body = json!({ "password": "another" });
    site.admin("PUT /_security/user/ann/_password", body, 200).await;
    assert_eq!(site.status_of(("token", &token)).await, 401);
    let token = site.login("ann", "another").await;
    site.admin("DELETE /_security/user/ann", Value::Null, 200).await;
    assert_eq!(site.status_of(("token", &token)).await, 401);
}

#[tokio::test]
async fn passwords_may_have_colons_and_base64_no_padding() {
    let site = Site::start().await;
    let body = json!({ "password": "a:b:c d", "roles": [] });
    site.admin("PUT /_security/user/ann", body, 200).await;
    for encoded in [STANDARD.encode("ann:a:b:c d"), STANDARD_NO_PAD.encode("ann:a:b:c d")] {
        for scheme in ["Basic", "basic", "BASIC"] {
            let header = format!("{scheme} {encoded}");
            assert_eq!(site.status_of(("authorization", &header)).await, 200, "{header}");
        }
    }
    let twice = [("authorization", &*basic("ann", "a:b:c d")), ("token", &*"a".repeat(64))];
    assert_eq!(site.node.send("GET /_security/_authenticate", &twice, "").await.status, 401);
}

#[tokio::test]
async fn refusals_say_what_would_be_taken() {
    let site = Site::start().await;
    let expected =
        json!(["Basic realm=\"security\", charset=\"UTF-8\"", "Bearer realm=\"security\"", "ApiKey"]);
    for header in [
        ("authorization", "ApiKey YTpi".to_owned()),
        ("authorization", format!("Bearer {}", "0".repeat(64))),
        ("token", "0".repeat(64)),
        ("authorization", basic("admin", "wrong")),
        ("x-other", "1".to_owned()),
    ] {
        let answer = site.send((header.0, &header.1), "GET /", &Value::Null).await;
        assert_eq!(answer.status, 401, "{header:?}");
        assert_eq!(answer.json()["error"]["header"]["WWW-Authenticate"], expected);
        let told: Vec<_> =
            answer.headers.get_all("www-authenticate").iter().map(|value| value.to_str().unwrap()).collect();
        assert_eq!(json!(told), expected);
    }
}

/// Makes a key and returns its answer with the header.
async fn key(site: &Site, authorization: &str, body: Value) -> (Value, String) {
    let made = site.ask(authorization, "POST /_security/api_key", body, 200).await;
    let header = format!("ApiKey {}", made["encoded"].as_str().unwrap());
    (made, header)
}

#[tokio::test]
async fn keys_are_made_used_and_revoked() {
    let site = Site::start().await;
    let made_by = basic("admin", "secret");
    let body = json!({
        "name": "shipper",
        "role_descriptors": {
            "writer": { "cluster": ["monitor"], "index": [{ "names": ["logs-*"], "privileges": ["read"] }] },
        },
        "expiration": "2h",
    });
    let (made, header) = key(&site, &made_by, body).await;
    let (id, secret) = (made["id"].as_str().unwrap(), made["api_key"].as_str().unwrap());
    assert_eq!(made["name"], "shipper");
    assert_eq!(made["expiration"], 1_700_000_000_000_i64 + 2 * HOUR_MS);
    assert_eq!(
        STANDARD.decode(made["encoded"].as_str().unwrap()).unwrap(),
        format!("{id}:{secret}").as_bytes()
    );
    let who = site.ask(&header, "GET /_security/_authenticate", Value::Null, 200).await;
    assert_eq!((&who["username"], &who["api_key"]["id"]), (&json!("admin"), &made["id"]));
    assert_eq!(who["authentication_type"], "api_key");

    // It sees itself, and neither other keys nor what its descriptors leave out.
    let listed = site.ask(&header, "GET /_security/api_key?owner=true", Value::Null, 200).await;
    assert_eq!(listed["api_keys"].as_array().unwrap().len(), 1);
    let shown = &listed["api_keys"][0];
    assert_eq!(shown["role_descriptors"]["writer"]["indices"][0]["names"], json!(["logs-*"]));
    assert_eq!((&shown["invalidated"], &shown["username"]), (&json!(false), &json!("admin")));
    let (_, other) = key(&site, &made_by, json!({ "name": "other" })).await;
    site.ask(&header, "GET /_security/api_key", Value::Null, 403).await;
    site.ask(&header, "GET /_security/user", Value::Null, 403).await;
    let all =
        site.ask(&header, "DELETE /_security/api_key", json!({ "owner": true, "name": "other" }), 200).await;
    assert_eq!(all["invalidated_api_keys"], json!([]));
    assert_eq!(site.status_of(("authorization", &other)).await, 200);

    // It ends.
    site.clock.advance_ms(2 * HOUR_MS);
    assert_eq!(site.status_of(("authorization", &header)).await, 401);
    assert_eq!(site.status_of(("authorization", &other)).await, 200);
    let revoke = json!({ "name": "oth*" });
    let revoked = site.admin("DELETE /_security/api_key", revoke.clone(), 200).await;
    assert_eq!(revoked["invalidated_api_keys"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&revoked["previously_invalidated_api_keys"], &revoked["error_count"]),
        (&json!([]), &json!(0))
    );
    assert_eq!(site.status_of(("authorization", &other)).await, 401);
    let again = site.admin("DELETE /_security/api_key", revoke, 200).await;
    assert_eq!(again["previously_invalidated_api_keys"], revoked["invalidated_api_keys"]);
    let listed = site.admin("GET /_security/api_key?name=other", Value::Null, 200).await;
    assert_eq!(listed["api_keys"][0]["invalidated"], true);
    assert!(listed["api_keys"][0]["invalidation"].is_i64());
}

#[tokio::test]
async fn only_passwords_make_keys() {
    let site = Site::start().await;
    let ann = site.user("ann", &["admin"]).await;
    let token = site.login("ann", "annann").await;
    let (made, header) = key(&site, &ann, json!({ "name": "first" })).await;
    let bearer = format!("Bearer {token}");
    for shown in [&header, &bearer] {
        let answer = site.ask(shown, "POST /_security/api_key", json!({ "name": "second" }), 403).await;
        let reason = answer["error"]["reason"].as_str().unwrap();
        assert!(reason.contains("with Basic authentication"), "{reason}");
        // Nor do they change what a key may do, or whose password it is.
        let line = format!("PUT /_security/api_key/{}", made["id"].as_str().unwrap());
        site.ask(shown, &line, json!({ "role_descriptors": {} }), 403).await;
    }
    // Somebody without the right makes none.
    let ben = site.user("ben", &["reader"]).await;
    site.ask(&ben, "POST /_security/api_key", json!({ "name": "x" }), 403).await;
    let ben_token = format!("Bearer {}", site.login("ben", "benben").await);
    site.ask(&ben_token, "PUT /_security/user/_password", json!({ "password": "stolen" }), 403).await;
    site.ask(&ben, "PUT /_security/user/_password", json!({ "password": "chosen" }), 200).await;
    site.ask(&ben, "GET /_security/_authenticate", Value::Null, 401).await;
    site.ask(&basic("ben", "chosen"), "GET /_security/_authenticate", Value::Null, 200).await;
}

#[tokio::test]
async fn keys_that_cannot_be_are_refused() {
    let site = Site::start().await;
    for (body, reason) in [
        (json!({}), "[name] of API key is missing"),
        (json!({ "name": "" }), "name of API key [] must have 1 to"),
        (json!({ "name": "a", "expiration": "5" }), "[expiration] with value [5]"),
        (json!({ "name": "a", "expiration": "0s" }), "is not possible"),
        (json!({ "name": "a", "expiration": "-1" }), "is not possible"),
        (json!({ "name": "a", "expires": "1d" }), "unexpected member [expires] in API key"),
        (json!({ "name": "a", "metadata": { "_x": 1 } }), "[metadata] may not have [_x]"),
        (json!({ "name": "a", "role_descriptors": [] }), "[role_descriptors] must be an object"),
        (
            json!({ "name": "a", "role_descriptors": { "r": { "cluster": ["monitr"] } } }),
            "did you mean [monitor]?",
        ),
        (
            json!({ "name": "a", "role_descriptors": { "r": { "indexes": [] } } }),
            "role descriptor [r]: unexpected member [indexes] in role",
        ),
        (
            json!({ "name": "a", "role_descriptors": { "r": { "indices": [
                { "names": ["a"], "privileges": ["read"], "query": { "trem": { "a": 1 } } },
            ] } } }),
            "trem",
        ),
    ] {
        let answer = site.admin("PUT /_security/api_key", body.clone(), 400).await;
        let found = answer["error"]["reason"].as_str().unwrap();
        assert!(found.contains(reason), "{body}: {found}");
    }
    for (body, reason) in [
        (json!({}), "must be specified if [owner] flag is false"),
        (json!({ "ids": ["a"], "id": "b" }), "only one of [id, ids]"),
        (json!({ "ids": vec!["a"; 1001] }), "[ids] has more than [1000] entries"),
        (json!({ "owner": true, "username": "admin" }), "[owner] flag is true"),
    ] {
        let answer = site.admin("DELETE /_security/api_key", body, 400).await;
        let found = answer["error"]["reason"].as_str().unwrap();
        assert!(found.contains(reason), "{found}");
    }
    let none = site.admin("GET /_security/api_key?id=none", Value::Null, 404).await;
    assert_eq!(none, json!({ "api_keys": [] }));
    let other_realm = site.admin("GET /_security/api_key?realm_name=ldap1", Value::Null, 200).await;
    assert_eq!(other_realm, json!({ "api_keys": [] }));
    site.admin("PUT /_security/api_key/none", json!({}), 404).await;
}

#[tokio::test]
async fn a_key_never_may_more_than_its_owner_does_now() {
    let site = Site::start().await;
    site.admin("PUT /_security/role/logs", reads("logs-*"), 200).await;
    site.admin("PUT /_security/role/maker", json!({ "cluster": ["manage_own_api_key"] }), 200).await;
    let ann = site.user("ann", &["logs", "maker"]).await;
    let (made, header) = key(&site, &ann, json!({
        "name": "wide",
        "role_descriptors": { "all": { "cluster": ["all"], "indices": [{ "names": "*", "privileges": "all" }] } },
    }))
    .await;
    let (_, same) = key(&site, &ann, json!({ "name": "same" })).await;
    let question = json!({
        "cluster": ["monitor", "manage_security"],
        "index": [{ "names": ["logs-1", "other"], "privileges": ["read", "write"] }],
    });
    let ask = async |header: &str| {
        let answer = site.ask(header, "POST /_security/user/_has_privileges", question.clone(), 200).await;
        assert_eq!(answer["has_all_requested"], false);
        (answer["cluster"].clone(), answer["index"].clone())
    };
    let expected = (
        json!({ "monitor": true, "manage_security": false }),
        json!({ "logs-1": { "read": true, "write": false }, "other": { "read": false, "write": false } }),
    );
    for header in [&header, &same, &ann] {
        assert_eq!(ask(header).await, expected);
    }
    // Less for the owner is less for the key, at once.
    site.user("ann", &["maker"]).await;
    let nothing = (
        json!({ "monitor": false, "manage_security": false }),
        json!({ "logs-1": { "read": false, "write": false }, "other": { "read": false, "write": false } }),
    );
    for header in [&header, &same] {
        assert_eq!(ask(header).await, nothing);
    }
    // The owner changes and revokes its own, not others'.
    let line = format!("PUT /_security/api_key/{}", made["id"].as_str().unwrap());
    let changed = site.ask(&ann, &line, json!({ "metadata": { "a": 1 }, "expiration": "1d" }), 200).await;
    assert_eq!(changed, json!({ "updated": true }));
    let ben = site.user("ben", &["maker"]).await;
    site.ask(&ben, &line, json!({ "metadata": {} }), 404).await;
    site.ask(&ben, "DELETE /_security/api_key", json!({ "ids": [made["id"]] }), 403).await;
    let own = json!({ "ids": [made["id"]], "owner": true });
    let revoked = site.ask(&ben, "DELETE /_security/api_key", own.clone(), 200).await;
    assert_eq!(revoked["invalidated_api_keys"], json!([]));
    let revoked = site.ask(&ann, "DELETE /_security/api_key", own, 200).await;
    assert_eq!(revoked["invalidated_api_keys"], json!([made["id"]]));
    // Keys end with their owner.
    site.admin("PUT /_security/user/ann/_disable", Value::Null, 200).await;
    assert_eq!(site.status_of(("authorization", &same)).await, 401);
    site.admin("PUT /_security/user/ann/_enable", Value::Null, 200).await;
    assert_eq!(site.status_of(("authorization", &same)).await, 200);
    site.admin("DELETE /_security/user/ann", Value::Null, 200).await;
    site.user("ann", &["maker"]).await;
    assert_eq!(site.status_of(("authorization", &same)).await, 401);
}

#[tokio::test]
async fn keys_are_queried() {
    let site = Site::start().await;
    let ann = site.user("ann", &["admin"]).await;
    for name in ["a-1", "a-2", "b*1"] {
        key(&site, &ann, json!({ "name": name })).await;
    }
    key(&site, &basic("admin", "secret"), json!({ "name": "a-3" })).await;
    for (body, total, count) in [
        (Value::Null, 4, 4),
        (json!({ "query": { "match_all": {} }, "size": 1 }), 4, 1),
        (json!({ "query": { "wildcard": { "name": { "value": "a-*" } } } }), 3, 3),
        (json!({ "query": { "term": { "name": "b*1" } } }), 1, 1),
        (json!({ "query": { "term": { "username": { "value": "ann" } } }, "from": 2 }), 3, 1),
        (json!({ "query": { "term": { "invalidated": true } } }), 0, 0),
        (json!({ "query": { "ids": { "values": ["none"] } } }), 0, 0),
    ] {
        let answer = site.admin("POST /_security/_query/api_key", body.clone(), 200).await;
        assert_eq!((&answer["total"], &answer["count"]), (&json!(total), &json!(count)), "{body}");
    }
    for body in [
        json!({ "query": { "bool": { "must": [] } } }),
        json!({ "query": { "term": { "metadata.x": 1 } } }),
        json!({ "from": 9_999, "size": 2 }),
        json!({ "aggs": { "a": {} } }),
    ] {
        site.admin("POST /_security/_query/api_key", body, 400).await;
    }
}

#[tokio::test]
async fn users_have_two_forms() {
    let site = Site::start().await;
    let body = json!({
        "password": "annann", "roles": ["reader"], "full_name": "Ann", "email": "a@x", "metadata": { "a": 1 },
    });
    let made = site.admin("PUT /_security/user/ann", body, 200).await;
    assert_eq!(made, json!({ "created": true }));
    let ours = site.admin("GET /_security/user/ann", Value::Null, 200).await;
    let expected = json!({ "ann": {
        "username": "ann", "roles": ["reader"], "full_name": "Ann", "email": "a@x", "metadata": { "a": 1 },
        "enabled": true,
    } });
    assert_eq!(ours, expected);
    for prefix in ["_plugins", "_opendistro"] {
        let line = format!("GET /{prefix}/_security/api/internalusers/ann");
        let theirs = site.admin(&line, Value::Null, 200).await;
        let expected = json!({ "ann": {
            "hash": "", "reserved": false, "hidden": false, "static": false, "backend_roles": [],
            "attributes": {}, "opendistro_security_roles": ["reader"],
        } });
        assert_eq!(theirs, expected);
    }
    // What one form does not know, the other keeps; no password is the one before.
    let theirs = json!({
        "backend_roles": ["ops"], "attributes": { "team": "x" }, "opendistro_security_roles": ["monitor"],
        "description": "d",
    });
    let done = site.admin("PUT /_plugins/_security/api/internalusers/ann", theirs, 200).await;
    assert_eq!(done, json!({ "status": "OK", "message": "'ann' updated." }));
    let ours = site.admin("GET /_security/user/ann", Value::Null, 200).await;
    assert_eq!((&ours["ann"]["email"], &ours["ann"]["roles"]), (&json!("a@x"), &json!(["monitor"])));
    site.admin("POST /_security/user/ann", json!({ "roles": [] }), 200).await;
    let theirs = site.admin("GET /_plugins/_security/api/internalusers", Value::Null, 200).await;
    assert_eq!(theirs["ann"]["backend_roles"], json!(["ops"]));
    assert_eq!(theirs["admin"]["reserved"], true);
    site.ask(&basic("ann", "annann"), "GET /_security/_authenticate", Value::Null, 200).await;
    // Parts of one, and of several.
    let patch = json!([
        { "op": "add", "path": "/backend_roles/-", "value": "dev" },
        { "op": "replace", "path": "/password", "value": "unused" },
    ]);
    site.admin("PATCH /_plugins/_security/api/internalusers/ann", patch, 400).await;
    let patch = json!([{ "op": "add", "path": "/backend_roles/-", "value": "dev" }]);
    site.admin("PATCH /_plugins/_security/api/internalusers/ann", patch, 200).await;
    let patch = json!([
        { "op": "add", "path": "/ben", "value": { "password": "benben" } },
        { "op": "replace", "path": "/ann/attributes", "value": {} },
    ]);
    site.admin("PATCH /_plugins/_security/api/internalusers", patch, 200).await;
    let theirs = site.admin("GET /_plugins/_security/api/internalusers", Value::Null, 200).await;
    assert_eq!(theirs["ann"]["backend_roles"], json!(["ops", "dev"]));
    assert_eq!(theirs["ann"]["attributes"], json!({}));
    site.ask(&basic("ben", "benben"), "GET /_security/_authenticate", Value::Null, 200).await;
    // What is refused of several changes none of them.
    for operation in [
        json!({ "op": "remove", "path": "/admin" }),
        json!({ "op": "replace", "path": "/ben", "value": null }),
        json!({ "op": "add", "path": "/ben/backend_roles/-", "value": "\n" }),
    ] {
        let patch = json!([{ "op": "remove", "path": "/ann" }, operation]);
        let (admin, line) = (basic("admin", "secret"), "PATCH /_plugins/_security/api/internalusers");
        let answer = site.send(("authorization", &admin), line, &patch).await;
        assert!(matches!(answer.status, 400 | 403), "{patch}");
        site.admin("GET /_security/user/ann,ben", Value::Null, 200).await;
        site.admin("GET /_security/user/ann", Value::Null, 200).await;
    }
    let patch = json!([{ "op": "remove", "path": "/ben" }]);
    site.admin("PATCH /_opendistro/_security/api/internalusers", patch, 200).await;
    site.admin("GET /_security/user/ben", Value::Null, 404).await;
    let gone = site.admin("DELETE /_plugins/_security/api/internalusers/ann", Value::Null, 200).await;
    assert_eq!(gone, json!({ "status": "OK", "message": "'ann' deleted." }));
    let missing = site.admin("GET /_plugins/_security/api/internalusers/ann", Value::Null, 404).await;
    assert_eq!(missing, json!({ "status": "NOT_FOUND", "message": "Resource 'ann' not found." }));
    assert_eq!(site.admin("DELETE /_security/user/ann", Value::Null, 404).await, json!({ "found": false }));
    assert_eq!(site.admin("GET /_security/user/ann", Value::Null, 404).await, json!({}));
}

#[tokio::test]
async fn users_that_cannot_be_are_refused() {
    let site = Site::start().await;
    for (body, reason) in [
        (json!({ "roles": [] }), "is new and needs a password"),
        (json!({ "password": "annann" }), "roles are missing"),
        (json!({ "password": "short", "roles": [] }), "at least [6] characters"),
        (json!({ "password": 123_456, "roles": [] }), "[password] must be a string, found a number"),
        (json!({ "password_hash": "$2a$", "roles": [] }), "[password_hash] of user is not available"),
        (json!({ "password": "annann", "roles": [1] }), "[roles] must be a string, found a number"),
        (
            json!({ "password": "annann", "roles": [], "fullname": "x" }),
            "unexpected member [fullname] in user",
        ),
        (json!({ "password": "annann", "roles": vec!["a"; 1001] }), "1000"),
        (json!({ "username": "ben", "roles": [] }), "[username] is another than [ann]"),
    ] {
        let answer = site.admin("PUT /_security/user/ann", body, 400).await;
        let found = answer["error"]["reason"].as_str().unwrap();
        assert!(found.contains(reason), "{found}");
    }
    for (body, message) in [
        (json!({ "hash": "$2y$12$x" }), "[hash] of user is not available"),
        (json!({ "password": "annann", "roles": [] }), "unexpected member [roles] in user"),
        (json!({ "password": "annann", "attributes": { "a": 1 } }), "[a] must be a string"),
    ] {
        let answer = site.admin("PUT /_plugins/_security/api/internalusers/ann", body, 400).await;
        assert_eq!(answer["status"], "BAD_REQUEST");
        let found = answer["message"].as_str().unwrap();
        assert!(found.contains(message), "{found}");
    }
    // The administrator stays one.
    site.admin("DELETE /_security/user/admin", Value::Null, 403).await;
    site.admin("PUT /_security/user/admin/_disable", Value::Null, 403).await;
    site.admin("PUT /_security/user/admin", json!({ "roles": [] }), 403).await;
    let answer = site.admin("DELETE /_plugins/_security/api/internalusers/admin", Value::Null, 403).await;
    assert_eq!(answer["status"], "FORBIDDEN");
    // Methods that a path has not.
    let answer = site.admin("DELETE /_security/user", Value::Null, 405).await;
    assert!(answer["error"].as_str().unwrap().contains("allowed: [GET]"), "{answer}");
    site.admin("GET /_plugins/_security/api/tenants", Value::Null, 400).await;
}

#[tokio::test]
async fn roles_have_two_forms() {
    let site = Site::start().await;
    let ours = json!({
        "cluster": ["monitor"],
        "indices": [{
            "names": ["logs-*"], "privileges": ["read"], "query": "{\"term\":{\"a\":1}}",
            "field_security": { "grant": ["*"], "except": ["secret"] }, "allow_restricted_indices": false,
        }],
        "applications": [], "run_as": [], "metadata": { "a": 1 },
    });
    let made = site.admin("PUT /_security/role/logs", ours.clone(), 200).await;
    assert_eq!(made, json!({ "role": { "created": true } }));
    let answer = site.admin("GET /_security/role/logs", Value::Null, 200).await;
    for member in ["cluster", "indices", "metadata"] {
        assert_eq!(answer["logs"][member], ours[member]);
    }
    let theirs = site.admin("GET /_plugins/_security/api/roles/logs", Value::Null, 200).await;
    let grant = &theirs["logs"]["index_permissions"][0];
    assert_eq!((&grant["index_patterns"], &grant["fls"]), (&json!(["logs-*"]), &json!(["~secret"])));
    let patch = json!([
        { "op": "replace", "path": "/index_permissions/0/fls", "value": [] },
        { "op": "add", "path": "/tenant_permissions/-", "value": { "tenant_patterns": ["t"], "allowed_actions": [] } },
    ]);
    site.admin("PATCH /_plugins/_security/api/roles/logs", patch, 200).await;
    let answer = site.admin("GET /_security/role/logs", Value::Null, 200).await;
    assert_eq!(answer["logs"]["indices"][0].get("field_security"), None);
    assert_eq!(answer["logs"]["metadata"], json!({ "a": 1 }));
    let answer = site.admin("PUT /_security/role/logs", ours, 200).await;
    assert_eq!(answer, json!({ "role": { "created": false } }));
    let theirs = site.admin("GET /_plugins/_security/api/roles", Value::Null, 200).await;
    assert_eq!(theirs["logs"]["tenant_permissions"][0]["tenant_patterns"], json!(["t"]));
    assert_eq!(theirs["admin"]["reserved"], true);

    for line in ["PUT /_security/role/superuser", "PUT /_security/role/admin"] {
        site.admin(line, json!({}), 403).await;
    }
    site.admin("DELETE /_plugins/_security/api/roles/all_access", Value::Null, 403).await;
    for (body, reason) in [
        (json!({ "cluster": ["no_such"] }), "unknown cluster privilege [no_such]"),
        (json!({ "run_as": ["ann"] }), "[run_as] is not available"),
        (json!({ "indices": [{ "names": ["/[/"], "privileges": [] }] }), "/[/"),
    ] {
        let answer = site.admin("PUT /_security/role/x", body, 400).await;
        let found = answer["error"]["reason"].as_str().unwrap();
        assert!(found.contains(reason), "{found}");
    }
    assert_eq!(site.admin("DELETE /_security/role/logs", Value::Null, 200).await, json!({ "found": true }));
    assert_eq!(site.admin("GET /_security/role/logs", Value::Null, 404).await, json!({}));
}

#[tokio::test]
async fn mappings_have_two_forms() {
    let site = Site::start().await;
    site.admin("PUT /_security/role/logs", reads("logs-*"), 200).await;
    let rules = json!({ "any": [
        { "field": { "username": ["ann", "b*"] } },
        { "field": { "groups": ["ops"] } },
        { "all": [{ "field": { "groups": "x" } }, { "field": { "groups": "y" } }] },
    ] });
    let body = json!({ "enabled": true, "roles": ["logs"], "rules": rules, "metadata": {} });
    let made = site.admin("PUT /_security/role_mapping/logs", body.clone(), 200).await;
    assert_eq!(made, json!({ "role_mapping": { "created": true } }));
    let ours = site.admin("GET /_security/role_mapping/logs", Value::Null, 200).await;
    assert_eq!(ours, json!({ "logs": body }));
    let theirs = site.admin("GET /_plugins/_security/api/rolesmapping/logs", Value::Null, 200).await;
    let expected = json!({ "logs": {
        "reserved": false, "hidden": false, "users": ["ann", "b*"], "backend_roles": ["ops"],
        "and_backend_roles": ["x", "y"], "hosts": [],
    } });
    assert_eq!(theirs, expected);
    let ben = site.user("ben", &[]).await;
    let who = site.ask(&ben, "GET /_security/_authenticate", Value::Null, 200).await;
    assert_eq!(who["roles"], json!(["logs"]));
    let patch = json!([{ "op": "replace", "path": "/users", "value": ["ann"] }]);
    site.admin("PATCH /_plugins/_security/api/rolesmapping/logs", patch, 200).await;
    let who = site.ask(&ben, "GET /_security/_authenticate", Value::Null, 200).await;
    assert_eq!(who["roles"], json!([]));
    let body = json!({ "users": ["ben"], "hosts": ["10.*"] });
    site.admin("PUT /_plugins/_security/api/rolesmapping/logs", body, 200).await;
    let simple = json!({ "roles": ["logs"], "rules": { "field": { "username": "cid" } } });
    site.admin("POST /_security/role_mapping/logs", simple, 200).await;
    let theirs = site.admin("GET /_plugins/_security/api/rolesmapping", Value::Null, 200).await;
    assert_eq!((&theirs["logs"]["users"], &theirs["logs"]["hosts"]), (&json!(["cid"]), &json!(["10.*"])));

    let field = json!({ "field": { "username": "a" } });
    for (body, reason) in [
        (json!({ "roles": ["a", "b"], "rules": field }), "must be [\"logs\"]"),
        (json!({ "roles": ["logs"] }), "rules are missing"),
        (json!({ "roles": ["logs"], "rules": field, "enabled": false }), "[enabled] must be true"),
        (json!({ "roles": ["logs"], "rules": field, "metadata": { "a": 1 } }), "[metadata] of role mapping"),
        (json!({ "roles": ["logs"], "rules": { "except": field } }), "[except] is not available"),
        (json!({ "roles": ["logs"], "rules": { "field": { "dn": "CN=*" } } }), "[dn] is not available"),
        (json!({ "roles": ["logs"], "rules": { "field": { "username": "/a.*/" } } }), "regular expressions"),
        (json!({ "roles": ["logs"], "rules": { "all": [field] } }), "[username] is not available"),
        (json!({ "roles": ["logs"], "rules": {} }), "must have one member"),
    ] {
        let answer = site.admin("PUT /_security/role_mapping/logs", body, 400).await;
        let found = answer["error"]["reason"].as_str().unwrap();
        assert!(found.contains(reason), "{found}");
    }
    site.admin("PUT /_plugins/_security/api/rolesmapping/none", json!({ "users": ["a"] }), 404).await;
    assert_eq!(
        site.admin("DELETE /_security/role_mapping/logs", Value::Null, 200).await,
        json!({ "found": true })
    );
    site.admin("DELETE /_plugins/_security/api/rolesmapping/logs", Value::Null, 404).await;
}

#[tokio::test]
async fn questions_of_privileges_are_answered() {
    let site = Site::start().await;
    site.admin("PUT /_security/role/logs", reads("logs-*"), 200).await;
    let ann = site.user("ann", &["logs"]).await;
    let question = json!({
        "cluster": ["monitor", "all", "manage_ml"],
        "index": [
            { "names": ["logs-a*", "logs-*", "*", "l*"], "privileges": ["read"] },
            { "names": ["logs-1"], "privileges": ["read", "indices:data/read/search", "all"] },
        ],
        "application": [{ "application": "kibana", "privileges": ["read"], "resources": ["space:a"] }],
    });
    for line in ["POST /_security/_has_privileges", "GET /_security/user/_has_privileges"] {
        let answer = site.ask(&ann, line, question.clone(), 200).await;
        let expected = json!({
            "username": "ann",
            "has_all_requested": false,
            "cluster": { "monitor": true, "all": false, "manage_ml": false },
            "index": {
                "logs-a*": { "read": true }, "logs-*": { "read": true }, "*": { "read": false }, "l*": { "read": false },
                "logs-1": { "read": true, "indices:data/read/search": true, "all": false },
            },
            "application": { "kibana": { "space:a": { "read": false } } },
        });
        assert_eq!(answer, expected);
    }
    let all = site.admin("POST /_security/user/_has_privileges", question.clone(), 200).await;
    assert_eq!(all["has_all_requested"], true, "{all}");
    // Of others, who may read users is told.
    let line = "POST /_security/user/ann/_has_privileges";
    let theirs = site.admin(line, question.clone(), 200).await;
    assert_eq!((&theirs["username"], &theirs["cluster"]["all"]), (&json!("ann"), &json!(false)));
    site.ask(&ann, line, question.clone(), 200).await;
    site.ask(&ann, "POST /_security/user/admin/_has_privileges", question, 403).await;
    site.admin("POST /_security/user/none/_has_privileges", json!({ "cluster": ["all"] }), 404).await;
    for (body, reason) in [
        (json!({}), "at least one of"),
        (json!({ "cluster": ["monitr"] }), "unknown cluster privilege [monitr]"),
        (json!({ "index": [{ "names": ["a"] }] }), "[privileges] is missing"),
        (json!({ "indices": [] }), "unexpected member [indices] in privileges"),
        (
            json!({ "index": [{ "names": vec!["a"; 200], "privileges": vec!["read"; 200] }] }),
            "more than [10000] privileges",
        ),
    ] {
        let answer = site.ask(&ann, "POST /_security/user/_has_privileges", body, 400).await;
        let found = answer["error"]["reason"].as_str().unwrap();
        assert!(found.contains(reason), "{found}");
    }
    let granted = site.ask(&ann, "GET /_security/user/_privileges", Value::Null, 200).await;
    assert_eq!(
        (&granted["cluster"], &granted["indices"][0]["names"]),
        (&json!(["monitor"]), &json!(["logs-*"]))
    );
    let builtin = site.ask(&ann, "GET /_security/privilege/_builtin", Value::Null, 200).await;
    assert!(builtin["cluster"].as_array().unwrap().contains(&json!("manage_security")));
    assert!(builtin["index"].as_array().unwrap().contains(&json!("view_index_metadata")));
}

#[tokio::test]
async fn who_may_not_manage_users_does_not() {
    let site = Site::start().await;
    let ann = site.user("ann", &["reader"]).await;
    let some = json!({ "password": "stolen", "roles": ["admin"] });
    for (line, body) in [
        ("GET /_security/user", Value::Null),
        ("PUT /_security/user/ann", some.clone()),
        ("PUT /_security/user/ann/_enable", Value::Null),
        ("PUT /_security/user/admin/_password", json!({ "password": "stolen" })),
        ("PUT /_security/role/x", json!({})),
        ("GET /_security/role", Value::Null),
        (
            "PUT /_security/role_mapping/admin",
            json!({ "roles": ["admin"], "rules": { "field": { "username": "ann" } } }),
        ),
        ("GET /_security/api_key", Value::Null),
        ("DELETE /_security/api_key", json!({ "username": "admin" })),
        ("PUT /_service/accounts", json!({ "username": "ann", "roles": ["admin"] })),
        ("PUT /_service/user/password", json!({ "username": "admin", "password": "stolen" })),
        ("POST /_service/auth/reload", Value::Null),
        ("GET /_plugins/_security/api/internalusers", Value::Null),
        ("PUT /_plugins/_security/api/rolesmapping/admin", json!({ "users": ["ann"] })),
        ("PATCH /_plugins/_security/api/internalusers/ann", json!([])),
        ("DELETE /_plugins/_security/api/roles/x", Value::Null),
        ("GET /_plugins/_security/api/actiongroups", Value::Null),
        ("PUT /_template/_security", json!({ "index_patterns": ["*"] })),
    ] {
        let answer = site.ask(&ann, line, body, 403).await;
        assert!(
            answer["error"]["type"] == "security_exception" || answer["status"] == "FORBIDDEN",
            "{line}: {answer}"
        );
    }
    // What is one's own is.
    for line in [
        "GET /_security/_authenticate",
        "GET /_security/user/_privileges",
        "GET /_security/api_key?owner=true",
        "GET /_security/api_key?username=ann",
        "GET /_plugins/_security/authinfo",
        "GET /_plugins/_security/health",
        "GET /_plugins/_security/api/account",
    ] {
        site.ask(&ann, line, Value::Null, 200).await;
    }
}

#[tokio::test]
async fn passwords_are_changed_with_the_one_before() {
    let site = Site::start().await;
    let ann = site.user("ann", &["reader"]).await;
    let line = "PUT /_service/user/password";
    site.ask(&ann, line, json!({ "password": "second" }), 400).await;
    site.ask(&ann, line, json!({ "password": "second", "old_password": "wrong" }), 403).await;
    let done = site.ask(&ann, line, json!({ "password": "second", "old_password": "annann" }), 200).await;
    assert_eq!(done, json!({ "status": 200, "username": "ann" }));
    let ann = basic("ann", "second");
    let account = "PUT /_plugins/_security/api/account";
    let wrong =
        site.ask(&ann, account, json!({ "current_password": "wrong", "password": "third3" }), 403).await;
    assert_eq!(wrong["status"], "FORBIDDEN");
    site.ask(&ann, account, json!({ "password": "third3" }), 400).await;
    let done =
        site.ask(&ann, account, json!({ "current_password": "second", "password": "third3" }), 200).await;
    assert_eq!(done, json!({ "status": "OK", "message": "'ann' updated." }));
    // Who manages users needs none.
    site.admin(line, json!({ "username": "ann", "password": "fourth" }), 200).await;
    site.ask(&basic("ann", "fourth"), "GET /_security/_authenticate", Value::Null, 200).await;
    site.admin(line, json!({ "username": "none", "password": "fourth" }), 404).await;
}

#[tokio::test]
async fn accounts_are_made_and_changed_in_one_step() {
    let site = Site::start().await;
    let body = json!({
        "username": "ann", "password": "annann", "roles": ["reader", "monitor"], "defaultrole": "reader", "email": "a@x",
    });
    let made = site.admin("PUT /_service/accounts", body, 200).await;
    let expected = json!({
        "status": 200, "username": "ann", "created": true, "roles": ["reader", "monitor"], "defaultrole": "reader",
        "email": "a@x",
    });
    assert_eq!(made, expected);
    let changed =
        site.admin("PUT /_service/accounts", json!({ "username": "ann", "roles": ["monitor"] }), 200).await;
    let expected = json!({
        "status": 200, "username": "ann", "created": false, "roles": ["monitor"], "defaultrole": null, "email": "a@x",
    });
    assert_eq!(changed, expected);
    site.ask(&basic("ann", "annann"), "GET /_security/_authenticate", Value::Null, 200).await;
    let body = json!({ "username": "ann", "defaultrole": "admin" });
    let answer = site.admin("PUT /_service/accounts", body, 400).await;
    assert_eq!(answer["error"]["reason"], "default role [admin] is not one of the user's roles");
    let reloaded = site.admin("POST /_service/auth/reload", Value::Null, 200).await;
    assert_eq!(reloaded, json!({ "status": 200, "acknowledged": true, "reloaded": ["privileges"] }));
    let flushed = site.admin("DELETE /_plugins/_security/api/cache", Value::Null, 200).await;
    assert_eq!(flushed["status"], "OK");
}

#[tokio::test]
async fn opensearch_says_who_asks() {
    let site = Site::start().await;
    let body =
        json!({ "password": "annann", "backend_roles": ["ops"], "opendistro_security_roles": ["reader"] });
    let made = site.admin("PUT /_plugins/_security/api/internalusers/ann", body, 201).await;
    assert_eq!(made, json!({ "status": "CREATED", "message": "'ann' created." }));
    let ann = basic("ann", "annann");
    let info = site.ask(&ann, "GET /_opendistro/_security/authinfo", Value::Null, 200).await;
    assert_eq!((&info["user_name"], &info["roles"]), (&json!("ann"), &json!(["reader"])));
    assert_eq!((&info["backend_roles"], &info["remote_address"]), (&json!(["ops"]), &json!("0.0.0.0")));
    let account = site.ask(&ann, "GET /_plugins/_security/api/account", Value::Null, 200).await;
    assert_eq!((&account["user_name"], &account["is_reserved"]), (&json!("ann"), &json!(false)));
    let groups = site.admin("GET /_plugins/_security/api/actiongroups/crud", Value::Null, 200).await;
    assert_eq!(groups["crud"]["type"], "index");
    assert!(
        groups["crud"]["allowed_actions"].as_array().unwrap().contains(&json!("indices:data/write/index"))
    );
    site.admin("GET /_plugins/_security/api/actiongroups/no_such", Value::Null, 404).await;
}

#[tokio::test]
async fn secrets_are_told_once_and_kept_nowhere() {
    let site = Site::start().await;
    let ann = site.user("hidden-password", &["admin"]).await;
    let password = "hidden-passwordhidden-password";
    let token = site.login("hidden-password", password).await;
    let (made, _) = key(&site, &ann, json!({ "name": "k" })).await;
    let secrets = [password, &token, made["api_key"].as_str().unwrap(), made["encoded"].as_str().unwrap()];
    let mut seen = vec![format!("{:?}", site.node.api.accounts)];
    for line in [
        "GET /_security/user",
        "GET /_security/api_key",
        "POST /_security/_query/api_key",
        "GET /_security/_authenticate",
        "GET /_plugins/_security/api/internalusers",
        "GET /_plugins/_security/authinfo",
    ] {
        seen.push(site.admin(line, Value::Null, 200).await.to_string());
    }
    seen.push(format!("{:?}", site.node.api.accounts.users()));
    assert!(seen.iter().all(|text| !text.contains("argon2")), "{seen:?}");
    seen.push(site.store.text());
    for text in &seen {
        for secret in secrets {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
}

fn certificate(subject: &str) -> ClientCertificate {
    ClientCertificate { subject: subject.into(), common_name: None, not_after_ms: i64::MAX }
}

#[tokio::test]
async fn certificates_are_of_users_where_nothing_else_is_shown() {
    let site = Site::start().await;
    site.user("shipper", &["reader"]).await;
    let body = json!({ "attributes": { "certificate_subject": "CN=agent,O=Acme" }, "opendistro_security_roles": [] });
    site.admin("PUT /_plugins/_security/api/internalusers/agent", body, 201).await;
    let ask = async |subject: &str, authorization: Option<String>| {
        let certificate = certificate(subject);
        let mut request = http::Request::get("/_security/_authenticate").extension(certificate);
        if let Some(authorization) = authorization {
            request = request.header("authorization", authorization);
        }
        let response = site.node.service.call(request.body(Full::new(Bytes::new())).unwrap()).await;
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&bytes).unwrap();
        (status, body["username"].clone())
    };
    for (subject, expected) in [
        ("CN=agent,O=Acme", (200, json!("agent"))),
        ("shipper", (200, json!("shipper"))),
        ("CN=agent", (401, Value::Null)),
        ("", (401, Value::Null)),
    ] {
        assert_eq!(ask(subject, None).await, expected, "{subject}");
    }
    // What is shown beside it counts, right or wrong.
    assert_eq!(ask("shipper", Some(basic("admin", "secret"))).await, (200, json!("admin")));
    assert_eq!(ask("shipper", Some(basic("admin", "wrong"))).await, (401, Value::Null));
}
