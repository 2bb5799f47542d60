//! Runs: their inputs, their results where they fail or are overtaken, and their effects.

use std::path::Path;
use std::sync::Arc;

use millrace_catalog::access::Principal;
use millrace_catalog::metadata::{IndicesOptions, Metadata};
use millrace_engine::Engine;
use millrace_intelligence::Error;
use millrace_runtime::Clock;
use serde_json::{Value, json};

use crate::fixture::{MINUTE, START, Server, rule, until, write};

/// A rule that runs when it is told to.
fn by_hand() -> Value {
    let mut rule = rule("load");
    rule["automatic"] = json!(false);
    rule
}

/// A rule whose runs over two hours of history take a while.
fn slow() -> Value {
    let mut slow = by_hand();
    (slow["algorithm_type"], slow["start_date"]) = (json!("RFRS"), json!("2026-03-02 11:00"));
    (slow["max_probes"], slow["max_predictions"]) = (json!(60), json!(1));
    slow
}

/// The rule once for each of some hosts.
fn for_hosts(mut rule: Value, hosts: &[&str]) -> Value {
    (rule["multiply_by_field"], rule["multiply_by_values"]) = (json!("host.keyword"), json!(hosts));
    rule
}

/// Writes a document of each host for each minute from one to before another: the load is the number of the minute.
async fn hosts(server: &Server, from: i64, to: i64, hosts: &[&str]) {
    for (minute, host) in (from..to).flat_map(|minute| hosts.iter().map(move |host| (minute, host))) {
        let document = json!({"@timestamp": START + minute * MINUTE + 1000, "load": minute, "host": host});
        server.write("logs", &format!("{host} {minute}"), &document).await;
    }
}

/// The record of the one rule as it is stored.
async fn record(engine: &Arc<Engine>) -> Value {
    let mut record = Value::Null;
    let index = engine.index(".intelligence_rules").unwrap();
    let mut reading = engine.read_back_stored(&index).await.unwrap();
    while let Some(frame) = reading.next().await.unwrap() {
        for op in frame.parts.iter().flat_map(|part| &part.ops) {
            let Some(source) = &op.source else { continue };
            record = serde_json::from_slice(source).unwrap();
        }
    }
    record
}

/// Opens the store of a server that was stopped, with the record of its one rule as another server may have left it.
async fn reopened(dir: &Path, now_ms: i64, id: &str, change: fn(&mut Value)) -> Server {
    let (engine, clock) = Server::engine(dir, now_ms).await;
    let mut record = record(&engine).await;
    change(&mut record);
    write(&engine, ".intelligence_rules", id, &record).await;
    Server::over(engine, clock).await
}

