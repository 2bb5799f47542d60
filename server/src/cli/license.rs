//! Flags of `millrace license`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::EXIT_CODES;

/// Commands on files of licences.
#[derive(Debug, Subcommand)]
pub(crate) enum LicenseCommand {
    /// Sign the members of a licence, and print the licence
    #[command(after_help = format!("\
Examples:
  head -c 32 /dev/urandom | base64 >issuer.key
  millrace license sign --key issuer.key terms.json >license.json

The members are strings: customerName, issuedOn and expiration_date, and perhaps nodes, indices, validity_in_months, documents,
siemPlan, networkProbe and noOfNetworkProbes. The public key, for license.public_key of servers, is told on stderr.

{EXIT_CODES}"))]
    Sign(LicenseSignArgs),
    /// Print a licence with the days that are left; its signature is not checked
    #[command(after_help = format!("\
Examples:
  millrace license show license.json

{EXIT_CODES}"))]
    Show(LicenseShowArgs),
    /// Check the signature and the end of a licence
    #[command(after_help = format!("\
Examples:
  millrace license verify --public-key 6kqSL4r2nYXuR0r5gBqVvMyBhVYMlqzsiEVCgSlNkdY= license.json

The exit code is 1 if a server with this key would refuse the licence.

{EXIT_CODES}"))]
    Verify(LicenseVerifyArgs),
}

/// Flags of `license sign`.
#[derive(Clone, Debug, Args)]
pub(crate) struct LicenseSignArgs {
    /// File with the private key: 32 bytes in Base64
    #[arg(long, value_name = "FILE")]
    pub(crate) key: PathBuf,
    /// File with the members of the licence
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

/// Flags of `license show`.
#[derive(Clone, Debug, Args)]
pub(crate) struct LicenseShowArgs {
    /// Licence
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

/// Flags of `license verify`.
#[derive(Clone, Debug, Args)]
pub(crate) struct LicenseVerifyArgs {
    /// Public key of the issuer: 32 bytes in Base64
    #[arg(long, value_name = "KEY")]
    pub(crate) public_key: String,
    /// Licence
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}
