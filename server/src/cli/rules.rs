//! Flags of `millrace rules`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::EXIT_CODES;

/// Commands on files of rules.
#[derive(Debug, Subcommand)]
pub(crate) enum RulesCommand {
    /// Read rule files of ElastAlert, and print them as rules of Millrace or save them in a server
    #[command(after_help = format!("\
Examples:
  millrace rules import elastalert/rules/*.yaml
  millrace rules import brute_force.yaml --url http://127.0.0.1:5601 --user admin
  millrace rules import deploy/rules/ssh-*.yaml --url http://127.0.0.1:5601 --user admin

Without --url the rules are printed, a JSON object a line, as POST /api/alert/change takes them. With it they are
saved through the console at that URL; a rule of the same name is replaced. What of a file is not used is told on stderr,
with the reason. All files are read first: where one is wrong, or two have one name, nothing is saved. Files of cases (*.test.yaml) are left out. The exit code is
1 if a file is wrong or a rule is refused.

{EXIT_CODES}"))]
    Import(RulesImportArgs),
    /// Run rules against their cases: events, and the alerts that these are to raise
    #[command(after_help = format!("\
Examples:
  millrace rules test deploy/rules/*.yaml
  millrace rules test ssh-brute-force.yaml
  millrace rules test ssh-brute-force.test.yaml

The cases of RULE.yaml are in RULE.test.yaml beside it; either of the two may be named. A file of cases may have its rule
under `rule`. Events are indexed in a store in memory and on scratch files, with the mapping that a new index gets for
them, and the rule is asked as it is in a server. Nothing else is read or changed. docs/rules.md has the form of cases. The exit
code is 1 if a case does not hold, or a rule has none.

{EXIT_CODES}"))]
    Test(RulesTestArgs),
}

/// Flags of `rules import`.
#[derive(Clone, Debug, Args)]
pub(crate) struct RulesImportArgs {
    /// Rule files
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Console of the server to save the rules in
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Import rules without those of their channels that are not there; else such a file is refused
    #[arg(long)]
    pub(crate) skip_channels: bool,
    /// User, with the password behind a colon or in MILLRACE_PASSWORD
    #[arg(long, value_name = "USER[:PASSWORD]", requires = "url")]
    pub(crate) user: Option<String>,
    /// Accept any certificate of --url
    #[arg(long, requires = "url")]
    pub(crate) insecure_tls: bool,
}

/// Flags of `rules test`.
#[derive(Clone, Debug, Args)]
pub(crate) struct RulesTestArgs {
    /// Files of rules, or of their cases
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
}
