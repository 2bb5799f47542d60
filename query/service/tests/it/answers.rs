//! Scores, several shards and indices, aliases, slices, orders of every type.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::fixture::{Store, ids, owned, value};

fn scores(answer: &Value) -> Vec<(String, f64)> {
    let hits = answer["hits"]["hits"].as_array().unwrap().iter();
    hits.map(|hit| (hit["_id"].as_str().unwrap().to_owned(), hit["_score"].as_f64().unwrap())).collect()
}

fn close(found: &[(String, f64)], expected: &[(&str, f64)]) {
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for ((id, score), (expected_id, expected)) in found.iter().zip(expected) {
        assert_eq!(id, expected_id);
        assert!((score - expected).abs() < 1e-5, "{id}: {score} is not {expected}");
    }
}

/// Lucene's legacy BM25, worked by hand.
fn bm25(docs: f64, tokens: f64, doc_freq: f64, freq: f64, length: f64) -> f64 {
    let idf = (1.0 + (docs - doc_freq + 0.5) / (doc_freq + 0.5)).ln();
    2.2 * idf * freq / (freq + 1.2 * (0.25 + 0.75 * length / (tokens / docs)))
}

#[tokio::test]
async fn deleted_documents_count_for_scores_until_they_are_merged_away() {
    let store = Store::open().await;
    store.create("scores", &json!({"mappings": {"properties": {"msg": {"type": "text"}}}})).await;
    let doc = |text: &str| Some(json!({"msg": text}));
    let first = vec![
        ("1".into(), doc("disk full")),
        ("2".into(), doc("disk disk ok now")),
        ("3".into(), Some(json!({"other": 1}))),
    ];
    store.write("scores", first).await;
    let index = store.engine.index("scores").unwrap();
    store.engine.flush(&[std::sync::Arc::clone(&index)]).await.unwrap();
    store.write("scores", vec![("4".into(), doc("node")), ("5".into(), doc("disk"))]).await;
    store.write("scores", vec![("5".into(), None)]).await;

    let body = || json!({"query": {"match": {"msg": "disk"}}});
    let answer = store.search("scores", &[], body()).await.unwrap();
    let expected = [("2", bm25(4.0, 8.0, 3.0, 2.0, 4.0)), ("1", bm25(4.0, 8.0, 3.0, 1.0, 2.0))];
    close(&scores(&answer), &expected);

    store.engine.force_merge(&[index], 1).await.unwrap();
    let answer = store.search("scores", &[], body()).await.unwrap();
    let expected = [("2", bm25(3.0, 7.0, 2.0, 2.0, 4.0)), ("1", bm25(3.0, 7.0, 2.0, 1.0, 2.0))];
    close(&scores(&answer), &expected);
    assert!((answer["hits"]["max_score"].as_f64().unwrap() - expected[0].1).abs() < 1e-5);
}

#[tokio::test]
async fn joined_statistics_score_like_one_shard() {
    let store = Store::open().await;
    let words =
        ["disk full", "disk", "node joined the disk", "full", "disk disk", "the node", "full disk ok"];
    let documents: Vec<Value> = words.iter().map(|text| json!({"msg": text, "tag": text})).collect();
    for (name, shards) in [("one", 1), ("many", 4)] {
        store.create(name, &json!({"settings": {"number_of_shards": shards}})).await;
        store.index(name, &documents).await;
    }
    for query in [
        json!({"match": {"msg": "disk full"}}),
        json!({"term": {"tag.keyword": "disk"}}),
        json!({"bool": {"must": {"match": {"msg": "disk"}}, "should": {"match": {"msg": {"query": "ok", "boost": 2}}}}}),
        json!({"constant_score": {"filter": {"match": {"msg": "node"}}, "boost": 3.5}}),
    ] {
        let body = json!({"query": query});
        let one = store.search("one", &[], body.clone()).await.unwrap();
        let dfs = [("search_type", "dfs_query_then_fetch")];
        let many = store.search("many", &dfs, body).await.unwrap();
        let (mut one, mut many) = (scores(&one), scores(&many));
        one.sort_by(|a, b| a.0.cmp(&b.0));
        many.sort_by(|a, b| a.0.cmp(&b.0));
        let expected: Vec<(&str, f64)> = one.iter().map(|(id, score)| (id.as_str(), *score)).collect();
        close(&many, &expected);
    }
}

