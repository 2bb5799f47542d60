//! Orders over a handful of documents, nested ones among them: hits with their sort values, and
//! errors, as OpenSearch 2.19 answers them (`tests/cases/sort.json`).

use serde_json::{Value, json};

use crate::fixture::Store;

fn documents() -> Vec<Value> {
    vec![
        json!({"n": 1, "p": [13, 52], "items": [
            {"name": "a", "qty": 5, "at": [13, 52], "subs": [{"v": 1}, {"v": 9}]},
            {"name": "b", "qty": 2, "at": [0, 0]}
        ]}),
        json!({"n": 2, "p": [0, 0], "items": [{"name": "b", "qty": [7, 3], "subs": [{"v": 3}]}]}),
        json!({"n": 3}),
        json!({"n": 4, "p": [10, 10], "items": [
            {"name": "a", "qty": 1, "at": [1, 1], "subs": [{"v": 4}]},
            {"name": "a", "qty": 8, "at": [12, 50]},
            {"name": "c"}
        ]}),
    ]
}

fn mapping() -> Value {
    json!({"mappings": {"properties": {
        "n": {"type": "integer"}, "p": {"type": "geo_point"}, "o": {"properties": {"x": {"type": "integer"}}},
        "items": {"type": "nested", "properties": {
            "name": {"type": "keyword"}, "qty": {"type": "integer"}, "at": {"type": "geo_point"},
            "subs": {"type": "nested", "properties": {"v": {"type": "integer"}}}
        }}
    }}})
}

/// Returns whether two sort values are the same; distances differ in their last bits.
fn same(a: &Value, b: &Value) -> bool {
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => (a - b).abs() <= b.abs() * 1e-9,
        _ => a == b,
    }
}

fn wrong(case: &Value, answer: &Result<Value, millrace_query::Error>) -> Option<String> {
    match answer {
        Ok(answer) => {
            let hits = answer["hits"]["hits"].as_array().unwrap();
            let found: Vec<Value> = hits.iter().map(|hit| json!([hit["_id"], hit["sort"]])).collect();
            let alike = |(found, expected): (&Value, &Value)| {
                let values = found[1].as_array().unwrap().iter().zip(expected[1].as_array().unwrap());
                found[0] == expected[0] && values.into_iter().all(|(a, b)| same(a, b))
            };
            let expected = case["hits"].as_array();
            let right = expected.is_some_and(|expected| {
                expected.len() == found.len() && found.iter().zip(expected).all(alike)
            });
            (!right).then(|| format!("found {}, expected {case}", json!(found)))
        }
        Err(error) => {
            let body = error.to_body().map(|body| body["error"].clone()).unwrap_or_default();
            let cause = &body["root_cause"][0];
            let found = json!([error.status(), body["type"], cause["type"], cause["reason"]]);
            (found != case["error"]).then(|| format!("found {found}, expected {case}"))
        }
    }
}

#[tokio::test]
async fn orders() {
    let store = Store::open().await;
    store.create("sorted", &mapping()).await;
    store.index("sorted", &documents()).await;
    let cases: Vec<Value> = serde_json::from_str(include_str!("../cases/sort.json")).unwrap();
    let index = store.engine.index("sorted").unwrap();
    for state in ["refreshed", "flushed"] {
        let mut failures = Vec::new();
        for case in &cases {
            let answer = store.search("sorted", &[], json!({"sort": case["sort"]})).await;
            failures.extend(wrong(case, &answer));
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
