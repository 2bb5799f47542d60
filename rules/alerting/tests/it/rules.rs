//! Rules that are saved, changed, disabled, silenced and deleted.

use millrace_alerting::Error;
use millrace_catalog::access::{Caller, Principal};
use millrace_runtime::Kind;
use serde_json::{Value, json};

use crate::fixture::{Server, document, errors, until};

/// A rule that tells of three documents of one level.
fn triple(name: &str, level: &str) -> Value {
    json!({
        "id": "triple", "name": name, "index": "logs", "type": "frequency", "num_events": 3, "timeframe": "1h",
        "search": {"request": {"body": {"query": {"match": {"level": level}}}}},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_name_keeps_state_and_a_new_filter_begins_a_revision() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path()).await;
    // What was there before the rule is none of its events.
    server.write(vec![document("logs", "before", json!({"level": "error"}))]).await;
    assert!(server.save(triple("one", "error")).await.created);
    let error = |id: &str| document("logs", id, json!({"level": "error"}));
    server.write(vec![error("1"), error("2")]).await;
    assert!(server.settled_triggers().await.is_empty());
    let renamed = server.save(triple("two", "error")).await;
    assert!(!renamed.created && renamed.message.contains("name"), "{renamed:?}");
    server.write(vec![error("3")]).await;
    assert_eq!(server.settled_triggers().await, ["3"]);
    server.write(vec![error("4"), error("5")]).await;
    server.settled().await;
    let revised = server.save(triple("two", "error fatal")).await;
    assert!(revised.message.contains("revision"), "{revised:?}");
    assert_eq!(server.shown("triple")["revision"], json!(2));
    server.write(vec![error("6"), error("7")]).await;
    assert_eq!(server.settled_triggers().await, ["3"]);
    server.write(vec![error("8")]).await;
    assert_eq!(server.settled_triggers().await, ["3", "8"]);
    let alerts = server.documents("alert").await;
    let revisions: Vec<_> = alerts
        .values()
        .filter(|alert| alert["rule_id"] == json!("triple"))
        .map(|alert| (alert["trigger"]["_id"].as_str().unwrap(), alert["rule_revision"].as_u64().unwrap()))
        .collect();
    assert!(revisions.contains(&("3", 1)) && revisions.contains(&("8", 2)), "{revisions:?}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_are_what_they_were_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path()).await;
    server.save(triple("one", "error")).await;
    server.save(triple("two", "fatal")).await;
    let deleted = server.save(errors("deleted")).await.id;
    server.alerting.delete(&server.admin(), &deleted).await.unwrap();
    let fatal = |id: &str| document("logs", id, json!({"level": "fatal"}));
    server.write(vec![fatal("1"), fatal("2")]).await;
    let before = server.alerting.rule(&server.admin(), "triple").unwrap();
    drop(server);
    let server = Server::open(dir.path()).await;
    let listed = server.alerting.list(&server.admin());
    assert_eq!(listed.len(), 1);
    assert_eq!(server.alerting.rule(&server.admin(), "triple").unwrap(), before);
    server.write(vec![fatal("3")]).await;
    assert_eq!(server.settled_triggers().await, ["3"]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disabled_rule_is_silent_and_has_its_state_when_it_is_enabled_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::open(dir.path()).await;
    server.save(triple("one", "error")).await;
    let error = |id: &str| document("logs", id, json!({"level": "error"}));
    server.write(vec![error("1"), error("2")]).await;
    server.settled().await;
    server.alerting.enable(&server.admin(), "triple", false).await.unwrap();
    assert_eq!(server.shown("triple")["enabled"], json!(false));
    server.write(vec![error("3")]).await;
    assert!(server.settled_triggers().await.is_empty());
    drop(server);
    server = Server::open(dir.path()).await;
    server.alerting.enable(&server.admin(), "triple", true).await.unwrap();
    server.write(vec![error("4")]).await;
    assert_eq!(server.settled_triggers().await, ["4"]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silenced_key_raises_nothing_over_restarts_and_other_keys_do() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::open(dir.path()).await;
    let mut rule = errors("errors");
    rule["id"] = json!("errors");
    rule["query_key"] = json!("host");
    server.save(rule).await;
    let hour = server.engine.clock().now_ms() + 3_600_000;
    let admin = server.admin();
    server.alerting.silence(&admin, "errors", Some("a".to_owned()), hour).await.unwrap();
    let over = server.alerting.silence(&admin, "errors", None, 5).await.unwrap_err();
    assert_eq!(over.kind(), Kind::InvalidInput);
    let of = |host: &str, id: &str| document("logs", id, json!({"level": "error", "host": host}));
    server.write(vec![of("a", "1"), of("b", "2")]).await;
    assert_eq!(server.settled_triggers().await, ["2"]);
    let told = server.documents("alert_silence").await;
    assert_eq!(told.values().next().unwrap()["key"], json!("a"));
    drop(server);
    server = Server::open(dir.path()).await;
    server.write(vec![of("a", "3"), of("b", "4")]).await;
    assert_eq!(server.settled_triggers().await, ["2", "4"]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_a_rule_is_refused_and_nothing_is_stored() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path()).await;
    server.create("logs", json!({"mappings": {"properties": {"at": {"type": "date"}}}})).await;
    let admin = server.admin();
    let with_body = |index: &str, body: Value| json!({"name": "r", "index": index, "type": "any", "search": {"request": {"body": body}}});
    for (rule, kind, reason) in [
        (json!({"index": "logs"}), Kind::InvalidInput, "[name]"),
        (with_body("logs", json!({"query": {"range": {"at": {"gte": "soon"}}}})), Kind::InvalidInput, "soon"),
        (
            with_body("logs", json!({"query": {"match_all": {}}, "min_score": 1})),
            Kind::InvalidInput,
            "min_score",
        ),
        (with_body(".console", json!({"query": {"match_all": {}}})), Kind::InvalidInput, ".console"),
        // Nothing could ever be asked that, whatever indices there will be.
        (with_body("later-*", json!({"query": {"wrong": {}}})), Kind::InvalidInput, "wrong"),
    ] {
        let error = server.alerting.change(&admin, rule.clone()).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{rule}: {error}");
        assert!(error.to_string().contains(reason), "{rule}: {error}");
    }
    let key = Caller::ApiKey { id: "k".into(), name: "key".into(), owner: "admin".into() };
    let key = Principal::new(key, Vec::new(), admin.privileges().clone());
    assert!(matches!(server.alerting.change(&key, errors("by key")).await, Err(Error::Invalid(_))));
    assert!(server.alerting.list(&admin).is_empty());
    // A pattern of indices that will be there one day is fine.
    server.save(with_body("later-*", json!({"query": {"term": {"a": 1}}}))).await;
    // The id of one and the name of another.
    server.save(triple("one", "error")).await;
    let error = server.alerting.change(&admin, triple("r", "error")).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict, "{error}");
    for wrong in ["none", ""] {
        assert_eq!(server.alerting.delete(&admin, wrong).await.unwrap_err().kind(), Kind::NotFound);
        assert_eq!(server.alerting.enable(&admin, wrong, true).await.unwrap_err().kind(), Kind::NotFound);
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_rules_nobody_follows_the_feed() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path()).await;
    server.write(vec![document("logs", "1", json!({"level": "error"}))]).await;
    assert_eq!((server.engine.feed_held(), server.engine.lease("rules")), ((0, 0), None));
    let id = server.save(errors("errors")).await.id;
    server.write(vec![document("logs", "2", json!({"level": "error"}))]).await;
    until(async || (server.triggers().await == ["2"]).then_some(())).await;
    assert!(server.engine.lease("rules").is_some());
    server.alerting.delete(&server.admin(), &id).await.unwrap();
    until(async || server.engine.lease("rules").is_none().then_some(())).await;
    // The next first rule begins where it is saved.
    server.write(vec![document("logs", "3", json!({"level": "error"}))]).await;
    server.save(errors("errors")).await;
    server.write(vec![document("logs", "4", json!({"level": "error"}))]).await;
    assert_eq!(server.settled_triggers().await, ["2", "4"]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn state_that_cannot_be_read_costs_nothing_while_the_one_before_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path()).await;
    server.save(triple("one", "error")).await;
    let error = |id: &str| document("logs", id, json!({"level": "error"}));
    server.write(vec![error("1")]).await;
    server.settled().await;
    server.stop().await;
    let server = Server::open(dir.path()).await;
    server.write(vec![error("2")]).await;
    server.settled().await;
    server.stop().await;
    let states = || {
        let entries = std::fs::read_dir(dir.path().join("rules")).unwrap();
        let mut states: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        states.sort();
        states
    };
    assert_eq!(states().len(), 2);
    std::fs::write(states().last().unwrap(), b"damaged").unwrap();
    let server = Server::open(dir.path()).await;
    server.write(vec![error("3")]).await;
    assert_eq!(server.settled_triggers().await, ["3"]);
    let alerts = server.documents("alert").await;
    let alert = alerts.values().find(|alert| alert["rule_id"] == json!("triple")).unwrap();
    assert_eq!(alert["event_count"], json!(3));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_that_has_the_id_of_one_that_was_deleted_begins_anew_over_a_crash_too() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path()).await;
    server.save(triple("one", "error")).await;
    // There is always another, so that state is kept.
    server.save(errors("errors of another index")).await;
    let error = |id: &str| document("logs", id, json!({"level": "error"}));
    server.write(vec![error("1"), error("2")]).await;
    server.settled().await;
    server.stop().await;
    let server = Server::open(dir.path()).await;
    server.alerting.delete(&server.admin(), "triple").await.unwrap();
    server.save(triple("one", "error")).await;
    drop(server);
    let server = Server::open(dir.path()).await;
    server.write(vec![error("3")]).await;
    server.settled().await;
    let alerts = server.documents("alert").await;
    assert!(alerts.values().all(|alert| alert["rule_id"] != json!("triple")), "{alerts:?}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_of_a_restored_index_see_the_frames_of_this_log() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path()).await;
    server.save(errors("errors")).await;
    let (id, mut rule) = server.documents(".alertrules").await.pop_first().unwrap();
    // The log of the snapshot was longer than this one.
    rule["state"]["revision"] = json!(2);
    rule["state"]["since"] = json!(1_000_000);
    rule["state"]["quiet"] = json!([{"key": "none", "since": 1_000_000, "until": 4_000_000_000_000_i64}]);
    let (none, patience) = (millrace_engine::RefreshPolicy::None, std::time::Duration::from_secs(60));
    let system = Principal::system();
    let restored = vec![document(".alertrules", &id, rule)];
    for written in server.engine.write(&system, restored, none, patience).await.unwrap() {
        written.unwrap();
    }
    server.stop().await;
    let server = Server::open(dir.path()).await;
    let rule = server.documents(".alertrules").await.remove(&id).unwrap();
    let numbers = [&rule["state"]["since"], &rule["state"]["quiet"][0]["since"]];
    assert!(numbers.iter().all(|number| number.as_u64().unwrap() < 1_000_000), "{rule}");
    server.write(vec![document("logs", "1", json!({"level": "error"}))]).await;
    assert_eq!(server.settled_triggers().await, ["1"]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_rule_is_told_until_it_is_deleted_or_saved_anew() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path()).await;
    server.save(errors("errors")).await;
    let bad = ["a", "b"].map(|id| document(".alertrules", id, json!({"colour": "red"})));
    let none = millrace_engine::RefreshPolicy::None;
    let patience = std::time::Duration::from_secs(60);
    let system = millrace_catalog::access::Principal::system();
    for written in server.engine.write(&system, bad.into(), none, patience).await.unwrap() {
        written.unwrap();
    }
    server.stop().await;
    let server = Server::open(dir.path()).await;
    let told = async |count: usize| {
        until(async || (server.alerting.faults().len() == count).then(|| server.alerting.faults())).await
    };
    let faults = told(2).await;
    assert!(faults[0].contains("rule [a] cannot be read"), "{faults:?}");
    server.alerting.delete(&server.admin(), "a").await.unwrap();
    assert!(told(1).await[0].contains("rule [b]"));
    let mut rule = errors("anew");
    rule["id"] = json!("b");
    assert!(server.save(rule).await.created);
    told(0).await;
    server.write(vec![document("logs", "1", json!({"level": "error"}))]).await;
    assert_eq!(server.settled_triggers().await, ["1", "1"]);
    server.stop().await;
}
