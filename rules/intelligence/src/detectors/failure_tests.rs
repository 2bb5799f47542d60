//! A model that panics: its detector has the status `Error`, others go on, and its next model scores what it has missed.

#[allow(dead_code, reason = "other tests use the rest of the fixture")]
#[path = "../../tests/it/fixture.rs"]
mod fixture;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use millrace_engine::{Action, RefreshPolicy, WriteOp};
use serde_json::{Value, json};

use self::fixture::{MINUTE, START, Server, until};

fn detector(name: &str) -> Value {
    json!({
        "name": name, "index": "logs", "query": {"match_all": {}}, "time_field": "@timestamp", "time_frame": "2 h",
        "value_type": "avg", "model_type": "multivariate", "fields": ["load"], "automatic_cron": "0 0 1 1 *",
        "automatic_enable": true, "automatic": true, "multiply_by_values": [], "multiply_by_field": "none",
    })
}

/// Writes a document for each minute from one to before another, as a user.
async fn write_minutes(server: &Server, minutes: std::ops::Range<i64>) {
    let op = |minute: i64| {
        let document = json!({"@timestamp": START + minute * MINUTE, "load": minute});
        WriteOp::new("logs", Some(minute.to_string()), Action::Index(Bytes::from(document.to_string())))
    };
    let (admin, patience) = (server.admin(), Duration::from_secs(60));
    let written =
        server.engine.write(&admin, minutes.map(op).collect(), RefreshPolicy::Immediate, patience).await;
    written.unwrap().into_iter().for_each(|outcome| drop(outcome.unwrap()));
}

/// Returns how many results the documents of a detector have.
async fn count_results(server: &Server, id: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    let metadata = server.engine.metadata();
    let names: Vec<String> = metadata.indices().map(|meta| meta.name.to_string()).collect();
    for name in names.into_iter().filter(|name| name.contains("-anomaly-")) {
        let index = server.engine.index(&name).unwrap();
        let mut reading = server.engine.read_back_stored(&index).await.unwrap();
        while let Some(frame) = reading.next().await.unwrap() {
            for source in frame.parts.iter().flat_map(|part| &part.ops).filter_map(|op| op.source.as_ref()) {
                let result: Value = serde_json::from_slice(source).unwrap();
                if result["ai"]["rule_uid"] == json!(id) {
                    *counts.entry(result["source_id"].as_str().unwrap().to_owned()).or_default() += 1;
                }
            }
        }
    }
    counts
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_panics_stops_its_own_detector_alone() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path(), START + 100 * MINUTE).await;
    write_minutes(&server, 0..60).await;
    let save = async |body: Value| server.intelligence.change(&server.admin(), body).await.unwrap().0;
    let (broken, other) = (save(detector("broken")).await, save(detector("other")).await);
    server.run(&broken).await.unwrap();
    server.run(&other).await.unwrap();
    write_minutes(&server, 60..70).await;
    let until_scored = async |id: &str, count: usize| {
        until(&format!("results of {count} documents"), async || {
            let counts = count_results(&server, id).await;
            (counts.len() >= count).then_some(counts)
        })
        .await
    };
    until_scored(&other, 10).await;
    let shown = until("the status of the broken detector", async || {
        let shown = server.shown(&broken);
        (shown["status"] == "Error").then_some(shown)
    })
    .await;
    let told = shown["error_message"].as_str().unwrap();
    assert!(told.contains("the model has failed") && told.contains("a node is not there"), "{told}");
    assert_eq!(server.shown(&other)["status"], "Scoring");
    // The others score what comes behind it, too.
    write_minutes(&server, 70..80).await;
    until_scored(&other, 20).await;
    assert!(count_results(&server, &broken).await.is_empty());
    let mut mended = detector("mended");
    mended["id"] = json!(broken);
    save(mended).await;
    server.run(&broken).await.unwrap();
    let counts = until_scored(&broken, 20).await;
    assert!(counts.len() == 20 && counts.values().all(|count| *count == 1), "{counts:?}");
    assert_eq!(server.shown(&broken)["status"], "Scoring");
    server.stop().await;
}
