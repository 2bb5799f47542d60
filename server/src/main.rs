//! The binary `millrace`: command line, configuration, start-up order and shutdown.
//!
//! [`cli`] says what can be asked, [`config`] merges what is set, [`serve`] starts the parts in
//! order and stops them again, [`notify`] tells a supervisor, [`health`] asks a server, [`demo`] feeds a server and asks it questions,
//! [`pipeline`] checks pipelines and runs them in the foreground, [`repair`] makes a new catalog, [`sql`] is a shell, [`user`] manages users,
//! [`rules`] reads and tests alert rules, [`license`] signs and checks licences, [`snapshot`] makes and restores snapshots,
//! [`remote`] is the server that commands ask, [`memory`] is the allocator. Logic of the product lives in the crates below.

mod cli;
mod config;
mod demo;
mod exit;
mod health;
mod license;
mod logging;
mod memory;
mod notify;
mod pipeline;
mod remote;
mod repair;
mod rules;
mod serve;
mod snapshot;
mod sql;
mod telemetry;
mod user;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};
use config::Settings;
use exit::Failure;
use rustix::fs::Mode;

/// Bytes of the stack of threads that libraries start. The client of RabbitMQ reads nested headers of messages by recursion.
const LIBRARY_STACK_BYTES: &str = "67108864";

fn main() -> ExitCode {
    // SAFETY: no other thread runs yet that could read the environment.
    unsafe { std::env::set_var("RUST_MIN_STACK", LIBRARY_STACK_BYTES) };
    // Documents, keys and passwords are nobody else's, whoever makes their files.
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    millrace_runtime::install_crypto_provider();
    match run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let _ = writeln!(std::io::stderr(), "error: {failure}");
            ExitCode::from(failure.code)
        }
    }
}

fn run(cli: Cli) -> Result<(), Failure> {
    match cli.command {
        Command::Serve(args) => {
            let settings = Settings::load(&args.flags(), environment()).map_err(Failure::config)?;
            serve::run(settings.config().map_err(Failure::config)?)
        }
        Command::Config { keys: true, .. } => print(&config::describe()),
        Command::Config { keys: false, args } => {
            let settings = Settings::load(&args.flags(), environment()).map_err(Failure::config)?;
            print(&settings.print())?;
            settings.config().map(drop).map_err(Failure::config)
        }
        Command::Health(args) => {
            let settings = Settings::load(&args.config.flags(), environment()).map_err(Failure::config)?;
            health::run(&args, &settings.config().map_err(Failure::config)?)
        }
        Command::Repair(args) => {
            let settings = Settings::load(&args.config.flags(), environment()).map_err(Failure::config)?;
            repair::run(&args, settings.config().map_err(Failure::config)?)
        }
        Command::Demo(args) => demo::run(args),
        Command::License(command) => license::run(&command),
        Command::Pipeline(command) => pipeline::run(command),
        Command::Rules(command) => rules::run(command),
        Command::Snapshot(command) => snapshot::run(&command),
        Command::Sql(args) => sql::run(args, sql::Language::Sql),
        Command::Ppl(args) => sql::run(args, sql::Language::Ppl),
        Command::User(command) => user::run(&command),
    }
}

/// Writes to stdout; a reader that has gone away is not a failure.
fn print(text: &str) -> Result<(), Failure> {
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(())
}

/// Returns the environment as text; variables that are not UTF-8 cannot be one of our values.
fn environment() -> Vec<(String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.to_string_lossy().into_owned())))
        .collect()
}
