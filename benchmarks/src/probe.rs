//! Gets by id at a steady pace, by itself or while a load runs: the latency of a reader. It has a thread and connections of its
//! own, and where that is allowed the highest priority, so that it waits for the server and not, as no reader on a machine of its
//! own would, for the clients of the load.
//!
//! Ids come from the answers of the load ([`IdPool`]), or from a search of what is stored. The pace is
//! kept by the clock, so that a slow answer does not hide the ones that would have waited behind it.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, bail};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::latency::{Histogram, Summary};
use crate::random::Random;
use crate::target::Target;

/// Most ids remembered; beyond it, each new one replaces an older one at random.
const MAX_IDS: usize = 20_000;

/// Ids of documents that were acknowledged.
#[derive(Debug)]
pub(crate) struct IdPool {
    inner: Mutex<(Vec<String>, Random)>,
}

impl IdPool {
    /// Makes an empty pool.
    pub(crate) fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self { inner: Mutex::new((Vec::new(), Random::new(seed))) })
    }

    /// Remembers an id.
    pub(crate) fn add(&self, id: String) {
        let mut inner = self.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (ids, random) = &mut *inner;
        if ids.len() < MAX_IDS {
            ids.push(id);
        } else {
            let slot = random.index(MAX_IDS);
            ids[slot] = id;
        }
    }

    /// Draws an id.
    pub(crate) fn draw(&self) -> Option<String> {
        let mut inner = self.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (ids, random) = &mut *inner;
        (!ids.is_empty()).then(|| random.pick(ids).clone())
    }

    /// Fills the pool with ids of stored documents.
    pub(crate) async fn fill(&self, target: &Target, index: &str) -> Result<()> {
        let body = json!({"size": 5_000, "_source": false, "query": {"match_all": {}}});
        let answer = target.ask(Method::POST, &format!("/{index}/_search"), &body).await?;
        let hits = answer["hits"]["hits"].as_array().map(Vec::as_slice).unwrap_or_default();
        if hits.is_empty() {
            bail!("{index} of {} holds no documents", target.name);
        }
        hits.iter().filter_map(|hit| hit["_id"].as_str()).for_each(|id| self.add(id.to_owned()));
        Ok(())
    }
}

/// A running probe.
#[derive(Debug)]
pub(crate) struct Probe {
    stop: Arc<AtomicBool>,
    found: oneshot::Receiver<Result<Histogram>>,
}

impl Probe {
    /// Starts getting documents, `rate` a second.
    pub(crate) fn start(target: &Target, index: &str, ids: Arc<IdPool>, rate: u32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (target, index, stopped) = (target.clone(), index.to_owned(), Arc::clone(&stop));
        let (tell, found) = oneshot::channel();
        std::thread::spawn(move || {
            // A refusal is harmless: the figures are a little worse then.
            let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), -20);
            let probed = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let probed = probed.map_err(Into::into).and_then(|runtime| {
                runtime.block_on(async { probe(&target.apart()?, &index, &ids, rate, &stopped).await })
            });
            let _ = tell.send(probed);
        });
        Self { stop, found }
    }

    /// Ends the probe and returns the latencies.
    ///
    /// # Errors
    ///
    /// An acknowledged document was not found, or a request failed.
    pub(crate) async fn stop(self) -> Result<Summary> {
        self.stop.store(true, Ordering::Relaxed);
        Ok(self.found.await??.summary())
    }
}

async fn probe(
    target: &Target,
    index: &str,
    ids: &IdPool,
    rate: u32,
    stop: &AtomicBool,
) -> Result<Histogram> {
    let pace = Duration::from_secs(1) / rate.max(1);
    let mut latencies = Histogram::default();
    let mut due = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        due += pace;
        tokio::time::sleep_until(due).await;
        let Some(id) = ids.draw() else {
            due = Instant::now();
            continue;
        };
        let (status, _) =
            target.send(Method::GET, &format!("/{index}/_doc/{id}"), "application/json", Vec::new()).await?;
        latencies.record(due.elapsed());
        if status != StatusCode::OK {
            bail!("{} does not find document {id} that it acknowledged: {status}", target.name);
        }
    }
    Ok(latencies)
}

/// Gets documents for a while, and returns the latencies.
pub(crate) async fn run(target: &Target, index: &str, rate: u32, time: Duration) -> Result<Summary> {
    target.ask(Method::POST, &format!("/{index}/_refresh"), &Value::Null).await?;
    let ids = IdPool::new(1);
    ids.fill(target, index).await?;
    let probe = Probe::start(target, index, ids, rate);
    tokio::time::sleep(time).await;
    probe.stop().await
}
