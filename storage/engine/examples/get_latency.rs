//! Measures gets by id while writers keep the shard busy: the latency of each get, and the bulks written
//! meanwhile.
//!
//! `get_latency [generated|client] [writers] [docs a bulk] [seconds]`

#![allow(clippy::unwrap_used, reason = "a measurement ends at the first error")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use millrace_catalog::access::Principal;
use millrace_engine::{Action, Config, Engine, RefreshPolicy, WriteOp};
use millrace_runtime::{Instant, SystemClock};
use parking_lot::Mutex;

/// Distinct ids of the writers that choose them.
const IDS: u64 = 200_000;

fn main() {
    let mut args = std::env::args().skip(1);
    let client = args.next().is_some_and(|kind| kind == "client");
    let mut number = |default: u64| args.next().map_or(default, |n| n.parse().unwrap());
    let (writers, docs, seconds) = (number(8), number(5_000), number(20));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(run(client, writers, docs, Duration::from_secs(seconds)));
}

fn bulk(writer: u64, round: u64, docs: u64, client: bool) -> Vec<WriteOp> {
    let index: Arc<str> = "logs".into();
    (0..docs)
        .map(|i| {
            let n = (round * docs + i) * 8 + writer;
            let source = format!(
                r#"{{"@timestamp":"2026-01-01T00:{:02}:{:02}Z","clientip":"10.{}.{}.1","request":"GET /images/{}.gif HTTP/1.0","status":200,"size":{}}}"#,
                n / 60 % 60, n % 60, n % 200, n % 99, n % 1000, n % 5000
            );
            let id = client.then(|| format!("id-{}", n * 7919 % IDS));
            WriteOp::new(Arc::clone(&index), id, Action::Index(Bytes::from(source)))
        })
        .collect()
}

async fn run(client: bool, writers: u64, docs: u64, time: Duration) {
    let dir = std::env::temp_dir().join(format!("millrace-get-latency-{}", std::process::id()));
    let config = Config { data_dir: dir.clone(), ..Config::default() };
    let engine = Engine::open(config, Arc::new(SystemClock)).await.unwrap();
    let ids: Arc<Mutex<Vec<String>>> = Arc::default();
    let (stop, bulks) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut running = Vec::new();
    for writer in 0..writers {
        let (engine, ids) = (Arc::clone(&engine), Arc::clone(&ids));
        let (stop, bulks) = (Arc::clone(&stop), Arc::clone(&bulks));
        running.push(tokio::spawn(async move {
            for round in 0.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let ops = tokio::task::block_in_place(|| bulk(writer, round, docs, client));
                let patience = Duration::from_secs(60);
                let written =
                    engine.write(&Principal::system(), ops, RefreshPolicy::None, patience).await.unwrap();
                ids.lock().push(written[0].as_ref().unwrap().id.clone());
                bulks.fetch_add(1, Ordering::Relaxed);
            }
        }));
    }
    let start = Instant::now();
    let mut latencies = Vec::new();
    let mut at = 0_usize;
    while start.elapsed() < time {
        tokio::time::sleep(Duration::from_millis(5)).await;
        let id = {
            let ids = ids.lock();
            at = at.wrapping_add(7919);
            if ids.is_empty() {
                continue;
            }
            ids[at % ids.len()].clone()
        };
        let begin = Instant::now();
        let found = engine.get(&Principal::system(), "logs", &id, None, true).await.unwrap();
        latencies.push(begin.elapsed());
        assert!(found.is_some(), "[{id}] was acknowledged and is not found");
    }
    stop.store(true, Ordering::Relaxed);
    for writer in running {
        writer.await.unwrap();
    }
    let seconds = start.elapsed().as_secs_f64();
    latencies.sort_unstable();
    let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    println!(
        "{} ids: {} bulks of {docs} ({:.0} docs/s), {} gets, ms: p50 {:.2} p90 {:.2} p99 {:.2} max {:.2}",
        if client { "client" } else { "generated" },
        bulks.load(Ordering::Relaxed),
        bulks.load(Ordering::Relaxed) as f64 * docs as f64 / seconds,
        latencies.len(),
        at(0.5),
        at(0.9),
        at(0.99),
        at(1.0)
    );
    engine.shutdown().await.unwrap();
    drop(engine);
    std::fs::remove_dir_all(dir).unwrap();
}
