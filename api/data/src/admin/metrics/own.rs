//! Families of this server's own, with histograms where a mean hides the truth.

use std::fmt;

use millrace_runtime::HistogramSnapshot;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::page::Page;

/// Writes a histogram of durations.
fn histogram(family: &mut MetricEncoder<'_>, histogram: &HistogramSnapshot) -> fmt::Result {
    let HistogramSnapshot { buckets, count, sum } = histogram;
    family.encode_histogram::<NoLabelSet>(sum.as_secs_f64(), *count, buckets, None)
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: f64) -> fmt::Result {
    encoder.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)
}

/// Writes a counter; `_total` is added to its name.
fn counter(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    family.encode_counter::<NoLabelSet, u64, f64>(&value, None)
}

/// Writes all families.
pub(super) fn encode(page: &Page, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    durations(page, encoder)?;
    memory(page, encoder)?;
    pools(page, encoder)?;
    objects(page, encoder)?;
    caches(page, encoder)?;
    let session = page.session();
    let (started, cancelled) = session.tasks().totals();
    gauge(encoder, "millrace_tasks", "Tasks that run", session.tasks().len() as f64)?;
    counter(encoder, "millrace_tasks_started", "Tasks that have begun", started)?;
    counter(encoder, "millrace_tasks_cancelled", "Tasks that were cancelled", cancelled)?;
    let (bytes, limit) = session.log_bytes();
    gauge(encoder, "millrace_log_bytes", "Bytes of the write-ahead log", bytes as f64)?;
    gauge(
        encoder,
        "millrace_log_limit_bytes",
        "Bytes that the write-ahead log is to have at most",
        limit as f64,
    )?;
    gauge(encoder, "millrace_failing_shards", "Shards whose maintenance fails", page.health.failing as f64)?;
    let damaged = page.damaged_shards() as f64;
    gauge(encoder, "millrace_damaged_shards", "Shards out of use or with damaged files", damaged)?;
    gauge(
        encoder,
        "millrace_node_faults",
        "Faults that keep the node from its work",
        session.troubles().len() as f64,
    )?;
    gauge(encoder, "millrace_indices", "Indices", page.index_count as f64)?;
    policies(page, encoder)?;
    ingest_pipelines(page, encoder)
}

fn policies(page: &Page, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let figures = &page.sources.policies;
    gauge(encoder, "millrace_managed_indices", "Indices under a policy", figures.managed as f64)?;
    let help = "Indices whose policy has failed for the last time";
    gauge(encoder, "millrace_failed_managed_indices", help, figures.failed as f64)?;
    let help = "Indices that retention by space may delete";
    gauge(encoder, "millrace_retention_candidates", help, figures.candidates as f64)?;
    let help = "Bytes that may still come before retention by space deletes an index; -1 without a candidate";
    let remaining = figures.remaining_bytes.map_or(-1.0, |bytes| bytes as f64);
    gauge(encoder, "millrace_retention_remaining_bytes", help, remaining)?;
    let help = "Unix time at which retention by space is expected to delete an index; -1 where none is";
    let next = figures.next_deletion_ms.map_or(-1.0, |time| time as f64 / 1e3);
    gauge(encoder, "millrace_retention_next_deletion_timestamp_seconds", help, next)
}

fn ingest_pipelines(page: &Page, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let (pipelines, figures) = page.ingest();
    let documents = "Documents that went through ingest pipelines";
    counter(encoder, "millrace_ingest_documents", documents, figures.count)?;
    counter(
        encoder,
        "millrace_ingest_failures",
        "Documents that failed in ingest pipelines",
        figures.failed,
    )?;
    gauge(encoder, "millrace_ingest_pipelines", "Ingest pipelines", pipelines as f64)
}

fn durations(page: &Page, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let name = "millrace_request_seconds";
    let mut requests = encoder.encode_descriptor(
        name,
        "Time of requests by route and status",
        None,
        MetricType::Histogram,
    )?;
    for (series, durations) in page.requests() {
        let labels = vec![("listener", series.listener), ("route", series.route), ("status", series.status)];
        histogram(&mut requests.encode_family(&labels)?, &durations)?;
    }
    let name = "millrace_search_phase_seconds";
    let mut phases =
        encoder.encode_descriptor(name, "Time of the phases of searches", None, MetricType::Histogram)?;
    for (phase, durations) in [("query", &page.search().query), ("fetch", &page.search().fetch)] {
        histogram(&mut phases.encode_family(&vec![("phase", phase)])?, &durations.snapshot())?;
    }
    let session = page.session();
    let engine = session.timings();
    for (name, help, durations) in [
        (
            "millrace_statement_seconds",
            "Time of SQL statements until their first rows, and of PPL pipelines",
            page.search().statement.snapshot(),
        ),
        ("millrace_write_seconds", "Time of write requests until they are durable", engine.write.snapshot()),
        (
            "millrace_log_sync_seconds",
            "Time of syncs of the write-ahead log, each of a group of frames",
            session.log_sync_time(),
        ),
        ("millrace_refresh_seconds", "Time of refreshes of shards", engine.refresh.snapshot()),
        ("millrace_flush_seconds", "Time of flushes of shards", engine.flush.snapshot()),
        ("millrace_compaction_seconds", "Time of compactions of shards", engine.compaction.snapshot()),
    ] {
        histogram(&mut encoder.encode_descriptor(name, help, None, MetricType::Histogram)?, &durations)?;
    }
    Ok(())
}

