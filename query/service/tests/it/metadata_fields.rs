//! Metadata fields in aggregations, sorts and queries, as OpenSearch 2.19.3 answered.

use serde_json::{Value, json};

use crate::fixture::{Store, ids};

async fn store() -> Store {
    let store = Store::open().await;
    let body = json!({
        "settings": {"number_of_shards": 1, "number_of_replicas": 0},
        "mappings": {"properties": {"k": {"type": "keyword"}, "q": {"type": "nested", "properties": {"a": {"type": "long"}}}}},
    });
    store.create("meta", &body).await;
    let documents =
        [json!({"k": "a", "q": [{"a": 1}, {"a": 2}]}), json!({"k": "b"}), json!({"k": "a", "q": [{"a": 3}]})];
    store.index("meta", &documents).await;
    store
}

/// Runs an aggregation over memory and over stored segments.
async fn aggregated(store: &Store, aggregation: &Value) -> Result<Value, String> {
    let body = json!({"size": 0, "aggs": {"a": aggregation}});
    let answer = store.search("meta", &[], body).await;
    answer.map(|answer| answer["aggregations"]["a"].clone()).map_err(reason)
}

/// Names type and reason of the first failed shard, else of the error.
fn reason(error: millrace_query::Error) -> String {
    let body = error.to_body().unwrap();
    let shard = &body["error"]["failed_shards"][0]["reason"];
    let reason = if shard.is_null() { &body["error"] } else { shard };
    format!("{}: {}", reason["type"].as_str().unwrap(), reason["reason"].as_str().unwrap())
}

fn keys(answer: &Value) -> Vec<Value> {
    answer["buckets"].as_array().unwrap().iter().map(|bucket| bucket["key"].clone()).collect()
}

#[tokio::test]
async fn fields_with_values_are_aggregated() {
    let store = store().await;
    for stored in [false, true] {
        if stored {
            let index = store.engine.index("meta").unwrap();
            store.engine.flush(&[index]).await.unwrap();
        }
        let of = async |aggregation: Value| aggregated(&store, &aggregation).await.unwrap();
        for (field, distinct) in [("_id", 3), ("_seq_no", 3), ("_index", 1)] {
            assert_eq!(of(json!({"value_count": {"field": field}})).await["value"], 3, "{field}");
            assert_eq!(of(json!({"cardinality": {"field": field}})).await["value"], distinct, "{field}");
            assert_eq!(of(json!({"missing": {"field": field}})).await["doc_count"], 0, "{field}");
        }
        let descending = json!({"_key": "desc"});
        let terms = of(json!({"terms": {"field": "_id", "order": descending}})).await;
        assert_eq!(keys(&terms), ["3", "2", "1"]);
        let terms = of(json!({"terms": {"field": "_seq_no", "order": descending}})).await;
        assert_eq!(keys(&terms), [2, 1, 0]);
        let terms = of(json!({"terms": {"field": "_id", "include": "[12]"}})).await;
        assert_eq!(keys(&terms), ["1", "2"]);
        let terms = of(json!({"terms": {"field": "_index", "missing": 1}})).await;
        assert_eq!(terms["buckets"], json!([{"key": "meta", "doc_count": 3}]));
        assert_eq!(of(json!({"max": {"field": "_seq_no"}})).await["value"], 2.0);
        let histogram = of(json!({"histogram": {"field": "_seq_no", "interval": 2}})).await;
        assert_eq!(keys(&histogram), [0.0, 2.0]);
        let composite = of(json!({"composite": {"sources": [{"i": {"terms": {"field": "_id"}}}]}})).await;
        assert_eq!(composite["after_key"], json!({"i": "3"}));
        let within = json!({"terms": {"field": "k"}, "aggs": {"i": {"terms": {"field": "_id"}}}});
        assert_eq!(keys(&of(within).await["buckets"][0]["i"]), ["1", "3"]);
        // Elements have the id of their document.
        let elements = json!({"nested": {"path": "q"}, "aggs": {"i": {"terms": {"field": "_id"}}}});
        let elements = of(elements).await;
        assert_eq!(
            elements["i"]["buckets"],
            json!([{"key": "1", "doc_count": 2}, {"key": "3", "doc_count": 1}])
        );
        for (field, expected) in [("_id", json!(["1"])), ("_index", json!(["meta"])), ("_seq_no", json!([0]))]
        {
            let hits = of(json!({"top_hits": {"size": 1, "sort": [{field: "asc"}, {"_id": "asc"}]}})).await;
            assert_eq!(hits["hits"]["hits"][0]["sort"][0], expected[0], "{field}");
        }
    }
}

