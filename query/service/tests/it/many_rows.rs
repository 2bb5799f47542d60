//! More rows than a page or a window has, in several segments, some deleted: the hits by bits, pages and terms must be those of a
//! look at every document.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use crate::fixture::{Store, ids};

const WORDS: &[&str] = &["alpha", "beta", "gamma", "delta", "rare"];

#[derive(Clone, Debug)]
struct Row {
    /// Its place in the order of addresses: documents are written once and in this order.
    place: usize,
    at: i64,
    number: Option<i64>,
    /// Few numbers, of which every row has one.
    code: i64,
    key: Option<String>,
    tags: Vec<String>,
    words: Vec<&'static str>,
}

impl Row {
    fn random(place: usize, rng: &mut StdRng) -> Self {
        let words = WORDS.iter().enumerate().filter(|(at, _)| rng.random_range(0..(1 << (at + 1))) == 0);
        let words: Vec<&'static str> = words.map(|(_, word)| *word).collect();
        Self {
            place,
            at: 1_700_000_000_000 + place as i64 * 500 + rng.random_range(0..2_000),
            words,
            code: rng.random_range(-20..20) * rng.random_range(1..9),
            number: rng.random_bool(0.9).then(|| rng.random_range(0..3_000)),
            key: rng.random_bool(0.95).then(|| format!("k{:04}", rng.random_range(0..2_500))),
            tags: (0..rng.random_range(0..3)).map(|_| format!("t{}", rng.random_range(0..400))).collect(),
        }
    }

    fn document(&self) -> Value {
        let mut document =
            json!({"at": self.at, "code": self.code, "msg": self.words.join(" "), "tags": self.tags});
        if let Some(number) = self.number {
            document["number"] = json!(number);
        }
        if let Some(key) = &self.key {
            document["key"] = json!(key);
        }
        document
    }
}

type Check = Box<dyn Fn(&Row) -> bool>;

fn leaf(rng: &mut StdRng) -> (Value, Check) {
    match rng.random_range(0..7) {
        0 => {
            let word = WORDS[rng.random_range(0..WORDS.len())];
            (json!({"term": {"msg": word}}), Box::new(move |row| row.words.contains(&word)))
        }
        1 => {
            let from = rng.random_range(-10..3_000);
            let to = from + [5, 300, 5_000][rng.random_range(0..3)];
            (
                json!({"range": {"number": {"gte": from, "lt": to}}}),
                Box::new(move |row| row.number.is_some_and(|number| (from..to).contains(&number))),
            )
        }
        2 | 3 => {
            let from = 1_700_000_000_000 + rng.random_range(0..6_000_000);
            let to = from + [700, 400_000, 9_000_000][rng.random_range(0..3)];
            (
                json!({"range": {"at": {"gt": from, "lte": to}}}),
                Box::new(move |row| row.at > from && row.at <= to),
            )
        }
        4 => {
            let from = rng.random_range(-170..170);
            let to = from + [0, 9, 400][rng.random_range(0..3)];
            (
                json!({"range": {"code": {"gte": from, "lte": to}}}),
                Box::new(move |row| (from..=to).contains(&row.code)),
            )
        }
        5 => {
            let key = format!("k{:02}", rng.random_range(0..25));
            (
                json!({"prefix": {"key": key}}),
                Box::new(move |row| row.key.as_ref().is_some_and(|own| own.starts_with(&key))),
            )
        }
        _ => (json!({"exists": {"field": "tags"}}), Box::new(|row| !row.tags.is_empty())),
    }
}

fn clause(rng: &mut StdRng) -> (Value, Check) {
    let ((a, is_a), (b, is_b), (c, is_c)) = (leaf(rng), leaf(rng), leaf(rng));
    match rng.random_range(0..6) {
        0 => (json!({"match_all": {}}), Box::new(|_| true)),
        1 => (a, is_a),
        2 => (json!({"bool": {"must": [a, b]}}), Box::new(move |row| is_a(row) && is_b(row))),
        3 => (
            json!({"bool": {"filter": [a], "must_not": [b], "should": [c]}}),
            Box::new(move |row| is_a(row) && !is_b(row)),
        ),
        4 => (
            json!({"bool": {"should": [a, b, c], "minimum_should_match": 2}}),
            Box::new(move |row| u8::from(is_a(row)) + u8::from(is_b(row)) + u8::from(is_c(row)) >= 2),
        ),
        _ => (
            json!({"bool": {"should": [a, b], "filter": [c]}}),
            // Beside a filter no optional clause must match.
            Box::new(move |row| is_c(row)),
        ),
    }
}

