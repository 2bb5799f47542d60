//! Options of the input.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::ClientConfig;

use super::position::Reset;
use super::topic_pattern::to_posix;
use crate::codec::{self, Codec};
use crate::kafka::Client;
use crate::{Fault, Options, Setting};

/// Records that librdkafka fetches ahead, in KiB.
const FETCH_AHEAD_KIB: &str = "16384";
/// Pause of fetching once so much is there. The library's own second would leave the pipeline without work.
const FETCH_AGAIN_MS: &str = "5";
const DEFAULT_POLL_RECORDS: i64 = 500;
/// Replacement of the options for registries of schemas.
const AVRO: &str = "[codec => avro { schema_registry_url => … }]";
/// Options for registries of schemas, which are not supported.
const SCHEMAS: &[&str] = &[
    "schema_registry_url",
    "schema_registry_key",
    "schema_registry_secret",
    "schema_registry_proxy",
    "schema_registry_validation",
    "schema_registry_ssl_keystore_location",
    "schema_registry_ssl_keystore_password",
    "schema_registry_ssl_keystore_type",
    "schema_registry_ssl_truststore_location",
    "schema_registry_ssl_truststore_password",
    "schema_registry_ssl_truststore_type",
];

/// Members of a record that go into the metadata of its event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordDecoration {
    Nothing,
    Basic,
    /// Headers too.
    Extended,
}

/// Settings of a topic input.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) client: Client,
    /// Names, or one pattern that begins with `^`.
    pub(super) topics: Vec<String>,
    pub(super) group: String,
    pub(super) threads: usize,
    pub(super) reset: Reset,
    /// Interval of the export of offsets; at once where `None`.
    pub(super) export: Option<Duration>,
    pub(super) max_records: usize,
    pub(super) poll: Duration,
    pub(super) decorate: RecordDecoration,
    pub(super) codec: Arc<dyn Codec>,
    instance: Option<String>,
    fixed: Vec<(&'static str, String)>,
}

impl Settings {
    /// Takes all options.
    ///
    /// # Errors
    /// All that is wrong with them.
    pub(super) fn take(mut options: Options) -> Result<Self, Vec<Fault>> {
        let at = options.at();
        let o = &mut options;
        let client = Client::take(o);
        let topics = take_topics(o);
        let group = o.text("group_id").unwrap_or_else(|| "logstash".to_owned());
        let threads = o.integer("consumer_threads", 1..=64).unwrap_or(1);
        let reset = o.read("auto_offset_reset", "one of [earliest, latest, none]", |setting| {
            match setting.as_text()?.as_str() {
                "earliest" => Some(Reset::Earliest),
                "latest" => Some(Reset::Latest),
                "none" => Some(Reset::None),
                _ => None,
            }
        });
        let automatic = o.boolean("enable_auto_commit").unwrap_or(true);
        let interval = o.integer("auto_commit_interval_ms", 1..=86_400_000).unwrap_or(5000);
        let max_records = o.integer("max_poll_records", 1..=1_000_000).unwrap_or(DEFAULT_POLL_RECORDS);
        let poll = o.integer("poll_timeout_ms", 1..=60_000).unwrap_or(100);
        let decorate = o.read("decorate_events", "one of [none, basic, extended]", |setting| {
            match setting.as_text()?.as_str() {
                "none" | "false" => Some(RecordDecoration::Nothing),
                "basic" | "true" => Some(RecordDecoration::Basic),
                "extended" => Some(RecordDecoration::Extended),
                _ => None,
            }
        });
        let instance = o.text("group_instance_id");
        let mut fixed = vec![("group.id", group.clone())];
        take_numbers(o, &mut fixed);
        take_choices(o, &mut fixed);
        take_refused(o);
        let _ = o.ecs_compatibility();
        let codec = codec::take(o, "plain");
        let settings = |codec| Self {
            client,
            topics,
            group,
            threads: usize::try_from(threads).unwrap_or(1),
            reset: reset.unwrap_or(Reset::Latest),
            export: automatic.then(|| Duration::from_millis(interval.unsigned_abs())),
            max_records: usize::try_from(max_records).unwrap_or(usize::MAX),
            poll: Duration::from_millis(poll.unsigned_abs()),
            decorate: decorate.unwrap_or(RecordDecoration::Nothing),
            codec,
            instance,
            fixed,
        };
        options.finish()?;
        let settings = settings(codec?);
        let checked = settings
            .config(0)
            .and_then(|config| config.create_native_config().map_err(|error| error.to_string()));
        match checked {
            Ok(_) => Ok(settings),
            Err(message) => Err(vec![Fault { at, message }]),
        }
    }

