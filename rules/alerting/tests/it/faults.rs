//! Alerts that cannot be written, floods of them, indices that are deleted, frames that are lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use millrace_catalog::access::Principal;
use millrace_catalog::metadata::{IndicesOptions, Metadata};
use millrace_catalog::{Catalog, Commit, MemoryCatalog};
use millrace_engine::{Action, Config, Engine, RefreshPolicy, WriteOp};
use millrace_runtime::disk::SimulatedDisk;
use millrace_runtime::{Error, Instant, SystemClock};
use serde_json::{Value, json};

use crate::fixture::{Server, document, errors, open_engine, until};

#[tokio::test(flavor = "multi_thread")]
async fn the_index_of_alerts_is_made_anew_when_it_is_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path()).await;
    raise_one(&server).await;
    let gone = |m: &Metadata| m.delete_indices("alert", &IndicesOptions::open_only(), 0);
    server.engine.change(&Principal::system(), gone).await.unwrap();
    server.write(vec![document("logs", "2", json!({"level": "error"}))]).await;
    assert_eq!(server.settled_triggers().await, ["2"]);
    let mapping = server.engine.index("alert").unwrap().mapping();
    assert!(mapping.to_json().to_string().contains("flat_object"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_alerts_cannot_be_written_that_is_told_and_nothing_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path()).await;
    raise_one(&server).await;
    block(&server, true).await;
    for id in ["2", "3"] {
        server.write(vec![document("logs", id, json!({"level": "error"}))]).await;
    }
    let began = Instant::now();
    let is_why = |fault: &String| fault.contains("blocked");
    until(async || server.alerting.faults().into_iter().find(is_why)).await;
    assert!(began.elapsed() < Duration::from_secs(20), "told after {:?}", began.elapsed());
    // What comes meanwhile is written, and rules are where they were.
    let position = server.engine.lease("rules").unwrap().position;
    for id in 4..40 {
        server.write(vec![document("logs", &id.to_string(), json!({"level": "error"}))]).await;
    }
    assert_eq!(server.engine.lease("rules").unwrap().position, position);
    assert_eq!(server.triggers().await.iter().filter(|id| !id.starts_with("marker-")).count(), 1);
    // Rules can be changed meanwhile.
    server.save(errors("another")).await;
    block(&server, false).await;
    until(async || server.alerting.faults().is_empty().then_some(())).await;
    // The other rule was saved behind them.
    let mut expected: Vec<String> = (1..40).map(|id| id.to_string()).collect();
    expected.sort();
    assert_eq!(server.settled_triggers().await, expected);
    server.stop().await;
}

/// Has a server begin with the rule `errors` and its alert of event 1.
async fn raise_one(server: &Server) {
    server.save(errors("errors")).await;
    server.write(vec![document("logs", "1", json!({"level": "error"}))]).await;
    assert_eq!(server.settled_triggers().await, ["1"]);
}

