//! The client that attacks must not hurt: it writes, reads back and searches at a steady pace.
//!
//! It has a thread, connections and, where that is allowed, the highest priority, so that what it measures is the server. Latencies
//! count from when a request was due. A write that was refused with 429 is sent again later; what was acknowledged is remembered.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::SharedTarget;
use crate::latency::Histogram;
use crate::target::Target;

/// Index of the client's documents.
const INDEX: &str = "client";
/// Documents of a write.
const BATCH: u64 = 20;
/// Pause between requests that are due, of each kind.
const PACE: Duration = Duration::from_millis(50);
/// Ids looked for in one request at the end.
const LOOK: u64 = 1_000;

/// A client that runs.
#[derive(Debug)]
pub(super) struct Client {
    stop: Arc<AtomicBool>,
    latencies: SharedTarget<Histogram>,
    ended: oneshot::Receiver<Result<AcknowledgedWrites>>,
}

/// Acknowledged writes: all numbers below.
#[derive(Debug)]
pub(super) struct AcknowledgedWrites(u64);

impl Client {
    /// Starts writing and searching.
    ///
    /// # Errors
    /// No connection could be prepared.
    pub(super) fn start(target: &Target) -> Result<Self> {
        let (stop, latencies) = (Arc::new(AtomicBool::new(false)), SharedTarget::<Histogram>::default());
        let (tell, ended) = oneshot::channel();
        let (target, stopped, shared) = (target.clone(), Arc::clone(&stop), Arc::clone(&latencies));
        std::thread::Builder::new().name("client".to_owned()).spawn(move || {
            // A refusal is harmless: the figures are a little worse then.
            let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), -20);
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let ended = runtime.map_err(Into::into).and_then(|runtime| {
                runtime.block_on(async { run(&target.apart()?, &stopped, &shared).await })
            });
            let _ = tell.send(ended);
        })?;
        Ok(Self { stop, latencies, ended })
    }

    /// Returns the latencies since the last call.
    pub(super) fn next_phase(&self) -> Histogram {
        std::mem::take(&mut *self.latencies.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends the client.
    ///
    /// # Errors
    /// A request was answered as it must not be.
    pub(super) async fn stop(self) -> Result<AcknowledgedWrites> {
        self.stop.store(true, Ordering::Relaxed);
        self.ended.await.context("the client's thread ended")?
    }
}

async fn run(target: &Target, stop: &AtomicBool, latencies: &Mutex<Histogram>) -> Result<AcknowledgedWrites> {
    let body = json!({"settings": {"number_of_replicas": 0}, "mappings": {"properties": {
        "number": {"type": "long"}, "word": {"type": "keyword"}, "text": {"type": "text"}}}});
    target.recreate(INDEX, &body).await?;
    let acknowledged = AtomicU64::new(0);
    let (wrote, searched, got) = tokio::join!(
        steadily(stop, latencies, || write(target, &acknowledged)),
        steadily(stop, latencies, || search(target)),
        steadily(stop, latencies, || get(target, &acknowledged)),
    );
    wrote.and(searched).and(got)?;
    Ok(AcknowledgedWrites(acknowledged.into_inner()))
}

/// Sends requests at the pace until told to stop; a slow answer is counted for those that waited behind it, too.
async fn steadily<F: Future<Output = Result<()>>>(
    stop: &AtomicBool,
    latencies: &Mutex<Histogram>,
    mut send: impl FnMut() -> F,
) -> Result<()> {
    let mut due = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        due += PACE;
        tokio::time::sleep_until(due).await;
        send().await?;
        latencies.lock().unwrap_or_else(PoisonError::into_inner).record(due.elapsed());
    }
    Ok(())
}

/// Writes the next documents, or says nothing if the server is busy.
async fn write(target: &Target, acknowledged: &AtomicU64) -> Result<()> {
    let first = acknowledged.load(Ordering::Relaxed);
    let mut body = String::new();
    for number in first..first + BATCH {
        writeln!(body, "{{\"index\":{{\"_id\":\"{number}\"}}}}")?;
        writeln!(
            body,
            "{{\"number\":{number},\"word\":\"w{}\",\"text\":\"the client writes {number}\"}}",
            number % 10
        )?;
    }
    let path = format!("/{INDEX}/_bulk");
    let (status, answer) = target.send(Method::POST, &path, "application/x-ndjson", body).await?;
    match status {
        StatusCode::TOO_MANY_REQUESTS => return Ok(()),
        StatusCode::OK => {}
        _ => bail!("a write of the client was answered {status}: {:.300}", String::from_utf8_lossy(&answer)),
    }
    let answer: Value = serde_json::from_slice(&answer)?;
    let items = answer["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    let statuses: Vec<u64> = items.iter().filter_map(|item| item["index"]["status"].as_u64()).collect();
    match statuses.iter().find(|status| !matches!(status, 200 | 201 | 429)) {
        Some(status) => bail!("a document of the client was answered {status}"),
        // Sent again as a whole: the same ids, the same documents.
        None if statuses.contains(&429) => {}
        None => acknowledged.store(first + BATCH, Ordering::Relaxed),
    }
    Ok(())
}

async fn search(target: &Target) -> Result<()> {
    let body = json!({"size": 5, "query": {"term": {"word": "w3"}}, "sort": [{"number": "desc"}]});
    let (status, answer) = target.json(Method::POST, &format!("/{INDEX}/_search"), &body).await?;
    expected(status, "a search", &answer)
}

async fn get(target: &Target, acknowledged: &AtomicU64) -> Result<()> {
    let Some(number) = acknowledged.load(Ordering::Relaxed).checked_sub(1) else { return Ok(()) };
    let (status, answer) = target.json(Method::GET, &format!("/{INDEX}/_doc/{number}"), &Value::Null).await?;
    expected(status, "a get", &answer)
}

fn expected(status: StatusCode, what: &str, answer: &Value) -> Result<()> {
    match status {
        StatusCode::OK | StatusCode::TOO_MANY_REQUESTS => Ok(()),
        _ => bail!("{what} of the client was answered {status}: {:.300}", answer.to_string()),
    }
}

impl AcknowledgedWrites {
    /// Returns the number of documents.
    pub(super) fn len(&self) -> u64 {
        self.0
    }

    /// Looks for every document; returns a text if some are missing or are not what was written.
    ///
    /// # Errors
    /// The server does not answer.
    pub(super) async fn missing(&self, target: &Target) -> Result<Option<String>> {
        let mut missing = Vec::new();
        for first in (0..self.0).step_by(LOOK as usize) {
            let numbers = first..(first + LOOK).min(self.0);
            let ids: Vec<String> = numbers.clone().map(|number| number.to_string()).collect();
            let answer = target.ask(Method::POST, &format!("/{INDEX}/_mget"), &json!({"ids": ids})).await?;
            let docs = answer["docs"].as_array().map(Vec::as_slice).unwrap_or_default();
            for ((number, id), doc) in numbers.zip(&ids).zip(docs) {
                if doc["_id"] != json!(id) || doc["_source"]["number"] != json!(number) {
                    missing.push(id.clone());
                }
            }
            missing.extend(ids.into_iter().skip(docs.len()));
        }
        let some = missing.iter().take(10).cloned().collect::<Vec<_>>().join(", ");
        Ok((!missing.is_empty())
            .then(|| format!("{} acknowledged documents are missing: {some}", missing.len())))
    }
}
