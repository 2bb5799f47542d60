//! The operations on accounts.
//!
//! Each change is decided on the state as it is, written to the store as a whole, and seen from then on; changes follow one another.
//! A caller that goes away does not stop one that has begun.
//!
//! - [`open`]: at the start
//! - [`authenticate`]: who sent a request
//! - [`users`], [`roles`], [`keys`], [`tokens`]: changes; [`edit`]: several at once
//! - [`feature_state`]: accounts in snapshots
//! - [`sweep`]: what is over is forgotten

mod authenticate;
mod edit;
mod feature_state;
mod keys;
mod open;
mod roles;
mod sweep;
#[cfg(test)]
mod tests;
mod tokens;
mod users;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use arc_swap::ArcSwap;
use millrace_catalog::access::Principal;
use millrace_runtime::SharedClock;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, Semaphore};

pub use authenticate::{Authenticated, Scheme};
pub use edit::Edit;
pub use open::Config;
pub use tokens::{Login, VerifiedLogin};

use crate::error::{Error, Result};
use crate::failures::Failures;
use crate::password::{AttemptRefusal, Setter, Verifier, hash};
use crate::privileges::QueryCheck;
use crate::resolve::{HostRoles, Resolver};
use crate::role::builtin;
use crate::state::{Account, Change, State};
use crate::store::Store;
use crate::token::TokenLifetimes;
use crate::user::check_password;

/// Patterns of index names that a request's own thread goes through to find out what a user may do.
const FEW_PATTERNS: usize = 10_000;
/// Searches of API keys at a time; the others wait for their turn, off the threads that they would keep from the store.
const SEARCHES: usize = 2;
/// The same of those who manage the keys of all: a user with many keys does not keep them from being revoked.
const SEARCHES_OF_MANAGERS: usize = 1;

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
    compiling: Arc<Mutex<()>>,
    /// Has a permit for each search of keys that may be under way.
    searching: Arc<Semaphore>,
    /// The same for those who manage the keys of all.
    managing: Arc<Semaphore>,
    verifier: Verifier,
    /// Hash that passwords of unknown users are checked against, so that they cost the same.
    decoy: Arc<str>,
    failures: Failures,
    insecure: bool,
    lifetimes: TokenLifetimes,
    meaning: Arc<dyn QueryCheck>,
    /// Runtime of changes: that of the store, which outlives those of listeners.
    runtime: Handle,
}

/// A password that is to be set, hashed.
#[derive(Clone)]
pub struct NewPassword(Arc<str>);