/// The `_id`s of the events that triggered alerts, in order, by the names of rules.
async fn triggers_by_rule(server: &Server) -> BTreeMap<String, Vec<String>> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let mut triggers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for alert in server.documents("alert").await.into_values() {
        triggers.entry(text(&alert["rule_name"])).or_default().push(text(&alert["trigger"]["_id"]));
    }
    triggers.values_mut().for_each(|ids| ids.sort());
    triggers
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_change_between_two_frames_of_a_flood_and_nothing_is_lost_or_doubled_over_a_crash() {
    const FRAMES: usize = 200;
    const EVENTS: usize = 10;
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path()).await;
    for rule in 0..10 {
        server.save(errors(&format!("stays {rule}"))).await;
    }
    let ends = server.save(errors("ends")).await.id;
    server.write(vec![document("logs", "first", json!({"level": "error"}))]).await;
    server.settled().await;
    // All of the flood is there before any of it is evaluated, so that it is one batch.
    block(&server, true).await;
    server.write(vec![document("logs", "held", json!({"level": "error"}))]).await;
    until(async || server.alerting.faults().into_iter().next()).await;
    let text = "x".repeat(4 << 10);
    let mut flood = Vec::new();
    for frame in 0..FRAMES {
        let events: Vec<String> = (0..EVENTS).map(|event| format!("{frame:03}-{event}")).collect();
        let of = |id: &String| document("logs", id, json!({"level": "error", "text": text}));
        server.write(events.iter().map(of).collect()).await;
        flood.extend(events);
    }
    let last_alert = || server.shown(&ends)["last_alert"].clone();
    let of_held = last_alert();
    block(&server, false).await;
    // It is more than is held before it is written: the first part has come.
    until(async || (last_alert() != of_held).then_some(())).await;
    let admin = server.admin();
    server.alerting.enable(&admin, &ends, false).await.unwrap();
    // All that was evaluated is written: whole frames, and not all of them.
    let ended = triggers_by_rule(&server).await["ends"].clone();
    let seen = ended.len() - 2;
    assert!(0 < seen && seen < flood.len() && seen.is_multiple_of(EVENTS), "{seen} events were evaluated");
    assert_eq!(ended[..seen], flood[..seen]);
    assert!(server.save(errors("begins")).await.created);
    drop(server);
    let server = Server::open(dir.path()).await;
    server.write(vec![document("logs", "last", json!({"level": "error"}))]).await;
    server.settled().await;
    let mut expected = flood;
    expected.extend(["first", "held", "last"].map(str::to_owned));
    let triggers = triggers_by_rule(&server).await;
    for rule in 0..10 {
        assert_eq!(triggers[&format!("stays {rule}")], expected, "of rule {rule}");
    }
    assert_eq!(triggers["ends"], ended);
    assert_eq!(triggers["begins"], ["last"]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_that_are_edited_while_rules_are_behind_miss_and_double_nothing_over_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path()).await;
    let (edited, mut terms, mut disabled) = (errors("edited"), errors("terms"), errors("disabled"));
    (terms["type"], terms["fields"]) = (json!("new_term"), json!("user"));
    disabled["enable"] = json!(false);
    let id = server.save(edited.clone()).await.id;
    for rule in [&terms, &disabled] {
        server.save(rule.clone()).await;
    }
    let user = |id: &str, user: &str| document("logs", id, json!({"level": "error", "user": user}));
    server.write(vec![user("first", "ann")]).await;
    server.settled().await;
    // Rules are behind: what is written now is evaluated once alerts can be written again.
    block(&server, true).await;
    server.write(vec![user("held", "ann")]).await;
    until(async || server.alerting.faults().into_iter().next()).await;
    let behind: Vec<String> = (0..40).map(|n| format!("behind {n:02}")).collect();
    for id in &behind {
        server.write(vec![user(id, if id == "behind 07" { "eve" } else { "ann" })]).await;
    }
    // Another filter of each, also of one that is enabled by that.
    for mut rule in [edited, terms, disabled] {
        let body = json!({"query": {"match": {"level": "error fatal"}}});
        (rule["search"]["request"]["body"], rule["enable"]) = (body, json!(true));
        let saved = server.save(rule).await;
        assert!(saved.message.contains("a new revision begins behind frame"), "{}", saved.message);
    }
    block(&server, false).await;
    // Some of it may be evaluated.
    until(async || server.shown(&id)["last_alert"].as_str().map(drop)).await;
    drop(server);
    let server = Server::open(dir.path()).await;
    server.write(vec![user("last", "ann")]).await;
    server.settled().await;
    let mut expected = behind;
    expected.extend(["first", "held", "last"].map(str::to_owned));
    let triggers = triggers_by_rule(&server).await;
    assert_eq!(triggers["edited"], expected);
    assert_eq!(triggers["terms"], ["behind 07", "first"]);
    assert_eq!(triggers["disabled"], ["last"]);
    let alerts = server.documents("alert").await;
    let of_first = |alert: &&Value| alert["rule_id"] == json!(id) && alert["rule_revision"] == json!(1);
    assert_eq!(alerts.values().filter(of_first).count(), 2, "the others are of the new revision");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_that_waits_for_others_to_catch_up_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path()).await;
    raise_one(&server).await;
    block(&server, true).await;
    let mut rules = Vec::new();
    for name in ["a", "b", "c"] {
        rules.push(server.alerting.change_from(&server.admin(), errors(name), 0).await.unwrap().id);
    }
    // Two are held up by what they cannot write.
    let says = |what: &str| {
        let says =
            |id: &&String| server.shown(id)["error"].as_str().is_some_and(|error| error.contains(what));
        rules.iter().filter(says).count()
    };
    until(async || (says("waits for its turn") == 1 && says("cannot be written") == 2).then_some(())).await;
    block(&server, false).await;
    assert_eq!(server.settled_triggers().await, ["1", "1", "1", "1"]);
    assert_eq!(says(""), 0, "none says anything any more");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_waits_for_no_more_of_a_frame_than_is_written_at_once_and_each_alert_is_there_once() {
    const EVENTS: usize = 12_000;
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path()).await;
    let mut flood = errors("flood");
    // Alerts are far larger than events: several times what is written at once.
    flood["alert_text"] = json!("x".repeat(5 << 10));
    let id = server.save(flood).await.id;
    let event = |n: usize| document("logs", &n.to_string(), json!({"level": "error"}));
    server.write((0..EVENTS).map(event).collect()).await;
    // The first part has come.
    until(async || server.shown(&id)["last_alert"].as_str().map(drop)).await;
    server.alerting.stop().await;
    let written = server.triggers().await.len();
    assert!(0 < written && written < EVENTS, "{written} alerts of {EVENTS} were written");
    server.stop().await;
    let server = Server::open(dir.path()).await;
    let mut expected: Vec<String> = (0..EVENTS).map(|n| n.to_string()).collect();
    expected.sort();
    let triggers = server.settled_triggers().await;
    assert!(triggers == expected, "{} alerts of {EVENTS} events", triggers.len());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_disk_is_full_that_is_told_and_nothing_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config { data_dir: dir.path().to_owned(), ..Config::default() };
    let disk = SimulatedDisk::new(1);
    let catalog = Arc::new(MemoryCatalog::new(disk.clone()));
    let engine =
        Engine::open_with(config, Arc::new(SystemClock), Arc::new(disk.clone()), catalog).await.unwrap();
    let server = Server::over(engine).await;
    raise_one(&server).await;
    // Held until there is no room for them.
    block(&server, true).await;
    server.write(vec![document("logs", "2", json!({"level": "error"}))]).await;
    until(async || server.alerting.faults().into_iter().next()).await;
    disk.set_capacity(disk.used_bytes());
    let fill = document("logs", "3", json!({"level": "error", "text": "x".repeat(100_000)}));
    let none = RefreshPolicy::None;
    let written = server.engine.write(&Principal::system(), vec![fill], none, Duration::from_secs(2)).await;
    assert!(written.is_err() || written.unwrap().iter().all(Result::is_err), "there is no room");
    // Allowed again they find no room.
    let body = json!({"index.blocks.write": false});
    let decide = |m: &Metadata| m.update_settings("alert", &IndicesOptions::open_only(), &body, false, 0);
    let system = Principal::system();
    let allowed = tokio::time::timeout(Duration::from_secs(3), server.engine.change(&system, decide));
    let allowed = allowed.await.is_ok_and(|changed| changed.is_ok());
    let began = Instant::now();
    let is_told = |fault: &String| !allowed || !fault.contains("blocked");
    let fault = until(async || server.alerting.faults().into_iter().find(is_told)).await;
    assert!(began.elapsed() < Duration::from_secs(20), "[{fault}] is told after {:?}", began.elapsed());
    println!("allowed: {allowed}, told: {fault}");
    disk.set_capacity(u64::MAX);
    block(&server, false).await;
    until(async || server.alerting.faults().is_empty().then_some(())).await;
    server.write(vec![document("logs", "4", json!({"level": "error"}))]).await;
    let mut triggers = server.settled_triggers().await;
    // Whether a write without room comes after all is the store's to say.
    triggers.retain(|id| id != "3");
    assert_eq!(triggers, ["1", "2", "4"]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_that_takes_long_is_paused_and_holds_up_neither_writers_nor_other_rules() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path()).await;
    let properties = json!({"text": {"type": "keyword"}, "level": {"type": "keyword"}});
    server.create("logs", json!({"mappings": {"properties": properties}})).await;
    // Expressions that each have to be compared with each value as a whole.
    let clauses =
        (0..60).map(|n| json!({"regexp": {"text": format!(".*[a-f][0-9]+.*[{}-9]x+{n}.*", n % 9)}}));
    let mut slow = errors("slow");
    slow["search"]["request"]["body"]["query"] = json!({"bool": {"should": clauses.collect::<Vec<_>>()}});
    let slow = server.save(slow).await.id;
    server.save(errors("quick")).await;
    let text = |n: usize| (0..1_500).map(|at| format!("{:x}", (at * 7 + n) % 256)).collect::<String>();
    // As many at a time as take just so long that it is looked for slow ones: the longer a batch takes, the later that is done again.
    let (mut number, mut batch, mut batches, mut longest) = (0, 10, 0, Duration::ZERO);
    let paused = loop {
        let began = Instant::now();
        for _ in 0..2 {
            let events = (0..batch).map(|n| {
                let level = if n == 0 { "error" } else { "info" };
                document("logs", &(number + n).to_string(), json!({"level": level, "text": text(number + n)}))
            });
            let began = Instant::now();
            server.write(events.collect()).await;
            longest = longest.max(began.elapsed());
            (number, batches) = (number + batch, batches + 1);
        }
        until(async || (server.triggers().await.len() >= batches).then_some(())).await;
        if let Some(error) = server.shown(&slow)["error"].as_str() {
            break error.to_owned();
        }
        assert!(number < 500_000, "a rule that takes long is paused");
        if began.elapsed() < Duration::from_secs(2) {
            batch += batch / 2;
        }
    };
    assert!(paused.contains("takes too long"), "{paused}");
    assert!(longest < Duration::from_secs(20), "a write took {longest:?}");
    let triggers = server.settled_triggers().await;
    assert_eq!(triggers.len(), batches, "the other rule has seen all of it");
    let told = server.documents("alert_error").await;
    assert!(told.values().any(|told| told["rule_id"] == json!(slow)), "{told:?}");
    // It is asked no more: what comes is evaluated as if it were not there, also after a restart.
    server.stop().await;
    let server = Server::open(dir.path()).await;
    until(async || server.shown(&slow)["error"].as_str().map(drop)).await;
    let events = (0..2_000).map(|n| document("logs", &format!("more {n}"), json!({"text": text(n)})));
    server.write(events.collect()).await;
    let began = Instant::now();
    server.settled().await;
    assert!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_that_is_paused_says_so_and_catches_up_once_it_is_enabled() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path()).await;
    let properties = json!({"text": {"type": "text"}, "level": {"type": "keyword"}});
    server.create("logs", json!({"mappings": {"properties": properties}})).await;
    // It fails where a batch has more words of the prefix than it takes.
    let mut rule = errors("words");
    rule["search"]["request"]["body"]["query"] = json!({"intervals": {"text": {"prefix": {"prefix": "ap"}}}});
    let id = server.save(rule).await.id;
    server.save(errors("other")).await;
    let apple = |id: &str| document("logs", id, json!({"level": "info", "text": "apple"}));
    server.write(vec![apple("1")]).await;
    assert_eq!(server.settled_triggers().await, ["1"]);
    assert!(server.shown(&id)["paused"].is_null() && server.alerting.faults().is_empty());
    let words =
        |n: usize| format!("ap{}{}", char::from(b'a' + (n / 26) as u8), char::from(b'a' + (n % 26) as u8));
    let many = (0..400).map(words).collect::<Vec<_>>().join(" ");
    server.write(vec![document("logs", "many", json!({"level": "info", "text": many}))]).await;
    until(async || (!server.shown(&id)["paused"].is_null()).then_some(())).await;
    server.write(vec![apple("2"), apple("3")]).await;
    server.write(vec![document("logs", "4", json!({"level": "error"}))]).await;
    assert_eq!(server.settled_triggers().await, ["1", "4"]);
    let paused = server.shown(&id);
    assert!(paused["paused"]["since"].is_string() && paused["lag"].as_i64().unwrap() > 0, "{paused}");
    assert!(paused["error"].as_str().unwrap().starts_with("is paused: "), "{paused}");
    assert!(server.alerting.faults()[0].contains("paused: 1"), "{:?}", server.alerting.faults());
    // Also behind a restart; what it cannot take is removed.
    server.stop().await;
    let server = Server::open(dir.path()).await;
    until(async || (!server.shown(&id)["paused"].is_null()).then_some(())).await;
    let user = Principal::system();
    let delete = WriteOp::new("logs", Some("many".to_owned()), Action::Delete);
    server.engine.write(&user, vec![delete], RefreshPolicy::None, Duration::from_secs(10)).await.unwrap();
    server.alerting.enable(&server.admin(), &id, true).await.unwrap();
    server.write(vec![apple("5")]).await;
    assert_eq!(server.settled_triggers().await, ["1", "2", "3", "4", "5"]);
    let shown = server.shown(&id);
    assert!(shown["paused"].is_null() && shown["revision"] == json!(1), "{shown}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_that_cannot_be_compiled_any_more_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path()).await;
    let settings = json!({"index.mapping.total_fields.limit": 5_000});
    server.create("logs", json!({"settings": settings})).await;
    let mut rule = errors("anywhere");
    rule["search"]["request"]["body"]["query"] = json!({"query_string": {"query": "needle"}});
    let id = server.save(rule).await.id;
    server.write(vec![document("logs", "1", json!({"a": "needle"}))]).await;
    assert_eq!(server.settled_triggers().await, ["1"]);
    assert!(server.alerting.faults().is_empty(), "{:?}", server.alerting.faults());
    let fields: serde_json::Map<String, Value> = (0..1_100).map(|n| (format!("f{n}"), json!("x"))).collect();
    server.write(vec![document("logs", "2", Value::Object(fields))]).await;
    let told = until(async || server.alerting.faults().into_iter().next()).await;
    assert!(told.contains("not watching all of their patterns: 1"), "{told}");
    let error = server.shown(&id)["error"].as_str().unwrap().to_owned();
    assert!(error.starts_with("index [logs] is not watched: ") && error.contains("1024"), "{error}");
    let written = async || {
        server.documents("alert_error").await.into_values().find(|told| told["rule_id"] == json!(id))
    };
    until(written).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unsupported_index_is_told_and_holds_up_no_rule_that_watches_others() {
    let dir = tempfile::tempdir().unwrap();
    let disk = SimulatedDisk::new(1);
    let catalog = Arc::new(MemoryCatalog::new(disk.clone()));
    let open = async || loop {
        let config = Config { data_dir: dir.path().to_owned(), ..Config::default() };
        let shared: Arc<dyn Catalog> = Arc::clone(&catalog) as _;
        match Engine::open_with(config, Arc::new(SystemClock), Arc::new(disk.clone()), shared).await {
            Err(Error::Locked(_)) => tokio::task::yield_now().await,
            opened => return Server::over(opened.unwrap()).await,
        }
    };
    let event = |index: &str, id: &str| document(index, id, json!({"level": "error"}));
    let server = open().await;
    let id = server.save(errors("errors")).await.id;
    server.write(vec![event("logs-a", "1"), event("logs-b", "2")]).await;
    assert_eq!(server.settled_triggers().await, ["1", "2"]);
    // Only the next start evaluates these.
    server.alerting.stop().await;
    server.write(vec![event("logs-a", "3"), event("logs-b", "4")]).await;
    let index = server.engine.index("logs-a").unwrap();
    let mut encoded: Value = serde_json::from_slice(&index.mapping().encode()).unwrap();
    encoded["mapping"]["properties"]["level"]["type"] = json!("of_a_later_version");
    let mappings = vec![(index.meta().uuid, serde_json::to_vec(&encoded).unwrap())];
    server.engine.shutdown().await.unwrap();
    drop((index, server));
    catalog.commit(&Commit { mappings, ..Commit::default() }).await.unwrap();
    let server = open().await;
    server.alerting.change_from(&server.admin(), errors("late"), 0).await.unwrap();
    assert_eq!(server.settled_triggers().await, ["1", "2", "2", "4", "4"]);
    let error = server.shown(&id)["error"].as_str().unwrap().to_owned();
    assert!(
        error.starts_with("index [logs-a] is not watched: ") && error.contains("later_version"),
        "{error}"
    );
    let told = async || {
        server.documents("alert_error").await.into_values().find(|told| told["rule_id"] == json!(id))
    };
    until(told).await;
    server.stop().await;
}

pub(crate) async fn block(server: &Server, blocked: bool) {
    let body = json!({"index.blocks.write": blocked});
    let decide = |m: &Metadata| m.update_settings("alert", &IndicesOptions::open_only(), &body, false, 0);
    server.engine.change(&Principal::system(), decide).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_that_are_lost_are_told_by_their_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config { data_dir: dir.path().to_owned(), wal_max_bytes: 512 << 10, ..Config::default() };
    let server = Server::open_with(config.clone()).await;
    raise_one(&server).await;
    server.stop().await;
    // More than any lease holds, while rules are away.
    let engine = open_engine(config.clone()).await;
    let filler = "x".repeat(256 << 10);
    let away = Principal::system();
    for n in 0..40 {
        let op = document("other", &n.to_string(), json!({ "filler": filler }));
        let none = millrace_engine::RefreshPolicy::None;
        engine.write(&away, vec![op], none, std::time::Duration::from_secs(60)).await.unwrap();
    }
    engine.flush(&[engine.index("other").unwrap()]).await.unwrap();
    until(async || engine.lease("rules").filter(|lease| lease.lapsed)).await;
    engine.flush(&[engine.index("other").unwrap()]).await.unwrap();
    engine.shutdown().await.unwrap();
    drop(engine);
    let server = Server::open_with(config).await;
    let told = until(async || server.documents("alert_error").await.into_values().next()).await;
    let (first, last) = (told["first_frame"].as_u64().unwrap(), told["last_frame"].as_u64().unwrap());
    assert!(0 < first && first < last, "{told}");
    assert!(told["message"].as_str().unwrap().contains(&format!("{first} to {last}")), "{told}");
    server.write(vec![document("logs", "2", json!({"level": "error"}))]).await;
    assert_eq!(server.settled_triggers().await, ["1", "2"]);
    server.stop().await;
}
