//! Flags of `millrace snapshot`.

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};

use super::EXIT_CODES;

/// Commands on snapshots.
#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotCommand {
    /// Make a snapshot, and wait for it
    #[command(after_help = format!("\
Examples:
  millrace snapshot create backup monday --user admin:…
  millrace snapshot create backup everything --with-accounts --user admin
  millrace snapshot create backup logs-only --indices 'logs-*' --without-global-state --user admin

The repository has to be registered: PUT /_snapshot/backup. docs/snapshots.md has more.

{EXIT_CODES}"))]
    Create {
        /// The snapshot.
        #[command(flatten)]
        snapshot: SnapshotName,
        /// Expression of the indices; all without it
        #[arg(long, value_name = "INDICES", allow_hyphen_values = true)]
        indices: Option<String>,
        /// Leave out indices that cannot be read
        #[arg(long)]
        partial: bool,
        /// Leave out settings, templates and system indices
        #[arg(long)]
        without_global_state: bool,
        /// Take users, roles, role mappings and API keys in
        #[arg(long)]
        with_accounts: bool,
        /// The server.
        #[command(flatten)]
        server: SnapshotServer,
    },
    /// List the snapshots of a repository
    #[command(after_help = format!("\
Examples:
  millrace snapshot list backup --user admin:…

{EXIT_CODES}"))]
    List {
        /// Name of the repository
        #[arg(value_name = "REPOSITORY", value_parser = NonEmptyStringValueParser::new())]
        repository: String,
        /// The server.
        #[command(flatten)]
        server: SnapshotServer,
    },
    /// Restore indices of a snapshot, and wait for it
    #[command(after_help = format!("\
Examples:
  millrace snapshot restore backup monday --user admin:…
  millrace snapshot restore backup monday --indices '-*' --with-global-state --user admin
  millrace snapshot restore backup monday --indices logs --rename-pattern '(.+)' --rename-replacement 'old-$1' --user admin

An open index of the same name is in the way; a closed one is replaced. --with-global-state replaces definitions of the server.

{EXIT_CODES}"))]
    Restore {
        /// The snapshot.
        #[command(flatten)]
        snapshot: SnapshotName,
        /// Expression of the indices; all without it
        #[arg(long, value_name = "INDICES", allow_hyphen_values = true)]
        indices: Option<String>,
        /// Regular expression of names that are replaced
        #[arg(long, value_name = "PATTERN", requires = "rename_replacement")]
        rename_pattern: Option<String>,
        /// Replacement of what it finds; $1 is a group
        #[arg(long, value_name = "TEXT", requires = "rename_pattern")]
        rename_replacement: Option<String>,
        /// Leave out indices that cannot be read
        #[arg(long)]
        partial: bool,
        /// Restore settings, templates, positions, and definitions: ingest pipelines, rules, saved objects, policies
        #[arg(long)]
        with_global_state: bool,
        /// Restore users, roles, role mappings and API keys
        #[arg(long)]
        with_accounts: bool,
        /// The server.
        #[command(flatten)]
        server: SnapshotServer,
    },
    /// Write, read and delete a test file of a repository, or read the files of its snapshots
    #[command(after_help = format!("\
Examples:
  millrace snapshot verify backup --user admin:…
  millrace snapshot verify backup --contents --user admin
  millrace snapshot verify backup --contents --snapshot monday --user admin

--contents reads every file that snapshots need, and compares its sum. The next snapshot writes a damaged file anew, where the server
still has its segment.

{EXIT_CODES}"))]
    Verify {
        /// Name of the repository
        #[arg(value_name = "REPOSITORY", value_parser = NonEmptyStringValueParser::new())]
        repository: String,
        /// Read the files of its snapshots, and compare their sums
        #[arg(long)]
        contents: bool,
        /// Expression of the snapshots whose files are read; all without it
        #[arg(long, value_name = "SNAPSHOT", requires = "contents")]
        snapshot: Option<String>,
        /// The server.
        #[command(flatten)]
        server: SnapshotServer,
    },
}

impl SnapshotCommand {
    /// Returns the server to ask.
    pub(crate) fn server(&self) -> &SnapshotServer {
        match self {
            Self::Create { server, .. }
            | Self::List { server, .. }
            | Self::Restore { server, .. }
            | Self::Verify { server, .. } => server,
        }
    }
}

/// Name of a snapshot.
#[derive(Clone, Debug, Args)]
pub(crate) struct SnapshotName {
    /// Name of the repository
    #[arg(value_name = "REPOSITORY", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) repository: String,
    /// Name of the snapshot
    #[arg(value_name = "SNAPSHOT", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) snapshot: String,
}

/// The server that has the repository.
#[derive(Clone, Debug, Args)]
pub(crate) struct SnapshotServer {
    /// Server to ask
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9200")]
    pub(crate) url: String,
    /// User of the requests, with the password behind a colon or in MILLRACE_PASSWORD
    #[arg(long, value_name = "USER[:PASSWORD]")]
    pub(crate) user: Option<String>,
    /// Accept any certificate of --url
    #[arg(long)]
    pub(crate) insecure_tls: bool,
}