/// Compares what a field has in two rows.
fn compared(a: &Row, b: &Row, field: &str, descending: bool, missing_first: bool) -> Ordering {
    fn compare<T: Ord>(a: Option<T>, b: Option<T>, descending: bool, missing_first: bool) -> Ordering {
        match (a, b) {
            (Some(a), Some(b)) if descending => b.cmp(&a),
            (Some(a), Some(b)) => a.cmp(&b),
            (None, None) => Ordering::Equal,
            (None, _) if missing_first => Ordering::Less,
            (None, _) => Ordering::Greater,
            (_, None) if missing_first => Ordering::Greater,
            (_, None) => Ordering::Less,
        }
    }
    let first = |row: &Row| match descending {
        true => row.tags.iter().max().cloned(),
        false => row.tags.iter().min().cloned(),
    };
    match field {
        "at" => compare(Some(a.at), Some(b.at), descending, missing_first),
        "code" => compare(Some(a.code), Some(b.code), descending, missing_first),
        "number" => compare(a.number, b.number, descending, missing_first),
        "key" => compare(a.key.as_ref(), b.key.as_ref(), descending, missing_first),
        _ => compare(first(a), first(b), descending, missing_first),
    }
}

async fn check(store: &Store, rows: &BTreeMap<usize, Row>, rng: &mut StdRng, state: &str) {
    for _ in 0..20 {
        let (query, matches) = clause(rng);
        let mut expected: Vec<&Row> = rows.values().filter(|row| matches(row)).collect();
        let count = expected.len();
        let field = ["at", "number", "code", "key", "tags"][rng.random_range(0..5)];
        let (descending, missing_first) = (rng.random_bool(0.5), rng.random_bool(0.3));
        let missing = if missing_first { "_first" } else { "_last" };
        let mut sort = vec![json!({field: {
            "order": if descending { "desc" } else { "asc" }, "missing": missing,
        }})];
        let then = ["", "", "at", "_id"][rng.random_range(0..4)];
        if !then.is_empty() {
            sort.push(json!({then: "desc"}));
        }
        expected.sort_by(|a, b| {
            let second = match then {
                "at" => b.at.cmp(&a.at),
                "_id" => b.place.to_string().cmp(&a.place.to_string()),
                _ => Ordering::Equal,
            };
            compared(a, b, field, descending, missing_first).then(second).then(a.place.cmp(&b.place))
        });
        let size = [1, 10, 60][rng.random_range(0..3)];
        let tracked = [json!(true), json!(false), json!(50)][rng.random_range(0..3)].clone();
        let body = json!({
            "query": query, "sort": sort, "size": size, "_source": false, "track_total_hits": tracked,
        });
        let answer = store.search("many", &[], body.clone()).await.unwrap_or_else(|e| panic!("{body}: {e}"));
        let wanted: Vec<String> = expected.iter().take(size).map(|row| row.place.to_string()).collect();
        assert_eq!(ids(&answer), wanted, "{state}: {body}");
        if tracked == json!(true) {
            assert_eq!(answer["hits"]["total"]["value"], count, "{state}: {body}");
        }
        // The best of each group, of many groups and of few.
        let group = ["number", "code", "key"][rng.random_range(0..3)];
        let mut groups = BTreeSet::new();
        let best = expected.iter().filter(|row| {
            groups.insert(match group {
                "number" => row.number.map(|number| number.to_string()),
                "code" => Some(row.code.to_string()),
                _ => row.key.clone(),
            })
        });
        let wanted: Vec<String> = best.take(size).map(|row| row.place.to_string()).collect();
        let mut body = body;
        body["collapse"] = json!({"field": group});
        let answer = store.search("many", &[], body.clone()).await.unwrap_or_else(|e| panic!("{body}: {e}"));
        assert_eq!(ids(&answer), wanted, "{state}: {body}");
        if tracked == json!(true) {
            assert_eq!(answer["hits"]["total"]["value"], count, "{state}: {body}");
        }
        // By score the count is the same, and the best are, whether or not all are counted.
        let by_score = |tracked: Value| json!({"query": query, "size": 5, "track_total_hits": tracked});
        let counted = store.search("many", &[], by_score(json!(true))).await.unwrap();
        assert_eq!(counted["hits"]["total"]["value"], count, "{state}: {query}");
        let uncounted = store.search("many", &[], by_score(json!(false))).await.unwrap();
        assert_eq!(ids(&counted), ids(&uncounted), "{state}: {query}");
    }
}