#[tokio::test(flavor = "multi_thread")]
async fn predictions_of_a_run_that_is_made_up_get_to_know_what_became_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path(), START + 39 * MINUTE).await;
    server.minutes(0, 60).await;
    let mut rule = rule("load");
    (rule["automatic_cron"], rule["max_predictions"]) = (json!("40 * * * *"), json!(30));
    let id = server.create(rule).await;
    server.run(&id).await.unwrap();
    server.stop().await;
    // It was due at 40, and what was predicted at 39 may be filled in before that is made up.
    let server = Server::reopen(dir.path(), START + 58 * MINUTE + 31_000).await;
    until("what became of both", async || {
        let both = (server.known(39).await.len(), server.known(40).await.len());
        (both == (19, 18)).then_some(())
    })
    .await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_became_of_history_is_known_when_it_is_over_for_good() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path(), START + 31 * MINUTE + 10_000).await;
    server.minutes(0, 31).await;
    let mut rule = by_hand();
    rule["start_date"] = json!("2026-03-02 10:20");
    let id = server.create(rule).await;
    server.run(&id).await.unwrap();
    assert_eq!(server.known(20).await, [20.0, 21.0, 22.0, 23.0, 24.0]);
    assert_eq!(server.known(25).await.len(), 5);
    assert_eq!(server.known(30).await.len(), 0);
    // A document that comes late.
    let late = json!({"@timestamp": START + 30 * MINUTE + 30_000, "load": 90});
    server.write("logs", "late", &late).await;
    server.clock.advance_ms(25_000);
    server.until_known(30, &[60.0]).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn history_is_gone_over_once_though_there_is_too_little_to_go_on_from() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path(), START + 60 * MINUTE).await;
    server.minutes(0, 20).await;
    let mut rule = by_hand();
    (rule["start_date"], rule["max_probes"]) = (json!("2026-03-02 10:10"), json!(5));
    let id = server.create(rule).await;
    for _ in 0..2 {
        let refused = server.run(&id).await.unwrap_err().to_string();
        assert!(refused.starts_with("TL needs 2 samples"), "{refused}");
        // From 10, 15 and 20; behind that there is nothing to learn from.
        assert_eq!(server.predictions().await.len(), 15);
        let walked_ms = record(&server.engine).await["state"]["walked_ms"].as_i64();
        assert_eq!(walked_ms, Some(START + 60 * MINUTE));
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn history_that_cannot_be_forecast_keeps_nothing_else_from_being_forecast() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path(), START + 60 * MINUTE).await;
    // Twice as much each minute, which a day later is more than there are numbers for.
    for minute in 0..60 {
        let load = if minute < 12 { 1_i64 << minute } else { 5 };
        let document = json!({"@timestamp": START + minute * MINUTE + 1000, "load": load});
        server.write("logs", &minute.to_string(), &document).await;
    }
    let mut rule = by_hand();
    (rule["algorithm_type"], rule["start_date"]) = (json!("LRS"), json!("2026-03-02 10:12"));
    rule["max_predictions"] = json!(1_440);
    let id = server.create(rule).await;
    assert_eq!(server.run(&id).await.unwrap(), "1440 predictions from 30 samples");
    let predictions = server.predictions().await;
    assert!(predictions.keys().all(|uid| uid.starts_with("load_LRS_20260302_110000_")));
    let walked_ms = record(&server.engine).await["state"]["walked_ms"].as_i64();
    assert_eq!(walked_ms, Some(START + 60 * MINUTE));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_without_samples_stops_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path(), START + 30 * MINUTE).await;
    hosts(&server, 20, 30, &["web1", "web2"]).await;
    let id = server.create(for_hosts(by_hand(), &["web1", "gone", "web2"])).await;
    let refused = server.run(&id).await.unwrap_err().to_string();
    assert!(refused.starts_with("value [gone]: TL needs 2 samples"), "{refused}");
    let predictions = server.predictions().await;
    for value in ["web1", "web2"] {
        let of = format!("load[{value}]_TL_20260302_103000_");
        assert_eq!(predictions.keys().filter(|id| id.starts_with(&of)).count(), 5, "{value}");
    }
    let shown = server.shown(&id);
    assert_eq!((&shown["exit_code"], &shown["error_message"]), (&json!(1), &json!(refused)));
    assert_eq!(shown["machine_state_uid"], "load[web2]_TL_20260302_103000");
    // What was written is known, so it is filled in, too.
    hosts(&server, 30, 36, &["web1", "web2"]).await;
    server.clock.advance_ms(6 * MINUTE + 31_000);
    server.until_all_known().await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_became_of_a_value_that_is_taken_out_is_known() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path(), START + 30 * MINUTE).await;
    hosts(&server, 20, 36, &["web1", "web2"]).await;
    let id = server.create(for_hosts(by_hand(), &["web1", "web2"])).await;
    server.run(&id).await.unwrap();
    server.intelligence.update(&server.admin(), &id, for_hosts(by_hand(), &["web2"])).await.unwrap();
    server.clock.advance_ms(6 * MINUTE + 31_000);
    server.until_all_known().await;
    // Then of all hosts together.
    server.intelligence.update(&server.admin(), &id, for_hosts(by_hand(), &[])).await.unwrap();
    server.run(&id).await.unwrap();
    hosts(&server, 36, 42, &["web1", "web2"]).await;
    server.clock.advance_ms(6 * MINUTE);
    server.until_all_known().await;
    assert_eq!(server.predictions().await.len(), 15);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_picture_of_a_value_that_failed_shows_what_was_predicted_before() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path(), START + 30 * MINUTE).await;
    hosts(&server, 20, 30, &["web1", "web2"]).await;
    let id = server.create(for_hosts(by_hand(), &["web1", "web2"])).await;
    let (intelligence, admin) = (&server.intelligence, server.admin());
    intelligence.run(&admin, &id).await.unwrap();
    hosts(&server, 60, 70, &["web1"]).await;
    server.clock.advance_ms(40 * MINUTE);
    let refused = intelligence.run(&admin, &id).await.unwrap_err().to_string();
    assert!(refused.starts_with("value [web2]: TL needs 2 samples"), "{refused}");
    for value in ["web1", "web2"] {
        let svg = intelligence.plot(&admin, &id, Some(value)).await.unwrap();
        assert!(svg.contains("measured") && svg.contains("predicted"), "{value}: {svg:.500}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_a_search_refuses_keeps_no_other_from_its_cur() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path(), START + 30 * MINUTE).await;
    let minutes = async |from: i64, to: i64| {
        for minute in from..to {
            let document = json!({"@timestamp": START + minute * MINUTE + 1000, "load": minute, "code": 1});
            server.write("logs", &minute.to_string(), &document).await;
        }
    };
    minutes(20, 30).await;
    let mut rule = by_hand();
    (rule["multiply_by_field"], rule["multiply_by_values"]) = (json!("code"), json!(["x", "1"]));
    let id = server.create(rule).await;
    let refused = server.run(&id).await.unwrap_err().to_string();
    assert!(refused.starts_with("value [x]: "), "{refused}");
    assert_eq!(server.predictions().await.len(), 5);
    minutes(30, 36).await;
    server.clock.advance_ms(6 * MINUTE + 31_000);
    server.until_all_known().await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_count_is_0_in_quiet_buckets_behind_the_first_document() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path(), START + 30 * MINUTE).await;
    let document = async |minute: i64| {
        let document = json!({"@timestamp": START + minute * MINUTE + 1000, "load": 1});
        server.write("logs", &minute.to_string(), &document).await;
    };
    let mut rule = by_hand();
    (rule["algorithm_type"], rule["value_type"]) = (json!("SMA"), json!("count"));
    rule["max_probes"] = json!(60);
    let id = server.create(rule).await;
    let run = async |from: &str| {
        let said = server.run(&id).await.unwrap();
        let uid = format!("load_SMA_20260302_{from}00_20260302{from}00");
        (said, server.predictions().await[&uid]["load_pre"].as_f64().unwrap())
    };
    document(29).await;
    document(20).await;
    let (said, first) = run("1030").await;
    assert_eq!(said, "5 predictions from 10 samples");
    assert!((first - 0.2).abs() < 1e-9, "{first}");
    document(-1000).await;
    let (said, first) = run("1030").await;
    assert_eq!(said, "5 predictions from 60 samples");
    assert!((first - 2.0 / 60.0).abs() < 1e-9, "{first}");
    server.clock.advance_ms(90 * MINUTE);
    assert_eq!(run("1200").await, ("5 predictions from 60 samples".to_owned(), 0.0));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_saved_search_may_name_its_indices_without_an_index_pattern() {
    let dir = tempfile::tempdir().unwrap();
    let (server, id) = Server::with_rule(dir.path(), 31, by_hand()).await;
    let source = json!({"index": "log*", "query": {"language": "lucene", "query": "*"}});
    let search = json!({"attributes": {"title": "direct", "kibanaSavedObjectMeta": {"searchSourceJSON": source.to_string()}}});
    server.write(".console", "search:direct", &json!({"object": search})).await;
    let mut direct = by_hand();
    (direct["model_name"], direct["search"]) = (json!("direct"), json!("search:direct"));
    let direct = server.create(direct).await;
    server.run(&id).await.unwrap();
    server.run(&direct).await.unwrap();
    let predictions = server.predictions().await;
    let of_direct = predictions.iter().filter(|(uid, _)| uid.starts_with("direct_")).count();
    assert_eq!(predictions.len(), 2 * of_direct, "{predictions:?}");
    assert!(of_direct > 0);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_of_an_index_that_is_closed_are_not_0_but_known_once_it_is_open() {
    let dir = tempfile::tempdir().unwrap();
    let mut count = by_hand();
    count["value_type"] = json!("count");
    let (server, id) = Server::with_rule(dir.path(), 31, count).await;
    let source = json!({"index": "other", "query": {"language": "lucene", "query": "*"}});
    let search = json!({"attributes": {"title": "other", "kibanaSavedObjectMeta": {"searchSourceJSON": source.to_string()}}});
    let pattern = json!({"attributes": {"title": "other", "timeFieldName": "@timestamp"}});
    for (id, object) in [("search:other", search), ("index-pattern:other", pattern)] {
        server.write(".console", id, &json!({"object": object})).await;
    }
    for minute in 0..42 {
        let document = json!({"@timestamp": START + minute * MINUTE + 1000, "load": minute});
        server.write("other", &minute.to_string(), &document).await;
    }
    let mut other = by_hand();
    (other["model_name"], other["search"]) = (json!("other"), json!("search:other"));
    let other = server.create(other).await;
    server.run(&id).await.unwrap();
    server.run(&other).await.unwrap();
    server.minutes(31, 36).await;
    let (principal, named) = (Principal::system(), IndicesOptions::open_and_closed());
    let close = |metadata: &Metadata| metadata.close_indices("logs", &named, START);
    server.engine.change(&principal, close).await.unwrap();
    server.clock.advance_ms(6 * MINUTE + 31_000);
    let known_of_other = async || {
        until("what became of the other's", async || {
            let predictions = server.predictions().await;
            let mut of = predictions.iter().filter(|(uid, _)| uid.starts_with("other_"));
            of.all(|(_, document)| document["load_cur"].is_number()).then_some(())
        })
        .await;
    };
    known_of_other().await;
    // Once more: whichever of the two comes first, both were looked at between.
    server.run(&other).await.unwrap();
    server.clock.advance_ms(6 * MINUTE);
    known_of_other().await;
    assert_eq!(server.known(31).await.len(), 0);
    let open = |metadata: &Metadata| metadata.open_indices("logs", &named, START);
    server.engine.change(&principal, open).await.unwrap();
    // It is tried again after a while, which has doubled by then.
    server.clock.advance_ms(10 * MINUTE);
    server.until_known(31, &[1.0; 5]).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn predictions_of_something_else_do_not_get_to_know_what_became_of_this() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path(), START + 31 * MINUTE).await;
    server.minutes(0, 40).await;
    let mut rule = by_hand();
    let id = server.create(rule.clone()).await;
    let (intelligence, admin) = (&server.intelligence, server.admin());
    intelligence.run(&admin, &id).await.unwrap();
    rule["value_type"] = json!("count");
    intelligence.update(&admin, &id, rule).await.unwrap();
    server.clock.advance_ms(MINUTE);
    intelligence.run(&admin, &id).await.unwrap();
    server.clock.advance_ms(6 * MINUTE + 31_000);
    server.until_known(32, &[1.0; 5]).await;
    assert_eq!(server.known(31).await.len(), 0, "these are of averages");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_of_a_rule_that_is_changed_or_deleted_ends() {
    let dir = tempfile::tempdir().unwrap();
    let (server, id) = Server::with_rule(dir.path(), 180, slow()).await;
    let (intelligence, admin) = (&server.intelligence, server.admin());
    let runs = async || until("the run", async || (server.shown(&id)["pid"] != 0).then_some(())).await;
    let run = server.begin(&id);
    runs().await;
    intelligence.update(&admin, &id, slow()).await.unwrap();
    let refused = run.await.unwrap().unwrap_err();
    assert!(matches!(refused, Error::Conflict(_)), "{refused}");
    assert!(server.shown(&id)["machine_state_uid"].is_null());
    let run = server.begin(&id);
    runs().await;
    intelligence.delete(&admin, &id).await.unwrap();
    let refused = run.await.unwrap().unwrap_err();
    assert!(matches!(refused, Error::NotFound(_)), "{refused}");
    assert_eq!(server.predictions().await.len(), 0);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_overtaken_run_wrote_gets_to_know_what_became_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path(), START + 180 * MINUTE).await;
    hosts(&server, 0, 180, &["web1", "web2"]).await;
    let rule = for_hosts(slow(), &["web1", "web2"]);
    let id = server.create(rule.clone()).await;
    let (intelligence, admin) = (&server.intelligence, server.admin());
    let run = server.begin(&id);
    let last = "load[web1]_RFRS_20260302_130000_20260302130000";
    until("the first value", async || server.predictions().await.contains_key(last).then_some(())).await;
    intelligence.update(&admin, &id, rule).await.unwrap();
    let refused = run.await.unwrap().unwrap_err();
    assert!(matches!(refused, Error::Conflict(_)), "{refused}");
    hosts(&server, 180, 181, &["web1"]).await;
    server.clock.advance_ms(2 * MINUTE);
    server.until_all_known().await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_waits_for_runs_by_hand() {
    let dir = tempfile::tempdir().unwrap();
    let (server, id) = Server::with_rule(dir.path(), 180, slow()).await;
    let run = server.begin(&id);
    until("the run", async || (server.shown(&id)["pid"] != 0).then_some(())).await;
    server.intelligence.stop().await;
    let shown = server.shown(&id);
    assert_eq!((&shown["pid"], &shown["exit_code"]), (&json!(0), &json!(1)));
    let refused = run.await.unwrap().unwrap_err();
    assert!(matches!(refused, Error::Storage(_)), "{refused}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_came_of_a_run_is_noted_once_its_record_can_be_written() {
    let dir = tempfile::tempdir().unwrap();
    let (server, id) = Server::with_rule(dir.path(), 180, slow()).await;
    let (principal, options) = (Principal::system(), IndicesOptions::open_only());
    let block = async |is_set: bool| {
        let settings = json!({"index.blocks.write": is_set});
        let decide = |metadata: &Metadata| {
            metadata.update_settings(".intelligence_rules", &options, &settings, false, START)
        };
        server.engine.change(&principal, decide).await.unwrap();
    };
    let run = server.begin(&id);
    until("the run", async || (server.shown(&id)["pid"] != 0).then_some(())).await;
    block(true).await;
    let refused = run.await.unwrap().unwrap_err();
    assert!(matches!(refused, Error::Storage(_)), "{refused}");
    let refused = server.run(&id).await.unwrap_err();
    assert!(matches!(refused, Error::Conflict(_)), "{refused}");
    assert!(server.shown(&id)["exit_code"].is_null());
    block(false).await;
    until("the end of the run", async || (server.shown(&id)["pid"] == 0).then_some(())).await;
    let shown = server.shown(&id);
    assert_eq!((&shown["exit_code"], &shown["error_description"]), (&json!(1), &json!("store")));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_stored_beside_a_prediction_that_is_refused_is_known() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path(), START + 31 * MINUTE + 10_000).await;
    server.minutes(0, 31).await;
    // Those that are over cannot be stored.
    let object = json!({"properties": {"of": {"type": "keyword"}}});
    let mapping = json!({"mappings": {"properties": {"load_cur": object}}});
    server.engine.make_own_index("intelligence", &mapping).await.unwrap();
    let mut rule = by_hand();
    rule["start_date"] = json!("2026-03-02 10:20");
    let id = server.create(rule).await;
    let refused = server.run(&id).await.unwrap_err().to_string();
    assert!(refused.starts_with("a prediction cannot be stored"), "{refused}");
    assert_eq!(server.predictions().await.len(), 10);
    assert_eq!(server.shown(&id)["machine_state_uid"], "load_TL_20260302_103100");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prediction_that_is_refused_ends_the_run_whatever_is_left_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path(), START + 31 * MINUTE + 10_000).await;
    hosts(&server, 0, 31, &["web1", "web2"]).await;
    // Ten of the first step's are over, which cannot be stored.
    let object = json!({"properties": {"of": {"type": "keyword"}}});
    let mapping = json!({"mappings": {"properties": {"load_cur": object}}});
    server.engine.make_own_index("intelligence", &mapping).await.unwrap();
    let mut rule = for_hosts(by_hand(), &["web1", "web2"]);
    (rule["start_date"], rule["max_predictions"]) = (json!("2026-03-02 10:20"), json!(500));
    let id = server.create(rule).await;
    let refused = server.run(&id).await.unwrap_err();
    assert!(matches!(refused, Error::Stored(_)), "{refused}");
    assert_eq!(server.predictions().await.len(), 490);
    assert!(record(&server.engine).await["state"]["walked_ms"].is_null(), "what is behind is predicted yet");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn predictions_with_many_roles_are_all_written() {
    let dir = tempfile::tempdir().unwrap();
    let mut rule = by_hand();
    let roles: Vec<String> = (0..100).map(|role| format!("role{role}")).collect();
    (rule["max_predictions"], rule["selectedroles"]) = (json!(1_200), json!(roles));
    let (server, id) = Server::with_rule(dir.path(), 30, rule).await;
    let said = server.run(&id).await.unwrap();
    assert_eq!(said, "1200 predictions from 30 samples");
    let predictions = server.predictions().await;
    assert_eq!(predictions.len(), 1_200);
    assert!(predictions.values().all(|document| document["roles"] == json!(roles)));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_ended_with_the_server_twice_is_not_made_up_again() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path(), START + 31 * MINUTE).await;
    server.minutes(0, 41).await;
    let id = server.create(rule("load")).await;
    server.stop().await;
    let killed = |record: &mut Value| (record["pid"], record["state"]["tries"]) = (json!(4242), json!(2));
    let server = reopened(dir.path(), START + 36 * MINUTE, &id, killed).await;
    let shown = server.shown(&id);
    assert_eq!((&shown["pid"], &shown["exit_code"]), (&json!(0), &json!(1)));
    assert!(shown["error_message"].as_str().unwrap().contains("2 times"), "{shown}");
    server.clock.advance_ms(5 * MINUTE);
    until("the next run", async || (server.shown(&id)["exit_code"] == 0).then_some(())).await;
    let predictions = server.predictions().await;
    assert_eq!(predictions.len(), 5);
    assert!(predictions.keys().all(|uid| uid.starts_with("load_TL_20260302_104000_")));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_was_ahead_keeps_no_rule_from_running() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path(), START + 31 * MINUTE).await;
    let id = server.create(rule("load")).await;
    server.stop().await;
    let ahead = |record: &mut Value| record["state"]["handled_ms"] = json!(START + 5_000_000 * MINUTE);
    let server = reopened(dir.path(), START + 36 * MINUTE, &id, ahead).await;
    until("a run", async || {
        server.clock.advance_ms(MINUTE);
        server.shown(&id)["last_execute"].is_string().then_some(())
    })
    .await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_clock_that_was_ahead_filled_in_is_corrected() {
    let dir = tempfile::tempdir().unwrap();
    let mut rule = by_hand();
    rule["value_type"] = json!("count");
    let (server, id) = Server::with_rule(dir.path(), 31, rule).await;
    server.run(&id).await.unwrap();
    server.clock.advance_ms(60 * MINUTE);
    server.until_known(31, &[0.0; 5]).await;
    server.stop().await;
    let server = Server::reopen(dir.path(), START + 31 * MINUTE).await;
    until("what is to come", async || {
        let filled_ms = record(&server.engine).await["state"]["filled_ms"].as_i64().unwrap();
        (filled_ms <= START + 31 * MINUTE).then_some(())
    })
    .await;
    server.minutes(31, 36).await;
    server.clock.advance_ms(6 * MINUTE + 31_000);
    server.until_known(31, &[1.0; 5]).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_and_predictions_of_a_version_before_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let (server, id) = Server::with_rule(dir.path(), 31, by_hand()).await;
    server.run(&id).await.unwrap();
    for (uid, mut document) in server.predictions().await {
        document.as_object_mut().unwrap().remove("series_uid").unwrap();
        server.write("intelligence", &uid, &document).await;
    }
    server.stop().await;
    let before = |record: &mut Value| {
        record["state"].as_object_mut().unwrap().remove("search_digest").unwrap();
    };
    let server = reopened(dir.path(), START + 31 * MINUTE, &id, before).await;
    server.minutes(31, 36).await;
    server.clock.advance_ms(6 * MINUTE + 31_000);
    server.until_known(31, &[31.0, 32.0, 33.0, 34.0, 35.0]).await;
    server.run(&id).await.unwrap();
    // It is held to what was adopted.
    let pattern = json!({"object": {"attributes": {"title": "secrets*", "timeFieldName": "@timestamp"}}});
    server.write(".console", "index-pattern:logs", &pattern).await;
    let refused = server.run(&id).await.unwrap_err().to_string();
    assert!(refused.contains("has changed since the rule was saved"), "{refused}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_that_waits_for_its_schedule_is_run_by_hand() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path(), START + 181 * MINUTE).await;
    server.minutes(0, 186).await;
    let mut ids = Vec::new();
    for name in ["a", "b", "c", "d"] {
        let mut due = slow();
        (due["model_name"], due["automatic_cron"]) = (json!(name), json!("*/5 * * * *"));
        (due["automatic_enable"], due["automatic"]) = (json!(true), json!(true));
        ids.push(server.create(due).await);
    }
    server.clock.advance_ms(5 * MINUTE);
    // Two have run, and their places are empty for a while.
    let rests = async || {
        let due_ms = server.clock.now_ms();
        let shown: Vec<_> = ids.iter().map(|id| server.shown(id)).collect();
        let has_begun =
            |shown: &Value| shown["last_execute_mili"].as_i64().is_some_and(|began| began >= due_ms);
        let has_run = |shown: &&Value| has_begun(shown) && shown["exit_code"] == 0 && shown["pid"] == 0;
        let ran = shown.iter().filter(has_run).count();
        if ran == shown.len() {
            // All have run unseen.
            server.clock.advance_ms(5 * MINUTE);
        }
        let waits = shown.iter().position(|shown| !has_begun(shown));
        waits.filter(|_| ran >= 2)
    };
    let run = async || match server.run(&ids[rests().await?]).await {
        // A place has just come free for it.
        Err(Error::Conflict(_)) => None,
        ran => Some(ran.unwrap()),
    };
    until("two runs and one by hand", run).await;
    server.stop().await;
}
