//! Prints how fast JSON documents become columns: `cargo run -p millrace-engine --release --example parse_rate [documents]`.
//!
//! Three inputs: access logs of a web server in a fixed mapping, the same under dynamic mapping, and
//! sparse documents over a mapping of a thousand fields, which must cost no more a byte than dense ones.

use std::sync::Arc;

use millrace_mapping::Mapping;
use millrace_mapping::document::ChunkBuilder;
use millrace_runtime::Instant;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Map, Value, json};

/// Documents of one chunk, about as many as a bulk request of 5 MB has.
const CHUNK: usize = 30_000;

fn access_logs(count: usize) -> Vec<String> {
    let mut numbers = StdRng::seed_from_u64(7);
    (0..count)
        .map(|at| {
            let (second, page) = (at / 50 % 60, numbers.random_range(0..4000));
            format!(
                r#"{{"@timestamp":"1998-06-{:02}T{:02}:{:02}:{second:02}+02:00","clientip":"{}.{}.{}.{}","request":"GET /english/images/team_{page}_{}.gif HTTP/1.0","status":{},"size":{}}}"#,
                at / 4_320_000 % 30 + 1,
                at / 180_000 % 24,
                at / 3000 % 60,
                numbers.random_range(0..230),
                numbers.random_range(0..20),
                numbers.random_range(0..20),
                numbers.random_range(0..250),
                page % 7,
                [200, 200, 200, 304, 404][numbers.random_range(0..5usize)],
                numbers.random_range(0..90_000),
            )
        })
        .collect()
}

fn sparse(count: usize) -> Vec<String> {
    let mut numbers = StdRng::seed_from_u64(8);
    (0..count)
        .map(|_| {
            let start = numbers.random_range(0..990);
            let members: Vec<String> = (start..start + 8)
                .map(|field| match field % 3 {
                    0 => format!(r#""field_{field}":{}"#, numbers.random_range(0..1_000_000)),
                    1 => format!(r#""field_{field}":"value number {}""#, numbers.random_range(0..500)),
                    _ => format!(r#""field_{field}":{}.5"#, numbers.random_range(0..1000)),
                })
                .collect();
            format!("{{{}}}", members.join(","))
        })
        .collect()
}

fn measure(name: &str, mapping: &Arc<Mapping>, documents: &[String]) {
    let bytes: usize = documents.iter().map(String::len).sum();
    let start = Instant::now();
    let mut heap = 0;
    for chunk in documents.chunks(CHUNK) {
        let mut builder = ChunkBuilder::new(mapping.clone());
        for document in chunk {
            builder.push("1", document.as_bytes()).expect("generated documents fit their mapping");
        }
        heap += builder.finish().0.heap_bytes();
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{name:<24} {:>8.1} MB/s {:>10.0} documents/s   columns take {:.2} of the JSON",
        bytes as f64 / 1e6 / seconds,
        documents.len() as f64 / seconds,
        heap as f64 / bytes as f64,
    );
}

fn main() {
    let count = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(1_000_000);
    let parse = |body: Value| Arc::new(Mapping::parse(&body, &Map::new()).expect("the mapping is valid"));
    let logs = access_logs(count);
    let mapped = parse(json!({"properties": {
        "@timestamp": {"type": "date", "format": "strict_date_optional_time||epoch_second"},
        "clientip": {"type": "ip"},
        "request": {"type": "text", "fields": {"raw": {"type": "keyword", "ignore_above": 256}}},
        "status": {"type": "integer"},
        "size": {"type": "integer"},
    }}));
    measure("access logs, mapped", &mapped, &logs);
    measure("access logs, dynamic", &parse(json!({})), &logs);
    drop(logs);
    let fields: Map<String, Value> = (0..1000)
        .map(|field| {
            let name = ["long", "keyword", "double"][field % 3];
            (format!("field_{field}"), json!({ "type": name }))
        })
        .collect();
    measure("sparse over 1,000 fields", &parse(json!({ "properties": fields })), &sparse(count));
}