    /// Settings of the consumer of one thread.
    ///
    /// # Errors
    /// A key store cannot be read.
    pub(super) fn config(&self, thread: usize) -> Result<ClientConfig, String> {
        let mut config = self.client.config()?;
        for (setting, value) in &self.fixed {
            config.set(*setting, value);
        }
        if let Some(instance) = &self.instance {
            // As Logstash tells its threads apart.
            let id = if self.threads > 1 { format!("{instance}-{thread}") } else { instance.clone() };
            config.set("group.instance.id", id);
        }
        config
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("enable.partition.eof", "false")
            .set("queued.max.messages.kbytes", FETCH_AHEAD_KIB)
            .set("fetch.queue.backoff.ms", FETCH_AGAIN_MS)
            .set(
                "auto.offset.reset",
                match self.reset {
                    Reset::Earliest => "earliest",
                    Reset::Latest => "latest",
                    Reset::None => "error",
                },
            );
        Ok(config)
    }
}

fn take_topics(options: &mut Options) -> Vec<String> {
    let topics = options.texts("topics");
    let pattern = options.text("topics_pattern");
    if let Some(topic) = topics.iter().find(|topic| !is_topic(topic)) {
        options.fault_here(format!("[{topic}] cannot be a topic: letters, digits, dots, underscores and hyphens make one, at most 249"));
    }
    match (topics.is_empty(), pattern) {
        (true, None) => vec!["logstash".to_owned()],
        (true, Some(pattern)) => match to_posix(&pattern) {
            Ok(pattern) => vec![pattern],
            Err(fault) => {
                options.fault_here(fault);
                Vec::new()
            }
        },
        (false, None) => topics,
        (false, Some(_)) => {
            options.fault_here("only one of [topics] and [topics_pattern] may be given");
            topics
        }
    }
}

fn is_topic(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    !name.is_empty() && name.len() <= 249 && name.chars().all(fits) && name != "." && name != ".."
}

fn take_numbers(options: &mut Options, fixed: &mut Vec<(&'static str, String)>) {
    for (option, setting, bounds) in [
        ("fetch_max_bytes", "fetch.max.bytes", 1024..=1_000_000_000),
        ("fetch_max_wait_ms", "fetch.wait.max.ms", 0..=300_000),
        ("fetch_min_bytes", "fetch.min.bytes", 1..=100_000_000),
        ("heartbeat_interval_ms", "heartbeat.interval.ms", 1..=3_600_000),
        ("max_partition_fetch_bytes", "max.partition.fetch.bytes", 1024..=1_000_000_000),
        ("max_poll_interval_ms", "max.poll.interval.ms", 1000..=86_400_000),
        ("request_timeout_ms", "socket.timeout.ms", 1000..=300_000),
        ("session_timeout_ms", "session.timeout.ms", 1000..=3_600_000),
    ] {
        fixed.extend(options.integer(option, bounds).map(|value| (setting, value.to_string())));
    }
}

fn take_choices(options: &mut Options, fixed: &mut Vec<(&'static str, String)>) {
    // The defaults of Java's client, where librdkafka has others.
    let check = options.boolean("check_crcs").unwrap_or(true);
    fixed.push(("check.crcs", check.to_string()));
    let level = options.one_of("isolation_level", &["read_uncommitted", "read_committed"]);
    fixed.push(("isolation.level", level.unwrap_or("read_uncommitted").to_owned()));
    if let Some(rack) = options.text("client_rack") {
        fixed.push(("client.rack", rack));
    }
    if options.boolean("exclude_internal_topics").unwrap_or(true) {
        fixed.push(("topic.blacklist", "^__".to_owned()));
    }
    let wanted = "one of [range, round_robin, cooperative_sticky]";
    let strategy =
        options.read("partition_assignment_strategy", wanted, |setting| match setting.as_text()?.as_str() {
            "range" | "org.apache.kafka.clients.consumer.RangeAssignor" => Some("range"),
            "round_robin" | "org.apache.kafka.clients.consumer.RoundRobinAssignor" => Some("roundrobin"),
            "cooperative_sticky" | "org.apache.kafka.clients.consumer.CooperativeStickyAssignor" => {
                Some("cooperative-sticky")
            }
            _ => None,
        });
    if let Some(strategy) = strategy {
        fixed.push(("partition.assignment.strategy", strategy.to_owned()));
    }
}

fn take_refused(options: &mut Options) {
    for option in ["key_deserializer_class", "value_deserializer_class"] {
        options.read(
            option,
            "StringDeserializer or ByteArrayDeserializer, for the codec reads the bytes",
            |setting| {
                let class = setting.as_text()?;
                let name = class.strip_prefix("org.apache.kafka.common.serialization.")?;
                ["StringDeserializer", "ByteArrayDeserializer"].contains(&name).then_some(())
            },
        );
    }
    for option in SCHEMAS {
        if let Some((at, _)) = options.take(option) {
            options.fault(at, format!("option [{option}] is not supported: give {AVRO}"));
        }
    }
    if let Some((at, setting)) = options.take("group_protocol")
        && setting != Setting::Text("classic".to_owned())
    {
        options.fault(at, "option [group_protocol] must be [classic]: that is the protocol in use");
    }
}
