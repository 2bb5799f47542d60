//! The subcommand `report`.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use super::Plan;
use crate::arguments::{EffortArgs, PeerArgs, ServerArgs};
use crate::duckdb::DuckDb;
use crate::report;

/// Arguments of the report.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    peer: PeerArgs,
    /// A Python interpreter with the package `duckdb`, to ask DuckDB the aggregations as SQL
    #[arg(long, value_name = "PYTHON")]
    duckdb: Option<PathBuf>,
    /// Directory for corpora and data: on the disk to be measured
    #[arg(long, default_value = "target/benchmarks")]
    directory: PathBuf,
    /// File to write, without the extension
    #[arg(long, default_value = "target/benchmarks/report")]
    out: PathBuf,
    /// Scale of everything: documents of the http_logs shape and ids of the update workload; a fifth of
    /// it for big5, 35 % for the recovery (512 MB of JSON at the default), a tenth for wide mappings
    #[arg(long, default_value_t = 10_000_000)]
    docs: u64,
    /// Documents of the http_logs shape instead; 0 leaves it out
    #[arg(long)]
    http_logs_docs: Option<u64>,
    /// Documents of the big5 shape instead; 0 leaves it out
    #[arg(long)]
    big5_docs: Option<u64>,
    /// Documents of the shape of ClickBench, for its statements in SQL; 0 leaves it out
    #[arg(long, default_value_t = 0)]
    clickbench_docs: u64,
    /// Ids, and as many overwrites, of the update workload instead; 0 leaves it out
    #[arg(long)]
    update_docs: Option<u64>,
    /// Documents in the log of the recovery instead; 0 leaves it out
    #[arg(long)]
    recovery_docs: Option<u64>,
    /// Documents of the wide mapping, and of the narrow one, instead; 0 leaves it out
    #[arg(long)]
    mapping_docs: Option<u64>,
    /// Bulk clients
    #[arg(long, default_value_t = 8)]
    clients: usize,
    /// Gets by id a second during ingest
    #[arg(long, default_value_t = 50)]
    get_rate: u32,
    #[command(flatten)]
    effort: EffortArgs,
}

impl ReportArgs {
    /// Measures and writes the report.
    pub(crate) async fn run(self) -> Result<()> {
        let plan = Plan {
            server: self.server.binary(),
            peer: self.peer.target()?,
            duckdb: self.duckdb.map(|python| DuckDb { python }),
            directory: self.directory,
            http_logs_docs: self.http_logs_docs.unwrap_or(self.docs),
            big5_docs: self.big5_docs.unwrap_or(self.docs / 5),
            clickbench_docs: self.clickbench_docs,
            update_docs: self.update_docs.unwrap_or(self.docs),
            recovery_docs: self.recovery_docs.unwrap_or(self.docs / 20 * 7),
            mapping_docs: self.mapping_docs.unwrap_or(self.docs / 10),
            clients: self.clients,
            get_rate: self.get_rate,
            effort: self.effort.effort(),
        };
        let found = plan.run().await?;
        report::write(&self.out, &report::markdown(&found), &found)
    }
}
