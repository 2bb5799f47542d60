//! Random documents with arrays in arrays, written, replaced, deleted, flushed and merged: nested
//! clauses against an evaluation over plain JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use crate::fixture::Store;

type Documents = BTreeMap<String, Value>;
type Check = Box<dyn Fn(&Value) -> bool>;

const NAMES: &[&str] = &["a", "b", "c"];

fn mapping() -> Value {
    json!({
        "settings": {"number_of_shards": 2},
        "mappings": {"properties": {
            "n": {"type": "integer"},
            "items": {"type": "nested", "properties": {
                "name": {"type": "keyword"},
                "qty": {"type": "integer"},
                "subs": {"type": "nested", "properties": {"v": {"type": "integer"}}}
            }}
        }}
    })
}

/// One object, several, or none.
fn some(rng: &mut StdRng, mut one: impl FnMut(&mut StdRng) -> Value) -> Option<Value> {
    match rng.random_range(0..6) {
        0 => None,
        1 => Some(one(rng)),
        2 => Some(json!([])),
        count => Some((2..count).map(|_| one(rng)).collect()),
    }
}

fn document(rng: &mut StdRng) -> Value {
    let sub = |rng: &mut StdRng| json!({"v": rng.random_range(0..5)});
    let item = |rng: &mut StdRng| {
        let mut item =
            json!({"name": NAMES[rng.random_range(0..NAMES.len())], "qty": rng.random_range(0..5)});
        if let Some(subs) = some(rng, sub) {
            item["subs"] = subs;
        }
        item
    };
    let mut document = json!({"n": rng.random_range(0..3)});
    if let Some(items) = some(rng, item) {
        document["items"] = items;
    }
    document
}

/// The objects at a member: of an array, or the one.
fn objects(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(_) => vec![value],
        _ => Vec::new(),
    }
}

/// A clause over an element, and what it says of one.
fn element_clause(rng: &mut StdRng) -> (Value, Check) {
    let name = NAMES[rng.random_range(0..NAMES.len())];
    let least = rng.random_range(0..5);
    match rng.random_range(0..5) {
        0 => (json!({"term": {"items.name": name}}), Box::new(move |item| item["name"] == name)),
        1 => (
            json!({"range": {"items.qty": {"gte": least}}}),
            Box::new(move |item| item["qty"].as_i64() >= Some(least)),
        ),
        2 => (
            json!({"bool": {"must": [{"term": {"items.name": name}}], "must_not": {"term": {"items.qty": least}}}}),
            Box::new(move |item| item["name"] == name && item["qty"] != least),
        ),
        3 => (
            json!({"nested": {"path": "items.subs", "query": {"term": {"items.subs.v": least}}}}),
            Box::new(move |item| objects(&item["subs"]).iter().any(|sub| sub["v"] == least)),
        ),
        _ => (json!({"match_all": {}}), Box::new(|_| true)),
    }
}

#[tokio::test]
async fn elements_match_by_themselves() {
    let store = Store::open().await;
    store.create("nested", &mapping()).await;
    let mut rng = StdRng::seed_from_u64(17);
    let mut documents = Documents::new();
    for round in 0..6 {
        let mut writes = Vec::new();
        for _ in 0..30 {
            let id = rng.random_range(0..80).to_string();
            if rng.random_range(0..5) == 0 && documents.remove(&id).is_some() {
                writes.push((id, None));
            } else if !writes.iter().any(|(written, _)| *written == id) {
                let document = document(&mut rng);
                documents.insert(id.clone(), document.clone());
                writes.push((id, Some(document)));
            }
        }
        store.write("nested", writes).await;
        let index = store.engine.index("nested").unwrap();
        match round % 3 {
            1 => store.engine.flush(&[Arc::clone(&index)]).await.unwrap(),
            2 => {
                store.engine.force_merge(&[Arc::clone(&index)], 1).await.unwrap();
            }
            _ => {}
        }
        for _ in 0..20 {
            let (clause, matches) = element_clause(&mut rng);
            let nested = json!({"nested": {"path": "items", "query": {"constant_score": {"filter": clause}}, "score_mode": "sum"}});
            let n = rng.random_range(0..3);
            let alone = rng.random_range(0..2) == 0;
            let query = match alone {
                true => nested,
                false => json!({"bool": {"must": nested, "filter": {"term": {"n": n}}}}),
            };
            let expected: BTreeSet<(String, usize)> = documents
                .iter()
                .filter(|(_, document)| alone || document["n"] == n)
                .map(|(id, document)| {
                    (id.clone(), objects(&document["items"]).into_iter().filter(|item| matches(item)).count())
                })
                .filter(|(_, count)| *count > 0)
                .collect();
            let answer = store.search("nested", &[], json!({"query": query, "size": 1000})).await.unwrap();
            let hits = answer["hits"]["hits"].as_array().unwrap();
            let found: BTreeSet<(String, usize)> = hits
                .iter()
                .map(|hit| {
                    let count = hit["_score"].as_f64().unwrap() as usize;
                    (hit["_id"].as_str().unwrap().to_owned(), count)
                })
                .collect();
            assert_eq!(found, expected, "round {round}: {query}");
            assert_eq!(answer["hits"]["total"]["value"], expected.len());
        }
    }
}
