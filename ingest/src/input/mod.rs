//! Inputs: sources of batches. One file a source.

mod beats;
mod chunks;
mod datagram;
mod exec;
pub(crate) mod fetch;
mod file;
mod gelf;
mod generator;
mod heartbeat;
mod http;
mod http_poller;
pub(crate) mod jdbc;
mod kafka;
#[cfg(test)]
mod ledger;
#[cfg(test)]
mod lifecycle_tests;
mod pending;
mod pipeline;
mod rabbitmq;
mod redis;
mod s3;
#[cfg(test)]
mod schema_tests;
mod search;
mod sockets;
mod stdin;
mod stream;
mod syslog;
mod tcp;
#[cfg(test)]
pub(crate) mod testing;
mod timer;
mod udp;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use xxhash_rust::xxh3::xxh3_64;

pub use exec::allow_programs;

use crate::budget::{PipelineShare, Reservation};
use crate::event::Additions;
use crate::options::suggest;
use crate::{Batch, Event, Fault, Options};

/// Names of the inputs.
pub const NAMES: &[&str] = &[
    "beats",
    "elastic_agent",
    "elasticsearch",
    "exec",
    "file",
    "gelf",
    "generator",
    "heartbeat",
    "http",
    "http_poller",
    "jdbc",
    "kafka",
    "lumberjack",
    "opensearch",
    "otlp",
    "pipeline",
    "rabbitmq",
    "redis",
    "s3",
    "stdin",
    "syslog",
    "tcp",
    "udp",
];

/// A configured source. It is run by the pipeline, again after a failure, until it is told to stop.
#[async_trait]
pub trait Input: fmt::Debug + Send + Sync {
    /// Returns the identity of the source (topics and group, address, file), so that a reload knows it again.
    fn identity(&self) -> String;

    /// Returns whether its positions are told from those of other inputs by [`Context::source`] alone.
    fn needs_name(&self) -> bool {
        false
    }

    /// Address that it listens on, if it listens and does so by now.
    fn local_address(&self) -> Option<SocketAddr> {
        None
    }

    /// Returns the address that other pipelines of this process send to, if it has one.
    fn pipeline_address(&self) -> Option<&str> {
        None
    }

    /// Reads until `context.stopping`, or until the source ends for good. What was not acknowledged when
    /// it returns is read again from the stored position.
    ///
    /// # Errors
    /// Why it cannot go on for now; the pipeline logs it and runs it again after a pause.
    async fn run(&self, context: Context) -> Result<(), InputError>;
}

/// The name of an input among those of its pipeline: the id that it was given, or what it is by nature.
pub fn source_name(identity: &str, id: Option<&str>) -> String {
    match id {
        Some(id) => format!("id {id}"),
        None => format!("{:016x}", xxh3_64(identity.as_bytes())),
    }
}

/// Context of a running input.
#[derive(Clone)]
pub struct Context {
    /// Sender of batches. Sending waits while the pipeline is behind; `try_send` tells that it is.
    pub batches: mpsc::Sender<Batch>,
    /// Name of the input ([`source_name`]), the same over reloads and restarts.
    pub source: Arc<str>,
    /// Names of the other inputs of this kind in the pipeline.
    pub siblings: Vec<Arc<str>>,
    /// Names of inputs of this kind that a reload stopped: their batches may still be in flight.
    pub former: Vec<Arc<str>>,
    /// Stored positions of the pipeline's sources.
    pub positions: Arc<dyn Positions>,
    /// Becomes `true` when the input is to stop.
    pub stopping: watch::Receiver<bool>,
    /// Greatest number of events of a batch.
    pub batch_size: BatchSize,
    /// Memory for events: it is reserved before the read, and the reservation goes with its batch.
    pub budget: PipelineShare,
}

/// The greatest number of events of a batch, which may change while inputs run. Clones share it.
#[derive(Clone, Debug)]
pub struct BatchSize(Arc<AtomicUsize>);

impl BatchSize {
    /// Makes a size.
    pub fn new(events: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(events)))
    }

    /// Returns it as it is now, at least 1.
    pub fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed).max(1)
    }

    /// Changes it for all who have it.
    pub fn set(&self, events: usize) {
        self.0.store(events, Ordering::Relaxed);
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("batch_size", &self.batch_size).finish_non_exhaustive()
    }
}

