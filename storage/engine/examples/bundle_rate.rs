//! Prints how fast bundles are built and merged, in MB of source JSON a second on one core.
//!
//! Rows are shaped like the http_logs data set (`@timestamp`, `clientip`, `request` with a `raw`
//! keyword, `status`, `size`): about a tenth of the addresses and a twentieth of the request lines of
//! a chunk are distinct.
//!
//! Times are those of the processor where Linux tells them (`/proc/self/schedstat`), so that other work
//! on the machine does not count; elapsed time elsewhere.
//!
//! `cargo run -p millrace-engine --release --example bundle_rate [rows a chunk] [chunks]`

use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::Duration;

use millrace_mapping::analysis::Analyzers;
use millrace_mapping::document::{Chunk, Column, Strings, Values};
use millrace_mapping::{ColumnKind, PathId, Scalar};
use millrace_runtime::Instant;
use millrace_segment::bundle::{self, Bundle, FieldSpec, Indexing, Record, RowMap};
use tantivy::directory::OwnedBytes;

const TIMESTAMP: PathId = PathId(0);
const CLIENT: PathId = PathId(1);
const REQUEST: PathId = PathId(2);
const REQUEST_RAW: PathId = PathId(3);
const SIZE: PathId = PathId(4);
const STATUS: PathId = PathId(5);

/// A small generator (xorshift64*): the same rows every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `bound`, small ones more often.
    fn skewed(&mut self, bound: u64) -> u64 {
        let unit = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        (unit.powi(4) * bound as f64) as u64
    }
}

fn request(random: &mut Random, rows: u64) -> String {
    const TEAMS: [&str; 8] = ["brazil", "france", "italy", "england", "norway", "chile", "japan", "croatia"];
    const PAGES: [&str; 6] = ["teams", "images", "news", "competition", "history", "venues"];
    let number = random.skewed(rows / 4);
    let page = PAGES[(number % 6) as usize];
    let team = TEAMS[(number / 6 % 8) as usize];
    match number % 3 {
        0 => format!("GET /english/{page}/{team}{}.html HTTP/1.0", number / 48),
        1 => format!("GET /images/{page}_{team}_{}.gif HTTP/1.1", number / 48),
        _ => format!("GET /french/{page}/{team}/body{}.html HTTP/1.0", number / 48),
    }
}

/// Makes a chunk and says how many bytes its documents take as JSON.
fn chunk(random: &mut Random, rows: u32) -> (Chunk, usize) {
    let mut bytes = 0;
    let mut requests = Strings::default();
    let mut keys: HashMap<String, u32> = HashMap::new();
    let (mut times, mut clients, mut sizes, mut statuses) = (vec![], vec![], vec![], vec![]);
    for row in 0..rows {
        let request = request(random, u64::from(rows));
        let client = random.skewed(u64::from(rows) / 4) as u32 ^ 0x2a00_1234;
        let status = [200, 200, 200, 200, 304, 304, 404, 206][(random.next() % 8) as usize];
        let size = if status == 304 { 0 } else { random.skewed(200_000) as i64 };
        let time = 893_964_617 + i64::from(row / 20);
        let [a, b, c, d] = client.to_be_bytes();
        bytes += format!(
            "{{\"@timestamp\": {time}, \"clientip\":\"{a}.{b}.{c}.{d}\", \"request\": \"{request}\", \
             \"status\": {status}, \"size\": {size}}}\n"
        )
        .len();
        let next = keys.len() as u32;
        let key = *keys.entry(request).or_insert_with_key(|request| {
            requests.bytes.extend_from_slice(request.as_bytes());
            requests.ends.push(requests.bytes.len() as u32);
            next
        });
        requests.keys.push(key);
        let mut address = [0; 16];
        address[10..12].fill(0xff);
        address[12..].copy_from_slice(&client.to_be_bytes());
        clients.push(address);
        times.push(time * 1000);
        sizes.push(size);
        statuses.push(status);
    }
    let column = |id, kind, values| Column { id, kind, rows: (0..rows).collect(), values };
    let columns = vec![
        column(TIMESTAMP, ColumnKind::DateMs, Values::I64(times)),
        column(CLIENT, ColumnKind::Ip, Values::Ip(clients)),
        column(REQUEST, ColumnKind::Str, Values::Str(requests)),
        column(SIZE, ColumnKind::Int(32), Values::I64(sizes)),
        column(STATUS, ColumnKind::Int(32), Values::I64(statuses)),
    ];
    (Chunk { rows, columns, ..Chunk::default() }, bytes)
}