#[tokio::test]
async fn every_type_orders() {
    let store = Store::open().await;
    let mapping = json!({"mappings": {"properties": {
        "tag": {"type": "keyword"}, "ip": {"type": "ip"}, "ul": {"type": "unsigned_long"},
        "at": {"type": "date"}, "ns": {"type": "date_nanos"}, "flat": {"type": "flat_object"}
    }}});
    store.create("orders", &mapping).await;
    let documents = [
        json!({"tag": ["b", "z"], "ip": "10.0.0.2", "ul": 18_446_744_073_709_551_614_u64, "at": "2024-01-02", "ns": "2024-01-02T00:00:00.000000001Z"}),
        json!({"tag": "a", "ip": "10.0.0.10", "ul": 3, "at": "2024-01-01", "ns": "2024-01-02T00:00:00.000000002Z"}),
        json!({"other": true}),
        json!({"tag": "c", "ip": "::1", "ul": 4, "at": ["2024-01-03", "2023-01-01"], "ns": "2024-01-01"}),
    ];
    store.index("orders", &documents).await;
    let index = store.engine.index("orders").unwrap();
    for state in ["refreshed", "flushed"] {
        for (sort, expected) in [
            (json!([{"tag": "asc"}]), ["2", "1", "4", "3"]),
            (json!([{"tag": "desc"}]), ["1", "4", "2", "3"]),
            (json!([{"tag": {"order": "asc", "missing": "_first"}}]), ["3", "2", "1", "4"]),
            (json!([{"tag": {"order": "asc", "missing": "bb"}}]), ["2", "1", "3", "4"]),
            (json!([{"ip": "asc"}]), ["4", "1", "2", "3"]),
            (json!([{"ip": "desc"}]), ["2", "1", "4", "3"]),
            (json!([{"ul": "asc"}]), ["2", "4", "1", "3"]),
            (json!([{"ul": {"order": "desc", "missing": "_first"}}]), ["3", "1", "4", "2"]),
            (json!([{"at": "asc"}]), ["4", "2", "1", "3"]),
            (json!([{"at": {"order": "desc"}}]), ["4", "1", "2", "3"]),
            (json!([{"at": {"order": "asc", "missing": 1_704_110_400_000_i64}}]), ["4", "2", "3", "1"]),
            (json!([{"ns": "desc"}]), ["2", "1", "4", "3"]),
            (json!([{"ns": "asc"}]), ["4", "1", "2", "3"]),
        ] {
            // Whole, and page by page behind the sort values that the answers give.
            let whole = store.search("orders", &[], json!({"sort": sort})).await.unwrap();
            assert_eq!(ids(&whole), expected, "{state}: {sort}");
            let mut after: Option<Value> = None;
            let mut paged = Vec::new();
            while paged.len() < 4 {
                let mut body = json!({"sort": sort, "size": 1});
                if let Some(after) = &after {
                    body["search_after"] = after.clone();
                }
                let page = store.search("orders", &[], body).await.unwrap();
                assert_eq!(page["hits"]["total"]["value"], 4);
                let Some(last) = page["hits"]["hits"].get(0) else { break };
                after = Some(last["sort"].clone());
                paged.extend(ids(&page));
            }
            assert_eq!(paged, expected, "{state}: {sort}");
        }
        let error = store.search("orders", &[], json!({"sort": "flat"})).await.unwrap_err();
        assert_eq!(error.status(), 400);
        store.engine.flush(&[std::sync::Arc::clone(&index)]).await.unwrap();
    }
}

