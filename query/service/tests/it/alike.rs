//! Aggregations and statements of SQL that mean the same answer the same, in every state of a store.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use crate::fixture::Store;
use crate::sql::rows;

/// A condition, as a query and as SQL.
fn condition(rng: &mut StdRng) -> (Value, String) {
    let (low, tag) =
        (rng.random_range(-5..5), ["a", "b", "c", "long tag of many letters"][rng.random_range(0..4)]);
    let none = |query: Value| json!({"bool": {"must_not": [query]}});
    match rng.random_range(0..7) {
        0 => (json!({"match_all": {}}), "1 = 1".to_owned()),
        1 => (json!({"range": {"n": {"gte": low}}}), format!("n >= {low}")),
        2 => {
            (json!({"range": {"f": {"lt": low, "gte": low - 4}}}), format!("f < {low} AND f >= {}", low - 4))
        }
        3 => (json!({"term": {"tags": tag}}), format!("tags = '{tag}'")),
        4 => (json!({"exists": {"field": "tag"}}), "tag IS NOT NULL".to_owned()),
        5 => (none(json!({"exists": {"field": "n"}})), "n IS NULL".to_owned()),
        _ => (
            json!({"bool": {"should": [{"term": {"tag": tag}}, {"range": {"ns": {"gt": low}}}]}}),
            format!("tag = '{tag}' OR ns > {low}"),
        ),
    }
}

fn document(rng: &mut StdRng) -> Value {
    let mut document = json!({});
    let tag = |rng: &mut StdRng| ["a", "b", "c", "d", "long tag of many letters"][rng.random_range(0..5)];
    if rng.random_bool(0.8) {
        document["tag"] = json!(tag(rng));
    }
    if rng.random_bool(0.8) {
        let mut tags: Vec<&str> = (0..rng.random_range(0..4)).map(|_| tag(rng)).collect();
        tags.sort_unstable();
        tags.dedup();
        document["tags"] = json!(tags);
    }
    if rng.random_bool(0.8) {
        document["n"] = json!(rng.random_range(-6..7));
    }
    if rng.random_bool(0.7) {
        let mut ns: Vec<i64> = (0..rng.random_range(1..4)).map(|_| rng.random_range(-6..7)).collect();
        ns.sort_unstable();
        ns.dedup();
        document["ns"] = json!(ns);
    }
    if rng.random_bool(0.8) {
        // Eighths are added without rounding.
        document["f"] = json!(f64::from(rng.random_range(-80..80)) / 8.0);
    }
    if rng.random_bool(0.9) {
        document["at"] = json!(1_700_000_000_000_i64 + rng.random_range(0..200) * 3_600_000);
    }
    document
}

fn alike(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| alike(a, b)),
        _ => match (a.as_f64(), b.as_f64()) {
            (Some(a), Some(b)) => (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0),
            _ => a == b,
        },
    }
}

/// The metrics of a bucket in the order of [`METRICS`].
fn metrics(bucket: &Value) -> Vec<Value> {
    let (n, f, e) = (&bucket["n"], &bucket["f"], &bucket["e"]);
    // SQL's sum of nothing is null.
    let sum = |stats: &Value| if stats["count"] == json!(0) { Value::Null } else { stats["sum"].clone() };
    vec![
        bucket["doc_count"].clone(),
        n["count"].clone(),
        sum(n),
        n["min"].clone(),
        n["max"].clone(),
        n["avg"].clone(),
        f["count"].clone(),
        sum(f),
        f["min"].clone(),
        f["max"].clone(),
        f["avg"].clone(),
        e["variance_population"].clone(),
        e["std_deviation_population"].clone(),
        bucket["d"]["value"].clone(),
    ]
}

const METRICS: &str = "COUNT(*), COUNT(n), SUM(n), MIN(n), MAX(n), AVG(n), COUNT(f), SUM(f), MIN(f), MAX(f), AVG(f), VAR_POP(f), STDDEV_POP(f), COUNT(DISTINCT n)";

