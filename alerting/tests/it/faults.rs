//! Alerts that cannot be written, indices that are deleted, frames that are lost.

use millrace_storage::metadata::{IndicesOptions, Metadata};
use millrace_storage::{Config, Principal};
use serde_json::json;

use crate::fixture::{Server, document, errors, open_engine, until};

#[tokio::test(flavor = "multi_thread")]
async fn the_index_of_alerts_is_made_anew_when_it_is_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path()).await;
    server.save(errors("errors")).await;
    server.write(vec![document("logs", "1", json!({"level": "error"}))]).await;
    assert_eq!(server.settled_triggers().await, ["1"]);
    let gone = |m: &Metadata| m.delete_indices("alert", &IndicesOptions::open_only(), 0);
    server.engine.change(&Principal::system(), gone).await.unwrap();
    server.write(vec![document("logs", "2", json!({"level": "error"}))]).await;
    assert_eq!(server.settled_triggers().await, ["2"]);
    let mapping = server.engine.index("alert").unwrap().mapping();
    assert!(mapping.to_json().to_string().contains("flat_object"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_alerts_cannot_be_written_that_is_told_and_nothing_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path()).await;
    server.save(errors("errors")).await;
    server.write(vec![document("logs", "1", json!({"level": "error"}))]).await;
    assert_eq!(server.settled_triggers().await, ["1"]);
    block(&server, true).await;
    for id in ["2", "3"] {
        server.write(vec![document("logs", id, json!({"level": "error"}))]).await;
    }
    let fault = until(async || server.alerting.faults().into_iter().next()).await;
    assert!(fault.contains("blocked"), "{fault}");
    // Rules can be changed meanwhile.
    server.save(errors("another")).await;
    block(&server, false).await;
    until(async || server.alerting.faults().is_empty().then_some(())).await;
    assert_eq!(server.settled_triggers().await, ["1", "2", "3"]);
    server.stop().await;
}

async fn block(server: &Server, blocked: bool) {
    let body = json!({"index.blocks.write": blocked});
    let decide = |m: &Metadata| m.update_settings("alert", &IndicesOptions::open_only(), &body, false, 0);
    server.engine.change(&Principal::system(), decide).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_that_are_lost_are_told_by_their_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config { data_dir: dir.path().to_owned(), wal_max_bytes: 512 << 10, ..Config::default() };
    let server = Server::open_with(config.clone()).await;
    server.save(errors("errors")).await;
    server.write(vec![document("logs", "1", json!({"level": "error"}))]).await;
    assert_eq!(server.settled_triggers().await, ["1"]);
    server.stop().await;
    // More than any lease holds, while rules are away.
    let engine = open_engine(config.clone()).await;
    let filler = "x".repeat(256 << 10);
    let away = Principal::system();
    for n in 0..40 {
        let op = document("other", &n.to_string(), json!({ "filler": filler }));
        let none = millrace_storage::RefreshPolicy::None;
        engine.write(&away, vec![op], none, std::time::Duration::from_secs(60)).await.unwrap();
    }
    engine.flush(&[engine.index("other").unwrap()]).await.unwrap();
    until(async || engine.lease("rules").filter(|lease| lease.lapsed)).await;
    engine.flush(&[engine.index("other").unwrap()]).await.unwrap();
    engine.shutdown().await.unwrap();
    drop(engine);
    let server = Server::open_with(config).await;
    let told = until(async || server.documents("alert_error").await.into_values().next()).await;
    let (first, last) = (told["first_frame"].as_u64().unwrap(), told["last_frame"].as_u64().unwrap());
    assert!(0 < first && first < last, "{told}");
    assert!(told["message"].as_str().unwrap().contains(&format!("{first} to {last}")), "{told}");
    server.write(vec![document("logs", "2", json!({"level": "error"}))]).await;
    assert_eq!(server.settled_triggers().await, ["1", "2"]);
    server.stop().await;
}
