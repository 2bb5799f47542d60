//! Arguments that several subcommands have.
//!
//! Groups of them have no doc comments of their own: clap would show these in the place of what the subcommands say of themselves.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::query::RunPlan;
use crate::server::default_binary;
use crate::shape::DocumentKind;
use crate::target::Target;

#[derive(Debug, Args)]
pub(crate) struct CorpusArgs {
    /// Shape of the documents
    #[arg(long, value_enum, default_value_t = DocumentKind::HttpLogs)]
    pub(crate) shape: DocumentKind,
    /// Number of documents
    #[arg(long, default_value_t = 1_000_000)]
    pub(crate) docs: u64,
    /// Seed of the documents
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Directory of corpora
    #[arg(long, default_value = "target/benchmarks/corpora")]
    pub(crate) directory: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct TargetArgs {
    /// The server
    #[arg(long, default_value = "http://127.0.0.1:9200")]
    url: String,
    /// Credentials as USER:PASSWORD
    #[arg(long)]
    user: Option<String>,
}

impl TargetArgs {
    /// Returns the server.
    pub(crate) fn target(&self) -> Result<Target> {
        Target::new("server", &self.url, self.user.as_deref())
    }
}

#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// The server's binary; beside this program when not given
    #[arg(long)]
    server: Option<PathBuf>,
}

impl ServerArgs {
    /// Returns the server's binary.
    pub(crate) fn binary(&self) -> PathBuf {
        self.server.clone().unwrap_or_else(default_binary)
    }
}

#[derive(Debug, Args)]
pub(crate) struct PeerArgs {
    /// A running server to compare with
    #[arg(long, value_name = "URL")]
    peer: Option<String>,
    /// Name of the peer in the report
    #[arg(long, default_value = "opensearch")]
    peer_name: String,
    /// Credentials of the peer as USER:PASSWORD
    #[arg(long)]
    peer_user: Option<String>,
}

impl PeerArgs {
    /// Returns the peer, if there is one.
    pub(crate) fn target(&self) -> Result<Option<Target>> {
        let Some(url) = &self.peer else { return Ok(None) };
        let mut peer = Target::new(&self.peer_name, url, self.peer_user.as_deref())?;
        peer.is_peer = true;
        Ok(Some(peer))
    }
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct EffortArgs {
    /// Runs of each search that are not counted
    #[arg(long, default_value_t = 20)]
    warmup: u32,
    /// Runs of each search that are
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    iterations: u32,
    /// Clients that share the runs
    #[arg(long, default_value_t = 1)]
    query_clients: usize,
}

impl EffortArgs {
    /// Returns the selection.
    pub(crate) fn effort(self) -> RunPlan {
        RunPlan { warmup: self.warmup, iterations: self.iterations, clients: self.query_clients }
    }
}

/// Reads an environment variable, as NAME=VALUE.
pub(crate) fn parse_variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("`{text}` is not NAME=VALUE"))?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Returns a directory for a run that was not given one.
pub(crate) fn temporary(what: &str) -> PathBuf {
    std::env::temp_dir().join(format!("millrace-{what}-{}", std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_have_a_name_and_a_value() {
        assert_eq!(parse_variable("A=b=c"), Ok(("A".to_owned(), "b=c".to_owned())));
        assert!(parse_variable("A").is_err());
    }
}
