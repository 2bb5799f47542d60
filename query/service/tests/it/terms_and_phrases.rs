//! Clauses about terms, patterns, phrases, spans and likeness, with the hits, scores and refusals that OpenSearch
//! 2.19.3 answered: `tests/cases/terms_and_phrases.json`, `shingles.json`, `spans.json`, `spans_nested.json`, `more_like_this.json`.

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
    check(include_str!("../cases/terms_and_phrases.json")).await;
}

#[tokio::test]
async fn shingles_and_bigrams_are_found_and_scored_as_in_opensearch() {
    check(include_str!("../cases/shingles.json")).await;
}

#[tokio::test]
async fn spans_are_found_and_scored_as_in_opensearch() {
    check(include_str!("../cases/spans.json")).await;
}

#[tokio::test]
async fn spans_within_each_other_and_many_examples_score_as_in_opensearch() {
    check(include_str!("../cases/spans_nested.json")).await;
}

#[tokio::test]
async fn documents_like_others_are_found_and_scored_as_in_opensearch() {
    check(include_str!("../cases/more_like_this.json")).await;
}

async fn check(cases: &str) {
    let cases: Value = serde_json::from_str(cases).unwrap();
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

#[tokio::test]
async fn documents_are_compared_with_stored_and_given_ones() {
    let store = Store::open().await;
    let body = json!({"settings": {"number_of_shards": 1, "number_of_replicas": 0}});
    for index in ["one", "two"] {
        store.create(index, &body).await;
    }
    store.index("one", &["bar", "baz", "foo"].map(|text| json!({"foo": text}))).await;
    store.index("two", &["bar baz selected", "bar", "bar baz"].map(|text| json!({"foo": text}))).await;
    let found = async |expression: &str, own: Value| {
        let mut clause = json!({"include": true, "min_doc_freq": 0, "min_term_freq": 0});
        clause.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
        let body = json!({"query": {"more_like_this": clause}, "sort": [{"_index": "asc"}, {"_id": "asc"}]});
        let answer = store.search(expression, &[], body).await.unwrap();
        let hits = answer["hits"]["hits"].as_array().unwrap().clone();
        hits.iter()
            .map(|hit| format!("{}/{}", hit["_index"].as_str().unwrap(), hit["_id"].as_str().unwrap()))
            .collect::<Vec<_>>()
    };
    let like = json!([{"_index": "one", "_type": "_doc", "doc": {"foo": "bar"}}, {"_index": "one", "_id": "2"}, {"_id": "3"}]);
    assert_eq!(found("one", json!({"like": like})).await, ["one/1", "one/2", "one/3"]);
    let (like, unlike) = (json!({"_index": "two", "_id": "1"}), json!({"_index": "two", "_id": "3"}));
    assert_eq!(found("two", json!({"like": like, "unlike": unlike})).await, ["two/1"]);
    // Without an index, each index compares with its own document.
    assert_eq!(found("one,two", json!({"like": {"_id": "2"}})).await, ["one/2", "two/1", "two/2", "two/3"]);
    assert_eq!(found("two", json!({"like": {"_index": "gone", "_id": "2"}})).await, [""; 0]);
    // What each shard has chosen is marked; clauses that are named, filters and counts find the same.
    let clause = json!({"more_like_this": {"fields": ["foo"], "like": "bar selected", "min_term_freq": 1, "min_doc_freq": 2, "_name": "like"}});
    let query = json!({"bool": {"filter": [clause]}});
    for kind in ["unified", "plain"] {
        let body = json!({"query": query, "highlight": {"type": kind, "fields": {"foo": {}}}});
        let answer = store.search("two", &[], body).await.unwrap();
        let hits = answer["hits"]["hits"].as_array().unwrap();
        assert_eq!(hits.len(), 3);
        assert_eq!(hits[0]["highlight"]["foo"], json!(["<em>bar</em> baz selected"]), "{kind}");
        assert_eq!(hits[0]["matched_queries"], json!(["like"]));
    }
    let counted = json!({"size": 0, "aggs": {"like": {"filter": query}}});
    let answer = store.search("two", &[], counted).await.unwrap();
    assert_eq!(answer["aggregations"]["like"]["doc_count"], 3);
}

/// Lists the lines of an explanation: depth, value, description.
fn lines(explanation: &Value, depth: u64, into: &mut Vec<(u64, f64, String)>) {
    let description = explanation["description"].as_str().unwrap().to_owned();
    into.push((depth, explanation["value"].as_f64().unwrap(), description));
    for detail in explanation["details"].as_array().unwrap() {
        lines(detail, depth + 1, into);
    }
}

/// Says where an explanation differs from lines.
fn explained_otherwise(explanation: &Value, expected: &Value) -> Option<String> {
    let mut found = Vec::new();
    lines(explanation, 0, &mut found);
    let expected: Vec<(u64, f64, String)> = serde_json::from_value(expected.clone()).unwrap();
    let same = found.len() == expected.len()
        && found.iter().zip(&expected).all(|(own, other)| {
            own.0 == other.0 && own.2 == other.2 && (own.1 - other.1).abs() <= 1e-5 * other.1.abs()
        });
    (!same).then(|| format!("explained by {found:#?} instead of {expected:#?}"))
}

#[tokio::test]
async fn spans_and_likeness_are_shown_as_in_opensearch() {
    let cases: Value = serde_json::from_str(include_str!("../cases/spans.json")).unwrap();
    let store = Store::open().await;
    store.create("cases", &cases["index"]).await;
    let documents = cases["documents"].as_array().unwrap();
    let numbered = |(number, document): (usize, &Value)| (number.to_string(), Some(document.clone()));
    let writes: Vec<_> = documents.iter().enumerate().map(numbered).collect();
    store.write("cases", writes[..4].to_vec()).await;
    store.write("cases", writes[4..].to_vec()).await;
    let shown: Value = serde_json::from_str(include_str!("../cases/spans_shown.json")).unwrap();
    let mut wrong = Vec::new();
    for case in shown.as_array().unwrap() {
        let marked = async |kind: &str| {
            let highlight = json!({"fields": {"t": {"type": kind, "number_of_fragments": 0}}});
            let body = json!({"query": case["query"], "size": 50, "explain": true, "highlight": highlight});
            store.search("cases", &[], body).await.unwrap()
        };
        let (unified, plain) = (marked("unified").await, marked("plain").await);
        for (at, expected) in case["hits"].as_array().unwrap().iter().enumerate() {
            let (hit, other) = (&unified["hits"]["hits"][at], &plain["hits"]["hits"][at]);
            let mut differ = |what: &str, found: &Value, expected: &Value| {
                if found != expected {
                    wrong.push(format!("{}: {what} {found} instead of {expected}", case["query"]));
                }
            };
            differ("hit", &hit["_id"], &expected["id"]);
            differ("names", &hit["matched_queries"], &expected["names"]);
            if let Some(validated) = case["validate"].as_str() {
                differ("unified", &hit["highlight"]["t"], &expected["unified"]);
                differ("plain", &other["highlight"]["t"], &expected["plain"]);
                let body = Some(json!({"query": case["query"]}));
                let params = crate::fixture::owned(&[("explain", "true")]);
                let answer =
                    store.service.validate_query(&store.session, "cases", params, body).await.unwrap();
                let answer = crate::fixture::value(answer);
                differ("validated", &answer["explanations"][0]["explanation"], &json!(validated));
            }
            if expected["explanation"].is_array() {
                let differs = explained_otherwise(&hit["_explanation"], &expected["explanation"]);
                wrong.extend(differs.map(|differs| format!("{}: {differs}", case["query"])));
            }
        }
        let profiled = json!({"query": case["query"], "profile": true});
        let profiled = store.search("cases", &[], profiled).await.unwrap();
        let described = &profiled["profile"]["shards"][0]["searches"][0]["query"][0]["description"];
        assert!(described.as_str().is_some_and(|text| !text.is_empty()), "{described}");
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[tokio::test]
async fn phrases_with_synonyms_find_texts_without_positions() {
    let store = Store::open().await;
    let body = json!({
        "settings": {"analysis": {
            "filter": {"names": {"type": "synonym_graph", "synonyms": ["new york, ny"]}},
            "analyzer": {"names": {"tokenizer": "standard", "filter": ["lowercase", "names"]}},
        }},
        "mappings": {"properties": {"t": {"type": "match_only_text", "search_analyzer": "names"}}},
    });
    store.create("a", &body).await;
    let texts = ["new york ham", "ny ham", "ham of new york", "york new ham"];
    store.index("a", &texts.map(|text| json!({"t": text}))).await;
    for (query, expected) in [("ny ham", 2), ("new york ham", 2), ("ham ny", 0), ("of ny", 1)] {
        let answer = store.search("a", &[], json!({"query": {"match_phrase": {"t": query}}})).await.unwrap();
        assert_eq!(answer["hits"]["total"]["value"], expected, "{query}");
    }
}

#[tokio::test]
async fn single_terms_of_a_graph_may_be_near_others() {
    let store = Store::open().await;
    let body = json!({
        "settings": {"analysis": {
            "filter": {"names": {"type": "synonym_graph", "synonyms": ["new york, newyork"]}},
            "analyzer": {"names": {"tokenizer": "standard", "filter": ["lowercase", "names"]}},
        }},
        "mappings": {"properties": {"t": {"type": "text", "search_analyzer": "names"}}},
    });
    store.create("a", &body).await;
    let texts = ["new york", "newyork", "newyorc", "new yorc"];
    store.index("a", &texts.map(|text| json!({"t": text}))).await;
    // OpenSearch finds terms near `newyork`; the phrase is as it is.
    for (fuzziness, expected) in [("0", 2), ("1", 3)] {
        let query = json!({"match": {"t": {"query": "new york", "fuzziness": fuzziness}}});
        let answer = store.search("a", &[], json!({"query": query})).await.unwrap();
        assert_eq!(answer["hits"]["total"]["value"], expected, "{fuzziness}");
    }
}
