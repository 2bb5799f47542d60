//! Random documents, written, replaced, deleted, refreshed, flushed and merged, against an evaluation
//! of every clause over plain JSON.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use crate::fixture::{Store, ids, owned, value};

type Documents = BTreeMap<String, Value>;
type Check = Box<dyn Fn(&str, &Value) -> bool>;

const WORDS: &[&str] = &["disk", "full", "node", "ok", "error", "joined"];
const TAGS: &[&str] = &["a", "b", "abc", "B", "too-long-for-it"];
const ADDRESSES: &[&str] = &["10.0.0.1", "10.0.0.7", "10.1.2.3", "192.168.0.1", "::1", "2001:db8::5"];

fn mapping() -> Value {
    json!({
        "settings": {"number_of_shards": 3},
        "mappings": {"properties": {
            "msg": {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 12}}},
            "tag": {"type": "keyword", "ignore_above": 5},
            "low": {"type": "integer"},
            "big": {"type": "long"},
            "f": {"type": "double"},
            "sf": {"type": "scaled_float", "scaling_factor": 100},
            "ul": {"type": "unsigned_long"},
            "at": {"type": "date"},
            "ns": {"type": "date_nanos"},
            "ip": {"type": "ip"},
            "ok": {"type": "boolean"},
            "geo": {"type": "geo_point"},
            "flat": {"type": "flat_object"}
        }}
    })
}

fn pick<'a>(rng: &mut StdRng, from: &[&'a str]) -> &'a str {
    from[rng.random_range(0..from.len())]
}

fn instant(rng: &mut StdRng) -> i64 {
    1_700_000_000_000 + rng.random_range(0..10) * 86_400_000 + rng.random_range(0..3) * 1_000
}

/// A value of a field, or several, or none.
fn some(rng: &mut StdRng, mut one: impl FnMut(&mut StdRng) -> Value) -> Option<Value> {
    match rng.random_range(0..10) {
        0 | 1 => None,
        2 => Some(json!([one(rng), one(rng)])),
        3 => Some(json!([])),
        _ => Some(one(rng)),
    }
}

fn document(rng: &mut StdRng, unique: i64) -> Value {
    let mut fields = serde_json::Map::new();
    fields.insert("unique".into(), json!(unique));
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            fields.insert(name.to_owned(), value);
        }
    };
    put(
        "msg",
        some(rng, |rng| {
            let words: Vec<&str> = (0..rng.random_range(1..4)).map(|_| pick(rng, WORDS)).collect();
            json!(words.join(" "))
        }),
    );
    put("tag", some(rng, |rng| json!(pick(rng, TAGS))));
    put("low", some(rng, |rng| json!(rng.random_range(-3..4))));
    put("big", some(rng, |rng| json!(rng.random_range(-1_000_000_000_000_i64..1_000_000_000_000))));
    put("f", some(rng, |rng| json!(f64::from(rng.random_range(-40..40)) / 8.0)));
    put("sf", some(rng, |rng| json!(f64::from(rng.random_range(0..1_000)) / 100.0)));
    put("ul", some(rng, |rng| json!(u64::MAX - rng.random_range(0..5))));
    put("at", some(rng, |rng| json!(instant(rng))));
    put("ns", some(rng, |rng| json!(instant(rng))));
    put("ip", some(rng, |rng| json!(pick(rng, ADDRESSES))));
    put("ok", some(rng, |rng| json!(rng.random_bool(0.5))));
    put("geo", rng.random_bool(0.5).then(|| json!({"lat": 1.5, "lon": 2.5})));
    put("flat", rng.random_bool(0.5).then(|| json!({"a": {"b": pick(rng, TAGS)}, "c": pick(rng, WORDS)})));
    Value::Object(fields)
}

/// The values of a field, arrays flattened.
fn values<'a>(document: &'a Value, field: &str) -> Vec<&'a Value> {
    let mut found = vec![document];
    for part in field.split('.') {
        found = found.into_iter().filter_map(|value| value.get(part)).collect();
    }
    found
        .into_iter()
        .flat_map(|value| value.as_array().map_or(vec![value], |list| list.iter().collect()))
        .collect()
}

fn strings(document: &Value, field: &str, limit: usize) -> Vec<String> {
    let all = values(document, field).into_iter().filter_map(Value::as_str);
    all.filter(|text| text.len() <= limit).map(str::to_owned).collect()
}

fn numbers(document: &Value, field: &str) -> Vec<f64> {
    values(document, field).into_iter().filter_map(Value::as_f64).collect()
}

fn integers(document: &Value, field: &str) -> Vec<i128> {
    let all = values(document, field).into_iter();
    all.filter_map(|v| v.as_i64().map(i128::from).or(v.as_u64().map(i128::from))).collect()
}

