//! The subcommand `hostile`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Args;

use super::{Plan, bound};
use crate::arguments::{ServerArgs, temporary};

/// Arguments: the attacks, and the server's goals meanwhile.
#[derive(Debug, Args)]
pub(crate) struct HostileArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Seconds for which the client is watched alone
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=600))]
    calm_seconds: u64,
    /// Only requests with this in their name
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Seconds that one hostile request may take; then its connection is closed
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=600))]
    patience_seconds: u64,
    /// Bound on the client's slowest hundredth, as a multiple of the time alone
    #[arg(long, default_value_t = 3.0)]
    slower: f64,
    /// Memory in MB that the server may take beyond what it was given
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    beside_mb: u64,
    /// Directory for data and log; a temporary one when not given
    #[arg(long)]
    directory: Option<PathBuf>,
}

impl HostileArgs {
    /// Plays and checks.
    pub(crate) async fn run(self) -> Result<()> {
        let plan = Plan {
            server: self.server.binary(),
            directory: self.directory.unwrap_or_else(|| temporary("hostile")),
            calm: Duration::from_secs(self.calm_seconds),
            only: self.only,
            patience: Duration::from_secs(self.patience_seconds),
            slower: self.slower,
            bound: bound(self.beside_mb),
        };
        plan.run().await
    }
}
