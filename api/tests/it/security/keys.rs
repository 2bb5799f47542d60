//! API keys: made, used, changed, queried and revoked.

use super::*;

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