impl std::fmt::Debug for NewPassword {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewPassword").finish_non_exhaustive()
    }
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
    /// Returns whether every request is the administrator's.
    pub fn is_insecure(&self) -> bool {
        self.0.insecure
    }

    /// Returns the present privileges of a user, from any address; `None` where there is none that may come in. It goes through
    /// as many patterns as the user's roles have, on the calling thread: [`Accounts::find_principal`] is for those that answer
    /// requests.
    pub fn principal(&self, user: &str) -> Option<Principal> {
        let state = self.0.state.load();
        let account = state.users.get(user).filter(|account| account.user.enabled)?;
        Some(self.0.resolver.user(&state, account, &HostRoles::default()))
    }

    /// Returns the same without holding up the thread.
    ///
    /// # Errors
    /// [`Error::Internal`].
    pub async fn find_principal(&self, user: &str) -> Result<Option<Principal>> {
        let state = self.0.state.load_full();
        let Some(account) = state.users.get(user).filter(|account| account.user.enabled) else {
            return Ok(None);
        };
        self.resolve(&state, account, HostRoles::default()).await.map(Some)
    }

    /// Returns the privileges of a user that comes from an address.
    async fn resolve_from(
        &self,
        state: &Arc<State>,
        account: &Arc<Account>,
        address: IpAddr,
    ) -> Result<Principal> {
        let of_host = self.0.resolver.roles_of_host(state, address);
        self.resolve(state, account, of_host).await
    }

    /// Returns the privileges of a user that comes from a host with these roles. A great many patterns are gone through on a
    /// thread for that, for one request at a time: the others find what was made of them.
    async fn resolve(
        &self,
        state: &Arc<State>,
        account: &Arc<Account>,
        of_host: HostRoles,
    ) -> Result<Principal> {
        let inner = &self.0;
        let is_quick = || {
            inner.resolver.known(state, account, &of_host).is_some()
                || state.patterns_of(account, &of_host) <= FEW_PATTERNS
        };
        if is_quick() {
            return Ok(inner.resolver.user(state, account, &of_host));
        }
        let one = Arc::clone(&inner.compiling).lock_owned().await;
        let (inner, state, account) = (Arc::clone(inner), Arc::clone(state), Arc::clone(account));
        let made = tokio::task::spawn_blocking(move || {
            // It goes on without its request, and the next one waits for it.
            let _one = one;
            inner.resolver.user(&state, &account, &of_host)
        });
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

    /// Changes accounts: `decide` sees them as they are at a time, and says what is to be changed. It may take its time.
    async fn change<T, F>(&self, decide: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&State, i64) -> Result<(Vec<Change>, T)> + Send + 'static,
    {
        let inner = Arc::clone(&self.0);
        // On its own: if the caller goes away between the store and memory, these do not fall apart.
        let changed = self.0.runtime.spawn(async move {
            let _one = inner.changing.lock().await;
            let state = inner.state.load_full();
            let now_ms = inner.clock.now_ms();
            let decided = tokio::task::spawn_blocking(move || {
                let (changes, value) = decide(&state, now_ms)?;
                if changes.is_empty() {
                    return Ok::<_, Error>((None, value));
                }
                let records = changes.iter().map(Change::record).collect::<Result<Vec<_>>>()?;
                let mut changed = State::clone(&state);
                changed.apply(&changes);
                Ok((Some((records, changed)), value))
            });
            let (decided, value) = decided.await.map_err(Error::internal)??;
            if let Some((records, changed)) = decided {
                inner.store.put_accounts(&records).await?;
                inner.state.store(Arc::new(changed));
            }
            Ok(value)
        });
        changed.await.map_err(Error::internal)?
    }

    /// Hashes a password that a user is to get. It waits for its turn, and for nobody who goes away meanwhile: dropping the future
    /// gives it up.
    ///
    /// # Errors
    /// [`Error::Invalid`]; [`Error::Later`] where the setter waits for too many already.
    pub async fn hash_password(&self, password: String, setter: Setter<'_>) -> Result<NewPassword> {
        check_password(&password)?;
        match self.0.verifier.make(password, setter).await {
            Ok(hash) => Ok(NewPassword(hash)),
            Err(AttemptRefusal::Later { reason, after }) => Err(Error::Later { reason, after }),
            Err(AttemptRefusal::Failed(reason)) => Err(Error::Internal(reason)),
            Err(AttemptRefusal::Wrong) => {
                Err(Error::Internal("a password that is set was refused".to_owned()))
            }
        }
    }

    /// Hashes a password for the server's own commands.
    async fn hash_own(&self, password: String) -> Result<NewPassword> {
        let address = Ipv4Addr::UNSPECIFIED.into();
        self.hash_password(password, Setter { name: OWN, address }).await
    }
}

/// User that sets passwords by commands.
const OWN: &str = "_system";

async fn hash_password(password: String) -> Result<Arc<str>> {
    let hash = tokio::task::spawn_blocking(move || hash::hash(&password));
    Ok(hash.await.map_err(Error::internal)?.map_err(Error::internal)?.into())
}

/// Refuses more of something than there may be.
fn bound(what: &'static str, count: usize, limit: usize) -> Result<()> {
    if count > limit { Err(Error::TooMany { what, limit }) } else { Ok(()) }
}