fn memory(page: &Page, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let (memtables, memtable_limit) = page.session().memtable_bytes();
    let owners = [
        ("memtables", memtables, memtable_limit),
        ("open_contexts", page.pinned.bytes, page.pinned.limit),
        ("audit_queue", page.audit.bytes, page.audit.limit),
    ];
    let mut used =
        encoder.encode_descriptor("millrace_memory_bytes", "Memory by owner", None, MetricType::Gauge)?;
    for (owner, bytes, _) in owners {
        used.encode_family(&vec![("owner", owner)])?.encode_gauge(&(bytes as f64))?;
    }
    let name = "millrace_memory_limit_bytes";
    let mut limits =
        encoder.encode_descriptor(name, "Bound on the memory of an owner", None, MetricType::Gauge)?;
    for (owner, _, limit) in owners {
        limits.encode_family(&vec![("owner", owner)])?.encode_gauge(&(limit as f64))?;
    }
    Ok(())
}

fn pools(page: &Page, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let mut threads =
        encoder.encode_descriptor("millrace_pool_threads", "Threads of a pool", None, MetricType::Gauge)?;
    for pool in &page.pools {
        threads.encode_family(&vec![("pool", pool.name)])?.encode_gauge(&(pool.threads as f64))?;
    }
    let name = "millrace_pool_busy_threads";
    let mut busy =
        encoder.encode_descriptor(name, "Threads of a pool that run a job", None, MetricType::Gauge)?;
    for pool in &page.pools {
        busy.encode_family(&vec![("pool", pool.name)])?.encode_gauge(&(pool.busy.len() as f64))?;
    }
    let name = "millrace_pool_queued_jobs";
    let mut queued =
        encoder.encode_descriptor(name, "Jobs that wait for a thread", None, MetricType::Gauge)?;
    for pool in &page.pools {
        queued.encode_family(&vec![("pool", pool.name)])?.encode_gauge(&(pool.queued as f64))?;
    }
    let name = "millrace_pool_jobs";
    let mut jobs = encoder.encode_descriptor(name, "Jobs that have ended", None, MetricType::Counter)?;
    for pool in &page.pools {
        let labels = vec![("pool", pool.name)];
        jobs.encode_family(&labels)?.encode_counter::<NoLabelSet, u64, f64>(&pool.completed, None)?;
    }
    Ok(())
}

fn objects(page: &Page, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let name = "millrace_object_store_requests";
    let help = "Requests to a remote object store by kind and outcome";
    let mut requests = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (kind, outcome, count) in page.session().object_requests() {
        let labels = vec![("kind", kind.name()), ("outcome", outcome.name())];
        requests.encode_family(&labels)?.encode_counter::<NoLabelSet, u64, f64>(&count, None)?;
    }
    Ok(())
}

fn caches(page: &Page, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let caches = page.session().cache_figures();
    let mut requests = encoder.encode_descriptor(
        "millrace_cache_requests",
        "Requests to a cache by result",
        None,
        MetricType::Counter,
    )?;
    for (cache, figures) in caches {
        for (result, count) in [("hit", figures.hits), ("miss", figures.misses)] {
            let labels = vec![("cache", cache), ("result", result)];
            requests.encode_family(&labels)?.encode_counter::<NoLabelSet, u64, f64>(&count, None)?;
        }
    }
    for (name, help, is_limit) in [
        ("millrace_cache_bytes", "Bytes of a cache", false),
        ("millrace_cache_limit_bytes", "Bound on the bytes of a cache", true),
    ] {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (cache, figures) in &caches {
            let bytes = if is_limit { figures.limit } else { figures.bytes };
            family.encode_family(&vec![("cache", *cache)])?.encode_gauge(&(bytes as f64))?;
        }
    }
    Ok(())
}
