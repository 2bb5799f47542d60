//! The subcommand `flight`: rows read and written over Arrow Flight SQL, beside DuckDB on the files that the server wrote and
//! beside bulk requests with the same documents, and how long the smallest statement takes.
//!
//! Client and server share the machine. Everything that a client sends is made before the clock starts; what it receives is
//! decoded and counted while it runs.

mod client;
mod duckdb;
mod markdown;
mod rows;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use reqwest::{Method, StatusCode};
use serde::Serialize;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::client::Client;
use self::rows::{COLUMNS, Tally};
use crate::arguments::ServerArgs;
use crate::hardware::Hardware;
use crate::latency::{Histogram, Summary};
use crate::process::{self, Memory, Sampler};
use crate::report;
use crate::server::{Launch, Server, free_port};
use crate::suite::{self, commit, own_version, say};
use crate::target::{Target, reason};

/// The index that is read, or written anew each time.
const INDEX: &str = "bench-flight";
/// Rows of a bulk request: about five megabytes.
const BULK_ROWS: u64 = 30_000;
/// Rows of an Arrow batch.
const BATCH_ROWS: u64 = 65_536;
/// Time for which a bulk request that is refused for want of memory is sent again.
const BUSY: Duration = Duration::from_secs(120);
/// Smallest statements that are not counted.
const WARMUP: u32 = 200;

/// Arguments of the Flight benchmark.
#[derive(Debug, Args)]
pub(crate) struct FlightArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Directory for data: on the disk to be measured
    #[arg(long, default_value = "target/benchmarks")]
    directory: PathBuf,
    /// File to write, without the extension
    #[arg(long, default_value = "target/benchmarks/flight")]
    out: PathBuf,
    /// Rows that are read; 0 leaves reading out
    #[arg(long, default_value_t = 50_000_000)]
    rows: u64,
    /// Documents that are written; 0 leaves writing out
    #[arg(long, default_value_t = 5_000_000)]
    docs: u64,
    /// Times that the smallest statement is asked; 0 leaves it out
    #[arg(long, default_value_t = 5_000)]
    statements: u32,
    /// Times that reading and writing are measured; medians are reported
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Clients that write side by side
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=64))]
    clients: u16,
    /// A Python interpreter with the packages `duckdb` and `pyarrow`, to read the same files into Arrow
    #[arg(long, value_name = "PYTHON")]
    duckdb: Option<PathBuf>,
}

/// One read of all rows by one client.
#[derive(Clone, Debug, Serialize)]
struct ClientRead {
    by: &'static str,
    /// From the statement to the end of its answer.
    seconds: f64,
    /// Bytes of the arrays: values, offsets and validity.
    bytes: u64,
    /// Processor time of the server's process, in seconds.
    cpu_seconds: Option<f64>,
    /// By how much the server's memory was more meanwhile than before.
    growth: Option<Memory>,
}

/// One load of all documents.
#[derive(Clone, Debug, Serialize)]
struct Write {
    by: &'static str,
    clients: usize,
    /// From the first request to the answer of the flush after the last.
    seconds: f64,
    /// Processor time of the server's process, in seconds.
    cpu_seconds: Option<f64>,
    /// Most memory meanwhile.
    memory: Memory,
}

#[derive(Debug, Serialize)]
struct Report {
    hardware: Hardware,
    versions: Vec<(String, String)>,
    commit: String,
    command: String,
    rounds: u32,
    rows: u64,
    reads: Vec<ClientRead>,
    docs: u64,
    writes: Vec<Write>,
    smallest: Option<Summary>,
}

/// A server with a Flight listener.
#[derive(Debug)]
struct FlightServer {
    launch: Launch,
    server: Server,
    flight: u16,
}

impl FlightServer {
    async fn start(binary: &Path, directory: &Path) -> Result<Self> {
        let _ = std::fs::remove_dir_all(directory);
        std::fs::create_dir_all(directory)?;
        let flight = free_port()?;
        let mut launch = Launch::new(binary, directory)?;
        launch.environment.push(("MILLRACE_FLIGHT__LISTEN".to_owned(), format!("127.0.0.1:{flight}")));
        let server = launch.start().await?;
        Ok(Self { launch, server, flight })
    }

    fn cpu(&self) -> Option<f64> {
        self.server.target.pid.and_then(process::cpu_seconds)
    }

    fn memory(&self) -> Option<Memory> {
        self.server.target.pid.and_then(Memory::new)
    }

    fn sampler(&self) -> Option<Sampler> {
        self.server.target.pid.map(Sampler::start)
    }
}

