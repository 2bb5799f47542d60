//! The subcommand `cancellation`: the time from the cancellation of a task until no compute thread works for it.
//!
//! Searches, statements of SQL, pipelines of PPL, deletions by query and forced merges begin one after the other. Each is cancelled at a
//! random moment of its run, alone on its server. `_nodes/hot_threads` names the task of each busy thread. A task counts as ended with
//! the first of several looks in a row that do not find it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use reqwest::{Client, Method};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::arguments::{ServerArgs, temporary};
use crate::latency::{Histogram, Summary};
use crate::random::Random;
use crate::server::Launch;
use crate::target::Target;

/// Name of the index that is read and merged.
const INDEX: &str = "bench-cancellation";
/// Name of the index that is deleted from.
const DELETED: &str = "bench-cancellation-deleted";
/// Condition of joins that find a quarter of all pairs.
const PAIRS: &str = "a.size < b.size AND a.number > b.number";
/// Documents of one bulk request.
const BATCH: u64 = 5_000;
/// Segments of an index: fewer than the background work merges by itself, which would leave a forced merge nothing to do.
const SEGMENTS: u64 = 6;
/// Longest run of a task before its cancellation, in milliseconds.
const LATEST_MS: u64 = 300;
/// Looks in a row that do not find a task before it counts as ended.
const LOOKS: u32 = 5;
/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(1);
/// Longest wait for a task to begin, and for it to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// Arguments: the tasks and the documents that they work on.
#[derive(Debug, Args)]
pub(crate) struct CancellationArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Tasks to cancel
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    tasks: u64,
    /// Documents of the index
    #[arg(long, default_value_t = 300_000, value_parser = clap::value_parser!(u64).range(10_000..=100_000_000))]
    docs: u64,
    /// Seed of the moments
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Directory for data and log; a temporary one when not given
    #[arg(long)]
    directory: Option<PathBuf>,
}

/// Kind of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum TaskKind {
    Search,
    Sql,
    Ppl,
    DeleteByQuery,
    ForceMerge,
}

/// Times of the cancellations of one kind, or of all.
#[derive(Debug, Default)]
struct Tally {
    idle: Histogram,
    answered: Histogram,
    /// Tasks that had ended before they were cancelled.
    missed: u64,
}

/// The report of a kind.
#[derive(Debug, Serialize)]
struct KindReport {
    /// Time until no compute thread worked for the task.
    idle: Summary,
    /// Time until the request was answered.
    answered: Summary,
    missed: u64,
}

/// Times of one cancellation.
#[derive(Debug)]
struct CancelTimes {
    idle: Duration,
    answered: Duration,
}

impl TaskKind {
    const ALL: [Self; 5] = [Self::Search, Self::Sql, Self::Ppl, Self::DeleteByQuery, Self::ForceMerge];

    /// Returns path and body of a request that runs for long; requests of one kind differ by their numbers.
    fn request(self, number: u64) -> (String, Value) {
        match self {
            Self::Search => {
                let of_client = json!({
                    "terms": {"field": "client", "size": 1_000},
                    "aggs": {"sizes": {"percentiles": {"field": "size"}}},
                });
                let aggregations: Value =
                    (0..60).map(|n| (format!("clients{n}"), of_client.clone())).collect();
                let body = json!({"size": 0, "query": {"wildcard": {"path": "*a*"}}, "aggs": aggregations});
                (format!("/{INDEX}/_search"), body)
            }
            Self::Sql => {
                // A join that finds nothing makes no batches, between which it could end.
                let condition = if number.is_multiple_of(2) { PAIRS } else { "a.size + b.size = -1" };
                let statement =
                    format!("SELECT COUNT(*) FROM \"{INDEX}\" a JOIN \"{INDEX}\" b ON {condition}");
                ("/_plugins/_sql".to_owned(), json!({"query": statement}))
            }
            Self::Ppl => {
                let pipeline =
                    format!("source={INDEX} | join left=a right=b ON {PAIRS} {INDEX} | stats count()");
                ("/_plugins/_ppl".to_owned(), json!({"query": pipeline}))
            }
            Self::DeleteByQuery => {
                let path = format!("/{DELETED}/_delete_by_query?conflicts=proceed&scroll_size=1000");
                (path, json!({"query": {"match_all": {}}}))
            }
            Self::ForceMerge => (format!("/{INDEX}/_forcemerge?max_num_segments=1"), Value::Null),
        }
    }
}

impl Tally {
    fn add(&mut self, times: &CancelTimes) {
        self.idle.record(times.idle);
        self.answered.record(times.answered);
    }

