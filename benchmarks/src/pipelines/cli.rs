//! The subcommand `pipelines`.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use super::broker::Broker;
use super::webhook::WebhookLoad;
use super::{Plan, markdown};
use crate::arguments::ServerArgs;
use crate::report;

/// Arguments of the pipeline benchmark.
#[derive(Debug, Args)]
pub(crate) struct PipelinesArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// A running Kafka, as HOST:PORT,…; without it, measurements that need one are skipped
    #[arg(long, value_name = "SERVERS")]
    kafka: Option<String>,
    /// Partitions of the topics that are made (and deleted again)
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(i32).range(1..=256))]
    kafka_partitions: i32,
    /// Directory for feeds and data: on the disk to be measured
    #[arg(long, default_value = "target/benchmarks")]
    directory: PathBuf,
    /// File to write, without the extension
    #[arg(long, default_value = "target/benchmarks/pipelines")]
    out: PathBuf,
    /// Events through each pipeline
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    events: u64,
    /// Times that each is measured; medians are reported
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Clients of the input http, and of _bulk
    #[arg(long, default_value_t = 8)]
    clients: usize,
    /// Bytes of a body that is posted
    #[arg(long, default_value_t = 1_000_000)]
    body_bytes: usize,
    /// Events a second of the webhook; 0 leaves it out
    #[arg(long, default_value_t = 10_000)]
    webhook_rate: u64,
    /// Events in a post of the webhook
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    webhook_batch: u64,
    /// Seconds for which the webhook is driven
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    webhook_seconds: u64,
    /// Clients of the webhook
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=200))]
    webhook_clients: u64,
}

impl PipelinesArgs {
    /// Measures and writes the report.
    pub(crate) async fn run(self) -> Result<()> {
        let plan = Plan {
            server: self.server.binary(),
            directory: self.directory,
            events: self.events,
            rounds: self.rounds,
            clients: self.clients.max(1),
            body_bytes: self.body_bytes.max(1),
            kafka: self.kafka.map(|servers| Broker { servers, partitions: self.kafka_partitions }),
            webhook: WebhookLoad {
                rate: self.webhook_rate,
                batch: self.webhook_batch,
                seconds: self.webhook_seconds,
                clients: self.webhook_clients,
            },
        };
        let found = plan.run().await?;
        report::write(&self.out, &markdown::markdown(&found), &found)
    }
}
