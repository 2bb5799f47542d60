//! Bodies that nobody should send: every one is answered or refused as the sender's mistake.

use millrace_query::Config;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Map, Value, json};

use crate::fixture::{Store, ids};

const KEYS: &[&str] = &[
    "query",
    "bool",
    "must",
    "should",
    "must_not",
    "filter",
    "term",
    "terms",
    "match",
    "range",
    "exists",
    "ids",
    "prefix",
    "match_all",
    "match_none",
    "constant_score",
    "boost",
    "value",
    "values",
    "field",
    "minimum_should_match",
    "sort",
    "order",
    "missing",
    "mode",
    "from",
    "size",
    "_source",
    "includes",
    "excludes",
    "search_after",
    "track_total_hits",
    "slice",
    "id",
    "max",
    "gt",
    "lte",
    "gte",
    "lt",
    "format",
    "time_zone",
    "n",
    "msg",
    "ip",
    "at",
    "tag",
    "flat.a",
    "_id",
    "_index",
    "_score",
    "_doc",
    "operator",
    "case_insensitive",
    "unmapped_type",
    "numeric_type",
    "analyzer",
    "_name",
    "relation",
    "*",
    "",
];
const TEXTS: &[&str] = &[
    "",
    "a",
    "now-1d/d",
    "2024-01-01||+1M/M",
    "10.0.0.0/33",
    "::1/128",
    "-1",
    "1e400",
    "NaN",
    "true",
    "75%",
    "3<-1 5<50%",
    "-100%",
    "_first",
    "desc",
    "\u{0}",
    "é\u{301}",
    "*",
    "9999999999999999999999",
];

fn value(rng: &mut StdRng, depth: usize) -> Value {
    let pick = |rng: &mut StdRng, from: &[&str]| from[rng.random_range(0..from.len())].to_owned();
    match rng.random_range(0..if depth == 0 { 6 } else { 12 }) {
        0 => Value::Null,
        1 => json!(rng.random_bool(0.5)),
        2 => json!(rng.random_range(-2..12)),
        3 => [json!(i64::MIN), json!(u64::MAX), json!(1e308), json!(-0.5)][rng.random_range(0..4)].clone(),
        4 | 5 => json!(pick(rng, TEXTS)),
        6 | 7 => Value::Array((0..rng.random_range(0..4)).map(|_| value(rng, depth - 1)).collect()),
        _ => {
            let members = (0..rng.random_range(0..4)).map(|_| (pick(rng, KEYS), value(rng, depth - 1)));
            Value::Object(members.collect::<Map<_, _>>())
        }
    }
}

