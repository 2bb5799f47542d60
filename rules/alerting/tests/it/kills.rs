//! `kill -9` at random points under load: afterwards there are exactly the alerts that a process computes which nobody killed.
//!
//! The test runs itself as the process that is killed: rules at work, writers, and somebody who saves rules and begins new
//! revisions of them. A lease of its own keeps the whole log. In the end the data directory is copied, and the alerts are
//! computed of the copy's log from its first frame, in one go and from no state.
//!
//! `MILLRACE_RULE_KILLS` says how often it is killed (20), `MILLRACE_RULE_SEED` what everything follows from but the moments
//! at which the kernel does what.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millrace_catalog::access::{Caller, Principal, Privileges};
use millrace_engine::{Action, Config, RefreshPolicy, WriteOp};
use millrace_runtime::Instant;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use crate::fixture::{Server, op, open_engine, until};

/// Data directory of the process that is killed.
const DIRECTORY: &str = "MILLRACE_RULE_KILLS_DIRECTORY";
/// Seed of its load.
const LOAD: &str = "MILLRACE_RULE_KILLS_LOAD";
/// Output of the process once rules are where they were before.
const READY: &str = "rules are ready after ms: ";
/// Time that rules may take to be there again, in a debug build beside other tests.
const LONGEST_START: Duration = Duration::from_secs(30);
const WRITERS: u64 = 3;
/// Rules that are saved under load, and by whose names they are known.
const SAVED: u64 = 12;

fn config(dir: &Path) -> Config {
    // Eight times as much is what the lease of the whole log holds.
    let wal_max_bytes = (kills() << 20).max(8 << 20);
    Config { data_dir: dir.to_owned(), wal_max_bytes, ..Config::default() }
}

fn kills() -> u64 {
    std::env::var("MILLRACE_RULE_KILLS").map_or(20, |kills| kills.parse().unwrap())
}

fn rules() -> Vec<Value> {
    let mut rules = [
        json!({"type": "any"}),
        json!({"type": "frequency", "num_events": 4, "timeframe": "10m", "query_key": "host"}),
        json!({"type": "frequency", "num_events": 6, "timeframe": "30m", "query_key": "user", "realert": "5m",
            "exponential_realert": "1h", "attach_related": true}),
        json!({"type": "cardinality", "cardinality_field": "user", "max_cardinality": 3, "timeframe": "20m",
            "query_key": "host", "realert": "2m"}),
        json!({"type": "blacklist", "compare_key": "user", "blacklist": ["u1", "u2"], "realert": "1m"}),
        json!({"type": "whitelist", "compare_key": "host", "whitelist": ["h1", "h2", "h3", "h4", "h5"]}),
        json!({"type": "change", "compare_key": "user", "query_key": "host", "realert": "3m"}),
        json!({"type": "frequency", "num_events": 3, "timeframe": "1h", "query_key": ["host", "user"],
            "include_updates": true}),
    ];
    for (number, rule) in rules.iter_mut().enumerate() {
        rule["name"] = json!(format!("rule {number}"));
        rule["index"] = json!("logs-*");
        let filter = match number {
            0 => json!({"bool": {"filter": [{"term": {"level": "fatal"}}, {"range": {"n": {"gte": 50}}}]}}),
            _ => json!({"term": {"level": "error"}}),
        };
        rule["search"] = json!({"request": {"body": {"query": filter}}});
    }
    rules.to_vec()
}

/// A rule that is saved under load, now as this, now as that.
fn saved(rng: &mut StdRng) -> Value {
    let number = rng.random_range(0..SAVED);
    json!({
        "name": format!("saved {number}"), "index": "logs-*", "type": "frequency", "query_key": "host",
        "num_events": rng.random_range(2..6), "timeframe": "5m",
        "search": {"request": {"body": {"query": {"term": {"level": "warn"}}}}},
    })
}

