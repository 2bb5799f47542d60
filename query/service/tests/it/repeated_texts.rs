//! Texts of a request that an answer repeats for each bucket or hit: names, keys, `meta`, tags.

use millrace_query::Config;
use serde_json::{Value, json};

use crate::fixture::Store;

/// Bytes of the text that is repeated.
const LONG: usize = 20_000;

async fn store() -> Store {
    let store = Store::open_with(Config { memory_bytes: 8 << 20, ..Config::default() }).await;
    let mappings = json!({"mappings": {"properties": {
        "k": {"type": "keyword"}, "n": {"type": "long"}, "t": {"type": "text"},
        "nest": {"type": "nested", "properties": {"a": {"type": "keyword"}, "raw": {"type": "object", "enabled": false}}},
        "other": {"type": "object", "enabled": false},
    }}});
    store.create("b", &mappings).await;
    let document = |n: usize| json!({"k": format!("k{n}"), "n": n, "t": "alpha beta", "nest": [{"a": "x"}]});
    store.index("b", &(0..1_000).map(document).collect::<Vec<_>>()).await;
    store
}

/// Bodies that have a text repeated, by what repeats it.
fn bodies(text: &str, size: usize) -> Vec<(&'static str, Value)> {
    let terms =
        |sub: Value| json!({"size": 0, "aggs": {"x": {"terms": {"field": "k", "size": size}, "aggs": sub}}});
    let hits = |members: Value| {
        let mut body = json!({"size": size, "_source": false});
        body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        body
    };
    let named = |name: &str, value: Value| json!({ name: value });
    let all = || json!({"match_all": {}});
    let nested = json!({"nested": {"path": "nest", "query": all(), "inner_hits": {"name": text, "size": 0}}});
    let marked = json!({"pre_tags": [text], "post_tags": ["z"], "fields": {"t": {}}});
    vec![
        ("name", terms(named(text, json!({"avg": {"field": "n"}})))),
        ("meta", terms(json!({"a": {"avg": {"field": "n"}, "meta": {"m": text}}}))),
        ("filters", terms(json!({"f": {"filters": {"filters": named(text, all())}}}))),
        (
            "other bucket",
            terms(json!({"f": {"filters": {"filters": {"a": all()}, "other_bucket_key": text}}})),
        ),
        ("range", terms(json!({"f": {"range": {"field": "n", "ranges": [{"key": text, "from": 0}]}}}))),
        ("adjacency", terms(json!({"f": {"adjacency_matrix": {"filters": named(text, all())}}}))),
        ("missing", terms(json!({"m": {"terms": {"field": "zz", "missing": text}}}))),
        (
            "keys of max_bucket",
            terms(json!({
                "m": {"terms": {"field": "zz", "missing": text}}, "b": {"max_bucket": {"buckets_path": "m>_count"}},
            })),
        ),
        (
            "composite",
            json!({"size": 0, "aggs": {"x": {"composite": {
                "size": size, "sources": [named(text, json!({"terms": {"field": "k"}}))],
            }}}}),
        ),
        ("tags", hits(json!({"query": {"match": {"t": "alpha"}}, "highlight": marked}))),
        ("clause", hits(json!({"query": {"match_all": {"_name": text}}}))),
        ("inner hits", hits(json!({"query": nested}))),
        ("collapse", hits(json!({"collapse": {"field": "k", "inner_hits": {"name": text, "size": 0}}}))),
    ]
}

#[tokio::test]
async fn repeated_texts_stay_within_the_memory_of_queries() {
    let store = store().await;
    let text = "x".repeat(LONG);
    for (repeats, body) in bodies(&text, 1_000) {
        let error = store.search("b", &[], body).await.unwrap_err();
        let kind = error.error_type();
        assert_eq!((error.status(), kind.as_str()), (429, "circuit_breaking_exception"), "{repeats}");
    }
    for (repeats, body) in bodies(&text, 10) {
        let answer = store.search("b", &[], body).await.unwrap();
        assert!(answer.to_string().matches(&text).count() >= 10, "{repeats}");
    }
}

#[tokio::test]
async fn formats_are_short() {
    let store = store().await;
    let format = format!("'{}'0", "x".repeat(2_000));
    let terms = json!({"size": 0, "aggs": {"x": {"terms": {"field": "n", "format": format}}}});
    let fields = json!({"docvalue_fields": [{"field": "n", "format": format}]});
    for body in [terms, fields] {
        let error = store.search("b", &[], body).await.unwrap_err();
        assert_eq!(error.status(), 400);
        assert!(error.to_body().unwrap().to_string().contains("at most [1024] are allowed"));
    }
}

#[tokio::test]
async fn hits_of_buckets_and_inner_hits_show_numbers_as_they_are_written() {
    let store = store().await;
    let numbers = r#"{"big":123456789012345678901234567890,"exact":1.10,"far":1e29}"#;
    let source = format!(r#"{{"k":"big","other":{numbers},"nest":[{{"a":"y","raw":{numbers}}}]}}"#);
    let action = millrace_engine::Action::Index(source.clone().into());
    let op = millrace_engine::WriteOp::new("b", Some("big".to_owned()), action);
    let (refresh, wait) = (millrace_engine::RefreshPolicy::Immediate, std::time::Duration::from_secs(10));
    store.session.write(vec![op], refresh, wait).await.unwrap().remove(0).unwrap();
    let top = |aggs: Value| json!({"size": 0, "query": {"term": {"k": "big"}}, "aggs": aggs});
    let nested = |inner: Value| {
        let clause = json!({"path": "nest", "query": {"term": {"nest.a": "y"}}, "inner_hits": inner});
        json!({"_source": false, "query": {"nested": clause}})
    };
    let below = json!({"n": {"nested": {"path": "nest"}, "aggs": {"t": {"top_hits": {}}}}});
    let element = format!(r#"{{"a":"y","raw":{numbers}}}"#);
    for (body, expected) in [
        (top(json!({"t": {"top_hits": {}}})), source.clone()),
        (top(json!({"t": {"top_hits": {"_source": "other"}}})), format!(r#"{{"other":{numbers}}}"#)),
        (top(below), element.clone()),
        (nested(json!({})), element),
        (nested(json!({"_source": "nest.raw"})), format!(r#"{{"raw":{numbers}}}"#)),
    ] {
        let outcome = store.service.search(&store.session, "b", Vec::new(), Some(body)).await.unwrap();
        let millrace_query::OutcomeBody::Raw(text) = outcome.body else { panic!("an answer is text") };
        let text = String::from_utf8(text.to_vec()).unwrap();
        assert!(text.contains(&format!("\"_source\":{expected}")), "{expected} in {text}");
    }
}
