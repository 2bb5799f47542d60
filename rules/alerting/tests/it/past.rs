//! Rules that begin in the past, and frames that the log does not have any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millrace_alerting::ReplaySubject;
use millrace_catalog::access::{Caller, Principal, Privileges};
use millrace_engine::{Config, Engine, RefreshPolicy};
use serde_json::{Value, json};

use crate::fixture::{Server, document, errors, open_engine, until};

fn frequency(name: &str) -> Value {
    let mut rule = errors(name);
    rule["type"] = json!("frequency");
    rule["num_events"] = json!(3);
    rule["timeframe"] = json!("1h");
    rule["query_key"] = json!("host");
    rule
}

fn event(number: usize) -> Value {
    json!({"level": if number.is_multiple_of(3) { "info" } else { "error" }, "host": format!("h{}", number % 7), "n": number})
}

/// Alerts of a rule by id, and what a test says that they are.
async fn raised_and_tested(server: &Server, id: &str) -> (Vec<String>, Vec<String>) {
    server.settled().await;
    let mut raised: Vec<String> = Vec::new();
    for (alert, document) in server.documents("alert").await {
        if document["rule_id"] == json!(id) && document["rule_revision"] == server.shown(id)["revision"] {
            raised.push(alert);
        }
    }
    let tested = server
        .alerting
        .test(&server.admin(), ReplaySubject::Stored(id.to_owned()), 0..i64::MAX)
        .await
        .unwrap();
    let mut tested: Vec<String> = tested.alerts.into_iter().map(|alert| alert.id).collect();
    raised.sort();
    tested.sort();
    (raised, tested)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_that_begins_in_the_past_misses_and_doubles_nothing_while_events_arrive() {
    let dir = tempfile::tempdir().unwrap();
    let server = Arc::new(Server::open(dir.path()).await);
    let steady = server.save(frequency("steady")).await.id;
    let write = async |server: &Server, from: usize, count: usize| {
        let events = (from..from + count).map(|n| document("logs", &n.to_string(), event(n)));
        server.write(events.collect()).await;
    };
    for batch in 0..20 {
        write(&server, batch * 100, 100).await;
    }
    let writing = Arc::new(AtomicBool::new(true));
    let writer = tokio::spawn({
        let (server, writing) = (Arc::clone(&server), Arc::clone(&writing));
        async move {
            let mut next = 2_000;
            while writing.load(Ordering::Relaxed) {
                write(&server, next, 20).await;
                next += 20;
                // No more than rules keep up with on a busy machine.
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
            next
        }
    });
    let saved = server.alerting.change_from(&server.admin(), frequency("late"), 0).await.unwrap();
    assert!(saved.message.contains("since 1970"), "{}", saved.message);
    until(async || server.catching_up().is_empty().then_some(())).await;
    // Some more as it is live.
    let alerts = server.documents("alert").await.len();
    until(async || (server.documents("alert").await.len() > alerts).then_some(())).await;
    writing.store(false, Ordering::Relaxed);
    let written = writer.await.unwrap();
    let (raised, tested) = raised_and_tested(&server, &saved.id).await;
    assert!(raised.len() > written / 10, "{} alerts of {written} events", raised.len());
    // As many may be more than a test answers.
    assert_eq!(raised.len().min(1_000), tested.len());
    assert!(tested.iter().all(|id| raised.contains(id)));
    let (of_steady, _) = raised_and_tested(&server, &steady).await;
    assert_eq!(of_steady.len(), raised.len(), "the other one saw each event, too");
    // From a time of which nothing is left: a new revision.
    let now_ms = server.engine.clock().now_ms();
    let again = server.alerting.change_from(&server.admin(), frequency("late"), now_ms).await.unwrap();
    assert!(!again.created && again.message.contains("from"), "{}", again.message);
    let to_come = server.alerting.change_from(&server.admin(), frequency("late"), now_ms + 3_600_000).await;
    assert!(to_come.unwrap_err().to_string().contains("[from]"));
    until(async || server.catching_up().is_empty().then_some(())).await;
    assert_eq!(server.shown(&saved.id)["revision"], json!(2));
    Arc::into_inner(server).unwrap().stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_that_catches_up_goes_on_after_a_restart_and_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config { data_dir: dir.path().to_owned(), ..Config::default() };
    let server = Server::open_with(config.clone()).await;
    for batch in 0..30 {
        let events = (0..100).map(|n| batch * 100 + n).map(|n| document("logs", &n.to_string(), event(n)));
        server.write(events.collect()).await;
    }
    let id = server.alerting.change_from(&server.admin(), frequency("late"), 0).await.unwrap().id;
    // In the middle of it, or before it has begun.
    drop(server);
    let server = Server::open_with(config.clone()).await;
    server.write(vec![document("logs", "one more", event(1))]).await;
    let (raised, tested) = raised_and_tested(&server, &id).await;
    assert!(raised.len() > 600 && raised == tested, "{} raised, {} tested", raised.len(), tested.len());
    // Live it goes on with the state that it had, and is not asked of what it has seen.
    drop(server);
    let server = Server::open_with(config).await;
    for n in 0..20 {
        server.write(vec![document("logs", &format!("after {n}"), event(n))]).await;
    }
    let (raised, tested) = raised_and_tested(&server, &id).await;
    assert!(raised == tested, "{} raised, {} tested", raised.len(), tested.len());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_that_joins_amid_a_flood_misses_nothing_of_it() {
    const FRAMES: usize = 40;
    const EVENTS: usize = 150;
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path()).await;
    // More than 16 MiB of alerts of one batch of frames.
    let mut flood = errors("flood");
    flood["alert_text"] = json!("x".repeat(5 << 10));
    server.save(flood).await;
    let event = |n: usize| document("logs", &n.to_string(), json!({"level": "error", "n": n}));
    let writes = async {
        for frame in 0..FRAMES {
            server.write((0..EVENTS).map(|n| event(frame * EVENTS + n)).collect()).await;
        }
    };
    let joins = async {
        for name in ["a", "b", "c", "d"] {
            // While alerts of a batch of frames are written none is saved, at last with a refusal.
            until(async || server.alerting.change_from(&server.admin(), errors(name), 0).await.ok()).await;
            until(async || server.catching_up().is_empty().then_some(())).await;
        }
    };
    futures::join!(writes, joins);
    let mut triggers = server.settled_triggers().await;
    assert_eq!(triggers.len(), 5 * FRAMES * EVENTS);
    triggers.dedup();
    assert_eq!(triggers.len(), FRAMES * EVENTS);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_frame_of_which_more_is_raised_than_is_held_each_alert_is_there_once_after_a_crash() {
    const EVENTS: usize = 4_000;
    let dir = tempfile::tempdir().unwrap();
    let config = Config { data_dir: dir.path().to_owned(), ..Config::default() };
    let server = Server::open_with(config.clone()).await;
    let event = |n: usize| document("logs", &n.to_string(), json!({"level": "error", "n": n}));
    server.write((0..EVENTS).map(event).collect()).await;
    let mut rule = errors("late");
    // Alerts are far larger than events: more than 16 MiB together, the last of which are evaluated once the others are written.
    rule["alert_text"] = json!("x".repeat(5 << 10));
    server.alerting.change_from(&server.admin(), rule, 0).await.unwrap();
    until(async || server.documents("alert").await.into_values().next()).await;
    drop(server);
    let server = Server::open_with(config.clone()).await;
    let mut expected: Vec<String> = (0..EVENTS).map(|n| n.to_string()).collect();
    expected.sort();
    let triggers = server.settled_triggers().await;
    assert!(triggers == expected, "{} alerts of {EVENTS} events", triggers.len());
    // What it goes on with is all of the frame: nothing of it comes once more.
    drop(server);
    let server = Server::open_with(config).await;
    server.write(vec![event(EVENTS)]).await;
    expected.push(EVENTS.to_string());
    expected.sort();
    let triggers = server.settled_triggers().await;
    assert!(triggers == expected, "{} alerts of {} events", triggers.len(), expected.len());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn terms_of_the_window_are_known_to_a_new_rule_and_raise_no_alerts() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path()).await;
    let user = |id: &str, user: &str| document("logs", id, json!({"level": "error", "user": user}));
    server.write(vec![user("1", "ann"), user("2", "bob")]).await;
    let mut rule = errors("terms");
    rule["type"] = json!("new_term");
    rule["fields"] = json!("user");
    let id = server.save(rule.clone()).await.id;
    server.write(vec![user("3", "ann"), user("4", "eve"), user("5", "bob")]).await;
    assert_eq!(server.settled_triggers().await, ["4"]);
    assert!(server.shown(&id)["catching_up"].is_null());
    // Begun in the past it alerts from there.
    let saved = server.alerting.change_from(&server.admin(), rule, 0).await.unwrap();
    assert_eq!(saved.id, id);
    assert_eq!(server.settled_triggers().await, ["1", "2", "4", "4"]);
    // Silenced, disabled, deleted while it catches up, or not any more.
    let admin = server.admin();
    server.alerting.change_from(&admin, errors("another"), 0).await.unwrap();
    let until_ms = server.engine.clock().now_ms() + 3_600_000;
    let rules: Vec<Value> =
        server.alerting.list(&admin).iter().map(millrace_alerting::Record::value).collect();
    let another = rules.iter().find(|rule| rule["name"] == json!("another")).unwrap();
    let another = another["id"].as_str().unwrap();
    server.alerting.silence(&admin, another, None, until_ms).await.unwrap();
    server.alerting.enable(&admin, another, false).await.unwrap();
    server.alerting.enable(&admin, another, true).await.unwrap();
    until(async || server.catching_up().is_empty().then_some(())).await;
    server.alerting.delete(&admin, another).await.unwrap();
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_that_is_enabled_later_only_learns_the_terms_that_came_before() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path()).await;
    let user = |id: &str, user: &str| document("logs", id, json!({"level": "error", "user": user}));
    server.write(vec![user("1", "ann")]).await;
    let mut rule = errors("terms");
    rule["type"] = json!("new_term");
    rule["fields"] = json!("user");
    rule["enable"] = json!(false);
    let id = server.save(rule.clone()).await.id;
    server.write(vec![user("2", "bob")]).await;
    server.alerting.enable(&server.admin(), &id, true).await.unwrap();
    server.write(vec![user("3", "bob"), user("4", "eve")]).await;
    assert_eq!(server.settled_triggers().await, ["4"]);
    // The same where a change of the rule enables it.
    rule["name"] = json!("more terms");
    let other = server.save(rule.clone()).await.id;
    server.write(vec![user("5", "joe")]).await;
    rule["enable"] = json!(true);
    assert_eq!(server.save(rule).await.id, other);
    server.write(vec![user("6", "joe"), user("7", "kim")]).await;
    assert_eq!(server.settled_triggers().await, ["4", "5", "7", "7"]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_that_was_disabled_for_longer_than_it_remembers_learns_anew() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path()).await;
    let user = |id: &str, user: &str| document("logs", id, json!({"level": "error", "user": user}));
    let mut rule = errors("terms");
    (rule["type"], rule["fields"], rule["terms_window_size"]) =
        (json!("new_term"), json!("user"), json!("2s"));
    let id = server.save(rule).await.id;
    server.write(vec![user("1", "ann")]).await;
    assert_eq!(server.settled_triggers().await, ["1"]);
    server.alerting.enable(&server.admin(), &id, false).await.unwrap();
    let disabled_ms = server.engine.clock().now_ms();
    let mut writes = 0;
    while server.engine.clock().now_ms() < disabled_ms + 2_500 {
        writes += 1;
        server.write(vec![user(&format!("away {writes}"), "ann")]).await;
        server.settled().await;
    }
    server.alerting.enable(&server.admin(), &id, true).await.unwrap();
    server.write(vec![user("2", "ann"), user("3", "eve")]).await;
    assert_eq!(server.settled_triggers().await, ["1", "3"]);
    server.stop().await;
}

/// Writes what rules do not see while they are away, until the log does not have it any more.
async fn away(config: &Config, events: usize) {
    let engine = open_engine(config.clone()).await;
    let principal =
        Principal::new(Caller::User("ann".into()), Vec::new(), Arc::new(Privileges::unrestricted()));
    let write = async |index: &str, id: String, source: Value| {
        let written = engine
            .write(&principal, vec![document(index, &id, source)], RefreshPolicy::None, PATIENCE)
            .await
            .unwrap();
        written.into_iter().for_each(|written| drop(written.unwrap()));
    };
    for n in 0..events {
        write("logs", format!("away {n}"), event(n)).await;
    }
    // One is another one by now, of which there is no event.
    write("logs", "away 1".to_owned(), event(1)).await;
    let filler = "x".repeat(256 << 10);
    for n in 0..40 {
        write("other", n.to_string(), json!({ "filler": filler })).await;
    }
    flushed(&engine).await;
    until(async || engine.lease("rules").filter(|lease| lease.lapsed)).await;
    flushed(&engine).await;
    engine.shutdown().await.unwrap();
}

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

async fn flushed(engine: &Arc<Engine>) {
    let indices: Vec<_> =
        engine.metadata().indices().filter_map(|meta| engine.index(&meta.name).ok()).collect();
    engine.flush(&indices).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_log_has_lost_is_read_back_in_order_and_what_is_missing_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config { data_dir: dir.path().to_owned(), wal_max_bytes: 512 << 10, ..Config::default() };
    let server = Server::open_with(config.clone()).await;
    let id = server.save(frequency("keys")).await.id;
    server.write((0..5).map(|n| document("logs", &n.to_string(), event(n))).collect()).await;
    server.settled().await;
    server.stop().await;
    away(&config, 300).await;
    let server = Server::open_with(config).await;
    server.write((5..30).map(|n| document("logs", &n.to_string(), event(n))).collect()).await;
    let (raised, tested) = raised_and_tested(&server, &id).await;
    assert!(raised.len() > 60 && raised == tested, "{} raised, {} tested", raised.len(), tested.len());
    let told = server.documents("alert_error").await;
    let gap = told.values().find(|told| told["first_frame"].is_u64()).unwrap();
    assert!(gap["first_frame"].as_u64() < gap["last_frame"].as_u64(), "{gap}");
    assert!(gap["message"].as_str().unwrap().contains(" operations are not there any more"), "{gap}");
    server.stop().await;
}
