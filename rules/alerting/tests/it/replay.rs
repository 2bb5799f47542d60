//! A test of a rule reports what the rule has raised; runs and dry runs.
//!
//! `MILLRACE_REPLAY_SEEDS` says how many histories there are (40), `MILLRACE_REPLAY_SEED` which one is the first.

use std::collections::BTreeMap;

use millrace_alerting::{Error, ReplaySubject};
use millrace_catalog::access::{Caller, Principal, Privileges};
use millrace_engine::{Action, WriteOp};
use millrace_rules::Time;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Map, Value, json};

use crate::fixture::{Server, document, errors, op};

const EVER: std::ops::Range<i64> = 0..i64::MAX;

/// A rule of each type over an index, with options as they come.
fn rules(rng: &mut StdRng, index: &str) -> Vec<Value> {
    let types = [
        json!({"type": "any"}),
        json!({"type": "frequency", "num_events": rng.random_range(1..5), "timeframe": "10m"}),
        json!({"type": "cardinality", "cardinality_field": "user", "max_cardinality": 2, "timeframe": "20m"}),
        json!({"type": "blacklist", "compare_key": "user", "blacklist": ["ann", "bob"]}),
        json!({"type": "whitelist", "compare_key": "user", "whitelist": ["ann", "eve"]}),
        json!({"type": "change", "compare_key": "user", "query_key": "host"}),
        json!({"type": "new_term", "fields": ["user", "host"], "terms_window_size": "1h"}),
        json!({"type": "flatline", "threshold": 3, "timeframe": "10m"}),
        json!({"type": "spike", "spike_height": 2, "spike_type": "both", "timeframe": "10m", "threshold_cur": 1}),
        json!({"type": "cardinality", "cardinality_field": "user", "min_cardinality": 3, "timeframe": "20m"}),
        json!({"type": "metric_aggregation", "metric_agg_key": "n", "metric_agg_type": "avg", "max_threshold": 2,
            "bucket_interval": "10m"}),
        json!({"type": "metric_aggregation", "metric_agg_key": "n", "metric_agg_type": "percentiles", "percentile_range": 90,
            "max_threshold": 3, "bucket_interval": "5m"}),
        json!({"type": "percentage_match", "match_bucket_filter": [{"match": {"level": "error"}}], "max_percentage": 40,
            "bucket_interval": "15m"}),
    ];
    let filters = [
        json!({"term": {"level": "error"}}),
        json!({"bool": {"must_not": [{"match": {"level": "info"}}]}}),
        json!({"range": {"n": {"gte": 3}}}),
        json!({"wildcard": {"user.keyword": "*n*"}}),
        // Which documents match goes by the time at which they come.
        json!({"range": {"@timestamp": {"gte": "now-30m"}}}),
        json!({"match_all": {}}),
    ];
    let mut rules = Vec::new();
    for (number, mut rule) in types.into_iter().enumerate() {
        let filter = &filters[rng.random_range(0..filters.len())];
        rule["name"] = json!(format!("{index} {number}"));
        rule["index"] = json!(format!("{index}*"));
        rule["search"] = json!({"request": {"body": {"query": filter}}});
        if rule.get("query_key").is_none() && rng.random_bool(0.5) {
            rule["query_key"] = json!("host");
        }
        if rng.random_bool(0.4) {
            rule["realert"] = json!("5m");
        }
        rule["recovery"] = json!(rng.random_bool(0.5));
        if rng.random_bool(0.2) && rule.get("realert").is_some() {
            rule["exponential_realert"] = json!("1h");
        }
        if rng.random_bool(0.2) {
            rule["include"] = json!(["user"]);
        }
        rules.push(rule);
    }
    rules
}

/// A frame of events, late ones and such of a time to come among them.
fn frame(rng: &mut StdRng, index: &str, now_ms: i64, number: usize) -> Vec<WriteOp> {
    let event = |rng: &mut StdRng, at: usize| {
        let mut event = Map::new();
        if rng.random_bool(0.9) {
            let minutes = rng.random_range(-80..15);
            event.insert("@timestamp".to_owned(), json!(now_ms + minutes * 60_000));
        }
        event.insert("level".to_owned(), json!(["error", "info", "warn"][rng.random_range(0..3)]));
        event.insert("n".to_owned(), json!(rng.random_range(0..6)));
        for (field, values) in [("user", ["ann", "bob", "eve", "dan"]), ("host", ["a", "b", "c", "d"])] {
            let mut value = || json!(values[rng.random_range(0..4)]);
            let value = [value(), json!([value(), value()]), Value::Null];
            event.insert(field.to_owned(), value[[0, 0, 0, 1, 2][rng.random_range(0..5)]].clone());
        }
        let index = format!("{index}-{}", rng.random_range(0..2));
        document(&index, &format!("{number}-{at}"), Value::Object(event))
    };
    let events = rng.random_range(1..25);
    (0..events).map(|at| event(rng, at)).collect()
}