/// A query whose outline is right, so that its parts are reached.
fn query(rng: &mut StdRng, depth: usize) -> Value {
    const FIELDS: &[&str] = &[
        "n", "msg", "ip", "at", "tag", "ok", "geo", "flat.a", "flat", "_id", "none", "span", "blocks",
        "period",
    ];
    let field = FIELDS[rng.random_range(0..FIELDS.len())];
    match rng.random_range(0..11) {
        0 => json!({"term": {field: value(rng, 2)}}),
        1 => json!({"terms": {field: value(rng, 2)}}),
        2 => json!({"match": {field: value(rng, 2)}}),
        3 => {
            let relation = ["intersects", "contains", "within"][rng.random_range(0..3)];
            json!({"range": {field: {"gte": value(rng, 0), "lt": value(rng, 0), "relation": relation}}})
        }
        4 => json!({"prefix": {field: value(rng, 1)}}),
        5 => json!({"exists": {"field": value(rng, 0)}}),
        6 => json!({"ids": {"values": value(rng, 2)}}),
        7 if depth > 0 => json!({"bool": {
            "must": query(rng, depth - 1), "should": [query(rng, depth - 1), value(rng, 1)],
            "minimum_should_match": value(rng, 0)
        }}),
        8 => json!({"span_near": {
            "clauses": [{"span_term": {field: value(rng, 0)}}, {"span_multi": {"match": query(rng, 0)}}, value(rng, 2)],
            "slop": value(rng, 0)
        }}),
        9 => json!({"more_like_this": {
            "fields": [field], "like": [value(rng, 2), "a b"], "unlike": value(rng, 2), "min_doc_freq": value(rng, 0),
            "fail_on_unsupported_field": false, "min_term_freq": 0
        }}),
        _ => value(rng, 3),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_body_breaks_a_search() {
    let store = Store::open().await;
    let mapping = json!({"mappings": {"properties": {
        "n": {"type": "long"}, "msg": {"type": "text"}, "ip": {"type": "ip"}, "at": {"type": "date"},
        "tag": {"type": "keyword"}, "ok": {"type": "boolean"}, "geo": {"type": "geo_point"},
        "flat": {"type": "flat_object"},
        "span": {"type": "double_range"}, "blocks": {"type": "ip_range"}, "period": {"type": "date_range"}
    }}});
    store.create("any", &mapping).await;
    let document = json!({
        "n": 1, "msg": "a b", "ip": "::1", "at": 0, "tag": "a", "ok": true, "geo": [1, 2], "flat": {"a": "b"},
        "span": {"gte": -0.5}, "blocks": ["::/64", "10.0.0.0/8"], "period": {"gte": 0, "lt": "2024-01-01"}
    });
    store.index("any", &[document.clone(), json!({}), document]).await;
    let mut rng = StdRng::seed_from_u64(11);
    for round in 0..2_000 {
        let body = match round % 3 {
            0 => value(&mut rng, 5),
            1 => json!({"query": query(&mut rng, 2)}),
            _ => json!({
                "query": query(&mut rng, 1), "sort": value(&mut rng, 3), "size": value(&mut rng, 0),
                "search_after": value(&mut rng, 1), "_source": value(&mut rng, 2)
            }),
        };
        if let Err(error) = store.search("any", &[], body.clone()).await {
            assert!((400..500).contains(&error.status()), "{body}: {error}");
            error.to_body().unwrap();
        }
    }
}

#[tokio::test]
async fn hits_stay_within_the_memory_of_queries() {
    let store = Store::open_with(Config { memory_bytes: 4 << 20, ..Config::default() }).await;
    let text = "word ".repeat(20_000);
    let documents: Vec<_> = (0..100).map(|n| json!({"n": n, "text": text})).collect();
    store.index("large", &documents).await;
    let few = store.search("large", &[], json!({"size": 3})).await.unwrap();
    assert_eq!(few["hits"]["hits"].as_array().unwrap().len(), 3);
    let ids = store.search("large", &[], json!({"size": 100, "_source": false})).await.unwrap();
    assert_eq!(ids["hits"]["hits"].as_array().unwrap().len(), 100);
    let top = json!({"top_hits": {"size": 100}});
    for body in [json!({"size": 100}), json!({"size": 0, "aggs": {"top": top}})] {
        let error = store.search("large", &[], body.clone()).await.unwrap_err();
        let kind = error.error_type();
        assert_eq!((error.status(), kind.as_str()), (429, "circuit_breaking_exception"), "{body}");
    }
    // What was held is given back: also that of the answers that were made.
    let again = store.search("large", &[], json!({"size": 3})).await.unwrap();
    assert_eq!(again["hits"]["hits"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn a_timeout_does_not_end_a_scroll() {
    let store = Store::open().await;
    let documents: Vec<_> = (0..50).map(|n| json!({"n": n})).collect();
    store.index("numbers", &documents).await;
    let body = json!({"size": 20, "timeout": "1nanos", "sort": [{"n": "asc"}]});
    let mut page = store.search("numbers", &[("scroll", "1m")], body).await.unwrap();
    let mut found = 0;
    while !ids(&page).is_empty() {
        assert_eq!(page["timed_out"], false);
        found += ids(&page).len();
        let body = json!({"scroll_id": page["_scroll_id"], "scroll": "1m"});
        page = crate::fixture::value(
            store.service.scroll(&store.session, "", Vec::new(), Some(body)).await.unwrap(),
        );
    }
    assert_eq!(found, 50);
}

#[tokio::test]
async fn looked_up_values_stay_within_limits_and_memory() {
    let store = Store::open_with(Config { memory_bytes: 4 << 20, ..Config::default() }).await;
    let few: Vec<u32> = (0..20).collect();
    let many: Vec<u32> = (0..66_000).collect();
    store
        .index(
            "lists",
            &[json!({"n": few}), json!({"n": many}), json!({"n": few, "text": "x".repeat(1 << 20)})],
        )
        .await;
    store.index("rows", &(0..30).map(|n| json!({"n": n})).collect::<Vec<_>>()).await;
    let clause = |id: &str| json!({"terms": {"n": {"index": "lists", "id": id, "path": "n"}}});
    let found = store.search("rows", &[], json!({"query": clause("1")})).await.unwrap();
    assert_eq!(found["hits"]["total"]["value"], 20);
    let breaks = |error: millrace_query::Error| (error.status(), error.error_type());
    let breaking = (429, "circuit_breaking_exception".to_owned());
    // What is parsed counts, and so does what each clause gets of it.
    let error = store.search("rows", &[], json!({"query": clause("3")})).await.unwrap_err();
    assert_eq!(breaks(error), breaking);
    let several: Vec<_> = (0..1_000).map(|_| clause("2")).collect();
    let body = json!({"query": {"bool": {"should": several}}});
    assert_eq!(breaks(store.search("rows", &[], body).await.unwrap_err()), breaking);
    let large = Store::open().await;
    large.index("lists", &[json!({"n": many})]).await;
    let body = json!({"query": {"terms": {"n": {"index": "lists", "id": "1", "path": "n"}}}});
    let error = large.search("lists", &[], body).await.unwrap_err();
    assert!(format!("{error:?}").contains("The number of terms [65537]"), "{error:?}");
}

#[tokio::test]
async fn filtered_sources_and_fields_are_answered_off_the_threads_of_connections() {
    let store = Store::open().await;
    store.create("hidden", &json!({"mappings": {"_source": {"excludes": ["secret"]}}})).await;
    let text = "word ".repeat(10_000);
    let documents: Vec<_> = (0..20).map(|n| json!({"n": n, "text": text, "secret": 1})).collect();
    store.index("hidden", &documents).await;
    let found = store.search("hidden", &[], json!({"size": 20, "_source": ["n", "secret"]})).await.unwrap();
    let sources = found["hits"]["hits"].as_array().unwrap().iter().map(|hit| hit["_source"].clone());
    assert_eq!(sources.collect::<Vec<_>>(), (0..20).map(|n| json!({"n": n})).collect::<Vec<_>>());
    let body = json!({"size": 0, "aggs": {"top": {"top_hits": {"size": 20, "_source": "n"}}}});
    let found = store.search("hidden", &[], body).await.unwrap();
    assert_eq!(found["aggregations"]["top"]["hits"]["hits"][19]["_source"], json!({"n": 19}));
    // Fields of more indices than memory has room for.
    let narrow = Store::open_with(Config { memory_bytes: 256 << 10, ..Config::default() }).await;
    let fields: Vec<String> = (0..400).map(|n| format!("field_{n}")).collect();
    let properties: serde_json::Map<_, _> =
        fields.iter().map(|name| (name.clone(), json!({"type": "long"}))).collect();
    narrow.create("wide", &json!({"mappings": {"properties": properties}})).await;
    narrow.create("slim", &json!({"mappings": {"properties": {"a": {"type": "long"}}}})).await;
    let caps = |index: &'static str| {
        let params = crate::fixture::owned(&[("fields", "*")]);
        narrow.service.field_caps(&narrow.session, index, params, None)
    };
    assert_eq!(crate::fixture::value(caps("slim").await.unwrap())["fields"]["a"]["long"]["type"], "long");
    assert_eq!(caps("wide").await.unwrap_err().error_type(), "circuit_breaking_exception");
}
