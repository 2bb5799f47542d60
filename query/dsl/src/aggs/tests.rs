//! Requests that are refused, and why, in the words of OpenSearch 2.19 (without the places in the text that it names).

use millrace_work::error::Error;
use serde_json::Value;

use super::*;

/// Requests, a line each: the aggregation `a`, and what is wrong with it.
const REFUSED: &str = include_str!("tests/refused.txt");

fn chain(error: &Error) -> String {
    let body = error.to_body().unwrap_or_default();
    let mut text = error.status().to_string();
    let mut part = &body["error"];
    loop {
        text.push_str(&format!(
            " {}: {}",
            part["type"].as_str().unwrap_or_default(),
            part["reason"].as_str().unwrap_or_default()
        ));
        match part.get("caused_by") {
            Some(cause) => {
                text.push_str(" <-");
                part = cause;
            }
            None => return text,
        }
    }
}

#[test]
fn requests_are_refused_as_opensearch_refuses_them() {
    let mut wrong = Vec::new();
    for line in REFUSED.lines() {
        let (request, expected) = line.split_once(" => ").unwrap();
        let request: Value = serde_json::from_str(request).unwrap();
        let parsed = Aggregations::parse("aggs", &request);
        let found = match parsed.and_then(|parsed| validate(&parsed)) {
            Ok(_) => "accepted".to_owned(),
            Err(error) => chain(&error),
        };
        if found != expected {
            wrong.push(format!("{request}\n  expected {expected}\n  found    {found}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn trees_are_bounded() {
    let mut deep = serde_json::json!({"a": {"avg": {"field": "n"}}});
    for _ in 0..MAX_DEPTH {
        deep = serde_json::json!({"a": {"terms": {"field": "k"}, "aggs": deep}});
    }
    assert!(Aggregations::parse("aggs", &deep).is_err());
    let many: Map<String, Value> =
        (0..=MAX_COUNT).map(|at| (at.to_string(), serde_json::json!({"avg": {"field": "n"}}))).collect();
    assert!(Aggregations::parse("aggs", &Value::Object(many)).is_err());
}
