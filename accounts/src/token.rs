//! Login tokens.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::secret::Hash;

/// Lifetimes of a login token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenLifetimes {
    /// After its last use.
    pub idle: Duration,
    /// After the login.
    pub absolute: Duration,
}

impl Default for TokenLifetimes {
    fn default() -> Self {
        Self { idle: Duration::from_secs(12 * 60 * 60), absolute: Duration::from_secs(30 * 24 * 60 * 60) }
    }
}

impl TokenLifetimes {
    fn idle_ms(self) -> i64 {
        i64::try_from(self.idle.as_millis()).unwrap_or(i64::MAX)
    }

    fn absolute_ms(self) -> i64 {
        i64::try_from(self.absolute.as_millis()).unwrap_or(i64::MAX)
    }

    /// Returns the delay after which a later last use is written again.
    fn noted_ms(self) -> i64 {
        (self.idle_ms() / 10).max(1)
    }
}

/// A login token, but for its text.
#[derive(Debug)]
pub(crate) struct Token {
    pub(crate) hash: Hash,
    pub(crate) user: Arc<str>,
    pub(crate) created_ms: i64,
    /// Time of its last use, in memory.
    used_ms: AtomicI64,
    /// The same, in the store.
    stored_ms: AtomicI64,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct TokenBody {
    pub(crate) user: Arc<str>,
    pub(crate) created_ms: i64,
    pub(crate) used_ms: i64,
}

impl Token {
    pub(crate) fn new(hash: Hash, body: TokenBody) -> Self {
        let TokenBody { user, created_ms, used_ms } = body;
        Self { hash, user, created_ms, used_ms: AtomicI64::new(used_ms), stored_ms: AtomicI64::new(used_ms) }
    }

    /// Returns its stored form.
    pub(crate) fn body(&self) -> TokenBody {
        TokenBody { user: Arc::clone(&self.user), created_ms: self.created_ms, used_ms: self.used_ms() }
    }

    pub(crate) fn used_ms(&self) -> i64 {
        self.used_ms.load(Ordering::Relaxed)
    }

    pub(crate) fn is_active(&self, lifetimes: TokenLifetimes, now_ms: i64) -> bool {
        now_ms < self.created_ms.saturating_add(lifetimes.absolute_ms())
            && now_ms < self.used_ms().saturating_add(lifetimes.idle_ms())
    }

    /// Returns whether its last use is to be stored.
    pub(crate) fn is_to_be_noted(&self, lifetimes: TokenLifetimes) -> bool {
        self.used_ms().saturating_sub(self.stored_ms.load(Ordering::Relaxed)) >= lifetimes.noted_ms()
    }

    /// Takes note of what is stored.
    pub(crate) fn noted(&self, used_ms: i64) {
        self.stored_ms.store(used_ms, Ordering::Relaxed);
    }

    /// Takes note of a use.
    pub(crate) fn touch(&self, now_ms: i64) {
        self.used_ms.fetch_max(now_ms, Ordering::Relaxed);
    }
}
