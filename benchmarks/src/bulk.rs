//! The subcommand `bulk`: bulk requests alone, beside a peer in turns, each also with the `filter_path` that shippers send.
//!
//! No document is read meanwhile: a get of what was just written costs some servers a refresh. What is timed ends with a flush,
//! and the processor time of the server's process is read with it.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Args;
use reqwest::Method;
use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;

use crate::arguments::{PeerArgs, ServerArgs};
use crate::corpus::{Corpus, Ids};
use crate::hardware::Hardware;
use crate::load;
use crate::measure;
use crate::process;
use crate::report::{self, grouped, machine};
use crate::server::Launch;
use crate::shape::DocumentKind;
use crate::suite::{commit, own_version, say};
use crate::table;
use crate::target::Target;

/// Filter that Filebeat, Logstash and others set on each bulk request's answer.
const FILTER_PATH: &str = "errors,items.*.error";
/// The index that is made anew each time.
const INDEX: &str = "bench-bulk";

/// Arguments of the bulk benchmark.
#[derive(Debug, Args)]
pub(crate) struct BulkArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    peer: PeerArgs,
    /// Directory for corpora and data: on the disk to be measured
    #[arg(long, default_value = "target/benchmarks")]
    directory: PathBuf,
    /// File to write, without the extension
    #[arg(long, default_value = "target/benchmarks/bulk")]
    out: PathBuf,
    /// Documents
    #[arg(long, default_value_t = 5_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    docs: u64,
    /// Times that each is measured; medians are reported
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Bulk clients
    #[arg(long, default_value_t = 8)]
    clients: usize,
}

/// One load of all documents.
#[derive(Clone, Debug, Serialize)]
struct BulkRun {
    server: String,
    filter_path: bool,
    /// Seconds from the first request to the answer of the flush after the last.
    seconds: f64,
    /// Megabytes (10^6) of JSON a second.
    mb_per_second: f64,
    /// Seconds of processor time of the server's process for each gigabyte (10^9) of JSON, where the process was found.
    cpu_seconds_per_gb: Option<f64>,
    /// Most anonymous memory meanwhile, in bytes.
    anonymous_bytes: Option<u64>,
    /// Median latency of bulk requests.
    p50_ms: f64,
    /// Latency that one in a hundred exceeds.
    p99_ms: f64,
}

#[derive(Debug, Serialize)]
struct Report {
    hardware: Hardware,
    versions: Vec<(String, String)>,
    commit: String,
    command: String,
    docs: u64,
    source_bytes: u64,
    clients: usize,
    rounds: u32,
    runs: Vec<BulkRun>,
}

impl BulkArgs {
    /// Measures and writes the report.
    pub(crate) async fn run(self) -> Result<()> {
        std::fs::create_dir_all(&self.directory)
            .with_context(|| format!("cannot create {}", self.directory.display()))?;
        let peer = self.peer.target()?;
        let hardware = Hardware::new(&self.directory)?;
        say(&format!("corpus of {} documents", self.docs));
        let corpora = self.directory.join("corpora");
        let corpus = measure::corpus(&corpora, DocumentKind::HttpLogs, self.docs, 1, Ids::Generated)?;
        let binary = self.server.binary();
        let mut versions = Vec::new();
        let mut runs = Vec::new();
        for round in 0..self.rounds {
            for filter_path in [false, true] {
                say(&format!("round {} of {}, filter_path: {filter_path}", round + 1, self.rounds));
                let directory = self.directory.join("bulk-data");
                let _ = std::fs::remove_dir_all(&directory);
                std::fs::create_dir_all(&directory)?;
                let launch = Launch::new(&binary, &directory)?;
                if round == 0 && !filter_path {
                    versions.push(("millrace".to_owned(), own_version(&launch)));
                    if let Some(peer) = &peer {
                        versions.push((peer.name.clone(), peer.version().await?));
                    }
                }
                let server = launch.start().await?;
                runs.push(self.load(&server.target, &corpus, filter_path).await?);
                server.stop()?;
                std::fs::remove_dir_all(&directory)?;
                if let Some(peer) = &peer {
                    runs.push(self.load(peer, &corpus, filter_path).await?);
                    peer.delete(INDEX).await?;
                }
            }
        }
        let report = Report {
            hardware,
            versions,
            commit: commit(),
            command: std::env::args().collect::<Vec<_>>().join(" "),
            docs: self.docs,
            source_bytes: corpus.source_bytes(),
            clients: self.clients,
            rounds: self.rounds,
            runs,
        };
        report::write(&self.out, &markdown(&report), &report)
    }

