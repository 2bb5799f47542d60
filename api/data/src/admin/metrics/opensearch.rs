//! Families with the names and labels of OpenSearch's Prometheus exporter, for its dashboards and alert rules.
//!
//! They are gauges there. A name that ends in `_count` is untyped here, as Prometheus has that ending for parts of histograms.

use std::fmt;

use millrace_engine::ShardFigures;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder};
use prometheus_client::metrics::MetricType;

use super::super::health::{Health, Status};
use super::super::node;
use super::super::process::percent;
use super::super::thread_pools;
use super::page::{IndexSample, Page};

/// A family with one sample a node: its name, its meaning, its value.
type NodeFamily = (&'static str, &'static str, fn(&Page) -> f64);
/// A family with a sample for each index: its name, its meaning, its value.
type IndexFamily = (&'static str, &'static str, fn(&ShardFigures) -> f64);
/// Labels of a sample.
type Labels<'a> = Vec<(&'static str, &'a str)>;

const NODE: &[NodeFamily] = &[
    ("opensearch_indices_doc_number", "Documents", |page| page.sum.docs as f64),
    ("opensearch_indices_doc_deleted_number", "Rows of deleted documents", |page| page.sum.deleted as f64),
    ("opensearch_indices_store_size_bytes", "Bytes of segment files", |page| page.sum.store_bytes as f64),
    ("opensearch_indices_indexing_index_count", "Indexed documents", |page| page.sum.index_total as f64),
    ("opensearch_indices_indexing_index_time_seconds", "Time of write requests", |page| page.write_seconds()),
    ("opensearch_indices_indexing_delete_count", "Deleted documents", |page| page.sum.delete_total as f64),
    ("opensearch_indices_get_count", "Gets by id", |page| page.sum.get_total as f64),
    ("opensearch_indices_search_open_contexts_number", "Open scrolls, points in time and cursors", |page| {
        page.open_contexts() as f64
    }),
    ("opensearch_indices_search_query_count", "Searches of shards", |page| page.sum.query_total as f64),
    ("opensearch_indices_search_query_time_seconds", "Time of query phases", |page| page.query_seconds()),
    ("opensearch_indices_search_fetch_count", "Fetch phases", |page| page.fetches() as f64),
    ("opensearch_indices_search_fetch_time_seconds", "Time of fetch phases", |page| page.fetch_seconds()),
    ("opensearch_indices_search_scroll_count", "Closed scrolls", |page| page.sum.scrolls.total as f64),
    ("opensearch_indices_search_scroll_current_number", "Open scrolls", |page| {
        page.sum.scrolls.current as f64
    }),
    ("opensearch_indices_search_scroll_time_seconds", "Time that closed scrolls were open", |page| {
        page.sum.scrolls.time_ms as f64 / 1e3
    }),
    ("opensearch_indices_merges_total_number", "Compactions", |page| page.sum.merge_total as f64),
    ("opensearch_indices_merges_total_time_seconds", "Time of compactions", |page| page.compaction_seconds()),
    ("opensearch_indices_refresh_total_count", "Refreshes", |page| page.sum.refresh_total as f64),
    ("opensearch_indices_refresh_total_time_seconds", "Time of refreshes", |page| page.refresh_seconds()),
    ("opensearch_indices_flush_total_count", "Flushes", |page| page.sum.flush_total as f64),
    ("opensearch_indices_flush_total_time_seconds", "Time of flushes", |page| page.flush_seconds()),
    ("opensearch_indices_segments_number", "Segments", |page| page.sum.segments as f64),
    ("opensearch_process_cpu_percent", "Share of all processors since the start", |page| {
        let whole = page.process.uptime_ms.saturating_mul(page.machine.processors as u64);
        percent(page.process.cpu_ms, whole) as f64
    }),
    ("opensearch_process_cpu_time_seconds", "Processor time", |page| page.process.cpu_ms as f64 / 1e3),
    ("opensearch_process_mem_total_virtual_bytes", "Address space", |page| page.process.virtual_bytes as f64),
    ("opensearch_process_file_descriptors_open_number", "Open file descriptors", |page| {
        page.process.open_files as f64
    }),
    ("opensearch_process_file_descriptors_max_number", "Most file descriptors, -1 without a limit", |page| {
        page.process.max_files.map_or(-1.0, |most| most as f64)
    }),
    ("opensearch_jvm_uptime_seconds", "Time since the start", |page| page.process.uptime_ms as f64 / 1e3),
    ("opensearch_jvm_mem_heap_max_bytes", "Memory of the machine or the control group", |page| {
        page.machine.memory_total as f64
    }),
    ("opensearch_jvm_mem_heap_used_bytes", "Memory that the process allocated", |page| {
        page.process.anonymous as f64
    }),
    ("opensearch_jvm_mem_heap_committed_bytes", "Memory that the process allocated", |page| {
        page.process.anonymous as f64
    }),
    ("opensearch_jvm_mem_heap_used_percent", "Memory that the process allocated, of all", |page| {
        percent(page.process.anonymous, page.machine.memory_total) as f64
    }),
    ("opensearch_jvm_mem_nonheap_used_bytes", "Resident pages of files", |page| {
        page.process.resident.saturating_sub(page.process.anonymous) as f64
    }),
    ("opensearch_jvm_threads_number", "Threads of the process", |page| page.process.threads as f64),
    ("opensearch_os_cpu_percent", "Load of one minute, of all processors", |page| {
        let load = page.machine.load.map_or(0.0, |[one, ..]| one);
        (100.0 * load / page.machine.processors.max(1) as f64).min(100.0)
    }),
    ("opensearch_os_mem_free_bytes", "Free memory", |page| page.machine.memory_free as f64),
    ("opensearch_os_mem_free_percent", "Free memory, of all", |page| {
        percent(page.machine.memory_free, page.machine.memory_total) as f64
    }),
    ("opensearch_os_mem_used_bytes", "Used memory", |page| page.machine.memory_used() as f64),
    ("opensearch_os_mem_used_percent", "Used memory, of all", |page| {
        percent(page.machine.memory_used(), page.machine.memory_total) as f64
    }),
    ("opensearch_os_mem_total_bytes", "Memory", |page| page.machine.memory_total as f64),
    ("opensearch_os_swap_free_bytes", "Free swap space", |page| page.machine.swap_free as f64),
    ("opensearch_os_swap_used_bytes", "Used swap space", |page| {
        page.machine.swap_total.saturating_sub(page.machine.swap_free) as f64
    }),
    ("opensearch_os_swap_total_bytes", "Swap space", |page| page.machine.swap_total as f64),
    ("opensearch_fs_total_total_bytes", "Bytes of the data's disk", |page| page.disk.total as f64),
    ("opensearch_fs_total_available_bytes", "Bytes that the process may still use", |page| {
        page.disk.available as f64
    }),
    ("opensearch_fs_total_free_bytes", "Free bytes of the data's disk", |page| page.disk.free as f64),
];

