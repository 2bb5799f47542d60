//! Rules that a snapshot brings into an empty store: they go on where they were, and each document raises its alerts once.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use millrace_catalog::access::{Caller, Principal, Privileges};
use millrace_engine::{Config as EngineConfig, Engine, FEED_PIPELINE, RULES_READER, RefreshPolicy};
use millrace_runtime::ManualClock;
use millrace_snapshot::testing::open_with_backup;
use millrace_snapshot::{CreateSnapshot, RestoreSnapshot};
use serde_json::{Value, json};

use crate::fixture::{Server, document, errors, open_engine};

fn failure(host: &str) -> Value {
    json!({"level": "error", "host": host})
}

/// A rule that needs three failures of a host.
fn three_failures() -> Value {
    let mut rule = errors("three");
    rule["type"] = json!("frequency");
    rule["num_events"] = json!(3);
    rule["timeframe"] = json!("1h");
    rule["query_key"] = json!("host");
    rule["search"]["request"]["body"]["query"] = json!({"match": {"host": "web"}});
    rule
}

async fn open_store(dir: &Path) -> Arc<Engine> {
    open_engine(EngineConfig { data_dir: dir.to_owned(), ..EngineConfig::default() }).await
}

/// Writes a document before rules are at work.
async fn write(engine: &Engine, index: &str, id: &str, source: Value) {
    let user =
        Principal::new(Caller::User("somebody".into()), Vec::new(), Arc::new(Privileges::unrestricted()));
    let ops = vec![document(index, id, source)];
    let written = engine.write(&user, ops, RefreshPolicy::None, Duration::from_secs(60)).await.unwrap();
    written.into_iter().for_each(|outcome| drop(outcome.unwrap()));
}

/// Makes a snapshot `one` of a server whose rules are stopped.
async fn create(server: &Server, backups: &Path) {
    server.alerting.stop().await;
    create_as(server, backups, "one").await;
}

async fn create_as(server: &Server, backups: &Path, snapshot: &str) {
    let service = open_with_backup(&server.engine, backups).await.unwrap();
    let create = CreateSnapshot::default();
    service.create(&Principal::system(), ("backup", snapshot), create).await.unwrap();
}

/// Makes a snapshot `one` of two rules that have seen two documents of three, and ends the server. Returns the alerts in it.
async fn create_ahead_of_rules(server: Server, backups: &Path) -> BTreeMap<String, Value> {
    server.save(errors("each")).await;
    server.save(three_failures()).await;
    for id in ["e1", "e2"] {
        server.write(vec![document("logs", id, failure("web"))]).await;
    }
    assert_eq!(triggers_of(&server, "each").await, ["e1", "e2"]);
    let alerts = server.documents("alert").await;
    // A document that no rule has seen at the moment of the snapshot.
    server.alerting.stop().await;
    server.write(vec![document("logs", "e3", failure("web"))]).await;
    create_as(&server, backups, "one").await;
    alerts
}

/// Restores a snapshot with the global state.
async fn restore(engine: &Arc<Engine>, backups: &Path, snapshot: &str, indices: &str) {
    let request = RestoreSnapshot { include_global_state: true, ..of_indices(indices) };
    restore_by(engine, backups, snapshot, request).await;
}

fn of_indices(indices: &str) -> RestoreSnapshot {
    RestoreSnapshot { indices: Some(indices.to_owned()), ..RestoreSnapshot::default() }
}

async fn restore_by(engine: &Arc<Engine>, backups: &Path, snapshot: &str, request: RestoreSnapshot) {
    let service = open_with_backup(engine, backups).await.unwrap();
    let report = service.restore(&Principal::system(), ("backup", snapshot), request).await.unwrap();
    assert!(report.failures.is_empty(), "{report:?}");
}

/// The rules of a server as it shows them.
fn rules_of(server: &Server) -> Vec<Value> {
    server.alerting.list(&server.admin()).iter().map(millrace_alerting::Record::value).collect()
}

/// The triggers of the alerts of a rule, in order.
async fn triggers_of(server: &Server, rule: &str) -> Vec<String> {
    server.settled().await;
    let alerts = server.documents("alert").await.into_values();
    let own = alerts.filter(|alert| alert["rule_name"] == json!(rule));
    let mut triggers: Vec<String> =
        own.map(|alert| alert["trigger"]["_id"].as_str().unwrap().to_owned()).collect();
    triggers.sort();
    triggers
}