#[tokio::test]
async fn fields_without_values_are_refused() {
    let store = store().await;
    for field in ["_version", "_source", "_routing", "_ignored", "_field_names", "_doc_count", "_nested_path"]
    {
        let expected = format!(
            "illegal_argument_exception: Fielddata is not supported on field [{field}] of type [{field}]"
        );
        for name in ["terms", "value_count", "cardinality", "max", "missing"] {
            let refused = aggregated(&store, &json!({name: {"field": field}})).await.unwrap_err();
            assert_eq!(refused, expected, "{name}");
        }
        for body in [json!({"sort": [{field: "asc"}]}), json!({"docvalue_fields": [field]})] {
            let refused = store.search("meta", &[], body).await.map_err(reason).unwrap_err();
            assert_eq!(refused, expected);
        }
        let body = json!({"collapse": {"field": field}});
        let refused = store.search("meta", &[], body).await.map_err(reason).unwrap_err();
        assert!(refused.contains(&format!("unknown type for collapse field `{field}`")), "{refused}");
    }
    for (name, field) in [("max", "_id"), ("histogram", "_index"), ("ip_range", "_seq_no"), ("range", "_id")]
    {
        let mut own = json!({"field": field, "interval": 1, "ranges": [{"to": 1}]});
        let unwanted: &[&str] = match name {
            "max" => &["interval", "ranges"],
            "histogram" => &["ranges"],
            _ => &["interval"],
        };
        unwanted.iter().for_each(|name| drop(own.as_object_mut().unwrap().remove(*name)));
        if name == "ip_range" {
            own["ranges"] = json!([{"to": "1.1.1.1"}]);
        }
        let refused = aggregated(&store, &json!({name: own})).await.unwrap_err();
        let expected = format!("Field [{field}] of type [{field}] is not supported for aggregation [{name}]");
        assert_eq!(refused, format!("illegal_argument_exception: {expected}"));
    }
}

#[tokio::test]
async fn queries_find_sequence_numbers_and_refuse_what_is_not_searched() {
    let store = store().await;
    let found = async |query: Value| {
        let answer = store.search("meta", &[], json!({"query": query, "sort": "_id"})).await;
        answer.map(|answer| ids(&answer)).map_err(reason)
    };
    assert_eq!(found(json!({"term": {"_seq_no": 1}})).await.unwrap(), ["2"]);
    assert_eq!(found(json!({"terms": {"_seq_no": [0, "2", -1]}})).await.unwrap(), ["1", "3"]);
    assert_eq!(found(json!({"term": {"_primary_term": 1}})).await.unwrap(), [""; 0]);
    for (query, expected) in [
        (json!({"term": {"_version": 1}}), "The _version field is not searchable"),
        (json!({"match": {"_source": "a"}}), "The _source field is not searchable"),
        (json!({"term": {"_doc_count": 1}}), "Field [_doc_count] of type [_doc_count] is not searchable"),
        (json!({"term": {"_seq_no": "x"}}), "For input string: \"x\""),
        (json!({"range": {"_id": {"gte": 1}}}), "Field [_id] of type [_id] does not support range queries"),
        (json!({"prefix": {"_source": "a"}}), "Can only use prefix queries on keyword and text fields"),
        (json!({"regexp": {"_version": "a"}}), "Can only use regexp queries on keyword and text fields"),
    ] {
        let refused = found(query.clone()).await.unwrap_err();
        assert!(refused.contains(expected), "{query}: {refused}");
    }
}

