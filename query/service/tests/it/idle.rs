//! Searches that are the first for a while see everything, as dashboards ask: side by side, of many indices.

use futures::future::join_all;
use serde_json::json;

use crate::fixture::{Store, value};

#[tokio::test]
async fn counts_side_by_side_see_all_that_was_written_to_idle_indices() {
    let store = Store::open().await;
    let indices = 40;
    for index in 0..indices {
        store.index(&format!("log-{index}"), &[json!({"n": 0})]).await;
    }
    store.clock.advance_ms(30_000);
    for index in 0..indices {
        let documents = (0..12).map(|n| (format!("late-{n}"), Some(json!({"n": n})))).collect();
        store.write_unseen(&format!("log-{index}"), documents).await;
    }
    let counts =
        join_all((0..8).map(|_| store.service.count(&store.session, "log-*", Vec::new(), None))).await;
    for count in counts {
        assert_eq!(value(count.unwrap())["count"], indices * 13);
    }
}
