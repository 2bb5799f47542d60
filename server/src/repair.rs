//! `millrace repair`: a new catalog out of object store and log, on a data directory that no server runs on.

use millrace_engine::repair::{self, Options};

use crate::cli::RepairArgs;
use crate::config::Config;
use crate::exit::Failure;
use crate::logging;
use crate::serve::runtime;

/// Repairs, and says on stdout what came of it.
pub(crate) fn run(args: &RepairArgs, config: Config) -> Result<(), Failure> {
    logging::install("warn", false);
    let options = Options { replace: args.replace, dry_run: args.dry_run };
    let runtime = runtime(0)?;
    let report = runtime.block_on(repair::repair(config.storage, options)).map_err(Failure::open)?;
    crate::print(&report.to_string())
}
