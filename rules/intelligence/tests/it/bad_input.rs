//! Sources that teach nothing, or change: a status and a message tell what to do, and detectors go on.

use serde_json::{Value, json};

use crate::detectors::{Numbers, detector, results, save, with, write_all};
use crate::fixture::{MINUTE, START, Server, until};

/// Opens a server with an index that maps times alone, so that it takes values of any type.
async fn open(directory: &std::path::Path) -> Server {
    let server = Server::reopen(directory, START).await;
    let mapping = json!({"mappings": {"dynamic": false, "properties": {
        "@timestamp": {"type": "date"}, "took": {"type": "double", "ignore_malformed": true}, "host": {"type": "keyword"},
    }}});
    server.engine.make_own_index("logs", &mapping).await.unwrap();
    server
}

/// Writes documents over the two hours before [`START`].
async fn write(server: &Server, count: i64, member: impl Fn(i64) -> Value) {
    let document = |one: i64| {
        let mut document = member(one);
        document["@timestamp"] = json!(START - MINUTE - one * 118 * MINUTE / count);
        (format!("usual {one}"), document)
    };
    write_all(server, "logs", (0..count).map(document).collect()).await;
}

/// Waits for the results of arriving documents, by their ids.
async fn until_scored(server: &Server, count: usize) -> Vec<(String, Value)> {
    until(&format!("{count} results"), async || {
        let found = results(server, "logs-").await;
        let by_source =
            |result: Value| (result["source_id"].as_str().unwrap().to_owned(), result["ai"].clone());
        (found.len() >= count).then(|| found.into_values().map(by_source).collect())
    })
    .await
}

