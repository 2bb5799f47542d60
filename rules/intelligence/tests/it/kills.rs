//! `kill -9` at random points while detectors score: afterwards each document that arrived has one result of each detector.
//!
//! The test runs itself as the process that is killed: writers, and two detectors at work. `MILLRACE_AI_KILLS` is the number of kills
//! (8), `MILLRACE_AI_SEED` decides everything but the moments at which the kernel does what.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millrace_engine::{Action, RefreshPolicy, WriteOp};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::detectors::{Numbers, detector, open, save, with, write_all};
use crate::fixture::{START, Server, until};

/// Data directory of the process that is killed.
const DIRECTORY: &str = "MILLRACE_AI_KILLS_DIRECTORY";
/// Seed of its load.
const LOAD: &str = "MILLRACE_AI_KILLS_LOAD";
/// Output of the process once both detectors score.
const READY: &str = "detectors are at work";
const WRITERS: u64 = 2;
/// Documents of the training window.
const TRAINED: i64 = 400;

fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap())
}

/// Returns a number from 0 to below a bound.
fn below(numbers: &mut Numbers, bound: u64) -> u64 {
    (numbers.next() * bound as f64) as u64
}

fn document(numbers: &mut Numbers, at_ms: i64) -> Value {
    let bytes = 1_000.0 + 100.0 * numbers.next();
    let message = match below(numbers, 3) {
        0 => format!("request {} served", below(numbers, 1_000)),
        1 => format!("user u{} logged in", below(numbers, 50)),
        _ => "cache entry evicted".to_owned(),
    };
    json!({"@timestamp": at_ms, "bytes": bytes, "took": 50.0 + numbers.next(), "message": message})
}

#[tokio::test(flavor = "multi_thread")]
async fn each_document_is_scored_once_whenever_the_process_is_killed() {
    let kills = number_from("MILLRACE_AI_KILLS").unwrap_or(8);
    let seed = number_from("MILLRACE_AI_SEED").unwrap_or_else(|| uuid::Uuid::new_v4().as_u128() as u64 >> 16);
    println!("MILLRACE_AI_SEED={seed}, {kills} kills");
    let mut numbers = Numbers(seed);
    let dir = tempfile::tempdir().unwrap();
    let ids = begin(dir.path()).await;
    for kill in 0..kills {
        let mut process = Process::start(dir.path(), seed.wrapping_add(kill << 8));
        // Mostly at work, now and then while it starts.
        if below(&mut numbers, 5) > 0 {
            process.wait_until_ready();
        }
        sleep(Duration::from_micros(below(&mut numbers, 400_000))).await;
        process.kill(&format!("seed {seed}, kill {kill}"));
    }
    let server = Server::reopen(dir.path(), START).await;
    let written = arrived(&server).await;
    for id in &ids {
        let counts = until_all_scored(&server, id, &written).await;
        for (document, count) in &counts {
            assert!(written.contains(document), "seed {seed}: [{document}] was never written");
            assert_eq!(*count, 1, "seed {seed}: results of [{document}]");
        }
        assert_eq!(server.shown(id)["status"], "Scoring", "seed {seed}");
    }
    println!("{} documents, each scored once by {} detectors", written.len(), ids.len());
    assert!(written.len() > 20, "seed {seed}: writers were at work");
    server.stop().await;
}

/// Waits until each document has a result of a detector, for as long as results come.
async fn until_all_scored(server: &Server, id: &str, written: &BTreeSet<String>) -> BTreeMap<String, usize> {
    let mut before = 0;
    loop {
        let what = format!("more than {before} results of {} documents: {}", written.len(), server.shown(id));
        let counts = until(&what, async || {
            let counts = count_results(server, id).await;
            (counts.len() > before || counts.len() >= written.len()).then_some(counts)
        })
        .await;
        if written.iter().all(|document| counts.contains_key(document)) {
            return counts;
        }
        before = counts.len();
    }
}

/// Trains the detectors; returns their ids.
async fn begin(directory: &Path) -> [String; 2] {
    let server = open(directory, START).await;
    let mut numbers = Numbers(3);
    let trained =
        (0..TRAINED).map(|one| (format!("trained {one}"), document(&mut numbers, START - 60_000 - one)));
    write_all(&server, "logs", trained.collect()).await;
    let rows = save(&server, detector("rows")).await;
    let text = json!({"model_type": "text", "fields": null, "field": "message", "min_documents": 50});
    let lines = save(&server, with(detector("lines"), text)).await;
    for id in [&rows, &lines] {
        server.run(id).await.unwrap();
    }
    server.stop().await;
    [rows, lines]
}

