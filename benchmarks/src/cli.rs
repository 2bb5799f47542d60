//! The command line of `millrace-benchmarks`.
//!
//! Subcommands with much to say have a file of their own where their work is done, as `crash/cli.rs`; what several have is in `arguments.rs`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::{Parser, Subcommand, ValueEnum};
use serde::Serialize;

use crate::agents::AgentsArgs;
use crate::arguments::{CorpusArgs, EffortArgs, ServerArgs, TargetArgs, parse_variable};
use crate::bulk::BulkArgs;
use crate::calls::CallsArgs;
use crate::cancellation::CancellationArgs;
use crate::corpus::Ids;
use crate::crash::CrashArgs;
use crate::flight::FlightArgs;
use crate::hostile::HostileArgs;
use crate::many::ManyArgs;
use crate::measure::{self, LoadOptions};
use crate::pipelines::PipelinesArgs;
use crate::probe;
use crate::query::{self, Operation};
use crate::rules::RulesArgs;
use crate::server::Launch;
use crate::shape::DocumentKind;
use crate::spans::SpansArgs;
use crate::suite::ReportArgs;

/// Measures Millrace, alone or beside a peer with the same API.
#[derive(Debug, Parser)]
#[command(name = "millrace-benchmarks", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a corpus of bulk bodies on disk
    #[command(after_help = "\
Examples:
  millrace-benchmarks generate --shape http-logs --docs 10000000
  millrace-benchmarks generate --shape big5 --docs 2000000 --seed 7 --ids sequential

The same shape, number, seed and ids give the same bytes. A corpus that exists is kept.")]
    Generate {
        #[command(flatten)]
        corpus: CorpusArgs,
        /// Origin of the documents' ids
        #[arg(long, value_enum, default_value_t = IdsArg::Generated)]
        ids: IdsArg,
    },
    /// Load a corpus into a new index of a running server
    #[command(after_help = "\
Examples:
  millrace-benchmarks ingest --url http://127.0.0.1:9200 --shape http-logs --docs 5000000
  millrace-benchmarks ingest --url http://127.0.0.1:9201 --shape big5 --clients 8 --get-rate 50 --force-merge

The index is made anew. The result is JSON on stdout.")]
    Ingest {
        #[command(flatten)]
        target: TargetArgs,
        #[command(flatten)]
        corpus: CorpusArgs,
        /// Bulk clients
        #[arg(long, default_value_t = 8)]
        clients: usize,
        /// Gets by id a second during the load
        #[arg(long, default_value_t = 0)]
        get_rate: u32,
        /// Merge to one segment at the end
        #[arg(long)]
        force_merge: bool,
    },
    /// Time searches on an index that holds a corpus
    #[command(after_help = "\
Examples:
  millrace-benchmarks query --url http://127.0.0.1:9200 --shape http-logs
  millrace-benchmarks query --url http://127.0.0.1:9200 --operations mine.json --iterations 500 --clients 4

A list of operations is JSON: [{\"name\": \"…\", \"path\": \"/index/_search\", \"body\": {…}}, …]")]
    Query {
        #[command(flatten)]
        target: TargetArgs,
        /// Shape whose operations to run
        #[arg(long, value_enum, default_value_t = DocumentKind::HttpLogs)]
        shape: DocumentKind,
        /// JSON file with operations to run instead
        #[arg(long, value_name = "FILE")]
        operations: Option<PathBuf>,
        #[command(flatten)]
        effort: EffortArgs,
    },
    /// Get documents by id at a steady pace
    #[command(after_help = "\
Examples:
  millrace-benchmarks get --url http://127.0.0.1:9200 --shape http-logs --rate 100 --seconds 30")]
    Get {
        #[command(flatten)]
        target: TargetArgs,
        /// Shape whose index to read
        #[arg(long, value_enum, default_value_t = DocumentKind::HttpLogs)]
        shape: DocumentKind,
        /// Gets a second
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        rate: u32,
        /// Duration of the run
        #[arg(long, default_value_t = 30)]
        seconds: u64,
    },
    /// Write documents by client id, then overwrite them at random
    #[command(after_help = "\