async fn until_told(server: &Server, id: &str, part: &str) -> String {
    until(part, async || {
        let told = server.shown(id)["status_message"].as_str().map(str::to_owned);
        told.filter(|told| told.contains(part))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn values_that_are_no_numbers_are_missing_whatever_their_type() {
    let dir = tempfile::tempdir().unwrap();
    let server = open(dir.path()).await;
    let mut numbers = Numbers(1);
    let loads: Vec<f64> = (0..200).map(|_| 50.0 + numbers.next()).collect();
    // Some loads of the window are no numbers either.
    write(&server, 200, |one| match one % 20 {
        0 => json!({"load": "NaN", "took": 5 + one % 7}),
        1 => json!({"load": "Infinity", "took": 5 + one % 7}),
        _ => json!({"load": loads[one as usize], "took": 5 + one % 7}),
    })
    .await;
    for algorithm in ["isolation_forest", "local_outlier_factor"] {
        let members = json!({"fields": ["load", "took"], "algorithm": algorithm});
        let id = save(&server, with(detector(algorithm), members)).await;
        server.run(&id).await.unwrap();
        let values = [
            json!("NaN"),
            json!("-inf"),
            json!("1e999"),
            json!("a text"),
            json!({"an": "object"}),
            json!([]),
            json!(null),
            json!([null, "x"]),
        ];
        let document = |(at, value): (usize, &Value)| {
            (format!("{algorithm} {at}"), json!({"@timestamp": START, "load": value, "took": 6}))
        };
        write_all(&server, "logs", values.iter().enumerate().map(document).collect()).await;
        let told = until_told(&server, &id, "8 documents have no number in [load]").await;
        assert!(!told.contains("[took]"), "{told}");
        // Numbers in texts, and booleans, are numbers.
        let numbers = [json!("50.5"), json!(true), json!([51])];
        let document = |(at, value): (usize, &Value)| {
            (format!("{algorithm} number {at}"), json!({"@timestamp": START, "load": value, "took": 6}))
        };
        write_all(&server, "logs", numbers.iter().enumerate().map(document).collect()).await;
        until("eleven scored documents", async || {
            (server.shown(&id)["scored_documents"] == 11).then_some(())
        })
        .await;
        assert!(server.shown(&id)["status_message"].as_str().unwrap().contains("8 documents have no number"));
        server.intelligence.delete(&server.admin(), &id).await.unwrap();
    }
    for (source, ai) in until_scored(&server, 22).await {
        assert_eq!(ai["load"].is_number(), source.contains("number"), "{source}: {ai}");
        assert!(ai["anomaly_score"].as_f64().is_some_and(|score| (0.0..=1.0).contains(&score)), "{ai}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_without_any_number_are_told_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let server = open(dir.path()).await;
    write(&server, 200, |one| json!({"took": one % 9, "word": "NaN", "nested": {"deep": []}})).await;
    server.clock.advance_ms(31_000);
    for field in ["absent", "word", "nested.deep", "nested"] {
        for algorithm in ["isolation_forest", "local_outlier_factor"] {
            let members = json!({"fields": ["took", field], "algorithm": algorithm});
            let id = save(&server, with(detector("rows"), members)).await;
            let refused = server.run(&id).await.unwrap_err().to_string();
            assert!(
                refused.starts_with(&format!("field [{field}] has no number in any document")),
                "{refused}"
            );
            assert_eq!(
                (&server.shown(&id)["status"], &server.shown(&id)["error_message"]),
                (&json!("Error"), &json!(refused))
            );
            server.intelligence.delete(&server.admin(), &id).await.unwrap();
        }
        for model_type in ["univariate", "forecasting"] {
            let members =
                json!({"model_type": model_type, "fields": null, "field": field, "time_frame": "2 h"});
            let id = save(&server, with(detector("series"), members)).await;
            let refused = server.run(&id).await.unwrap_err().to_string();
            assert_eq!(server.shown(&id)["error_message"], json!(refused), "{field}");
            assert_eq!(server.shown(&id)["model"], Value::Null, "{field}");
            server.intelligence.delete(&server.admin(), &id).await.unwrap();
        }
        let lines = json!({"model_type": "text", "fields": null, "field": "nested"});
        let id = save(&server, with(detector("lines"), lines)).await;
        let refused = server.run(&id).await.unwrap_err().to_string();
        assert!(refused.contains("0 of 200 documents") && refused.contains("[min_documents]"), "{refused}");
        server.intelligence.delete(&server.admin(), &id).await.unwrap();
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_season_longer_than_the_data_and_constant_series_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let server = open(dir.path()).await;
    write(&server, 240, |one| json!({"took": one % 9})).await;
    server.clock.advance_ms(31_000);
    // The window has room for two seasons, and the data begins later.
    for (model_type, algorithm) in [
        ("univariate", "seasonal_decomposition"),
        ("univariate", "random_cut_forest"),
        ("forecasting", "ets"),
    ] {
        let members = json!({
            "model_type": model_type, "algorithm": algorithm, "fields": null, "field": "took", "time_frame": "1 day", "seasonality": 300,
        });
        let id = save(&server, with(detector("seasons"), members)).await;
        let refused = server.run(&id).await.unwrap_err().to_string();
        assert!(refused.contains("300"), "{algorithm}: {refused}");
        assert_eq!(server.shown(&id)["status"], "Error");
        server.intelligence.delete(&server.admin(), &id).await.unwrap();
    }
    write(&server, 240, |_| json!({"took": 5})).await;
    for (model_type, is_built) in [("univariate", false), ("forecasting", true)] {
        let members = json!({"model_type": model_type, "fields": null, "field": "took", "value_type": "max", "time_frame": "2 h"});
        let id = save(&server, with(detector("constant"), members)).await;
        match server.run(&id).await {
            Ok(_) => assert!(is_built, "{model_type}"),
            Err(error) => {
                assert!(!is_built && error.to_string().contains("are the same"), "{model_type}: {error}")
            }
        }
        server.intelligence.delete(&server.admin(), &id).await.unwrap();
    }
    for prediction in server.predictions().await.into_values().filter(|one| one["model_name"] == "constant") {
        assert_eq!(prediction["took_pre"], 5.0, "{prediction}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn as_many_distinct_values_as_documents_stay_within_bounds() {
    let dir = tempfile::tempdir().unwrap();
    let server = open(dir.path()).await;
    let word = |one: i64| format!("w{:x}", (one + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64));
    write(&server, 600, |one| {
        json!({"host": if one % 2 == 0 { "a".to_owned() } else { word(one) }, "took": one % 9, "message": word(one)})
    })
    .await;
    let values = json!({"fields": ["took"], "multiply_by_field": "host", "multiply_by_values": ["a"]});
    let rows = save(&server, with(detector("rows"), values)).await;
    server.run(&rows).await.unwrap();
    let mut lines = Vec::new();
    for algorithm in ["drain", "tf_idf"] {
        let text = json!({"model_type": "text", "fields": null, "field": "message", "algorithm": algorithm});
        let id = save(&server, with(detector(algorithm), text)).await;
        server.run(&id).await.unwrap();
        lines.push(id);
    }
    let document = |one: i64| {
        let document = json!({"@timestamp": START, "host": word(one), "took": 4, "message": word(one)});
        (format!("new {one}"), document)
    };
    write_all(&server, "logs", (1_000..2_000).map(document).collect()).await;
    let told = until_told(&server, &rows, "1000 documents have values of [host] without a model").await;
    assert!(told.len() < 1_000, "{told}");
    for id in &lines {
        until("scores of all lines", async || (server.shown(id)["scored_documents"] == 1_000).then_some(()))
            .await;
        assert_eq!(server.shown(id)["status"], "Scoring");
    }
    // Cardinality is a number like another one.
    server.clock.advance_ms(31_000);
    let distinct = json!({"model_type": "univariate", "fields": null, "field": "host", "value_type": "cardinality", "time_frame": "2 h"});
    let id = save(&server, with(detector("distinct"), distinct)).await;
    server.run(&id).await.unwrap();
    server.stop().await;
}
