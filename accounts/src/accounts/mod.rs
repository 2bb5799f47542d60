//! The operations on accounts.
//!
//! Each change is decided on the state as it is, written to the store as a whole, and seen from then on; changes follow one another.
//! A caller that goes away does not stop one that has begun.
//!
//! - [`open`]: at the start
//! - [`authenticate`]: who sent a request
//! - [`users`], [`roles`], [`keys`], [`tokens`]: changes
//! - [`sweep`]: what is over is forgotten

mod authenticate;
mod keys;
mod open;
mod roles;
mod sweep;
#[cfg(test)]
mod tests;
mod tokens;
mod users;

use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use millrace_storage::{Principal, SharedClock};
use tokio::sync::{Mutex, Semaphore};

pub use authenticate::{Authenticated, Scheme};
pub use open::Config;
pub use tokens::Login;

use crate::error::{Error, Result};
use crate::password::{Verifier, hash};
use crate::privileges::QueryCheck;
use crate::resolve::Resolver;
use crate::role::builtin;
use crate::state::{Account, Change, State};
use crate::store::Store;
use crate::token::TokenLifetimes;

/// Patterns of index names that a request's own thread goes through to find out what a user may do.
const FEW_PATTERNS: usize = 10_000;
/// Hashes of new passwords made at a time.
const HASHED_AT_A_TIME: usize = 2;

/// All accounts. Cheap to clone: clones are the same.
#[derive(Clone)]
pub struct Accounts(Arc<Inner>);

struct Inner {
    store: Arc<dyn Store>,
    clock: SharedClock,
    state: ArcSwap<State>,
    /// Held by a change from its decision until it is seen.
    changing: Mutex<()>,
    resolver: Resolver,
    /// Held while a great many patterns are gone through.
    compiling: Mutex<()>,
    verifier: Verifier,
    /// What passwords of unknown users are checked against, so that they cost the same.
    decoy: Arc<str>,
    insecure: bool,
    lifetimes: TokenLifetimes,
    meaning: Arc<dyn QueryCheck>,
    hashing: Semaphore,
}

impl std::fmt::Debug for Accounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.0.state.load();
        f.debug_struct("Accounts")
            .field("users", &state.users.size())
            .field("roles", &state.roles.size())
            .field("keys", &state.keys.size())
            .field("tokens", &state.tokens.size())
            .finish_non_exhaustive()
    }
}

impl Accounts {
    /// Whether every request is the administrator's.
    pub fn is_insecure(&self) -> bool {
        self.0.insecure
    }

    /// Returns what a user may do now, wherever it comes from; `None` where there is none that may come in.
    pub fn principal(&self, user: &str) -> Option<Principal> {
        self.principal_from(user, None)
    }

    fn principal_from(&self, user: &str, address: Option<IpAddr>) -> Option<Principal> {
        let state = self.0.state.load();
        let account = state.users.get(user).filter(|account| account.user.enabled)?;
        Some(self.0.resolver.user(&state, account, address))
    }

    /// Returns what a user may do. A great many patterns are gone through on a thread for that, for one request at a time: the
    /// others find what was made of them.
    async fn resolve(
        &self,
        state: &Arc<State>,
        account: &Arc<Account>,
        address: IpAddr,
    ) -> Result<Principal> {
        let inner = &self.0;
        let is_quick =
            || inner.resolver.known(state, account).is_some() || state.patterns_of(account) <= FEW_PATTERNS;
        if is_quick() {
            return Ok(inner.resolver.user(state, account, Some(address)));
        }
        let _one = inner.compiling.lock().await;
        let (inner, state, account) = (Arc::clone(inner), Arc::clone(state), Arc::clone(account));
        let made = tokio::task::spawn_blocking(move || inner.resolver.user(&state, &account, Some(address)));
        made.await.map_err(Error::internal)
    }

    /// Returns the administrator.
    ///
    /// # Panics
    /// Never: it cannot be deleted or disabled.
    pub fn administrator(&self) -> Principal {
        self.principal(builtin::ADMIN).expect("the administrator is always there")
    }

    /// Forgets what was made of roles, so that it is made anew.
    pub fn forget_privileges(&self) {
        self.0.resolver.forget();
    }

    /// Changes accounts: `decide` sees them as they are at a time, and says what is to be changed.
    async fn change<T, F>(&self, decide: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&State, i64) -> Result<(Vec<Change>, T)> + Send + 'static,
    {
        let inner = Arc::clone(&self.0);
        // On its own: if the caller goes away between the store and memory, these do not fall apart.
        let changed = tokio::spawn(async move {
            let _one = inner.changing.lock().await;
            let state = inner.state.load_full();
            let (changes, value) = decide(&state, inner.clock.now_ms())?;
            if !changes.is_empty() {
                let records = changes.iter().map(Change::record).collect::<Result<Vec<_>>>()?;
                inner.store.put_accounts(&records).await?;
                let mut changed = State::clone(&state);
                changed.apply(&changes);
                inner.state.store(Arc::new(changed));
            }
            Ok(value)
        });
        changed.await.map_err(Error::internal)?
    }

    async fn hash(&self, password: String) -> Result<Arc<str>> {
        let _place = self.0.hashing.acquire().await.map_err(Error::internal)?;
        hash_password(password).await
    }
}

async fn hash_password(password: String) -> Result<Arc<str>> {
    let hash = tokio::task::spawn_blocking(move || hash::hash(&password));
    Ok(hash.await.map_err(Error::internal)?.map_err(Error::internal)?.into())
}

/// Refuses more of something than there may be.
fn bound(what: &'static str, count: usize, limit: usize) -> Result<()> {
    if count > limit { Err(Error::TooMany { what, limit }) } else { Ok(()) }
}
