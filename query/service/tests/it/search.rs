use serde_json::json;

use crate::fixture::{Store, ids};

async fn logs() -> Store {
    let store = Store::open().await;
    let documents = [
        json!({"message": "disk full on node", "status": 500, "host": {"name": "a"}, "at": "2024-01-01T00:00:00Z"}),
        json!({"message": "disk ok", "status": 200, "host": {"name": "b"}, "at": "2024-01-02T00:00:00Z"}),
        json!({"message": "node joined", "status": 200, "at": "2024-01-03T00:00:00Z"}),
        json!({"message": "disk disk full", "status": 404, "host": {"name": "a"}, "at": "2024-01-04T00:00:00Z"}),
    ];
    store.index("logs", &documents).await;
    store
}

#[tokio::test]
async fn every_clause_finds_its_documents() {
    let store = logs().await;
    let cases = [
        (json!({"match_all": {}}), vec!["1", "2", "3", "4"]),
        (json!({"match": {"message": {"query": "disk full", "operator": "and"}}}), vec!["1", "4"]),
        (json!({"term": {"status": 200}}), vec!["2", "3"]),
        (json!({"terms": {"host.name.keyword": ["a", "x"]}}), vec!["1", "4"]),
        (json!({"range": {"status": {"gte": 400}}}), vec!["1", "4"]),
        (json!({"range": {"at": {"gt": "2024-01-02", "lt": "2024-01-04"}}}), vec!["3"]),
        (json!({"exists": {"field": "host"}}), vec!["1", "2", "4"]),
        (json!({"ids": {"values": ["3", "9"]}}), vec!["3"]),
        (json!({"prefix": {"host.name.keyword": "b"}}), vec!["2"]),
        (json!({"bool": {"must_not": {"term": {"status": 200}}}}), vec!["1", "4"]),
        (json!({"term": {"nothing": 1}}), vec![]),
        (json!({"term": {"_index": "logs"}}), vec!["1", "2", "3", "4"]),
    ];
    for (query, expected) in cases {
        let body = json!({"query": query, "sort": "_doc"});
        let answer = store.search("logs", &[], body).await.unwrap();
        assert_eq!(ids(&answer), expected, "{query}");
        assert_eq!(answer["hits"]["total"]["value"], expected.len(), "{query}");
    }
}

#[tokio::test]
async fn hits_come_by_score_or_by_field() {
    let store = logs().await;
    let answer = store.search("logs", &[], json!({"query": {"match": {"message": "disk"}}})).await.unwrap();
    assert_eq!(ids(&answer), ["4", "2", "1"]);
    assert_eq!(answer["hits"]["max_score"], answer["hits"]["hits"][0]["_score"]);

    let body = json!({"sort": [{"status": "desc"}, {"at": "asc"}], "size": 2});
    let answer = store.search("logs", &[], body).await.unwrap();
    assert_eq!(ids(&answer), ["1", "4"]);
    assert_eq!(answer["hits"]["hits"][0]["sort"], json!([500, 1_704_067_200_000_i64]));
    assert!(answer["hits"]["max_score"].is_null());

    let after = answer["hits"]["hits"][1]["sort"].clone();
    let body = json!({"sort": [{"status": "desc"}, {"at": "asc"}], "search_after": after});
    assert_eq!(ids(&store.search("logs", &[], body).await.unwrap()), ["2", "3"]);
}

#[tokio::test]
async fn values_that_do_not_fit_fail_the_shards() {
    let store = logs().await;
    let error = store.search("logs", &[], json!({"query": {"term": {"status": "abc"}}})).await.unwrap_err();
    let body = error.to_body().unwrap();
    assert_eq!(error.status(), 400);
    assert_eq!(body["error"]["root_cause"][0]["reason"], "failed to create query: For input string: \"abc\"");
    let error = store.search("logs", &[], json!({"sort": "message"})).await.unwrap_err();
    assert!(
        error.to_body().unwrap()["error"]["root_cause"][0]["reason"]
            .as_str()
            .unwrap()
            .starts_with("Text fields are not optimised")
    );
}

#[tokio::test]
async fn sources_are_filtered_and_counts_counted() {
    let store = logs().await;
    let body = json!({"_source": ["host.name"], "query": {"ids": {"values": ["1"]}}});
    let answer = store.search("logs", &[], body).await.unwrap();
    assert_eq!(answer["hits"]["hits"][0]["_source"], json!({"host": {"name": "a"}}));

    let outcome = store
        .service
        .count(&store.session, "logs", Vec::new(), Some(json!({"query": {"term": {"status": 200}}})))
        .await
        .unwrap();
    assert_eq!(crate::fixture::value(outcome)["count"], 2);
}
