//! From post to search: the ready pipeline `webhook` under a steady rate, how long after it was due each event is
//! found, and what the process takes meanwhile.
//!
//! Posts keep the clock's pace, and times count from when a post was due, so that a slow answer does not hide
//! those that wait behind it. A few events bear a number in `probe`; a searcher asks for the numbers that
//! are still missing.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail};
use reqwest::{Client, Method, StatusCode};
use serde::Serialize;
use serde_json::json;
use tokio::time::Instant;

use super::feed::{Events, Format};
use super::post::until_listening;
use crate::latency::{Histogram, Summary};
use crate::process::{Memory, Sampler};
use crate::target::Target;

/// Probes a second.
const PROBES: u64 = 100;
/// Pause between two looks of the searcher: the possible lateness of the measurement.
const LOOK: Duration = Duration::from_millis(25);
/// Events of which payloads are made.
const PAYLOADS: u64 = 5_000;
/// Longest time until the last probe is found.
const LAST: Duration = Duration::from_secs(60);
const INDEX: &str = "webhook-events-*";
/// Token of the requests, as the pipeline asks for it.
pub(crate) const TOKEN: &str = "benchmark";
/// The ready pipeline.
pub(crate) const DEFINITION: &str = include_str!("../../../deploy/pipelines/webhook.conf");

/// The load.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct WebhookLoad {
    /// Events a second.
    pub(crate) rate: u64,
    /// Events in a post.
    pub(crate) batch: u64,
    /// Duration of the run.
    pub(crate) seconds: u64,
    /// Clients.
    pub(crate) clients: u64,
}

/// Result of the webhook.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Webhook {
    /// The load.
    pub(crate) pace: WebhookLoad,
    /// Events that were taken.
    pub(crate) events: u64,
    /// Events a second, from the first post to the last answer.
    pub(crate) events_per_second: f64,
    /// Answers of 429: those posts were sent again.
    pub(crate) busy_answers: u64,
    /// From when a post was due to its answer.
    pub(crate) answered: Summary,
    /// From when a post was due to a search that finds its event.
    pub(crate) searchable: Summary,
    /// Most memory of the process.
    pub(crate) memory_max: Option<Memory>,
}

/// Probes that were posted and not found yet, by their numbers.
type Missing = Arc<Mutex<BTreeMap<u64, Instant>>>;

/// Drives the pipeline that listens on `port` of a server.
pub(crate) async fn run(target: &Target, port: u16, pace: WebhookLoad) -> Result<Webhook> {
    until_listening(port).await?;
    let posts = (pace.rate * pace.seconds / pace.batch.max(1)).max(1);
    let interval = Duration::from_secs(pace.seconds).div_f64(posts as f64);
    let probe_each = (posts / (PROBES * pace.seconds).max(1)).max(1);
    let payloads = Arc::new(payloads()?);
    let client = Client::builder().pool_max_idle_per_host(1_024).timeout(Duration::from_secs(60)).build()?;
    let (missing, busy) = (Missing::default(), Arc::new(AtomicU64::new(0)));
    let sampler = target.pid.map(Sampler::start);
    let over = Arc::new(AtomicBool::new(false));
    let searcher = tokio::spawn(search(target.clone(), Arc::clone(&missing), Arc::clone(&over)));
    let start = Instant::now();
    let mut running = tokio::task::JoinSet::new();
    for first in 0..pace.clients {
        let (client, payloads) = (client.clone(), Arc::clone(&payloads));
        let (missing, busy) = (Arc::clone(&missing), Arc::clone(&busy));
        running.spawn(async move {
            let mut answered = Histogram::default();
            let mut number = first;
            while number < posts {
                let due = start + interval.mul_f64(number as f64);
                tokio::time::sleep_until(due).await;
                let probe = number.is_multiple_of(probe_each).then_some(number);
                let body = bytes::Bytes::from(body(&payloads, number, pace.batch, probe));
                if let Some(probe) = probe {
                    missing.lock().unwrap_or_else(PoisonError::into_inner).insert(probe, due);
                }
                post(&client, port, body, &busy).await?;
                answered.record(due.elapsed());
                number += pace.clients;
            }
            Ok::<_, anyhow::Error>(answered)
        });
    }
    let mut answered = Histogram::default();
    while let Some(ended) = running.join_next().await {
        answered.merge(&ended??);
    }
    let seconds = start.elapsed().as_secs_f64();
    over.store(true, Ordering::Relaxed);
    let searchable = searcher.await??;
    let memory_max = sampler.map(Sampler::stop);
    let events = posts * pace.batch;
    let counted = target.refresh_and_count(INDEX).await?;
    if counted != events {
        bail!("{counted} events are found of {events} that were taken");
    }
    Ok(Webhook {
        pace,
        events,
        events_per_second: events as f64 / seconds,
        busy_answers: busy.load(Ordering::Relaxed),
        answered: answered.summary(),
        searchable: searchable.summary(),
        memory_max,
    })
}

