//! Fields that hold ranges: hits and errors as OpenSearch 2.19 answers them (`tests/cases/ranges.json`), what requests show of
//! their values, and what they do not serve.

use std::sync::Arc;

use millrace_mapping::fields::FieldRules;
use serde_json::{Value, json};

use crate::fixture::{Store, ids, restricted_session, value};
use crate::{ppl, sql};

async fn store(file: &Value) -> Store {
    let store = Store::open().await;
    store.create("ranges", &json!({"mappings": {"properties": file["mapping"]}})).await;
    store.index("ranges", file["documents"].as_array().unwrap()).await;
    store
}

fn cases() -> Value {
    serde_json::from_str(include_str!("../cases/ranges.json")).unwrap()
}

/// Returns hits with their scores, or what is wrong with a search.
fn outcome(answer: Result<Value, millrace_query::Error>) -> Value {
    match answer {
        Ok(answer) => {
            let hits = answer["hits"]["hits"].as_array().unwrap();
            json!({"hits": hits.iter().map(|hit| json!([hit["_id"], hit["_score"]])).collect::<Vec<_>>()})
        }
        Err(error) => {
            let body = error.to_body().map(|body| body["error"].clone()).unwrap_or_default();
            let cause = &body["root_cause"][0];
            json!({"error": [error.status(), body["type"], cause["type"], cause["reason"]]})
        }
    }
}

async fn check(store: &Store, cases: &[Value], state: &str) {
    let mut failures = Vec::new();
    for case in cases {
        let found = outcome(store.search("ranges", &[], json!({"query": case["query"]})).await);
        let mut expected = case.clone();
        expected.as_object_mut().unwrap().remove("query");
        if found != expected {
            failures.push(format!("{}\n    found {found}\n    expected {expected}", case["query"]));
        }
    }
    assert!(failures.is_empty(), "{state}, {}:\n{}", failures.len(), failures.join("\n"));
}

#[tokio::test]
async fn relations_hold_for_each_range_by_itself() {
    let file = cases();
    let store = store(&file).await;
    let queries = file["cases"].as_array().unwrap();
    let index = store.engine.index("ranges").unwrap();
    check(&store, queries, "refreshed").await;
    store.engine.flush(&[Arc::clone(&index)]).await.unwrap();
    check(&store, queries, "flushed").await;
    // The documents once more, in a second segment that is merged with the first.
    store.index("ranges", file["documents"].as_array().unwrap()).await;
    store.engine.flush(&[Arc::clone(&index)]).await.unwrap();
    store.engine.force_merge(&[index], 1).await.unwrap();
    check(&store, queries, "merged").await;
}

#[tokio::test]
async fn values_are_shown_as_the_mapping_reads_them() {
    let store = store(&cases()).await;
    let fields = json!(["i", "ip", "d", "f", "x", "l", "k.r"]);
    let answer = store.search("ranges", &[], json!({"fields": fields, "sort": ["_doc"]})).await.unwrap();
    let shown: Vec<&Value> =
        answer["hits"]["hits"].as_array().unwrap().iter().map(|hit| &hit["fields"]).collect();
    assert_eq!(
        *shown[0],
        json!({
            "i": [{"gte": 1, "lte": 5}], "l": [{"gte": 5}],
            "ip": ["10.0.0.0/24"], "k.r": ["10.0.0.0/24"],
            "d": [{"gte": "2020-01-01 00:00:00", "lte": "2020-01-31 00:00:00"}],
            "f": [{"gte": 1.5, "lt": 2.5}], "x": [{"gt": 1.5, "lte": 2.5}]
        })
    );
    assert_eq!(shown[1]["ip"], json!(["10.0.0.0/30", "192.168.0.0/16"]));
    assert_eq!(shown[1]["i"], json!([{"gte": 1, "lte": 2}, {"gte": 8, "lte": 9}]));
    assert_eq!(shown[5]["i"][2], json!({"gte": 5, "lte": 6}), "strings become numbers");
    assert_eq!(
        shown[5]["d"][0],
        json!({"gte": "2020-01-01 00:00:00", "lt": "2020-02-01 00:00:00"}),
        "date math is evaluated"
    );
    let formatted = json!({"fields": [{"field": "d", "format": "yyyy/MM"}], "sort": ["_doc"]});
    let answer = store.search("ranges", &[], formatted).await.unwrap();
    assert_eq!(answer["hits"]["hits"][0]["fields"]["d"], json!([{"gte": "2020/01", "lte": "2020/01"}]));
    assert_eq!(answer["hits"]["hits"][0]["_source"], cases()["documents"][0], "sources stay as sent");
    let highlight = json!({"query": {"term": {"i": 3}}, "highlight": {"fields": {"*": {}}}});
    let answer = store.search("ranges", &[], highlight).await.unwrap();
    assert_eq!(ids(&answer), ["1", "3", "5"]);
    assert!(answer["hits"]["hits"][0].get("highlight").is_none());
}