/// Compares aggregations, which count page by page, term by term and row by row.
async fn check_aggregations(store: &Store, rows: &BTreeMap<usize, Row>, rng: &mut StdRng, state: &str) {
    for round in 0..2 {
        let (query, matches) = match round {
            0 => (json!({"match_all": {}}), Box::new(|_: &Row| true) as Check),
            _ => clause(rng),
        };
        let found: Vec<&Row> = rows.values().filter(|row| matches(row)).collect();
        let mut keys: BTreeMap<&str, (u64, u64, i64)> = BTreeMap::new();
        let mut times: BTreeMap<i64, (u64, i64)> = BTreeMap::new();
        let mut pairs: BTreeMap<(&str, i64), u64> = BTreeMap::new();
        for row in &found {
            let time = times.entry(row.at.div_euclid(60_000) * 60_000).or_default();
            *time = (time.0 + 1, time.1 + row.number.unwrap_or(0));
            let Some(key) = &row.key else { continue };
            let own = keys.entry(key).or_default();
            let number = row.number.unwrap_or(0);
            *own = (own.0 + 1, own.1 + u64::from(row.number.is_some()), own.2 + number);
            if let Some(number) = row.number {
                *pairs.entry((key, number / 500 * 500)).or_default() += 1;
            }
        }
        let subs =
            json!({"sum": {"sum": {"field": "number"}}, "count": {"value_count": {"field": "number"}}});
        let ranges = json!([{"to": -9.5}, {"from": -9.5, "to": 40}, {"from": 0, "to": 12}, {"from": 1_000}]);
        let body = json!({"size": 0, "query": query, "aggs": {
            "keys": {"terms": {"field": "key", "size": 10_000, "order": {"_key": "asc"}}, "aggs": subs},
            "best": {"terms": {"field": "key", "size": 3, "order": {"sum": "desc"}}, "aggs": subs},
            "times": {"date_histogram": {"field": "at", "fixed_interval": "1m", "min_doc_count": 1}},
            "sums": {"date_histogram": {"field": "at", "fixed_interval": "1m", "min_doc_count": 1}, "aggs": subs},
            "odd": {"date_histogram": {"field": "at", "fixed_interval": "90s", "min_doc_count": 1}},
            "there": {"date_histogram": {
                "field": "at", "calendar_interval": "hour", "time_zone": "+05:30", "min_doc_count": 1,
                "hard_bounds": {"min": "2023-11-14T22:30:00Z", "max": "2023-11-15T01:00:00Z"},
            }},
            "some": {"filters": {"filters": [{"exists": {"field": "key"}}, {"range": {"number": {"gte": 700}}}]}},
            "codes": {"histogram": {"field": "code", "interval": 7, "offset": 2, "min_doc_count": 1}},
            "numbers": {"histogram": {"field": "number", "interval": 10, "min_doc_count": 1}},
            "ranges": {"range": {"field": "code", "ranges": ranges}},
            "more": {"range": {"field": "number", "ranges": ranges}},
            "distinct": {"cardinality": {"field": "key"}},
            "all": {"stats": {"field": "number"}},
        }});
        let answer = store.search("many", &[], body).await.unwrap();
        let aggregations = &answer["aggregations"];
        let buckets = |name: &str| aggregations[name]["buckets"].as_array().unwrap().clone();
        let shown = |bucket: &Value| {
            json!([bucket["key"], bucket["doc_count"], bucket["count"]["value"], bucket["sum"]["value"]])
        };
        let own =
            |(key, (docs, count, sum)): (&&str, &(u64, u64, i64))| json!([key, docs, count, *sum as f64]);
        let listed: Vec<Value> = keys.iter().map(own).collect();
        assert_eq!(buckets("keys").iter().map(shown).collect::<Vec<_>>(), listed, "{state}: {query}");
        let mut best: Vec<_> = keys.iter().collect();
        best.sort_by_key(|(key, (_, _, sum))| (-sum, **key));
        let best: Vec<Value> = best.into_iter().take(3).map(own).collect();
        assert_eq!(buckets("best").iter().map(shown).collect::<Vec<_>>(), best, "{state}: {query}");
        let counts: Vec<Value> = times.iter().map(|(at, (docs, _))| json!([at, docs])).collect();
        let counted = |bucket: &Value| json!([bucket["key"], bucket["doc_count"]]);
        assert_eq!(buckets("times").iter().map(counted).collect::<Vec<_>>(), counts, "{state}: {query}");
        let sums: Vec<Value> = times.iter().map(|(at, (docs, sum))| json!([at, docs, *sum as f64])).collect();
        let summed = |bucket: &Value| json!([bucket["key"], bucket["doc_count"], bucket["sum"]["value"]]);
        assert_eq!(buckets("sums").iter().map(summed).collect::<Vec<_>>(), sums, "{state}: {query}");
        // Buckets that minutes straddle, and buckets that begin between the hours, between bounds.
        let rounded = |width: i64, offset: i64, least: i64, most: i64| {
            let mut counts: BTreeMap<i64, u64> = BTreeMap::new();
            for row in &found {
                let key = (row.at + offset).div_euclid(width) * width - offset;
                if (least..=most).contains(&row.at) {
                    *counts.entry(key).or_default() += 1;
                }
            }
            counts.into_iter().map(|(at, docs)| json!([at, docs])).collect::<Vec<_>>()
        };
        let odd = rounded(90_000, 0, i64::MIN, i64::MAX);
        assert_eq!(buckets("odd").iter().map(counted).collect::<Vec<_>>(), odd, "{state}: {query}");
        let there = rounded(3_600_000, 1_800_000, 1_700_001_000_000, 1_700_008_199_999);
        assert_eq!(buckets("there").iter().map(counted).collect::<Vec<_>>(), there, "{state}: {query}");
        let having = found.iter().filter(|row| row.key.is_some()).count();
        let above = found.iter().filter(|row| row.number.is_some_and(|number| number >= 700)).count();
        assert_eq!(
            buckets("some").iter().map(|b| b["doc_count"].clone()).collect::<Vec<_>>(),
            [json!(having), json!(above)]
        );
        let stepped = |value: fn(&Row) -> Option<i64>, width: i64, offset: i64| {
            let mut counts: BTreeMap<i64, u64> = BTreeMap::new();
            for value in found.iter().filter_map(|row| value(row)) {
                *counts.entry((value - offset).div_euclid(width) * width + offset).or_default() += 1;
            }
            counts.into_iter().map(|(key, docs)| json!([key as f64, docs])).collect::<Vec<_>>()
        };
        let codes = stepped(|row| Some(row.code), 7, 2);
        assert_eq!(buckets("codes").iter().map(counted).collect::<Vec<_>>(), codes, "{state}: {query}");
        let numbers = stepped(|row| row.number, 10, 0);
        assert_eq!(buckets("numbers").iter().map(counted).collect::<Vec<_>>(), numbers, "{state}: {query}");
        for (name, value) in
            [("ranges", (|row| Some(row.code)) as fn(&Row) -> Option<i64>), ("more", |row| row.number)]
        {
            let within = |from: f64, to: f64| {
                let values = found.iter().filter_map(|row| value(row)).map(|value| value as f64);
                values.filter(|value| from <= *value && *value < to).count()
            };
            let expected =
                [within(f64::MIN, -9.5), within(-9.5, 40.0), within(0.0, 12.0), within(1_000.0, f64::MAX)];
            let docs: Vec<_> = buckets(name).iter().map(|bucket| bucket["doc_count"].clone()).collect();
            assert_eq!(docs, expected.map(Value::from), "{state}, {name}: {query}");
        }
        assert_eq!(aggregations["distinct"]["value"], keys.len(), "{state}: {query}");
        assert_eq!(
            aggregations["all"]["max"].as_f64(),
            found.iter().filter_map(|row| row.number).max().map(|n| n as f64)
        );
        check_chosen(store, rows, &query, &found, state).await;
        // Page by page, forwards or backwards.
        let order = if rng.random_bool(0.5) { "asc" } else { "desc" };
        let (mut after, mut paged) = (None, Vec::new());
        loop {
            let mut composite = json!({"size": 700, "sources": [
                {"k": {"terms": {"field": "key", "order": order}}},
                {"n": {"histogram": {"field": "number", "interval": 500}}},
            ]});
            if let Some(after) = &after {
                composite["after"] = Value::clone(after);
            }
            let body = json!({"size": 0, "query": query, "aggs": {"page": {"composite": composite}}});
            let answer = store.search("many", &[], body).await.unwrap();
            let page = &answer["aggregations"]["page"];
            let buckets = page["buckets"].as_array().unwrap();
            paged.extend(buckets.iter().map(|b| json!([b["key"]["k"], b["key"]["n"], b["doc_count"]])));
            match page.get("after_key") {
                Some(key) if !buckets.is_empty() => after = Some(key.clone()),
                _ => break,
            }
        }
        let mut expected: Vec<_> = pairs.into_iter().collect();
        if order == "desc" {
            expected.sort_by(|((a, n), _), ((b, m), _)| b.cmp(a).then(n.cmp(m)));
        }
        let expected: Vec<Value> =
            expected.into_iter().map(|((key, number), count)| json!([key, number as f64, count])).collect();
        assert_eq!(paged, expected, "{state}, {order}: {query}");
    }
}