Examples:
  millrace-benchmarks updates --url http://127.0.0.1:9200 --docs 10000000
  millrace-benchmarks updates --url http://127.0.0.1:9200 --docs 1000000 --overwrites 3000000")]
    Updates {
        #[command(flatten)]
        target: TargetArgs,
        /// Number of ids
        #[arg(long, default_value_t = 1_000_000)]
        docs: u64,
        /// Number of overwrites; as many as ids when not given
        #[arg(long)]
        overwrites: Option<u64>,
        /// Bulk clients
        #[arg(long, default_value_t = 8)]
        clients: usize,
        /// Directory of corpora
        #[arg(long, default_value = "target/benchmarks/corpora")]
        directory: PathBuf,
    },
    /// Fill a log, kill the server, and time its next start
    #[command(after_help = "\
Examples:
  millrace-benchmarks recovery --docs 3500000
  millrace-benchmarks recovery --server target/release/millrace --directory /mnt/disk/recovery

3.5 million http_logs documents are about 512 MB of JSON.")]
    Recovery {
        #[command(flatten)]
        server: ServerArgs,
        /// Documents in the log
        #[arg(long, default_value_t = 3_500_000)]
        docs: u64,
        /// Bulk clients
        #[arg(long, default_value_t = 8)]
        clients: usize,
        /// Directory for corpus and data
        #[arg(long, default_value = "target/benchmarks")]
        directory: PathBuf,
    },
    /// Load documents into an object store elsewhere and time the first search after a start
    #[command(after_help = "\
Examples:
  millrace-benchmarks remote-start --docs 1000000 --env MILLRACE_STORAGE__OBJECT_STORE__KIND=s3 \\
    --env MILLRACE_STORAGE__OBJECT_STORE__BUCKET=millrace …

Each search has a start of its own, with an empty cache. The result is JSON on stdout.")]
    RemoteStart {
        #[command(flatten)]
        server: ServerArgs,
        /// Documents
        #[arg(long, default_value_t = 1_000_000)]
        docs: u64,
        /// Bulk clients
        #[arg(long, default_value_t = 8)]
        clients: usize,
        /// Directory for corpus and data
        #[arg(long, default_value = "target/benchmarks")]
        directory: PathBuf,
        /// Environment variable of the server, as NAME=VALUE: where its object store is
        #[arg(long = "env", value_name = "NAME=VALUE", value_parser = parse_variable, required = true)]
        environment: Vec<(String, String)>,
    },
    /// Run everything and write a report
    #[command(after_help = "\
Examples:
  cargo build --release && target/release/millrace-benchmarks report --out report
  millrace-benchmarks report --peer http://127.0.0.1:9201 --out benchmarks/reports/two-cores
  millrace-benchmarks report --docs 100000 --out quick
  millrace-benchmarks report --docs 1000000 --update-docs 0 --recovery-docs 0

Starts the server itself, on directories of its own. A peer is any running server with the OpenSearch
API; it gets the same documents and searches, in turns. Its indices named bench-… are made anew.
Writes OUT.md and OUT.json.")]
    Report(ReportArgs),
    /// Measure bulk requests alone, with and without filter_path, beside a peer
    #[command(after_help = "\
Examples:
  millrace-benchmarks bulk --peer http://127.0.0.1:9201 --out benchmarks/reports/bulk
  millrace-benchmarks bulk --docs 200000 --rounds 1

Starts the server itself, each time on an empty directory. Writes OUT.md and OUT.json.")]
    Bulk(BulkArgs),
    /// Measure Arrow Flight SQL: reading beside DuckDB, writing beside _bulk, the smallest statement
    #[command(after_help = "\
Examples:
  millrace-benchmarks flight --duckdb venv/bin/python --out benchmarks/reports/flight
  millrace-benchmarks flight --rows 1000000 --docs 200000 --rounds 1
  millrace-benchmarks flight --rows 0 --docs 0 --statements 20000

