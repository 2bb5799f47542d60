//! The start: accounts are read, and there is an administrator.

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use millrace_runtime::SharedClock;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, Semaphore};

use super::{Accounts, Inner, SEARCHES, SEARCHES_OF_MANAGERS, hash_password, sweep};
use crate::error::{Error, Result};
use crate::failures::Failures;
use crate::password::{Verifier, file, hash};
use crate::privileges::QueryCheck;
use crate::resolve::Resolver;
use crate::role::builtin::ADMIN;
use crate::state::{Account, Change, State};
use crate::store::Store;
use crate::token::TokenLifetimes;
use crate::user::check_password;

/// Key under which earlier versions kept the hash of the administrator's password.
const ADMIN_KEY: &str = "auth/admin";

/// Configuration of accounts.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The administrator's password where there is none yet: one that is stored stays.
    pub admin_password: Option<String>,
    /// File that a generated password is written to.
    pub password_file: Option<PathBuf>,
    /// Takes every request for the administrator's. Only for listeners on loopback.
    pub insecure: bool,
    /// Lifetimes of login tokens.
    pub lifetimes: TokenLifetimes,
}

impl Accounts {
    /// Opens the accounts of a store. Without a password for the administrator, configured or stored, one is generated,
    /// written to the file for it where there is one, stored, and returned to be shown once. What is over is forgotten from
    /// then on by a task that ends with the last clone.
    ///
    /// # Errors
    /// When the store fails, or holds what cannot be read; when the file cannot be written.
    pub async fn open(
        store: Arc<dyn Store>,
        config: Config,
        clock: SharedClock,
        meaning: Arc<dyn QueryCheck>,
    ) -> Result<(Self, Option<String>)> {
        let Config { admin_password, password_file, insecure, lifetimes } = config;
        let state = State::load(&store.accounts().await?)?;
        let inner = Inner {
            store,
            verifier: Verifier::start(Arc::clone(&clock)).map_err(Error::internal)?,
            clock,
            state: ArcSwap::from_pointee(state),
            changing: Mutex::new(()),
            resolver: Resolver::default(),
            compiling: Arc::default(),
            searching: Arc::new(Semaphore::new(SEARCHES)),
            managing: Arc::new(Semaphore::new(SEARCHES_OF_MANAGERS)),
            decoy: hash_password(hash::generate()).await?,
            failures: Failures::default(),
            insecure,
            lifetimes,
            meaning,
            runtime: Handle::current(),
        };
        let accounts = Self(Arc::new(inner));
        let generated = accounts.admit_administrator(admin_password, password_file).await?;
        sweep::run(&accounts.0);
        Ok((accounts, generated))
    }

    /// Sees to it that there is an administrator with a password, and returns that if it was generated.
    async fn admit_administrator(
        &self,
        given: Option<String>,
        password_file: Option<PathBuf>,
    ) -> Result<Option<String>> {
        if let Some(Err(error)) = given.as_deref().map(check_password) {
            return Err(Error::Invalid(format!(
                "the configured password of user [{ADMIN}] cannot be used: {error}; configure another one, or none to keep the one \
                 that is stored or have one made"
            )));
        }
        let known = self.0.state.load().users.get(ADMIN).cloned();
        let kept = match known.as_ref().and_then(|account| account.hash.clone()) {
            Some(hash) => Some(hash),
            None => self.kept_before().await?,
        };
        let (hash, generated) = match (given, kept) {
            // It may have been changed since, because somebody else knows the one that is given.
            (_, Some(kept)) => (Some(kept), None),
            // Nobody needs it, and a later start without this mode generates one.
            (None, None) if self.0.insecure => (None, None),
            (given, None) => {
                let password = given.clone().unwrap_or_else(hash::generate);
                let generated = given.is_none().then(|| password.clone());
                let hash = hash_password(password).await?;
                if let Some(file) = password_file {
                    // First: a password that only a crashed process knew would be nobody's. One that was written
                    // earlier is no longer the right one.
                    file::keep(file, generated.clone()).await?;
                }
                (Some(hash), generated)
            }
        };
        let mut user = known.as_ref().map(|account| account.user.clone()).unwrap_or_default();
        user.enabled = true;
        if !user.roles.iter().any(|role| role == ADMIN) {
            user.roles.push(ADMIN.to_owned());
        }
        let is_known = known.is_some_and(|known| known.hash == hash && known.user == user);
        let account = Account { name: ADMIN.into(), user, hash };
        if account.hash.is_none() {
            let mut state = State::clone(&self.0.state.load());
            state.apply(&[Change::PutUser(Arc::new(account))]);
            self.0.state.store(Arc::new(state));
        } else if !is_known {
            self.change(move |state, _| {
                let tokens = state.tokens_of(ADMIN).map(|token| Change::DeleteToken(token.hash));
                let put = Change::PutUser(Arc::new(account));
                Ok((tokens.chain([put]).collect(), ()))
            })
            .await?;
            // From now on the record counts.
            if self.kept_before().await?.is_some() {
                self.0.store.put_secret(ADMIN_KEY, b"").await?;
            }
        }
        Ok(generated)
    }

    /// Reads the hash that a version before kept.
    async fn kept_before(&self) -> Result<Option<Arc<str>>> {
        let Some(kept) = self.0.store.secret(ADMIN_KEY).await?.filter(|kept| !kept.is_empty()) else {
            return Ok(None);
        };
        let kept = String::from_utf8(kept)
            .map_err(|_| Error::Internal("the stored administrator's password is not a hash".to_owned()))?;
        Ok(Some(kept.into()))
    }
}
