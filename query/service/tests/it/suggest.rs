//! Suggesters, and queries on the fields that help users to type: options, hits and errors as OpenSearch
//! 2.19 answers them (`tests/cases/suggest.json`, `tests/cases/typed.json`).

use serde_json::{Value, json};

use crate::fixture::Store;

const TEXTS: &[&str] = &[
    "quick brown fox jump lazy dog",
    "the quick brown fox jumps over the lazy dog",
    "quick brown",
    "brown fox",
    "lazy dog quick fox",
    "Quick the fox",
    "a fox of the dogs",
    "quickly brownish foxes jumping",
];

fn mapping() -> Value {
    json!({
        "settings": {"analysis": {
            "analyzer": {
                "pairs": {"type": "custom", "tokenizer": "standard", "filter": ["lowercase", "pairs"]},
                "backwards": {"type": "custom", "tokenizer": "standard", "filter": ["lowercase", "reverse"]}
            },
            "filter": {"pairs": {"type": "shingle", "min_shingle_size": 2, "max_shingle_size": 2}}
        }},
        "mappings": {"properties": {
            "a": {"type": "search_as_you_type"},
            "t": {"type": "text", "fields": {
                "length": {"type": "token_count", "analyzer": "standard"},
                "pairs": {"type": "text", "analyzer": "pairs"},
                "backwards": {"type": "text", "analyzer": "backwards"}
            }},
            "k": {"type": "keyword"},
            "rank": {"type": "rank_feature"},
            "topics": {"type": "rank_features"},
            "c": {"type": "completion"},
            "in": {"type": "completion", "contexts": [
                {"name": "color", "type": "category"}, {"name": "place", "type": "geo", "precision": 5}
            ]}
        }}
    })
}

fn documents() -> Vec<Value> {
    let texts = TEXTS.iter().enumerate().map(|(at, text)| {
        json!({
            "a": text, "t": text, "k": text.split(' ').next(), "rank": at as f64 * 3.7 + 0.5,
            "topics": {"x": at + 1, "y.z": (at * 7) % 5 + 1}
        })
    });
    let inputs = [
        json!({"c": ["foo bar", "food"]}),
        json!({"c": {"input": ["fab", "Foo Fighters"], "weight": 5}}),
        json!({"c": {"input": "foo!", "weight": 2}}),
        json!({"c": [{"input": "zero", "weight": 0}, {"input": "fop", "weight": "7"}]}),
        json!({"in": {"input": "foo", "weight": 3, "contexts": {"color": ["red", "blue"]}}}),
        json!({"in": {"input": "foo", "weight": 4, "contexts": {"color": "redish"}}}),
        json!({"in": {"input": "fox", "contexts": {"color": "blue", "place": {"lat": 52.5, "lon": 13.4}}}}),
        json!({"in": {"input": "fop", "contexts": {"place": "u33d"}}}),
    ];
    texts.chain(inputs).collect()
}

async fn store() -> Store {
    let store = Store::open().await;
    store.create("typed", &mapping()).await;
    store.index("typed", &documents()).await;
    store
}

fn cause(error: &millrace_query::Error) -> Value {
    let body = error.to_body().map(|body| body["error"].clone()).unwrap_or_default();
    let cause = &body["root_cause"][0];
    json!([error.status(), cause["type"], cause["reason"]])
}

/// Returns whether two answers are the same, but for the last digits of scores.
fn close(found: &Value, expected: &Value) -> bool {
    match (found, expected) {
        (Value::Array(found), Value::Array(expected)) => {
            found.len() == expected.len() && found.iter().zip(expected).all(|(a, b)| close(a, b))
        }
        (Value::Number(found), Value::Number(expected)) => {
            let (found, expected) = (found.as_f64().unwrap(), expected.as_f64().unwrap());
            (found - expected).abs() <= expected.abs() * 1e-5 + 2e-6
        }
        _ => found == expected,
    }
}

/// Returns an answer in the form of the cases.
fn shown(answer: &Value) -> Value {
    let Some(entries) = answer["suggest"]["it"].as_array() else {
        let hits = answer["hits"]["hits"].as_array().unwrap().iter();
        return hits.map(|hit| json!([hit["_id"], hit["_score"]])).collect();
    };
    let option = |option: &Value| {
        let score = option.get("_score").or(option.get("score"));
        json!([option["text"], option["_id"], score, option["freq"], option["highlighted"]])
    };
    let entry = |entry: &Value| {
        let options: Value = entry["options"].as_array().unwrap().iter().map(option).collect();
        json!([entry["text"], entry["offset"], entry["length"], options])
    };
    entries.iter().map(entry).collect()
}

