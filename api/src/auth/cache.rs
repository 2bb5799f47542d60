//! Credentials that were verified lately.

use std::collections::HashMap;

use millrace_storage::{Principal, SharedClock};
use parking_lot::RwLock;
use ring::hmac;

/// How long a verification counts.
const TTL_MS: i64 = 5 * 60 * 1000;
/// Most users remembered; beyond it the cache is emptied and fills anew.
const MAX_USERS: usize = 1024;

/// Keyed hashes of verified credentials, one a user. The key lives as long as the process, so what a
/// memory dump shows cannot be checked against guesses elsewhere.
pub(super) struct Verified {
    key: hmac::Key,
    clock: SharedClock,
    users: RwLock<HashMap<String, Entry>>,
}

struct Entry {
    tag: hmac::Tag,
    principal: Principal,
    expires_ms: i64,
}

impl Verified {
    pub(super) fn new(clock: SharedClock) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &rand::random::<[u8; 32]>());
        Self { key, clock, users: RwLock::default() }
    }

    /// Finds the principal that a user's credentials (as in the header) were verified for.
    pub(super) fn find(&self, user: &str, credentials: &str) -> Option<Principal> {
        let users = self.users.read();
        let entry = users.get(user).filter(|entry| self.clock.now_ms() < entry.expires_ms)?;
        // Compares in constant time.
        hmac::verify(&self.key, credentials.as_bytes(), entry.tag.as_ref()).ok()?;
        Some(entry.principal.clone())
    }

    /// Remembers a verification, in place of the user's earlier one.
    pub(super) fn remember(&self, user: &str, credentials: &str, principal: Principal) {
        let tag = hmac::sign(&self.key, credentials.as_bytes());
        let entry = Entry { tag, principal, expires_ms: self.clock.now_ms().saturating_add(TTL_MS) };
        let mut users = self.users.write();
        if users.len() >= MAX_USERS && !users.contains_key(user) {
            users.clear();
        }
        users.insert(user.to_owned(), entry);
    }
}

impl std::fmt::Debug for Verified {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Verified").field("users", &self.users.read().len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_storage::ManualClock;
    use std::sync::Arc;

    #[test]
    fn entries_expire() {
        let clock = Arc::new(ManualClock::new(0));
        let cache = Verified::new(clock.clone());
        cache.remember("admin", "abc", Principal::system());
        assert!(cache.find("admin", "abc").is_some());
        assert!(cache.find("admin", "abd").is_none());
        clock.advance_ms(TTL_MS);
        assert!(cache.find("admin", "abc").is_none());
    }

    #[test]
    fn users_are_bounded() {
        let cache = Verified::new(Arc::new(ManualClock::new(0)));
        for user in 0..MAX_USERS * 2 {
            cache.remember(&user.to_string(), "x", Principal::system());
        }
        assert!(cache.users.read().len() <= MAX_USERS);
    }
}