/// Orders buckets by their counts and then by their keys.
fn chosen(counts: BTreeMap<String, u64>, descending: bool, size: usize) -> Vec<Value> {
    let mut buckets: Vec<(String, u64)> = counts.into_iter().collect();
    buckets.sort_by(|(a, some), (b, others)| {
        let counts = if descending { others.cmp(some) } else { some.cmp(others) };
        counts.then_with(|| a.cmp(b))
    });
    buckets.truncate(size);
    buckets.into_iter().map(|(key, count)| json!([key, count])).collect()
}

/// Compares aggregations of which some buckets are chosen, many of them with the same count.
async fn check_chosen(
    store: &Store,
    rows: &BTreeMap<usize, Row>,
    query: &Value,
    found: &[&Row],
    state: &str,
) {
    let mut keys: BTreeMap<String, u64> = BTreeMap::new();
    let mut filled: BTreeMap<String, u64> = BTreeMap::new();
    let mut tags: BTreeMap<String, u64> = BTreeMap::new();
    let mut pairs: BTreeMap<String, u64> = BTreeMap::new();
    for row in found {
        let own: BTreeSet<&String> = row.tags.iter().collect();
        own.iter().for_each(|tag| *tags.entry((*tag).clone()).or_default() += 1);
        *filled.entry(row.key.clone().unwrap_or_else(|| "k1000".to_owned())).or_default() += 1;
        let Some(key) = &row.key else { continue };
        *keys.entry(key.clone()).or_default() += 1;
        own.iter().for_each(|tag| *pairs.entry(format!("{key}|{tag}")).or_default() += 1);
    }
    let mut every = keys.clone();
    for key in rows.values().filter_map(|row| row.key.clone()) {
        every.entry(key).or_default();
    }
    let mut some = keys.clone();
    some.retain(|key, _| key.starts_with("k1") && !key.starts_with("k10"));
    let body = json!({"size": 0, "query": query, "aggs": {
        "most": {"terms": {"field": "key", "size": 7}},
        "least": {"terms": {"field": "tags", "size": 9, "order": {"_count": "asc"}}},
        "every": {"terms": {"field": "key", "min_doc_count": 0, "size": 20, "order": {"_count": "asc"}}},
        "frequent": {"terms": {"field": "key", "min_doc_count": 6, "size": 5_000}},
        "some": {"terms": {"field": "key", "include": "k1.*", "exclude": "k10.*", "size": 12}},
        "filled": {"terms": {"field": "key", "missing": "k1000", "size": 6}},
        "pairs": {"multi_terms": {"terms": [{"field": "key"}, {"field": "tags"}], "size": 15}},
        "tags": {"cardinality": {"field": "tags"}},
    }});
    let answer = store.search("many", &[], body).await.unwrap();
    let aggregations = &answer["aggregations"];
    let shown = |name: &str| -> Vec<Value> {
        let buckets = aggregations[name]["buckets"].as_array().unwrap().iter();
        buckets
            .map(|bucket| match &bucket["key_as_string"] {
                Value::Null => json!([bucket["key"], bucket["doc_count"]]),
                text => json!([text, bucket["doc_count"]]),
            })
            .collect()
    };
    assert_eq!(aggregations["tags"]["value"], tags.len(), "{state}: {query}");
    let total: u64 = keys.values().sum();
    let frequent = keys.iter().filter(|(_, count)| **count >= 6);
    let frequent = frequent.map(|(key, count)| (key.clone(), *count)).collect();
    let most = chosen(keys, true, 7);
    let told: u64 = most.iter().filter_map(|bucket| bucket[1].as_u64()).sum();
    assert_eq!(aggregations["most"]["sum_other_doc_count"], total - told, "{state}: {query}");
    for (name, expected) in [
        ("most", most),
        ("least", chosen(tags, false, 9)),
        ("every", chosen(every, false, 20)),
        ("frequent", chosen(frequent, true, 5_000)),
        ("some", chosen(some, true, 12)),
        ("filled", chosen(filled, true, 6)),
        ("pairs", chosen(pairs, true, 15)),
    ] {
        assert_eq!(shown(name), expected, "{state}, {name}: {query}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_rows_are_found_as_one_by_one() {
    let mut rng = StdRng::seed_from_u64(11);
    let store = Store::open().await;
    let mapping = json!({
        "settings": {"number_of_shards": 1},
        "mappings": {"properties": {
            "msg": {"type": "text"},
            "at": {"type": "date"},
            "number": {"type": "integer"},
            "key": {"type": "keyword"},
            "tags": {"type": "keyword"},
        }},
    });
    store.create("many", &mapping).await;
    let mut rows: BTreeMap<usize, Row> = BTreeMap::new();
    for (batch, size) in [9_500, 700, 2_500].into_iter().enumerate() {
        let first = rows.keys().next_back().map_or(0, |last| last + 1).max(batch * 10_000);
        for chunk in (first..first + size).collect::<Vec<_>>().chunks(2_000) {
            let made: Vec<Row> = chunk.iter().map(|place| Row::random(*place, &mut rng)).collect();
            let writes = made.iter().map(|row| (row.place.to_string(), Some(row.document())));
            store.write_unseen("many", writes.collect()).await;
            rows.extend(made.into_iter().map(|row| (row.place, row)));
        }
        store.engine.refresh(&[store.engine.index("many").unwrap()]).await.unwrap();
        check_aggregations(&store, &rows, &mut rng, &format!("none deleted {batch}")).await;
        let gone: Vec<usize> = rows.keys().copied().filter(|_| rng.random_bool(0.03)).collect();
        store.write("many", gone.iter().map(|place| (place.to_string(), None)).collect()).await;
        gone.iter().for_each(|place| drop(rows.remove(place)));
        check(&store, &rows, &mut rng, &format!("refreshed {batch}")).await;
        check_aggregations(&store, &rows, &mut rng, &format!("refreshed {batch}")).await;
        let index = store.engine.index("many").unwrap();
        store.engine.flush(&[index]).await.unwrap();
        check(&store, &rows, &mut rng, &format!("flushed {batch}")).await;
        check_aggregations(&store, &rows, &mut rng, &format!("flushed {batch}")).await;
    }
    let index = store.engine.index("many").unwrap();
    store.engine.force_merge(&[index], 1).await.unwrap();
    check(&store, &rows, &mut rng, "merged").await;
    check_aggregations(&store, &rows, &mut rng, "merged").await;
}
