//! Who asks: the one layer that stands before every route.
//!
//! [`Authenticator`] turns the headers of a request into a [`Principal`], or refuses it with 401. It
//! knows HTTP Basic today; tokens and API keys are recognised and refused by name. Passwords are kept
//! as Argon2id hashes ([`password`]) in a [`SecretStore`] and checked on threads of their own ([`verifier`]), which
//! remember what was right and wrong lately ([`memory`]) and bound attempts ([`buckets`]).

mod buckets;
mod memory;
mod password;
mod password_file;
mod verifier;

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use millrace_storage::access::{Caller, Privileges};
use millrace_storage::{Engine, Principal, SharedClock};

use crate::error::Error;
use verifier::{Attempt, Denied, Verifier};

/// Name of the built-in administrator.
const ADMIN: &str = "admin";
/// Where the administrator's hash is kept.
const ADMIN_KEY: &str = "auth/admin";
/// Longest credentials considered, in bytes of the header.
const MAX_CREDENTIALS: usize = 4096;

/// A small durable store of secrets and identities.
#[async_trait]
pub trait SecretStore: std::fmt::Debug + Send + Sync {
    /// Reads a value.
    async fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Error>;
    /// Writes a value, durably.
    async fn put(&self, key: &str, value: &[u8]) -> Result<(), Error>;
}

#[async_trait]
impl SecretStore for Engine {
    async fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.get_secret(key).await?)
    }

    async fn put(&self, key: &str, value: &[u8]) -> Result<(), Error> {
        Ok(self.put_secret(key, value).await?)
    }
}

/// Decides who a request comes from.
#[derive(Debug)]
pub struct Authenticator {
    mode: Mode,
}

#[derive(Debug)]
enum Mode {
    /// Every request is the administrator's.
    Insecure,
    Passwords(Box<Basic>),
}

#[derive(Debug)]
struct Basic {
    admin_hash: Arc<str>,
    admin: Principal,
    verifier: Verifier,
}

impl Authenticator {
    /// Makes one that takes every request for the administrator's. Only for listeners on loopback.
    pub fn insecure() -> Self {
        Self { mode: Mode::Insecure }
    }

    /// Whether every request is the administrator's.
    pub(crate) fn is_insecure(&self) -> bool {
        matches!(self.mode, Mode::Insecure)
    }

    /// Opens the accounts. A configured administrator's password replaces the stored one; without
    /// either, one is generated, written to `password_file` where there is one, stored, and returned to be shown once.
    ///
    /// # Errors
    /// When the store fails, or holds something that is no password hash; when the file cannot be written.
    pub async fn open(
        secrets: &dyn SecretStore,
        admin_password: Option<&str>,
        password_file: Option<&Path>,
        clock: SharedClock,
    ) -> Result<(Self, Option<String>), Error> {
        let stored = secrets.get(ADMIN_KEY).await?.map(String::from_utf8).transpose().map_err(|_| {
            Error::concealed(500, "illegal_state_exception", &"stored administrator's password is not a hash")
        })?;
        let mut generated = None;
        let admin_hash = match (admin_password, stored) {
            (Some(""), _) => {
                return Err(Error::illegal_argument("the administrator's password must not be empty"));
            }
            (Some(given), Some(stored)) if is_hash_of(given, &stored).await? => stored,
            (None, Some(stored)) => stored,
            (given, _) => {
                let password = given.map_or_else(password::generate, str::to_owned);
                let hash = hash(password.clone()).await?;
                if let Some(file) = password_file {
                    // First: a password that only a crashed process knew would be nobody's. One that was written
                    // earlier is no longer the right one.
                    let written = given.is_none().then(|| password.clone());
                    password_file::keep(file.to_owned(), written).await?;
                }
                secrets.put(ADMIN_KEY, hash.as_bytes()).await?;
                if given.is_none() {
                    generated = Some(password);
                }
                hash
            }
        };
        let verifier = Verifier::start(clock).map_err(failed)?;
        let basic = Basic { admin_hash: admin_hash.into(), admin: admin(), verifier };
        Ok((Self { mode: Mode::Passwords(Box::new(basic)) }, generated))
    }

    /// Finds out who sent a request with these headers. `address` is the client's.
    ///
    /// # Errors
    /// 401 without valid credentials; 429 where too many are being checked or were wrong.
    pub async fn authenticate(
        &self,
        headers: &HeaderMap,
        uri: &str,
        address: IpAddr,
    ) -> Result<Principal, Error> {
        let basic = match &self.mode {
            Mode::Insecure => return Ok(admin()),
            Mode::Passwords(basic) => basic,
        };
        let Some(value) = headers.get(AUTHORIZATION) else {
            let reason = if headers.contains_key("token") {
                "login tokens are not available on this server, use Basic authentication".to_owned()
            } else {
                format!("missing authentication credentials for REST request [{uri}]")
            };
            return Err(Error::unauthorized(reason));
        };
        let text = value.to_str().unwrap_or_default();
        let (scheme, credentials) = text.split_once(' ').unwrap_or((text, ""));
        match scheme.to_ascii_lowercase().as_str() {
            "basic" => basic.check(credentials.trim(), uri, address).await,
            "apikey" | "bearer" => Err(Error::unauthorized(format!(
                "[{scheme}] credentials are not available on this server, use Basic authentication"
            ))),
            _ => Err(Error::unauthorized("unknown authorization scheme, use Basic authentication")),
        }
    }
}

impl Basic {
    async fn check(&self, credentials: &str, uri: &str, address: IpAddr) -> Result<Principal, Error> {
        if credentials.len() > MAX_CREDENTIALS {
            return Err(Error::unauthorized("credentials are too long"));
        }
        let pair = STANDARD.decode(credentials).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let Some((name, password)) = pair.as_deref().and_then(|pair| pair.split_once(':')) else {
            return Err(Error::unauthorized("failed to decode basic authentication header"));
        };
        let (address, hash) = (millrace_listen::client(address), &self.admin_hash);
        let principal = (name == ADMIN).then_some(&self.admin);
        let denied = match self.verifier.verify(Attempt { address, name, password, hash, principal }).await {
            Ok(principal) => return Ok(principal),
            Err(denied) => denied,
        };
        let name = name.chars().take(100).collect::<String>();
        match denied {
            Denied::Wrong => {
                tracing::warn!(uri, %address, "authentication failed");
                let reason = format!("unable to authenticate user [{name}] for REST request [{uri}]");
                Err(Error::unauthorized(reason))
            }
            Denied::Later { reason, after } => {
                // What is told to clients is in whole seconds.
                let after = Duration::from_secs(after.as_secs_f64().ceil() as u64);
                Err(Error::too_many_attempts(reason, after))
            }
            Denied::Failed(reason) => Err(failed(reason)),
        }
    }
}

async fn is_hash_of(password: &str, hash: &str) -> Result<bool, Error> {
    let (password, hash) = (password.to_owned(), hash.to_owned());
    let verified = tokio::task::spawn_blocking(move || password::verify(&password, &hash));
    verified.await.map_err(failed)?.map_err(failed)
}

async fn hash(password: String) -> Result<String, Error> {
    let hash = tokio::task::spawn_blocking(move || password::hash(&password));
    hash.await.map_err(failed)?.map_err(failed)
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::concealed(500, "illegal_state_exception", &error)
}

fn admin() -> Principal {
    let privileges = Arc::new(Privileges::unrestricted());
    Principal::new(Caller::User(ADMIN.into()), vec![ADMIN.to_owned()], privileges)
}

#[cfg(test)]
mod tests;
