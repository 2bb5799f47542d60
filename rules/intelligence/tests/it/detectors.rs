//! Detectors of documents: saved and refused by field, trained, their results, and what a crash leaves of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use bytes::Bytes;
use millrace_engine::{Action, RefreshPolicy, WriteOp};
use millrace_intelligence::Error;
use serde_json::{Value, json};

use crate::fixture::{MINUTE, START, Server, rule, until};

/// Documents that are written at once.
const BATCH: usize = 100;

/// A detector of rows, by schedule.
pub(crate) fn detector(name: &str) -> Value {
    json!({
        "name": name,
        "index": "logs*",
        "query": {"match_all": {}},
        "time_field": "@timestamp",
        "time_frame": "2 h",
        "value_type": "avg",
        "model_type": "multivariate",
        "fields": ["bytes", "took"],
        "automatic_cron": "0 0 1 1 *",
        "automatic_enable": true,
        "automatic": true,
        "multiply_by_values": [],
        "multiply_by_field": "none",
    })
}

/// Numbers that are the same in each run.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    /// Returns a number from 0 to below 1.
    pub(crate) fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// A usual request, or one of an exfiltration: many bytes, quickly.
fn request(numbers: &mut Numbers, at_ms: i64, is_odd: bool) -> Value {
    let noise = (0..4).map(|_| numbers.next()).sum::<f64>() - 2.0;
    let (bytes, took) =
        if is_odd { (9_000.0 + 500.0 * noise, 2.0) } else { (1_000.0 + 100.0 * noise, 50.0 + 5.0 * noise) };
    json!({"@timestamp": at_ms, "bytes": bytes, "took": took + numbers.next(), "host": "a"})
}

pub(crate) async fn write_all(server: &Server, index: &str, documents: Vec<(String, Value)>) {
    for some in documents.chunks(BATCH) {
        let op = |(id, document): &(String, Value)| {
            WriteOp::new(index, Some(id.clone()), Action::Index(Bytes::from(document.to_string())))
        };
        let ops = some.iter().map(op).collect();
        let patience = std::time::Duration::from_secs(60);
        let written =
            server.engine.write(&server.admin(), ops, RefreshPolicy::Immediate, patience).await.unwrap();
        written.into_iter().for_each(|outcome| drop(outcome.unwrap()));
    }
}

/// Writes usual requests over the two hours before a time.
pub(crate) async fn usual(server: &Server, count: i64, until_ms: i64) {
    mixed(server, count, until_ms, i64::MAX).await;
}

/// The same with an odd one among so many.
async fn mixed(server: &Server, count: i64, until_ms: i64, odd_every: i64) {
    let mut numbers = Numbers(7);
    let at = |one: i64| until_ms - 119 * MINUTE + one * 118 * MINUTE / count;
    let is_odd = |one: i64| one % odd_every == odd_every - 1;
    let documents =
        (0..count).map(|one| (format!("usual {one}"), request(&mut numbers, at(one), is_odd(one))));
    write_all(server, "logs", documents.collect()).await;
}

/// Results of detectors by id, of all indices whose names begin so.
pub(crate) async fn results(server: &Server, prefix: &str) -> BTreeMap<String, Value> {
    let mut documents = BTreeMap::new();
    let metadata = server.engine.metadata();
    let names: Vec<String> = metadata
        .indices()
        .map(|meta| meta.name.to_string())
        .filter(|name| name.starts_with(prefix))
        .collect();
    for name in names {
        let index = server.engine.index(&name).unwrap();
        let mut reading = server.engine.read_back_stored(&index).await.unwrap();
        while let Some(frame) = reading.next().await.unwrap() {
            for op in frame.parts.iter().flat_map(|part| &part.ops) {
                let Some(source) = &op.source else { continue };
                let id = String::from_utf8(op.id.to_vec()).unwrap();
                documents.insert(id, serde_json::from_slice(source).unwrap());
            }
        }
    }
    documents
}