#[tokio::test]
async fn ranges_are_counted_and_else_refused() {
    let store = store(&cases()).await;
    let aggregations = json!({
        "missing": {"missing": {"field": "i"}},
        "count": {"value_count": {"field": "l"}},
        "distinct": {"cardinality": {"field": "l"}}
    });
    let answer = store.search("ranges", &[], json!({"size": 0, "aggs": aggregations})).await.unwrap();
    let of = |name: &str| answer["aggregations"][name].clone();
    assert_eq!(of("missing"), json!({"doc_count": 1}));
    assert_eq!((of("count"), of("distinct")), (json!({"value": 2}), json!({"value": 2})));
    let unsupported = |field: &str, kind: &str, name: &str| {
        format!("Field [{field}] of type [{kind}] is not supported for aggregation [{name}]")
    };
    for (body, expected) in [
        (json!({"aggs": {"a": {"terms": {"field": "i"}}}}), unsupported("i", "integer_range", "terms")),
        (json!({"aggs": {"a": {"avg": {"field": "f"}}}}), unsupported("f", "float_range", "avg")),
        (
            json!({"aggs": {"a": {"date_histogram": {"field": "d", "fixed_interval": "1d"}}}}),
            unsupported("d", "date_range", "date_histogram"),
        ),
        (
            json!({"aggs": {"a": {"composite": {"sources": [{"t": {"terms": {"field": "ip"}}}]}}}}),
            unsupported("ip", "ip_range", "terms"),
        ),
        (
            json!({"sort": ["i"]}),
            "can't sort on the field [i] of type [integer_range]: ranges have no order".to_owned(),
        ),
        (
            json!({"docvalue_fields": ["ip"]}),
            "Field [ip] of type [ip_range] does not support [docvalue_fields], use [fields] instead"
                .to_owned(),
        ),
        (
            json!({"collapse": {"field": "i"}}),
            "unknown type for collapse field `i`, only keywords and numbers are accepted".to_owned(),
        ),
        (
            json!({"fields": [{"field": "ip", "format": "yyyy"}]}),
            "Field [ip] of type [ip_range] doesn't support formats.".to_owned(),
        ),
    ] {
        let error = store.search("ranges", &[], body.clone()).await.unwrap_err();
        let shown = error.to_body().unwrap_or_default().to_string();
        assert!(error.status() == 400 && shown.contains(&expected), "{body}: {shown}");
    }
}

