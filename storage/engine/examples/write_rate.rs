//! Prints what a document costs from the request to the compacted segment, step by step, in
//! nanoseconds of processor time a byte of JSON, and how much room it takes: 20 values a document out of
//! 20 mapped fields and out of 1,000, which should cost nearly the same, and access logs.
//!
//! Processor time is that of all threads of the process (`/proc/self/stat`), so other work on the
//! machine does not count.
//!
//! `cargo run -p millrace-engine --release --example write_rate [documents] [shape]`

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millrace_catalog::access::Principal;
use millrace_catalog::metadata::Uuid;
use millrace_engine::{Action, Config, Engine, RefreshPolicy, WriteOp};
use millrace_runtime::{Result, SystemClock};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Map, Value, json};

/// Documents of one request.
const BULK: usize = 10_000;

/// Fields that a document has.
const VALUES: u64 = 20;

const WORDS: [&str; 24] = [
    "request", "session", "timeout", "gateway", "user", "payment", "cache", "disk", "latency", "queue",
    "worker", "login", "index", "shard", "network", "socket", "memory", "thread", "retry", "order", "cart",
    "token", "error", "warning",
];

fn wide(numbers: &mut StdRng, fields: u64) -> String {
    let stretch = fields / VALUES;
    let members: Vec<String> = (0..VALUES)
        .map(|slot| {
            let field = slot * stretch + numbers.random_range(0..stretch);
            if field.is_multiple_of(2) {
                format!(r#""field{field:04}":{}"#, numbers.random_range(0..100_000))
            } else {
                format!(r#""field{field:04}":"{}""#, WORDS[numbers.random_range(0..24usize)])
            }
        })
        .collect();
    format!("{{{}}}", members.join(","))
}

fn access_log(numbers: &mut StdRng, at: usize) -> String {
    let page = numbers.random_range(0..4000);
    format!(
        r#"{{"@timestamp":{},"clientip":"{}.{}.{}.0","request":"GET /english/images/team_{page}_{}.gif HTTP/1.0","status":{},"size":{}}}"#,
        893_964_617_000u64 + at as u64 * 20,
        numbers.random_range(0..230),
        numbers.random_range(0..20),
        numbers.random_range(0..200),
        page % 7,
        [200, 200, 200, 304, 404][numbers.random_range(0..5usize)],
        numbers.random_range(0..page + 20) * 7,
    )
}

fn mapping(shape: &str) -> Value {
    let fields = match shape {
        "dense" => 20,
        "sparse" => 1000,
        _ => {
            return json!({"properties": {
                "@timestamp": {"type": "date"}, "clientip": {"type": "ip"},
                "request": {"type": "text", "fields": {"raw": {"type": "keyword", "ignore_above": 256}}},
                "status": {"type": "integer"}, "size": {"type": "integer"},
            }});
        }
    };
    let properties: Map<String, Value> = (0..fields)
        .map(|field| {
            let kind = if field % 2 == 0 { "long" } else { "keyword" };
            (format!("field{field:04}"), json!({"type": kind}))
        })
        .collect();
    json!({"dynamic": "strict", "properties": properties})
}

/// Processor time of the process in clock ticks of 10 ms.
fn ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let numbers: Vec<i64> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    // The state is no number; user and system time are the 14th and 15th.
    numbers.iter().skip(10).take(2).sum::<i64>().unsigned_abs()
}

async fn run(shape: &'static str, documents: usize) -> Result<()> {
    let directory =
        tempfile::tempdir().map_err(|error| millrace_runtime::Error::io("create", "/tmp", error))?;
    let config = Config { data_dir: directory.path().to_owned(), ..Config::default() };
    let engine = Engine::open(config, Arc::new(SystemClock)).await?;
    let body = json!({
        "settings": {"index.mapping.total_fields.limit": 2000, "refresh_interval": -1},
        "mappings": mapping(shape),
    });
    let uuid = Uuid::new_v4();
    engine.change(&Principal::system(), |m| m.create_index(shape, &body, 0, uuid)).await?;
    let index = engine.index(shape)?;
    let mut numbers = StdRng::seed_from_u64(7);
    let mut json_bytes = 0;
    let mut spent = [0u64; 3];
    let mut made = 0;
    while made < documents {
        let count = BULK.min(documents - made);
        let operations: Vec<WriteOp> = (0..count)
            .map(|at| {
                let text = match shape {
                    "dense" => wide(&mut numbers, 20),
                    "sparse" => wide(&mut numbers, 1000),
                    _ => access_log(&mut numbers, made + at),
                };
                json_bytes += text.len() as u64;
                WriteOp::new(shape, None, Action::Index(Bytes::from(text)))
            })
            .collect();
        made += count;
        let start = ticks();
        engine.write(&Principal::system(), operations, RefreshPolicy::None, Duration::from_secs(60)).await?;
        let written = ticks();
        engine.refresh(&[Arc::clone(&index)]).await?;
        let refreshed = ticks();
        if made % (8 * BULK) == 0 || made == documents {
            engine.flush(&[Arc::clone(&index)]).await?;
        }
        spent[0] += written - start;
        spent[1] += refreshed - written;
        spent[2] += ticks() - refreshed;
    }
    let before = ticks();
    engine.force_merge(&[Arc::clone(&index)], 1).await?;
    let merge = ticks() - before;
    let figure = |ticks: u64| ticks as f64 * 1e7 / json_bytes as f64;
    println!(
        "{shape}: {:.1} MB; ns a byte: write {:.1}, refresh {:.1}, flush {:.1}, merge {:.1}, all {:.1}",
        json_bytes as f64 / 1e6,
        figure(spent[0]),
        figure(spent[1]),
        figure(spent[2]),
        figure(merge),
        figure(spent.iter().sum::<u64>() + merge),
    );
    let stored: u64 = index.figures().shards.iter().map(|shard| shard.store_bytes).sum();
    println!("{shape}: stored bytes a byte {:.3}", stored as f64 / json_bytes as f64);
    engine.shutdown().await
}

#[tokio::main]
async fn main() -> Result<()> {
    let documents = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(400_000);
    let only = std::env::args().nth(2);
    for shape in ["dense", "sparse", "logs"] {
        if only.as_ref().is_none_or(|only| only == shape) {
            run(shape, documents).await?;
        }
    }
    Ok(())
}
