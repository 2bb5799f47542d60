//! Places of throttled deletions: such a one may take days, so no more than a few run at a time.

use std::collections::HashMap;
use std::sync::Arc;

use millrace_catalog::access::{Caller, Principal};
use millrace_work::error::{Error, Result};
use parking_lot::Mutex;

/// Throttled deletions that run at a time: of one user with all of its API keys, and of all.
const MOST_OF_USER: usize = 8;
const MOST: usize = 64;

/// Those that run, by whose bounds they count against. Cheap to clone: clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Throttled(Arc<Mutex<HashMap<Caller, usize>>>);

/// The place of one, given back on drop.
#[derive(Debug)]
#[must_use = "dropping it gives the place back"]
pub(crate) struct ThrottlePermit {
    throttled: Throttled,
    user: Caller,
}

impl Throttled {
    /// Takes a place.
    ///
    /// # Errors
    /// [`Error::Rejected`] where too many run.
    pub(crate) fn begin(&self, principal: &Principal) -> Result<ThrottlePermit> {
        let user = principal.caller().bounded_as();
        let mut running = self.0.lock();
        let (of_user, of_all) = (running.get(&user).copied().unwrap_or(0), running.values().sum::<usize>());
        if of_user >= MOST_OF_USER || of_all >= MOST {
            return Err(Error::Rejected(format!(
                "too many throttled deletions are running: [{of_user}] of at most [{MOST_OF_USER}] of this user, \
                 [{of_all}] of at most [{MOST}] of all; try again once some have ended, or without [requests_per_second]"
            )));
        }
        *running.entry(user.clone()).or_default() += 1;
        Ok(ThrottlePermit { throttled: self.clone(), user })
    }
}

impl Drop for ThrottlePermit {
    fn drop(&mut self) {
        let mut running = self.throttled.0.lock();
        if let Some(count) = running.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                running.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use millrace_catalog::access::{ActionSet, Privileges};

    use super::*;

    fn principal(caller: Caller) -> Principal {
        Principal::new(caller, Vec::new(), Arc::new(Privileges::new(ActionSet::NONE, Vec::new())))
    }

    #[test]
    fn there_are_bounds_for_each_user_with_its_keys_and_for_all() {
        let throttled = Throttled::default();
        let user = |number: usize| principal(Caller::User(format!("user-{number}").into()));
        let key =
            principal(Caller::ApiKey { id: "1".into(), name: "k".into(), owner: user(0).name().into() });
        let mut places: Vec<ThrottlePermit> = Vec::new();
        for number in 0..10 {
            let user = user(number);
            let before = places.len();
            places.extend((0..20).map_while(|_| throttled.begin(&user).ok()));
            assert!(places.len() - before <= MOST_OF_USER);
        }
        assert_eq!(places.len(), MOST);
        assert_eq!(throttled.begin(&key).unwrap_err().status(), 429);
        assert_eq!(throttled.begin(&user(9)).unwrap_err().status(), 429);
        // That was one of the first user's.
        drop(places.remove(0));
        let of_key = throttled.begin(&key).unwrap();
        places.truncate(MOST_OF_USER - 1);
        assert!(throttled.begin(&user(0)).is_err() && throttled.begin(&key).is_err());
        throttled.begin(&user(9)).map(drop).unwrap();
        drop((places, of_key));
        assert!(throttled.0.lock().is_empty());
    }
}