/// Results of arrived documents, by the id of the document; each has one.
async fn scored(server: &Server, prefix: &str) -> BTreeMap<String, Value> {
    let mut by_source = BTreeMap::new();
    for (_, result) in results(server, prefix).await {
        let id = result["source_id"].as_str().unwrap().to_owned();
        assert!(by_source.insert(id, result.clone()).is_none(), "scored twice: {result}");
    }
    by_source
}

pub(crate) async fn save(server: &Server, body: Value) -> String {
    server.intelligence.change(&server.admin(), body).await.unwrap().0
}

async fn refusal(server: &Server, body: Value) -> String {
    server.intelligence.change(&server.admin(), body).await.unwrap_err().to_string()
}

pub(crate) fn with(mut body: Value, members: Value) -> Value {
    for (name, value) in members.as_object().unwrap() {
        match value {
            Value::Null => drop(body.as_object_mut().unwrap().remove(name)),
            value => body[name] = value.clone(),
        }
    }
    body
}

fn with_mapping() -> Value {
    json!({"mappings": {"properties": {
        "@timestamp": {"type": "date"}, "bytes": {"type": "double"}, "took": {"type": "double"}, "host": {"type": "keyword"},
    }}})
}

pub(crate) async fn open(dir: &Path, now_ms: i64) -> Server {
    let server = Server::reopen(dir, now_ms).await;
    server.engine.make_own_index("logs", &with_mapping()).await.unwrap();
    server
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_are_refused_by_name_with_value_and_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path(), START).await;
    for (members, expected) in [
        (
            json!({"contamination": 0.6}),
            "[contamination] must be a number above 0 and at most 0.5, not [0.6]",
        ),
        (json!({"contamination": 0}), "[contamination] must be"),
        (
            json!({"model_type": "magic"}),
            "[model_type] must be one of univariate, multivariate, clustering, forecasting, text, not [magic]",
        ),
        (json!({"field": "bytes"}), "[field] is not used by [multivariate]: give [fields]"),
        (json!({"fields": null}), "[fields] is required"),
        (json!({"fields": []}), "[fields] must name 1 to 64 fields"),
        (json!({"fields": ["a", "a.b"]}), "[fields] has [a.b], which lies within another of them"),
        (json!({"fields": ["rule_uid"]}), "which begins with a name that results have"),
        (
            json!({"n_clusters": 4}),
            "[n_clusters] is not used by algorithm [isolation_forest] of [multivariate]",
        ),
        (json!({"algorithm": "kmeans"}), "[algorithm] must be one of isolation_forest, local_outlier_factor"),
        (json!({"algorithm": "isolation_forest", "n_neighbors": 5}), "[n_neighbors] is not used"),
        (json!({"n_neighbors": 0}), "[n_neighbors] must be an integer from 1 to 1000, not [0]"),
        (json!({"time_frame": "soon"}), "[time_frame] must be a number and a unit"),
        (
            json!({"value_type": "median"}),
            "[value_type] must be one of min, max, avg, count, sum, cardinality, not [median]",
        ),
        (json!({"threshold": 2}), "[threshold] must be a score above 0 and at most 1, not [2]"),
        (json!({"random_state": -1}), "[random_state] must be an integer"),
        (json!({"query": "x"}), "[query] must be an object"),
        (json!({"index": ".security"}), "[index] [.security] is the server's own"),
        (
            json!({"index": "a:*"}),
            "[index] gives results the index [a:-multivariate-anomaly-2026.03.02], which cannot be made",
        ),
        (
            json!({"model_type": "clustering", "algorithm": "dbscan", "min_samples": 1_001}),
            "[min_samples] must be",
        ),
        (json!({"index": "logs-multivariate-anomaly-2026.01.01"}), "has results of AI rules"),
        (json!({"multiply_by_field": "host"}), "[multiply_by_values] must name the values"),
        (json!({"automatic_cron": "never"}), "[automatic_cron]"),
        (json!({"label": 1}), "[label] is no field of an AI rule"),
        (json!({"id": "nobody"}), "no such AI rule [nobody]"),
        (
            json!({"model_type": "univariate", "fields": null, "field": "bytes", "time_frame": "5 min"}),
            "[time_frame] has 5 buckets",
        ),
        (
            json!({"model_type": "univariate", "fields": null, "field": "bytes", "seasonality": 100}),
            "[seasonality] must fit twice",
        ),
        (
            json!({"model_type": "univariate", "fields": null, "field": "bytes", "forecast_steps": 5}),
            "[forecast_steps] is not used",
        ),
    ] {
        let refused = refusal(&server, with(detector("d"), members.clone())).await;
        assert!(refused.contains(expected), "{members}: {refused}");
    }
    for required in [
        "name",
        "index",
        "query",
        "time_field",
        "time_frame",
        "value_type",
        "model_type",
        "automatic_cron",
        "automatic_enable",
        "automatic",
        "multiply_by_values",
        "multiply_by_field",
    ] {
        let refused = refusal(&server, with(detector("d"), json!({required: null}))).await;
        assert_eq!(refused, format!("[{required}] is required"));
    }
    assert!(server.intelligence.list(&server.admin()).is_empty());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_detector_is_saved_shown_changed_and_deleted_beside_forecasts() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path(), START).await;
    let forecast = server.create(rule("load")).await;
    assert!(refusal(&server, detector("load")).await.contains("[name] [load] is that of AI rule"));
    let id = save(&server, with(detector("d"), json!({"n_neighbors": 7}))).await;
    let shown = server.shown(&id);
    assert_eq!((&shown["algorithm"], &shown["n_neighbors"]), (&json!("local_outlier_factor"), &json!(7)));
    assert_eq!((&shown["status"], &shown["threshold"]), (&json!("Scheduled"), &Value::Null));
    // A client sends back what it was shown.
    let again = with(shown, json!({"id": id, "description": "x", "automatic": false}));
    save(&server, again).await;
    assert_eq!(
        (&server.shown(&id)["description"], &server.shown(&id)["status"]),
        (&json!("x"), &json!("Waiting to start"))
    );
    let refused = refusal(&server, with(detector("d"), json!({"id": forecast}))).await;
    assert!(refused.contains("is that of a forecast"), "{refused}");
    let text = json!({"id": id, "model_type": "text", "fields": null, "field": "host"});
    assert!(refusal(&server, with(detector("d"), text)).await.contains("cannot become [text]"));
    let refused = server.intelligence.update(&server.admin(), &id, rule("d")).await.unwrap_err().to_string();
    assert!(refused.contains("POST /api/ai/change"), "{refused}");
    assert_eq!(server.intelligence.list(&server.admin()).len(), 2);
    server.stop().await;
    let server = Server::reopen(dir.path(), START).await;
    assert_eq!(server.shown(&id)["n_neighbors"], 7);
    server.intelligence.delete(&server.admin(), &id).await.unwrap();
    assert!(matches!(server.intelligence.show(&server.admin(), &id), Err(Error::NotFound(_))));
    server.stop().await;
}