Starts the server itself; what DuckDB reads are the Parquet files that the server wrote. The interpreter has the packages
`duckdb` and `pyarrow`; without one DuckDB is left out. 50 million rows take 5 GB of the disk, and as a table of DuckDB
as much memory. Writes OUT.md and OUT.json.")]
    Flight(FlightArgs),
    /// Measure many small things: indices, fields, deletions, scrolls, segments
    #[command(after_help = "\
Examples:
  millrace-benchmarks many --out benchmarks/reports/many
  millrace-benchmarks many --indices 100000 --deletes 10000

Starts the server itself, on an empty directory. Writes OUT.md and OUT.json.")]
    Many(ManyArgs),
    /// Measure pipelines beside _bulk, from Kafka to Kafka, and a webhook
    #[command(after_help = "\
Examples:
  millrace-benchmarks pipelines --out benchmarks/reports/pipelines
  millrace-benchmarks pipelines --kafka 127.0.0.1:9092 --events 2000000 --rounds 5
  millrace-benchmarks pipelines --events 20000 --rounds 1 --webhook-rate 500 --webhook-seconds 5

Starts the server itself, each time on an empty directory. The documents that a pipeline made are read
back and sent over _bulk in the same run. Writes OUT.md and OUT.json.")]
    Pipelines(PipelinesArgs),
    /// Measure continuous rules: how far they are behind, their cost, beside OpenSearch's percolator and ElastAlert
    #[command(after_help = "\
Examples:
  millrace-benchmarks rules --opensearch http://127.0.0.1:9201 --elastalert venv/bin/python --out benchmarks/reports/rules
  millrace-benchmarks rules --parts steady --seconds 60 --loads 1000:20000
  millrace-benchmarks rules --parts full --full-docs 1000000 --rounds 1

Starts the server itself, each time on an empty directory. Every alert has to be there, and nothing may stand in alert_error.
Writes OUT.md and OUT.json.")]
    Rules(RulesArgs),
    /// Kill the server at random moments under concurrent writes and check what it kept
    #[command(after_help = "\
Examples:
  millrace-benchmarks crash --cycles 100 --server target/debug/millrace
  millrace-benchmarks crash --cycles 1000 --seed 7 --writers 8 --shards 2

Every acknowledged operation must be there exactly once, with version, sequence number and source, by
id and by search; of an operation without an answer, both is right. Exits with 1 and a report on the
first violation, and keeps the data directory. Flushes are made small and frequent; --env sets more.")]
    Crash(CrashArgs),
    /// Play requests that mean harm while a client writes and searches, and check that it does not notice
    #[command(after_help = "\
Examples:
  millrace-benchmarks hostile --server target/release/millrace
  millrace-benchmarks hostile --only SQL --calm-seconds 5

The process must live, stay within query.memory_bytes + storage.memtable_max_bytes + --beside-mb, answer nothing
with 5xx, keep every acknowledged document, and serve the client at most three times as slowly as alone (p99).
Exits with 1 and a list of what it did not, and keeps the data directory.")]
    Hostile(HostileArgs),
    /// Ask everything of the API by several clients side by side
    #[command(after_help = "\
Examples:
  millrace-benchmarks calls --seconds 60
  millrace-benchmarks calls --seconds 3600 --clients 10 --server target/release/millrace

Nothing may be answered with 5xx or wait longer than --longest-ms, and every acknowledged document must be
there at the end. Exits with 1 and a list of what was not so, and keeps the data directory.")]
    Calls(CallsArgs),
    /// Measure the keep-alives of many agents: processor time, writes, latency
    #[command(after_help = "\
Examples:
  millrace-benchmarks agents
  millrace-benchmarks agents --agents 10000 --interval-seconds 10 --connections 0

Starts the server itself. The result is JSON on stdout.")]
    Agents(AgentsArgs),
    /// Cancel searches, statements, deletions and merges at random moments, and time their ends
    #[command(after_help = "\
Examples:
  millrace-benchmarks cancellation
  millrace-benchmarks cancellation --tasks 400 --docs 1000000 --seed 7