#[tokio::test]
async fn roles_show_documents_by_ranges_and_hide_fields_of_them() {
    let store = store(&cases()).await;
    let search = async |documents: Option<Value>, except: &[&str], body: Value| {
        let fields = (!except.is_empty()).then(|| FieldRules::new(&["*"], except));
        let session = restricted_session(&store, &[("ranges", documents, fields)]);
        value(store.service.search(&session, "ranges", Vec::new(), Some(body)).await.unwrap())
    };
    let all = json!({"sort": ["_doc"]});
    let relation =
        |name: &str| json!({"range": {"d": {"gte": "2019-06-01", "lte": "now", "relation": name}}});
    for (rule, expected) in [
        (json!({"term": {"i": 3}}), vec!["1", "3", "5"]),
        (json!({"terms": {"i": [2, 7]}}), vec!["1", "2", "3", "5", "6"]),
        (json!({"bool": {"must_not": {"term": {"ip": "10.0.0.1"}}}}), vec!["3", "4", "5"]),
        (relation("within"), vec!["1", "2", "6"]),
        (relation("intersects"), vec!["1", "2", "3", "5", "6"]),
    ] {
        assert_eq!(ids(&search(Some(rule.clone()), &[], all.clone()).await), expected, "{rule}");
    }
    let narrowed = json!({"query": {"term": {"ip": "10.0.0.1"}}, "sort": ["_doc"]});
    assert_eq!(ids(&search(Some(relation("within")), &[], narrowed).await), ["1", "2", "6"]);

    // A field of which a bound is hidden is not there; its source shows the other bound.
    for query in [
        json!({"term": {"d": "2020-01-15"}}),
        json!({"terms": {"d": ["2020-01-15"]}}),
        json!({"range": {"d": {"gte": "2020-01-15"}}}),
        json!({"exists": {"field": "d"}}),
    ] {
        let answer = search(None, &["d.gte"], json!({"query": query})).await;
        assert_eq!(ids(&answer), Vec::<String>::new(), "{query}");
    }
    let answer = search(None, &["d.gte"], json!({"sort": ["_doc"], "fields": ["d", "i"], "size": 1})).await;
    let hit = &answer["hits"]["hits"][0];
    assert_eq!(hit["_source"]["d"], json!({"lte": "2020-01-31"}));
    assert_eq!(hit["fields"], json!({"i": [{"gte": 1, "lte": 5}]}));
    // The rule for documents may ask what is hidden.
    assert_eq!(ids(&search(Some(relation("within")), &["d"], all).await), ["1", "2", "6"]);
}