fn specs(analyzers: &Analyzers) -> Vec<FieldSpec<'_>> {
    let analyzer = analyzers.get("standard").expect("a built-in analyzer");
    let exact = |ignore_above| Indexing::Exact { ignore_above };
    let spec = |id, path, column, indexing| FieldSpec { id, path, column, indexing };
    vec![
        spec(TIMESTAMP, "@timestamp", TIMESTAMP, Indexing::PresenceOnly),
        spec(CLIENT, "clientip", CLIENT, exact(None)),
        spec(
            REQUEST,
            "request",
            REQUEST,
            Indexing::Text { analyzer, record: Record::Positions, norms: true, gap: 100 },
        ),
        spec(REQUEST_RAW, "request.raw", REQUEST, exact(Some(256))),
        spec(SIZE, "size", SIZE, Indexing::Number),
        spec(STATUS, "status", STATUS, Indexing::Number),
    ]
}

/// Time spent so far by the only thread.
fn now() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    std::fs::read_to_string("/proc/self/schedstat")
        .ok()
        .and_then(|text| text.split(' ').next()?.parse().ok())
        .map_or_else(|| START.elapsed(), Duration::from_nanos)
}

fn rate(bytes: usize, time: Duration) -> f64 {
    bytes as f64 / 1e6 / time.as_secs_f64()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let rows: u32 = arguments.next().map_or(Ok(200_000), |rows| rows.parse())?;
    let chunks: u32 = arguments.next().map_or(Ok(8), |chunks| chunks.parse())?;
    let analyzers = Analyzers::new(&serde_json::Map::new())?;
    let specs = specs(&analyzers);
    let mut random = Random(42);
    let (mut source, mut stored, mut building) = (0, 0, Duration::ZERO);
    let mut built = Vec::new();
    for _ in 0..chunks {
        let (chunk, bytes) = chunk(&mut random, rows);
        let start = now();
        built.push(bundle::build_fields(&specs, &chunk)?);
        building += now() - start;
        source += bytes;
    }
    println!("{chunks} chunks of {rows} rows, {:.1} MB of JSON", source as f64 / 1e6);
    stored += built.iter().map(Vec::len).sum::<usize>();
    println!(
        "build  {:7.1} MB/s, {:.3} of the source",
        rate(source, building),
        stored as f64 / source as f64
    );

    let start = Instant::now();
    let bundles = built
        .into_iter()
        .map(|bytes| Bundle::open(OwnedBytes::new(bytes), "built", false))
        .collect::<Result<Vec<_>, _>>()?;
    println!("open   {:7.1} µs each, not verified", start.elapsed().as_secs_f64() * 1e6 / f64::from(chunks));

    let scratch = std::env::temp_dir();
    let mut inputs: Vec<(&Bundle, RowMap)> = Vec::new();
    for (at, bundle) in bundles.iter().enumerate() {
        inputs.push((bundle, RowMap::Offset(at as u32 * rows)));
    }
    let mut merged = Vec::new();
    let start = now();
    bundle::merge(&inputs, rows * chunks, &scratch, &mut merged)?;
    let merging = now() - start;
    println!(
        "merge  {:7.1} MB/s, {:.3} of the source",
        rate(source, merging),
        merged.len() as f64 / source as f64
    );

    // One row in ten deleted.
    let mut next = 0;
    for (_, map) in &mut inputs {
        let table: Vec<u32> = (0..rows)
            .map(|row| {
                if row % 10 == 3 {
                    return u32::MAX;
                }
                next += 1;
                next - 1
            })
            .collect();
        *map = RowMap::Table(table.into());
    }
    let start = now();
    bundle::merge(&inputs, next, &scratch, &mut Vec::new())?;
    println!("merge  {:7.1} MB/s, a tenth of the rows deleted", rate(source, now() - start));

    let start = Instant::now();
    let merged = Bundle::open(OwnedBytes::new(merged), "merged", true)?;
    println!("open   {:7.1} µs, verified", start.elapsed().as_secs_f64() * 1e6);
    let start = Instant::now();
    let found = merged.doc_freq(STATUS, &Scalar::I64(404))?;
    println!("{found} rows with status 404, counted in {:.1} µs", start.elapsed().as_secs_f64() * 1e6);
    let start = Instant::now();
    let found = merged.prefix_rows(REQUEST_RAW, b"GET /english/", &|| true)?.len();
    println!("{found} rows by a prefix in {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
    Ok(())
}
