//! Clauses about terms, patterns and phrases, with the hits, scores and refusals that OpenSearch
//! 2.19.3 answered: `tests/cases/terms_and_phrases.json`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::fixture::Store;

/// Compares an answer with the one expected; says what differs.
fn difference(case: &Value, answer: Result<Value, millrace_query::Error>) -> Option<String> {
    match (answer, case["refused"].as_str()) {
        (Err(error), Some(expected)) => {
            let body = error.to_body()?;
            let shard = &body["error"]["failed_shards"][0]["reason"];
            let reason = if shard.is_null() { &body["error"] } else { shard };
            let found =
                format!("{}: {}", reason["type"].as_str().unwrap(), reason["reason"].as_str().unwrap());
            (found != expected).then_some(found)
        }
        (Err(error), None) => Some(format!("{error:?}")),
        (Ok(answer), Some(_)) => Some(format!("answered {}", answer["hits"]["total"])),
        (Ok(answer), None) => {
            let hits = answer["hits"]["hits"].as_array().unwrap().iter();
            let found: BTreeMap<&str, f64> =
                hits.map(|hit| (hit["_id"].as_str().unwrap(), hit["_score"].as_f64().unwrap())).collect();
            let expected = case["hits"].as_object().unwrap();
            let same = found.len() == expected.len()
                && expected.iter().all(|(id, score)| {
                    let score = score.as_f64().unwrap();
                    found.get(id.as_str()).is_some_and(|own| (own - score).abs() <= 1e-4 * score.max(1.0))
                });
            (!same).then(|| format!("{found:?}"))
        }
    }
}

#[tokio::test]
async fn terms_and_phrases_are_found_and_scored_as_in_opensearch() {
    let cases: Value = serde_json::from_str(include_str!("../cases/terms_and_phrases.json")).unwrap();
    let store = Store::open().await;
    store.create("cases", &cases["index"]).await;
    let documents = cases["documents"].as_array().unwrap();
    let numbered = |(number, document): (usize, &Value)| (number.to_string(), Some(document.clone()));
    let writes: Vec<_> = documents.iter().enumerate().map(numbered).collect();
    // Two segments must answer like one.
    store.write("cases", writes[..4].to_vec()).await;
    store.write("cases", writes[4..].to_vec()).await;
    let mut wrong = Vec::new();
    for case in cases["cases"].as_array().unwrap() {
        let body = json!({"query": case["query"], "size": 50});
        let answer = store.search("cases", &[], body).await;
        if let Some(found) = difference(case, answer) {
            wrong.push(format!("{case}\n  found {found}"));
        }
    }
    assert!(wrong.is_empty(), "{} cases differ:\n{}", wrong.len(), wrong.join("\n"));
}
