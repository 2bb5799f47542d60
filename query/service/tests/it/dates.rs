//! Dates of queries, of bounds and of fields. The right answers are those of OpenSearch 2.19.

use serde_json::{Value, json};

use crate::fixture::{Store, ids};

async fn store() -> Store {
    let store = Store::open().await;
    let mapping = json!({"mappings": {"properties": {
        "t": {"type": "date"},
        "n": {"type": "date_nanos"},
        "e": {"type": "date", "format": "epoch_second"},
        "z": {"type": "date", "format": "yyyy-MM-dd HH:mm:ss z"},
    }}});
    store.create("a", &mapping).await;
    let documents = [
        ("2024-01-01T00:00:00.000Z", "2024-01-01T00:00:00.000000000Z", json!(1_704_067_200), "10:00:00 EST"),
        (
            "2024-01-01T00:00:00.999Z",
            "2024-01-01T00:00:00.999999999Z",
            json!(1_704_067_200.5),
            "10:00:00 CET",
        ),
        ("2024-01-01T00:00:01.000Z", "2024-01-01T00:00:01.000000000Z", json!(1_704_067_201), "10:00:00 UTC"),
    ];
    let documents =
        documents.map(|(t, n, e, z)| json!({"t": t, "n": n, "e": e, "z": format!("2024-01-02 {z}")}));
    store.index("a", &documents).await;
    store
}

#[tokio::test]
async fn a_date_without_a_fraction_is_its_whole_second() {
    let store = store().await;
    let mut cases = vec![
        (json!({"term": {"e": "1704067200"}}), vec!["1", "2"]),
        (json!({"term": {"e": "1704067200.5"}}), vec!["2"]),
        (json!({"range": {"t": {"lte": "1704067200", "format": "epoch_second"}}}), vec!["1", "2"]),
        (json!({"range": {"n": {"gt": "1704067200", "format": "epoch_second"}}}), vec!["3"]),
        (json!({"range": {"z": {"lte": "2024-01-02 10:00:00 UTC"}}}), vec!["2", "3"]),
        (json!({"term": {"z": "2024-01-02 15:00:00 Z"}}), vec!["1"]),
    ];
    for field in ["t", "n"] {
        for second in ["2024-01-01T00:00:00", "2024-01-01T00:00:00Z", "2024-01-01T01:00:00Europe/Oslo"] {
            cases.extend([
                (json!({"range": {field: {"lt": second}}}), vec![]),
                (json!({"range": {field: {"lte": second}}}), vec!["1", "2"]),
                (json!({"range": {field: {"gte": second}}}), vec!["1", "2", "3"]),
                (json!({"range": {field: {"gt": second}}}), vec!["3"]),
                (json!({"term": {field: second}}), vec!["1", "2"]),
                (json!({"terms": {field: [second]}}), vec!["1", "2"]),
                (json!({"match": {field: second}}), vec!["1", "2"]),
                (json!({"query_string": {"query": format!("{field}:\"{second}\"")}}), vec!["1", "2"]),
                (json!({"query_string": {"query": format!("{field}:[* TO \"{second}\"]")}}), vec!["1", "2"]),
            ]);
        }
        cases.extend([
            (json!({"range": {field: {"lte": "2024-01-01T00:00:00.000Z"}}}), vec!["1"]),
            (json!({"term": {field: "2024-01-01T00:00:00.999999999Z"}}), vec!["2"]),
            (json!({"range": {field: {"gt": "2024-01-01T00:00"}}}), vec![]),
            (
                json!({"range": {field: {"lte": "2024-01-01 00:00:00", "format": "yyyy-MM-dd HH:mm:ss"}}}),
                vec!["1", "2"],
            ),
        ]);
    }
    for (query, expected) in cases {
        let answer = store.search("a", &[], json!({"query": query, "sort": "_doc"})).await.unwrap();
        assert_eq!(ids(&answer), expected, "{query}");
    }
}

#[tokio::test]
async fn formats_show_fractions_as_far_as_they_have_them() {
    let store = store().await;
    let cases = [
        ("n", "epoch_millis", json!("1704067200999.999999")),
        ("n", "epoch_second", json!("1704067200.999999999")),
        ("n", "strict_date_time", json!("2024-01-01T00:00:00.999999999Z")),
        ("n", "strict_date_optional_time_nanos", json!("2024-01-01T00:00:00.999999999Z")),
        ("n", "strict_date_optional_time", json!("2024-01-01T00:00:00.999Z")),
        ("n", "date_time_no_millis", json!("2024-01-01T00:00:00Z")),
        ("t", "epoch_millis", json!("1704067200999")),
        ("t", "strict_date_time", json!("2024-01-01T00:00:00.999Z")),
        ("t", "Q e n", json!("1 1 999000000")),
        ("z", "yyyy-MM-dd HH:mm:ss z", json!("2024-01-02 09:00:00 Z")),
    ];
    for (field, format, expected) in cases {
        let asked = json!([{"field": field, "format": format}]);
        for key in ["docvalue_fields", "fields"] {
            let body = json!({key: asked, "query": {"ids": {"values": ["2"]}}});
            let answer = store.search("a", &[], body).await.unwrap();
            assert_eq!(answer["hits"]["hits"][0]["fields"][field], json!([expected]), "{key} {format}");
        }
    }
}

#[tokio::test]
async fn keys_and_bounds_of_histograms_have_formats() {
    let store = store().await;
    let day = |extra: Value| {
        let mut histogram = json!({"field": "t", "calendar_interval": "day"});
        histogram.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        json!({"size": 0, "aggs": {"h": {"date_histogram": histogram}}})
    };
    let cases = [
        (
            json!({"extended_bounds": {"min": "1703980800000", "max": "1704067200000"}}),
            vec!["2023-12-31T00:00:00.000Z", "2024-01-01T00:00:00.000Z"],
        ),
        (json!({"format": "yyyy-MM-dd z"}), vec!["2024-01-01 Z"]),
        (
            json!({"format": "yyyy-MM-dd z VV", "time_zone": "Europe/London"}),
            vec!["2024-01-01 GMT Europe/London"],
        ),
        (json!({"format": "yyyy-MM-dd z O", "time_zone": "America/New_York"}), vec!["2023-12-31 EST GMT-5"]),
    ];
    for (extra, expected) in cases {
        let answer = store.search("a", &[], day(extra.clone())).await.unwrap();
        let buckets = answer["aggregations"]["h"]["buckets"].as_array().unwrap();
        let keys: Vec<&str> =
            buckets.iter().map(|bucket| bucket["key_as_string"].as_str().unwrap()).collect();
        assert_eq!(keys, expected, "{extra}");
    }
    let bounds = json!({"extended_bounds": {"min": "1703980800000"}, "format": "yyyy-MM-dd"});
    assert!(store.search("a", &[], day(bounds)).await.is_err());
}
