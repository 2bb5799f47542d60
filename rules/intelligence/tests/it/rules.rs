//! Rules beside their schedules: records that cannot be read, models that cannot be kept, pictures, and the index of predictions.

use millrace_catalog::access::Principal;
use millrace_catalog::metadata::{IndicesOptions, Metadata};
use millrace_intelligence::Error;
use serde_json::json;

use crate::fixture::{MINUTE, START, Server, rule};

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_rule_is_told_until_it_is_deleted_or_saved_anew() {
    let dir = tempfile::tempdir().unwrap();
    let (server, _) = Server::with_rule(dir.path(), 31, rule("load")).await;
    for id in ["a", "b"] {
        server.write(".intelligence_rules", id, &json!({"colour": "red"})).await;
    }
    server.stop().await;
    let server = Server::reopen(dir.path(), START + 31 * MINUTE).await;
    let (intelligence, admin) = (&server.intelligence, server.admin());
    let faults = intelligence.faults();
    assert!(faults.len() == 2 && faults[0].contains("AI rule [a] cannot be read"), "{faults:?}");
    intelligence.delete(&admin, "a").await.unwrap();
    assert!(matches!(intelligence.delete(&admin, "a").await, Err(Error::NotFound(_))));
    let taken = intelligence.update(&admin, "b", rule("load")).await.unwrap_err();
    assert!(matches!(taken, Error::Conflict(_)), "{taken}");
    assert!(intelligence.faults().len() == 1 && intelligence.faults()[0].contains("AI rule [b]"));
    intelligence.update(&admin, "b", rule("anew")).await.unwrap();
    assert_eq!(intelligence.faults(), [""; 0]);
    intelligence.run(&admin, "b").await.unwrap();
    intelligence.update(&admin, "b", rule("again")).await.unwrap();
    server.stop().await;
    let server = Server::reopen(dir.path(), START + 31 * MINUTE).await;
    assert_eq!(server.intelligence.faults().len(), 0);
    assert_eq!(server.shown("b")["model_name"], "again");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_is_there_takes_as_many_fields_as_a_new_one() {
    const FIELDS: &str = "index.mapping.total_fields.limit";
    let dir = tempfile::tempdir().unwrap();
    let (engine, clock) = Server::engine(dir.path(), START).await;
    engine.make_own_index("intelligence", &json!({"mappings": {"dynamic": false}})).await.unwrap();
    let limit = |server: &Server, name: &str| {
        server.engine.metadata().index("intelligence").unwrap().setting(name).unwrap().to_owned()
    };
    let server = Server::over(engine, clock).await;
    assert_eq!(limit(&server, FIELDS), "20000");
    assert_eq!(limit(&server, "index.mapping.depth.limit"), "20");
    // What somebody has set stays.
    let (principal, options) = (Principal::system(), IndicesOptions::open_only());
    let more = json!({FIELDS: 30_000});
    let decide =
        |metadata: &Metadata| metadata.update_settings("intelligence", &options, &more, false, START);
    server.engine.change(&principal, decide).await.unwrap();
    server.stop().await;
    let server = Server::reopen(dir.path(), START).await;
    assert_eq!(limit(&server, FIELDS), "30000");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_cannot_be_kept_stops_no_run() {
    let dir = tempfile::tempdir().unwrap();
    let (server, id) = Server::with_rule(dir.path(), 31, rule("load")).await;
    let (intelligence, admin) = (&server.intelligence, server.admin());
    // Something is in its place.
    let model = dir.path().join(format!("intelligence/{id}/all.model"));
    std::fs::create_dir_all(&model).unwrap();
    for _ in 0..2 {
        assert_eq!(intelligence.run(&admin, &id).await.unwrap(), "5 predictions from 30 samples");
        let shown = server.shown(&id);
        assert_eq!((&shown["exit_code"], &shown["path_to_machine_state"]), (&json!(0), &json!(null)));
    }
    std::fs::remove_dir(&model).unwrap();
    intelligence.run(&admin, &id).await.unwrap();
    assert!(model.is_file() && server.shown(&id)["path_to_machine_state"].is_string());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_picture_shows_counts_of_quiet_buckets() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path(), START + 31 * MINUTE).await;
    let mut count = rule("load");
    count["value_type"] = json!("count");
    let id = server.create(count).await;
    let drawn = async || server.intelligence.plot(&server.admin(), &id, None).await.unwrap();
    assert!(!drawn().await.contains("measured"));
    // Long before what is drawn.
    server.minutes(-1_000, -999).await;
    assert!(drawn().await.contains("measured"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_picture_shows_no_predictions_of_other_buckets() {
    let dir = tempfile::tempdir().unwrap();
    let (server, id) = Server::with_rule(dir.path(), 31, rule("load")).await;
    let (intelligence, admin) = (&server.intelligence, server.admin());
    intelligence.run(&admin, &id).await.unwrap();
    server.engine.refresh(&[server.engine.index("intelligence").unwrap()]).await.unwrap();
    let svg = intelligence.plot(&admin, &id, None).await.unwrap();
    assert!(svg.contains("measured") && svg.contains("predicted"), "{svg:.500}");
    let mut hours = rule("load");
    hours["time_frame"] = json!("1 hour");
    intelligence.update(&admin, &id, hours).await.unwrap();
    // The hour that is filling has all there is.
    server.clock.advance_ms(60 * MINUTE);
    let svg = intelligence.plot(&admin, &id, None).await.unwrap();
    assert!(svg.contains("measured") && !svg.contains("predicted"), "{svg:.500}");
    server.stop().await;
}