fn words(document: &Value) -> Vec<String> {
    strings(document, "msg", usize::MAX)
        .iter()
        .flat_map(|t| t.split(' ').map(str::to_owned).collect::<Vec<_>>())
        .collect()
}

fn bits(text: &str) -> u128 {
    match text.parse().unwrap() {
        std::net::IpAddr::V4(v4) => v4.to_ipv6_mapped().into(),
        std::net::IpAddr::V6(v6) => v6.into(),
    }
}

/// One random clause and what it means.
fn leaf(rng: &mut StdRng) -> (Value, Check) {
    match rng.random_range(0..26) {
        0 => (json!({"match_all": {}}), Box::new(|_, _| true)),
        1 => {
            let (a, b) = (pick(rng, WORDS), pick(rng, WORDS));
            (
                json!({"match": {"msg": format!("{a} {b}")}}),
                Box::new(move |_, d| words(d).iter().any(|w| w == a || w == b)),
            )
        }
        2 => {
            let (a, b) = (pick(rng, WORDS), pick(rng, WORDS));
            (
                json!({"match": {"msg": {"query": format!("{a} {b}"), "operator": "and"}}}),
                Box::new(move |_, d| words(d).iter().any(|w| w == a) && words(d).iter().any(|w| w == b)),
            )
        }
        3 => {
            let word = pick(rng, WORDS);
            (json!({"term": {"msg": word}}), Box::new(move |_, d| words(d).iter().any(|w| w == word)))
        }
        4 => {
            let text = format!("{} {}", pick(rng, WORDS), pick(rng, WORDS));
            (
                json!({"term": {"msg.keyword": text}}),
                Box::new(move |_, d| strings(d, "msg", 12).contains(&text)),
            )
        }
        5 => {
            let tag = pick(rng, TAGS);
            (
                json!({"term": {"tag": tag}}),
                Box::new(move |_, d| strings(d, "tag", 5).iter().any(|t| t == tag)),
            )
        }
        6 => {
            let (a, b) = (pick(rng, TAGS), pick(rng, TAGS));
            (
                json!({"terms": {"tag": [a, b, "zz"]}}),
                Box::new(move |_, d| strings(d, "tag", 5).iter().any(|t| t == a || t == b)),
            )
        }
        7 => (
            json!({"prefix": {"tag": "a"}}),
            Box::new(|_, d| strings(d, "tag", 5).iter().any(|t| t.starts_with('a'))),
        ),
        8 => (
            json!({"range": {"tag": {"gt": "a", "lte": "b"}}}),
            Box::new(|_, d| strings(d, "tag", 5).iter().any(|t| t.as_str() > "a" && t.as_str() <= "b")),
        ),
        9 => {
            let n = rng.random_range(-4..5);
            (json!({"term": {"low": n}}), Box::new(move |_, d| integers(d, "low").contains(&n.into())))
        }
        10 => {
            let (from, to) = (rng.random_range(-4..2), rng.random_range(-1..5));
            (
                json!({"range": {"low": {"gte": from, "lt": to}}}),
                Box::new(move |_, d| integers(d, "low").iter().any(|n| (from.into()..to.into()).contains(n))),
            )
        }
        11 => {
            let from = rng.random_range(-1_000_000_000_000_i64..1_000_000_000_000);
            (
                json!({"range": {"big": {"gt": from}}}),
                Box::new(move |_, d| integers(d, "big").iter().any(|n| *n > from.into())),
            )
        }
        12 => {
            let n = f64::from(rng.random_range(-40..40)) / 8.0;
            (
                json!({"terms": {"f": [n, n + 1.0]}}),
                Box::new(move |_, d| numbers(d, "f").iter().any(|f| *f == n || *f == n + 1.0)),
            )
        }
        13 => {
            let n = f64::from(rng.random_range(0..1_000)) / 100.0;
            (
                json!({"range": {"sf": {"lte": n}}}),
                Box::new(move |_, d| numbers(d, "sf").iter().any(|f| *f <= n + 1e-9)),
            )
        }
        14 => {
            let n = u64::MAX - rng.random_range(0..6);
            (json!({"term": {"ul": n}}), Box::new(move |_, d| integers(d, "ul").contains(&n.into())))
        }
        15 => {
            let n = u64::MAX - rng.random_range(0..6);
            (
                json!({"range": {"ul": {"gte": n}}}),
                Box::new(move |_, d| integers(d, "ul").iter().any(|u| *u >= n.into())),
            )
        }
        16 => {
            let (field, n) = (pick(rng, &["at", "ns"]), instant(rng));
            (
                json!({"range": {field: {"gt": n, "format": "epoch_millis"}}}),
                Box::new(move |_, d| integers(d, field).iter().any(|t| *t > n.into())),
            )
        }
        17 => {
            // Day 3 from 22:13:20 until the end of that day, by rounded math.
            let from = 1_700_000_000_000_i128 + 3 * 86_400_000;
            let end = (from / 86_400_000 + 1) * 86_400_000;
            let field = pick(rng, &["at", "ns"]);
            (
                json!({"range": {field: {"gte": "2023-11-17T22:13:20Z", "lte": "2023-11-17||/d"}}}),
                Box::new(move |_, d| integers(d, field).iter().any(|t| *t >= from && *t < end)),
            )
        }
        18 => {
            let address = pick(rng, ADDRESSES);
            (
                json!({"term": {"ip": address}}),
                Box::new(move |_, d| strings(d, "ip", 99).iter().any(|ip| bits(ip) == bits(address))),
            )
        }
        19 => (
            json!({"term": {"ip": "10.0.0.0/16"}}),
            Box::new(|_, d| strings(d, "ip", 99).iter().any(|ip| ip.starts_with("10.0."))),
        ),
        20 => {
            let flag = rng.random_bool(0.5);
            (json!({"term": {"ok": flag}}), Box::new(move |_, d| values(d, "ok").contains(&&json!(flag))))
        }
        21 => {
            let field = pick(
                rng,
                &["msg", "low", "big", "f", "sf", "ul", "at", "ns", "ip", "ok", "geo", "flat", "none"],
            );
            (json!({"exists": {"field": field}}), Box::new(move |_, d| !values(d, field).is_empty()))
        }
        22 => {
            let tag = pick(rng, TAGS);
            (
                json!({"term": {"flat.a.b": tag}}),
                Box::new(move |_, d| strings(d, "flat.a.b", 99).iter().any(|t| t == tag)),
            )
        }
        23 => {
            let (a, b, slop) = (pick(rng, WORDS), pick(rng, WORDS), rng.random_range(0..3));
            let terms = [json!({"span_term": {"msg": a}}), json!({"span_term": {"msg": b}})];
            let near = move |text: &String| {
                let words: Vec<&str> = text.split(' ').collect();
                (0..words.len())
                    .filter(|at| words[*at] == a)
                    .any(|at| words[at + 1..].iter().take(slop + 1).any(|word| *word == b))
            };
            (
                json!({"span_near": {"clauses": terms, "slop": slop}}),
                Box::new(move |_, d| strings(d, "msg", usize::MAX).iter().any(near)),
            )
        }
        24 => {
            let (a, b) = (pick(rng, WORDS), pick(rng, WORDS));
            (
                json!({"more_like_this": {
                    "like": format!("{a} {b}"), "fields": ["msg"], "min_term_freq": 1, "min_doc_freq": 1,
                    "minimum_should_match": 1
                }}),
                Box::new(move |_, d| words(d).iter().any(|w| w == a || w == b)),
            )
        }
        _ => {
            let id = rng.random_range(0..200).to_string();
            (json!({"ids": {"values": [id]}}), Box::new(move |own, _| own == id))
        }
    }
}

