//! The command line of `millrace`. Flags are stable: scripts and units rely on them.

mod license;
mod rules;
mod snapshot;
mod user;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::config::Flags;

pub(crate) use license::LicenseCommand;
pub(crate) use rules::{RulesCommand, RulesImportArgs, RulesTestArgs};
pub(crate) use snapshot::SnapshotCommand;
pub(crate) use user::{PasswordArgs, PlaceArgs, RolesArgs, UserCommand};

const EXIT_CODES: &str = "\
Exit codes:
  0    done; for `serve`, a clean shutdown after SIGTERM or SIGINT
  1    something failed that no other code names
  2    the command line is wrong
  3    the configuration is wrong or unreadable
  4    a listener cannot be opened: port in use, foreign address, unusable certificate
  5    the data directory is locked by another process
  6    stored data is damaged or cannot be opened
  7    catalog, log and object store do not belong together, or one of them is lost
  130  a second signal ended the process before its shutdown was complete";

/// Log store, search engine and stream processor in one binary.
#[derive(Debug, Parser)]
#[command(name = "millrace", version, after_help = EXIT_CODES, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// Command to run.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Commands of the binary.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the server until SIGTERM or SIGINT
    #[command(after_help = format!("\
Examples:
  millrace serve
  millrace serve --data /var/lib/millrace --listen 127.0.0.1:9200
  millrace serve --config /etc/millrace/millrace.toml
  MILLRACE_ADMIN_PASSWORD=… MILLRACE_STORAGE__FLUSH_BYTES=128MB millrace serve

Without configuration: data below ./data, the data API on 127.0.0.1:9200. The password of the
user admin is generated at the first start unless MILLRACE_ADMIN_PASSWORD gives it, which counts
at the first start only: printed on a terminal, else written to the file admin-password in the data directory.
`millrace config --keys` describes every key.

{EXIT_CODES}"))]
    Serve(ConfigArgs),
    /// Print the effective configuration as TOML, with the source of each value
    #[command(after_help = format!("\
Examples:
  millrace config
  millrace config --config /etc/millrace/millrace.toml --listen 127.0.0.1:9300
  millrace config --keys

Sources, strongest first: flag, MILLRACE_… environment variable, file, default. Secrets are masked.

{EXIT_CODES}"))]
    Config {
        /// Describe every key instead: meaning, kind, environment variable, default
        #[arg(long)]
        keys: bool,
        /// Flags of `serve`.
        #[command(flatten)]
        args: ConfigArgs,
    },
    /// Ask a server whether it takes requests
    #[command(after_help = format!("\
Examples:
  millrace health
  millrace health --config /etc/millrace/millrace.toml
  millrace health --url https://10.0.0.7:9200 --timeout 2s

Asks /_health/ready of the first listener of the configuration, over TLS where the configuration has it, or of --url.
The exit code is 0 if the server takes requests, and 1 if it does not: no server, a start that replays the log, a
shutdown. No credentials are needed; the certificate is not checked, since nothing is sent that it could protect.

{EXIT_CODES}"))]
    Health(HealthArgs),
    /// Feed a server realistic events, then ask it questions about them
    #[command(after_help = format!("\
Examples:
  millrace demo
  millrace demo --total 500000 --rate 20000
  millrace demo --data ./demo-data --stay
  millrace demo --url https://127.0.0.1:9200 --user admin --password … --insecure-tls

Web access, authentication and firewall events go into demo-web, demo-auth and demo-firewall; a
port scan and a password attack are hidden among them. Without --url a server is started in this
process on a free port of 127.0.0.1, with a webhook that one more event is posted to; it stays up until
Ctrl-C when the output is a terminal.

{EXIT_CODES}"))]
    Demo(DemoArgs),
    /// Make a new catalog out of object store and log
    #[command(after_help = format!("\
Examples:
  millrace repair --config /etc/millrace/millrace.toml --dry-run
  millrace repair --data /var/lib/millrace
  millrace repair --data /var/lib/millrace --replace

