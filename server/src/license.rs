//! `millrace license`: signs, shows and verifies licences as files, without a server.

use std::io::{Read as _, Write as _};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use millrace_api::license::{
    License, MAX_LICENSE_BYTES, license_status, public_license_key, read_license_key,
};
use millrace_runtime::{Clock, SystemClock};

use crate::cli::LicenseCommand;
use crate::exit::Failure;

/// Runs the command.
pub(crate) fn run(command: &LicenseCommand) -> Result<(), Failure> {
    execute(command).map_err(Failure::other)
}

fn execute(command: &LicenseCommand) -> Result<()> {
    let now_ms = SystemClock.now_ms();
    let text = match command {
        LicenseCommand::Sign(args) => {
            let seed = read_license_key(&String::from_utf8_lossy(&read(&args.key)?))?;
            let license = License::sign(&read(&args.file)?, &seed)?;
            let _ = writeln!(std::io::stderr(), "public key: {}", public_license_key(&seed)?);
            license.to_text()
        }
        LicenseCommand::Show(args) => {
            let license = License::read_unverified(&read(&args.file)?)?;
            let status = license_status(Some(&license), env!("CARGO_PKG_VERSION"), now_ms);
            serde_json::to_string_pretty(&status)?
        }
        LicenseCommand::Verify(args) => {
            let license = License::verify(&read(&args.file)?, Some(&read_license_key(&args.public_key)?))?;
            license.check_current(now_ms)?;
            format!("the licence is its issuer's, with {} days left", license.days_left(now_ms))
        }
    };
    // A reader that has gone away is not a failure.
    let _ = writeln!(std::io::stdout(), "{text}");
    Ok(())
}

/// Reads a file of at most the longest licence.
fn read(file: &Path) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    let opened = std::fs::File::open(file).with_context(|| format!("cannot read [{}]", file.display()))?;
    opened
        .take(MAX_LICENSE_BYTES as u64 + 1)
        .read_to_end(&mut text)
        .with_context(|| format!("cannot read [{}]", file.display()))?;
    ensure!(text.len() <= MAX_LICENSE_BYTES, "[{}] has more than {MAX_LICENSE_BYTES} bytes", file.display());
    Ok(text)
}