/// Makes payloads: objects without their closing brace.
fn payloads() -> Result<Vec<Vec<u8>>> {
    let mut events = Events::new(PAYLOADS);
    let mut all = Vec::new();
    let mut event = Vec::new();
    while events.next(Format::Json, &mut event)? {
        event.pop();
        all.push(std::mem::take(&mut event));
    }
    Ok(all)
}

/// A post: an object, or an array of several. The first event bears the probe.
fn body(payloads: &[Vec<u8>], number: u64, batch: u64, probe: Option<u64>) -> Vec<u8> {
    let mut body = Vec::new();
    if batch > 1 {
        body.push(b'[');
    }
    for position in 0..batch {
        if position > 0 {
            body.push(b',');
        }
        let payload = (number * batch + position) % payloads.len().max(1) as u64;
        body.extend_from_slice(payloads.get(payload as usize).map_or(&b"{\"n\":0"[..], Vec::as_slice));
        if let Some(probe) = probe.filter(|_| position == 0) {
            // Writing to a vector cannot fail.
            let _ = write!(body, ",\"probe\":{probe}");
        }
        body.push(b'}');
    }
    if batch > 1 {
        body.push(b']');
    }
    body
}

async fn post(client: &Client, port: u16, body: bytes::Bytes, busy: &AtomicU64) -> Result<()> {
    loop {
        let request = client.post(format!("http://127.0.0.1:{port}/")).bearer_auth(TOKEN);
        let request = request.header("x-webhook-source", "github").header("x-github-event", "push");
        let request = request.header("content-type", "application/json");
        let answer = request.body(body.clone()).send().await?;
        let status = answer.status();
        let text = answer.text().await?;
        match status {
            StatusCode::OK => return Ok(()),
            StatusCode::TOO_MANY_REQUESTS => {
                busy.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            _ => bail!("the pipeline answered {status}: {text:.300}"),
        }
    }
}

/// Looks for missing probes until all are found.
async fn search(target: Target, missing: Missing, over: Arc<AtomicBool>) -> Result<Histogram> {
    let mut found = Histogram::default();
    let mut quiet_since = Instant::now();
    loop {
        tokio::time::sleep(LOOK).await;
        let done = over.load(Ordering::Relaxed);
        let least = missing.lock().unwrap_or_else(PoisonError::into_inner).keys().next().copied();
        let Some(least) = least else {
            if done {
                return Ok(found);
            }
            quiet_since = Instant::now();
            continue;
        };
        let body = json!({
            "size": 10_000, "_source": false, "track_total_hits": false, "docvalue_fields": ["probe"],
            "query": {"range": {"probe": {"gte": least}}},
        });
        let (status, answer) =
            target.json(Method::POST, &format!("/{INDEX}/_search?ignore_unavailable=true"), &body).await?;
        if !status.is_success() {
            bail!("a search for probes was answered {status}: {}", crate::target::reason(&answer));
        }
        let now = Instant::now();
        let hits = answer["hits"]["hits"].as_array().map(Vec::as_slice).unwrap_or_default();
        let mut missing = missing.lock().unwrap_or_else(PoisonError::into_inner);
        let before = missing.len();
        for probe in hits.iter().filter_map(|hit| hit["fields"]["probe"][0].as_u64()) {
            if let Some(due) = missing.remove(&probe) {
                found.record(now - due);
            }
        }
        if missing.len() < before {
            quiet_since = now;
        } else if quiet_since.elapsed() > LAST {
            bail!("{} probes were not found within {LAST:?}", missing.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn posts_are_json_with_their_probe() {
        let payloads = payloads().unwrap();
        let single: Value = serde_json::from_slice(&body(&payloads, 3, 1, Some(3))).unwrap();
        assert_eq!(single["probe"], 3);
        let batch: Value = serde_json::from_slice(&body(&payloads, 7, 5, Some(7))).unwrap();
        assert_eq!(batch.as_array().unwrap().len(), 5);
        assert_eq!((&batch[0]["probe"], &batch[1]["probe"]), (&json!(7), &Value::Null));
        let none: Value = serde_json::from_slice(&body(&payloads, 8, 5, None)).unwrap();
        assert!(none.as_array().unwrap().iter().all(|event| event["probe"].is_null()));
    }
}
