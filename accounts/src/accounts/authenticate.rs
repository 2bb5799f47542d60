//! Authentication of requests.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use millrace_catalog::access::Principal;

use super::Accounts;
use crate::credentials::Credentials;
use crate::error::{Error, Refusal};
use crate::limits::shorten;
use crate::password::{Attempt, AttemptRefusal};
use crate::secret::Hash;
use crate::state::Account;

/// Longest path in the log, in bytes.
const MAX_LOGGED: usize = 512;

/// Scheme of the credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// A user's password.
    Basic,
    /// A login token.
    Token,
    /// An API key.
    ApiKey,
    /// A certificate.
    Certificate,
    /// Nothing: every request is the administrator's.
    Insecure,
}

/// Authenticated sender of a request.
#[derive(Clone, Debug)]
pub struct Authenticated {
    /// The caller with what it may do.
    pub principal: Principal,
    /// Scheme of the credentials.
    pub scheme: Scheme,
}

impl Accounts {
    /// Finds out who sent a request with these headers. `address` is the client's.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub async fn authenticate(
        &self,
        headers: &HeaderMap,
        uri: &str,
        address: IpAddr,
    ) -> Result<Authenticated, Refusal> {
        if self.0.insecure {
            return Ok(Authenticated { principal: self.administrator(), scheme: Scheme::Insecure });
        }
        let refuse = |reason: String| Err(Refusal::Unauthenticated(reason));
        match Credentials::read(headers) {
            Ok(Some(Credentials::Basic { name, password })) => {
                let (_, principal) = self.check_password(&name, &password, uri, address).await?;
                Ok(Authenticated { principal, scheme: Scheme::Basic })
            }
            Ok(Some(Credentials::ApiKey { id, secret })) => self.check_key(&id, &secret, uri, address).await,
            Ok(Some(Credentials::Token(token))) => self.check_token(&token, uri, address).await,
            Ok(None) => refuse(format!("missing authentication credentials for REST request [{uri}]")),
            Err(reason) => refuse(reason.to_owned()),
        }
    }

    /// Finds the user of a verified certificate by its subject (RFC 4514): the one that has it as the attribute
    /// [`crate::CERTIFICATE_SUBJECT`], else the one of that name. `None` where there is none that may come in. It is for who
    /// shows no other credentials. What it may do is remembered until accounts change.
    ///
    /// # Errors
    /// [`Refusal::Failed`].
    pub async fn by_certificate(
        &self,
        subject: &str,
        address: IpAddr,
    ) -> Result<Option<Authenticated>, Refusal> {
        let state = self.0.state.load_full();
        let account = match subject {
            "" => None,
            subject => state.user_of_subject(subject).filter(|account| account.user.enabled),
        };
        let Some(account) = account else { return Ok(None) };
        let principal = self.resolve_from(&state, account, address).await.map_err(failed)?;
        Ok(Some(Authenticated { principal, scheme: Scheme::Certificate }))
    }

    /// Checks a user's password, within the bounds for attempts.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub async fn verify_password(&self, name: &str, password: &str, address: IpAddr) -> Result<(), Refusal> {
        self.check_password(name, password, "/", address).await.map(drop)
    }

    pub(super) async fn check_password(
        &self,
        name: &str,
        password: &str,
        uri: &str,
        address: IpAddr,
    ) -> Result<(Arc<Account>, Principal), Refusal> {
        let account = self.0.state.load().users.get(name).cloned();
        let hash = account.as_ref().and_then(|account| account.hash.as_ref());
        // Who may not come in costs the same and is told the same, whatever the password is.
        let enabled = account.as_ref().is_some_and(|account| account.user.enabled);
        let (hash, known) = (hash.unwrap_or(&self.0.decoy), enabled && hash.is_some());
        let client = millrace_listen::client(address);
        let denied =
            match self.0.verifier.verify(Attempt { address: client, name, password, hash, known }).await {
                Ok(()) => {
                    // As it is now: it may have been disabled, or have got another password, while this one was checked.
                    let state = self.0.state.load_full();
                    let current = state
                        .users
                        .get(name)
                        .filter(|current| current.user.enabled && current.hash.as_ref() == Some(hash));
                    match current {
                        Some(current) => {
                            let principal =
                                self.resolve_from(&state, current, address).await.map_err(failed)?;
                            return Ok((Arc::clone(current), principal));
                        }
                        None => AttemptRefusal::Wrong,
                    }
                }
                Err(denied) => denied,
            };
        match denied {
            AttemptRefusal::Wrong => {
                self.log_failure("password", uri, address);
                let name = shorten(name);
                let reason = format!("unable to authenticate user [{name}] for REST request [{uri}]");
                Err(Refusal::Unauthenticated(reason))
            }
            AttemptRefusal::Later { reason, after } => {
                // What is told to clients is in whole seconds.
                let after = Duration::from_secs(after.as_secs_f64().ceil() as u64);
                Err(Refusal::Later { reason, after })
            }
            AttemptRefusal::Failed(reason) => Err(Refusal::Failed(reason)),
        }
    }

    async fn check_key(
        &self,
        id: &str,
        secret: &str,
        uri: &str,
        address: IpAddr,
    ) -> Result<Authenticated, Refusal> {
        let state = self.0.state.load_full();
        let key = state.keys.get(id);
        let key = key.filter(|key| key.hash.is_of(secret) && key.is_active(self.0.clock.now_ms()));
        let owner = key.and_then(|key| state.users.get(&key.owner)).filter(|owner| owner.user.enabled);
        let (Some(key), Some(owner)) = (key, owner) else {
            self.log_failure("API key", uri, address);
            let id = shorten(id);
            let reason =
                format!("unable to authenticate with provided credentials: API key [{id}] is not valid");
            return Err(Refusal::Unauthenticated(reason));
        };
        let owner = self.resolve_from(&state, owner, address).await.map_err(failed)?;
        let principal = self.0.resolver.key(key, &owner).map_err(|error| {
            Refusal::Failed(format!("what API key [{id}] may do is not understood: {error}"))
        })?;
        Ok(Authenticated { principal, scheme: Scheme::ApiKey })
    }

    async fn check_token(&self, token: &str, uri: &str, address: IpAddr) -> Result<Authenticated, Refusal> {
        let state = self.0.state.load_full();
        let now_ms = self.0.clock.now_ms();
        let token = state.tokens.get(&Hash::new(token));
        let token = token.filter(|token| token.is_active(self.0.lifetimes, now_ms));
        let account = token.and_then(|token| state.users.get(&token.user));
        let account = account.filter(|account| account.user.enabled);
        let (Some(token), Some(account)) = (token, account) else {
            self.log_failure("token", uri, address);
            return Err(Refusal::Unauthenticated(
                "the token is not valid, or no longer: log in again".to_owned(),
            ));
        };
        token.touch(now_ms);
        let principal = self.resolve_from(&state, account, address).await.map_err(failed)?;
        Ok(Authenticated { principal, scheme: Scheme::Token })
    }

    /// Logs that credentials of a kind were wrong, unless that was told often just now. The audit counts them all.
    fn log_failure(&self, credentials: &str, uri: &str, address: IpAddr) {
        if let Some(left_out) = self.0.failures.line(self.0.clock.now_ms()) {
            let (path, address) = (path_of(uri), millrace_listen::client(address));
            tracing::warn!(credentials, path, %address, left_out, "authentication failed");
        }
    }
}

fn failed(error: Error) -> Refusal {
    Refusal::Failed(error.to_string())
}

/// Returns the path of a request for the log: parameters may hold secrets.
fn path_of(uri: &str) -> &str {
    let path = uri.split('?').next().unwrap_or_default();
    let end = (0..=path.len().min(MAX_LOGGED)).rev().find(|end| path.is_char_boundary(*end));
    &path[..end.unwrap_or(0)]
}
