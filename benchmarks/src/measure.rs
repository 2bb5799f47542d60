//! Measurements that are made of several steps, each on one server.
//!
//! They are the building blocks of `suite` and, one by one, of the subcommands.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use serde::Serialize;
use tokio::time::Instant;

use crate::corpus::{Corpus, Ids, Spec};
use crate::latency::Summary;
use crate::load::{self, LoadReport};
use crate::probe::{IdPool, Probe};
use crate::process::Memory;
use crate::server::Launch;
use crate::shape::DocumentKind;
use crate::target::Target;

/// Options of a load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadOptions {
    /// Bulk clients.
    pub(crate) clients: usize,
    /// Gets by id a second meanwhile; 0 is none.
    pub(crate) get_rate: u32,
    /// `true` if to merge to one segment at the end.
    pub(crate) force_merge: bool,
}

/// An ingest from empty index to rest.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Ingest {
    /// The load itself.
    pub(crate) load: LoadReport,
    /// Seconds after the last acknowledgement until every document was counted by search.
    pub(crate) searchable_after_seconds: f64,
    /// Seconds after that until merges were at rest.
    pub(crate) settled_after_seconds: f64,
    /// Bytes stored at rest.
    pub(crate) store_bytes: u64,
    /// Bytes stored for each byte of JSON.
    pub(crate) store_ratio: f64,
    /// Bytes stored after a forced merge to one segment, if it was asked for.
    pub(crate) merged_bytes: Option<u64>,
    /// Seconds of that merge.
    pub(crate) merge_seconds: Option<f64>,
    /// Memory before the load.
    pub(crate) memory_before: Option<Memory>,
    /// Memory at rest afterwards.
    pub(crate) memory_after: Option<Memory>,
    /// Gets by id during the load.
    pub(crate) gets: Option<Summary>,
}

/// Overwrites by client id.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Updates {
    /// The first load of every id.
    pub(crate) first: LoadReport,
    /// The overwrites.
    pub(crate) overwrites: LoadReport,
    /// Seconds until search counted right.
    pub(crate) searchable_after_seconds: f64,
    /// Bytes stored at rest.
    pub(crate) store_bytes: u64,
}

/// A restart after `kill -9`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Recovery {
    /// Bytes of JSON in the log.
    pub(crate) log_source_bytes: u64,
    /// Documents in the log.
    pub(crate) docs: u64,
    /// Seconds from the start of the process to its first answer.
    pub(crate) first_answer_seconds: f64,
    /// Seconds until every document was counted.
    pub(crate) all_counted_seconds: f64,
}

/// A start with all segments in the object store and nothing of them on the local disk or in memory.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RemoteStart {
    /// Documents.
    pub(crate) docs: u64,
    /// Seconds from the start of the process to its first answer.
    pub(crate) first_answer_seconds: f64,
    /// The first search of each kind after a start of its own: name, seconds, hits.
    pub(crate) first_searches: Vec<(String, f64, Option<u64>)>,
}

/// Loads documents into a server whose object store is elsewhere, and times the first search after a
/// restart, for each of a shape's first operations.
pub(crate) async fn remote_start(
    launch: &Launch,
    directory: &Path,
    docs: u64,
    clients: usize,
) -> Result<RemoteStart> {
    const KINDS: usize = 11;
    let (index, shape) = ("remote", DocumentKind::HttpLogs);
    let corpus = corpus(directory, shape, docs, 1, Ids::Generated)?;
    let server = launch.start().await?;
    let drive = LoadOptions { clients, get_rate: 0, force_merge: true };
    ingest(&server.target, index, shape, &corpus, drive).await?;
    server.stop()?;
    let (mut first_searches, mut first_answer_seconds) = (Vec::new(), 0.0_f64);
    for operation in shape.operations(index, docs).into_iter().take(KINDS) {
        // What was fetched before must not help.
        let _ = std::fs::remove_dir_all(launch.data.join("cache"));
        let server = launch.start().await?;
        first_answer_seconds = first_answer_seconds.max(server.started_in.as_secs_f64());
        let started = Instant::now();
        let hits = operation.ask(&server.target).await?;
        first_searches.push((operation.name.clone(), started.elapsed().as_secs_f64(), hits));
        server.stop()?;
    }
    Ok(RemoteStart { docs, first_answer_seconds, first_searches })
}

/// Opens the corpus of a shape, making it if need be.
pub(crate) fn corpus(
    directory: &Path,
    shape: DocumentKind,
    docs: u64,
    seed: u64,
    ids: Ids,
) -> Result<Arc<Corpus>> {
    const BODY_BYTES: u64 = 5_000_000;
    let spec = Spec { shape: shape.name().to_owned(), seed, docs, ids, body_bytes: BODY_BYTES };
    Ok(Arc::new(Corpus::open(directory, shape, spec)?))
}