fn clause(rng: &mut StdRng, depth: usize) -> (Value, Check) {
    if depth == 0 || rng.random_bool(0.4) {
        return leaf(rng);
    }
    let (must, is_must) = clause(rng, depth - 1);
    let (should_a, is_a) = clause(rng, depth - 1);
    let (should_b, is_b) = clause(rng, depth - 1);
    let (not, is_not) = clause(rng, depth - 1);
    match rng.random_range(0..4) {
        0 => (
            json!({"bool": {"must": must, "filter": [should_a]}}),
            Box::new(move |id, d| is_must(id, d) && is_a(id, d)),
        ),
        1 => (
            json!({"bool": {"should": [should_a, should_b], "must_not": not}}),
            Box::new(move |id, d| (is_a(id, d) || is_b(id, d)) && !is_not(id, d)),
        ),
        2 => (
            json!({"bool": {"must": must, "should": [should_a], "must_not": [not]}}),
            Box::new(move |id, d| is_must(id, d) && !is_not(id, d)),
        ),
        _ => (
            json!({"bool": {"should": [must, should_a, should_b], "minimum_should_match": 2}}),
            Box::new(move |id, d| {
                u8::from(is_must(id, d)) + u8::from(is_a(id, d)) + u8::from(is_b(id, d)) >= 2
            }),
        ),
    }
}

