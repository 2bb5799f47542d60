//! Ordinary calls side by side on the same index: none of them waits for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use millrace_catalog::access::Principal;
use millrace_catalog::metadata::IndicesOptions;
use millrace_engine::Engine;
use serde_json::json;

use crate::documents::{index_op, open, write};

/// Calls of each client.
const CALLS: usize = 60;

/// One call of a client, by the client's number.
async fn call(engine: &Engine, client: usize, round: usize) {
    let principal = Principal::system();
    match client {
        0..4 => {
            let body = json!({"properties": {format!("f{client}_{round}"): {"type": "keyword"}}});
            engine.put_mapping(&principal, "a", &body).await.unwrap();
        }
        4..8 => {
            let body = json!({"index.mapping.total_fields.limit": 5_000 + client * CALLS + round});
            let change = |m: &millrace_catalog::metadata::Metadata| {
                m.update_settings("a", &IndicesOptions::open_only(), &body, false, 0)
            };
            engine.change(&principal, change).await.unwrap();
        }
        8..10 => {
            let source = format!(r#"{{"d{client}_{round}":1}}"#);
            write(engine, vec![index_op("a", Some(&format!("{client}-{round}")), &source)])
                .await
                .remove(0)
                .unwrap();
            engine.flush(&[engine.index("a").unwrap()]).await.unwrap();
        }
        _ => drop(engine.index("a").unwrap().snapshot().await.unwrap()),
    }
}

#[test]
fn mappings_settings_flushes_and_searches_of_one_index_never_wait_for_ever() {
    let done = Arc::new(AtomicUsize::new(0));
    let (sender, ended) = std::sync::mpsc::channel();
    let counted = Arc::clone(&done);
    // A runtime of its own, whose threads may stand still without stopping this one.
    std::thread::spawn(move || {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let engine = open(dir.path()).await;
            let body = json!({"settings": {"index.mapping.total_fields.limit": 4_999}});
            let uuid = millrace_catalog::metadata::Uuid::new_v4();
            engine.change(&Principal::system(), |m| m.create_index("a", &body, 0, uuid)).await.unwrap();
            let clients: Vec<_> = (0..11)
                .map(|client| {
                    let (engine, done) = (Arc::clone(&engine), Arc::clone(&counted));
                    tokio::spawn(async move {
                        for round in 0..CALLS {
                            call(&engine, client, round).await;
                            done.fetch_add(1, Ordering::Relaxed);
                        }
                    })
                })
                .collect();
            for client in clients {
                client.await.unwrap();
            }
            // Each mapping and each document is there.
            let index = engine.index("a").unwrap();
            let mapping = index.mapping();
            for round in 0..CALLS {
                for client in 0..4 {
                    assert!(mapping.field(&format!("f{client}_{round}")).is_some());
                }
                for client in 8..10 {
                    assert!(mapping.field(&format!("d{client}_{round}")).is_some());
                }
            }
            engine.refresh(&[index]).await.unwrap();
            let docs: u64 = engine.index("a").unwrap().figures().shards.iter().map(|s| s.docs).sum();
            assert_eq!(docs, 2 * CALLS as u64);
            engine.shutdown().await.unwrap();
        });
        sender.send(()).unwrap();
    });
    let mut before = 0;
    loop {
        match ended.recv_timeout(Duration::from_secs(20)) {
            Ok(()) => return,
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => panic!("a client failed"),
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
                let now = done.load(Ordering::Relaxed);
                assert!(now > before, "all stands still after {now} calls");
                before = now;
            }
        }
    }
}
