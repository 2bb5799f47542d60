//! Flags of `millrace user`.

use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};

use super::EXIT_CODES;

const PLACE: &str = "\
Asks the server at --url. With --data it works on the data directory of a server that is stopped, without credentials,
with what MILLRACE_CONFIG and other variables configure for it.";
const PASSWORD: &str = "\
A password to be set is not taken from the command line, where others could read it: without --password-file and --generate it
is asked for on a terminal, which does not show it, and otherwise read from standard input.";

/// Commands on users.
#[derive(Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// Make a user
    #[command(after_help = format!("\
Examples:
  millrace user add ann --role reader --user admin:…
  millrace user add ann --role reader --generate --user admin:…
  millrace user add ann --role reader,monitor --email ann@example.org --password-file ann.txt --user admin
  pass show ann | millrace user add ann --role admin --data /var/lib/millrace

A user that is there already is left as it is, and a role that nobody has made is refused. {PASSWORD}
{PLACE}

{EXIT_CODES}"))]
    Add {
        /// Name of the user
        #[arg(value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
        name: String,
        /// Role that the user has; may be repeated, or a list with commas
        #[arg(long = "role", value_name = "ROLE", value_delimiter = ',')]
        roles: Vec<String>,
        /// Address to write to
        #[arg(long, value_name = "ADDRESS")]
        email: Option<String>,
        /// Name among people
        #[arg(long, value_name = "TEXT")]
        full_name: Option<String>,
        /// The password.
        #[command(flatten)]
        password: PasswordArgs,
        /// Location of the users.
        #[command(flatten)]
        place: PlaceArgs,
    },
    /// Set a user's password, which ends its login tokens
    #[command(after_help = format!("\
Examples:
  millrace user passwd ann --user admin:…
  millrace user passwd ann --generate --user admin:…
  millrace user passwd ann --password-file ann.txt --url https://10.0.0.7:9200 --user admin
  millrace user passwd admin --generate --data /var/lib/millrace

The last one is the way back in when the administrator's password is lost: stop the server, set it, start the server.
MILLRACE_ADMIN_PASSWORD counts at the first start only. {PASSWORD}
{PLACE}

{EXIT_CODES}"))]
    Passwd {
        /// Name of the user
        #[arg(value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
        name: String,
        /// The password.
        #[command(flatten)]
        password: PasswordArgs,
        /// Location of the users.
        #[command(flatten)]
        place: PlaceArgs,
    },
    /// Show the roles of a user, or change them
    #[command(after_help = format!("\
Examples:
  millrace user roles ann --user admin:…
  millrace user roles ann --set reader,monitor --user admin:…
  millrace user roles ann --add ingest --user admin:…
  millrace user roles ann --remove monitor --data /var/lib/millrace

Shows a role a line, after the change if there is one. Role mappings may give more.
{PLACE}

{EXIT_CODES}"))]
    Roles {
        /// Name of the user
        #[arg(value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
        name: String,
        /// The change.
        #[command(flatten)]
        change: RolesArgs,
        /// Location of the users.
        #[command(flatten)]
        place: PlaceArgs,
    },
    /// List the users
    #[command(after_help = format!("\
Examples:
  millrace user list --user admin:…
  millrace user list --data /var/lib/millrace

{PLACE}

{EXIT_CODES}"))]
    List {
        /// Location of the users.
        #[command(flatten)]
        place: PlaceArgs,
    },
    /// Delete a user, which ends its login tokens and API keys
    #[command(after_help = format!("\
Examples:
  millrace user delete ann --user admin:…
  millrace user delete ann --data /var/lib/millrace

{PLACE}

{EXIT_CODES}"))]
    Delete {
        /// Name of the user
        #[arg(value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
        name: String,
        /// Location of the users.
        #[command(flatten)]
        place: PlaceArgs,
    },
}

impl UserCommand {
    /// Returns where users are.
    pub(crate) fn place(&self) -> &PlaceArgs {
        match self {
            Self::Add { place, .. }
            | Self::Passwd { place, .. }
            | Self::Roles { place, .. }
            | Self::List { place }
            | Self::Delete { place, .. } => place,
        }
    }
}

/// Location of the users.
#[derive(Clone, Debug, Args)]
pub(crate) struct PlaceArgs {
    /// Server to ask
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9200")]
    pub(crate) url: String,
    /// User of the requests, with the password behind a colon or in MILLRACE_PASSWORD
    #[arg(long, value_name = "USER[:PASSWORD]")]
    pub(crate) user: Option<String>,
    /// Accept any certificate of --url
    #[arg(long)]
    pub(crate) insecure_tls: bool,
    /// Data directory of a server that is stopped
    #[arg(long, value_name = "DIR", conflicts_with_all = ["url", "user", "insecure_tls"])]
    pub(crate) data: Option<String>,
}

/// Source of a password.
#[derive(Clone, Debug, Args)]
#[group(multiple = false)]
pub(crate) struct PasswordArgs {
    /// File that holds the password, and nothing else; - is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
    /// Make a password, and print it once
    #[arg(long)]
    pub(crate) generate: bool,
}

/// Change of a user's roles.
#[derive(Clone, Debug, Args)]
#[group(multiple = false)]
pub(crate) struct RolesArgs {
    /// Roles in place of those that the user has
    #[arg(long, value_name = "ROLES", value_delimiter = ',')]
    pub(crate) set: Option<Vec<String>>,
    /// Roles beside those that the user has
    #[arg(long, value_name = "ROLES", value_delimiter = ',')]
    pub(crate) add: Option<Vec<String>>,
    /// Roles to take away
    #[arg(long, value_name = "ROLES", value_delimiter = ',')]
    pub(crate) remove: Option<Vec<String>>,
}
