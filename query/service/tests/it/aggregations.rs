//! Aggregations: random documents in every state of a store, against an evaluation over plain JSON.

use std::collections::{BTreeMap, BTreeSet};

use millrace_query::Config;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use crate::fixture::Store;

type Documents = BTreeMap<String, Value>;

const TAGS: &[&str] = &["a", "b", "abc", "a tag that is longer than a view", "z"];

fn mapping() -> Value {
    json!({
        "settings": {"number_of_shards": 2},
        "mappings": {"properties": {
            "tag": {"type": "keyword"},
            "n": {"type": "integer"},
            "one": {"type": "long"},
            "f": {"type": "double"},
            "at": {"type": "date"},
            "ok": {"type": "boolean"},
            "items": {"type": "nested", "properties": {"k": {"type": "keyword"}, "v": {"type": "integer"}}}
        }}
    })
}

fn some(rng: &mut StdRng, mut one: impl FnMut(&mut StdRng) -> Value) -> Value {
    match rng.random_range(0..10) {
        0 | 1 => Value::Null,
        2 => json!([one(rng), one(rng)]),
        3 => json!([]),
        _ => one(rng),
    }
}

fn document(rng: &mut StdRng, number: i64) -> Value {
    let tag = |rng: &mut StdRng| json!(TAGS[rng.random_range(0..TAGS.len())]);
    let items: Vec<Value> =
        (0..rng.random_range(0..4)).map(|_| json!({"k": tag(rng), "v": rng.random_range(0..5)})).collect();
    json!({
        "tag": some(rng, tag),
        "n": some(rng, |rng| json!(rng.random_range(-3..4))),
        "one": number,
        "f": some(rng, |rng| json!(f64::from(rng.random_range(-40..40)) / 8.0)),
        "at": some(rng, |rng| json!(1_700_000_000_000_i64 + rng.random_range(0..200) * 3_600_000)),
        "ok": some(rng, |rng| json!(rng.random_bool(0.5))),
        "items": items,
    })
}

fn values<'d>(document: &'d Value, field: &str) -> Vec<&'d Value> {
    match &document[field] {
        Value::Null => Vec::new(),
        Value::Array(values) => values.iter().collect(),
        value => vec![value],
    }
}

/// The distinct texts of a field's values.
fn texts(document: &Value, field: &str) -> BTreeSet<String> {
    values(document, field)
        .into_iter()
        .map(|value| value.as_str().map_or(value.to_string(), str::to_owned))
        .collect()
}

fn numbers(document: &Value, field: &str) -> Vec<f64> {
    values(document, field).into_iter().filter_map(Value::as_f64).collect()
}

/// Groups documents by keys.
fn grouped<'d, K: Ord>(
    documents: &[&'d Value],
    keys: impl Fn(&Value) -> BTreeSet<K>,
) -> BTreeMap<K, Vec<&'d Value>> {
    let mut groups: BTreeMap<K, Vec<&Value>> = BTreeMap::new();
    for document in documents {
        for key in keys(document) {
            groups.entry(key).or_default().push(document);
        }
    }
    groups
}

/// Buckets of an answer by their keys as texts.
fn buckets(answer: &Value) -> BTreeMap<String, Value> {
    let all = answer["buckets"].as_array().unwrap();
    let key = |bucket: &Value| bucket["key"].as_str().map_or(bucket["key"].to_string(), str::to_owned);
    all.iter().map(|bucket| (key(bucket), bucket.clone())).collect()
}

/// Compares the numbers of one field over documents.
fn check_stats(found: &Value, documents: &[&Value], field: &str, state: &str) {
    let all: Vec<f64> = documents.iter().flat_map(|document| numbers(document, field)).collect();
    assert_eq!(found["count"], json!(all.len()), "{state}");
    if all.is_empty() {
        assert_eq!((&found["min"], &found["avg"]), (&Value::Null, &Value::Null), "{state}");
        return;
    }
    assert_eq!(found["min"], json!(all.iter().copied().fold(f64::INFINITY, f64::min)), "{state}");
    assert_eq!(found["max"], json!(all.iter().copied().fold(f64::NEG_INFINITY, f64::max)), "{state}");
    // Eighths are added without rounding.
    assert_eq!(found["sum"], json!(all.iter().sum::<f64>()), "{state}");
}

