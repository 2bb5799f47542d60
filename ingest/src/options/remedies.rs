//! Options of Logstash's plugins that are not here, with their replacements.

/// Plugins with an option that they do not have here, and its replacement.
type Remedy = (&'static [&'static str], &'static str, &'static str);

const SEARCH_ENGINES: &[&str] = &["elasticsearch", "opensearch"];
const KAFKA: &[&str] = &["kafka"];

const REMEDIES: &[Remedy] = &[
    (SEARCH_ENGINES, "bind_host", "leave it out: there is no node of a cluster in the pipeline"),
    (SEARCH_ENGINES, "bind_port", "leave it out: there is no node of a cluster in the pipeline"),
    (SEARCH_ENGINES, "cluster", "give [hosts]"),
    (SEARCH_ENGINES, "embedded", "leave it out: without [hosts], events go into this server"),
    (SEARCH_ENGINES, "flush_size", "leave it out, or set [pipeline.batch.size] in pipelines.yml"),
    (SEARCH_ENGINES, "host", "give [hosts]"),
    (SEARCH_ENGINES, "idle_flush_time", "leave it out, or set [pipeline.batch.delay] in pipelines.yml"),
    (SEARCH_ENGINES, "index_type", "leave it out: documents have no types"),
    (SEARCH_ENGINES, "max_inflight_requests", "leave it out, or set [pipeline.workers] in pipelines.yml"),
    (SEARCH_ENGINES, "max_retries", "leave it out: requests are repeated until the events are stored"),
    (SEARCH_ENGINES, "node_name", "leave it out: there is no node of a cluster in the pipeline"),
    (SEARCH_ENGINES, "port", "give it in [hosts], as in host:9200"),
    (SEARCH_ENGINES, "protocol", "leave it out: HTTP is spoken; give https:// addresses in [hosts] for TLS"),
    (SEARCH_ENGINES, "retry_max_items", "leave it out: requests are repeated until the events are stored"),
    (SEARCH_ENGINES, "tracking_field", "give [query] a condition on the time, and [schedule]"),
    (SEARCH_ENGINES, "tracking_field_seed", "give [query] a condition on the time, and [schedule]"),
    (
        SEARCH_ENGINES,
        "region",
        "requests are not signed: give [user] and [password], or an address that signs",
    ),
    (SEARCH_ENGINES, "aws_access_key_id", "requests are not signed: give [user] and [password]"),
    (SEARCH_ENGINES, "aws_secret_access_key", "requests are not signed: give [user] and [password]"),
    (KAFKA, "black_list", "give [topics_pattern] a pattern without these topics"),
    (KAFKA, "broker_list", "give [bootstrap_servers]"),
    (KAFKA, "consumer_restart_on_error", "leave it out: the input connects again by itself"),
    (KAFKA, "consumer_restart_sleep_ms", "leave it out: the input connects again by itself"),
    (KAFKA, "fetch_message_max_bytes", "give [max_partition_fetch_bytes]"),
    (KAFKA, "queue_size", "leave it out: [pipelines.memory_bytes] of the server bounds what waits"),
    (KAFKA, "rebalance_backoff_ms", "leave it out: the group is rebalanced by itself"),
    (KAFKA, "rebalance_max_retries", "leave it out: the group is rebalanced by itself"),
    (KAFKA, "reset_beginning", "give [auto_offset_reset => earliest]"),
    (KAFKA, "white_list", "give [topics_pattern]"),
    (KAFKA, "zk_connect", "give [bootstrap_servers], the addresses of the brokers"),
    (KAFKA, "block_on_buffer_full", "leave it out: what does not fit waits"),
    (KAFKA, "timeout_ms", "give [request_timeout_ms]"),
    (SEARCH_ENGINES, "last_run_metadata_path", "leave it out: each run reads all that the query finds"),
    (SEARCH_ENGINES, "query_type", "leave it out, and give [query] in the query DSL"),
    (SEARCH_ENGINES, "schedule_overlap", "leave it out: a run begins once the one before has ended"),
    (&["date"], "timestamp", "give [match => [\"timestamp\", \"…\"]]"),
    (&["date"], "precision", "leave it out: times keep nine digits of a second"),
    (&["email"], "options", "give [address], [port], [username] and [password]"),
    (&["geoip"], "field", "give [source]"),
    (&["geoip"], "type", "leave it out: the file says its type"),
    (&["geoip"], "web_api", "give [database]"),
    (&["grok"], "pattern", "give [match => { \"message\" => … }]"),
    (&["grok"], "singles", "leave it out: a field with one value is no array"),
    (&["http_poller"], "interval", "give [schedule => { \"every\" => \"60s\" }]"),
    (&["kv"], "trim", "give [trim_value]"),
    (&["kv"], "trimkey", "give [trim_key]"),
    (&["mutate"], "remove", "give [remove_field]"),
    (&["redis"], "name", "give [key]"),
    (&["redis"], "queue", "give [key]"),
    (&["s3"], "signature_version", "leave it out: requests have signatures of version 4"),
    (&["s3"], "use_ssl", "leave it out: TLS is spoken unless [endpoint] begins with http://"),
    (&["tcp"], "data_timeout", "leave it out: connections stay open until the other side closes them"),
    (&["tcp"], "ssl_extra_chain_certs", "append the certificates to the file of [ssl_certificate]"),
];

/// Options that old plugins of all kinds had.
const COMMON: &[(&str, &str)] = &[
    ("charset", "give [codec => plain { charset => … }]"),
    ("debug", "leave it out, or set the level of the server's log"),
    ("tags", "put the plugin into [if \"tag\" in [tags] { … }]"),
    ("type", "put the plugin into [if [type] == \"…\" { … }]"),
    ("exclude_tags", "put the plugin into [if \"tag\" not in [tags] { … }]"),
    ("message_format", "give [codec => line { format => … }]"),
    ("workers", "set [pipeline.workers] in pipelines.yml"),
];

/// Returns the replacement of an option that a plugin does not have.
pub(super) fn find(plugin: &str, option: &str) -> Option<&'static str> {
    let own = REMEDIES.iter().find(|(plugins, name, _)| *name == option && plugins.contains(&plugin));
    if let Some(&(_, _, remedy)) = own {
        return Some(remedy);
    }
    let common = COMMON.iter().find(|(name, _)| *name == option && !crate::codec::NAMES.contains(&plugin));
    common.map(|(_, remedy)| *remedy)
}
