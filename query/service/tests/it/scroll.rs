use serde_json::json;

use crate::fixture::{Store, ids, owned, value};

#[tokio::test]
async fn pages_follow_one_snapshot() {
    let store = Store::open().await;
    let documents: Vec<_> = (0..5).map(|n| json!({"n": n})).collect();
    store.index("numbers", &documents).await;
    let body = json!({"size": 2, "sort": [{"n": "desc"}]});
    let first = store.search("numbers", &[("scroll", "1m")], body).await.unwrap();
    assert_eq!(ids(&first), ["5", "4"]);
    store.index("numbers", &[json!({"n": 9})]).await;

    let id = first["_scroll_id"].as_str().unwrap().to_owned();
    let next = || {
        let body = json!({"scroll_id": id, "scroll": "1m"});
        store.service.scroll(&store.session, "", Vec::new(), Some(body))
    };
    let second = value(next().await.unwrap());
    assert_eq!(
        (ids(&second), second["hits"]["total"]["value"].as_u64()),
        (vec!["3".into(), "2".into()], Some(5))
    );
    assert_eq!(ids(&value(next().await.unwrap())), ["1"]);
    assert!(ids(&value(next().await.unwrap())).is_empty());

    store.clock.advance_ms(61_000);
    assert_eq!(next().await.unwrap_err().status(), 404);
    let cleared = store.service.clear_scroll(&store.session, &id, owned(&[]), None).await.unwrap();
    assert_eq!(cleared.status, 404);
}

#[tokio::test]
async fn a_page_that_was_cut_is_not_the_last() {
    let store = Store::open().await;
    store.create("cut", &json!({"settings": {"number_of_shards": 1}})).await;
    let documents: Vec<_> = (0..50).map(|n| json!({"n": n})).collect();
    store.index("cut", &documents).await;
    let body = json!({"size": 20, "terminate_after": 5, "sort": ["_doc"]});
    let mut page = store.search("cut", &[("scroll", "1m")], body).await.unwrap();
    assert_eq!((ids(&page).len(), &page["terminated_early"]), (5, &json!(true)));
    let mut found = Vec::new();
    while !ids(&page).is_empty() {
        found.extend(ids(&page));
        let body = json!({"scroll_id": page["_scroll_id"], "scroll": "1m"});
        page = value(store.service.scroll(&store.session, "", Vec::new(), Some(body)).await.unwrap());
    }
    assert_eq!(found, (1..=50).map(|id| id.to_string()).collect::<Vec<_>>());
}
