//! The subcommand `many`: the cost of many small things — indices of one document, fields, deletions, scrolls that nobody closes,
//! segments — and whether the last of them costs as much as the first did.
//!
//! Each part has figures of its own, some with a goal; a figure that misses its goal is marked in the report, not an error.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use reqwest::{Method, StatusCode};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::arguments::ServerArgs;
use crate::hardware::Hardware;
use crate::process::{self, Memory, Sampler};
use crate::report::{self, machine};
use crate::server::{Launch, Server};
use crate::suite::{commit, own_version, say};
use crate::table;
use crate::target::{Target, reason};

/// Documents of one bulk request.
const BATCH: u64 = 1_000;
/// Documents of one bulk request where each makes an index.
const INDICES_A_BULK: u64 = 100;
/// Fields of one document.
const FIELDS_A_DOCUMENT: u64 = 100;
/// Parts of which the first and the last are compared.
const PARTS: u64 = 10;

/// Arguments: the objects to make, and their numbers.
#[derive(Debug, Args)]
pub(crate) struct ManyArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Directory for data: on the disk to be measured
    #[arg(long, default_value = "target/benchmarks")]
    directory: PathBuf,
    /// File to write, without the extension
    #[arg(long, default_value = "target/benchmarks/many")]
    out: PathBuf,
    /// Indices of one document
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    indices: u64,
    /// Fields of one index
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1_000..=100_000))]
    fields: u64,
    /// Documents that are written, then deleted
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(10_000..))]
    deletes: u64,
    /// Scrolls that nobody closes
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    scrolls: u64,
    /// Flushes of one index
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(2..=10_000))]
    segments: u64,
    /// Seconds for which the server's processor time is watched without requests
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    idle_seconds: u64,
}

/// A figure of a part.
#[derive(Debug, Serialize)]
struct ReportRow {
    part: &'static str,
    what: String,
    value: f64,
    unit: &'static str,
    /// Upper bound of the figure.
    goal: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Report {
    hardware: Hardware,
    versions: Vec<(String, String)>,
    commit: String,
    command: String,
    figures: Vec<ReportRow>,
}

/// Rows of a part's report.
#[derive(Debug)]
struct ReportRows {
    part: &'static str,
    found: Vec<ReportRow>,
}

impl ReportRows {
    fn add(&mut self, what: impl Into<String>, value: f64, unit: &'static str, goal: Option<f64>) {
        let figure = ReportRow { part: self.part, what: what.into(), value, unit, goal };
        say(&line(&figure));
        self.found.push(figure);
    }
}

impl ManyArgs {
    /// Measures and writes the report.
    pub(crate) async fn run(self) -> Result<()> {
        let directory = self.directory.join("many-data");
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        let hardware = Hardware::new(&self.directory)?;
        let launch = Launch::new(&self.server.binary(), &directory)?;
        let versions = vec![("millrace".to_owned(), own_version(&launch))];
        let mut figures = ReportRows { part: "indices", found: Vec::new() };
        let server = self.indices(&launch, &mut figures).await?;
        let target = server.target.clone();
        figures.part = "fields";
        self.fields(&target, &mut figures).await?;
        figures.part = "deletions";
        self.deletes(&target, &mut figures).await?;
        figures.part = "segments";
        self.segments(&target, &mut figures).await?;
        figures.part = "scrolls";
        self.scrolls(&target, &mut figures).await?;
        figures.part = "process";
        if let Some(pid) = target.pid {
            let maps =
                std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default().lines().count();
            let most = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
            figures.add("maps at the end", maps as f64, "", most.trim().parse().ok());
        }
        server.stop()?;
        std::fs::remove_dir_all(&directory)?;
        let report = Report {
            hardware,
            versions,
            commit: commit(),
            command: std::env::args().collect::<Vec<_>>().join(" "),
            figures: figures.found,
        };
        report::write(&self.out, &markdown(&report), &report)
    }