impl FlightArgs {
    /// Measures and writes the report.
    pub(crate) async fn run(self) -> Result<()> {
        std::fs::create_dir_all(&self.directory)
            .with_context(|| format!("cannot create {}", self.directory.display()))?;
        let directory = self.directory.join("flight-data");
        let binary = self.server.binary();
        let mut report = Report {
            hardware: Hardware::new(&self.directory)?,
            versions: Vec::new(),
            commit: commit(),
            command: std::env::args().collect::<Vec<_>>().join(" "),
            rounds: self.rounds,
            rows: self.rows,
            reads: Vec::new(),
            docs: self.docs,
            writes: Vec::new(),
            smallest: None,
        };
        if self.docs > 0 {
            self.write(&binary, &directory, &mut report).await?;
        }
        let running = FlightServer::start(&binary, &directory).await?;
        report.versions.insert(0, ("millrace".to_owned(), own_version(&running.launch)));
        let found = self.ask(&running, &mut report).await;
        suite::stop(running.server, found)?;
        std::fs::remove_dir_all(&directory)?;
        report::write(&self.out, &markdown::markdown(&report), &report)
    }

    /// Asks what needs one server only.
    async fn ask(&self, running: &FlightServer, report: &mut Report) -> Result<()> {
        if self.statements > 0 {
            report.smallest = Some(smallest(running.flight, self.statements).await?);
        }
        if self.rows > 0 {
            self.read(running, report).await?;
        }
        Ok(())
    }

    /// Reads all rows by Flight and by DuckDB in turns.
    async fn read(&self, running: &FlightServer, report: &mut Report) -> Result<()> {
        let target = &running.server.target;
        say(&format!("{} rows", self.rows));
        target.recreate(INDEX, &rows::index_body()).await?;
        let positions = rows::ranges(self.rows, BULK_ROWS).collect();
        by_bulk(target, Feed::Made(positions), self.clients.into()).await?;
        target.settle(INDEX).await?;
        let segments = suite::segments_of(&running.launch, target, INDEX).await?;
        let statement = format!("SELECT {COLUMNS} FROM `{INDEX}`");
        let mut client = Client::connect(running.flight).await?;
        // One more than is counted: the first fills caches.
        for round in 0..=self.rounds {
            say(&format!("reading, round {round} of {}", self.rounds));
            let (before, cpu, sampler) = (running.memory(), running.cpu(), running.sampler());
            let mut tally = Tally::default();
            let took = client.read(&statement, |batch| tally.add(batch)).await?;
            let (most, cpu_after) = (sampler.map(Sampler::stop), running.cpu());
            tally.check(self.rows)?;
            let read = ClientRead {
                by: "Flight",
                seconds: took.as_secs_f64(),
                bytes: tally.bytes,
                cpu_seconds: cpu_after.zip(cpu).map(|(after, before)| after - before),
                growth: most.zip(before).map(|(most, before)| Memory {
                    anonymous_bytes: most.anonymous_bytes.saturating_sub(before.anonymous_bytes),
                    resident_bytes: most.resident_bytes.saturating_sub(before.resident_bytes),
                }),
            };
            if round > 0 {
                report.reads.push(read);
            }
            let Some(python) = &self.duckdb else { continue };
            let found = tokio::task::block_in_place(|| duckdb::read(python, &segments, self.rows))?;
            if round == 0 {
                report.versions.push(("duckdb".to_owned(), found.version));
                continue;
            }
            for (by, read) in [("DuckDB, table", found.table), ("DuckDB, stream", found.stream)] {
                let (seconds, bytes) = (read.seconds, read.bytes);
                report.reads.push(ClientRead { by, seconds, bytes, cpu_seconds: None, growth: None });
            }
        }
        target.delete(INDEX).await
    }

    /// Writes all documents by bulk requests and by Flight in turns, each time on an empty directory.
    async fn write(&self, binary: &Path, directory: &Path, report: &mut Report) -> Result<()> {
        say(&format!("making {} documents, as JSON and as batches", self.docs));
        let made =
            rows::ranges(self.docs, BULK_ROWS).map(|rows| (rows.clone(), rows::bulk_body(rows).into()));
        let bodies: Arc<[(Range<u64>, bytes::Bytes)]> = made.collect();
        let batches = rows::ranges(self.docs, BATCH_ROWS).map(rows::batch).collect::<Result<Vec<_>>>()?;
        let clients = usize::from(self.clients);
        for round in 1..=self.rounds {
            for (by, clients) in [("_bulk", clients), ("DoPut", clients), ("DoPut", 1)] {
                say(&format!("writing by {by}, {clients} clients, round {round} of {}", self.rounds));
                let running = FlightServer::start(binary, directory).await?;
                let target = running.server.target.clone();
                target.recreate(INDEX, &rows::index_body()).await?;
                let (started, cpu, sampler) = (Instant::now(), running.cpu(), running.sampler());
                let acknowledged = match by {
                    "_bulk" => by_bulk(&target, Feed::Kept(Arc::clone(&bodies)), clients).await?,
                    _ => by_flight(running.flight, &batches, clients).await?,
                };
                target.ask(Method::POST, &format!("/{INDEX}/_flush"), &Value::Null).await?;
                let (seconds, cpu_after) = (started.elapsed().as_secs_f64(), running.cpu());
                let memory = sampler.map(Sampler::stop).unwrap_or_default();
                let found = target.refresh_and_count(INDEX).await?;
                ensure!(
                    acknowledged == self.docs && found == self.docs,
                    "of {} documents {acknowledged} were acknowledged and {found} are there",
                    self.docs
                );
                let cpu_seconds = cpu_after.zip(cpu).map(|(after, before)| after - before);
                report.writes.push(Write { by, clients, seconds, cpu_seconds, memory });
                running.server.stop()?;
            }
        }
        Ok(())
    }
}