For a store whose catalog is lost, or older than its log: `millrace serve` ends with exit code 7 then. Works on a
data directory that no server runs on, and says on stdout what was rebuilt and what could not be. Segments in the object
store name their index, mapping and settings; documents that are in the log alone come back with the next start. Aliases,
templates, cluster settings and accounts do not: the administrator's password is made anew, or taken from
MILLRACE_ADMIN_PASSWORD. A catalog that is replaced is kept as catalog.sqlite.before-repair. Files that were left out
are deleted a day after the repair, not before.

{EXIT_CODES}"))]
    Repair(RepairArgs),
    /// Sign, show or verify licences
    #[command(subcommand)]
    License(LicenseCommand),
    /// Check pipelines, or run one in the foreground
    #[command(subcommand)]
    Pipeline(PipelineCommand),
    /// Read alert rules of ElastAlert, or test rules by files of cases
    #[command(subcommand)]
    Rules(RulesCommand),
    /// Make, list and restore snapshots of a running server
    #[command(subcommand)]
    Snapshot(SnapshotCommand),
    /// Ask a server statements of SQL
    #[command(after_help = format!("\
Examples:
  millrace sql
  millrace sql -e 'SELECT count(*) FROM logs-*'
  millrace sql --url https://127.0.0.1:9200 --user admin --format csv -e 'SELECT * FROM logs LIMIT 10'
  echo 'SHOW TABLES LIKE %;' | millrace sql --format raw

On a terminal statements end with a semicolon and are kept in ~/.millrace_sql_history, or in the
file that MILLRACE_SQL_HISTORY names; \\h shows the last ones. From a pipe and with -e the first
statement that fails ends the shell with exit code 1.

{EXIT_CODES}"))]
    Sql(SqlArgs),
    /// Ask a server queries of PPL
    #[command(after_help = format!("\
Examples:
  millrace ppl
  millrace ppl -e 'source=logs-* error | stats count() by host'
  millrace ppl --url https://127.0.0.1:9200 --user admin --format csv -e 'source=logs | head 10'
  echo 'show datasources;' | millrace ppl --format raw

On a terminal queries end with a semicolon and are kept in ~/.millrace_ppl_history, or in the file
that MILLRACE_PPL_HISTORY names; \\h shows the last ones. A line that ends with a tab lists the words that can follow.
From a pipe and with -e the first query that fails ends the shell with exit code 1.

{EXIT_CODES}"))]
    Ppl(SqlArgs),
    /// Manage users, on a running server or on the data of a stopped one
    #[command(subcommand, after_help = format!("\
Examples:
  millrace user list --user admin:…
  millrace user add ann --role reader --user admin:…
  millrace user roles ann --add ingest --url https://10.0.0.7:9200 --user admin
  millrace user passwd admin --generate --data /var/lib/millrace
  millrace user delete ann --user admin:…

Built-in roles are admin, reader, ingest, monitor, alert and intelligence. `millrace user COMMAND --help` has more.

{EXIT_CODES}"))]
    User(UserCommand),
}