/// Why an input stopped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InputError(pub String);

/// Stored positions of one pipeline.
#[async_trait]
pub trait Positions: Send + Sync {
    /// Takes a part of a source over: returns its stored position and the epoch under which its new
    /// owner moves it. Batches of earlier owners are refused from then on.
    ///
    /// # Errors
    /// The store's, as text.
    async fn claim(&self, source: &str, partition: &str) -> Result<(Option<Bytes>, u64), InputError>;

    /// Parts of a source with a stored position.
    ///
    /// # Errors
    /// The store's, as text.
    async fn list(&self, source: &str) -> Result<Vec<(String, Bytes)>, InputError>;
}

/// Makes an input.
///
/// # Errors
/// An unknown name, or what is wrong with the options.
pub fn build(options: Options) -> Result<Box<dyn Input>, Vec<Fault>> {
    let at = options.at();
    match options.plugin() {
        "beats" => Ok(Box::new(beats::Beats::new(options, "beats")?)),
        "elastic_agent" => Ok(Box::new(beats::Beats::new(options, "elastic_agent")?)),
        "elasticsearch" => Ok(Box::new(search::Search::new(options, "elasticsearch")?)),
        "exec" => Ok(Box::new(exec::Exec::new(options)?)),
        "file" => Ok(Box::new(file::Tail::new(options)?)),
        "gelf" => Ok(Box::new(gelf::Gelf::new(options)?)),
        "generator" => Ok(Box::new(generator::Generator::new(options)?)),
        "heartbeat" => Ok(Box::new(heartbeat::Heartbeat::new(options)?)),
        "http" => Ok(Box::new(http::Listener::new(options)?)),
        "http_poller" => Ok(Box::new(http_poller::HttpPoller::new(options)?)),
        "jdbc" => {
            // Rows have fields, whatever it is.
            let mut options = options;
            let _ = crate::codec::take(&mut options, "plain");
            jdbc::build(options)
        }
        "kafka" => kafka::build(options),
        "lumberjack" => Ok(Box::new(beats::Beats::new(options, "lumberjack")?)),
        "opensearch" => Ok(Box::new(search::Search::new(options, "opensearch")?)),
        "otlp" => Ok(Box::new(http::build_otlp(options)?)),
        "pipeline" => Ok(Box::new(pipeline::PipelineInput::new(options)?)),
        "rabbitmq" => Ok(Box::new(rabbitmq::RabbitMq::new(options)?)),
        "redis" => Ok(Box::new(redis::Redis::new(options)?)),
        "s3" => Ok(Box::new(s3::S3::new(options)?)),
        "stdin" => Ok(Box::new(stdin::Stdin::new(options)?)),
        "syslog" => Ok(Box::new(syslog::Syslog::new(options)?)),
        "tcp" => Ok(Box::new(tcp::Tcp::new(options)?)),
        "udp" => Ok(Box::new(udp::Udp::new(options)?)),
        unknown if let Some(instead) = instead_of(unknown) => {
            Err(vec![Fault { at, message: format!("input [{unknown}] is not supported: {instead}") }])
        }
        unknown => {
            let suggestion = suggest(unknown, NAMES.iter().copied());
            Err(vec![Fault { at, message: format!("there is no input [{unknown}]{suggestion}") }])
        }
    }
}

