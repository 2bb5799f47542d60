//! The bulk driver: several clients send the bodies of a corpus as fast as the server takes them.
//!
//! Each client claims the next body, reads it from disk, sends it, and reads the whole answer.
//! Answers of 429 are retried after a pause; anything else that is not success ends the run. A
//! [`Probe`](crate::probe::Probe) may read documents by id meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use reqwest::{Method, StatusCode};
use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;

use crate::corpus::{Body, Corpus};
use crate::latency::{Histogram, Summary};
use crate::probe::IdPool;
use crate::process::{Memory, Sampler};
use crate::target::{Target, reason};

/// Longest time for which one body is retried while the server says that it is busy.
const BUSY_TIMEOUT: Duration = Duration::from_secs(300);

/// Result of a load.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct LoadReport {
    /// Clients.
    pub(crate) clients: usize,
    /// Documents sent and acknowledged.
    pub(crate) docs: u64,
    /// Bytes of their JSON.
    pub(crate) source_bytes: u64,
    /// Seconds from first request to last answer.
    pub(crate) seconds: f64,
    /// Megabytes (10^6) of JSON a second.
    pub(crate) mb_per_second: f64,
    /// Documents a second.
    pub(crate) docs_per_second: f64,
    /// Latency of bulk requests.
    pub(crate) latency: Summary,
    /// Answers of 429 that were retried.
    pub(crate) busy_answers: u64,
    /// Documents that were refused.
    pub(crate) refused: u64,
    /// Most memory of the server meanwhile.
    pub(crate) memory_max: Option<Memory>,
}

#[derive(Debug, Default)]
struct Tally {
    docs: u64,
    source_bytes: u64,
    busy: u64,
    refused: u64,
    latency: Histogram,
}

/// Sends a corpus to an index with so many clients.
pub(crate) async fn run(
    target: &Target,
    index: &str,
    corpus: &Arc<Corpus>,
    clients: usize,
    ids: Option<Arc<IdPool>>,
) -> Result<LoadReport> {
    run_at(target, &format!("/{index}/_bulk"), corpus, clients, ids).await
}

/// As [`run`], at a path that may have parameters.
pub(crate) async fn run_at(
    target: &Target,
    path: &str,
    corpus: &Arc<Corpus>,
    clients: usize,
    ids: Option<Arc<IdPool>>,
) -> Result<LoadReport> {
    let sampler = target.pid.map(Sampler::start);
    let bar = progress(corpus, &target.name);
    let next = Arc::new(AtomicUsize::new(0));
    let path: Arc<str> = path.into();
    let start = Instant::now();
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..clients {
        let (target, corpus, next) = (target.clone(), Arc::clone(corpus), Arc::clone(&next));
        let (path, ids, bar) = (Arc::clone(&path), ids.clone(), bar.clone());
        running.spawn(async move {
            let mut tally = Tally::default();
            while let Some(body) = corpus.bodies.get(next.fetch_add(1, Ordering::Relaxed)) {
                let bytes = tokio::task::block_in_place(|| corpus.read(*body))?;
                send(&target, &path, *body, bytes.into(), ids.as_deref(), &mut tally).await?;
                bar.inc(body.source_bytes);
            }
            Ok::<_, anyhow::Error>(tally)
        });
    }
    let mut all = Tally::default();
    while let Some(tally) = running.join_next().await {
        let tally = tally??;
        all.docs += tally.docs;
        all.source_bytes += tally.source_bytes;
        all.busy += tally.busy;
        all.refused += tally.refused;
        all.latency.merge(&tally.latency);
    }
    let seconds = start.elapsed().as_secs_f64();
    bar.finish_and_clear();
    Ok(LoadReport {
        clients,
        docs: all.docs,
        source_bytes: all.source_bytes,
        seconds,
        mb_per_second: all.source_bytes as f64 / 1e6 / seconds,
        docs_per_second: all.docs as f64 / seconds,
        latency: all.latency.summary(),
        busy_answers: all.busy,
        refused: all.refused,
        memory_max: sampler.map(Sampler::stop),
    })
}

fn progress(corpus: &Corpus, name: &str) -> ProgressBar {
    let bar = ProgressBar::new(corpus.source_bytes());
    if let Ok(style) =
        ProgressStyle::with_template("{msg} {bar:40} {bytes}/{total_bytes} {bytes_per_sec} {eta}")
    {
        bar.set_style(style);
    }
    bar.set_message(name.to_owned());
    bar
}

async fn send(
    target: &Target,
    path: &str,
    body: Body,
    bytes: bytes::Bytes,
    ids: Option<&IdPool>,
    tally: &mut Tally,
) -> Result<()> {
    let first = Instant::now();
    let mut pause = Duration::from_millis(20);
    loop {
        let start = Instant::now();
        let (status, answer) = target.send(Method::POST, path, "application/x-ndjson", bytes.clone()).await?;
        let latency = start.elapsed();
        match status {
            StatusCode::OK => {
                tally.latency.record(latency);
                let refused = refused(&answer)?;
                tally.refused += refused;
                tally.docs += body.docs - refused.min(body.docs);
                tally.source_bytes += body.source_bytes;
                if let (Some(ids), Some(id)) = (ids, first_id(&answer)) {
                    ids.add(id);
                }
                return Ok(());
            }
            StatusCode::TOO_MANY_REQUESTS if first.elapsed() < BUSY_TIMEOUT => {
                tally.busy += 1;
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(1));
            }
            _ => bail!("{} answered a bulk request with {status}: {}", target.name, text_reason(&answer)),
        }
    }
}

fn text_reason(answer: &[u8]) -> String {
    match serde_json::from_slice(answer) {
        Ok(value) => reason(&value),
        Err(_) => format!("{:.300}", String::from_utf8_lossy(answer)),
    }
}

/// Returns how many items of a bulk answer failed. The flag at the front spares parsing the rest.
fn refused(answer: &[u8]) -> Result<u64> {
    let head = &answer[..answer.len().min(128)];
    if contains(head, b"\"errors\":false") {
        return Ok(0);
    }
    let value: Value = serde_json::from_slice(answer)?;
    let Some(items) = value["items"].as_array() else {
        bail!("a bulk answer without items: {}", reason(&value))
    };
    let failed = items.iter().filter(|item| {
        let result = item.as_object().and_then(|item| item.values().next());
        result.is_some_and(|result| result["error"].is_object())
    });
    Ok(failed.count() as u64)
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// Returns the id of the first item of a bulk answer.
fn first_id(answer: &[u8]) -> Option<String> {
    const MARK: &[u8] = b"\"_id\":\"";
    let head = &answer[..answer.len().min(512)];
    let start = head.windows(MARK.len()).position(|window| window == MARK)? + MARK.len();
    let length = head[start..].iter().position(|byte| *byte == b'"')?;
    String::from_utf8(head[start..start + length].to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bulk_answers_are_understood() {
        let good =
            br#"{"took":3,"errors":false,"items":[{"index":{"_index":"i","_id":"a-_1","status":201}}]}"#;
        assert_eq!(refused(good).unwrap(), 0);
        assert_eq!(first_id(good).as_deref(), Some("a-_1"));
        let bad = br#"{"took":3,"errors":true,"items":[{"index":{"status":201}},
            {"create":{"status":409,"error":{"type":"version_conflict_engine_exception"}}}]}"#;
        assert_eq!(refused(bad).unwrap(), 1);
        assert_eq!(first_id(bad), None);
        assert!(refused(br#"{"error":{"type":"t","reason":"r"}}"#).is_err());
        assert!(refused(b"not json").is_err());
    }
}
