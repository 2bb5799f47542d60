//! Runs by schedule: a missed time is made up once, nothing runs twice at once, and a killed run is not left running.

use millrace_intelligence::Error;
use serde_json::{Value, json};

use crate::fixture::{MINUTE, START, Server, rule, until, write};

fn load(document: &Value, ending: &str) -> Option<f64> {
    document[format!("load_{ending}")].as_f64()
}

#[tokio::test(flavor = "multi_thread")]
async fn missed_runs_are_made_up_once_with_the_latest_time() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path(), START + 30 * MINUTE + 1).await;
    server.minutes(0, 60).await;
    let id = server.create(rule("load")).await;
    // It was due at 35, 40 and 45.
    server.clock.advance_ms(17 * MINUTE + 31_000);
    until("a run", async || (server.shown(&id)["exit_code"] == 0).then_some(())).await;
    // A reading leaves documents out that are filled in while it reads.
    let predictions = until("all predictions", async || {
        let predictions = server.predictions().await;
        (predictions.len() >= 5).then_some(predictions)
    })
    .await;
    let ids: Vec<&str> = predictions.keys().map(String::as_str).collect();
    assert_eq!(
        ids,
        [45, 46, 47, 48, 49].map(|minute| format!("load_TL_20260302_104500_2026030210{minute}00"))
    );
    for (ahead, document) in (0..).zip(predictions.values()) {
        let expected = f64::from(45 + ahead);
        assert!((load(document, "pre").unwrap() - expected).abs() < 1e-6, "{document}");
    }
    // What is over by then is filled in.
    server.until_known(45, &[45.0, 46.0]).await;
    server.stop().await;

    // The server was down when it was due at 50 and 55.
    let server = Server::reopen(dir.path(), START + 58 * MINUTE).await;
    until("a run", async || (server.predictions().await.len() == 10).then_some(())).await;
    assert!(server.predictions().await.keys().any(|id| id == "load_TL_20260302_105500_20260302105900"));
    let filled = async || {
        let predictions = server.predictions().await;
        let known = predictions.values().filter(|document| load(document, "cur").is_some()).count();
        (known == 9).then_some(())
    };
    server.clock.advance_ms(MINUTE + 31_000);
    until("what became of them", filled).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_running_when_the_server_ended_does_not_run_any_more_and_is_made_up() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path(), START + 31 * MINUTE).await;
    server.minutes(0, 36).await;
    let id = server.create(rule("load")).await;
    server.stop().await;
    // As a killed server leaves it.
    let (engine, clock) = Server::engine(dir.path(), START + 36 * MINUTE).await;
    let source = {
        let index = engine.index(".intelligence_rules").unwrap();
        let mut reading = engine.read_back_stored(&index).await.unwrap();
        let frame = reading.next().await.unwrap().unwrap();
        frame.parts[0].ops[0].source.clone().unwrap()
    };
    let mut record: Value = serde_json::from_slice(&source).unwrap();
    record["pid"] = json!(4242);
    write(&engine, ".intelligence_rules", &id, &record).await;
    let server = Server::over(engine, clock).await;
    // The run that makes it up may have begun already.
    assert_ne!(server.shown(&id)["pid"], 4242);
    until("the run", async || (server.shown(&id)["exit_code"] == 0).then_some(())).await;
    assert_eq!(server.predictions().await.len(), 5);
    assert_eq!(server.shown(&id)["pid"], 0);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_does_not_run_twice_at_once_and_one_that_is_off_does_not_run() {
    let dir = tempfile::tempdir().unwrap();
    let mut off = rule("off");
    off["automatic_enable"] = json!(false);
    // A run that takes a while.
    (off["algorithm_type"], off["start_date"]) = (json!("RFRS"), json!("2026-03-02 10:40"));
    let (server, id) = Server::with_rule(dir.path(), 60, off).await;
    let run = server.begin(&id);
    until("the run", async || (server.shown(&id)["pid"] != 0).then_some(())).await;
    let other = server.run(&id).await;
    assert!(matches!(other, Err(Error::Conflict(_))), "{other:?}");
    run.await.unwrap().unwrap();
    server.clock.advance_ms(20 * MINUTE);
    // One that is on has run meanwhile: the other had its chance.
    let on = server.create(rule("on")).await;
    server.clock.advance_ms(20 * MINUTE);
    until("the run of the other", async || (!server.shown(&on)["exit_code"].is_null()).then_some(())).await;
    assert_eq!(server.shown(&id)["last_execute_timestamp"], "2026-03-02 11:00");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_run_stands_on_the_record_and_stops_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path(), START + 30 * MINUTE).await;
    server.minutes(0, 40).await;
    let mut broken = rule("broken");
    broken["label_field"] = json!({"field": "missing"});
    let broken = server.create(broken).await;
    let works = server.create(rule("works")).await;
    server.clock.advance_ms(6 * MINUTE);
    until("both runs", async || {
        let ended = |id: &str| !server.shown(id)["exit_code"].is_null();
        (ended(&broken) && ended(&works)).then_some(())
    })
    .await;
    assert_eq!(
        (&server.shown(&works)["exit_code"], &server.shown(&broken)["exit_code"]),
        (&json!(0), &json!(1))
    );
    let said = server.shown(&broken)["error_message"].as_str().unwrap().to_owned();
    assert!(said.contains("TL needs 2 samples") && said.contains("[missing]"), "{said}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_reads_what_its_search_said_when_it_was_saved() {
    let dir = tempfile::tempdir().unwrap();
    let (server, id) = Server::with_rule(dir.path(), 31, rule("load")).await;
    let (intelligence, admin) = (&server.intelligence, server.admin());
    intelligence.run(&admin, &id).await.unwrap();
    // Who may change index patterns points this one elsewhere.
    let pattern =
        |title: &str| json!({"object": {"attributes": {"title": title, "timeFieldName": "@timestamp"}}});
    server.write(".console", "index-pattern:logs", &pattern("secrets*")).await;
    let runs = intelligence.run(&admin, &id).await.map(|_| ());
    let draws = intelligence.plot(&admin, &id, None).await.map(|_| ());
    for refused in [runs, draws] {
        let refused = refused.unwrap_err();
        assert!(matches!(refused, Error::Invalid { .. }), "{refused}");
        assert!(refused.to_string().contains("has changed since the rule was saved"), "{refused}");
    }
    assert_eq!(server.shown(&id)["exit_code"], 1);
    intelligence.update(&admin, &id, rule("load")).await.unwrap();
    let refused = intelligence.run(&admin, &id).await.unwrap_err().to_string();
    assert!(refused.contains("needs 2 samples"), "it reads the other indices now: {refused}");
    server.write(".console", "index-pattern:logs", &pattern("logs*")).await;
    intelligence.update(&admin, &id, rule("load")).await.unwrap();
    intelligence.run(&admin, &id).await.unwrap();
    server.stop().await;
}