/// Loads a corpus into a new index and waits until everything is at rest.
pub(crate) async fn ingest(
    target: &Target,
    index: &str,
    shape: DocumentKind,
    corpus: &Arc<Corpus>,
    drive: LoadOptions,
) -> Result<Ingest> {
    target.recreate(index, &shape.index_body()).await?;
    let memory = || target.pid.and_then(Memory::new);
    let memory_before = memory();
    let ids = (drive.get_rate > 0).then(|| IdPool::new(corpus.spec.seed));
    let probe = ids.clone().map(|ids| Probe::start(target, index, ids, drive.get_rate));
    let load = load::run(target, index, corpus, drive.clients, ids).await?;
    let gets = match probe {
        Some(probe) => Some(probe.stop().await?),
        None => None,
    };
    let acknowledged = Instant::now();
    check_count(target, index, load.docs).await?;
    let searchable = acknowledged.elapsed();
    let settled = target.settle(index).await?;
    let store_bytes = target.store_bytes(index).await?;
    let (mut merged_bytes, mut merge_seconds) = (None, None);
    if drive.force_merge {
        merge_seconds = Some(target.force_merge(index).await?.as_secs_f64());
        merged_bytes = Some(target.store_bytes(index).await?);
    }
    check_count(target, index, load.docs).await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    Ok(Ingest {
        searchable_after_seconds: searchable.as_secs_f64(),
        settled_after_seconds: settled.as_secs_f64(),
        store_bytes,
        store_ratio: store_bytes as f64 / load.source_bytes as f64,
        merged_bytes,
        merge_seconds,
        memory_before,
        memory_after: memory(),
        gets,
        load,
    })
}

async fn check_count(target: &Target, index: &str, expected: u64) -> Result<()> {
    let found = target.refresh_and_count(index).await?;
    if found != expected {
        bail!("{} counts {found} documents of {expected} that it acknowledged", target.name);
    }
    Ok(())
}

/// Loads ids `0..docs`, then overwrites them at random `overwrites` times.
pub(crate) async fn updates(
    target: &Target,
    index: &str,
    directory: &Path,
    docs: u64,
    overwrites: u64,
    clients: usize,
) -> Result<Updates> {
    let shape = DocumentKind::HttpLogs;
    let first = corpus(directory, shape, docs, 1, Ids::Sequential)?;
    let second = corpus(directory, shape, overwrites, 2, Ids::Random { space: docs })?;
    target.recreate(index, &shape.index_body()).await?;
    let first = load::run(target, index, &first, clients, None).await?;
    check_count(target, index, docs).await?;
    let overwrites = load::run(target, index, &second, clients, None).await?;
    let acknowledged = Instant::now();
    check_count(target, index, docs).await?;
    let searchable_after_seconds = acknowledged.elapsed().as_secs_f64();
    target.settle(index).await?;
    Ok(Updates { first, overwrites, searchable_after_seconds, store_bytes: target.store_bytes(index).await? })
}

/// Fills a log, kills the server, and times its next start.
pub(crate) async fn recovery(
    launch: &Launch,
    directory: &Path,
    docs: u64,
    clients: usize,
) -> Result<Recovery> {
    let mut launch = launch.clone();
    // Bounds that no flush comes near: everything is still in the log when the server dies.
    for key in ["FLUSH_BYTES", "MEMTABLE_MAX_BYTES", "WAL_MAX_BYTES"] {
        launch.environment.push((format!("MILLRACE_STORAGE__{key}"), "64GB".to_owned()));
    }
    launch.environment.push(("MILLRACE_STORAGE__FLUSH_AGE".to_owned(), "30d".to_owned()));
    let (index, shape) = ("recovery", DocumentKind::HttpLogs);
    let corpus = corpus(directory, shape, docs, 1, Ids::Generated)?;
    let mut server = launch.start().await?;
    server.target.recreate(index, &shape.index_body()).await?;
    load::run(&server.target, index, &corpus, clients, None).await?;
    server.kill()?;
    let start = Instant::now();
    let server = launch.start().await?;
    check_count(&server.target, index, docs).await?;
    let all_counted = start.elapsed();
    let first_answer = server.started_in;
    server.stop()?;
    Ok(Recovery {
        log_source_bytes: corpus.source_bytes(),
        docs,
        first_answer_seconds: first_answer.as_secs_f64(),
        all_counted_seconds: all_counted.as_secs_f64(),
    })
}
