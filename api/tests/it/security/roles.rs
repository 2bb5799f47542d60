//! Roles, their holders, and their effect.

use super::*;

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
async fn queries_that_limit_no_writes_are_warned_of() {
    let site = Site::start().await;
    let admin = basic("admin", "secret");
    let warning = async |line: &str, body: Value| {
        let answer = site.send(("authorization", &admin), line, &body).await;
        assert!(answer.status < 300, "{line}: {}", answer.text());
        answer.headers.get("warning").map(|warning| warning.to_str().unwrap().to_owned())
    };
    let ours = |privileges: &[&str]| json!({ "indices": [{ "names": ["d"], "privileges": privileges, "query": { "term": { "a": 1 } } }] });
    let theirs = json!({ "index_permissions": [{ "index_patterns": ["d"], "allowed_actions": ["write"], "dls": "{\"match_all\":{}}" }] });
    let patch = json!([{ "op": "add", "path": "/description", "value": "x" }]);
    for (line, body) in [
        ("PUT /_security/role/a", ours(&["write"])),
        ("PUT /_plugins/_security/api/roles/b", theirs),
        ("PATCH /_plugins/_security/api/roles/b", patch),
        ("POST /_security/api_key", json!({ "name": "k", "role_descriptors": { "r": ours(&["delete"]) } })),
    ] {
        let warning = warning(line, body).await.unwrap();
        assert!(warning.starts_with("299 Millrace-"), "{line}: {warning}");
        assert!(warning.contains("[d] does not limit writes"), "{line}: {warning}");
    }
    for (line, body) in
        [("PUT /_security/role/a", ours(&["read", "write"])), ("PUT /_security/role/a", reads("d"))]
    {
        assert_eq!(warning(line, body).await, None, "{line}");
    }
}
