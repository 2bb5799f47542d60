//! The subcommand `calls`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Args;

use super::Plan;
use crate::arguments::{ServerArgs, temporary};

/// Arguments: the clients, the duration, and the time that a call may take.
#[derive(Debug, Args)]
pub(crate) struct CallsArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Duration of the run
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Clients
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    clients: u16,
    /// Longest time that a call may take, in milliseconds
    #[arg(long, default_value_t = 1_000)]
    longest_ms: u64,
    /// Seed; drawn and printed when not given
    #[arg(long)]
    seed: Option<u64>,
    /// Directory for data and log; a temporary one when not given
    #[arg(long)]
    directory: Option<PathBuf>,
}

impl CallsArgs {
    /// Calls and checks.
    pub(crate) async fn run(self) -> Result<()> {
        let plan = Plan {
            server: self.server.binary(),
            directory: self.directory.unwrap_or_else(|| temporary("calls")),
            time: Duration::from_secs(self.seconds),
            clients: self.clients.into(),
            longest: Duration::from_millis(self.longest_ms),
            seed: self.seed.unwrap_or_else(|| u64::from(rand::random::<u32>())),
        };
        plan.run().await
    }
}
