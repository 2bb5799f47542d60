//! OpenSearch's percolator with the same queries and events: events a second, several at a time and several clients.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use reqwest::Method;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::feed::Feed;
use super::mix::Mix;
use crate::process;
use crate::target::Target;

const INDEX: &str = "bench-percolator";
/// Events of one request.
const BATCH: u64 = 500;
const CLIENTS: usize = 4;

/// Report of the percolator.
#[derive(Clone, Debug, Serialize)]
pub(super) struct PercolatorReport {
    pub(super) version: String,
    pub(super) queries: u64,
    pub(super) events: u64,
    /// Events that some query matches.
    pub(super) matched: u64,
    pub(super) seconds: f64,
    pub(super) events_per_second: f64,
    /// Microseconds of the server's processor time an event, where its process was found.
    pub(super) cpu_us: Option<f64>,
}

/// Percolates events in a running server.
pub(super) async fn run(url: &str, mix: Mix, events: u64) -> Result<PercolatorReport> {
    let mut target = Target::new("opensearch", url, None)?;
    target.is_peer = true;
    let mut body = mix.events.index_body();
    body["settings"]["number_of_shards"] = 1.into();
    body["mappings"]["properties"]["query"] = json!({"type": "percolator"});
    target.recreate(INDEX, &body).await?;
    let queries = (0..mix.rules)
        .map(|rule| format!("{{\"index\":{{\"_id\":\"{rule}\"}}}}\n{}\n", json!({"query": mix.query(rule)})));
    let path = format!("/{INDEX}/_bulk?refresh=true");
    let (status, answer) =
        target.send(Method::POST, &path, "application/x-ndjson", queries.collect::<String>()).await?;
    let answer: Value = serde_json::from_slice(&answer)?;
    if !status.is_success() || answer["errors"] != json!(false) {
        bail!("queries were not stored: {:.500}", answer.to_string());
    }
    let bodies = bodies(mix, events)?;
    // Its caches and its compiler are warm then.
    percolate(&target, &bodies[..bodies.len().min(20)]).await?;
    let (cpu_before, started) = (target.pid.and_then(process::cpu_seconds), Instant::now());
    let matched = percolate(&target, &bodies).await?;
    let seconds = started.elapsed().as_secs_f64();
    let cpu = target.pid.and_then(process::cpu_seconds).zip(cpu_before).map(|(after, before)| after - before);
    let expected = events / super::mix::EVERY;
    if matched.abs_diff(expected) > 1 {
        bail!("{matched} events were matched of {expected} that queries ask for");
    }
    target.delete(INDEX).await?;
    Ok(PercolatorReport {
        version: target.version().await?,
        queries: mix.rules,
        events,
        matched,
        seconds,
        events_per_second: events as f64 / seconds,
        cpu_us: cpu.map(|cpu| cpu * 1e6 / events as f64),
    })
}

fn bodies(mix: Mix, events: u64) -> Result<Arc<[String]>> {
    let mut feed = Feed::new(mix, 20_000);
    let mut bodies = Vec::new();
    for first in (0..events).step_by(BATCH as usize) {
        let body = feed.body(BATCH.min(events - first))?;
        let lines = std::str::from_utf8(&body.bytes)?.lines().skip(1).step_by(2);
        let documents: Vec<&str> = lines.collect();
        bodies.push(format!(
            "{{\"size\":10000,\"_source\":false,\"query\":{{\"percolate\":{{\"field\":\"query\",\"documents\":[{}]}}}}}}",
            documents.join(",")
        ));
    }
    Ok(bodies.into())
}

/// Sends all bodies by several clients; counts the events that are matched.
async fn percolate(target: &Target, bodies: &[String]) -> Result<u64> {
    let mut running = tokio::task::JoinSet::new();
    for client in 0..CLIENTS {
        let (target, own): (_, Vec<String>) =
            (target.clone(), bodies.iter().skip(client).step_by(CLIENTS).cloned().collect());
        running.spawn(async move {
            let mut matched = 0;
            for body in own {
                let path = format!("/{INDEX}/_search");
                let (status, answer) = target.send(Method::POST, &path, "application/json", body).await?;
                let answer: Value = serde_json::from_slice(&answer)?;
                if !status.is_success() {
                    bail!("a percolation was answered {status}: {:.500}", answer.to_string());
                }
                let hits = answer["hits"]["hits"].as_array().context("no hits")?;
                let slots = hits.iter().map(|hit| {
                    hit["fields"]["_percolator_document_slot"].as_array().map_or(1, Vec::len) as u64
                });
                matched += slots.sum::<u64>();
            }
            Ok::<_, anyhow::Error>(matched)
        });
    }
    let mut matched = 0;
    while let Some(one) = running.join_next().await {
        matched += one??;
    }
    Ok(matched)
}