/// Enough for a column to be read instead of a dictionary.
const MANY: i64 = 12_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_distinct_ranges_are_found_by_their_column() {
    let store = Store::open().await;
    let body = json!({"settings": {"number_of_shards": 1}, "mappings": {"properties": {
        "n": {"type": "long"}, "kind": {"type": "keyword"}, "own": {"type": "long_range"},
        "few": {"type": "integer_range"}, "indexed": {"type": "long_range", "doc_values": false}
    }}});
    store.create("many", &body).await;
    let (from, to) = (|n: i64| n * 3, |n: i64| n * 3 + n % 50);
    let document = |n: i64| {
        // A second range, far away, in some.
        let own = json!({"gte": from(n), "lte": to(n)});
        let far = json!({"gte": from(n) + 1_000_000, "lt": from(n) + 1_000_002});
        let own = if n % 7 == 0 { json!([own, far]) } else { own };
        let few = json!({"gte": n % 10, "lte": n % 10 + 2});
        let kind = format!("kind{}", n % 199);
        (n.to_string(), Some(json!({"n": n, "kind": kind, "own": own, "indexed": own, "few": few})))
    };
    store.write("many", (0..MANY).map(document).collect()).await;
    store.engine.flush(&[store.engine.index("many").unwrap()]).await.unwrap();
    let range = |from: i64, to: i64, relation: &str| json!({"gte": from, "lte": to, "relation": relation});
    let has = |n: i64, point: i64| {
        from(n) <= point && point <= to(n)
            || n % 7 == 0 && [point, point - 1].contains(&(from(n) + 1_000_000))
    };
    type Condition<'c> = &'c dyn Fn(i64) -> bool;
    let points = [1_500_i64, 1_501, 9_000, 20_000, 1_000_021, 1_000_022, 35_990, -1];
    let cases: [(&str, &str, Value, Condition<'_>); 6] = [
        ("term", "own", json!(20_000), &|n| has(n, 20_000)),
        ("terms", "own", json!(points), &|n| points.iter().any(|point| has(n, *point))),
        ("range", "own", range(9_000, 9_100, "intersects"), &|n| from(n) <= 9_100 && to(n) >= 9_000),
        ("range", "own", range(9_000, 9_010, "contains"), &|n| from(n) <= 9_000 && to(n) >= 9_010),
        ("range", "own", range(1_000_000, 1_010_000, "within"), &|n| n % 7 == 0 && from(n) < 10_000),
        ("terms", "few", json!([0, 11]), &|n| n % 10 == 0 || n % 10 == 9),
    ];
    let found = async |filters: Vec<Value>| {
        let body = json!({"size": 0, "track_total_hits": true, "query": {"bool": {"filter": filters}},
            "aggs": {"sum": {"sum": {"field": "n"}}}});
        let answer = store.search("many", &[], body).await.unwrap();
        (
            answer["hits"]["total"]["value"].as_i64().unwrap(),
            answer["aggregations"]["sum"]["value"].as_f64().unwrap(),
        )
    };
    for (kind, field, condition, expected) in cases {
        for field in if field == "own" { vec!["own", "indexed"] } else { vec![field] } {
            let clause = json!({kind: {field: condition}});
            for of_kind in [None, Some(7), Some(11)] {
                let rows = (0..MANY).filter(|n| of_kind.is_none_or(|kind| n % 199 == kind) && expected(*n));
                let rows: Vec<i64> = rows.collect();
                let filter = of_kind.map(|kind| json!({"term": {"kind": format!("kind{kind}")}}));
                let (count, sum) = found(filter.into_iter().chain([clause.clone()]).collect()).await;
                let total = (rows.len() as i64, rows.iter().sum::<i64>() as f64);
                assert_eq!((count, sum), total, "{clause} {of_kind:?}");
            }
        }
    }
}

#[tokio::test]
async fn statements_show_ranges_as_objects() {
    let store = store(&cases()).await;
    let row = [json!({"gte": 1, "lte": 5}), json!("10.0.0.0/24")];
    let found = sql::rows(&store, "SELECT i, ip FROM ranges WHERE query('i:3') AND k IS NOT NULL").await;
    assert_eq!(found, [json!(row)]);
    for (statement, expected) in [
        ("SELECT COUNT(*) FROM ranges WHERE i IS NULL", 1),
        ("SELECT COUNT(*) FROM ranges WHERE i IS NOT NULL", 5),
        ("SELECT COUNT(*) FROM ranges WHERE match(ip, '192.168.0.1')", 2),
    ] {
        assert_eq!(sql::rows(&store, statement).await, [json!([expected])], "{statement}");
    }
    let shown = sql::rows(&store, "SELECT i FROM ranges").await;
    assert_eq!(shown[1], json!([[{"gte": 1, "lte": 2}, {"gte": 8, "lte": 9}]]));
    assert_eq!(sql::rows(&store, "SELECT * FROM ranges").await.len(), 6);
    let (status, text) = sql::ask(&store, "SELECT * FROM ranges WHERE i > 5", "jdbc").await;
    assert!(status == 400 && text.contains("but get [OBJECT,INTEGER]"), "{text}");
    let (status, answer) = ppl::ask(&store, &store.session, "source=ranges | fields ip, d | head 1").await;
    assert_eq!((status, &answer["schema"][1]), (200, &json!({"name": "d", "type": "struct"})));
    assert_eq!(answer["datarows"], json!([["10.0.0.0/24", {"gte": "2020-01-01", "lte": "2020-01-31"}]]));
}

#[tokio::test]
async fn capabilities_name_the_type() {
    let store = store(&cases()).await;
    let params = vec![("fields".to_owned(), "ip,ni,nd".to_owned())];
    let outcome = store.service.field_caps(&store.session, "ranges", params, None).await.unwrap();
    let kind = |name: &str, searchable: bool, aggregatable: bool| json!({name: {"type": name, "searchable": searchable, "aggregatable": aggregatable}});
    assert_eq!(
        value(outcome)["fields"],
        json!({
            "ip": kind("ip_range", true, true),
            "ni": kind("integer_range", false, true),
            "nd": kind("integer_range", true, false)
        })
    );
}
