//! Permits of detached tasks: bounds on all of them, and on those of one user.

use std::collections::HashMap;
use std::sync::Arc;

use millrace_catalog::access::{Caller, Principal};
use parking_lot::Mutex;

use crate::error::Error;

/// Detached tasks at a time; one more is refused.
const MAX_DETACHED: usize = 128;
/// Detached tasks of one user at a time, and of the user's API keys, so that others find permits.
const MAX_DETACHED_OF_USER: usize = 32;

/// Permits of detached tasks. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct DetachedPermits(Arc<Mutex<HashMap<Caller, usize>>>);

/// A permit for one detached task; it is given back on drop.
#[derive(Debug)]
pub(crate) struct DetachedPermit {
    permits: DetachedPermits,
    user: Caller,
}

impl DetachedPermits {
    /// Takes a permit.
    ///
    /// # Errors
    /// 429 where the user, or all users together, have as many as there may be.
    pub(crate) fn acquire(&self, principal: &Principal) -> Result<DetachedPermit, Error> {
        let user = principal.caller().bounded_as();
        let mut counts = self.0.lock();
        let refusal = |owner: &str, count: usize| {
            let reason = format!(
                "{owner} has [{count}] tasks that run without a waiting caller, which is the limit: try again once one has ended, or \
                 cancel one (POST /_tasks/<id>/_cancel)"
            );
            Error::new(429, "es_rejected_execution_exception", reason)
        };
        let own = counts.get(&user).copied().unwrap_or(0);
        if own >= MAX_DETACHED_OF_USER {
            return Err(refusal(&format!("the user [{}]", principal.name()), own));
        }
        let all: usize = counts.values().sum();
        if all >= MAX_DETACHED {
            return Err(refusal("the server", all));
        }
        counts.insert(user.clone(), own + 1);
        Ok(DetachedPermit { permits: self.clone(), user })
    }
}

impl Drop for DetachedPermit {
    fn drop(&mut self) {
        let mut counts = self.permits.0.lock();
        if let Some(count) = counts.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use millrace_catalog::access::Privileges;

    use super::*;

    fn principal(caller: Caller) -> Principal {
        Principal::new(caller, Vec::new(), Arc::new(Privileges::unrestricted()))
    }

    fn user(name: &str) -> Principal {
        principal(Caller::User(name.into()))
    }

    #[test]
    fn a_user_has_a_share_and_others_have_theirs() {
        let permits = DetachedPermits::default();
        let mut held: Vec<_> =
            (0..MAX_DETACHED_OF_USER).map(|_| permits.acquire(&user("ann")).unwrap()).collect();
        let refused = permits.acquire(&user("ann")).unwrap_err();
        assert_eq!(refused.status(), 429);
        assert!(refused.reason().contains("[ann]"), "{}", refused.reason());
        // A key has no share of its own.
        let key = Caller::ApiKey { id: "k".into(), name: "k".into(), owner: "ann".into() };
        assert_eq!(permits.acquire(&principal(key)).unwrap_err().status(), 429);
        permits.acquire(&user("bob")).unwrap();
        held.pop();
        permits.acquire(&user("ann")).unwrap();
        drop(held);
        assert!(permits.0.lock().is_empty());
    }

    #[test]
    fn all_users_together_have_a_bound() {
        let permits = DetachedPermits::default();
        let names: Vec<String> = (0..MAX_DETACHED).map(|number| format!("user-{number}")).collect();
        let held: Vec<_> = names.iter().map(|name| permits.acquire(&user(name)).unwrap()).collect();
        let refused = permits.acquire(&user("one-more")).unwrap_err();
        assert_eq!(refused.status(), 429);
        assert!(refused.reason().contains("the server"), "{}", refused.reason());
        drop(held);
        permits.acquire(&user("one-more")).unwrap();
    }
}
