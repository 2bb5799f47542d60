//! Configuration of notifications.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::allow::Allow;

/// The section `notifications`.
#[derive(Clone)]
pub struct Config {
    /// Allowed destinations; none by default.
    pub allow: Allow,
    /// The key that secrets are encrypted with; without one there are none.
    pub secret_key: Option<[u8; 32]>,
    /// The server of mail; without one none is sent.
    pub smtp: Option<Smtp>,
    /// The directory of the programs that the method `command` may start; without one it starts none.
    pub commands: Option<PathBuf>,
    /// PEM file with certificates of authorities that are trusted beside the system's.
    pub authorities: Option<PathBuf>,
    /// Notifications a minute of a channel beyond which a digest tells of the rest.
    pub per_minute: u32,
    /// Time for which a notification is tried again.
    pub give_up_after: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            allow: Allow::default(),
            secret_key: None,
            smtp: None,
            commands: None,
            authorities: None,
            per_minute: 60,
            give_up_after: Duration::from_secs(2 * 24 * 3600),
        }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { allow, secret_key, smtp, commands, authorities, per_minute, give_up_after } = self;
        f.debug_struct("Config")
            .field("allow", allow)
            .field("secret_key", &secret_key.is_some())
            .field("smtp", smtp)
            .field("commands", commands)
            .field("authorities", authorities)
            .field("per_minute", per_minute)
            .field("give_up_after", give_up_after)
            .finish()
    }
}

/// A server of mail.
#[derive(Clone)]
pub struct Smtp {
    /// Its host, by which its certificate is verified.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Encryption of the connection.
    pub tls: SmtpTls,
    /// Name and password.
    pub credentials: Option<(String, String)>,
    /// Address that mails come from, unless a rule has another one.
    pub from: String,
}

impl fmt::Debug for Smtp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, tls, credentials, from } = self;
        let user = credentials.as_ref().map(|(user, _)| user);
        f.debug_struct("Smtp")
            .field("host", host)
            .field("port", port)
            .field("tls", tls)
            .field("user", &user)
            .field("from", from)
            .finish()
    }
}

/// Encryption of a connection to a mail server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmtpTls {
    /// From the command STARTTLS on, which the server has to have.
    StartTls,
    /// From the first byte on.
    Implicit,
    /// Not at all.
    None,
}