/// Returns the ids of the documents that arrived after the training.
async fn arrived(server: &Server) -> BTreeSet<String> {
    let index = server.engine.index("logs").unwrap();
    let mut reading = server.engine.read_back_stored(&index).await.unwrap();
    let mut ids = BTreeSet::new();
    while let Some(frame) = reading.next().await.unwrap() {
        for op in frame.parts.iter().flat_map(|part| &part.ops) {
            ids.insert(String::from_utf8(op.id.to_vec()).unwrap());
        }
    }
    ids.retain(|id| !id.starts_with("trained"));
    ids
}

/// Returns the number of results of each document by a detector.
async fn count_results(server: &Server, id: &str) -> BTreeMap<String, usize> {
    let mut sources = BTreeMap::new();
    let names: Vec<String> = server.engine.metadata().indices().map(|meta| meta.name.to_string()).collect();
    for name in names.into_iter().filter(|name| name.contains("-anomaly-")) {
        let index = server.engine.index(&name).unwrap();
        let mut reading = server.engine.read_back_stored(&index).await.unwrap();
        while let Some(frame) = reading.next().await.unwrap() {
            for op in frame.parts.iter().flat_map(|part| &part.ops) {
                let Some(source) = &op.source else { continue };
                let result: Value = serde_json::from_slice(source).unwrap();
                if result["ai"]["rule_uid"] == json!(id) {
                    sources.insert(op.id.to_vec(), result["source_id"].as_str().unwrap().to_owned());
                }
            }
        }
    }
    let mut counts = BTreeMap::new();
    sources.into_values().for_each(|source| *counts.entry(source).or_default() += 1);
    counts
}

/// The process that is killed.
struct Process {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
}

impl Process {
    fn start(directory: &Path, load: u64) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kills::under_load", "--ignored", "--nocapture", "--test-threads", "1"])
            .env(DIRECTORY, directory)
            .env(LOAD, load.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self { child, out }
    }

    fn wait_until_ready(&mut self) {
        let mut line = String::new();
        while self.out.read_line(&mut line).unwrap() > 0 {
            if line.contains(READY) {
                return;
            }
            line.clear();
        }
        panic!("the process ended before detectors were at work: {}", self.errors());
    }

    fn errors(&mut self) -> String {
        let mut errors = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        errors
    }

    fn kill(mut self, when: &str) {
        if let Some(status) = self.child.try_wait().unwrap() {
            panic!("{when}: the process ended by itself with {status}: {}", self.errors());
        }
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Runs the process that is killed; without its variables it does nothing.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by the test above"]
async fn under_load() {
    let Some(load) = number_from(LOAD) else { return };
    let directory = std::env::var(DIRECTORY).unwrap();
    let server = Arc::new(Server::reopen(Path::new(&directory), START).await);
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (server, mut numbers) = (Arc::clone(&server), Numbers(load.wrapping_add(writer)));
            tokio::spawn(async move {
                for batch in 0.. {
                    write(&server, &mut numbers, &format!("{load} {writer} {batch}")).await;
                }
            })
        })
        .collect();
    until("scored documents", async || {
        let records = server.intelligence.list(&server.admin());
        let is_scoring = |record: &millrace_intelligence::Record| {
            record.value()["_source"]["scored_documents"].as_u64().is_some_and(|scored| scored > 0)
        };
        records.iter().all(is_scoring).then_some(())
    })
    .await;
    println!("\n{READY}");
    for writer in writers {
        writer.await.unwrap();
    }
}

async fn write(server: &Server, numbers: &mut Numbers, batch: &str) {
    let count = 1 + below(numbers, 8);
    let ops = (0..count)
        .map(|one| {
            let source = Bytes::from(document(numbers, START + one as i64).to_string());
            WriteOp::new("logs", Some(format!("{batch} {one}")), Action::Index(source))
        })
        .collect();
    // A refusal under load is fine: documents of the log count.
    let _ = server.engine.write(&server.admin(), ops, RefreshPolicy::None, Duration::from_secs(5)).await;
    if below(numbers, 100) == 0 {
        let index = server.engine.index("logs").unwrap();
        server.engine.flush(&[index]).await.unwrap();
    }
    sleep(Duration::from_micros(below(numbers, 20_000))).await;
}
