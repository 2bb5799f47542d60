//! Rules that wait for windows, over the feed: late documents, changes by users, crashes, the frames that are their clock.

use bytes::Bytes;
use millrace_engine::{Action, Update};
use serde_json::{Value, json};

use crate::fixture::{Server, document, op, until};

const MINUTE: i64 = 60_000;

/// A rule over the sum of a minute, as it is for each host.
fn sums() -> Value {
    json!({
        "name": "sums", "index": "orders", "type": "metric_aggregation", "metric_agg_key": "price", "metric_agg_type": "sum",
        "max_threshold": 10, "bucket_interval": "1m", "query_key": "host", "recovery": true, "query_delay": "1s",
        "search": {"request": {"body": {}}},
    })
}

/// A document of an order at a time, in milliseconds.
fn order(id: &str, at: i64, price: u64) -> millrace_engine::WriteOp {
    document("orders", id, json!({"@timestamp": at, "host": "web", "price": price}))
}

async fn alert(server: &Server) -> Option<Value> {
    let alerts = server.documents("alert").await;
    alerts.into_values().find(|alert| alert["rule_name"] == json!("sums"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_document_revises_the_alert_and_nothing_that_users_have_changed() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::open(dir.path()).await;
    server.create("orders", json!({"mappings": {"properties": {"@timestamp": {"type": "date"}}}})).await;
    server.save(sums()).await;
    let start = (server.engine.clock().now_ms() - 10 * MINUTE).div_euclid(MINUTE) * MINUTE;
    server.write(vec![order("1", start, 6), order("2", start + 1_000, 6)]).await;
    server.write(vec![order("3", start + MINUTE + 5_000, 1)]).await;
    let raised = until(async || alert(&server).await).await;
    assert_eq!(raised["match_body"]["metric_price_sum"], json!(12.0), "{raised}");
    assert_eq!((&raised["holds"], &raised["revised"]), (&json!(true), &Value::Null));
    let id = raised["alert_id"].as_str().unwrap().to_owned();
    let changed =
        Update { doc: Some(json!({"status": "Ongoing", "alert_sent": true}).into()), ..Update::default() };
    server.write(vec![op("alert", &id, Action::Update(Box::new(changed)))]).await;
    // Also one that comes behind a crash.
    for (round, price) in [("4", 3_u64), ("5", 4)] {
        server.write(vec![order(round, start + 2_000, price)]).await;
        let sum = if round == "4" { 15.0 } else { 19.0 };
        let revised = until(async || {
            alert(&server).await.filter(|alert| alert["match_body"]["metric_price_sum"] == json!(sum))
        })
        .await;
        assert_eq!((&revised["revised"], &revised["holds"]), (&json!(true), &json!(true)));
        assert_eq!((&revised["status"], &revised["alert_sent"]), (&json!("Ongoing"), &json!(true)));
        drop(server);
        server = Server::open(dir.path()).await;
    }
    // The next minute is over, and had little.
    server.write(vec![order("6", start + 2 * MINUTE + 5_000, 1)]).await;
    let recovered =
        until(async || alert(&server).await.filter(|alert| alert["recovered"] == json!(true))).await;
    let end = millrace_rules::Time::from_ms(start + 2 * MINUTE).iso();
    assert_eq!((&recovered["recovered_at"], &recovered["status"]), (&json!(end), &json!("Ongoing")));
    server.settled().await;
    let alerts = server.documents("alert").await;
    assert_eq!(alerts.values().filter(|alert| alert["rule_name"] == json!("sums")).count(), 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_late_documents_change_of_an_alert_that_is_gone_makes_none() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path()).await;
    server.create("orders", json!({"mappings": {"properties": {"@timestamp": {"type": "date"}}}})).await;
    server.save(sums()).await;
    let start = (server.engine.clock().now_ms() - 10 * MINUTE).div_euclid(MINUTE) * MINUTE;
    server.write(vec![order("1", start, 16), order("2", start + MINUTE + 5_000, 1)]).await;
    let raised = until(async || alert(&server).await).await;
    let id = raised["alert_id"].as_str().unwrap().to_owned();
    server.write(vec![op("alert", &id, Action::Delete)]).await;
    server.write(vec![order("3", start + 1_000, 5)]).await;
    server.settled().await;
    assert_eq!(alert(&server).await, None);
    let told = server.documents("alert_error").await;
    assert!(told.is_empty(), "{told:?}");
    assert!(server.alerting.faults().is_empty());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_rules_wait_the_log_goes_on_though_nothing_comes() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path()).await;
    let frames = || server.engine.next_frame().unwrap();
    server.save(sums()).await;
    let before = frames();
    until(async || (frames() >= before + 2).then_some(())).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_second_filter_is_asked_with_the_mapping_and_refused_when_it_cannot_be() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path()).await;
    let properties = json!({"@timestamp": {"type": "date"}, "code": {"type": "long"}});
    server.create("answers", json!({"mappings": {"properties": properties}})).await;
    let share = |filter: Value| {
        json!({
            "name": "share", "index": "answers", "type": "percentage_match", "max_percentage": 40,
            "match_bucket_filter": [filter], "bucket_interval": "1m",
            "search": {"request": {"body": {"query": {"range": {"code": {"gte": 100}}}}}},
        })
    };
    let refused =
        server.alerting.change(&server.admin(), share(json!({"range": {"code": {"gte": "many"}}}))).await;
    assert!(refused.is_err(), "{refused:?}");
    server.save(share(json!({"range": {"code": {"gte": 500}}}))).await;
    let start = (server.engine.clock().now_ms() - 10 * MINUTE).div_euclid(MINUTE) * MINUTE;
    let answer = |at: i64, code: Value| {
        let source = json!({"@timestamp": at, "code": code}).to_string();
        op("answers", &format!("{at}"), Action::Index(Bytes::from(source)))
    };
    // Coerced by the mapping: the text is a number. What the first filter does not match is not counted.
    let codes = [json!("503"), json!(500), json!(200), json!(404), json!(1)];
    let answers = codes.into_iter().enumerate().map(|(n, code)| answer(start + n as i64, code));
    server.write(answers.collect()).await;
    server.write(vec![answer(start + 2 * MINUTE, json!(200))]).await;
    let raised = until(async || server.documents("alert").await.into_values().next()).await;
    assert_eq!(raised["match_body"]["percentage"], json!(50.0), "{raised}");
    assert_eq!(raised["match_body"]["denominator"], json!(4));
    server.stop().await;
}