#[tokio::test]
async fn slices_and_scrolls_part_what_a_search_finds() {
    let store = Store::open().await;
    store.create("parts", &json!({"settings": {"number_of_shards": 2}})).await;
    let documents: Vec<Value> = (0..50).map(|n| json!({"n": n % 7, "m": n})).collect();
    store.index("parts", &documents).await;
    for slices in [2, 3, 5] {
        let mut all = BTreeSet::new();
        let mut count = 0;
        for slice in 0..slices {
            let body = json!({
                "slice": {"id": slice, "max": slices}, "size": 4, "sort": [{"n": "desc"}],
                "query": {"range": {"m": {"gte": 5}}}
            });
            let mut answer = store.search("parts", &[("scroll", "1m")], body).await.unwrap();
            let total = answer["hits"]["total"]["value"].as_u64().unwrap() as usize;
            let mut found = Vec::new();
            while !ids(&answer).is_empty() {
                found.extend(ids(&answer));
                let body = json!({"scroll_id": answer["_scroll_id"]});
                answer =
                    value(store.service.scroll(&store.session, "", Vec::new(), Some(body)).await.unwrap());
            }
            assert_eq!(found.len(), total);
            count += total;
            all.extend(found);
        }
        assert_eq!((all.len(), count), (45, 45), "{slices} slices");
    }
}

#[tokio::test]
async fn totals_are_told_as_asked() {
    let store = Store::open().await;
    let documents: Vec<Value> = (0..30).map(|n| json!({"n": n, "tag": "a"})).collect();
    store.index("totals", &documents).await;
    for query in
        [json!({"match_all": {}}), json!({"term": {"tag.keyword": "a"}}), json!({"range": {"n": {"gte": 0}}})]
    {
        for (track, total) in [
            (json!(true), json!({"value": 30, "relation": "eq"})),
            (json!(10), json!({"value": 10, "relation": "gte"})),
            (json!(30), json!({"value": 30, "relation": "eq"})),
            (json!(false), Value::Null),
        ] {
            for size in [0, 2] {
                for sort in [json!(["_score"]), json!(["_doc"]), json!([{"n": "desc"}])] {
                    let body = json!({"query": query, "track_total_hits": track, "size": size, "sort": sort});
                    let answer = store.search("totals", &[], body.clone()).await.unwrap();
                    assert_eq!(answer["hits"].get("total").unwrap_or(&Value::Null), &total, "{body}");
                    assert_eq!(ids(&answer).len(), size, "{body}");
                }
            }
        }
    }
}

#[tokio::test]
async fn aliases_filter_and_several_indices_join() {
    let store = Store::open().await;
    let aliases = json!({"aliases": {"errors": {"filter": {"term": {"level": "error"}}}, "everything": {}}});
    for name in ["app-1", "app-2"] {
        store.create(name, &aliases).await;
    }
    store.index("app-1", &[json!({"level": "error", "n": 1}), json!({"level": "info", "n": 2})]).await;
    store.index("app-2", &[json!({"level": "error", "n": 3.5}), json!({"level": "info"})]).await;
    let found = async |expression: &str, query: Value| {
        let body = json!({"query": query, "sort": ["_doc"]});
        let answer = store.search(expression, &[], body).await.unwrap();
        let hits = answer["hits"]["hits"].as_array().unwrap().iter();
        hits.map(|hit| format!("{}/{}", hit["_index"].as_str().unwrap(), hit["_id"].as_str().unwrap()))
            .collect::<Vec<_>>()
    };
    assert_eq!(found("errors", json!({"match_all": {}})).await, ["app-1/1", "app-2/1"]);
    assert_eq!(found("everything", json!({"match_all": {}})).await.len(), 4);
    assert_eq!(found("errors,app-2", json!({"match_all": {}})).await, ["app-1/1", "app-2/1", "app-2/2"]);
    assert_eq!(found("app-*,-app-1", json!({"range": {"n": {"gt": 3}}})).await, ["app-2/1"]);
    assert_eq!(found("_all", json!({"term": {"_index": "app-1"}})).await, ["app-1/1", "app-1/2"]);

    // A whole number here and a fraction there are ordered together.
    let body = json!({"sort": [{"n": {"order": "desc", "missing": "_last"}}]});
    let answer = store.search("everything", &[], body).await;
    assert!(answer.is_ok() || answer.is_err_and(|e| e.status() == 400));
    for query in [
        json!({"term": {"_nothing": 1}}),
        json!({"match": {"_nothing": 1}}),
        json!({"range": {"_nothing": {"gt": 1}}}),
        json!({"prefix": {"_nothing": "a"}}),
        json!({"exists": {"field": "_nothing"}}),
        json!({"terms": {"_nothing": [1]}}),
    ] {
        assert!(found("everything", query).await.is_empty());
    }
}