#[tokio::test]
async fn fields_of_unlike_types_are_counted_together() {
    let store = Store::open().await;
    for (index, kind, values) in [
        ("texts", "keyword", ["a", "b"]),
        ("numbers", "double", ["1.5", "1.25"]),
        ("places", "ip", ["::1", "::2"]),
    ] {
        store.create(index, &json!({"mappings": {"properties": {"x": {"type": kind}}}})).await;
        store.index(index, &values.map(|value| json!({"x": value}))).await;
    }
    let of = async |aggregation: Value| {
        let body = json!({"size": 0, "aggs": {"a": aggregation}});
        store
            .search("texts,numbers,places", &[], body)
            .await
            .map(|answer| answer["aggregations"]["a"].clone())
    };
    assert_eq!(of(json!({"value_count": {"field": "x"}})).await.unwrap()["value"], 6);
    assert_eq!(of(json!({"cardinality": {"field": "x"}})).await.unwrap()["value"], 6);
    assert_eq!(of(json!({"missing": {"field": "x"}})).await.unwrap()["doc_count"], 0);
    let refused = of(json!({"terms": {"field": "x"}})).await.unwrap_err();
    assert_eq!(refused.to_body().unwrap()["status"], 500);
}

#[tokio::test]
async fn a_missing_value_with_a_fraction_makes_all_values_fractions() {
    let store = Store::open().await;
    let mapping = json!({"l": {"type": "long"}, "u": {"type": "unsigned_long"}, "b": {"type": "boolean"}});
    store.create("i", &json!({"mappings": {"properties": mapping}})).await;
    store.index("i", &[json!({"l": 3, "u": 3, "b": true}), json!({})]).await;
    let of = async |aggregation: Value| {
        let answer = store.search("i", &[], json!({"size": 0, "aggs": {"a": aggregation}})).await;
        answer.map(|answer| answer["aggregations"]["a"].clone()).map_err(reason)
    };
    for field in ["l", "u"] {
        for missing in [json!(1.5), json!("1.5")] {
            let terms = of(json!({"terms": {"field": field, "missing": missing}})).await.unwrap();
            assert_eq!(keys(&terms), [1.5, 3.0], "{field}");
            let stats = of(json!({"stats": {"field": field, "missing": missing}})).await.unwrap();
            assert_eq!((&stats["min"], &stats["sum"]), (&json!(1.5), &json!(4.5)), "{field}");
        }
        let terms = of(json!({"terms": {"field": field, "missing": 2.0}})).await.unwrap();
        assert_eq!(keys(&terms), [2, 3], "{field}");
        for (missing, expected) in [("x", "For input string: \"x\""), ("", "empty String")] {
            let refused = of(json!({"terms": {"field": field, "missing": missing}})).await.unwrap_err();
            assert_eq!(refused, format!("number_format_exception: {expected}"));
        }
    }
    let refused = of(json!({"terms": {"field": "b", "missing": ""}})).await.unwrap_err();
    assert_eq!(
        refused,
        "illegal_argument_exception: Cannot parse boolean [], expected either [true] or [false]"
    );
}

