//! The query driver: named operations, each run many times, with its answers checked.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, bail};
use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;

use crate::latency::{Histogram, Summary};
use crate::target::Target;

/// One request to repeat. A list of these as JSON is what `query --operations FILE` takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Operation {
    /// Name in reports.
    pub(crate) name: String,
    /// Path with leading slash.
    pub(crate) path: String,
    /// Body; null for a GET.
    #[serde(default)]
    pub(crate) body: Value,
}

/// Cost of an operation.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct OperationTiming {
    /// Name of the operation.
    pub(crate) name: String,
    /// Hits, count or rows of its answer.
    pub(crate) hits: Option<u64>,
    /// Latencies.
    pub(crate) latency: Summary,
    /// Operations a second over all clients.
    pub(crate) per_second: f64,
    /// Why it could not be run.
    pub(crate) error: Option<String>,
}

/// Repetitions of an operation, and its parallel clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunPlan {
    /// Runs that are not counted.
    pub(crate) warmup: u32,
    /// Runs that are.
    pub(crate) iterations: u32,
    /// Clients that share them.
    pub(crate) clients: usize,
}

impl Operation {
    /// Makes a search that counts all its hits, so that servers can be compared.
    pub(crate) fn search(name: &str, index: &str, mut body: Value) -> Self {
        body["track_total_hits"] = Value::Bool(true);
        Self { name: name.to_owned(), path: format!("/{index}/_search"), body }
    }

    /// Makes a search whose body is sent as it is.
    pub(crate) fn plain(name: &str, index: &str, body: Value) -> Self {
        Self { name: name.to_owned(), path: format!("/{index}/_search"), body }
    }

    /// Makes a count.
    pub(crate) fn count(name: &str, index: &str, body: Value) -> Self {
        Self { name: name.to_owned(), path: format!("/{index}/_count"), body }
    }

    /// Reads a list of operations.
    pub(crate) fn load(path: &Path) -> Result<Vec<Self>> {
        let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("{} is no list of operations", path.display()))
    }

    /// Asks once and returns hits or count of the answer.
    pub(crate) async fn ask(&self, target: &Target) -> Result<Option<u64>> {
        hits(&self.run(target).await?)
    }

    /// Asks once and returns the answer.
    pub(crate) async fn run(&self, target: &Target) -> Result<Value> {
        let method = if self.body.is_null() { Method::GET } else { Method::POST };
        target.ask(method, &self.path, &self.body).await
    }
}

/// Returns hits, count or rows of an answer, and refuses answers that are not whole.
fn hits(answer: &Value) -> Result<Option<u64>> {
    if answer["timed_out"] == true || answer["_shards"]["failed"].as_u64().unwrap_or(0) > 0 {
        bail!("the answer is not whole: {}", answer["_shards"]);
    }
    let total = &answer["hits"]["total"];
    Ok(total["value"]
        .as_u64()
        .or_else(|| total.as_u64())
        .or_else(|| answer["count"].as_u64())
        .or_else(|| answer["total"].as_u64()))
}

/// Runs operations one after another. One that fails is reported and does not end the run.
pub(crate) async fn run(target: &Target, operations: &[Operation], effort: RunPlan) -> Vec<OperationTiming> {
    let mut all = Vec::with_capacity(operations.len());
    for operation in operations {
        all.push(time(target, operation, effort).await.unwrap_or_else(|error| OperationTiming {
            name: operation.name.clone(),
            hits: None,
            latency: Summary::default(),
            per_second: 0.0,
            error: Some(format!("{error:#}")),
        }));
    }
    all
}

/// Cost of a mix of operations, alone and while documents are taken in.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Mix {
    /// Latencies with nothing else to do.
    pub(crate) idle: Summary,
    /// Latencies during an ingest at full speed.
    pub(crate) under_ingest: Summary,
}

/// Runs operations in turn, again and again, until `done` says so after a round; one client.
pub(crate) async fn mix(
    target: &Target,
    operations: &[Operation],
    mut done: impl FnMut(u32) -> bool,
) -> Result<Summary> {
    let mut latencies = Histogram::default();
    let mut rounds = 0;
    loop {
        for operation in operations {
            let start = Instant::now();
            hits(&operation.run(target).await?)?;
            latencies.record(start.elapsed());
        }
        rounds += 1;
        if done(rounds) {
            return Ok(latencies.summary());
        }
    }
}

async fn time(target: &Target, operation: &Operation, effort: RunPlan) -> Result<OperationTiming> {
    let found = hits(&operation.run(target).await?)?;
    for _ in 1..effort.warmup {
        operation.run(target).await?;
    }
    let left = Arc::new(AtomicU32::new(effort.iterations));
    let operation = Arc::new(operation.clone());
    let start = Instant::now();
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..effort.clients.max(1) {
        let (target, operation, left) = (target.clone(), Arc::clone(&operation), Arc::clone(&left));
        clients.spawn(async move {
            let mut latencies = Histogram::default();
            while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
            {
                let start = Instant::now();
                let answer = operation.run(&target).await?;
                latencies.record(start.elapsed());
                if hits(&answer)? != found {
                    bail!("the number of hits changed from {found:?} to {:?}", hits(&answer)?);
                }
            }
            Ok(latencies)
        });
    }
    let mut latencies = Histogram::default();
    while let Some(done) = clients.join_next().await {
        latencies.merge(&done??);
    }
    let latency = latencies.summary();
    Ok(OperationTiming {
        name: operation.name.clone(),
        hits: found,
        per_second: latency.count as f64 / start.elapsed().as_secs_f64(),
        latency,
        error: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn answers_are_counted_and_partial_ones_refused() {
        assert_eq!(hits(&json!({"hits": {"total": {"value": 3, "relation": "eq"}}})).unwrap(), Some(3));
        assert_eq!(hits(&json!({"hits": {"total": 4}})).unwrap(), Some(4));
        assert_eq!(hits(&json!({"count": 5, "_shards": {"failed": 0}})).unwrap(), Some(5));
        assert!(hits(&json!({"count": 5, "_shards": {"failed": 1}})).is_err());
        assert!(hits(&json!({"timed_out": true})).is_err());
    }

    #[test]
    fn operations_are_read_from_json() {
        let list = r#"[{"name": "n", "path": "/i/_search", "body": {"query": {"match_all": {}}}}, {"name": "c", "path": "/i/_count"}]"#;
        let operations: Vec<Operation> = serde_json::from_str(list).unwrap();
        assert!(operations[1].body.is_null());
        assert!(serde_json::from_str::<Operation>(r#"{"name": "n", "path": "/", "bodi": {}}"#).is_err());
    }
}
