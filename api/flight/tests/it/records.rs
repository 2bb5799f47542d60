//! Records of calls: durations by method and status.

use std::collections::HashMap;

use serde_json::json;
use tonic::Code;

use crate::support::{Node, code, run};

/// Returns how many calls of Flight's listener there were by method and class of the status.
fn counts(node: &Node) -> HashMap<(&'static str, &'static str), u64> {
    let series = node.listener.node.requests.snapshot().into_iter();
    let series = series.filter(|(series, _)| series.listener == "flight");
    series
        .map(|(series, durations)| {
            let method = series.route.rsplit('/').next().unwrap_or_default();
            ((method, series.status), durations.count)
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_counted_by_method_and_status() {
    let node = Node::start().await;
    node.index("logs", json!({ "n": { "type": "long" } }), &[json!({ "n": 1 })]).await;
    let mut stranger = node.connect().await;
    assert_eq!(code(run(&mut stranger, "SELECT n FROM logs").await), Code::Unauthenticated);
    let mut client = node.admin().await;
    run(&mut client, "SELECT n FROM logs").await.unwrap();
    run(&mut client, "SELECT FROM WHERE").await.unwrap_err();
    let counts = counts(&node);
    assert_eq!(counts.get(&("GetFlightInfo", "4xx")), Some(&2), "{counts:?}");
    assert_eq!(counts.get(&("GetFlightInfo", "2xx")), Some(&1), "{counts:?}");
    assert_eq!(counts.get(&("DoGet", "2xx")), Some(&1), "{counts:?}");
}
