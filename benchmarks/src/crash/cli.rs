//! The subcommand `crash`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Args;

use super::Plan;
use crate::arguments::{ServerArgs, parse_variable, temporary};

/// Arguments: the number of kills, and the load at that time.
#[derive(Debug, Args)]
pub(crate) struct CrashArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Kills
    #[arg(long, default_value_t = 100)]
    cycles: u64,
    /// Concurrent writers
    #[arg(long, default_value_t = 4)]
    writers: usize,
    /// Shards of the index
    #[arg(long, default_value_t = 2)]
    shards: u32,
    /// Longest time between start and kill, in milliseconds
    #[arg(long, default_value_t = 1_500)]
    longest_ms: u64,
    /// Seed; drawn and printed when not given
    #[arg(long)]
    seed: Option<u64>,
    /// Directory for data and log; a temporary one when not given
    #[arg(long)]
    directory: Option<PathBuf>,
    /// Environment variable of the server, as NAME=VALUE; may be repeated
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = parse_variable)]
    environment: Vec<(String, String)>,
}

impl CrashArgs {
    /// Kills and checks.
    pub(crate) async fn run(self) -> Result<()> {
        let seed = self.seed.unwrap_or_else(|| u64::from(rand::random::<u32>()));
        // Small and frequent flushes put many more of the interesting moments into a second.
        let mut environment: Vec<(String, String)> = [
            ("MILLRACE_STORAGE__FLUSH_BYTES", "128KB"),
            ("MILLRACE_STORAGE__FLUSH_AGE", "1s"),
            ("MILLRACE_STORAGE__WAL_MAX_BYTES", "1MB"),
            ("MILLRACE_LOG__LEVEL", "warn"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec();
        environment.extend(self.environment);
        let plan = Plan {
            server: self.server.binary(),
            directory: self.directory.unwrap_or_else(|| temporary("crash")),
            cycles: self.cycles,
            writers: self.writers.max(1),
            shards: self.shards.max(1),
            longest: Duration::from_millis(self.longest_ms.max(50)),
            seed,
            environment,
        };
        plan.run().await
    }
}
