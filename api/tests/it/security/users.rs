//! Users, in Elasticsearch's form, in OpenSearch's and in one step.

use super::*;

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
