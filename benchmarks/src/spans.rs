//! The subcommand `spans`: the cost of spans where no traces are exported.
//!
//! Servers of one binary get the same requests in turns: one logs as by default, one logs JSON lines, which have the spans of their
//! requests, and one logs nothing, so that no span is made. The figure is processor time for each request, as `/proc` has it: it is
//! steadier than latency. A round asks all servers, and the median of the rounds' ratios counts.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use reqwest::Method;
use serde::Serialize;
use serde_json::{Value, json};

use crate::arguments::{ServerArgs, temporary};
use crate::process;
use crate::server::{Launch, Server};
use crate::target::Target;

/// Name of the index.
const INDEX: &str = "bench-spans";
/// Documents that searches find some of.
const DOCS: u64 = 20_000;
/// Documents of a bulk request.
const BULK_DOCS: u64 = 100;
/// Requests under way at a time.
const CLIENTS: usize = 4;
/// Time for which a server is let alone before it is measured.
const REST: Duration = Duration::from_secs(2);

/// Arguments: the rounds and their requests.
#[derive(Debug, Args)]
pub(crate) struct SpansArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Rounds, each of all servers and both requests
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Searches of a server in a round
    #[arg(long, default_value_t = 4_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    searches: u64,
    /// Bulk requests of a server in a round
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    bulks: u64,
    /// Directory for data and logs; a temporary one when not given
    #[arg(long)]
    directory: Option<PathBuf>,
}

/// Logging of a server under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Logging {
    /// No line and no span.
    Off,
    /// Lines of text, the default.
    Text,
    /// Lines of JSON, with spans.
    Json,
}

/// Kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum RequestKind {
    Search,
    Bulk,
}

/// Cost of a request under one logging.
#[derive(Debug, Serialize)]
struct SpanCost {
    request: RequestKind,
    logging: &'static str,
    /// Median of the processor time for each request.
    microseconds: f64,
    /// Median of the ratio to the server that logs nothing, less one.
    overhead_percent: f64,
    /// Least and greatest of the rounds.
    overhead_range_percent: (f64, f64),
}

impl Logging {
    const ALL: [Self; 3] = [Self::Off, Self::Text, Self::Json];

    fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Text => "text",
            Self::Json => "json",
        }
    }

    fn environment(self) -> Vec<(String, String)> {
        let (level, format) = match self {
            Self::Off => ("off", "text"),
            Self::Text => ("info", "text"),
            Self::Json => ("info", "json"),
        };
        vec![
            ("MILLRACE_LOG__LEVEL".to_owned(), level.to_owned()),
            ("MILLRACE_LOG__FORMAT".to_owned(), format.to_owned()),
        ]
    }
}

impl RequestKind {
    /// Sends one request.
    async fn send(self, target: &Target, number: u64) -> Result<()> {
        match self {
            Self::Search => {
                let body = json!({"size": 10, "query": {"term": {"n": number % DOCS}}});
                target.ask(Method::POST, &format!("/{INDEX}/_search"), &body).await?;
            }
            Self::Bulk => write(target, "bench-spans-bulk", number * BULK_DOCS, BULK_DOCS).await?,
        }
        Ok(())
    }
}

impl SpansArgs {
    /// Measures and prints the report.
    pub(crate) async fn run(self) -> Result<()> {
        let directory = self.directory.clone().unwrap_or_else(|| temporary("spans"));
        let mut servers = Vec::new();
        for logging in Logging::ALL {
            servers.push(start(&self.server.binary(), &directory.join(logging.name()), logging).await?);
        }
        let mut report = Vec::new();
        for (kind, requests) in [(RequestKind::Search, self.searches), (RequestKind::Bulk, self.bulks)] {
            // Rows are rounds, columns servers.
            let mut rounds = Vec::new();
            for round in 0..=self.rounds {
                let mut costs = [0.0; Logging::ALL.len()];
                for turn in 0..servers.len() {
                    // No server is always the first.
                    let at = (turn + round as usize) % servers.len();
                    costs[at] = cost(&servers[at].target, kind, requests, u64::from(round)).await?;
                }
                // The first round warms up.
                if round > 0 {
                    rounds.push(costs);
                }
            }
            report.extend(
                Logging::ALL.into_iter().enumerate().map(|(at, logging)| summary(kind, logging, at, &rounds)),
            );
        }
        for server in servers {
            server.stop()?;
        }
        std::fs::remove_dir_all(&directory)?;
        println!("{}", serde_json::to_string_pretty(&report)?);
        Ok(())
    }
}

async fn start(binary: &Path, directory: &Path, logging: Logging) -> Result<Server> {
    std::fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    let mut launch = Launch::new(binary, directory)?;
    launch.environment = logging.environment();
    let server = launch.start().await?;
    let target = &server.target;
    target.recreate(INDEX, &json!({"settings": {"number_of_shards": 1}})).await?;
    for first in (0..DOCS).step_by(1_000) {
        write(target, INDEX, first, 1_000).await?;
    }
    target.ask(Method::POST, &format!("/{INDEX}/_forcemerge?max_num_segments=1"), &Value::Null).await?;
    tokio::time::sleep(REST).await;
    Ok(server)
}

async fn write(target: &Target, index: &str, first: u64, count: u64) -> Result<()> {
    let lines: String = (first..first + count)
        .map(|n| format!("{{\"index\":{{}}}}\n{{\"n\":{n},\"text\":\"line {n} of a log\"}}\n"))
        .collect();
    let path = format!("/{index}/_bulk");
    let (status, answer) = target.send(Method::POST, &path, "application/x-ndjson", lines).await?;
    if !status.is_success() {
        bail!("a bulk request was answered {status}: {:.300}", String::from_utf8_lossy(&answer));
    }
    Ok(())
}

/// Sends requests; returns the processor time for each of them in microseconds.
async fn cost(target: &Target, kind: RequestKind, requests: u64, round: u64) -> Result<f64> {
    let cpu = || target.pid.and_then(process::cpu_seconds).context("the server's process is gone");
    let before = cpu()?;
    let numbers = round * requests..(round + 1) * requests;
    let sent = stream::iter(numbers).map(|number| kind.send(target, number)).buffer_unordered(CLIENTS);
    sent.try_collect::<Vec<()>>().await?;
    Ok((cpu()? - before) * 1e6 / requests as f64)
}

fn summary(kind: RequestKind, logging: Logging, at: usize, rounds: &[[f64; Logging::ALL.len()]]) -> SpanCost {
    let mut costs: Vec<f64> = rounds.iter().map(|costs| costs[at]).collect();
    let mut overheads: Vec<f64> = rounds.iter().map(|costs| 100.0 * (costs[at] / costs[0] - 1.0)).collect();
    costs.sort_by(f64::total_cmp);
    overheads.sort_by(f64::total_cmp);
    SpanCost {
        request: kind,
        logging: logging.name(),
        microseconds: costs[costs.len() / 2],
        overhead_percent: overheads[overheads.len() / 2],
        overhead_range_percent: (overheads[0], overheads[overheads.len() - 1]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_the_rounds_counts() {
        let rounds = [[100.0, 101.0, 110.0], [200.0, 204.0, 220.0], [100.0, 190.0, 112.0]];
        let cost = summary(RequestKind::Search, Logging::Text, 1, &rounds);
        assert_eq!(cost.microseconds, 190.0);
        assert!((cost.overhead_percent - 2.0).abs() < 1e-9, "{cost:?}");
        assert!((cost.overhead_range_percent.1 - 90.0).abs() < 1e-9, "{cost:?}");
    }
}
