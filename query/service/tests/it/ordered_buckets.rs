//! Aggregations below an ordered bucket aggregation have the same results as below an unordered one; impossible ones are refused.

use serde_json::{Value, json};

use crate::fixture::{Store, value};

async fn aggregated(store: &Store, aggs: Value) -> (u16, Value) {
    let body = json!({"size": 0, "aggs": aggs});
    match store.service.search(&store.session, "t", Vec::new(), Some(body)).await {
        Ok(outcome) => (200, value(outcome)["aggregations"].take()),
        Err(error) => (error.status(), json!(error.reason())),
    }
}

async fn documents() -> Store {
    let store = Store::open().await;
    let mapping = json!({"mappings": {"properties": {
        "k": {"type": "keyword"}, "o": {"type": "keyword"}, "n": {"type": "long"}, "f": {"type": "double"}, "d": {"type": "date"},
        "p": {"type": "geo_point"}, "e": {"type": "nested", "properties": {"n": {"type": "long"}}}
    }}});
    store.create("t", &mapping).await;
    let document = |n: i64| {
        let (k, o) = (["a", "b", "c"][n as usize % 3], if n % 5 < 3 { "ok" } else { "no" });
        json!({"k": k, "o": o, "n": n, "f": n as f64 / 4.0,
               "d": 1_700_000_000_000_i64 + n * 86_400_000, "p": {"lat": n, "lon": n}, "e": [{"n": n}, {"n": n + 1}]})
    };
    store.index("t", &(0..40).map(document).collect::<Vec<_>>()).await;
    store
}

/// The results of all kinds of aggregations below each bucket, under one bucket or several.
fn below() -> Value {
    let hits = json!({"top_hits": {"size": 2, "_source": ["n"], "sort": [{"d": "desc"}]}});
    json!({
        "hits": hits, "by": {"terms": {"field": "o"}, "aggs": {"hits": hits}},
        "days": {"date_histogram": {"field": "d", "fixed_interval": "10d"}, "aggs": {"hits": hits}},
        "auto": {"auto_date_histogram": {"field": "d", "buckets": 3}, "aggs": {"hits": hits, "s": {"sum": {"field": "n"}}}},
        "histogram": {"histogram": {"field": "n", "interval": 10}, "aggs": {"hits": hits}},
        "filters": {"filters": {"filters": {"ok": {"term": {"o": "ok"}}, "all": {"match_all": {}}}}, "aggs": {"hits": hits}},
        "range": {"range": {"field": "n", "ranges": [{"to": 10}, {"from": 10}]}, "aggs": {"hits": hits}},
        "rare": {"rare_terms": {"field": "n"}}, "significant": {"significant_terms": {"field": "o"}},
        "multi": {"multi_terms": {"terms": [{"field": "o"}, {"field": "n"}]}, "aggs": {"hits": hits}},
        "nested": {"nested": {"path": "e"}, "aggs": {"s": {"sum": {"field": "e.n"}}, "back": {"reverse_nested": {}, "aggs": {"hits": hits}}}},
        "sampler": {"sampler": {"shard_size": 100}, "aggs": {"s": {"sum": {"field": "n"}}}},
        "pct": {"percentiles": {"field": "f"}}, "mad": {"median_absolute_deviation": {"field": "f"}},
        "stats": {"extended_stats": {"field": "f"}}, "card": {"cardinality": {"field": "n"}}, "avg": {"avg": {"field": "n"}},
        "bounds": {"geo_bounds": {"field": "p"}}, "matrix": {"matrix_stats": {"fields": ["n", "f"]}}, "max": {"max": {"field": "n"}},
    })
}