Starts the server itself. A task has ended once no compute thread works for it any more. The result is JSON on stdout.")]
    Cancellation(CancellationArgs),
    /// Measure the cost of spans where no traces are exported: a search and a bulk request, with spans and without
    #[command(after_help = "\
Examples:
  millrace-benchmarks spans --rounds 10

Starts three servers itself, with logs off, as text and as JSON, and asks them in turns. The result is JSON on stdout.")]
    Spans(SpansArgs),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum IdsArg {
    /// By the server
    Generated,
    /// Position in the corpus
    Sequential,
}

impl Cli {
    /// Does what the command line says.
    pub(crate) async fn run(self) -> Result<()> {
        match self.command {
            Command::Generate { corpus, ids } => {
                let ids = match ids {
                    IdsArg::Generated => Ids::Generated,
                    IdsArg::Sequential => Ids::Sequential,
                };
                let made = measure::corpus(&corpus.directory, corpus.shape, corpus.docs, corpus.seed, ids)?;
                println!(
                    "{} bodies, {} documents, {} bytes of JSON, in {}",
                    made.bodies.len(),
                    made.spec.docs,
                    made.source_bytes(),
                    corpus.directory.display()
                );
                Ok(())
            }
            Command::Ingest { target, corpus, clients, get_rate, force_merge } => {
                let target = target.target()?;
                let shape = corpus.shape;
                let made =
                    measure::corpus(&corpus.directory, shape, corpus.docs, corpus.seed, Ids::Generated)?;
                let drive = LoadOptions { clients, get_rate, force_merge };
                print(&measure::ingest(&target, &index_of(shape), shape, &made, drive).await?)
            }
            Command::Query { target, shape, operations, effort } => {
                let target = target.target()?;
                let index = index_of(shape);
                let operations = match operations {
                    Some(path) => Operation::load(&path)?,
                    None => shape.operations(&index, target.count(&index).await?),
                };
                print(&query::run(&target, &operations, effort.effort()).await)
            }
            Command::Get { target, shape, rate, seconds } => {
                let time = Duration::from_secs(seconds);
                print(&probe::run(&target.target()?, &index_of(shape), rate, time).await?)
            }
            Command::Updates { target, docs, overwrites, clients, directory } => {
                let overwrites = overwrites.unwrap_or(docs);
                let target = target.target()?;
                print(
                    &measure::updates(&target, "bench-updates", &directory, docs, overwrites, clients)
                        .await?,
                )
            }
            Command::Recovery { server, docs, clients, directory } => {
                let run = directory.join("recovery");
                let _ = std::fs::remove_dir_all(&run);
                std::fs::create_dir_all(&run)?;
                let launch = Launch::new(&server.binary(), &run)?;
                let corpora = directory.join("corpora");
                let found = measure::recovery(&launch, &corpora, docs, clients).await?;
                std::fs::remove_dir_all(&run)?;
                print(&found)
            }
            Command::RemoteStart { server, docs, clients, directory, environment } => {
                let run = directory.join("remote");
                let _ = std::fs::remove_dir_all(&run);
                std::fs::create_dir_all(&run)?;
                let mut launch = Launch::new(&server.binary(), &run)?;
                launch.environment = environment;
                let corpora = directory.join("corpora");
                let found = measure::remote_start(&launch, &corpora, docs, clients).await?;
                std::fs::remove_dir_all(&run)?;
                print(&found)
            }
            Command::Report(args) => args.run().await,
            Command::Bulk(args) => args.run().await,
            Command::Flight(args) => args.run().await,
            Command::Many(args) => args.run().await,
            Command::Pipelines(args) => args.run().await,
            Command::Rules(args) => args.run().await,
            Command::Crash(args) => args.run().await,
            Command::Hostile(args) => args.run().await,
            Command::Calls(args) => args.run().await,
            Command::Agents(args) => args.run().await,
            Command::Cancellation(args) => args.run().await,
            Command::Spans(args) => args.run().await,
        }
    }
}

fn index_of(shape: DocumentKind) -> String {
    format!("bench-{}", shape.name())
}

fn print(value: &impl Serialize) -> Result<()> {
    println!("{}", serde_json::to_string_pretty(value)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