    /// Makes indices of one document, lets the server idle, flushes all, searches all, starts again.
    async fn indices(&self, launch: &Launch, figures: &mut ReportRows) -> Result<Server> {
        let server = launch.start().await?;
        let target = server.target.clone();
        let sampler = target.pid.map(Sampler::start);
        let started = Instant::now();
        for first in (0..self.indices).step_by(INDICES_A_BULK as usize) {
            let numbers = first..(first + INDICES_A_BULK).min(self.indices);
            let lines = numbers.map(|number| {
                let action = json!({"index": {"_index": format!("small-{number}")}});
                format!("{action}\n{}\n", document(number))
            });
            bulk(&target, lines.collect()).await?;
        }
        figures.add(format!("{} made by bulks", self.indices), seconds(started), "s", None);
        if let Some(most) = sampler.map(Sampler::stop) {
            figures.add("memory meanwhile, most", mb(most.anonymous_bytes), "MB", Some(4_000.0));
        }
        // What the writes leave to do is done before.
        tokio::time::sleep(Duration::from_secs(5)).await;
        let cpu = || target.pid.and_then(process::cpu_seconds);
        let (before, started) = (cpu(), Instant::now());
        tokio::time::sleep(Duration::from_secs(self.idle_seconds)).await;
        if let Some((before, after)) = before.zip(cpu()) {
            let share = 100.0 * (after - before) / started.elapsed().as_secs_f64();
            figures.add("processor time while idle", share, "% of a core", Some(2.0));
        }
        let (_, took) = timed(&target, Method::GET, "/small-*/_search?size=1").await?;
        figures.add("first search of all", took, "s", Some(1.0));
        let (_, took) = timed(&target, Method::GET, "/small-*/_search?size=1").await?;
        figures.add("second search of all", took, "s", None);
        for (what, goal) in [("first page of metrics", None), ("second page of metrics", Some(0.05))] {
            let started = Instant::now();
            let (_, page) = target.send(Method::GET, "/_prometheus/metrics", "text/plain", "").await?;
            figures.add(what, seconds(started), "s", goal);
            figures.add("its size", mb(page.len() as u64), "MB", Some(1.0));
        }
        let sampler = target.pid.map(Sampler::start);
        let (_, took) = timed(&target, Method::POST, "/_flush").await?;
        figures.add("flush of all", took, "s", Some(10.0));
        if let Some(most) = sampler.map(Sampler::stop) {
            figures.add("memory meanwhile, most", mb(most.anonymous_bytes), "MB", None);
        }
        server.stop()?;
        let server = launch.start().await?;
        figures.add("start", server.started_in.as_secs_f64(), "s", None);
        let (answer, took) =
            timed(&server.target, Method::GET, "/small-*/_search?size=1&track_total_hits=true").await?;
        figures.add("first search of all after the start", took, "s", Some(1.0));
        if answer["hits"]["total"]["value"].as_u64() != Some(self.indices) {
            bail!("a search of all found {} of {} documents", answer["hits"]["total"], self.indices);
        }
        if let Some(memory) = server.target.pid.and_then(Memory::new) {
            figures.add("memory after it", mb(memory.anonymous_bytes), "MB", None);
        }
        Ok(server)
    }

    /// Grows one mapping, some fields with each document.
    async fn fields(&self, target: &Target, figures: &mut ReportRows) -> Result<()> {
        let settings = json!({"settings": {"index.mapping.total_fields.limit": self.fields * 2 + 100}});
        target.recreate("wide", &settings).await?;
        let documents = self.fields / FIELDS_A_DOCUMENT;
        let parts = growth(documents, async |number| {
            let first = number * FIELDS_A_DOCUMENT;
            let fields = (first..first + FIELDS_A_DOCUMENT).map(|field| (format!("f{field}"), json!(field)));
            let source: serde_json::Map<String, Value> = fields.collect();
            target.ask(Method::POST, "/wide/_doc", &Value::Object(source)).await?;
            Ok(())
        });
        compare(figures, &format!("{} in one mapping", self.fields), parts.await?);
        let (_, took) = timed(target, Method::GET, "/wide/_search?size=10").await?;
        figures.add("first search", took, "s", None);
        let (_, took) = timed(target, Method::POST, "/wide/_flush").await?;
        figures.add("flush", took, "s", None);
        target.delete("wide").await
    }