const INDEX: &[IndexFamily] = &[
    ("opensearch_index_doc_number", "Documents", |index| index.docs as f64),
    ("opensearch_index_doc_deleted_number", "Rows of deleted documents", |index| index.deleted as f64),
    ("opensearch_index_store_size_bytes", "Bytes of segment files", |index| index.store_bytes as f64),
    ("opensearch_index_indexing_index_count", "Indexed documents", |index| index.index_total as f64),
    ("opensearch_index_indexing_delete_count", "Deleted documents", |index| index.delete_total as f64),
    ("opensearch_index_get_count", "Gets by id", |index| index.get_total as f64),
    ("opensearch_index_search_open_contexts_number", "Open scrolls, points in time and cursors", |index| {
        (index.scrolls.current + index.points_in_time.current + index.cursors.current) as f64
    }),
    ("opensearch_index_search_query_count", "Searches of shards", |index| index.query_total as f64),
    ("opensearch_index_search_scroll_count", "Closed scrolls", |index| index.scrolls.total as f64),
    ("opensearch_index_search_scroll_current_number", "Open scrolls", |index| index.scrolls.current as f64),
    ("opensearch_index_merges_total_number", "Compactions", |index| index.merge_total as f64),
    ("opensearch_index_refresh_total_count", "Refreshes", |index| index.refresh_total as f64),
    ("opensearch_index_flush_total_count", "Flushes", |index| index.flush_total as f64),
    ("opensearch_index_segments_number", "Segments", |index| index.segments as f64),
];

