//! `millrace rules`: files of alert rules. [`import`] reads those of ElastAlert, [`test`] runs rules against their cases.

mod import;
mod test;

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};

use crate::cli::RulesCommand;
use crate::exit::Failure;
use crate::logging;

/// Bytes of a file, at most: those of the largest rule.
const MAX_FILE: u64 = 8 << 20;

/// Runs the command.
pub(crate) fn run(command: RulesCommand) -> Result<(), Failure> {
    logging::install("warn", false);
    match command {
        RulesCommand::Import(args) => import::run(&args),
        RulesCommand::Test(args) => test::run(&args),
    }
}

/// Reads a file.
fn read(file: &Path) -> Result<String> {
    let bytes = std::fs::metadata(file).with_context(|| format!("cannot read [{}]", file.display()))?.len();
    anyhow::ensure!(bytes <= MAX_FILE, "[{}] has {bytes} bytes, at most {MAX_FILE} are read", file.display());
    std::fs::read_to_string(file).with_context(|| format!("cannot read [{}]", file.display()))
}

/// Returns whether a file has cases of a rule, by its name.
fn has_cases(file: &Path) -> bool {
    file.file_name()
        .and_then(|name| name.to_str())
        .is_some_and(|name| name.ends_with(".test.yaml") || name.ends_with(".test.yml"))
}

/// Writes a line to stdout; a reader that has gone away is not a failure.
fn say(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Writes a line to stderr.
fn tell(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