/// One frame: events over shards and indices, late ones, some written again, some deleted.
fn frame(rng: &mut StdRng, writer: u64, now_ms: i64) -> Vec<WriteOp> {
    let operations = rng.random_range(1..25);
    let one = |rng: &mut StdRng| {
        let index = format!("logs-{}", rng.random_range(0..2));
        let id = format!("{writer}-{}", rng.random_range(0..4_000));
        if rng.random_bool(0.1) {
            return op(&index, &id, Action::Delete);
        }
        let level = ["error", "warn", "info", "fatal"][rng.random_range(0..4)];
        let event = json!({
            "@timestamp": now_ms - rng.random_range(0..7_200_000),
            "level": level,
            "host": format!("h{}", rng.random_range(0..8)),
            "user": format!("u{}", rng.random_range(0..10)),
            "n": rng.random_range(0..100),
        });
        op(&index, &id, Action::Index(Bytes::from(event.to_string())))
    };
    (0..operations).map(|_| one(rng)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_moment_rules_raise_what_they_raise_undisturbed() {
    let seed =
        std::env::var("MILLRACE_RULE_SEED").map_or_else(|_| rand::random(), |seed| seed.parse().unwrap());
    println!("MILLRACE_RULE_SEED={seed}, {} kills", kills());
    let mut rng = StdRng::seed_from_u64(seed);
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    begin(&data).await;
    let mut longest = Duration::ZERO;
    for kill in 0..kills() {
        let mut process = Process::start(&data, rng.random());
        // Mostly at work, now and then while it starts.
        if rng.random_bool(0.8) {
            longest = longest.max(process.ready());
        }
        let moment = Duration::from_micros(rng.random_range(0..1_200_000));
        tokio::time::sleep(moment).await;
        process.kill(&format!("seed {seed}, kill {kill}"));
    }
    println!("rules were at work again within {} ms", longest.as_millis());
    assert!(longest < LONGEST_START, "seed {seed}: a start took {} ms", longest.as_millis());

    let server = Server::open_with(config(&data)).await;
    server.settled().await;
    assert_eq!(server.alerting.faults(), Vec::<String>::new(), "seed {seed}");
    server.stop().await;
    let copy = dir.path().join("copy");
    copied(&data, &copy);
    compare(&copy, seed).await;
}

/// Makes the indices and rules, and has the log kept.
async fn begin(data: &Path) {
    let server = Server::open_with(config(data)).await;
    server.engine.take_lease("check", Some(1)).await.unwrap();
    let keyword = json!({"type": "keyword"});
    let properties = json!({"@timestamp": {"type": "date"}, "level": keyword, "host": keyword, "user": keyword,
        "n": {"type": "integer"}});
    for (number, shards) in [(0, 2), (1, 3)] {
        let body =
            json!({"settings": {"index.number_of_shards": shards}, "mappings": {"properties": properties}});
        server.create(&format!("logs-{number}"), body).await;
    }
    for rule in rules() {
        server.save(rule).await;
    }
    server.stop().await;
}

/// Compares the alerts of a store with what its log says that there have to be.
async fn compare(copy: &Path, seed: u64) {
    let server = Server::open_with(config(copy)).await;
    let shown = |record: millrace_alerting::Record| {
        let value = record.value();
        (value["id"].as_str().unwrap().to_owned(), value["revision"].as_u64().unwrap())
    };
    let revisions: BTreeMap<String, u64> =
        server.alerting.list(&server.admin()).into_iter().map(shown).collect();
    let mut raised = server.documents("alert").await;
    raised.retain(|_, alert| {
        let rule = alert["rule_id"].as_str().unwrap();
        revisions.get(rule).copied() == alert["rule_revision"].as_u64()
    });
    let mut computed: BTreeMap<String, Value> = BTreeMap::new();
    millrace_alerting::recompute(&server.engine, &server.accounts, 1, |alert| {
        assert!(computed.insert(alert.id, alert.document).is_none(), "seed {seed}: an alert is raised once");
    })
    .await
    .unwrap();
    let types: BTreeSet<&str> = computed.values().filter_map(|alert| alert["rule_type"].as_str()).collect();
    println!("{} rules, {} alerts of types {types:?}", revisions.len(), computed.len());
    for (id, alert) in &raised {
        assert_eq!(computed.get(id), Some(alert), "seed {seed}: [{id}] was raised, undisturbed it is not so");
    }
    for (id, alert) in &computed {
        assert!(raised.contains_key(id), "seed {seed}: [{id}] is missing: {alert}");
    }
    assert!(raised.len() > 100 && types.len() >= 6, "seed {seed}: rules were at work");
    server.stop().await;
}

fn copied(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        match entry.file_type().unwrap().is_dir() {
            true => copied(&from, &to),
            false => drop(std::fs::copy(&from, &to).unwrap()),
        }
    }
}

/// The process that is killed.
struct Process {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
}

impl Process {
    fn start(data: &Path, load: u64) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kills::under_load", "--ignored", "--nocapture", "--test-threads", "1"])
            .env(DIRECTORY, data)
            .env(LOAD, load.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self { child, out }
    }

    /// Waits until rules are at work, and returns how long they took.
    fn ready(&mut self) -> Duration {
        let mut line = String::new();
        while self.out.read_line(&mut line).unwrap() > 0 {
            if let Some(at) = line.find(READY) {
                return Duration::from_millis(line[at + READY.len()..].trim().parse().unwrap());
            }
            line.clear();
        }
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        panic!("the process ended before rules were at work: {said}");
    }

    fn kill(mut self, when: &str) {
        if let Some(status) = self.child.try_wait().unwrap() {
            let mut said = String::new();
            self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            panic!("{when}: the process ended by itself with {status}: {said}");
        }
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Runs the process that is killed; without its variables it does nothing.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by the test above"]
async fn under_load() {
    let Ok(data) = std::env::var(DIRECTORY) else { return };
    let load: u64 = std::env::var(LOAD).unwrap().parse().unwrap();
    // What the store needs for its own start is not the rules'.
    let engine = open_engine(config(Path::new(&data))).await;
    let began = Instant::now();
    let server = Arc::new(Server::over(engine).await);
    for writer in 0..WRITERS {
        let (server, mut rng) = (Arc::clone(&server), StdRng::seed_from_u64(load.wrapping_add(writer)));
        tokio::spawn(async move {
            loop {
                write(&server, &mut rng, writer).await;
            }
        });
    }
    // Who changes rules waits for them to be where they were.
    let saved_first =
        until(async || server.alerting.change(&server.admin(), rules().remove(0)).await.ok()).await;
    assert!(!saved_first.created);
    println!("\n{READY}{}", began.elapsed().as_millis());
    let mut rng = StdRng::seed_from_u64(load.wrapping_add(WRITERS));
    loop {
        server.save(saved(&mut rng)).await;
        tokio::time::sleep(Duration::from_millis(rng.random_range(0..200))).await;
    }
}

async fn write(server: &Server, rng: &mut StdRng, writer: u64) {
    let user = Principal::new(Caller::User("ann".into()), Vec::new(), Arc::new(Privileges::unrestricted()));
    let ops = frame(rng, writer, server.engine.clock().now_ms());
    // Busy answers are fine: what the log has is what counts.
    let _ = server.engine.write(&user, ops, RefreshPolicy::None, Duration::from_secs(5)).await;
    if rng.random_bool(0.01) {
        let index = server.engine.index(&format!("logs-{}", rng.random_range(0..2))).unwrap();
        match rng.random_bool(0.8) {
            true => server.engine.flush(&[index]).await.unwrap(),
            false => server.engine.force_merge(&[index], 1).await.unwrap(),
        }
    }
    tokio::time::sleep(Duration::from_millis(rng.random_range(0..6))).await;
}