/// Load averages by the name of their time.
const LOADS: [(&str, &str); 3] = [
    ("opensearch_os_load_average_one_minute", "Load average of a minute"),
    ("opensearch_os_load_average_five_minutes", "Load average of five minutes"),
    ("opensearch_os_load_average_fifteen_minutes", "Load average of fifteen minutes"),
];

/// Returns the type of a family by its name.
fn kind(name: &str) -> MetricType {
    if name.ends_with("_count") { MetricType::Unknown } else { MetricType::Gauge }
}

/// Begins a family.
fn family<'e>(
    encoder: &'e mut DescriptorEncoder<'_>,
    name: &'e str,
    help: &str,
) -> Result<MetricEncoder<'e>, fmt::Error> {
    encoder.encode_descriptor(name, help, None, kind(name))
}

/// Writes a sample.
fn sample(family: &mut MetricEncoder<'_>, labels: &Labels<'_>, value: f64) -> fmt::Result {
    family.encode_family(labels)?.encode_gauge(&value)
}

fn color(health: Health) -> f64 {
    match health.status() {
        Status::Green => 0.0,
        Status::Yellow => 1.0,
        Status::Red => 2.0,
    }
}

/// Counts the shards of each state.
fn shards(health: Health) -> [(&'static str, f64); 5] {
    let active = health.active() as f64;
    let lost = health.lost as f64;
    // Nothing moves between nodes, and a shard is there once its index is.
    [
        ("active", active),
        ("active_primary", active),
        ("initializing", 0.0),
        ("relocating", 0.0),
        ("unassigned", lost),
    ]
}

/// Writes all families.
pub(super) fn encode(page: &Page, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    cluster(page, encoder)?;
    let labels = page.node_labels();
    for (name, help, value) in NODE {
        sample(&mut family(encoder, name, help)?, &labels, value(page))?;
    }
    if let Some(loads) = page.machine.load {
        for ((name, help), load) in LOADS.iter().zip(loads) {
            sample(&mut family(encoder, name, help)?, &labels, load)?;
        }
    }
    let mut memory =
        family(encoder, "opensearch_indices_segments_memory_bytes", "Bytes of segments in memory")?;
    sample(&mut memory, &page.labels(&[("type", "all")]), page.sum.memory_bytes as f64)?;
    let mut roles = family(encoder, "opensearch_node_role_bool", "Roles of the node")?;
    for role in node::ROLES {
        sample(&mut roles, &page.labels(&[("role", role)]), 1.0)?;
    }
    disk(page, encoder)?;
    breakers(page, encoder)?;
    pools(page, encoder)?;
    indices(page, encoder)
}

fn cluster(page: &Page, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let labels: Labels<'_> = vec![("cluster", page.cluster())];
    let health = page.health;
    let single: [(&str, &str, f64); 5] = [
        ("opensearch_cluster_status", "Health: 0 green, 1 yellow, 2 red", color(health)),
        ("opensearch_cluster_nodes_number", "Nodes", 1.0),
        ("opensearch_cluster_datanodes_number", "Nodes with data", 1.0),
        ("opensearch_cluster_shards_active_percent", "Shards that serve, of all", health.active_percent()),
        // Changes of metadata are made at once.
        ("opensearch_cluster_pending_tasks_number", "Changes of metadata that wait", 0.0),
    ];
    for (name, help, value) in single {
        sample(&mut family(encoder, name, help)?, &labels, value)?;
    }
    let mut states = family(encoder, "opensearch_cluster_shards_number", "Shards by state")?;
    for (state, count) in shards(health) {
        sample(&mut states, &vec![("cluster", page.cluster()), ("type", state)], count)?;
    }
    Ok(())
}

fn disk(page: &Page, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let directory = page.data_dir();
    let labels = page.labels(&[("path", &directory), ("mount", &directory), ("type", "local")]);
    for (name, help, bytes) in [
        ("opensearch_fs_path_total_bytes", "Bytes of the data's disk", page.disk.total),
        ("opensearch_fs_path_available_bytes", "Bytes that the process may still use", page.disk.available),
        ("opensearch_fs_path_free_bytes", "Free bytes of the data's disk", page.disk.free),
    ] {
        sample(&mut family(encoder, name, help)?, &labels, bytes as f64)?;
    }
    Ok(())
}

fn breakers(page: &Page, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let (pinned, audit) = (&page.pinned, &page.audit);
    let breakers = [
        ("open_contexts", pinned.bytes, pinned.limit, pinned.refused),
        ("audit", audit.bytes, audit.limit, audit.lost),
    ];
    type Figure = fn(&(&'static str, u64, u64, u64)) -> u64;
    let families: [(&str, &str, Figure); 3] = [
        ("opensearch_circuitbreaker_estimated_bytes", "Bytes that a breaker counts", |breaker| breaker.1),
        ("opensearch_circuitbreaker_limit_bytes", "Bytes beyond which a breaker refuses", |breaker| {
            breaker.2
        }),
        ("opensearch_circuitbreaker_tripped_count", "Refusals of a breaker", |breaker| breaker.3),
    ];
    for (name, help, figure) in families {
        let mut family = family(encoder, name, help)?;
        for breaker in &breakers {
            sample(&mut family, &page.labels(&[("name", breaker.0)]), figure(breaker) as f64)?;
        }
    }
    Ok(())
}

fn pools(page: &Page, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let named = || thread_pools::named(&page.pools);
    let mut threads = family(encoder, "opensearch_threadpool_threads_number", "Threads of a pool")?;
    for (name, pool) in named() {
        for (kind, count) in [("threads", pool.threads), ("active", pool.busy.len())] {
            sample(&mut threads, &page.labels(&[("name", name), ("type", kind)]), count as f64)?;
        }
    }
    let mut jobs =
        family(encoder, "opensearch_threadpool_threads_count", "Jobs that a pool has ended or refused")?;
    for (name, pool) in named() {
        // Requests are refused before their jobs are queued.
        for (kind, count) in [("completed", pool.completed), ("rejected", 0)] {
            sample(&mut jobs, &page.labels(&[("name", name), ("type", kind)]), count as f64)?;
        }
    }
    let mut queue = family(encoder, "opensearch_threadpool_tasks_number", "Jobs that wait for a thread")?;
    for (name, pool) in named() {
        sample(&mut queue, &page.labels(&[("name", name), ("type", "queue")]), pool.queued as f64)?;
    }
    Ok(())
}

fn indices(page: &Page, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    fn labels<'a>(page: &'a Page, index: &'a IndexSample) -> Labels<'a> {
        vec![("cluster", page.cluster()), ("index", &index.name)]
    }
    let mut status =
        family(encoder, "opensearch_index_status", "Health of an index: 0 green, 1 yellow, 2 red")?;
    for index in &page.indices {
        sample(&mut status, &labels(page, index), color(index.health))?;
    }
    let mut replicas =
        family(encoder, "opensearch_index_replicas_number", "Replicas that an index is configured for")?;
    for index in &page.indices {
        sample(&mut replicas, &labels(page, index), index.replicas as f64)?;
    }
    let mut states = family(encoder, "opensearch_index_shards_number", "Shards of an index by state")?;
    for index in &page.indices {
        for (state, count) in shards(index.health) {
            let labels = vec![("cluster", page.cluster()), ("type", state), ("index", &*index.name)];
            sample(&mut states, &labels, count)?;
        }
    }
    for (name, help, value) in INDEX {
        let mut family = family(encoder, name, help)?;
        for index in &page.indices {
            // There is one copy of each shard, so both contexts are the same.
            for context in ["primaries", "total"] {
                let labels = vec![("cluster", page.cluster()), ("index", &*index.name), ("context", context)];
                sample(&mut family, &labels, value(&index.figures))?;
            }
        }
    }
    Ok(())
}