/// Commands on pipelines.
#[derive(Debug, Subcommand)]
pub(crate) enum PipelineCommand {
    /// Report everything that is wrong in files of pipelines
    #[command(after_help = format!("\
Examples:
  millrace pipeline check webhook.conf
  millrace pipeline check /etc/millrace/pipelines/*.conf
  WEBHOOK_TOKEN=x millrace pipeline check webhook.conf
  millrace pipeline check /etc/logstash

Each file is a pipeline of its own. A directory has those that a server finds in it, with the settings of its
pipelines.yml. Every fault is printed with line and column; nothing is started. The exit code is 1 if there
is one.

{EXIT_CODES}"))]
    Check(PipelineCheckArgs),
    /// Run a pipeline in the foreground, to try it
    #[command(after_help = format!("\
Examples:
  echo '<34>Oct 11 22:14:15 mymachine su: failed' | millrace pipeline run syslog.conf --print
  millrace pipeline run apache.conf --print
  millrace pipeline run copy.conf --data ./data

A pipeline without outputs, and each with --print, shows its events on stdout as `rubydebug`. Without --data
nothing is kept: positions of sources are forgotten at the end, and dead letters are logged. Outputs into
indices of this server need --data, and no server that runs on it. It ends with its inputs, or at SIGINT.

{EXIT_CODES}"))]
    Run(PipelineRunArgs),
    /// List dead letters, or store what they hold once the reason is gone
    #[command(after_help = format!("\
Examples:
  millrace pipeline replay --data ./data --list
  millrace pipeline replay --data ./data --pipeline webhook

Works on a data directory that no server runs on. Letters whose events are stored are removed; the others stay,
and the exit code is 1.

{EXIT_CODES}"))]
    Replay(PipelineReplayArgs),
}

/// Flags of `pipeline replay`.
#[derive(Clone, Debug, Args)]
pub(crate) struct PipelineReplayArgs {
    /// Data directory
    #[arg(long, value_name = "DIR", default_value = "data")]
    pub(crate) data: String,
    /// Only letters of this pipeline
    #[arg(long, value_name = "ID")]
    pub(crate) pipeline: Option<String>,
    /// Show letters, a JSON object a line, and leave them
    #[arg(long)]
    pub(crate) list: bool,
    /// Greatest number of letters
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) most: u32,
}

/// Flags of `pipeline check`.
#[derive(Clone, Debug, Args)]
pub(crate) struct PipelineCheckArgs {
    /// Files or directories to check
    #[arg(value_name = "PATH", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Texts have escapes such as \\n (config.support_escapes)
    #[arg(long)]
    pub(crate) support_escapes: bool,
    /// Names of fields of plugins that do not say it (pipeline.ecs_compatibility)
    #[arg(long, value_name = "MODE", value_parser = ["disabled", "v1", "v8"], default_value = "disabled")]
    pub(crate) ecs_compatibility: String,
}

/// Flags of `pipeline run`.
#[derive(Clone, Debug, Args)]
pub(crate) struct PipelineRunArgs {
    /// File to run
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Show events on stdout in place of sending them to the outputs of the file
    #[arg(long)]
    pub(crate) print: bool,
    /// Data directory that outputs into this server write to
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<String>,
    /// Batches that are filtered at the same time; 1 keeps the order of events
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) workers: u16,
    /// Greatest number of events taken at once
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) batch_size: u32,
    /// Texts have escapes such as \\n (config.support_escapes)
    #[arg(long)]
    pub(crate) support_escapes: bool,
    /// Names of fields of plugins that do not say it (pipeline.ecs_compatibility)
    #[arg(long, value_name = "MODE", value_parser = ["disabled", "v1", "v8"], default_value = "disabled")]
    pub(crate) ecs_compatibility: String,
}

/// Flags that set configuration keys.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ConfigArgs {
    /// TOML file with configuration keys [env: MILLRACE_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Directory of all data [default: data] [env: MILLRACE_DATA]
    #[arg(long, value_name = "DIR")]
    data: Option<String>,
    /// Address of the data API; may be repeated [default: 127.0.0.1:9200] [env: MILLRACE_LISTEN]
    #[arg(long, value_name = "HOST:PORT")]
    listen: Vec<String>,
    /// Serve without credentials; refused unless every listener is on loopback [env: MILLRACE_INSECURE]
    #[arg(long)]
    insecure: bool,
}

impl ConfigArgs {
    /// Returns the keys that were given on the command line.
    pub(crate) fn flags(&self) -> Flags {
        let mut keys = Vec::new();
        if let Some(data) = &self.data {
            keys.push(("--data", "data", data.clone()));
        }
        if !self.listen.is_empty() {
            keys.push(("--listen", "listen", self.listen.join(",")));
        }
        if self.insecure {
            keys.push(("--insecure", "insecure", "true".to_owned()));
        }
        Flags { config: self.config.clone(), keys }
    }
}

/// Flags of `health`.
#[derive(Clone, Debug, Args)]
pub(crate) struct HealthArgs {
    /// Server to ask in place of the configuration's
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Longest time to wait for the answer
    #[arg(long, default_value = "5s", value_parser = crate::config::parse_span)]
    pub(crate) timeout: Duration,
    /// Flags of `serve`.
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
}

/// Flags of `repair`.
#[derive(Clone, Debug, Args)]
pub(crate) struct RepairArgs {
    /// Move the catalog that is there aside
    #[arg(long)]
    pub(crate) replace: bool,
    /// Say what would be rebuilt, and write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Flags of `serve`.
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
}

/// Flags of `demo`.
#[derive(Clone, Debug, Args)]
pub(crate) struct DemoArgs {
    /// Server to feed; without it one is started in this process
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Data directory of the server in this process; a temporary one otherwise
    #[arg(long, value_name = "DIR", conflicts_with = "url")]
    pub(crate) data: Option<PathBuf>,
    /// User for --url or --data
    #[arg(long, default_value = "admin")]
    pub(crate) user: String,
    /// Password for --url or --data
    #[arg(long)]
    pub(crate) password: Option<String>,
    /// Accept any certificate of --url
    #[arg(long, requires = "url")]
    pub(crate) insecure_tls: bool,
    /// Events a second, such as 5000 or 5000/s; 0 is as fast as the server takes them
    #[arg(long, default_value = "0", value_parser = parse_rate)]
    pub(crate) rate: u32,
    /// Number of events
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(crate) total: u64,
    /// Time that the events are spread over, such as 6h or 7d, up to now
    #[arg(long, default_value = "24h", value_parser = crate::config::parse_span)]
    pub(crate) span: Duration,
    /// Same seed, same events
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Keep the server of this process up until Ctrl-C
    #[arg(long, conflicts_with_all = ["url", "exit"])]
    pub(crate) stay: bool,
    /// End when the questions are answered, also on a terminal
    #[arg(long)]
    pub(crate) exit: bool,
}

/// Flags of `sql` and `ppl`.
#[derive(Clone, Debug, Args)]
pub(crate) struct SqlArgs {
    /// Statement to ask instead of reading them; may be repeated
    #[arg(short = 'e', long, value_name = "QUERY")]
    pub(crate) execute: Vec<String>,
    /// Server to ask
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9200")]
    pub(crate) url: String,
    /// User, with the password behind a colon or in MILLRACE_PASSWORD
    #[arg(long, value_name = "USER[:PASSWORD]")]
    pub(crate) user: Option<String>,
    /// Form of the answers
    #[arg(long, value_enum, default_value_t = SqlFormat::Table)]
    pub(crate) format: SqlFormat,
    /// Accept any certificate of --url
    #[arg(long)]
    pub(crate) insecure_tls: bool,
    /// Seconds to wait for an answer, and for each further part of a long one
    #[arg(long, default_value_t = 600)]
    pub(crate) timeout: u64,
    /// Do not show how many rows there were and how long it took
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// Form in which the shell shows answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum SqlFormat {
    /// A table
    Table,
    /// The server's JSON
    Jdbc,
    /// Comma-separated values
    Csv,
    /// Values separated by |
    Raw,
}

fn parse_rate(text: &str) -> Result<u32, String> {
    let number = text.strip_suffix("/s").unwrap_or(text);
    number.parse().map_err(|_| format!("`{text}` is not a rate such as 5000 or 5000/s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_become_keys() {
        let cli = Cli::parse_from(["millrace", "serve", "--listen", "127.0.0.1:1", "--listen", "[::1]:2"]);
        let Command::Serve(args) = cli.command else { panic!("serve") };
        assert_eq!(args.flags().keys, [("--listen", "listen", "127.0.0.1:1,[::1]:2".to_owned())]);
        assert_eq!(parse_rate("5000/s"), Ok(5000));
        assert!(parse_rate("fast").is_err());
    }
}