/// Waits until so many documents have results.
pub(crate) async fn until_scored(server: &Server, prefix: &str, count: usize) -> BTreeMap<String, Value> {
    until(&format!("results of {count} documents"), async || {
        let found = scored(server, prefix).await;
        (found.len() >= count).then_some(found)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn planted_anomalies_are_found_among_arriving_documents() {
    let dir = tempfile::tempdir().unwrap();
    let server = open(dir.path(), START).await;
    mixed(&server, 2_000, START, 50).await;
    let id =
        save(&server, with(detector("requests"), json!({"contamination": 0.021, "random_state": 7}))).await;
    let built = server.run(&id).await.unwrap();
    assert_eq!(built, "the model is built from 2000 documents");
    assert_eq!(server.shown(&id)["status"], "Scoring");
    let mut numbers = Numbers(99);
    let is_odd = |one: usize| one % 25 == 24;
    let documents = (0..500)
        .map(|one| (format!("new {one}"), request(&mut numbers, START + one as i64 * 100, is_odd(one))));
    write_all(&server, "logs", documents.collect()).await;
    let found = until_scored(&server, "logs-multivariate-anomaly-2026.03.02", 500).await;
    assert_eq!(found.len(), 500);
    let flagged = |result: &Value| result["ai"]["anomaly_flag"] == true;
    let number = |id: &str| id.trim_start_matches("new ").parse::<usize>().unwrap();
    let hits = found.iter().filter(|(id, result)| flagged(result) && is_odd(number(id))).count();
    let flags = found.values().filter(|result| flagged(result)).count();
    assert!(hits as f64 >= 0.9 * 20.0, "recall: {hits} of 20: {} {}", found["new 24"], found["new 23"]);
    assert!(hits as f64 >= 0.9 * flags as f64, "precision: {hits} of {flags}");
    let odd = &found["new 24"]["ai"];
    assert_eq!((&odd["rule_uid"], &odd["model_type"]), (&json!(id), &json!("multivariate")));
    assert!(odd["bytes"].as_f64().unwrap() > 5_000.0 && odd["reasons"][0]["field"].is_string(), "{odd}");
    let shown = server.shown(&id);
    assert_eq!(shown["scored_documents"], 500);
    save(&server, with(shown, json!({"id": id}))).await;
    let picture = server.intelligence.plot(&server.admin(), &id, None).await.unwrap();
    assert!(picture.contains("anomalies"), "{picture}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_arriving_document_is_scored_once_through_crashes() {
    let dir = tempfile::tempdir().unwrap();
    let server = open(dir.path(), START).await;
    usual(&server, 500, START).await;
    let id = save(&server, detector("requests")).await;
    server.run(&id).await.unwrap();
    let mut server = server;
    let mut numbers = Numbers(5);
    for crash in 0..12_usize {
        let documents =
            (0..60).map(|one| (format!("{crash} {one}"), request(&mut numbers, START + one, false)));
        write_all(&server, "logs", documents.collect()).await;
        // Some crashes come before anything is scored, some amid it.
        if crash % 3 == 1 {
            until_scored(&server, "logs-multivariate-anomaly-", crash * 60 + 1).await;
        }
        drop(server);
        server = Server::reopen(dir.path(), START).await;
    }
    let found = until_scored(&server, "logs-multivariate-anomaly-", 720).await;
    assert_eq!(found.len(), 720);
    let written: BTreeSet<String> =
        (0..12).flat_map(|crash| (0..60).map(move |one| format!("{crash} {one}"))).collect();
    assert_eq!(found.keys().cloned().collect::<BTreeSet<_>>(), written);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_old_model_serves_until_the_new_one_is_built_and_a_damaged_one_is_built_anew() {
    let dir = tempfile::tempdir().unwrap();
    let server = open(dir.path(), START).await;
    usual(&server, 300, START).await;
    let body = detector("requests");
    let id = save(&server, body.clone()).await;
    server.run(&id).await.unwrap();
    save(&server, with(body, json!({"id": id, "fields": ["bytes"]}))).await;
    let one = |name: &str| vec![(name.to_owned(), json!({"@timestamp": START, "bytes": 1000, "took": 50}))];
    write_all(&server, "logs", one("x")).await;
    let found = until_scored(&server, "logs-multivariate-anomaly-", 1).await;
    assert!(found["x"]["ai"]["took"].is_number(), "{}", found["x"]);
    server.run(&id).await.unwrap();
    write_all(&server, "logs", one("y")).await;
    let found = until_scored(&server, "logs-multivariate-anomaly-", 2).await;
    assert_eq!(found["y"]["ai"]["took"], Value::Null);
    server.stop().await;
    let file =
        std::fs::read_dir(dir.path().join("intelligence").join(&id)).unwrap().next().unwrap().unwrap().path();
    std::fs::write(&file, b"damaged").unwrap();
    let server = Server::reopen(dir.path(), START).await;
    // It comes while no model can score it.
    write_all(&server, "logs", one("w")).await;
    until("another model", async || {
        (server.shown(&id)["model"]["build"] == 3 && server.shown(&id)["status"] == "Scoring").then_some(())
    })
    .await;
    write_all(&server, "logs", one("z")).await;
    let found = until_scored(&server, "logs-multivariate-anomaly-", 4).await;
    assert!(found.contains_key("w"), "{found:?}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn values_have_models_of_their_own_and_unseen_ones_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let server = open(dir.path(), START).await;
    usual(&server, 200, START).await;
    let body = with(
        detector("requests"),
        json!({"multiply_by_field": "host", "multiply_by_values": ["a", "b"], "automatic_enable": true}),
    );
    let id = save(&server, body).await;
    let refused = server.run(&id).await.unwrap_err().to_string();
    assert!(refused.contains("1 of 2 values have no model: value [b]: no document of [logs*]"), "{refused}");
    let document = |host: &str| json!({"@timestamp": START, "bytes": 1000, "took": 50, "host": host});
    let documents = ["a", "b", "c"].map(|host| (host.to_owned(), document(host)));
    write_all(&server, "logs", documents.to_vec()).await;
    let found = until_scored(&server, "logs-multivariate-anomaly-", 1).await;
    assert_eq!((found.len(), &found["a"]["multiply_by_value"]), (1, &json!("a")));
    let told = until("the unseen value", async || {
        let shown = server.shown(&id)["status_message"].as_str().map(str::to_owned);
        shown.filter(|told| told.contains("without a model"))
    })
    .await;
    assert!(told.contains("such as [c]"), "{told}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn history_and_windows_are_scored_when_asked() {
    let dir = tempfile::tempdir().unwrap();
    let server = open(dir.path(), START).await;
    usual(&server, 200, START).await;
    // By hand the window is scored, each time anew under the same ids.
    let by_hand = with(detector("by hand"), json!({"automatic": false, "index": "logs"}));
    let id = save(&server, by_hand).await;
    for _ in 0..2 {
        let built = server.run(&id).await.unwrap();
        assert!(built.contains("200 results are written"), "{built}");
    }
    assert_eq!(server.shown(&id)["status"], "Finished");
    assert_eq!(scored(&server, "logs-multivariate-anomaly-").await.len(), 200);
    server.intelligence.delete(&server.admin(), &id).await.unwrap();
    let since = with(detector("since"), json!({"start_date": "2026-03-02 09:00", "index": "logs"}));
    let id = save(&server, since).await;
    let built = server.run(&id).await.unwrap();
    assert!(built.contains("results are written"), "{built}");
    // Documents before `start_date` have none.
    let since = results(&server, "logs-multivariate-anomaly-").await;
    let since: Vec<&Value> = since.values().filter(|result| result["ai"]["rule_uid"] == json!(id)).collect();
    assert!(since.len() > 50 && since.len() < 200, "{}", since.len());
    assert!(since.iter().all(|result| result["@timestamp"].as_str().unwrap() >= "2026-03-02T09:00"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_learnt_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let server = open(dir.path(), START).await;
    let id = save(&server, detector("requests")).await;
    let refused = server.run(&id).await.unwrap_err().to_string();
    assert!(refused.contains("no document of [logs*] within the last 2 h"), "{refused}");
    assert_eq!((&server.shown(&id)["status"], &server.shown(&id)["exit_code"]), (&json!("Error"), &json!(1)));
    // All values are the same, one field has text instead of numbers.
    let document = |one: i64| json!({"@timestamp": START - one * 1000, "bytes": 5, "took": 5, "word": "NaN"});
    write_all(&server, "logs", (1..200).map(|one| (one.to_string(), document(one))).collect()).await;
    for fields in [json!(["bytes", "took"]), json!(["bytes", "word"]), json!(["absent"])] {
        save(&server, with(detector("requests"), json!({"id": id, "fields": fields}))).await;
        let outcome = server.run(&id).await;
        let shown = server.shown(&id);
        match outcome {
            Ok(_) => assert_eq!(shown["status"], "Scoring", "{fields}"),
            Err(error) => {
                assert_eq!(shown["status"], "Error", "{fields}");
                assert_eq!(shown["error_message"], json!(error.to_string()));
            }
        }
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn templates_of_lines_are_found_kept_and_listed() {
    let dir = tempfile::tempdir().unwrap();
    let server = open(dir.path(), START).await;
    // Rare templates are odder than frequent ones.
    let line = |one: i64| match one % 10 {
        0..=5 => format!("user u{one} logged in from 10.0.0.{}", one % 200),
        6..=8 => format!("request {one} served in {} ms", one % 90),
        _ => format!("cache entry {one} evicted"),
    };
    let lines = (0..600).map(|one| {
        (format!("old {one}"), json!({"@timestamp": START - 3_600_000 + one * 5_000, "message": line(one)}))
    });
    write_all(&server, "logs", lines.collect()).await;
    let text = json!({"model_type": "text", "fields": null, "field": "message", "min_documents": 50});
    let id = save(&server, with(detector("lines"), text)).await;
    server.run(&id).await.unwrap();
    let mut lines: Vec<(String, Value)> = (0..60)
        .map(|one| (format!("new {one}"), json!({"@timestamp": START + one * 5_000, "message": line(one)})))
        .collect();
    let odd = json!({"@timestamp": START, "message": "kernel panic: not syncing, attempted to kill init"});
    lines.push(("odd".to_owned(), odd));
    write_all(&server, "logs", lines).await;
    let found = until_scored(&server, "logs-text-anomaly-", 61).await;
    let odd = &found["odd"]["ai"];
    assert_eq!((&odd["anomaly_flag"], &odd["new_template"]), (&json!(true), &json!(true)));
    let has_reason = |result: &Value| result["ai"]["reasons"].get(0).is_some();
    assert!(found.values().all(|result| has_reason(result) == (result["ai"]["anomaly_flag"] == true)));
    let flagged = found.values().filter(|result| result["ai"]["anomaly_flag"] == true);
    let of_rare = |result: &&Value| !result["ai"]["message"].as_str().unwrap().contains("evicted");
    assert_eq!(flagged.filter(of_rare).count(), 1, "lines of frequent templates are flagged: {found:?}");
    let picture = server.intelligence.plot(&server.admin(), &id, None).await.unwrap();
    assert!(picture.starts_with("<svg"), "{picture}");
    server.stop().await;
    let server = Server::reopen(dir.path(), START + MINUTE).await;
    let templates = server.intelligence.templates(&server.admin(), &id, None).await.unwrap();
    let templates = templates.as_array().unwrap();
    let of =
        |word: &str| templates.iter().find(|one| one["template"].as_str().unwrap().contains(word)).cloned();
    assert_eq!(of("panic").unwrap()["count"], 1, "{templates:?}");
    assert_eq!(of("evicted").unwrap()["count"], 66, "{templates:?}");
    // A run by hand scores the lines of its window, which training has had, too.
    let by_hand = json!({"model_type": "text", "fields": null, "field": "message", "automatic": false, "index": "logs"});
    let id = save(&server, with(detector("by hand"), by_hand)).await;
    let built = server.run(&id).await.unwrap();
    assert!(
        built.contains("; 600 results are written") || built.contains("; 661 results are written"),
        "{built}"
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_of_results_that_cannot_be_made_stops_no_other_detector() {
    let dir = tempfile::tempdir().unwrap();
    let server = open(dir.path(), START).await;
    usual(&server, 300, START).await;
    let hindered = save(&server, with(detector("hindered"), json!({"index": "logs"}))).await;
    let other = save(&server, with(detector("other"), json!({"index": "lo*"}))).await;
    server.run(&hindered).await.unwrap();
    server.run(&other).await.unwrap();
    let alias = json!({"aliases": {"logs-multivariate-anomaly-2026.03.02": {}}});
    server.engine.make_own_index("else", &alias).await.unwrap();
    let refused = refusal(&server, with(detector("third"), json!({"index": "logs"}))).await;
    assert!(refused.contains("[index] gives results the index [logs-multivariate-anomaly-"), "{refused}");
    let one = |name: &str| vec![(name.to_owned(), json!({"@timestamp": START, "bytes": 1000, "took": 50}))];
    write_all(&server, "logs", one("x")).await;
    until_scored(&server, "lo-multivariate-anomaly-", 1).await;
    until("the reason", async || {
        let told = server.shown(&hindered)["status_message"].as_str().map(str::to_owned);
        told.filter(|told| {
            told.contains("results are lost, their index [logs-multivariate-anomaly-2026.03.02]")
        })
    })
    .await;
    write_all(&server, "logs", one("y")).await;
    until_scored(&server, "lo-multivariate-anomaly-", 2).await;
    assert_eq!(server.shown(&other)["status_message"], Value::Null);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn values_of_a_multi_field_are_those_of_its_field() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path(), START).await;
    let mapping = json!({"mappings": {"properties": {
        "@timestamp": {"type": "date"}, "host": {"type": "text", "fields": {"keyword": {"type": "keyword"}}},
    }}});
    server.engine.make_own_index("words", &mapping).await.unwrap();
    let mut numbers = Numbers(7);
    let documents = (0..100).map(|one| (one.to_string(), request(&mut numbers, START - MINUTE - one, false)));
    write_all(&server, "words", documents.collect()).await;
    let multiplied =
        json!({"index": "words", "multiply_by_field": "host.keyword", "multiply_by_values": ["a"]});
    let id = save(&server, with(detector("requests"), multiplied)).await;
    server.run(&id).await.unwrap();
    write_all(&server, "words", vec![("x".to_owned(), request(&mut numbers, START, false))]).await;
    until_scored(&server, "words-multivariate-anomaly-", 1).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn text_models_observe_each_line_once_through_crashes() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = open(dir.path(), START).await;
    let line = |id: String, at: i64| {
        (id, json!({"@timestamp": START + at, "message": format!("cache entry {at} evicted")}))
    };
    write_all(&server, "logs", (0..100).map(|one| line(format!("old {one}"), one - 3_600_000)).collect())
        .await;
    let text = json!({"model_type": "text", "fields": null, "field": "message", "min_documents": 50});
    let id = save(&server, with(detector("lines"), text)).await;
    server.run(&id).await.unwrap();
    for crash in 0..4 {
        write_all(&server, "logs", (0..50).map(|one| line(format!("{crash} {one}"), one)).collect()).await;
        if crash % 2 == 0 {
            until_scored(&server, "logs-text-anomaly-", crash * 50 + 1).await;
        }
        drop(server);
        server = Server::reopen(dir.path(), START).await;
    }
    assert_eq!(until_scored(&server, "logs-text-anomaly-", 200).await.len(), 200);
    server.stop().await;
    let server = Server::reopen(dir.path(), START).await;
    let templates = server.intelligence.templates(&server.admin(), &id, None).await.unwrap();
    assert_eq!(templates[0]["count"], 300, "{templates}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_far_from_every_cluster_are_found_and_drawn() {
    let dir = tempfile::tempdir().unwrap();
    let server = open(dir.path(), START).await;
    let mut numbers = Numbers(3);
    let documents = (0..400).map(|one| {
        let centre = if one % 2 == 0 { 100.0 } else { 900.0 };
        let document = json!({"@timestamp": START - 3_600_000 + one, "bytes": centre + 20.0 * numbers.next(), "took": centre / 10.0 + numbers.next()});
        (format!("old {one}"), document)
    });
    write_all(&server, "logs", documents.collect()).await;
    let clusters = json!({"model_type": "clustering", "n_clusters": 2});
    let id = save(&server, with(detector("clusters"), clusters)).await;
    server.run(&id).await.unwrap();
    assert_eq!(server.shown(&id)["model"]["clusters"].as_array().map(Vec::len), Some(2));
    let far = |bytes: i64| json!({"@timestamp": START, "bytes": bytes, "took": bytes / 10});
    write_all(&server, "logs", vec![("near".to_owned(), far(110)), ("far".to_owned(), far(500))]).await;
    let found = until_scored(&server, "logs-clustering-anomaly-", 2).await;
    let flag = |id: &str| found[id]["ai"]["anomaly_flag"].as_bool();
    assert_eq!((flag("near"), flag("far")), (Some(false), Some(true)));
    let picture = server.intelligence.plot(&server.admin(), &id, None).await.unwrap();
    assert!(picture.contains("cluster 0") && picture.contains("component 1"), "{picture}");
    server.stop().await;
}