/// Bulk requests, in the order in which they are sent.
#[derive(Clone, Debug)]
enum Feed {
    /// Made when they are due.
    Made(Arc<[Range<u64>]>),
    /// Made before.
    Kept(Arc<[(Range<u64>, bytes::Bytes)]>),
}

impl Feed {
    /// Returns a body and its number of documents.
    fn get(&self, position: usize) -> Option<(u64, bytes::Bytes)> {
        match self {
            Self::Made(ranges) => {
                let rows = ranges.get(position)?.clone();
                let body = tokio::task::block_in_place(|| rows::bulk_body(rows.clone()));
                Some((rows.end - rows.start, body.into()))
            }
            Self::Kept(bodies) => {
                let (rows, body) = bodies.get(position)?;
                Some((rows.end - rows.start, body.clone()))
            }
        }
    }
}

/// Sends bulk requests by so many clients; returns the number of documents acknowledged.
async fn by_bulk(target: &Target, feed: Feed, clients: usize) -> Result<u64> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut running = JoinSet::new();
    for _ in 0..clients {
        let (target, feed, next) = (target.clone(), feed.clone(), Arc::clone(&next));
        running.spawn(async move {
            let mut acknowledged = 0;
            while let Some((docs, body)) = feed.get(next.fetch_add(1, Ordering::Relaxed)) {
                send_bulk(&target, body).await?;
                acknowledged += docs;
            }
            Ok::<_, anyhow::Error>(acknowledged)
        });
    }
    sum(running).await
}

/// Sends one bulk request until the server has room for it. Each of its items has to be done.
async fn send_bulk(target: &Target, body: bytes::Bytes) -> Result<()> {
    let first = Instant::now();
    let path = format!("/{INDEX}/_bulk?filter_path=errors,items.*.error");
    loop {
        let (status, answer) = target.send(Method::POST, &path, "application/x-ndjson", body.clone()).await?;
        if status == StatusCode::TOO_MANY_REQUESTS && first.elapsed() < BUSY {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        }
        let answer: Value = serde_json::from_slice(&answer)?;
        if status != StatusCode::OK || answer["errors"] != Value::Bool(false) {
            bail!("a bulk request was answered {status}: {:.500}", reason(&answer));
        }
        return Ok(());
    }
}

/// Appends batches by so many clients, each over one stream on a connection of its own; returns the number of rows
/// acknowledged.
async fn by_flight(port: u16, batches: &[arrow::array::RecordBatch], clients: usize) -> Result<u64> {
    let mut running = JoinSet::new();
    for number in 0..clients {
        let mine: Vec<_> = batches.iter().skip(number).step_by(clients).cloned().collect();
        if mine.is_empty() {
            continue;
        }
        running.spawn(async move { Client::connect(port).await?.append(INDEX, mine).await });
    }
    sum(running).await
}

async fn sum(mut running: JoinSet<Result<u64>>) -> Result<u64> {
    let mut all = 0;
    while let Some(found) = running.join_next().await {
        all += found??;
    }
    Ok(all)
}

/// Times the smallest statement, one after the other.
async fn smallest(port: u16, statements: u32) -> Result<Summary> {
    say(&format!("{statements} times the smallest statement"));
    let mut client = Client::connect(port).await?;
    let mut latencies = Histogram::default();
    for number in 0..WARMUP + statements {
        let mut rows = 0;
        let took = client.read("SELECT 1", |batch| {
            rows += batch.num_rows();
            Ok(())
        });
        let took = took.await?;
        ensure!(rows == 1, "SELECT 1 answered {rows} rows");
        if number >= WARMUP {
            latencies.record(took);
        }
    }
    Ok(latencies.summary())
}
