//! Many documents at once with several detectors: results are written in pieces, and each document has one of each detector.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use millrace_engine::{Action, RefreshPolicy, WriteOp};
use serde_json::{Value, json};

use crate::detectors::{Numbers, detector, open, results, save, with};
use crate::fixture::{START, Server, until};

/// Documents of one request: with all detectors more results than one piece has.
const ARRIVING: usize = 3_000;

fn document(numbers: &mut Numbers, at_ms: i64) -> Value {
    let bytes = 1_000.0 + 100.0 * numbers.next();
    let took = if numbers.next() < 0.01 { json!("soon") } else { json!(50.0 + numbers.next()) };
    let message = format!("request {} served", (1_000.0 * numbers.next()) as u64);
    json!({"@timestamp": at_ms, "bytes": bytes, "took": took, "message": message})
}

/// Writes documents in one request.
async fn write(server: &Server, count: usize, name: &str, at_ms: i64) {
    let mut numbers = Numbers(11);
    let op = |one: usize| {
        let source = Bytes::from(document(&mut numbers, at_ms).to_string());
        WriteOp::new("events", Some(format!("{name} {one}")), Action::Index(source))
    };
    let (ops, patience) = ((0..count).map(op).collect(), Duration::from_secs(60));
    let written = server.engine.write(&server.admin(), ops, RefreshPolicy::Immediate, patience).await;
    written.unwrap().into_iter().for_each(|outcome| drop(outcome.unwrap()));
}

#[tokio::test(flavor = "multi_thread")]
async fn many_documents_at_once_have_one_result_of_each_detector() {
    let dir = tempfile::tempdir().unwrap();
    let server = open(dir.path(), START).await;
    let mapping = json!({"mappings": {"properties": {
        "@timestamp": {"type": "date"}, "bytes": {"type": "double"}, "took": {"type": "keyword"}, "message": {"type": "text"},
    }}});
    server.engine.make_own_index("events", &mapping).await.unwrap();
    write(&server, 400, "trained", START - 60_000).await;
    let text = json!({"model_type": "text", "fields": null, "field": "message", "min_documents": 50});
    let clusters = json!({"model_type": "clustering", "n_clusters": 2});
    let mut ids = Vec::new();
    for (name, members) in
        [("one", json!({"random_state": 1})), ("two", json!({})), ("lines", text), ("clusters", clusters)]
    {
        ids.push(save(&server, with(with(detector(name), members), json!({"index": "events"}))).await);
    }
    for id in &ids {
        server.run(id).await.unwrap();
    }
    write(&server, ARRIVING, "new", START).await;
    for id in &ids {
        until(&format!("{ARRIVING} results: {}", server.shown(id)), async || {
            (server.shown(id)["scored_documents"] == ARRIVING).then_some(())
        })
        .await;
    }
    let mut scored: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for result in results(&server, "events-").await.into_values() {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        scored.entry(text(&result["ai"]["rule_uid"])).or_default().push(text(&result["source_id"]));
    }
    let written: BTreeSet<String> = (0..ARRIVING).map(|one| format!("new {one}")).collect();
    for id in &ids {
        let of_detector = &scored[id];
        assert_eq!(of_detector.len(), ARRIVING, "{}", server.shown(id));
        assert_eq!(of_detector.iter().cloned().collect::<BTreeSet<_>>(), written);
    }
    let told = server.shown(&ids[0])["status_message"].as_str().unwrap().to_owned();
    assert!(told.contains("documents have no number in [took]"), "{told}");
    server.stop().await;
}