async fn check(store: &Store, documents: &Documents, rng: &mut StdRng, state: &str) {
    // One state for what is compared: a compaction in between would change statistics and the order of equal scores.
    let life = owned(&[("keep_alive", "10m")]);
    let opened = store.service.open_point_in_time(&store.session, "random", life, None).await.unwrap();
    let pit = json!({"id": value(opened)["pit_id"]});
    for _ in 0..15 {
        let (query, matches) = clause(rng, 2);
        let expected: Vec<&String> =
            documents.iter().filter(|(id, d)| matches(id, d)).map(|(id, _)| id).collect();
        let body = json!({"pit": pit, "query": query, "size": 1_000, "_source": false});
        let by_score = store.search("", &[], body).await.unwrap_or_else(|e| panic!("{query}: {e}"));
        let mut found = ids(&by_score);
        found.sort();
        assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{state}: {query}");
        let scores: Vec<f64> = by_score["hits"]["hits"]
            .as_array()
            .unwrap()
            .iter()
            .map(|h| h["_score"].as_f64().unwrap())
            .collect();
        assert!(scores.is_sorted_by(|a, b| a >= b), "{state}: {query}");

        // The first few are the same whether all are asked for or not, and the count is exact.
        let few = json!({"pit": pit, "query": query, "size": 3, "_source": false, "track_total_hits": true});
        let few = store.search("", &[], few).await.unwrap();
        assert_eq!(
            few["hits"]["total"],
            json!({"value": expected.len(), "relation": "eq"}),
            "{state}: {query}"
        );
        let all_ids = ids(&by_score);
        assert_eq!(ids(&few), all_ids[..all_ids.len().min(3)], "{state}: {query}");
        sorted(store, documents, &query, &matches, rng, state).await;
    }
}

/// The value that a document is ordered by, in units that compare.
fn key(document: &Value, field: &str, descending: bool, missing_first: bool) -> f64 {
    let all: Vec<f64> = match field {
        "ok" => values(document, field).iter().map(|v| f64::from(u8::from(**v == json!(true)))).collect(),
        _ => numbers(document, field),
    };
    let best = match descending {
        true => all.into_iter().max_by(f64::total_cmp),
        false => all.into_iter().min_by(f64::total_cmp),
    };
    best.unwrap_or(if descending == missing_first { f64::INFINITY } else { f64::NEG_INFINITY })
}

async fn sorted(
    store: &Store,
    documents: &Documents,
    query: &Value,
    matches: &Check,
    rng: &mut StdRng,
    state: &str,
) {
    let field = pick(rng, &["low", "big", "f", "sf", "at", "ns", "ok"]);
    let (descending, missing_first) = (rng.random_bool(0.5), rng.random_bool(0.3));
    let order = if descending { "desc" } else { "asc" };
    let missing = if missing_first { "_first" } else { "_last" };
    let mut expected: Vec<(f64, i64, &String)> = documents
        .iter()
        .filter(|(id, d)| matches(id, d))
        .map(|(id, d)| {
            let own = key(d, field, descending, missing_first);
            (if descending { -own } else { own }, d["unique"].as_i64().unwrap(), id)
        })
        .collect();
    expected.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let expected: Vec<&String> = expected.into_iter().map(|(_, _, id)| id).collect();
    let sort = json!([{field: {"order": order, "missing": missing}}, {"unique": "asc"}]);
    let size = rng.random_range(1..40);
    let mut found: Vec<String> = Vec::new();
    let mut after: Option<Value> = None;
    loop {
        let mut body = json!({"query": query, "sort": sort, "size": size, "_source": false});
        if let Some(after) = &after {
            body["search_after"] = after.clone();
        }
        let page = store.search("random", &[], body).await.unwrap();
        assert_eq!(page["hits"]["total"]["value"], expected.len(), "{state}: {query} {sort}");
        let hits = page["hits"]["hits"].as_array().unwrap();
        found.extend(ids(&page));
        match hits.last() {
            Some(last) if hits.len() == size => after = Some(last["sort"].clone()),
            _ => break,
        }
        // Pages of a scroll and of `search_after` go the same way; a few of them will do.
        if found.len() > 60 {
            break;
        }
    }
    let expected = &expected[..expected.len().min(found.len().max(1))];
    assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{state}: {query} {sort} by {size}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_states_of_a_store_answer_alike() {
    let mut rng = StdRng::seed_from_u64(7);
    let store = Store::open().await;
    store.create("random", &mapping()).await;
    let mut documents = Documents::new();
    let mut unique = 0;
    for round in 0..4 {
        let mut writes: Vec<(String, Option<Value>)> = Vec::new();
        for _ in 0..80 {
            let id = rng.random_range(0..200).to_string();
            let document = rng.random_bool(0.8).then(|| {
                unique += 1;
                document(&mut rng, unique)
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
        if round < 3 {
            store.engine.flush(&[index]).await.unwrap();
            check(&store, &documents, &mut rng, &format!("flushed {round}")).await;
        } else {
            store.engine.force_merge(&[index], 1).await.unwrap();
            check(&store, &documents, &mut rng, "merged").await;
        }
    }
}