#[tokio::test(flavor = "multi_thread")]
async fn restored_rules_raise_an_alert_of_each_document_once() {
    let (data, other, third, backups) = (
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
    );
    let server = Server::open(data.path()).await;
    server.write(vec![document("logs", "before", failure("db"))]).await;
    let alerts = create_ahead_of_rules(server, backups.path()).await;

    let engine = open_store(other.path()).await;
    restore(&engine, backups.path(), "one", "*,.alertrules").await;
    // One that comes before the rules are loaded.
    write(&engine, "logs", "e4", failure("web")).await;
    let server = Server::over(engine).await;
    assert_eq!(triggers_of(&server, "each").await, ["e1", "e2", "e3", "e4"]);
    assert_eq!(triggers_of(&server, "three").await, ["e3"], "two of its failures are in the snapshot");
    let restored = server.documents("alert").await;
    assert!(alerts.iter().all(|(id, alert)| restored.get(id) == Some(alert)), "alerts keep their ids");
    server.write(vec![document("logs", "e5", failure("db"))]).await;
    assert_eq!(triggers_of(&server, "each").await, ["e1", "e2", "e3", "e4", "e5"]);
    server.stop().await;

    // A restart, and a snapshot of the restored store, whose documents are of two logs.
    let server = Server::open(other.path()).await;
    assert_eq!(triggers_of(&server, "each").await, ["e1", "e2", "e3", "e4", "e5"]);
    assert_eq!(server.engine.positions(FEED_PIPELINE, RULES_READER).len(), 1, "its own position alone");
    create_as(&server, backups.path(), "two").await;
    drop(server);
    let engine = open_store(third.path()).await;
    restore(&engine, backups.path(), "two", "*,.alertrules").await;
    let server = Server::over(engine).await;
    server.write(vec![document("logs", "e6", failure("web"))]).await;
    assert_eq!(triggers_of(&server, "each").await, ["e1", "e2", "e3", "e4", "e5", "e6"]);
    assert_eq!(triggers_of(&server, "three").await, ["e3"]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_without_the_global_state_begin_with_the_log_of_the_store() {
    let (data, other, backups) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = Server::open(data.path()).await;
    server.save(errors("each")).await;
    server.write(vec![document("logs", "e1", failure("web"))]).await;
    assert_eq!(triggers_of(&server, "each").await, ["e1"]);
    server.alerting.stop().await;
    server.write(vec![document("logs", "e2", failure("web"))]).await;
    create_as(&server, backups.path(), "one").await;
    drop(server);
    let engine = open_store(other.path()).await;
    restore_by(&engine, backups.path(), "one", of_indices("*,.alertrules")).await;
    let server = Server::over(engine).await;
    server.write(vec![document("logs", "e3", failure("web"))]).await;
    assert_eq!(triggers_of(&server, "each").await, ["e1", "e3"]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn restored_rules_know_the_terms_that_came_before_they_were_saved() {
    let (data, other, backups) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let user = |user: &str| json!({"level": "error", "user": user});
    let server = Server::open(data.path()).await;
    server.write(vec![document("logs", "t1", user("ann"))]).await;
    let mut rule = errors("terms");
    (rule["type"], rule["fields"]) = (json!("new_term"), json!("user"));
    server.save(rule).await;
    server.write(vec![document("logs", "t2", user("bob"))]).await;
    assert_eq!(triggers_of(&server, "terms").await, ["t2"]);
    create(&server, backups.path()).await;
    drop(server);
    let engine = open_store(other.path()).await;
    restore(&engine, backups.path(), "one", "*,.alertrules").await;
    let server = Server::over(engine).await;
    for (id, name) in [("t3", "ann"), ("t4", "bob"), ("t5", "eve")] {
        server.write(vec![document("logs", id, user(name))]).await;
    }
    assert_eq!(triggers_of(&server, "terms").await, ["t2", "t5"]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_without_a_position_raise_nothing_of_documents_that_the_store_had() {
    let (data, other, backups) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = Server::open(data.path()).await;
    server.save(errors("each")).await;
    create(&server, backups.path()).await;
    drop(server);
    let engine = open_store(other.path()).await;
    // Its log is longer than the one in which the rule was saved.
    for number in 0..50 {
        write(&engine, "logs", &format!("old{number}"), failure("web")).await;
    }
    restore_by(&engine, backups.path(), "one", of_indices(".alertrules")).await;
    let server = Server::over(engine).await;
    server.write(vec![document("logs", "new", failure("web"))]).await;
    assert_eq!(triggers_of(&server, "each").await, ["new"]);
    server.stop().await;
    // A restart forgets nothing.
    let engine = open_store(other.path()).await;
    write(&engine, "logs", "next", failure("web")).await;
    let server = Server::over(engine).await;
    assert_eq!(triggers_of(&server, "each").await, ["new", "next"]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_of_a_store_whose_clock_is_behind_raise_alerts() {
    let (data, other, backups) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = Server::open(data.path()).await;
    server.save(errors("each")).await;
    server.write(vec![document("logs", "e1", failure("web"))]).await;
    assert_eq!(triggers_of(&server, "each").await, ["e1"]);
    let an_hour_ago = server.engine.clock().now_ms() - 3_600_000;
    create(&server, backups.path()).await;
    drop(server);
    let config = EngineConfig { data_dir: other.path().to_owned(), ..EngineConfig::default() };
    let engine = Engine::open(config, Arc::new(ManualClock::new(an_hour_ago))).await.unwrap();
    restore(&engine, backups.path(), "one", "*,.alertrules").await;
    write(&engine, "logs", "e2", failure("web")).await;
    let server = Server::over(engine).await;
    assert_eq!(triggers_of(&server, "each").await, ["e1", "e2"]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rules_of_a_running_server_are_replaced_between_two_frames() {
    let (data, backups) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = Server::open(data.path()).await;
    server.save(errors("each")).await;
    server.save(three_failures()).await;
    server.write(vec![document("logs", "e1", failure("web"))]).await;
    assert_eq!(triggers_of(&server, "each").await, ["e1"]);
    create_as(&server, backups.path(), "one").await;
    // Rules of later: a new one, a changed one, and one that is gone.
    server.save(errors("later")).await;
    let mut changed = errors("each");
    changed["search"]["request"]["body"]["query"] = json!({"match": {"level": "warning"}});
    server.save(changed).await;
    let three = rules_of(&server).into_iter().find(|rule| rule["name"] == "three").unwrap();
    server.alerting.delete(&server.admin(), three["id"].as_str().unwrap()).await.unwrap();
    server.write(vec![document("logs", "e2", failure("web"))]).await;
    assert_eq!(triggers_of(&server, "later").await, ["e2"]);

    restore(&server.engine, backups.path(), "one", "-*").await;
    server.alerting.reload().await.unwrap();
    let mut names: Vec<Value> = rules_of(&server).into_iter().map(|rule| rule["name"].clone()).collect();
    names.sort_by_key(Value::to_string);
    assert_eq!(names, ["each", "three"]);
    for id in ["e3", "e4", "e5"] {
        server.write(vec![document("logs", id, failure("web"))]).await;
    }
    assert_eq!(triggers_of(&server, "each").await, ["e1", "e3", "e4", "e5"], "of before and of behind");
    assert_eq!(triggers_of(&server, "three").await, ["e5"], "it begins anew");
    assert_eq!(triggers_of(&server, "later").await, ["e2"]);
    server.save(errors("another")).await;
    server.stop().await;

    let server = Server::open(data.path()).await;
    server.write(vec![document("logs", "e6", failure("db"))]).await;
    assert_eq!(triggers_of(&server, "each").await, ["e1", "e3", "e4", "e5", "e6"]);
    assert_eq!(triggers_of(&server, "another").await, ["e6"]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_running_server_takes_rules_up_where_they_were() {
    let (data, other, backups) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = Server::open(data.path()).await;
    create_ahead_of_rules(server, backups.path()).await;

    let server = Server::open(other.path()).await;
    restore(&server.engine, backups.path(), "one", "*").await;
    // One that comes before the rules are loaded.
    server.write(vec![document("logs", "e4", failure("web"))]).await;
    server.alerting.reload().await.unwrap();
    assert_eq!(triggers_of(&server, "each").await, ["e1", "e2", "e3", "e4"]);
    assert_eq!(triggers_of(&server, "three").await, ["e3"], "two of its failures are in the snapshot");
    server.write(vec![document("logs", "e5", failure("db"))]).await;
    assert_eq!(triggers_of(&server, "each").await, ["e1", "e2", "e3", "e4", "e5"]);
    server.stop().await;
    let server = Server::open(other.path()).await;
    assert_eq!(server.engine.positions(FEED_PIPELINE, RULES_READER).len(), 1, "its own position alone");
    server.write(vec![document("logs", "e6", failure("db"))]).await;
    assert_eq!(triggers_of(&server, "each").await, ["e1", "e2", "e3", "e4", "e5", "e6"]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_document_is_seen_by_the_rule_of_before_or_by_the_restored_one() {
    let (data, backups) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = Arc::new(Server::open(data.path()).await);
    server.save(errors("each")).await;
    create_as(&server, backups.path(), "one").await;
    let writer = Arc::clone(&server);
    let written = tokio::spawn(async move {
        for number in 0..400 {
            writer.write(vec![document("logs", &format!("e{number:03}"), failure("web"))]).await;
        }
    });
    while !written.is_finished() {
        restore(&server.engine, backups.path(), "one", "-*").await;
        server.alerting.reload().await.unwrap();
    }
    written.await.unwrap();
    let expected: Vec<String> = (0..400).map(|number| format!("e{number:03}")).collect();
    assert_eq!(triggers_of(&server, "each").await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn state_of_rules_of_before_is_not_taken_for_that_of_restored_ones() {
    let (data, backups) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = Server::open(data.path()).await;
    server.save(three_failures()).await;
    create_as(&server, backups.path(), "one").await;
    for id in ["e1", "e2"] {
        server.write(vec![document("logs", id, failure("web"))]).await;
    }
    server.settled().await;
    // It ends between the restore and the load of the rules.
    restore(&server.engine, backups.path(), "one", "-*").await;
    server.stop().await;
    let server = Server::open(data.path()).await;
    server.write(vec![document("logs", "e3", failure("web"))]).await;
    assert!(triggers_of(&server, "three").await.is_empty(), "it begins with empty state");
    for id in ["e4", "e5"] {
        server.write(vec![document("logs", id, failure("web"))]).await;
    }
    assert_eq!(triggers_of(&server, "three").await, ["e5"]);
    server.stop().await;
}