    /// Deletes documents by id, as fast as one client can.
    async fn deletes(&self, target: &Target, figures: &mut ReportRows) -> Result<()> {
        target.recreate("gone", &json!({})).await?;
        let batches = self.deletes / BATCH;
        for batch in 0..batches {
            let numbers = batch * BATCH..(batch + 1) * BATCH;
            let lines = numbers
                .map(|number| format!("{{\"index\":{{\"_id\":\"{number}\"}}}}\n{}\n", document(number)));
            bulk_at(target, "/gone/_bulk", lines.collect()).await?;
        }
        target.ask(Method::POST, "/gone/_flush", &Value::Null).await?;
        let sampler = target.pid.map(Sampler::start);
        let started = Instant::now();
        let parts = growth(batches, async |batch| {
            let numbers = batch * BATCH..(batch + 1) * BATCH;
            let lines = numbers.map(|number| format!("{{\"delete\":{{\"_id\":\"{number}\"}}}}\n"));
            bulk_at(target, "/gone/_bulk", lines.collect()).await
        });
        let parts = parts.await?;
        let a_minute = (batches * BATCH) as f64 / started.elapsed().as_secs_f64() * 60.0;
        figures.add("deletions a minute, thousands", a_minute / 1e3, "", None);
        compare(figures, &format!("{} deleted", self.deletes), parts);
        let (_, took) = timed(target, Method::POST, "/gone/_flush").await?;
        figures.add("flush", took, "s", None);
        if let Some(most) = sampler.map(Sampler::stop) {
            figures.add("memory meanwhile, most", mb(most.anonymous_bytes), "MB", None);
        }
        let left = target.refresh_and_count("gone").await?;
        if left != 0 {
            bail!("{left} deleted documents are found");
        }
        target.delete("gone").await
    }

    /// Flushes one index over and over.
    async fn segments(&self, target: &Target, figures: &mut ReportRows) -> Result<()> {
        target.recreate("flushed", &json!({})).await?;
        let parts = growth(self.segments, async |flush| {
            let numbers = flush * BATCH..(flush + 1) * BATCH;
            let lines = numbers.map(|number| format!("{{\"index\":{{}}}}\n{}\n", document(number)));
            bulk_at(target, "/flushed/_bulk", lines.collect()).await?;
            target.ask(Method::POST, "/flushed/_flush", &Value::Null).await?;
            Ok(())
        });
        compare(figures, &format!("{} flushes of {BATCH} documents", self.segments), parts.await?);
        let stats = target.ask(Method::GET, "/flushed/_stats", &Value::Null).await?;
        let segments = stats["_all"]["primaries"]["segments"]["count"].as_f64().unwrap_or(f64::NAN);
        figures.add("segments left", segments, "", None);
        let path = "/flushed/_search?q=message:fox&size=10";
        timed(target, Method::GET, path).await?;
        let (_, took) = timed(target, Method::GET, path).await?;
        figures.add("search", took * 1e3, "ms", None);
        Ok(())
    }

