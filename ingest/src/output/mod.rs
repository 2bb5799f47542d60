//! Outputs: where events go. One file an output.
//!
//! Events for an index of this server are not sent anywhere: the pipeline commits them in one frame with
//! the position of their source, so a [`Local`] output only says which operation an event is. All
//! others are [`Sink`]s.

mod csv;
mod email;
mod file;
mod http;
mod kafka;
mod null;
mod opensearch;
#[cfg(test)]
mod outage_tests;
mod pipeline;
mod rabbitmq;
mod redis;
mod retry;
mod s3;
mod socket;
mod stdout;
mod syslog;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use millrace_catalog::operation::WriteOp;
use tokio::sync::watch;

pub use opensearch::IndexTemplate;

use crate::options::suggest;
use crate::{Event, Fault, Options};

/// Names of the outputs.
pub const NAMES: &[&str] = &[
    "csv",
    "elasticsearch",
    "email",
    "file",
    "http",
    "kafka",
    "null",
    "opensearch",
    "pipeline",
    "rabbitmq",
    "redis",
    "s3",
    "statsd",
    "stdout",
    "syslog",
    "tcp",
    "udp",
];

/// A configured output.
#[derive(Clone, Debug)]
pub enum Output {
    /// Indices of this server.
    Local(Arc<dyn Local>),
    /// Anything else.
    Sink(Arc<dyn Sink>),
}

impl Output {
    /// Returns the addresses of other pipelines of this process that it sends to.
    pub fn pipeline_addresses(&self) -> &[String] {
        match self {
            Self::Local(_) => &[],
            Self::Sink(sink) => sink.pipeline_addresses(),
        }
    }
}

/// An operation on an index of this server, and the ingest pipeline that its output names for it.
#[derive(Debug)]
pub struct LocalWrite {
    /// The operation.
    pub op: WriteOp,
    /// Id of the pipeline; without one, those of the index count.
    pub pipeline: Option<Arc<str>>,
}

/// Makes operations of events.
pub trait Local: fmt::Debug + Send + Sync {
    /// The operation for an event. `stable_id` is its id where the user gives none.
    ///
    /// # Errors
    /// Why there can be none, permanently; the event becomes a dead letter.
    fn operation(&self, event: &Event, stable_id: Option<String>) -> Result<LocalWrite, String>;

    /// Hands over the operations for events without stable ids, in their order; each as [`Local::operation`] makes it.
    fn operations(&self, events: &[&Event], add: &mut dyn FnMut(Result<LocalWrite, String>)) {
        events.iter().for_each(|event| add(self.operation(event, None)));
    }

    /// Returns the template that is to be there before its first operation.
    fn template(&self) -> Option<&IndexTemplate> {
        None
    }

    /// The names of the indices that its operations may be on, as a pattern: `*` stands for what is not written in the
    /// definition.
    fn names(&self) -> String;
}

/// Sends events.
#[async_trait]
pub trait Sink: fmt::Debug + Send + Sync {
    /// Starts what the sink does beside deliveries; it ends with the sink. `directory` is there for files of the pipeline's outputs, and may
    /// not exist yet. It must be called within a runtime, before anything is sent.
    fn start(&self, directory: &Path) {
        let _ = directory;
    }

    /// Ends what the sink does beside deliveries, once nothing is sent to it any more. Returns whether all of it is done.
    async fn finish(&self) -> bool {
        true
    }

    /// Sends events in order and returns when all are acknowledged or refused for good. What passes by
    /// itself (429, 5xx, an output that is down) is retried with back-off for as long as it takes, or
    /// until `stopping`. Each event comes with its stable id, where its source has positions. What is sent
    /// next waits until `place` is dropped: at the end, or once nothing can overtake these events any more.
    ///
    /// # Errors
    /// [`SinkInterrupted`] when it was to stop before it was through.
    async fn send(
        &self,
        events: &[(Arc<Event>, Option<String>)],
        stopping: watch::Receiver<bool>,
        place: OrderTicket,
    ) -> Result<Vec<RefusedEvent>, SinkInterrupted>;

    /// Returns the addresses of other pipelines of this process that it sends to.
    fn pipeline_addresses(&self) -> &[String] {
        &[]
    }
}