async fn check(cases: &str) {
    let store = store().await;
    let cases: Vec<Value> = serde_json::from_str(cases).unwrap();
    let index = store.engine.index("typed").unwrap();
    for state in ["refreshed", "flushed"] {
        let mut wrong = Vec::new();
        for case in &cases {
            let body = match case.get("suggest") {
                Some(suggestion) => json!({"suggest": {"it": suggestion}}),
                None => json!({"query": case["query"]}),
            };
            let found = match store.search("typed", &[], body.clone()).await {
                Ok(answer) => shown(&answer),
                Err(error) => cause(&error),
            };
            let expected = case.get("error").unwrap_or(&case["answer"]);
            if !close(&found, expected) {
                wrong.push(format!("{body}\n    found    {found}\n    expected {expected}"));
            }
        }
        assert!(wrong.is_empty(), "{state}, {} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
        store.engine.flush(&[std::sync::Arc::clone(&index)]).await.unwrap();
    }
}

#[tokio::test]
async fn suggestions() {
    check(include_str!("../cases/suggest.json")).await;
}

#[tokio::test]
async fn fields_that_help_to_type() {
    check(include_str!("../cases/typed.json")).await;
}

#[tokio::test]
async fn completions_come_from_all_shards_and_from_documents_that_are_there() {
    let store = Store::open().await;
    let mapping = json!({
        "settings": {"number_of_shards": 3}, "mappings": {"properties": {"c": {"type": "completion"}}}
    });
    store.create("many", &mapping).await;
    let documents: Vec<Value> =
        (0..60).map(|at| json!({"c": {"input": [format!("fox {at:02}"), "fun"], "weight": at}})).collect();
    store.index("many", &documents).await;
    let index = store.engine.index("many").unwrap();
    store.engine.flush(&[std::sync::Arc::clone(&index)]).await.unwrap();
    store.write("many", vec![("60".into(), None), ("59".into(), Some(json!({"c": "other"})))]).await;
    let best = async |suggestion: Value| -> Vec<String> {
        let answer = store.search("many", &[], json!({"suggest": {"it": suggestion}})).await.unwrap();
        let options = answer["suggest"]["it"][0]["options"].as_array().unwrap().iter();
        options.map(|option| format!("{} {}", option["text"].as_str().unwrap(), option["_id"])).collect()
    };
    let foxes = best(json!({"prefix": "fo", "completion": {"field": "c", "size": 3}})).await;
    assert_eq!(foxes, ["fox 57 \"58\"", "fox 56 \"57\"", "fox 55 \"56\""]);
    // A document is given once, by its first input.
    let all = best(json!({"prefix": "f", "completion": {"field": "c", "size": 2}})).await;
    assert_eq!(all, ["fox 57 \"58\"", "fox 56 \"57\""]);
    let once = json!({"prefix": "fun", "completion": {"field": "c", "size": 5, "skip_duplicates": true}});
    assert_eq!(best(once).await, ["fun \"58\""]);
    store.engine.force_merge(&[index], 1).await.unwrap();
    let foxes = best(json!({"prefix": "fox 5", "completion": {"field": "c", "size": 1}})).await;
    assert_eq!(foxes, ["fox 57 \"58\""]);
}

#[tokio::test]
async fn bad_suggestions_are_refused() {
    let store = store().await;
    let long = "x".repeat(20_000);
    let many: Value =
        (0..101).map(|at| (at.to_string(), json!({"text": "a", "term": {"field": "t"}}))).collect();
    for (suggest, part) in [
        (json!({"it": {"text": long, "term": {"field": "t"}}}), "bytes"),
        (many, "too many suggestions"),
        (json!({"it": {"text": "a", "phrase": {"field": "t", "collate": {}}}}), "collate"),
        (json!({"it": {"text": "a", "term": {"field": "rank"}}}), "no words"),
        (json!({"it": {"text": "a", "completion": {"field": "c", "size": 1_000_000}}}), "size"),
    ] {
        let error = store.search("typed", &[], json!({"suggest": suggest})).await.unwrap_err();
        let body = error.to_body().unwrap_or_default().to_string();
        assert!(error.status() == 400 && body.contains(part), "{part}: {} {body}", error.status());
    }
    // One index that has the field is enough.
    store.create("other", &json!({})).await;
    let body = json!({"suggest": {"it": {"prefix": "fo", "completion": {"field": "c"}}}});
    let answer = store.search("typed,other", &[], body).await.unwrap();
    assert_eq!(answer["_shards"]["failed"], 1);
    assert_eq!(answer["suggest"]["it"][0]["options"].as_array().unwrap().len(), 4);
}