/// The alerts of each rule, by id.
async fn raised(server: &Server) -> BTreeMap<String, BTreeMap<String, Value>> {
    let mut raised: BTreeMap<String, BTreeMap<String, Value>> = BTreeMap::new();
    for (id, alert) in server.documents("alert").await {
        let rule = alert["rule_id"].as_str().unwrap().to_owned();
        raised.entry(rule).or_default().insert(id, alert);
    }
    raised
}

async fn test(server: &Server, tested: ReplaySubject) -> BTreeMap<String, Value> {
    test_of(server, tested, EVER).await
}

async fn test_of(
    server: &Server,
    tested: ReplaySubject,
    times: std::ops::Range<i64>,
) -> BTreeMap<String, Value> {
    let found = server.alerting.test(&server.admin(), tested, times).await.unwrap();
    assert_eq!((found.more, &found.problems), (0, &Vec::new()));
    found.alerts.into_iter().map(|alert| (alert.id, alert.document)).collect()
}

/// Histories that one server has: its rules and documents are all there until its end.
const OF_A_SERVER: u64 = 40;

#[tokio::test(flavor = "multi_thread")]
async fn a_test_says_what_the_rule_has_raised() {
    let number = |name: &str, without| std::env::var(name).map_or(without, |number| number.parse().unwrap());
    let (first, seeds) = (number("MILLRACE_REPLAY_SEED", 0), number("MILLRACE_REPLAY_SEEDS", OF_A_SERVER));
    let mut alerts = 0;
    for seed in (first..first + seeds).step_by(OF_A_SERVER as usize) {
        alerts += of_seeds(seed..(seed + OF_A_SERVER).min(first + seeds)).await;
    }
    println!("{alerts} alerts of {seeds} histories are what tests say");
}