    fn report(&self) -> KindReport {
        KindReport { idle: self.idle.summary(), answered: self.answered.summary(), missed: self.missed }
    }
}

impl CancellationArgs {
    /// Measures and prints the report.
    pub(crate) async fn run(self) -> Result<()> {
        let directory = self.directory.clone().unwrap_or_else(|| temporary("cancellation"));
        std::fs::create_dir_all(&directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        let launch = Launch::new(&self.server.binary(), &directory)?;
        let server = launch.start().await?;
        let report = self.measure(&server.target).await.with_context(|| server.last_words())?;
        server.stop()?;
        std::fs::remove_dir_all(&directory)?;
        println!("{}", serde_json::to_string_pretty(&report)?);
        Ok(())
    }

    async fn measure(&self, target: &Target) -> Result<BTreeMap<String, KindReport>> {
        for index in [INDEX, DELETED] {
            self.fill(target, index).await?;
        }
        let client = Client::builder().timeout(PATIENCE).build()?;
        let mut random = Random::new(self.seed);
        let (mut kinds, mut all): (BTreeMap<TaskKind, Tally>, Tally) = Default::default();
        for number in 0..self.tasks {
            let kind = TaskKind::ALL[(number % TaskKind::ALL.len() as u64) as usize];
            let run_for = Duration::from_millis(random.below(LATEST_MS));
            let tally = kinds.entry(kind).or_default();
            match cancel_one(target, &client, kind, number, run_for)
                .await
                .with_context(|| format!("{kind:?}"))?
            {
                Some(times) => {
                    tally.add(&times);
                    all.add(&times);
                }
                None => {
                    tally.missed += 1;
                    all.missed += 1;
                    self.fill_again(target, kind).await?;
                }
            }
        }
        let mut report: BTreeMap<String, KindReport> = BTreeMap::new();
        for (kind, tally) in &kinds {
            let name = serde_json::to_value(kind)?.as_str().unwrap_or_default().to_owned();
            report.insert(name, tally.report());
        }
        report.insert("all".to_owned(), all.report());
        Ok(report)
    }

    /// Makes an index of several segments.
    async fn fill(&self, target: &Target, index: &str) -> Result<()> {
        let body = json!({
            "settings": {"number_of_shards": 1, "number_of_replicas": 0},
            "mappings": {"properties": {
                "number": {"type": "long"}, "size": {"type": "long"},
                "client": {"type": "keyword"}, "path": {"type": "keyword"},
            }},
        });
        target.recreate(index, &body).await?;
        self.write(target, index).await?;
        target.settle(index).await?;
        Ok(())
    }

    /// Writes the documents of an index.
    async fn write(&self, target: &Target, index: &str) -> Result<()> {
        let batches = self.docs.div_ceil(BATCH);
        for (number, first) in (0..self.docs).step_by(BATCH as usize).enumerate() {
            write_batch(target, index, first..(first + BATCH).min(self.docs)).await?;
            let written = number as u64 + 1;
            if written * SEGMENTS / batches > (written - 1) * SEGMENTS / batches {
                flush(target, index).await?;
            }
        }
        target.refresh_and_count(index).await?;
        Ok(())
    }

    /// Has a task that ended before its cancellation find work again.
    async fn fill_again(&self, target: &Target, kind: TaskKind) -> Result<()> {
        match kind {
            TaskKind::DeleteByQuery => self.write(target, DELETED).await,
            TaskKind::ForceMerge => {
                // One more segment has the merge write all of them again.
                write_batch(target, INDEX, 0..BATCH).await?;
                flush(target, INDEX).await
            }
            TaskKind::Search | TaskKind::Sql | TaskKind::Ppl => Ok(()),
        }
    }
}

/// Writes some documents.
async fn write_batch(target: &Target, index: &str, numbers: Range<u64>) -> Result<()> {
    let lines: String = numbers.map(document_lines).collect();
    let path = format!("/{index}/_bulk");
    let (status, answer) = target.send(Method::POST, &path, "application/x-ndjson", lines).await?;
    if !status.is_success() {
        bail!("a bulk request was answered {status}: {:.300}", String::from_utf8_lossy(&answer));
    }
    Ok(())
}

/// Makes a segment of what was written.
async fn flush(target: &Target, index: &str) -> Result<()> {
    target.ask(Method::POST, &format!("/{index}/_flush"), &Value::Null).await?;
    Ok(())
}

fn document_lines(number: u64) -> String {
    let (client, size) = (number.wrapping_mul(7_919) % 5_000, number.wrapping_mul(104_729) % 100_003);
    format!(
        "{{\"index\":{{}}}}\n{{\"number\":{number},\"size\":{size},\"client\":\"10.0.{}.{}\",\"path\":\"/catalog/{}\"}}\n",
        client / 250,
        client % 250,
        number % 20_011
    )
}

/// Begins a task, cancels it after a while, and waits for its end; `None` where it had ended before.
async fn cancel_one(
    target: &Target,
    client: &Client,
    kind: TaskKind,
    number: u64,
    run_for: Duration,
) -> Result<Option<CancelTimes>> {
    let opaque_id = format!("cancellation-{number}");
    let (path, body) = kind.request(number);
    let mut request = client.post(format!("{}{path}", target.url)).header("x-opaque-id", &opaque_id);
    if !body.is_null() {
        request = request.header("content-type", "application/json").body(body.to_string());
    }
    let running = tokio::spawn(async move {
        // A cancelled task may be answered with any status.
        let _ = request.send().await?.bytes().await?;
        Ok::<_, reqwest::Error>(Instant::now())
    });
    let Some(task) = find_task(target, &opaque_id, &running).await? else { return Ok(None) };
    sleep(run_for).await;
    if running.is_finished() {
        return Ok(None);
    }
    let mut ids = children(target, &task).await?;
    ids.push(task.clone());
    let cancelled = Instant::now();
    let (status, answer) =
        target.json(Method::POST, &format!("/_tasks/{task}/_cancel"), &Value::Null).await?;
    if !status.is_success() || answer["node_failures"].is_array() {
        // It has ended within a moment, or does not check for its cancellation yet.
        let _ = timeout(PATIENCE, running).await;
        return Ok(None);
    }
    let idle = timeout(PATIENCE, until_idle(target, &ids)).await.context("the task never ends")??;
    let answered = timeout(PATIENCE, running).await.context("the request is never answered")???;
    Ok(Some(CancelTimes {
        idle: idle.saturating_duration_since(cancelled),
        answered: answered.saturating_duration_since(cancelled),
    }))
}

/// Waits for the task of a request; `None` where the request ends first.
async fn find_task(
    target: &Target,
    opaque_id: &str,
    running: &JoinHandle<Result<Instant, reqwest::Error>>,
) -> Result<Option<String>> {
    let started = Instant::now();
    while !running.is_finished() {
        let listed = target.ask(Method::GET, "/_tasks?group_by=none", &Value::Null).await?;
        let tasks = listed["tasks"].as_array().ok_or_else(|| anyhow!("no list of tasks: {listed}"))?;
        // The first one is the request's own.
        let of_request =
            |task: &&Value| task["headers"]["X-Opaque-Id"] == opaque_id && task["parent_task_id"].is_null();
        if let Some(task) = tasks.iter().find(of_request) {
            return Ok(Some(task_id(task)?));
        }
        if started.elapsed() > PATIENCE {
            bail!("the task of a request is not listed");
        }
    }
    Ok(None)
}

fn task_id(task: &Value) -> Result<String> {
    match (task["node"].as_str(), task["id"].as_u64()) {
        (Some(node), Some(id)) => Ok(format!("{node}:{id}")),
        _ => bail!("a task without an id: {task}"),
    }
}

/// Lists the tasks below a task.
async fn children(target: &Target, task: &str) -> Result<Vec<String>> {
    let path = format!("/_tasks?group_by=none&parent_task_id={task}");
    let listed = target.ask(Method::GET, &path, &Value::Null).await?;
    listed["tasks"].as_array().into_iter().flatten().map(task_id).collect()
}

/// Waits until no compute thread works for tasks; returns the moment from which on none did.
async fn until_idle(target: &Target, ids: &[String]) -> Result<Instant> {
    let (mut since, mut looks) = (None, 0);
    loop {
        let (status, text) =
            target.send(Method::GET, "/_nodes/hot_threads?threads=1000", "text/plain", "").await?;
        if !status.is_success() {
            bail!("hot_threads was answered {status}");
        }
        let text = String::from_utf8_lossy(&text).into_owned();
        if ids.iter().any(|id| text.contains(&format!("task [{id}]"))) {
            (since, looks) = (None, 0);
        } else {
            let first = *since.get_or_insert_with(Instant::now);
            looks += 1;
            if looks >= LOOKS {
                return Ok(first);
            }
        }
        sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_of_bulk_requests_are_json() {
        let lines = document_lines(12_345);
        let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[1]["number"], 12_345);
    }
}