/// Returns what to do instead of an input that is known and not there.
fn instead_of(name: &str) -> Option<&'static str> {
    match name {
        "azure_event_hubs" => Some("read the hub by [kafka], whose protocol it speaks"),
        "cloudwatch_logs" | "cloudwatch" => Some("have the logs exported to a bucket and read them by [s3]"),
        "collectd" => Some("have collectd's plugin write_http post to [http]"),
        "dead_letter_queue" => Some(
            "replay dead letters by POST /_node/dead_letters/_replay, or read [.dead-letters] by [opensearch]",
        ),
        "ganglia" | "graphite" => Some("have the metrics sent as lines to [tcp] or [udp]"),
        "log4j" => Some("have log4j2 send JSON to [tcp] with codec json_lines, or Filebeat to [beats]"),
        "logstash" => Some("have the other Logstash send to [lumberjack] or [http]"),
        "azure_blob_storage" | "google_cloud_storage" | "elastic_serverless_forwarder" => {
            Some("have the objects copied to a bucket for [s3], or posted to [http]")
        }
        "couchdb_changes" | "drupal_dblog" | "dynamodb" | "mongodb" => {
            Some("have its change feed post to [http], or write to Kafka for [kafka]")
        }
        "java_generator" => Some("give [generator]"),
        "java_stdin" => Some("give [stdin]"),
        "jmx" | "perfmon" | "puppet_facter" => {
            Some("have Metricbeat send to [beats], or a program post to [http]")
        }
        "kafka_sr" => Some("give [kafka] with codec avro"),
        "netflow" => Some("give [udp] with codec netflow"),
        "okta_system_log" | "rest" => Some("ask its interface by [http_poller]"),
        "s3-sns-sqs" => Some("give [s3], which lists the bucket"),
        "sflow" => Some("have a collector such as sflowtool send lines to [tcp] or [udp]"),
        "sqlite" => Some("give [jdbc] with jdbc:sqlite:"),
        "rss" => Some("read the feed by [http_poller], and its elements by the filters xml and split"),
        "salesforce" | "github" | "meetup" => {
            Some("have a program post its messages to [http], or ask its interface by [http_poller]")
        }
        "varnishlog" | "eventlog" | "wmi" => {
            Some("have a program write a log that [file] reads, or a Beat send to [beats]")
        }
        "imap" | "irc" | "jms" | "relp" | "stomp" | "websocket" | "xmpp" | "zeromq" => {
            Some("have a program post its messages to [http], or send lines to [tcp]")
        }
        "journald" => Some("have `journalctl -f -o json` feed [stdin], or the journal forward to [syslog]"),
        "orasql" => {
            Some("read the table by [jdbc] of another database, or have a program post rows to [http]")
        }
        "pipe" => Some("have the program feed [stdin], or send lines to [tcp]"),
        "snmp" | "snmptrap" => Some("have snmptrapd write a log that [file] reads, or send it to [syslog]"),
        "twitter" => Some("its interface was closed; post what you collect to [http]"),
        "unix" => Some("listen with [tcp] on 127.0.0.1"),
        "sqs" | "kinesis" | "google_pubsub" => {
            Some("have the messages written to a bucket for [s3], or posted to [http]")
        }
        _ => None,
    }
}

/// Reads a stream of one of the network protocols; for fuzzing.
pub(crate) fn fuzz_network(data: &[u8]) {
    let [choice, length, stream @ ..] = data else { return };
    let chunks = || stream.chunks(usize::from(*length).max(1));
    match choice % 4 {
        0 => syslog::fuzz(chunks()),
        1 => gelf::fuzz(chunks()),
        2 => beats::fuzz(stream),
        _ => drop(stream::proxy::parse(stream)),
    }
}

/// Waits until an input is to stop.
pub(crate) async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // A pipeline that is gone stops its inputs.
    let _ = stopping.wait_for(|stop| *stop).await;
}

/// Waits for room for what is read at once; `None` when the input is to stop.
pub(crate) async fn reserve_piece(context: &Context) -> Option<Reservation> {
    let mut stopping = context.stopping.clone();
    tokio::select! {
        biased;
        () = stopped(&mut stopping) => None,
        reservation = context.budget.wait_for_piece() => Some(reservation),
    }
}

/// Begins the additions of an input with what every input gives its events: the version of their form.
pub(crate) fn additions() -> Additions {
    Additions::default().member("@version", "1")
}

/// Gives an event the version of its form, unless its codec did.
pub(crate) fn mark_version(event: &mut Event) {
    event.set_missing("@version", "1");
}

/// Name of this machine.
pub(crate) fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = name.or_else(|| std::env::var("HOSTNAME").ok()).map(|name| name.trim().to_owned());
    name.filter(|name| !name.is_empty()).unwrap_or_else(|| "localhost".to_owned())
}
