//! Options of former versions of Logstash, and those that are often mistaken for others: what stands in their place.

/// Returns what to do in place of an option that a plugin does not have.
pub(crate) fn instead_of(plugin: &str, option: &str) -> Option<&'static str> {
    Some(match (plugin, option) {
        ("elasticsearch" | "opensearch", "protocol") => {
            "give the scheme in [hosts], such as https://host:9200"
        }
        ("elasticsearch" | "opensearch", "port") => "give it in [hosts], such as host:9200",
        ("elasticsearch" | "opensearch", "cluster") => "give the addresses of its nodes by [hosts]",
        ("elasticsearch" | "opensearch", "embedded" | "embedded_http_port") => {
            "leave it out; without [hosts], events go into this server"
        }
        ("elasticsearch" | "opensearch", "index_type") => "leave it out; documents have no types any more",
        ("elasticsearch" | "opensearch", "flush_size" | "idle_flush_time") => {
            "leave it out; [pipeline.batch.size] bounds what a worker sends at once"
        }
        ("kafka", "zk_connect" | "broker_list") => "give the addresses of brokers by [bootstrap_servers]",
        ("kafka", "white_list") => "give [topics_pattern]",
        ("kafka", "reset_beginning") => "give [auto_offset_reset]",
        ("file", "message_format") => "give codec => line { format => \"…\" }",
        ("lumberjack" | "tcp" | "udp" | "file" | "stdin" | "redis", "format") => "give [codec]",
        ("grok", "pattern") => "give match => { \"message\" => \"…\" }",
        ("geoip", "field") => "give [source]",
        ("date", "timestamp") => "give match => [\"timestamp\", \"…\"]",
        ("kv", "trim") => "give [trim_value]",
        ("kv", "trimkey") => "give [trim_key]",
        ("http_poller", "interval") => "give [schedule], such as { every => \"60s\" }",
        ("tcp", "ssl_extra_chain_certs") => "put these certificates behind that of the server in its file",
        (_, "type" | "tags" | "exclude_tags") => {
            "put the plugin into a branch, such as if [type] == \"…\" { … }"
        }
        _ => return None,
    })
}
