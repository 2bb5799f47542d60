//! Alert rules through the console: saved, listed, run, tested, by permitted callers; and refusals.

use base64::Engine as _;
use serde_json::{Value, json};

use crate::support::{Answer, Node};

const XSRF: (&str, &str) = ("console-xsrf", "true");

/// A node with rules at work.
struct Site(Node);

fn basic(name: &str, password: &str) -> String {
    format!("Basic {}", base64::prelude::BASE64_STANDARD.encode(format!("{name}:{password}")))
}

impl Site {
    async fn start() -> Self {
        Self(Node::with_rules().await)
    }

    /// Sends the administrator's request to the data API.
    async fn data(&self, line: &str, body: Value) -> Value {
        let admin = basic("admin", "secret");
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer = self.0.send(line, &[("authorization", &admin)], body).await;
        assert!(answer.status < 300, "{line}: {}", answer.text());
        answer.json()
    }

    /// Makes a user with roles; the password is the name and `-secret`.
    async fn user(&self, name: &str, roles: &[&str]) {
        let body = json!({"password": format!("{name}-secret"), "roles": roles});
        self.data(&format!("PUT /_security/user/{name}"), body).await;
    }

    async fn send(&self, who: &str, line: &str, body: &Value) -> Answer {
        let password = if who == "admin" { "secret".to_owned() } else { format!("{who}-secret") };
        let header = basic(who, &password);
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.0.send_to_console(line, &[("authorization", &header), XSRF], body).await
    }

    /// Sends a request to the console, and checks the status of its answer.
    async fn ask(&self, who: &str, line: &str, body: Value, status: u16) -> Value {
        let answer = self.send(who, line, &body).await;
        assert_eq!(answer.status, status, "{who}: {line}: {}", answer.text());
        let answer = answer.json();
        if status >= 400 {
            assert_eq!(answer["status"], false, "{line}: {answer}");
            assert!(answer["message"].is_string(), "{line}: {answer}");
        }
        answer
    }

    async fn save(&self, who: &str, rule: Value) -> String {
        let answer = self.ask(who, "POST /api/alert/change", rule, 200).await;
        assert_eq!(answer["status"], true, "{answer}");
        answer["id"].as_str().unwrap().to_owned()
    }
}

/// A rule in the fields of the interface.
fn rule(name: &str) -> Value {
    json!({
        "name": name,
        "description": "failed logins",
        "index": "logs*",
        "search": {"request": {
            "search_type": "query_then_fetch",
            "index": ["logs*"],
            "body": {"size": 0, "query": {"match": {"outcome": "failed"}}},
        }},
        "timeframe": "5m",
        "num_events": 2,
        "alert_method": "email",
        "email": "soc@example.org",
    })
}

fn failed(count: usize) -> Vec<Value> {
    vec![json!({"outcome": "failed", "user": "root"}); count]
}

