//! Each event that arrives is reported once, through all crashes in between. `ALERTING_SEED` says where crashes come.

use std::time::Duration;

use millrace_engine::Action;
use millrace_runtime::Instant;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;

use crate::fixture::{Server, document, errors, op, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_document_that_matches_is_told_with_the_event_that_proves_it() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path()).await;
    let id = server.save(errors("errors")).await.id;
    let at = "2026-11-25T10:00:00Z";
    server
        .write(vec![
            document("logs-a", "1", json!({"level": "info"})),
            document("logs-a", "2", json!({"level": "error", "@timestamp": at, "host": {"name": "web"}})),
            document("other", "3", json!({"level": "error"})),
        ])
        .await;
    assert_eq!(server.settled_triggers().await, ["2"]);
    let alerts = server.documents("alert").await;
    let alert = alerts.values().find(|alert| alert["rule_id"] == json!(id)).unwrap();
    assert_eq!(alert["@timestamp"], json!("2026-11-25T10:00:00.000Z"));
    assert_eq!(alert["match_body"]["host"]["name"], json!("web"));
    assert_eq!(alert["events"][0]["_index"], json!("logs-a"));
    let record = server.shown(&id);
    assert_eq!(record["error"], json!(null), "{record}");
    assert!(record["last_alert"].is_string() && record["last_run"].is_string(), "{record}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn alerts_are_there_once_each_over_restarts_and_crashes() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::open(dir.path()).await;
    server.create("logs", json!({"settings": {"index.number_of_shards": 3}})).await;
    server.save(errors("errors")).await;
    let triples = json!({
        "name": "triples", "index": "logs", "type": "frequency", "num_events": 3, "timeframe": "1d",
        "query_key": "host", "search": {"request": {"body": {"query": {"match": {"level": "info"}}}}},
    });
    let triples = server.save(triples).await.id;
    let seed = std::env::var("ALERTING_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
    let mut rng = SmallRng::seed_from_u64(seed);
    let (mut expected, mut infos) = (Vec::new(), [0_usize; 4]);
    for round in 0..12 {
        for bulk in 0..rng.random_range(1..6) {
            let ops = (0..rng.random_range(1..30)).map(|n| {
                let id = format!("{round}-{bulk}-{n}");
                let host = rng.random_range(0..4);
                let level = if rng.random_bool(0.3) { "error" } else { "info" };
                match level {
                    "error" => expected.push(id.clone()),
                    _ => infos[host] += 1,
                }
                document("logs", &id, json!({"level": level, "host": format!("h{host}")}))
            });
            server.write(ops.collect()).await;
        }
        match rng.random_range(0..4) {
            0 => {
                server.stop().await;
                server = Server::open(dir.path()).await;
            }
            1 | 2 => {
                // In the midst of it, as often as not.
                if rng.random_bool(0.5) {
                    until(async || (!server.triggers().await.is_empty()).then_some(())).await;
                }
                drop(server);
                server = Server::open(dir.path()).await;
            }
            _ => {}
        }
    }
    server.settled().await;
    let alerts = server.documents("alert").await;
    let of =
        |rule: &str| alerts.values().filter(|alert| alert["rule_name"] == json!(rule)).collect::<Vec<_>>();
    let mut told: Vec<_> =
        of("errors").iter().map(|alert| alert["trigger"]["_id"].as_str().unwrap().to_owned()).collect();
    told.sort();
    expected.sort();
    assert_eq!(told, expected);
    // Three events are one alert, and each event is in one.
    for (host, events) in infos.iter().enumerate() {
        let of_host = of("triples").iter().filter(|a| a["key"] == json!(format!("h{host}"))).count();
        assert_eq!(of_host, events / 3, "of h{host}");
    }
    assert!(server.shown(&triples)["error"].is_null());
    assert!(server.documents("alert_error").await.is_empty());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_is_never_refreshed_alerts_and_the_alert_is_found_by_searches_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path()).await;
    server.create("logs", json!({"settings": {"index.refresh_interval": "-1"}})).await;
    server.save(errors("errors")).await;
    server.write(vec![document("logs", "0", json!({"level": "error"}))]).await;
    let found = async || {
        let alert = server.engine.index("alert").ok()?;
        let docs: u64 = alert.figures().shards.iter().map(|shard| shard.docs).sum();
        (docs > 0).then_some(docs)
    };
    until(found).await;
    // The index and all code are there now. Some may find other tests at work.
    let mut quickest = Duration::MAX;
    for number in 1..=10 {
        let began = Instant::now();
        server.write(vec![document("logs", &number.to_string(), json!({"level": "error"}))]).await;
        until(async || found().await.filter(|docs| *docs == number + 1)).await;
        quickest = quickest.min(began.elapsed());
    }
    assert!(quickest < Duration::from_secs(1), "{quickest:?}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_deleted_at_once_is_told_and_what_is_written_again_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path()).await;
    server.save(errors("errors")).await;
    let error = || json!({"level": "error"});
    server.write(vec![document("logs", "gone", error()), op("logs", "gone", Action::Delete)]).await;
    server.write((0..5).map(|_| document("logs", "five", error())).collect()).await;
    server.write(vec![document("logs", "five", error())]).await;
    assert_eq!(server.settled_triggers().await, ["five", "gone"]);
    // Created once more it is another event.
    server.write(vec![document("logs", "gone", error())]).await;
    assert_eq!(server.settled_triggers().await, ["five", "gone", "gone"]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_rules_make_fifty_alerts_of_one_document() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path()).await;
    for rule in 0..50 {
        server.save(errors(&format!("rule {rule}"))).await;
    }
    server.write(vec![document("logs", "1", json!({"level": "error"}))]).await;
    assert_eq!(server.settled_triggers().await, vec!["1"; 50]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_than_is_written_at_once_is_there_once_each_over_a_crash() {
    const EVENTS: usize = 3_000;
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path()).await;
    for rule in ["a", "b", "c"] {
        server.save(errors(rule)).await;
    }
    // One frame, of which each rule raises more than is written at once.
    let text = "x".repeat(4 << 10);
    let event = |n: usize| document("logs", &n.to_string(), json!({"level": "error", "text": text}));
    server.write((0..EVENTS).map(event).collect()).await;
    until(async || (!server.documents("alert").await.is_empty()).then_some(())).await;
    drop(server);
    let server = Server::open(dir.path()).await;
    let mut triggers = server.settled_triggers().await;
    assert_eq!(triggers.len(), 3 * EVENTS);
    triggers.dedup();
    assert_eq!(triggers.len(), EVENTS);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hits_of_a_window_are_not_cut() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path()).await;
    let many = json!({
        "name": "many", "index": "logs", "type": "frequency", "num_events": 25_000, "timeframe": "1h",
        "search": {"request": {"body": {"query": {"term": {"n": 1}}}}},
    });
    server.save(many).await;
    for bulk in 0..5 {
        let ops = (0..5_000).map(|n| document("logs", &format!("{bulk}-{n}"), json!({"n": 1})));
        server.write(ops.collect()).await;
    }
    server.settled().await;
    let alerts = server.documents("alert").await;
    let alert: Vec<_> = alerts.values().filter(|alert| alert["rule_name"] == json!("many")).collect();
    assert_eq!(alert.len(), 1);
    assert_eq!(alert[0]["event_count"], json!(25_000));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_that_watch_alerts_their_own_among_them_come_to_an_end() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path()).await;
    server.save(errors("errors")).await;
    let watcher = json!({
        "name": "watcher", "index": "alert", "type": "any", "allow_alerts": true,
        "search": {"request": {"body": {"query": {"terms": {"rule_name.keyword": ["errors", "watcher"]}}}}},
    });
    server.save(watcher).await;
    server.write(vec![document("logs", "1", json!({"level": "error"}))]).await;
    let depths = async || {
        let alerts = server.documents("alert").await;
        let depth = |alert: &serde_json::Value| alert["depth"].as_u64().unwrap();
        let mut depths: Vec<u64> =
            alerts.values().filter(|alert| alert["rule_name"] == json!("watcher")).map(depth).collect();
        depths.sort_unstable();
        depths
    };
    until(async || (depths().await.len() == 3).then_some(())).await;
    server.settled().await;
    assert_eq!(depths().await, [2, 3, 4]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn event_times_are_read_by_the_format_of_the_mapping() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path()).await;
    let format = "epoch_second||dd/MMM/yyyy:HH:mm:ss Z";
    let properties = json!({"@timestamp": {"type": "date", "format": format}});
    server.create("logs", json!({"mappings": {"properties": properties}})).await;
    server.save(errors("errors")).await;
    let times = [json!(1_606_812_946), json!("1606812946"), json!("01/Dec/2020:09:55:46 +0100")];
    let events = times
        .iter()
        .enumerate()
        .map(|(n, time)| document("logs", &n.to_string(), json!({"level": "error", "@timestamp": time})));
    server.write(events.collect()).await;
    assert_eq!(server.settled_triggers().await, ["0", "1", "2"]);
    for alert in server.documents("alert").await.into_values() {
        if alert["trigger"]["_index"] == json!("logs") {
            assert_eq!(alert["@timestamp"], json!("2020-12-01T08:55:46.000Z"), "{alert}");
        }
    }
    server.stop().await;
}