#[tokio::test]
async fn strings_without_an_index_are_found_by_patterns() {
    let store = Store::open().await;
    let mapping = json!({
        "k": {"type": "keyword", "index": false, "ignore_above": 5}, "none": {"type": "keyword", "index": false, "doc_values": false},
        "t": {"type": "text", "index": false}, "b": {"type": "boolean"},
    });
    store
        .create("i", &json!({"settings": {"number_of_shards": 1}, "mappings": {"properties": mapping}}))
        .await;
    let documents =
        [json!({"k": "abc", "b": true}), json!({"k": ["x", "zbz"]}), json!({"k": "abcdefg"}), json!({})];
    store.index("i", &documents).await;
    for stored in [false, true] {
        if stored {
            let index = store.engine.index("i").unwrap();
            store.engine.flush(&[index]).await.unwrap();
        }
        let found = async |query: Value| {
            let answer = store.search("i", &[], json!({"query": query, "sort": "_id"})).await;
            answer.map(|answer| ids(&answer)).map_err(reason)
        };
        for (query, expected) in [
            (json!({"prefix": {"k": "a"}}), &["1"][..]),
            (json!({"prefix": {"k": {"value": "A", "case_insensitive": true}}}), &["1"]),
            (json!({"wildcard": {"k": "*b*"}}), &["1", "2"]),
            (json!({"wildcard": {"k": {"value": "*b*", "rewrite": "scoring_boolean"}}}), &["1", "2"]),
            (json!({"regexp": {"k": "[ax].*"}}), &["1", "2"]),
            (json!({"fuzzy": {"k": "abx"}}), &["1"]),
            (json!({"term": {"k": {"value": "ABC", "case_insensitive": true}}}), &["1"]),
            (json!({"query_string": {"query": "k:ab*"}}), &["1"]),
            (json!({"match_bool_prefix": {"k": "ab"}}), &["1"]),
            (json!({"bool": {"must_not": {"prefix": {"k": "a"}}}}), &["2", "3", "4"]),
            (json!({"term": {"b": {"value": true, "case_insensitive": true}}}), &["1"]),
        ] {
            assert_eq!(found(query.clone()).await.unwrap(), expected, "{query}");
        }
        for (field, expected) in [
            ("none", "it is both not indexed, and does not have doc_values enabled"),
            ("t", "it is not indexed"),
        ] {
            let refused = found(json!({"prefix": {field: "a"}})).await.unwrap_err();
            assert!(
                refused.contains(&format!("Cannot search on field [{field}] since {expected}.")),
                "{refused}"
            );
        }
        for query in
            [json!({"term": {"b": ""}}), json!({"terms": {"b": [""]}}), json!({"range": {"b": {"gte": ""}}})]
        {
            let refused = found(query.clone()).await.unwrap_err();
            assert!(
                refused.contains("Can't parse boolean value [], expected [true] or [false]"),
                "{query}: {refused}"
            );
        }
    }
}

#[tokio::test]
async fn elements_of_another_path_are_those_of_the_document() {
    let store = Store::open().await;
    let nested = |field: &str| json!({"type": "nested", "properties": {field: {"type": "long"}}});
    let body = json!({"settings": {"number_of_shards": 1}, "mappings": {"properties": {"p": nested("x"), "q": nested("a")}}});
    store.create("i", &body).await;
    let documents = [
        json!({"p": [{"x": 1}], "q": [{"a": 1}, {"a": 2}]}),
        json!({"p": [{"x": 2}, {"x": 3}], "q": [{"a": 3}]}),
        json!({"p": [{"x": 4}]}),
        json!({"q": [{"a": 5}]}),
    ];
    store.index("i", &documents).await;
    let sum = json!({"s": {"sum": {"field": "q.a"}}});
    let other = json!({"nested": {"path": "q"}, "aggs": sum});
    let terms = json!({"terms": {"field": "p.x"}, "aggs": {"q": other}});
    let body = json!({"size": 0, "aggs": {"p": {"nested": {"path": "p"}, "aggs": {"q": other, "t": terms}}}});
    let answer = store.search("i", &[], body).await.unwrap();
    let p = &answer["aggregations"]["p"];
    assert_eq!(p["q"], json!({"doc_count": 3, "s": {"value": 6.0}}));
    // The first element of a document has those of the other path, the next none.
    let counts = p["t"]["buckets"].as_array().unwrap().iter().map(|bucket| bucket["q"]["doc_count"].clone());
    assert_eq!(counts.collect::<Vec<_>>(), [2, 1, 0, 0]);
}