impl Site {
    async fn write(&self, documents: Vec<Value>) {
        let lines = documents.iter().map(|document| format!("{{\"index\":{{}}}}\n{document}\n"));
        let admin = basic("admin", "secret");
        let headers = [("authorization", &*admin), ("content-type", "application/x-ndjson")];
        let answer = self.0.send("POST /logs/_bulk", &headers, lines.collect::<String>()).await;
        assert_eq!(answer.json()["errors"], false, "{}", answer.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_lives_through_the_routes_of_the_console() {
    let site = Site::start().await;
    let id = site.save("admin", rule("logins")).await;
    let list = site.ask("admin", "GET /api/alert/list", Value::Null, 200).await;
    assert_eq!(list.as_array().unwrap().len(), 1);
    for (field, expected) in [("id", json!(id)), ("enabled", json!(true)), ("error", Value::Null)] {
        assert_eq!(list[0][field], expected, "{field}: {list}");
    }
    let shown = site.ask("admin", &format!("GET /api/alert/show/{id}"), Value::Null, 200).await;
    assert_eq!(shown["id"], json!(id));
    // By its name it is replaced.
    let mut changed = rule("logins");
    changed["description"] = json!("others");
    assert_eq!(site.save("admin", changed.clone()).await, id);
    for (action, enabled) in [("disable", false), ("enable", true)] {
        let line = format!("POST /api/alert/{action}/{id}");
        let answer = site.ask("admin", &line, Value::Null, 200).await;
        assert_eq!((&answer["status"], &answer["id"]), (&json!(true), &json!(id)));
        let shown = site.ask("admin", &format!("GET /api/alert/show/{id}"), Value::Null, 200).await;
        assert_eq!(shown["enabled"], enabled, "{shown}");
    }
    let silence = format!("POST /api/alert/silence/{id}");
    for body in [json!({"duration": "1h"}), json!({"until": "2100-01-01T00:00:00Z", "key": "root"})] {
        let answer = site.ask("admin", &silence, body, 200).await;
        assert_eq!(answer["status"], true, "{answer}");
    }
    let mut other = changed.clone();
    other["name"] = json!("another");
    site.save("admin", other).await;
    // The id of one rule and the name of the other.
    changed["id"] = json!(id);
    changed["name"] = json!("another");
    site.ask("admin", "POST /api/alert/change", changed, 409).await;
    site.ask("admin", &format!("DELETE /api/alert/delete/{id}"), Value::Null, 200).await;
    for line in ["GET /api/alert/show/", "GET /api/alert/run/", "DELETE /api/alert/delete/"] {
        let answer = site.ask("admin", &format!("{line}{id}"), Value::Null, 404).await;
        assert!(answer["message"].as_str().unwrap().contains(&id), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tests_and_dry_runs_write_nothing_and_a_run_writes_the_alerts() {
    let site = Site::start().await;
    site.write(failed(4)).await;
    let test = json!({"rule": rule("logins"), "from": "now-1h"});
    let tested = site.ask("admin", "POST /api/alert/test", test, 200).await;
    assert_eq!((&tested["status"], &tested["total"]), (&json!(true), &json!(2)), "{tested}");
    let alert = &tested["alerts"][0];
    assert_eq!(alert["_source"]["event_count"], 2, "{alert}");
    assert_eq!(alert["_source"]["alert_id"], alert["_id"]);
    assert_eq!(site.ask("admin", "GET /api/alert/list", Value::Null, 200).await, json!([]));
    let id = site.save("admin", rule("logins")).await;
    let mut fewer = rule("logins");
    fewer["num_events"] = json!(4);
    let dry = site.ask("admin", "POST /api/alert/change?dry_run=7d", fewer, 200).await;
    assert_eq!((&dry["status"], &dry["id"]), (&json!(true), &json!(id)), "{dry}");
    // The one alert of four is at the fourth event, as the second one of two.
    assert_eq!((&dry["adds"]["total"], &dry["removes"]["total"]), (&json!(0), &json!(1)), "{dry}");
    let ran = site.ask("admin", &format!("GET /api/alert/run/{id}"), Value::Null, 200).await;
    assert_eq!(
        (&ran["status"], &ran["alerts"], &ran["created"]),
        (&json!(true), &json!(2), &json!(2)),
        "{ran}"
    );
    let by_id = json!({"id": id, "from": 0});
    let tested = site.ask("admin", "POST /api/alert/test", by_id, 200).await;
    for alert in tested["alerts"].as_array().unwrap() {
        let stored =
            site.data(&format!("GET /alert/_doc/{}", alert["_id"].as_str().unwrap()), Value::Null).await;
        assert_eq!(stored["_source"], alert["_source"]);
    }
    let again =
        site.ask("admin", &format!("GET /api/alert/run/{id}?from=now-1h&to=now"), Value::Null, 200).await;
    assert_eq!(again["created"], 0, "{again}");
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_and_selectedroles_say_who_may_do_what() {
    let site = Site::start().await;
    let role = json!({"cluster": ["cluster:console/alert/get"],
        "indices": [{"names": ["other"], "privileges": ["read"]}]});
    site.data("PUT /_security/role/watcher", role).await;
    for (name, roles) in [
        ("ann", &["alert", "reader"][..]),
        ("bob", &["alert", "reader"]),
        ("eve", &["watcher"]),
        ("dan", &["reader"]),
    ] {
        site.user(name, roles).await;
    }
    site.write(failed(2)).await;
    let mut own = rule("hers");
    own["selectedroles"] = json!(["soc"]);
    let id = site.save("ann", own).await;
    let shared = site.save("ann", rule("all")).await;
    let seen = async |who: &str| {
        let list = site.ask(who, "GET /api/alert/list", Value::Null, 200).await;
        list.as_array().unwrap().len()
    };
    assert_eq!((seen("ann").await, seen("bob").await, seen("eve").await), (2, 1, 1));
    for line in ["GET /api/alert/show/", "GET /api/alert/run/", "POST /api/alert/disable/"] {
        site.ask("bob", &format!("{line}{id}"), Value::Null, 404).await;
    }
    site.ask("bob", "POST /api/alert/test", json!({"id": id, "from": 0}), 404).await;
    // Who may read rules changes none.
    for line in [
        format!("POST /api/alert/disable/{shared}"),
        format!("GET /api/alert/run/{shared}"),
        format!("DELETE /api/alert/delete/{shared}"),
        "POST /api/alert/change".to_owned(),
    ] {
        site.ask("eve", &line, Value::Null, 403).await;
    }
    site.ask("dan", "GET /api/alert/list", Value::Null, 403).await;
    // A test of one's own rule sees what one sees; one of a rule that is there, what its owner sees.
    let written = json!({"rule": rule("mine"), "from": 0});
    let tested = site.send("eve", "POST /api/alert/test", &written).await;
    let total = if tested.status == 200 { tested.json()["total"].clone() } else { json!(0) };
    assert_eq!(total, 0, "{}", tested.text());
    let tested = site.ask("bob", "POST /api/alert/test", written, 200).await;
    assert_eq!(tested["total"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_and_runs_need_the_header() {
    let site = Site::start().await;
    let id = site.save("admin", rule("logins")).await;
    let admin = basic("admin", "secret");
    for line in [
        "POST /api/alert/change".to_owned(),
        "POST /api/alert/test".to_owned(),
        format!("GET /api/alert/run/{id}"),
        format!("POST /api/alert/disable/{id}"),
        format!("POST /api/alert/silence/{id}"),
        format!("DELETE /api/alert/delete/{id}"),
    ] {
        let headers = [("authorization", &*admin)];
        let answer = site.0.send_to_console(&line, &headers, rule("other").to_string()).await;
        assert_eq!(answer.status, 400, "{line}: {}", answer.text());
        assert!(answer.text().contains("[console-xsrf: true]"), "{line}: {}", answer.text());
    }
    let list = site.0.send_to_console("GET /api/alert/list", &[("authorization", &admin)], "").await;
    assert_eq!(list.json().as_array().unwrap().len(), 1, "{}", list.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_named_and_nothing_is_stored() {
    let site = Site::start().await;
    site.write(failed(1)).await;
    let with = |field: &str, value: Value| {
        let mut rule = rule("logins");
        rule[field] = value;
        rule
    };
    let body = |body: Value| with("search", json!({"request": {"body": body}}));
    for (named, rule) in [
        ("[colour]", with("colour", json!("red"))),
        ("[name]", with("name", Value::Null)),
        ("[name]", with("name", json!(["a"]))),
        ("[index]", with("index", json!("UPPER"))),
        ("[index]", with("index", json!({}))),
        ("[timeframe]", with("timeframe", json!("5 parsecs"))),
        ("[timeframe]", with("timeframe", json!("9999w"))),
        ("[num_events]", with("num_events", json!(0))),
        ("[num_events]", with("num_events", json!("many"))),
        ("[importance]", with("importance", json!(101))),
        ("[type]", with("type", json!("unheard"))),
        ("[email]", with("email", json!({"to": "a"}))),
        ("aggs", body(json!({"aggs": {"a": {"avg": {"field": "n"}}}}))),
        ("min_score", body(json!({"min_score": 1}))),
        ("terms", body(json!({"query": {"terms": {"a": {"index": "i", "id": "1", "path": "p"}}}}))),
        ("unheard", body(json!({"query": {"unheard": {}}}))),
    ] {
        for line in ["POST /api/alert/change", "POST /api/alert/change?dry_run=1d"] {
            let answer = site.ask("admin", line, rule.clone(), 400).await;
            assert!(answer["message"].as_str().unwrap().contains(named), "{named}: {answer}");
        }
        let answer = site.ask("admin", "POST /api/alert/test", json!({"rule": rule, "from": 0}), 400).await;
        assert!(answer["message"].as_str().unwrap().contains(named), "{named}: {answer}");
    }
    let long = with("description", json!("x".repeat(2 << 20)));
    site.ask("admin", "POST /api/alert/change", long, 413).await;
    for (named, line, body) in [
        ("[dry_run]", "POST /api/alert/change?dry_run=often", rule("logins")),
        ("[dry_rum]", "POST /api/alert/change?dry_rum=1d", rule("logins")),
        ("[from]", "POST /api/alert/change?from=soon", rule("logins")),
        ("[from]", "POST /api/alert/change?from=2100-01-01T00:00:00Z", rule("logins")),
        ("[from]", "POST /api/alert/change?from=now-1d&dry_run=1d", rule("logins")),
        ("required", "POST /api/alert/change", Value::Null),
        ("[from]", "POST /api/alert/test", json!({"rule": rule("logins")})),
        ("[from]", "POST /api/alert/test", json!({"rule": rule("logins"), "from": "soon"})),
        ("[from]", "POST /api/alert/test", json!({"rule": rule("logins"), "from": 5, "to": 5})),
        ("[rule]", "POST /api/alert/test", json!({"from": 0})),
        ("[id]", "POST /api/alert/test", json!({"id": 1, "from": 0})),
        ("[until]", "POST /api/alert/silence/x", json!({})),
        ("[until]", "POST /api/alert/silence/x", json!({"until": "2001-01-01"})),
        ("[duration]", "POST /api/alert/silence/x", json!({"duration": "0s"})),
        ("[key]", "POST /api/alert/silence/x", json!({"duration": "1h", "key": 1})),
        ("[keys]", "POST /api/alert/silence/x", json!({"duration": "1h", "keys": "a"})),
        ("[from]", "GET /api/alert/run/x?from=then", Value::Null),
    ] {
        let answer = site.ask("admin", line, body, 400).await;
        let message = answer["message"].as_str().unwrap();
        assert!(message.contains(named), "{line}: {message} has no {named}");
    }
    assert_eq!(site.ask("admin", "GET /api/alert/list", Value::Null, 200).await, json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn alerts_are_read_by_the_roles_that_their_rule_names() {
    let site = Site::start().await;
    site.data("PUT /_security/role/soc", json!({})).await;
    site.data("PUT /_security/role/keys", json!({"cluster": ["manage_own_api_key"]})).await;
    for (name, roles) in
        [("ann", &["alert", "soc", "keys"][..]), ("bob", &["alert", "keys"]), ("eve", &["reader"])]
    {
        site.user(name, roles).await;
    }
    site.data("PUT /_security/user/root", json!({"password": "root-secret", "roles": ["all_access"]})).await;
    let (mut own, mut shared) = (rule("theirs"), rule("everybody's"));
    own["selectedroles"] = json!(["soc", "others"]);
    for rule in [&mut own, &mut shared] {
        rule["alert_method"] = json!("index");
    }
    let (own, shared) = (site.save("admin", own).await, site.save("admin", shared).await);
    site.write(failed(2)).await;
    for id in [&own, &shared] {
        site.ask("admin", &format!("GET /api/alert/run/{id}"), Value::Null, 200).await;
        let body = json!({"duration": "1h"});
        site.ask("admin", &format!("POST /api/alert/silence/{id}"), body, 200).await;
    }
    // The order to be quiet is written with the next event.
    site.write(failed(1)).await;
    let send = async |who: &str, line: &str, body: Value| {
        let password = if who == "admin" { "secret".to_owned() } else { format!("{who}-secret") };
        let header = basic(who, &password);
        let body = if body.is_null() { String::new() } else { body.to_string() };
        site.0.send(line, &[("authorization", &header)], body).await
    };
    // The index is made with the first of them.
    loop {
        send("admin", "POST /alert_silence/_refresh", Value::Null).await;
        let counted = send("admin", "GET /alert_silence/_count", Value::Null).await;
        if counted.status == 200 && counted.json()["count"] == 2 {
            break;
        }
    }
    site.data("POST /alert/_refresh", Value::Null).await;
    let of_own = json!({"query": {"term": {"rule_id": own}}});
    let found = site.data("POST /alert/_search", of_own.clone()).await;
    let alert = found["hits"]["hits"][0]["_id"].as_str().unwrap().to_owned();
    assert_eq!(found["hits"]["hits"][0]["_source"]["roles"], json!(["soc", "others"]));
    for (who, sees) in [("admin", true), ("root", true), ("ann", true), ("bob", false), ("eve", false)] {
        let all = if sees { 2 } else { 1 };
        for index in ["alert", "alert_silence", "alert*"] {
            let line = format!("POST /{index}/_search");
            let aggs = json!({"aggs": {"rules": {"terms": {"field": "rule_id"}}}, "track_total_hits": true});
            let found = send(who, &line, aggs).await.json();
            let count = if index == "alert*" { 2 * all } else { all };
            assert_eq!(found["hits"]["total"]["value"], count, "{who}: {index}: {found}");
            let buckets = found["aggregations"]["rules"]["buckets"].as_array().unwrap();
            assert_eq!(buckets.iter().any(|bucket| bucket["key"] == json!(own)), sees, "{who}: {found}");
            let counted = send(who, &format!("POST /{index}/_count"), of_own.clone()).await.json();
            let of_own = if index == "alert*" { 2 } else { 1 };
            assert_eq!(counted["count"], if sees { of_own } else { 0 }, "{who}: {index}: {counted}");
        }
        let answer = send(who, &format!("GET /alert/_doc/{alert}"), Value::Null).await;
        assert_eq!(answer.status, if sees { 200 } else { 404 }, "{who}: {}", answer.text());
        let got = send(who, "POST /alert/_mget", json!({"ids": [alert]})).await.json();
        assert_eq!(got["docs"][0]["found"], sees, "{who}: {got}");
        let query = json!({"query": "SELECT rule_id FROM alert"});
        let rows = send(who, "POST /_plugins/_sql", query).await;
        assert_eq!(rows.text().contains(&own), sees, "{who}: {}", rows.text());
        assert!(rows.text().contains(&shared), "{who}: {}", rows.text());
    }
    // A key that is less than its owner sees what the owner sees.
    let grant = json!({"name": "k", "role_descriptors": {"r": {"index": [{"names": ["alert"], "privileges": ["read"]}]}}});
    for (who, sees) in [("ann", 2), ("bob", 1), ("admin", 2)] {
        let made = send(who, "POST /_security/api_key", grant.clone()).await.json();
        let (id, key) = (made["id"].as_str().unwrap(), made["api_key"].as_str().unwrap());
        let key = base64::prelude::BASE64_STANDARD.encode(format!("{id}:{key}"));
        let headers = [("authorization", &*format!("ApiKey {key}"))];
        let counted = site.0.send("GET /alert/_count", &headers, String::new()).await.json();
        assert_eq!(counted["count"], sees, "the key of {who}: {counted}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_begins_in_the_past_and_says_how_far_it_is() {
    let site = Site::start().await;
    site.write(failed(4)).await;
    let answer = site.ask("admin", "POST /api/alert/change?from=now-1h", rule("logins"), 200).await;
    assert!(answer["message"].as_str().unwrap().contains("written since"), "{answer}");
    loop {
        let list = site.ask("admin", "GET /api/alert/list", Value::Null, 200).await;
        if list[0]["catching_up"].is_null() {
            break;
        }
        assert!(list[0]["catching_up"]["raised_from"].is_string(), "{list}");
    }
    site.data("POST /alert/_refresh", Value::Null).await;
    assert_eq!(site.data("GET /alert/_count", Value::Null).await["count"], 2);
    // By then it is live.
    site.write(failed(2)).await;
    while site.data("GET /alert/_count", Value::Null).await["count"] != 3 {}
}

#[tokio::test(flavor = "multi_thread")]
async fn alerts_get_a_status_secrets_are_named_and_channels_tested() {
    let site = Site::start().await;
    let mut saved = rule("one");
    saved["num_events"] = json!(1);
    let saved = site.save("admin", saved).await;
    site.write(failed(1)).await;
    site.ask("admin", &format!("GET /api/alert/run/{saved}"), Value::Null, 200).await;
    site.data("POST /alert/_refresh", Value::Null).await;
    let found = site.data("POST /alert/_search", json!({"_source": ["status"]})).await;
    let id = found["hits"]["hits"][0]["_id"].as_str().unwrap_or_else(|| panic!("{found}")).to_owned();
    let line = format!("POST /api/alert/status/{id}");
    for wrong in [
        json!({}),
        json!({"status": "Closed"}),
        json!({"status": 5}),
        json!({"status": "New", "note": 5}),
        json!({"status": "New", "x": 1}),
    ] {
        site.ask("admin", &line, wrong, 400).await;
    }
    site.ask("admin", "POST /api/alert/status/none", json!({"status": "Solved"}), 404).await;
    site.ask("admin", &line, json!({"status": "ongoing", "note": "n"}), 200).await;
    let alert = site.data(&format!("GET /alert/_doc/{id}"), Value::Null).await;
    assert_eq!(
        (&alert["_source"]["status"], &alert["_source"]["status_by"]),
        (&json!("Ongoing"), &json!("admin"))
    );

    let secret = "PUT /api/alert/secret/slack-soc";
    for wrong in [
        json!({}),
        json!({"value": ""}),
        json!({"value": "v"}),
        json!({"value": "v", "hosts": []}),
        json!({"value": "v", "hosts": "h"}),
        json!({"value": "v", "hosts": ["a b"]}),
        json!({"value": 5}),
    ] {
        site.ask("admin", secret, wrong, 400).await;
    }
    site.ask("admin", "PUT /api/alert/secret/..%2Fx", json!({"value": "v", "hosts": ["a"]}), 400).await;
    site.ask("admin", secret, json!({"value": "sesame", "hosts": ["hooks.slack.com"]}), 200).await;
    let listed = site.ask("admin", "GET /api/alert/secret", Value::Null, 200).await;
    assert_eq!((&listed[0]["name"], &listed[0]["by"]), (&json!("slack-soc"), &json!("admin")));
    assert!(!listed.to_string().contains("sesame") && listed[0].get("sealed").is_none(), "{listed}");
    site.ask("admin", "DELETE /api/alert/secret/slack-soc", Value::Null, 200).await;
    site.ask("admin", "DELETE /api/alert/secret/slack-soc", Value::Null, 404).await;

    let written = json!({"name": "t", "index": "logs*", "type": "any", "alert_method": "webhook", "http_post_url": "http://169.254.169.254/"});
    let tested = site.ask("admin", "POST /api/alert/notify-test", json!({"rule": written}), 200).await;
    assert!(tested["channels"][0]["error"].as_str().unwrap().contains("not allowed"), "{tested}");
    assert_eq!(tested["status"], json!(false));
    site.ask("admin", "POST /api/alert/notify-test", json!({"rule": written, "alert": 5}), 400).await;
    site.ask("admin", "POST /api/alert/notify-test", json!({"id": "none"}), 404).await;
}