async fn of_seeds(seeds: std::ops::Range<u64>) -> usize {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::open(dir.path()).await;
    let mut ids = Vec::new();
    for seed in seeds {
        let mut rng = StdRng::seed_from_u64(seed);
        let index = format!("seed{seed}x");
        let fields = json!({"properties": {"@timestamp": {"type": "date"}}});
        let shards = rng.random_range(1..4);
        let body = json!({"settings": {"index.number_of_shards": shards}, "mappings": fields});
        server.create(&format!("{index}-0"), body).await;
        for rule in rules(&mut rng, &index) {
            ids.push((seed, server.save(rule).await.id));
        }
        let now_ms = server.engine.clock().now_ms();
        for number in 0..rng.random_range(4..12) {
            server.write(frame(&mut rng, &index, now_ms, number)).await;
        }
    }
    // Windows that close later, because time goes on, are none of it.
    let until = server.settled().await + 1;
    let mut raised = raised(&server).await;
    for alerts in raised.values_mut() {
        alerts.retain(|_, alert| Time::read(&alert["alert_time"]).unwrap().ms() < until);
    }
    assert!(raised.len() > ids.len() / 2, "most rules have raised something");
    let revised = raised.values().flat_map(BTreeMap::values).filter(|alert| alert["revised"] == true).count();
    assert!(revised > 0, "some alerts are revised");
    let none = BTreeMap::new();
    for way in ["as they are", "stored and merged", "after a restart"] {
        for (seed, id) in &ids {
            let tested = test_of(&server, ReplaySubject::Stored(id.clone()), 0..until).await;
            let live = raised.get(id).unwrap_or(&none);
            assert_eq!(&tested, live, "{way}: {}, MILLRACE_REPLAY_SEED={seed}", server.shown(id));
        }
        if way == "stored and merged" {
            // Nothing is in memory or in the log that would be needed.
            server.stop().await;
            server = Server::open(dir.path()).await;
            continue;
        }
        let indices: Vec<_> = server
            .engine
            .metadata()
            .indices()
            .filter_map(|meta| server.engine.index(&meta.name).ok())
            .collect();
        server.engine.flush(&indices).await.unwrap();
        server.engine.force_merge(&indices, 1).await.unwrap();
    }
    server.stop().await;
    raised.values().map(BTreeMap::len).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_writes_the_alerts_that_are_missing_and_leaves_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path()).await;
    let event = |id: &str| document("logs", id, json!({"level": "error"}));
    server.write(vec![event("before"), document("logs", "other", json!({"level": "info"}))]).await;
    let id = server.save(errors("errors")).await.id;
    server.write(vec![event("live")]).await;
    assert_eq!(server.settled_triggers().await, ["live"]);
    let now = server.engine.clock().now_ms() + 1;
    let admin = server.admin();
    let ran = server.alerting.run(&admin, &id, None, now).await.unwrap();
    assert_eq!((ran.alerts, ran.created), (2, 1), "{:?}", ran.problems);
    assert_eq!(server.settled_triggers().await, ["before", "live"]);
    let again = server.alerting.run(&admin, &id, None, now).await.unwrap();
    assert_eq!((again.alerts, again.created), (2, 0));
    // Of another time there is nothing.
    let earlier = server.alerting.run(&admin, &id, Some(0), 1_000).await.unwrap();
    assert_eq!((earlier.alerts, earlier.created), (0, 0));
    assert!(matches!(server.alerting.run(&admin, "none", None, now).await, Err(Error::NotFound(_))));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_tells_what_a_change_adds_and_removes_and_stores_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path()).await;
    let id = server.save(errors("levels")).await.id;
    let of = |id: &str, level: &str| document("logs", id, json!({"level": level, "n": 1}));
    server.write(vec![of("1", "error"), of("2", "error fatal"), of("3", "fatal")]).await;
    let mut changed = errors("levels");
    changed["search"]["request"]["body"]["query"] = json!({"match": {"level": "fatal"}});
    let difference = server.alerting.dry_run(&server.admin(), changed.clone(), EVER).await.unwrap();
    let triggers = |found: &millrace_alerting::ReplayedAlerts| -> Vec<Value> {
        found.alerts.iter().map(|alert| alert.document["trigger"]["_id"].clone()).collect()
    };
    assert_eq!(difference.id.as_deref(), Some(&*id));
    assert_eq!(triggers(&difference.adds), [json!("3")]);
    assert_eq!(triggers(&difference.removes), [json!("1")]);
    changed["name"] = json!("another");
    let difference = server.alerting.dry_run(&server.admin(), changed, EVER).await.unwrap();
    assert_eq!(difference.id, None);
    assert_eq!(triggers(&difference.adds), [json!("2"), json!("3")]);
    assert_eq!(server.alerting.list(&server.admin()).len(), 1);
    assert_eq!(server.shown(&id)["search"]["request"]["body"], errors("")["search"]["request"]["body"]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_test_sees_what_its_asker_sees_and_what_is_wrong_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path()).await;
    server
        .write(vec![document("logs", "1", json!({"level": "error"})), op("logs", "2", Action::Delete)])
        .await;
    let tested = test(&server, ReplaySubject::Written(errors("errors"))).await;
    assert_eq!(tested.len(), 1);
    assert!(server.documents("alert").await.is_empty(), "nothing is written");
    assert!(server.alerting.list(&server.admin()).is_empty());
    let refused = async |asker: &Principal, rule: Value| {
        server.alerting.test(asker, ReplaySubject::Written(rule), EVER).await.unwrap_err().to_string()
    };
    let mut unknown = errors("errors");
    unknown["colour"] = json!("red");
    assert!(refused(&server.admin(), unknown).await.contains("[colour]"));
    let mut scored = errors("errors");
    scored["search"]["request"]["body"]["min_score"] = json!(1);
    assert!(refused(&server.admin(), scored).await.contains("min_score"));
    let key = Caller::ApiKey { id: "k".into(), name: "k".into(), owner: "admin".into() };
    let key = Principal::new(key, Vec::new(), std::sync::Arc::new(Privileges::unrestricted()));
    assert!(refused(&key, errors("errors")).await.contains("API key"));
    server.stop().await;
}

#[tokio::test]
async fn a_cancelled_test_of_a_rule_ends() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::open(dir.path()).await;
    server.create("logs", json!({})).await;
    for number in 0..20 {
        let event = json!({"level": "error", "n": number});
        server.write(vec![document("logs", &number.to_string(), event)]).await;
    }
    let saved = server.save(errors("logs")).await;
    let admin = server.admin();
    let test = server.alerting.test(&admin, ReplaySubject::Stored(saved.id.clone()), EVER);
    let cancellation = async {
        loop {
            let tasks = server.engine.tasks();
            let listed = tasks.list();
            if let Some(replay) = listed.iter().find(|task| task.action == "cluster:console/alert/replay") {
                assert!(replay.is_cancellable, "{replay:?}");
                tasks.cancel(replay.id, "enough");
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    let (outcome, ()) = tokio::join!(test, cancellation);
    assert!(
        matches!(&outcome, Err(Error::Conflict(reason)) if reason == "task cancelled [enough]"),
        "{outcome:?}"
    );
    assert_eq!(test_of(&server, ReplaySubject::Stored(saved.id), EVER).await.len(), 20);
}
