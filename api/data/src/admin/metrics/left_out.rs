//! Families of OpenSearch's exporter that the page does not have, and why.

/// Names or beginnings of names (with `*`), and the reason why no figure stands for them.
const LEFT_OUT: &[(&str, &str)] = &[
    ("opensearch_metrics_generate_time_seconds", "Prometheus measures it itself (`scrape_duration_seconds`)"),
    ("opensearch_cluster_task_max_waiting_time_seconds", "no change of metadata ever waits"),
    ("opensearch_cluster_is_timedout_bool", "the page waits for no other node"),
    ("opensearch_cluster_inflight_fetch_number", "no shard is fetched from another node"),
    (
        "opensearch_cluster_routing_allocation_*",
        "shards are not moved; watermarks are in `_cluster/settings`",
    ),
    (
        "opensearch_*_indexing_delete_current_number",
        "operations in flight are not counted by kind; see `millrace_tasks`",
    ),
    (
        "opensearch_*_indexing_delete_time_seconds",
        "deletions are part of write requests, see `millrace_write_seconds`",
    ),
    (
        "opensearch_*_indexing_index_current_number",
        "operations in flight are not counted by kind; see `millrace_tasks`",
    ),
    (
        "opensearch_*_indexing_index_failed_count",
        "failures are not counted by index; see `millrace_request_seconds`",
    ),
    (
        "opensearch_index_indexing_index_time_seconds",
        "requests write to several indices: the node has the sum",
    ),
    ("opensearch_*_indexing_noop_update_count", "updates without a change are not counted"),
    ("opensearch_*_indexing_is_throttled_bool", "merges never throttle writes"),
    (
        "opensearch_*_indexing_throttle_time_seconds",
        "merges never throttle writes; waits for memory are in `millrace_write_seconds`",
    ),
    ("opensearch_*_get_time_seconds", "gets are in `millrace_request_seconds` by their routes"),
    ("opensearch_*_get_exists_*", "gets are not told apart by their outcome"),
    ("opensearch_*_get_missing_*", "gets are not told apart by their outcome"),
    ("opensearch_*_get_current_number", "gets in flight are not counted"),
    ("opensearch_*_search_fetch_current_number", "phases in flight are not counted; see `millrace_tasks`"),
    ("opensearch_*_search_query_current_number", "phases in flight are not counted; see `millrace_tasks`"),
    ("opensearch_index_search_fetch_*", "a search fetches from several indices: the node has the sum"),
    ("opensearch_index_search_query_time_seconds", "a search is over several indices: the node has the sum"),
    ("opensearch_index_search_scroll_time_seconds", "the node has the sum"),
    ("opensearch_*_search_concurrent_*", "every search is concurrent: there is no second kind"),
    ("opensearch_*_merges_current_*", "compactions in flight are not counted; see `_nodes/hot_threads`"),
    ("opensearch_*_merges_total_docs_count", "rows of compactions are not counted"),
    ("opensearch_*_merges_total_size_bytes", "bytes of compactions are not counted"),
    ("opensearch_*_merges_total_stopped_time_seconds", "merges are never stopped"),
    (
        "opensearch_*_merges_total_throttled_time_seconds",
        "merges are never throttled: their threads have a lower priority",
    ),
    ("opensearch_*_merges_total_auto_throttle_bytes", "merges are never throttled"),
    ("opensearch_index_merges_total_time_seconds", "the node has the sum"),
    ("opensearch_index_refresh_total_time_seconds", "the node has the sum"),
    ("opensearch_index_flush_total_time_seconds", "the node has the sum"),
    ("opensearch_*_refresh_listeners_number", "waits for refreshes are not counted"),
    ("opensearch_*_querycache_*", "there is no query cache"),
    ("opensearch_*_requestcache_*", "there is no request cache"),
    ("opensearch_*_fielddata_*", "there is no fielddata: columns are read from files"),
    ("opensearch_indices_percolate_*", "there is no percolator; rules have figures of their own"),
    ("opensearch_*_completion_size_bytes", "completions are part of the segments"),
    ("opensearch_index_segments_memory_bytes", "the node has the sum"),
    ("opensearch_*_suggest_*", "suggestions are part of the query phase"),
    ("opensearch_*_recovery_*", "no shard is recovered from another node"),
    ("opensearch_index_translog_*", "the log is one for all indices: `millrace_log_bytes`"),
    ("opensearch_index_warmer_*", "there are no warmers"),
    ("opensearch_transport_*", "no node talks to another"),
    ("opensearch_http_open_*", "connections are not counted"),
    (
        "opensearch_ingest_*",
        "the sums are in `millrace_ingest_*`, figures by pipeline in `_nodes/stats/ingest`",
    ),
    ("opensearch_circuitbreaker_overhead_ratio", "bytes are counted as they are"),
    ("opensearch_script_*", "there are no scripts"),
    ("opensearch_jvm_mem_nonheap_committed_bytes", "the same as `opensearch_jvm_mem_nonheap_used_bytes`"),
    ("opensearch_jvm_mem_pool_*", "there is no Java machine"),
    ("opensearch_jvm_threads_peak_number", "the peak of threads is not known"),
    ("opensearch_jvm_gc_*", "there is no garbage collection"),
    ("opensearch_jvm_bufferpool_*", "there is no Java machine"),
    ("opensearch_jvm_classes_*", "there is no Java machine"),
    ("opensearch_fs_io_*", "operations of the disk are the operating system's: see the node exporter"),
];

/// Lists families of OpenSearch's exporter that the page does not have, and why.
pub fn left_out_families() -> &'static [(&'static str, &'static str)] {
    LEFT_OUT
}