/// A query and which documents it finds.
type QueryCase = (Value, fn(&Value) -> bool);

async fn check(store: &Store, all: &Documents, rng: &mut StdRng, state: &str) {
    let queries: [QueryCase; 3] = [
        (json!({"match_all": {}}), |_| true),
        (json!({"range": {"n": {"gte": 0}}}), |d| numbers(d, "n").iter().any(|n| *n >= 0.0)),
        (json!({"term": {"tag": "a"}}), |d| texts(d, "tag").contains("a")),
    ];
    for (query, matches) in queries {
        let documents: Vec<&Value> = all.values().filter(|document| matches(document)).collect();
        let size = rng.random_range(1..8);
        let mut body = json!({"size": 0, "query": query, "aggs": {
            "tags": {"terms": {"field": "tag", "size": size, "order": [{"_count": "desc"}, {"_key": "asc"}]}, "aggs": {
                "f": {"stats": {"field": "f"}},
                "n": {"terms": {"field": "n", "size": 100}, "aggs": {"ones": {"sum": {"field": "one"}}}},
            }},
            "numbers": {"terms": {"field": "n", "size": 100, "missing": 77}},
            "flags": {"terms": {"field": "ok"}},
            "days": {"date_histogram": {"field": "at", "fixed_interval": "1d", "min_doc_count": 1}},
            "widths": {"histogram": {"field": "f", "interval": 2.5, "min_doc_count": 1}},
            "ranges": {"range": {"field": "f", "ranges": [{"to": 0}, {"from": -1, "to": 1}, {"from": 1}]}},
            "lists": {"range": {"field": "n", "ranges": [{"to": 0}, {"from": -1, "to": 1}, {"from": 1}]}},
            "single": {"range": {"field": "one", "ranges": [{"to": 40}, {"from": 20, "to": 110}, {"from": 110}]}},
            "without": {"missing": {"field": "tag"}},
            "distinct": {"cardinality": {"field": "tag"}},
            "first": {"min": {"field": "one"}},
            "count": {"value_count": {"field": "n"}},
            "filters": {"filters": {"filters": {"a": {"term": {"tag": "a"}}, "low": {"range": {"n": {"lt": 0}}}}}},
            "everything": {"global": {}, "aggs": {"f": {"stats": {"field": "f"}}}},
            "items": {"nested": {"path": "items"}, "aggs": {
                "k": {"terms": {"field": "items.k", "size": 100}, "aggs": {
                    "v": {"sum": {"field": "items.v"}},
                    "back": {"reverse_nested": {}, "aggs": {"tags": {"terms": {"field": "tag", "size": 100}}}},
                }},
                "big": {"filter": {"range": {"items.v": {"gte": 3}}}},
            }},
            "pages": {"composite": {"size": 1000, "sources": [
                {"t": {"terms": {"field": "tag", "missing_bucket": true}}}, {"n": {"terms": {"field": "n"}}},
            ]}},
            "pairs": {"multi_terms": {"terms": [{"field": "tag"}, {"field": "ok"}], "size": 1000}},
        }});
        if rng.random_bool(0.3) {
            // All matches score, if they are scored.
            body["min_score"] = json!(0.001);
        }
        let answer = store.search("random", &[], body).await.unwrap();
        assert_eq!(answer["hits"]["total"]["value"], json!(documents.len()), "{state}");
        let answer = &answer["aggregations"];

        let tags = grouped(&documents, |d| texts(d, "tag"));
        let mut expected: Vec<(&String, usize)> = tags.iter().map(|(tag, own)| (tag, own.len())).collect();
        expected.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        let total: usize = expected.iter().map(|(_, count)| count).sum();
        expected.truncate(size);
        let shown: usize = expected.iter().map(|(_, count)| count).sum();
        let found: Vec<(String, usize)> = answer["tags"]["buckets"]
            .as_array()
            .unwrap()
            .iter()
            .map(|b| (b["key"].as_str().unwrap().to_owned(), b["doc_count"].as_u64().unwrap() as usize))
            .collect();
        let expected: Vec<(String, usize)> =
            expected.into_iter().map(|(tag, count)| (tag.clone(), count)).collect();
        assert_eq!(found, expected, "{state} {query}");
        assert_eq!(answer["tags"]["sum_other_doc_count"], json!(total - shown), "{state}");
        for (tag, bucket) in buckets(&answer["tags"]) {
            check_stats(&bucket["f"], &tags[&tag], "f", state);
            let inner = grouped(&tags[&tag], |d| texts(d, "n"));
            let found = buckets(&bucket["n"]);
            assert_eq!(found.len(), inner.len(), "{state}");
            for (n, own) in inner {
                assert_eq!(found[&n]["doc_count"], json!(own.len()), "{state}");
                let ones: f64 = own.iter().flat_map(|d| numbers(d, "one")).sum();
                assert_eq!(found[&n]["ones"]["value"], json!(ones), "{state}");
            }
        }

        let or_missing = |d: &Value| {
            let own = texts(d, "n");
            if own.is_empty() { BTreeSet::from(["77".to_owned()]) } else { own }
        };
        let counts = |answer: &Value| -> BTreeMap<String, u64> {
            buckets(answer).into_iter().map(|(key, b)| (key, b["doc_count"].as_u64().unwrap())).collect()
        };
        let sizes = |groups: BTreeMap<String, Vec<&Value>>| -> BTreeMap<String, u64> {
            groups.into_iter().map(|(key, own)| (key, own.len() as u64)).collect()
        };
        assert_eq!(counts(&answer["numbers"]), sizes(grouped(&documents, or_missing)), "{state} {query}");
        let flag =
            |d: &Value| texts(d, "ok").into_iter().map(|flag| u8::from(flag == "true").to_string()).collect();
        assert_eq!(counts(&answer["flags"]), sizes(grouped(&documents, flag)), "{state}");
        let day = |d: &Value| {
            numbers(d, "at")
                .into_iter()
                .map(|at| ((at / 86_400_000.0).floor() * 86_400_000.0).to_string())
                .collect()
        };
        assert_eq!(counts(&answer["days"]), sizes(grouped(&documents, day)), "{state}");
        let width = |d: &Value| {
            numbers(d, "f").into_iter().map(|f| format!("{:?}", (f / 2.5).floor() * 2.5 + 0.0)).collect()
        };
        assert_eq!(counts(&answer["widths"]), sizes(grouped(&documents, width)), "{state}");
        let infinity = f64::INFINITY;
        for (name, field, bounds) in [
            ("ranges", "f", [0.0, -1.0, 1.0, 1.0]),
            ("lists", "n", [0.0, -1.0, 1.0, 1.0]),
            ("single", "one", [40.0, 20.0, 110.0, 110.0]),
        ] {
            let within = |from: f64, to: f64| {
                let within = |d: &&&Value| numbers(d, field).iter().any(|own| from <= *own && *own < to);
                json!(documents.iter().filter(within).count())
            };
            let ranges = answer[name]["buckets"].as_array().unwrap();
            let found: Vec<&Value> = ranges.iter().map(|bucket| &bucket["doc_count"]).collect();
            let [first, from, to, last] = bounds;
            let expected = [&within(-infinity, first), &within(from, to), &within(last, infinity)];
            assert_eq!(found, expected, "{name} {state}");
        }

        let without = documents.iter().filter(|d| texts(d, "tag").is_empty()).count();
        assert_eq!(answer["without"]["doc_count"], json!(without), "{state}");
        assert_eq!(answer["distinct"]["value"], json!(tags.len()), "{state}");
        let first = documents.iter().flat_map(|d| numbers(d, "one")).min_by(f64::total_cmp);
        assert_eq!(answer["first"]["value"], json!(first), "{state}");
        let count: usize = documents.iter().map(|d| numbers(d, "n").len()).sum();
        assert_eq!(answer["count"]["value"], json!(count), "{state}");
        let low = documents.iter().filter(|d| numbers(d, "n").iter().any(|n| *n < 0.0)).count();
        let filters = &answer["filters"]["buckets"];
        assert_eq!(filters["low"]["doc_count"], json!(low), "{state}");
        assert_eq!(filters["a"]["doc_count"], json!(tags.get("a").map_or(0, Vec::len)), "{state}");
        assert_eq!(answer["everything"]["doc_count"], json!(all.len()), "{state}");
        check_stats(&answer["everything"]["f"], &all.values().collect::<Vec<_>>(), "f", state);

        let items: Vec<(&Value, &Value)> = documents
            .iter()
            .flat_map(|d| values(d, "items").into_iter().map(move |item| (*d, item)))
            .collect();
        assert_eq!(answer["items"]["doc_count"], json!(items.len()), "{state}");
        let big = items.iter().filter(|(_, item)| item["v"].as_i64() >= Some(3)).count();
        assert_eq!(answer["items"]["big"]["doc_count"], json!(big), "{state}");
        for (key, bucket) in buckets(&answer["items"]["k"]) {
            let own: Vec<&(&Value, &Value)> =
                items.iter().filter(|(_, item)| item["k"] == json!(key)).collect();
            assert_eq!(bucket["doc_count"], json!(own.len()), "{state}");
            let sum: f64 = own.iter().filter_map(|(_, item)| item["v"].as_f64()).sum();
            assert_eq!(bucket["v"]["value"], json!(sum), "{state}");
            let parents: BTreeMap<i64, &Value> =
                own.iter().map(|(d, _)| (d["one"].as_i64().unwrap(), *d)).collect();
            assert_eq!(bucket["back"]["doc_count"], json!(parents.len()), "{state}");
            let parents: Vec<&Value> = parents.into_values().collect();
            assert_eq!(
                counts(&bucket["back"]["tags"]),
                sizes(grouped(&parents, |d| texts(d, "tag"))),
                "{state}"
            );
        }

        let combined = |first: &dyn Fn(&Value) -> BTreeSet<String>, second: &str| -> BTreeMap<String, u64> {
            let both = |d: &Value| -> BTreeSet<String> {
                let seconds = texts(d, second);
                first(d).iter().flat_map(|a| seconds.iter().map(move |b| format!("{a}|{b}"))).collect()
            };
            sizes(grouped(&documents, both))
        };
        let or_null = |d: &Value| {
            let own = texts(d, "tag");
            if own.is_empty() { BTreeSet::from(["null".to_owned()]) } else { own }
        };
        let shown = |value: &Value| value.as_str().map_or(value.to_string(), str::to_owned);
        let found: BTreeMap<String, u64> = answer["pages"]["buckets"]
            .as_array()
            .unwrap()
            .iter()
            .map(|b| {
                (
                    format!("{}|{}", shown(&b["key"]["t"]), shown(&b["key"]["n"])),
                    b["doc_count"].as_u64().unwrap(),
                )
            })
            .collect();
        assert_eq!(found, combined(&or_null, "n"), "{state}");
        let found: BTreeMap<String, u64> = answer["pairs"]["buckets"]
            .as_array()
            .unwrap()
            .iter()
            .map(|b| (b["key_as_string"].as_str().unwrap().to_owned(), b["doc_count"].as_u64().unwrap()))
            .collect();
        assert_eq!(found, combined(&|d| texts(d, "tag"), "ok"), "{state}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_states_of_a_store_aggregate_alike() {
    let mut rng = StdRng::seed_from_u64(11);
    let store = Store::open().await;
    store.create("random", &mapping()).await;
    let mut documents = Documents::new();
    let mut number = 0;
    for round in 0..3 {
        let mut writes: Vec<(String, Option<Value>)> = Vec::new();
        for _ in 0..80 {
            let id = rng.random_range(0..200).to_string();
            let document = rng.random_bool(0.85).then(|| {
                number += 1;
                document(&mut rng, number)
            });
            match &document {
                Some(document) => documents.insert(id.clone(), document.clone()),
                None => documents.remove(&id),
            };
            writes.push((id, document));
        }
        store.write("random", writes).await;
        check(&store, &documents, &mut rng, &format!("refreshed {round}")).await;
        let index = store.engine.index("random").unwrap();
        match round < 2 {
            true => store.engine.flush(&[index]).await.unwrap(),
            false => store.engine.force_merge(&[index], 1).await.unwrap(),
        };
        check(&store, &documents, &mut rng, &format!("stored {round}")).await;
    }
}

#[tokio::test]
async fn what_cannot_be_aggregated_is_refused() {
    let store = Store::open().await;
    store
        .create(
            "logs",
            &json!({"mappings": {"properties": {
                "msg": {"type": "text"}, "tag": {"type": "keyword"}, "n": {"type": "integer"}
            }}}),
        )
        .await;
    store.index("logs", &[json!({"msg": "a b", "tag": "x", "n": 0}), json!({"n": 100_000})]).await;
    let deep = (0..200).fold(
        json!({"avg": {"field": "n"}}),
        |inner, _| json!({"terms": {"field": "n"}, "aggs": {"a": inner}}),
    );
    let cases = [
        (json!({"terms": {"field": "msg"}}), "fielddata=true"),
        (json!({"avg": {"field": "tag"}}), "is not supported for aggregation [avg]"),
        (json!({"histogram": {"field": "n", "interval": -1}}), "[interval] must be >0"),
        (json!({"histogram": {"field": "n", "interval": 0.5}}), "too many buckets"),
        (
            json!({"date_histogram": {"field": "n", "fixed_interval": "-1d"}}),
            "Zero or negative time interval",
        ),
        (json!({"nothing": {}}), "nothing"),
        (deep, "levels"),
    ];
    for (aggregation, expected) in cases {
        let body = json!({"size": 0, "aggs": {"a": aggregation}});
        let error = store.search("logs", &[], body).await.unwrap_err();
        let shown = format!("{error} {:?}", error.to_body());
        assert!(shown.contains(expected), "{shown}");
    }
}

#[tokio::test]
async fn intervals_that_doubles_cannot_tell_apart_end() {
    let store = Store::open().await;
    store.create("big", &json!({"mappings": {"properties": {"n": {"type": "long"}}}})).await;
    let most = i64::MAX;
    store
        .index("big", &[json!({"n": most}), json!({"n": most - 20_000_000}), json!({"n": most - 40_000})])
        .await;
    let ask = async |histogram: Value| {
        let body = json!({"size": 0, "aggs": {"a": {"histogram": histogram}}});
        store.search("big", &[], body).await
    };
    let answer = ask(json!({"field": "n", "interval": 1_000})).await.unwrap();
    let buckets = answer["aggregations"]["a"]["buckets"].as_array().unwrap();
    let keys: Vec<f64> = buckets.iter().map(|bucket| bucket["key"].as_f64().unwrap()).collect();
    assert!(keys.is_sorted() && keys.len() < 65_536);
    assert_eq!(buckets.iter().map(|bucket| bucket["doc_count"].as_u64().unwrap()).sum::<u64>(), 3);
    for interval in [1.0, 1e-300, 1e-320] {
        if let Err(error) = ask(json!({"field": "n", "interval": interval})).await {
            let body = format!("{:?}", error.to_body());
            assert!(body.contains("too many buckets"), "{interval}: {body}");
        }
    }
}

#[tokio::test]
async fn bounds_of_histograms_are_those_of_opensearch() {
    let store = Store::open().await;
    let mapping = json!({"mappings": {"properties": {"at": {"type": "date"}, "f": {"type": "double"}}}});
    store.create("bounds", &mapping).await;
    let documents: Vec<Value> =
        (1..=9).map(|n| json!({"at": format!("2024-0{n}-10"), "f": f64::from(n) * 10.0 - 5.0})).collect();
    store.index("bounds", &documents).await;
    let ask = async |aggregation: Value| {
        store.search("bounds", &[], json!({"size": 0, "aggs": {"a": aggregation}})).await
    };
    let keys = async |aggregation: Value, key: &str| -> Vec<String> {
        let answer = ask(aggregation).await.unwrap();
        let buckets = answer["aggregations"]["a"]["buckets"].as_array().unwrap().clone();
        buckets
            .iter()
            .map(|b| b[key].as_str().map_or(b[key].to_string(), |text| text[..7].to_owned()))
            .collect()
    };
    let months = |bounds: Value, extended: Value| {
        json!({"date_histogram": {
            "field": "at", "calendar_interval": "month", "hard_bounds": bounds, "extended_bounds": extended,
        }})
    };
    let none = json!({});
    // The month of the lower bound counts, that of the upper one does not.
    let found =
        keys(months(json!({"min": "2024-02-15", "max": "2024-04-15"}), none.clone()), "key_as_string");
    assert_eq!(found.await, ["2024-02", "2024-03"]);
    let found = keys(months(json!({"max": "2024-02-01"}), none.clone()), "key_as_string");
    assert_eq!(found.await, ["2024-01"]);
    let error = ask(months(json!({"min": "2024-02-15"}), json!({"min": "2023-02-15"}))).await.unwrap_err();
    assert!(
        format!("{:?}", error.to_body()).contains("hard bounds: [2024-02-15--]"),
        "{:?}",
        error.to_body()
    );
    let error = ask(months(none, json!({"min": "2024-02-15", "max": "2024-01-15"}))).await.unwrap_err();
    assert!(format!("{:?}", error.to_body()).contains("[extended_bounds.min][1707955200000]"));
    let histogram = |min: f64, max: f64, offset: f64| json!({"histogram": {"field": "f", "interval": 10, "offset": offset, "hard_bounds": {"min": min, "max": max}}});
    assert_eq!(keys(histogram(5.0, 30.0, 0.0), "key").await, ["10.0", "20.0", "30.0"]);
    assert_eq!(keys(histogram(10.0, 25.0, 0.0), "key").await, ["10.0", "20.0"]);
}

/// Documents with a text and a number that no other has.
async fn distinct(queries: Config, count: usize) -> Store {
    let store = Store::open_with(queries).await;
    let mapping = json!({"mappings": {"properties": {"k": {"type": "keyword"}, "n": {"type": "integer"}}}});
    store.create("distinct", &mapping).await;
    // In an order in which greater keys come before lesser ones.
    let documents: Vec<Value> = (0..count)
        .map(|at| at * 7_919 % count)
        .map(|n| json!({"k": format!("key-{n:06}"), "n": n}))
        .collect();
    store.index("distinct", &documents).await;
    store
}

#[tokio::test]
async fn pages_of_many_combinations_are_complete() {
    const COUNT: usize = 40_000;
    let store = distinct(Config::default(), COUNT).await;
    let mut after = Value::Null;
    let mut seen = 0;
    loop {
        let mut composite = json!({"size": 9_000, "sources": [{"k": {"terms": {"field": "k"}}}]});
        if !after.is_null() {
            composite["after"] = after.clone();
        }
        let aggs = json!({"a": {"composite": composite, "aggs": {"n": {"sum": {"field": "n"}}}}});
        let answer = store.search("distinct", &[], json!({"size": 0, "aggs": aggs})).await.unwrap();
        let buckets = answer["aggregations"]["a"]["buckets"].as_array().unwrap();
        for bucket in buckets {
            assert_eq!(bucket["key"]["k"], json!(format!("key-{seen:06}")));
            assert_eq!((&bucket["doc_count"], &bucket["n"]["value"]), (&json!(1), &json!(seen as f64)));
            seen += 1;
        }
        match answer["aggregations"]["a"].get("after_key") {
            Some(key) => after = key.clone(),
            None => break,
        }
    }
    assert_eq!(seen, COUNT);
}

#[tokio::test]
async fn buckets_stay_within_the_memory_of_queries() {
    let store = distinct(Config { memory_bytes: 8 << 20, ..Config::default() }, 20_000).await;
    let ask = async |aggregation: Value| {
        store.search("distinct", &[], json!({"size": 0, "aggs": {"a": aggregation}})).await
    };
    let few = ask(json!({"terms": {"field": "k", "size": 10}})).await.unwrap();
    assert_eq!(few["aggregations"]["a"]["buckets"].as_array().unwrap().len(), 10);
    for aggregation in [
        json!({"terms": {"field": "k", "size": 20_000}}),
        json!({"terms": {"field": "n", "size": 20_000}, "aggs": {"s": {"stats": {"field": "n"}}}}),
        json!({"histogram": {"field": "n", "interval": 1}}),
    ] {
        let error = ask(aggregation.clone()).await.unwrap_err();
        let body = error.to_body().unwrap();
        assert_eq!((error.status(), body["status"].as_u64()), (429, Some(429)), "{aggregation}: {body}");
        assert!(body.to_string().contains("circuit_breaking_exception"), "{body}");
    }
    // The server goes on.
    assert!(ask(json!({"terms": {"field": "k", "size": 10}})).await.is_ok());
}

#[tokio::test]
async fn best_hits_within_nested_are_elements() {
    let store = Store::open().await;
    let inner = json!({"type": "nested", "properties": {"z": {"type": "integer"}}});
    let items = json!({"type": "nested", "properties": {"k": {"type": "keyword"}, "v": {"type": "integer"}, "in": inner}});
    store
        .create("shop", &json!({"mappings": {"properties": {"n": {"type": "integer"}, "items": items}}}))
        .await;
    store
        .index(
            "shop",
            &[
                json!({"n": 1, "items": [{"k": "a", "v": 3, "in": [{"z": 1}, {"z": 9}]}, {"k": "b", "v": 8}]}),
                json!({"n": 2, "items": {"k": "a", "v": 5, "in": {"z": 4}}}),
                json!({"n": 3}),
            ],
        )
        .await;
    let aggs = json!({"items": {"nested": {"path": "items"}, "aggs": {
        "k": {"terms": {"field": "items.k", "order": {"_key": "asc"}}, "aggs": {
            "best": {"top_hits": {"size": 1, "sort": [{"items.v": "desc"}], "_source": ["items.v"]}},
            "back": {"reverse_nested": {}, "aggs": {"best": {"top_hits": {"sort": [{"n": "desc"}], "_source": ["n"]}}}},
        }},
        "in": {"nested": {"path": "items.in"}, "aggs": {
            "best": {"top_hits": {"sort": [{"items.in.z": "asc"}], "docvalue_fields": ["items.in.z"]}},
        }},
    }}});
    for stored in [false, true] {
        if stored {
            let index = store.engine.index("shop").unwrap();
            store.engine.flush(&[index]).await.unwrap();
        }
        let body = json!({"size": 0, "aggs": aggs});
        let answer = store.search("shop", &[], body).await.unwrap();
        let answer = &answer["aggregations"]["items"];
        let best = &answer["k"]["buckets"][0]["best"]["hits"];
        assert_eq!(best["total"], json!({"value": 2, "relation": "eq"}));
        assert_eq!(
            best["hits"],
            json!([{
                "_index": "shop", "_type": "_doc", "_id": "2", "_nested": {"field": "items", "offset": 0},
                "_score": null, "_source": {"v": 5}, "sort": [5],
            }])
        );
        let back = answer["k"]["buckets"][0]["back"]["best"]["hits"]["hits"].as_array().unwrap();
        let sources: Vec<&Value> = back.iter().map(|hit| &hit["_source"]).collect();
        assert_eq!(sources, [&json!({"n": 2}), &json!({"n": 1})]);
        let inner = answer["in"]["best"]["hits"]["hits"].as_array().unwrap();
        let shown: Vec<(&Value, &Value, &Value)> =
            inner.iter().map(|hit| (&hit["_id"], &hit["_nested"], &hit["_source"])).collect();
        let nested = |outer: u32, inner: u32| json!({"field": "items", "offset": outer, "_nested": {"field": "in", "offset": inner}});
        assert_eq!(
            shown,
            [
                (&json!("1"), &nested(0, 0), &json!({"z": 1})),
                (&json!("2"), &nested(0, 0), &json!({"z": 4})),
                (&json!("1"), &nested(0, 1), &json!({"z": 9})),
            ]
        );
        assert_eq!(inner[0]["fields"], json!({"items.in.z": [1]}));
    }
}

/// Values that a segment holds but its index does not count in no aggregation, one a row though they be; combinations of
/// many keys and of few come from several segments.
#[tokio::test]
async fn strings_beyond_ignore_above_are_no_values() {
    let store = Store::open().await;
    let mapping = json!({"mappings": {"properties": {
        "short": {"type": "keyword", "ignore_above": 4}, "number": {"type": "long"}, "id": {"type": "keyword"},
    }}});
    store.create("s", &mapping).await;
    for part in 0..3 {
        let writes = (0..300).map(|at| {
            let short = ["one", "two", "ignored", "four"][at % 4];
            let document =
                json!({"short": short, "number": at % 3, "id": format!("document {} of {part}", at % 252)});
            (format!("{part}-{at}"), Some(document))
        });
        store.write("s", writes.collect()).await;
    }
    let body = json!({"size": 0, "aggs": {
        "count": {"value_count": {"field": "short"}},
        "absent": {"missing": {"field": "short"}},
        "terms": {"terms": {"field": "short"}},
        "few": {"multi_terms": {"terms": [{"field": "short"}, {"field": "number"}], "size": 3}},
        "many": {"multi_terms": {"terms": [{"field": "short"}, {"field": "id"}, {"field": "number"}], "size": 2}},
        "pages": {"composite": {"size": 2, "sources": [
            {"short": {"terms": {"field": "short", "order": "desc"}}}, {"number": {"terms": {"field": "number"}}},
        ]}},
    }});
    let answer = store.search("s", &[], body).await.unwrap();
    let found = &answer["aggregations"];
    assert_eq!(found["count"]["value"], 675);
    assert_eq!(found["absent"]["doc_count"], 225);
    let counts = |name: &str, key: &str| {
        let buckets = found[name]["buckets"].as_array().unwrap().iter();
        let shown = buckets.map(|bucket| format!("{} {}", bucket[key], bucket["doc_count"]));
        shown.collect::<Vec<_>>().join(", ")
    };
    assert_eq!(counts("terms", "key"), r#""four" 225, "one" 225, "two" 225"#);
    assert_eq!(counts("few", "key_as_string"), r#""four|0" 75, "four|1" 75, "four|2" 75"#);
    // The first 48 of a segment come twice.
    assert_eq!(
        counts("many", "key_as_string"),
        r#""four|document 11 of 0|2" 2, "four|document 11 of 1|2" 2"#
    );
    assert_eq!(counts("pages", "key"), r#"{"short":"two","number":0} 75, {"short":"two","number":1} 75"#);
}

#[tokio::test]
async fn empty_buckets_are_counted_as_they_are_made() {
    let store = Store::open().await;
    let hosts = (0..200).flat_map(|host| {
        [0_i64, 45 * 86_400_000].map(|at| json!({"host": format!("h{host}"), "at": 1_700_000_000_000 + at}))
    });
    let mapping = json!({"mappings": {"properties": {"host": {"type": "keyword"}, "at": {"type": "date"}}}});
    store.create("hosts", &mapping).await;
    store.index("hosts", &hosts.collect::<Vec<_>>()).await;
    let ask = async |order: Value| {
        let minutes = json!({"date_histogram": {"field": "at", "fixed_interval": "1m"}});
        let hosts = json!({"terms": {"field": "host", "size": 200, "order": order},
            "aggs": {"minutes": minutes, "last": {"max": {"field": "at"}}}});
        store.search("hosts", &[], json!({"size": 0, "aggs": {"hosts": hosts}})).await.unwrap_err()
    };
    // 200 hosts, 64,800 minutes of the first, and 535 of the second: not those of all.
    for order in [json!({"_key": "asc"}), json!({"last": "desc"})] {
        let reason = ask(order).await.to_body().unwrap()["error"]["caused_by"]["reason"].to_string();
        assert!(reason.contains("[65535] but was [65536]"), "{reason}");
    }
}