    async fn load(&self, target: &Target, corpus: &Arc<Corpus>, filter_path: bool) -> Result<BulkRun> {
        target.recreate(INDEX, &DocumentKind::HttpLogs.index_body()).await?;
        let cpu = || target.pid.and_then(process::cpu_seconds);
        let (started, cpu_before) = (Instant::now(), cpu());
        let path = match filter_path {
            true => format!("/{INDEX}/_bulk?filter_path={FILTER_PATH}"),
            false => format!("/{INDEX}/_bulk"),
        };
        let load = load::run_at(target, &path, corpus, self.clients.max(1), None).await?;
        target.ask(Method::POST, &format!("/{INDEX}/_flush"), &Value::Null).await?;
        let (seconds, cpu_after) = (started.elapsed().as_secs_f64(), cpu());
        let found = target.refresh_and_count(INDEX).await?;
        if found != load.docs || load.refused > 0 {
            bail!("{} has {found} of {} documents, {} were refused", target.name, load.docs, load.refused);
        }
        let cpu_seconds = cpu_after.zip(cpu_before).map(|(after, before)| after - before);
        Ok(BulkRun {
            server: target.name.clone(),
            filter_path,
            seconds,
            mb_per_second: load.source_bytes as f64 / 1e6 / seconds,
            cpu_seconds_per_gb: cpu_seconds.map(|cpu| cpu / (load.source_bytes as f64 / 1e9)),
            anonymous_bytes: load.memory_max.map(|memory| memory.anonymous_bytes),
            p50_ms: load.latency.p50_ms,
            p99_ms: load.latency.p99_ms,
        })
    }
}

/// Returns the middle of what all runs of a server have; `None` where one of them has nothing.
fn median(runs: &[&BulkRun], figure: impl Fn(&BulkRun) -> Option<f64>) -> Option<f64> {
    let mut found = runs.iter().map(|run| figure(run)).collect::<Option<Vec<f64>>>()?;
    found.sort_by(f64::total_cmp);
    found.get(found.len() / 2).copied()
}

// Writing to a string cannot fail: results of `write!` are dropped.
fn markdown(report: &Report) -> String {
    let mut out = String::from("# Bulk requests alone\n\n");
    machine(&mut out, &report.hardware, &report.versions, &report.commit, &[&report.command]);
    let _ = writeln!(
        out,
        "{} http_logs documents, {} MB of JSON; {} bulk clients on the same cores, 5 MB bodies, acknowledged after fsync, \
         refreshed each second, flushed at the end (which is timed, too). Medians of {} rounds, the servers in turns.\n",
        grouped(report.docs),
        report.source_bytes / 1_000_000,
        report.clients,
        report.rounds
    );
    table::header(
        &mut out,
        &[
            "server",
            "`filter_path`",
            "MB/s",
            "processor seconds a GB",
            "bulk p50, ms",
            "p99, ms",
            "anonymous memory, most, MB",
        ],
    );
    let mut servers: Vec<&str> = report.runs.iter().map(|run| run.server.as_str()).collect();
    servers.sort_unstable();
    servers.dedup();
    let mut rates = Vec::new();
    for filter_path in [false, true] {
        for server in &servers {
            let runs: Vec<&BulkRun> = report
                .runs
                .iter()
                .filter(|run| run.server == *server && run.filter_path == filter_path)
                .collect();
            let figure = |figure: fn(&BulkRun) -> Option<f64>, digits: usize| match median(&runs, figure) {
                Some(found) => format!("{found:.digits$}"),
                None => "-".to_owned(),
            };
            let _ = writeln!(
                out,
                "| {server} | {} | {} | {} | {} | {} | {} |",
                if filter_path { "yes" } else { "no" },
                figure(|run| Some(run.mb_per_second), 1),
                figure(|run| run.cpu_seconds_per_gb, 1),
                figure(|run| Some(run.p50_ms), 0),
                figure(|run| Some(run.p99_ms), 0),
                figure(|run| run.anonymous_bytes.map(|bytes| bytes as f64 / 1e6), 0),
            );
            rates.push((*server, filter_path, median(&runs, |run| Some(run.mb_per_second)).unwrap_or(0.0)));
        }
    }
    let rate = |server: &str, filtered: bool| {
        let found = rates.iter().find(|(name, filter_path, _)| *name == server && *filter_path == filtered);
        found.map_or(f64::NAN, |(_, _, rate)| *rate)
    };
    let _ = writeln!(
        out,
        "\nMillrace with `filter_path` by without: {:.2}.",
        rate("millrace", true) / rate("millrace", false)
    );
    for peer in servers.iter().filter(|name| **name != "millrace") {
        let [without, with] = [false, true].map(|filtered| rate("millrace", filtered) / rate(peer, filtered));
        let _ = writeln!(out, "Millrace by {peer}: {without:.2} without `filter_path`, {with:.2} with it.");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_found() {
        let run = |seconds: f64, cpu: Option<f64>| BulkRun {
            server: "millrace".to_owned(),
            filter_path: false,
            seconds,
            mb_per_second: 0.0,
            cpu_seconds_per_gb: cpu,
            anonymous_bytes: None,
            p50_ms: 0.0,
            p99_ms: 0.0,
        };
        let runs = [run(3.0, Some(1.0)), run(1.0, None), run(2.0, Some(1.0))];
        let runs: Vec<&BulkRun> = runs.iter().collect();
        assert_eq!(median(&runs, |run| Some(run.seconds)), Some(2.0));
        assert_eq!(median(&runs, |run| run.cpu_seconds_per_gb), None);
    }
}
