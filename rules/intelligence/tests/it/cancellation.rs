//! Runs of AI rules are tasks that a cancellation ends.

use serde_json::{Value, json};

use crate::detectors::{detector, open, results, save, usual, with};
use crate::fixture::{START, Server, rule};

/// Runs a rule, and cancels its task as soon as it is listed; returns the reason of its end.
async fn run_cancelled(server: &Server, id: &str) -> String {
    let cancellation = async {
        loop {
            let tasks = server.engine.tasks();
            let listed = tasks.list();
            let run = listed.iter().find(|task| task.action == "cluster:console/intelligence/run");
            if let Some(run) = run {
                assert!(run.is_cancellable, "{run:?}");
                tasks.cancel(run.id, "enough");
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    let (outcome, ()) = tokio::join!(server.run(id), cancellation);
    assert_eq!(server.engine.tasks().list().len(), 0);
    outcome.unwrap_err().to_string()
}

fn assert_cancelled(server: &Server, id: &str, reason: &str) {
    assert!(reason.contains("task cancelled [enough]"), "{reason}");
    let shown = server.shown(id);
    assert_eq!((&shown["pid"], &shown["exit_code"]), (&json!(0), &json!(1)), "{shown}");
}

#[tokio::test]
async fn a_cancelled_run_of_a_detector_leaves_no_model_and_can_be_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let server = open(dir.path(), START).await;
    usual(&server, 200, START).await;
    let clusters = json!({"model_type": "clustering", "algorithm": "hdbscan", "min_samples": 10});
    for (name, members) in [("rows", json!({})), ("clusters", clusters)] {
        let by_hand = json!({"automatic": false, "index": "logs"});
        let by_hand = with(with(detector(name), members), by_hand);
        let id = save(&server, by_hand).await;
        let reason = run_cancelled(&server, &id).await;
        assert_cancelled(&server, &id, &reason);
        let of_rule = |results: &Value| results["ai"]["rule_uid"] == json!(id);
        assert!(!results(&server, "logs-").await.values().any(of_rule));
        let built = server.run(&id).await.unwrap();
        assert!(built.contains("200 results are written"), "{built}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_cancelled_run_of_a_forecast_ends_and_can_be_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let mut by_hand = rule("load");
    (by_hand["automatic"], by_hand["algorithm_type"]) = (json!(false), json!("RFRS"));
    let (server, id) = Server::with_rule(dir.path(), 120, by_hand).await;
    let reason = run_cancelled(&server, &id).await;
    assert_cancelled(&server, &id, &reason);
    assert!(server.predictions().await.is_empty());
    server.run(&id).await.unwrap();
    assert!(!server.predictions().await.is_empty());
    server.stop().await;
}
