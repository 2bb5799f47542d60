//! Compound, geographic and nested clauses over a handful of documents: hits, order and scores, and
//! errors, as OpenSearch 2.19 answers them (`tests/cases`).

use serde_json::{Value, json};

use crate::fixture::Store;

fn documents() -> Vec<Value> {
    vec![
        json!({"n": 1, "d": 1.5, "at": "2024-01-01", "p": {"lat": 52.5, "lon": 13.4}, "k": "a", "t": "quick brown fox", "b": true,
            "items": [{"name": "x", "qty": 1, "sub": [{"v": 1, "w": "one two"}, {"v": 2, "w": "two"}]}, {"name": "y", "qty": 5}]}),
        json!({"n": [3, 7], "d": 2.5, "at": "2024-01-05", "p": [13.0, 52.0], "k": "b", "t": "quick quick dog",
            "items": {"name": "x", "qty": 3, "sub": {"v": 3, "w": "two three"}}}),
        json!({"n": 10, "at": "2024-02-01", "p": ["48.1,11.5", "52.5,13.5"], "k": "a", "t": "lazy dog", "b": false}),
        json!({"d": -4, "t": "the quick dog jumps", "items": [{"name": "z", "qty": 2}, {"name": "x", "qty": 9}]}),
        json!({"k": "a", "p": "u33db"}),
    ]
}

async fn store() -> Store {
    let store = Store::open().await;
    let mapping = json!({"mappings": {"properties": {
        "n": {"type": "integer"}, "d": {"type": "double"}, "at": {"type": "date"}, "p": {"type": "geo_point"},
        "k": {"type": "keyword"}, "t": {"type": "text"}, "b": {"type": "boolean"},
        "items": {"type": "nested", "properties": {
            "name": {"type": "keyword"}, "qty": {"type": "integer"},
            "sub": {"type": "nested", "properties": {"v": {"type": "integer"}, "w": {"type": "text"}}}
        }},
        "o": {"properties": {"x": {"type": "integer"}}}
    }}});
    store.create("compound", &mapping).await;
    store.index("compound", &documents()).await;
    store
}

/// Returns the fault of an answer, if there is one.
fn wrong(case: &Value, answer: &Result<Value, millrace_query::Error>) -> Option<String> {
    match (answer, &case["hits"], &case["error"]) {
        (Ok(answer), Value::Array(expected), _) => {
            let hits = answer["hits"]["hits"].as_array().unwrap();
            let same = hits.len() == expected.len()
                && hits.iter().zip(expected).all(|(hit, expected)| {
                    let close = match (hit["_score"].as_f64(), expected[1].as_f64()) {
                        (Some(score), Some(expected)) => {
                            (score - expected).abs() <= expected.abs() * 1e-5 + 2e-6
                        }
                        _ => false,
                    };
                    hit["_id"] == expected[0]
                        && close
                        && expected.get(2).is_none_or(|names| *names == hit["matched_queries"])
                });
            let found: Vec<_> =
                hits.iter().map(|hit| json!([hit["_id"], hit["_score"], hit["matched_queries"]])).collect();
            (!same).then(|| format!("found {found:?}, expected {expected:?}"))
        }
        (Err(error), _, Value::Array(expected)) => {
            let body = error.to_body().map(|body| body["error"].clone()).unwrap_or_default();
            let cause = &body["root_cause"][0];
            let found = json!([error.status(), body["type"], cause["type"], cause["reason"]]);
            (found != json!(expected)).then(|| format!("found {found}, expected {}", json!(expected)))
        }
        (Ok(answer), ..) => Some(format!("found {}, expected {}", answer["hits"]["hits"], case["error"])),
        (Err(error), ..) => Some(format!("found {error}, expected {}", case["hits"])),
    }
}

async fn check(cases: &str) {
    let store = store().await;
    let cases: Vec<Value> = serde_json::from_str(cases).unwrap();
    let index = store.engine.index("compound").unwrap();
    for state in ["refreshed", "flushed"] {
        let mut failures = Vec::new();
        for case in &cases {
            let answer = store.search("compound", &[], json!({"query": case["query"]})).await;
            failures.extend(wrong(case, &answer).map(|wrong| format!("{}\n    {wrong}", case["query"])));
        }
        assert!(
            failures.is_empty(),
            "{state}, {} of {}:\n{}",
            failures.len(),
            cases.len(),
            failures.join("\n")
        );
        store.engine.flush(&[std::sync::Arc::clone(&index)]).await.unwrap();
    }
}

#[tokio::test]
async fn boolean_clauses() {
    check(include_str!("../cases/bool.json")).await;
}

#[tokio::test]
async fn function_score() {
    check(include_str!("../cases/function_score.json")).await;
}

#[tokio::test]
async fn geographic_clauses() {
    check(include_str!("../cases/geo.json")).await;
}

#[tokio::test]
async fn intervals() {
    check(include_str!("../cases/intervals.json")).await;
}

#[tokio::test]
async fn distances_as_scores() {
    check(include_str!("../cases/distance_feature.json")).await;
}

#[tokio::test]
async fn nested_clauses() {
    check(include_str!("../cases/nested.json")).await;
}

#[tokio::test]
async fn terms_of_other_documents() {
    check(include_str!("../cases/terms_lookup.json")).await;
}