async fn check(store: &Store, rng: &mut StdRng, state: &str) {
    let (query, sql) = condition(rng);
    let subs = json!({
        "n": {"stats": {"field": "n"}}, "f": {"stats": {"field": "f"}},
        "e": {"extended_stats": {"field": "f"}}, "d": {"cardinality": {"field": "n"}},
    });
    let width = [0.5, 2.0, 2.5][rng.random_range(0..3)];
    let mut body = json!({"size": 0, "query": query, "aggs": {
        "tag": {"terms": {"field": "tag", "size": 1000, "order": {"_key": "asc"}}, "aggs": subs},
        "tags": {"terms": {"field": "tags", "size": 1000, "order": {"_key": "asc"}}, "aggs": subs},
        "n": {"terms": {"field": "n", "size": 1000, "order": {"_key": "asc"}}, "aggs": subs},
        "width": {"histogram": {"field": "f", "interval": width, "min_doc_count": 1}, "aggs": subs},
        "day": {"date_histogram": {"field": "at", "calendar_interval": "day", "format": "yyyy-MM-dd", "min_doc_count": 1}, "aggs": subs},
        "all": {"filter": {"match_all": {}}, "aggs": subs},
        "without": {"missing": {"field": "tag"}, "aggs": subs},
        "values": {"value_count": {"field": "tags"}},
        "least": {"min": {"field": "ns"}},
        "greatest": {"max": {"field": "ns"}},
        "pairs": {"composite": {"size": 1000, "sources": [{"a": {"terms": {"field": "tags"}}}, {"b": {"terms": {"field": "n"}}}]}},
    }});
    body["track_total_hits"] = json!(true);
    let answer = store.search("alike", &[], body).await.unwrap();
    let aggregations = &answer["aggregations"];
    let groups = [
        ("tag", "tag".to_owned(), "tag", "key"),
        ("tags", "tags".to_owned(), "tags", "key"),
        ("n", "n".to_owned(), "n", "key"),
        ("width", format!("FLOOR(f / {width:?}) * {width:?}"), "f", "key"),
        ("day", "DATE(at)".to_owned(), "at", "key_as_string"),
    ];
    for (name, group, field, key) in groups {
        let statement = format!(
            "SELECT {group} AS k, {METRICS} FROM alike WHERE ({sql}) AND {field} IS NOT NULL GROUP BY k ORDER BY k LIMIT 10000"
        );
        let expected: Vec<Value> = aggregations[name]["buckets"]
            .as_array()
            .unwrap()
            .iter()
            .map(|bucket| {
                let mut row = vec![bucket[key].clone()];
                row.extend(metrics(bucket));
                Value::Array(row)
            })
            .collect();
        let found = rows(store, &statement).await;
        assert!(
            alike(&Value::Array(found.clone()), &Value::Array(expected.clone())),
            "{state} {query}: {statement}\n{found:?}\n{expected:?}"
        );
    }
    for (bucket, also) in [("all", ""), ("without", " AND tag IS NULL")] {
        let statement = format!("SELECT {METRICS} FROM alike WHERE ({sql}){also}");
        let found = rows(store, &statement).await;
        let expected = json!([metrics(&aggregations[bucket])]);
        assert!(
            alike(&Value::Array(found.clone()), &expected),
            "{state} {query}: {statement}\n{found:?}\n{expected}"
        );
    }
    let statement = format!("SELECT COUNT(tags), MIN(ns), MAX(ns) FROM alike WHERE {sql}");
    let of = |name: &str| aggregations[name]["value"].clone();
    let expected = json!([[of("values"), of("least"), of("greatest")]]);
    let found = Value::Array(rows(store, &statement).await);
    assert!(alike(&found, &expected), "{state} {query}: {statement}\n{found}\n{expected}");
    let statement = format!(
        "SELECT tags, n, COUNT(*) FROM alike WHERE ({sql}) AND tags IS NOT NULL AND n IS NOT NULL GROUP BY tags, n ORDER BY tags, n LIMIT 10000"
    );
    let expected: Vec<Value> = aggregations["pairs"]["buckets"]
        .as_array()
        .unwrap()
        .iter()
        .map(|bucket| json!([bucket["key"]["a"], bucket["key"]["b"], bucket["doc_count"]]))
        .collect();
    assert_eq!(rows(store, &statement).await, expected, "{state} {query}: {statement}");
    let hits = rows(store, &format!("SELECT COUNT(*) FROM alike WHERE {sql}")).await;
    assert_eq!(hits, [json!([answer["hits"]["total"]["value"]])], "{state} {query}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aggregations_and_statements_answer_alike() {
    let mut rng = StdRng::seed_from_u64(23);
    let store = Store::open().await;
    store
        .create(
            "alike",
            &json!({"settings": {"number_of_shards": 2}, "mappings": {"properties": {
                "tag": {"type": "keyword"}, "tags": {"type": "keyword"}, "n": {"type": "integer"},
                "ns": {"type": "integer"}, "f": {"type": "double"}, "at": {"type": "date"},
            }}}),
        )
        .await;
    for round in 0..3 {
        let mut writes: BTreeMap<String, Option<Value>> = BTreeMap::new();
        for _ in 0..150 {
            let written = rng.random_bool(0.85).then(|| document(&mut rng));
            writes.insert(rng.random_range(0..300).to_string(), written);
        }
        store.write("alike", writes.into_iter().collect()).await;
        for _ in 0..6 {
            check(&store, &mut rng, &format!("refreshed {round}")).await;
        }
        let index = store.engine.index("alike").unwrap();
        match round < 2 {
            true => store.engine.flush(&[index]).await.unwrap(),
            false => store.engine.force_merge(&[index], 1).await.unwrap(),
        };
        for _ in 0..6 {
            check(&store, &mut rng, &format!("stored {round}")).await;
        }
    }
}