/// A place in an order. What comes behind waits until nobody has it any more.
#[derive(Clone, Debug)]
pub struct OrderTicket {
    _held: Arc<watch::Sender<()>>,
}

impl OrderTicket {
    /// Makes a place, and what closes when nobody has it any more.
    pub fn new() -> (Self, watch::Receiver<()>) {
        let (held, left) = watch::channel(());
        (Self { _held: Arc::new(held) }, left)
    }
}

/// An event that a sink refuses for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedEvent {
    /// Index of the event among those sent.
    pub event: usize,
    /// Why.
    pub reason: String,
}

/// A sink was told to stop before all was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stopped before all events were sent")]
pub struct SinkInterrupted;

/// Makes an output.
///
/// # Errors
/// An unknown name, or what is wrong with the options.
pub fn build(options: Options) -> Result<Output, Vec<Fault>> {
    let at = options.at();
    match options.plugin() {
        "elasticsearch" | "opensearch" => opensearch::build(options),
        "csv" => csv::build(options),
        "email" => email::build(options),
        "file" => file::build(options),
        "http" => http::build(options),
        "kafka" => kafka::build(options),
        "null" => null::build(options),
        "pipeline" => pipeline::build(options),
        "rabbitmq" => rabbitmq::build(options),
        "redis" => redis::build(options),
        "s3" => s3::build(options),
        "statsd" => socket::build_statsd(options),
        "stdout" => stdout::build(options),
        "syslog" => syslog::build(options),
        "tcp" => socket::build_tcp(options),
        "udp" => socket::build_udp(options),
        unknown if let Some(instead) = instead_of(unknown) => {
            Err(vec![Fault { at, message: format!("output [{unknown}] is not supported: {instead}") }])
        }
        unknown => {
            let suggestion = suggest(unknown, NAMES.iter().copied());
            Err(vec![Fault { at, message: format!("there is no output [{unknown}]{suggestion}") }])
        }
    }
}

/// Returns what to do instead of an output that is known and not there.
fn instead_of(name: &str) -> Option<&'static str> {
    match name {
        "exec" | "pipe" => {
            Some("outputs start no programs; write a file or send to [http], and have the program read that")
        }
        "elasticsearch_http" | "elasticsearch_river" | "amazon_es" => {
            Some("it is [opensearch] today, with [hosts]")
        }
        "lumberjack" => Some("send to [tcp] with codec json_lines, or to [http]"),
        name if name.starts_with("microsoft-") => {
            Some("post to the data collection of Azure Monitor by [http]")
        }
        "noop" => Some("it is [null] today"),
        "gelf" => Some("send to [tcp] or [udp], whose codec makes the message"),
        "graphite" | "graphtastic" | "opentsdb" => {
            Some("send lines to [tcp], made by codec line and its [format]")
        }
        "influxdb" => {
            Some("post lines of its protocol to its HTTP interface by [http], with format => message")
        }
        "sns" | "sqs" | "kinesis" | "cloudwatch" | "google_pubsub" => {
            Some("write to a bucket by [s3], whose notifications reach it, or send to [kafka] or [http]")
        }
        "google_cloud_storage" => Some("write to its interface for S3 by [s3], with [endpoint]"),
        "google_bigquery" | "webhdfs" => Some("write files by [file] or [s3], and have it load these"),
        "zabbix" | "nagios" | "nagios_nsca" | "pagerduty" | "hipchat" | "slack" | "jira" => {
            Some("post to its HTTP interface by [http], or have a rule with a channel send the alert")
        }
        "irc" | "xmpp" | "stomp" | "websocket" | "zeromq" | "ganglia" | "logstash" => {
            Some("send to [http] or [tcp], and have a program forward it")
        }
        "java_stdout" => Some("give [stdout]"),
        "sink" => Some("give [null]"),
        "azure_loganalytics" | "boundary" | "circonus" | "clickhouse" | "datadog" | "datadog_metrics"
        | "dynatrace" | "elastic_app_search" | "elasticapm" | "http_stream" | "jdbc" | "librato"
        | "logentries" | "loki" | "metriccatcher" | "mongodb" | "newrelic" | "redmine" | "riak"
        | "riemann" | "rollbar" | "solr_http" | "splunk" | "timber" => {
            Some("post to its HTTP interface by [http]")
        }
        _ => None,
    }
}