#[tokio::test]
async fn places_inside_of_flat_objects_are_searched() {
    let store = Store::open().await;
    store.create("flat", &json!({"mappings": {"properties": {"f": {"type": "flat_object"}}}})).await;
    let documents = [
        json!({"f": {"a": {"b": "x1"}, "c": "y"}}),
        json!({"f": {"a": {"b": "x9"}}}),
        json!({"f": {"d": "x1"}}),
    ];
    store.index("flat", &documents).await;
    for (query, expected) in [
        (json!({"term": {"f.a.b": "x1"}}), vec!["1"]),
        (json!({"term": {"f": "x1"}}), vec!["1", "3"]),
        (json!({"match": {"f.c": "y"}}), vec!["1"]),
        (json!({"terms": {"f.a.b": ["x9", "x1"]}}), vec!["1", "2"]),
        (json!({"prefix": {"f.a.b": "x"}}), vec!["1", "2"]),
        (json!({"range": {"f.a.b": {"gt": "x1"}}}), vec!["2"]),
        (json!({"range": {"f": {"lte": "x1"}}}), vec!["1", "3"]),
        (json!({"exists": {"field": "f.a"}}), vec!["1", "2"]),
        (json!({"exists": {"field": "f.d"}}), vec!["3"]),
        (json!({"exists": {"field": "f"}}), vec!["1", "2", "3"]),
        (json!({"term": {"f.a": "x1"}}), vec![]),
    ] {
        let answer = store.search("flat", &[], json!({"query": query, "sort": ["_doc"]})).await.unwrap();
        assert_eq!(ids(&answer), expected, "{query}");
    }
}

#[tokio::test]
async fn documents_that_changed_are_conflicts_of_a_deletion_by_query() {
    let store = Store::open().await;
    let documents: Vec<Value> = (0..4).map(|n| json!({"n": n})).collect();
    store.index("numbers", &documents).await;
    // A search first, so that the shard is not idle and shows what was refreshed.
    store.search("numbers", &[], json!({})).await.unwrap();
    store.write_unseen("numbers", vec![("2".into(), Some(json!({"n": 9})))]).await;
    let delete = async |params: &[(&str, &str)]| {
        let body = json!({"query": {"match_all": {}}});
        let deletion =
            store.service.delete_by_query(&store.session, "numbers", owned(params), Some(body), Box::new(()));
        deletion.await.unwrap()
    };
    let proceeded = delete(&[("conflicts", "proceed"), ("refresh", "true")]).await;
    assert_eq!(proceeded.status, 200);
    let answer = value(proceeded);
    assert_eq!(
        (&answer["deleted"], &answer["version_conflicts"], &answer["total"]),
        (&json!(3), &json!(1), &json!(4))
    );
    let left = store.search("numbers", &[], json!({})).await.unwrap();
    assert_eq!(ids(&left), ["2"]);
    assert_eq!(left["hits"]["hits"][0]["_source"], json!({"n": 9}));
}

#[tokio::test]
async fn columns_without_an_index_are_ranged_over_whatever_their_bounds() {
    let store = Store::open().await;
    store
        .create("bare", &json!({"mappings": {"properties": {"k": {"type": "keyword", "index": false}}}}))
        .await;
    let index = store.engine.index("bare").unwrap();
    for (id, text) in [("1", "a".to_owned()), ("2", "z".repeat(100)), ("3", "b".to_owned())] {
        store.write("bare", vec![(id.into(), Some(json!({"k": text})))]).await;
        store.engine.flush(&[std::sync::Arc::clone(&index)]).await.unwrap();
    }
    let body = || json!({"query": {"range": {"k": {"gte": "b"}}}, "sort": ["_doc"]});
    assert_eq!(ids(&store.search("bare", &[], body()).await.unwrap()), ["2", "3"]);
    store.engine.force_merge(&[index], 1).await.unwrap();
    assert_eq!(ids(&store.search("bare", &[], body()).await.unwrap()), ["2", "3"]);
}