    /// Opens scrolls of the index that was flushed, each after an update, and forgets them.
    async fn scrolls(&self, target: &Target, figures: &mut ReportRows) -> Result<()> {
        const KEEP_ALIVE: Duration = Duration::from_secs(20);
        let before = target.pid.and_then(Memory::new);
        let mut refused = 0;
        for number in 0..self.scrolls {
            let line = format!("{{\"index\":{{\"_id\":\"{}\"}}}}\n{}\n", number % 100, document(number));
            bulk_at(target, "/flushed/_bulk?refresh=true", line).await?;
            let path = format!("/flushed/_search?scroll={}s&size=10", KEEP_ALIVE.as_secs());
            match target.json(Method::POST, &path, &json!({})).await? {
                (StatusCode::OK, _) => {}
                (StatusCode::TOO_MANY_REQUESTS, _) => refused += 1,
                (status, answer) => bail!("a scroll was answered {status}: {}", reason(&answer)),
            }
        }
        figures.add(format!("of {} scrolls refused with 429", self.scrolls), f64::from(refused), "", None);
        let open = target.pid.and_then(Memory::new);
        tokio::time::sleep(KEEP_ALIVE + Duration::from_secs(30)).await;
        let after = target.pid.and_then(Memory::new);
        for (what, memory, goal) in
            [("while open", open, None), ("30 s after their time", after, Some(100.0))]
        {
            if let Some((before, memory)) = before.zip(memory) {
                let more = mb(memory.anonymous_bytes) - mb(before.anonymous_bytes);
                figures.add(format!("memory beyond that of before, {what}"), more, "MB", goal);
            }
        }
        let stats = target.ask(Method::GET, "/flushed/_stats/search", &Value::Null).await?;
        let left = stats["_all"]["primaries"]["search"]["open_contexts"].as_f64().unwrap_or(f64::NAN);
        figures.add("contexts left", left, "", Some(1.0));
        Ok(())
    }
}

fn document(number: u64) -> Value {
    json!({"@timestamp": 1_767_225_600_000_u64 + number, "n": number, "message": format!("the quick brown fox {number}")})
}

async fn bulk(target: &Target, body: String) -> Result<()> {
    bulk_at(target, "/_bulk", body).await
}

/// Sends a bulk request of which every item has to be done.
async fn bulk_at(target: &Target, path: &str, body: String) -> Result<()> {
    let (status, answer) = target.send(Method::POST, path, "application/x-ndjson", body).await?;
    let answer: Value = serde_json::from_slice(&answer)?;
    if status != StatusCode::OK || answer["errors"] != json!(false) {
        let items = answer["items"].as_array().into_iter().flatten();
        let error = items.flat_map(|item| item.as_object()).flat_map(|item| item.values());
        let error = error.map(|item| &item["error"]).find(|error| !error.is_null());
        bail!("{path} was answered {status}: {:.300}", error.unwrap_or(&answer["error"]).to_string());
    }
    Ok(())
}

/// Sends a request without a body and returns the answer and how long it took, in seconds.
async fn timed(target: &Target, method: Method, path: &str) -> Result<(Value, f64)> {
    let started = Instant::now();
    let answer = target.ask(method, path, &Value::Null).await?;
    Ok((answer, seconds(started)))
}

/// Does something so many times and returns the seconds of each of [`PARTS`] equal parts.
async fn growth(count: u64, mut each: impl AsyncFnMut(u64) -> Result<()>) -> Result<Vec<f64>> {
    let mut parts = Vec::new();
    for part in 0..PARTS {
        let started = Instant::now();
        for number in count * part / PARTS..count * (part + 1) / PARTS {
            each(number).await?;
        }
        parts.push(seconds(started));
    }
    Ok(parts)
}

fn compare(figures: &mut ReportRows, what: &str, parts: Vec<f64>) {
    figures.add(what, parts.iter().sum(), "s", None);
    // The first part warms up what the others find warm.
    let (early, late) = (parts[1], parts[parts.len() - 1]);
    figures.add("last tenth by second tenth", late / early.max(1e-3), "times", None);
}

fn seconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64()
}

fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

fn line(figure: &ReportRow) -> String {
    format!("{}: {}: {}", figure.part, figure.what, shown(figure.value, figure.unit))
}

fn shown(value: f64, unit: &str) -> String {
    let digits = if value.abs() < 10.0 { 2 } else { 0 };
    format!("{value:.digits$} {unit}").trim_end().to_owned()
}

// Writing to a string cannot fail: results of `write!` are dropped.
fn markdown(report: &Report) -> String {
    let mut out = String::from("# Many small things\n\n");
    machine(&mut out, &report.hardware, &report.versions, &report.commit, &[&report.command]);
    table::header(&mut out, &["part", "figure", "value", "goal"]);
    for figure in &report.figures {
        let goal = match figure.goal {
            None => String::new(),
            Some(goal) if figure.value < goal => format!("below {}", shown(goal, figure.unit)),
            Some(goal) => format!("**missed**: below {}", shown(goal, figure.unit)),
        };
        let value = shown(figure.value, figure.unit);
        let _ = writeln!(out, "| {} | {} | {value} | {goal} |", figure.part, figure.what);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn everything_is_done_once_in_order() {
        let mut seen = Vec::new();
        let parts = growth(25, async |number| {
            seen.push(number);
            Ok(())
        });
        assert_eq!(parts.await.unwrap().len(), 10);
        assert_eq!(seen, (0..25).collect::<Vec<_>>());
    }

    #[test]
    fn figures_are_rounded() {
        assert_eq!(shown(1.234, "s"), "1.23 s");
        assert_eq!(shown(1234.5, ""), "1234");
    }
}
