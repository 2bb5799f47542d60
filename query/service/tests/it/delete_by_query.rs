use serde_json::json;

use crate::fixture::{Store, owned, value};

#[tokio::test]
async fn matching_documents_are_deleted_in_batches() {
    let store = Store::open().await;
    let documents: Vec<_> = (0..5).map(|n| json!({"n": n})).collect();
    store.index("numbers", &documents).await;
    let params = owned(&[("scroll_size", "2"), ("refresh", "true")]);
    let body = json!({"query": {"range": {"n": {"lt": 3}}}});
    let outcome = store.service.delete_by_query(&store.session, "numbers", params, Some(body)).await.unwrap();
    let answer = value(outcome);
    assert_eq!((answer["deleted"].as_u64(), answer["batches"].as_u64()), (Some(3), Some(2)));
    assert_eq!(answer["failures"], json!([]));
    let outcome = store.service.count(&store.session, "numbers", Vec::new(), None).await.unwrap();
    assert_eq!(value(outcome)["count"], 2);
}
