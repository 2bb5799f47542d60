//! Authentication of requests: logins and their tokens, passwords, certificates.

use base64::engine::general_purpose::STANDARD_NO_PAD;
use http_body_util::BodyExt;

use super::*;

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