#[tokio::test]
async fn an_order_takes_nothing_from_what_is_below_it() {
    let store = documents().await;
    let arounds = [
        json!({"filter": {"term": {"o": "ok"}}}),
        json!({"missing": {"field": "nowhere"}}),
        json!({"nested": {"path": "e"}}),
        json!({"sampler": {"shard_size": 100}}),
    ];
    for around in arounds {
        let mut aggs = below();
        let mut orders = vec![json!({"f": "desc"}), json!({"f.doc_count": "asc"})];
        if around.get("nested").is_some() {
            aggs = json!({"max": {"max": {"field": "e.n"}}, "back": {"reverse_nested": {}, "aggs": aggs}});
            orders.push(json!({"f>back": "desc"}));
            orders.push(json!({"f>back>stats.sum": "desc"}));
        } else {
            orders.extend([
                json!({"f>stats.sum": "desc"}),
                json!({"f>pct.50": "asc"}),
                json!({"f>card": "desc"}),
                json!({"f>nested": "asc"}),
            ]);
        }
        orders.push(json!([{"f>max": "desc"}, {"f": "asc"}]));
        let mut around = around.clone();
        around["aggs"] = aggs;
        for of in [
            json!({"terms": {"field": "k"}}),
            json!({"multi_terms": {"terms": [{"field": "k"}, {"field": "o"}]}}),
        ] {
            let kind = if of.get("terms").is_some() { "terms" } else { "multi_terms" };
            let by_key = |answer: &Value| {
                let mut buckets = answer["b"]["buckets"].as_array().unwrap().clone();
                buckets.sort_by_key(|bucket| bucket["key"].to_string());
                json!(buckets)
            };
            let mut outer = of.clone();
            outer["aggs"] = json!({"f": around});
            let (status, plain) = aggregated(&store, json!({"b": outer})).await;
            assert_eq!(status, 200, "{plain}");
            for order in &orders {
                outer[kind]["order"] = order.clone();
                let (status, ordered) = aggregated(&store, json!({"b": outer})).await;
                if status == 400 && ordered.to_string().contains("Invalid") {
                    continue;
                }
                assert_eq!(status, 200, "{order}: {ordered}");
                assert_eq!(by_key(&ordered), by_key(&plain), "{order} of {kind}");
            }
        }
    }
}

#[tokio::test]
async fn what_has_no_values_for_aggregations_is_refused_by_name() {
    let store = documents().await;
    for field in ["_version", "_routing", "_source", "_ignored", "_field_names"] {
        for kind in ["value_count", "cardinality", "terms", "missing"] {
            let (status, answer) = aggregated(&store, json!({"a": {kind: {"field": field}}})).await;
            assert!(status == 400, "{kind} of {field}: {status} {answer}");
        }
    }
    let (status, answer) = aggregated(&store, json!({"a": {"terms": {"field": "_index"}}})).await;
    assert_eq!((status, &answer["a"]["buckets"]), (200, &json!([{"key": "t", "doc_count": 40}])));
}

#[tokio::test]
async fn queries_that_cannot_be_answered_are_the_callers_errors() {
    let store = documents().await;
    let many: Vec<Value> =
        (0..40).map(|_| json!({"bool": {"should": vec![json!({"term": {"k": "a"}}); 40]}})).collect();
    for query in [
        json!({"exists": {"field": "_field_names"}}),
        json!({"function_score": {"random_score": {"seed": 1, "field": "p"}}}),
        json!({"bool": {"should": many}}),
    ] {
        let body = Some(json!({"query": query}));
        let error = store.service.search(&store.session, "t", Vec::new(), body).await.unwrap_err();
        assert_eq!(error.status(), 400, "{error}");
    }
}

/// Answers a statement.
async fn sql(store: &Store, body: Value) -> Value {
    value(store.service.sql(&store.session, Vec::new(), Some(body)).await)["datarows"].take()
}

#[tokio::test]
async fn the_filter_of_a_statement_takes_values_of_other_documents() {
    let store = Store::open().await;
    let mapping = json!({"mappings": {"properties": {"name": {"type": "keyword"}, "t": {"type": "text"}}}});
    for index in ["sql-a", "sql-b"] {
        store.create(index, &mapping).await;
    }
    store.index("sql-a", &[json!({"name": "x", "t": "alpha"}), json!({"name": "y", "t": "gamma"})]).await;
    store.index("sql-b", &[json!({"name": "y", "t": "gamma"})]).await;
    let found = store.service.search(&store.session, "sql-b", Vec::new(), Some(json!({}))).await.unwrap();
    let id = value(found)["hits"]["hits"][0]["_id"].take();
    for filter in [
        json!({"terms": {"name": {"index": "sql-b", "id": id, "path": "name"}}}),
        json!({"more_like_this": {"fields": ["t"], "like": [{"_index": "sql-b", "_id": id}], "min_term_freq": 1, "min_doc_freq": 1}}),
    ] {
        let rows = sql(&store, json!({"query": "SELECT name FROM sql-a", "filter": filter})).await;
        assert_eq!(rows, json!([["y"]]), "{filter}");
    }
}

#[tokio::test]
async fn sql_makes_objects_of_dotted_names() {
    let store = Store::open().await;
    store
        .index(
            "dotted",
            &[
                json!({"host.name": "web1", "http.status": 200}),
                json!({"host": {"name": "web2"}, "http": {"status": 404}}),
            ],
        )
        .await;
    let rows = sql(&store, json!({"query": "SELECT host, http FROM dotted ORDER BY host.name"})).await;
    assert_eq!(rows, json!([[{"name": "web1"}, {"status": 200}], [{"name": "web2"}, {"status": 404}]]));
    let rows = sql(&store, json!({"query": "SELECT * FROM dotted"})).await;
    assert!(!rows.to_string().contains("null"), "{rows}");
}
