//! Bounds by owner: how many statements may be at work or wait, and how many answers may be on their way, of one owner and of all.
//! Those of API keys are their users'.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrace_catalog::access::Caller;
use millrace_work::error::Error;

use crate::error::Result;

/// Counts answers or statements, by whose they are.
#[derive(Debug)]
pub(super) struct UserCounts {
    /// Exhausted resource, and its remedy.
    refusal: (&'static str, &'static str),
    most: usize,
    most_of_owner: usize,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    owners: HashMap<Caller, usize>,
}

/// The place of one of them, given back on drop.
#[derive(Debug)]
pub(super) struct CountPermit {
    sending: Arc<UserCounts>,
    owner: Caller,
}

impl UserCounts {
    /// Begins with none.
    pub(super) fn new(refusal: (&'static str, &'static str), most: usize, most_of_owner: usize) -> Arc<Self> {
        Arc::new(Self { refusal, most, most_of_owner, counts: Mutex::default() })
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        // Nothing panics between two changes.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place.
    ///
    /// # Errors
    /// [`Error::Rejected`] where there is none, for the owner or for anybody.
    pub(super) fn begin(self: &Arc<Self>, owner: &Caller) -> Result<CountPermit> {
        let owner = owner.bounded_as();
        let mut counts = self.counts();
        let of_owner = counts.owners.get(&owner).copied().unwrap_or_default();
        if of_owner >= self.most_of_owner || counts.all >= self.most {
            let all = counts.all;
            let (too_many, advice) = self.refusal;
            return Err(Error::Rejected(format!(
                "{too_many}: [{of_owner}] of this user, [{all}] of all; {advice}"
            ))
            .into());
        }
        counts.all += 1;
        *counts.owners.entry(owner.clone()).or_default() += 1;
        Ok(CountPermit { sending: Arc::clone(self), owner })
    }
}

impl Drop for CountPermit {
    fn drop(&mut self) {
        let mut counts = self.sending.counts();
        counts.all -= 1;
        if let Some(of_owner) = counts.owners.get_mut(&self.owner) {
            *of_owner -= 1;
            if *of_owner == 0 {
                counts.owners.remove(&self.owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answers_of_one_owner_leave_room_for_others() {
        let sending = UserCounts::new(("too many", "wait"), 5, 2);
        let user = |name: &str| Caller::User(name.into());
        let mut places = Vec::new();
        for name in ["ann", "bob", "cid"] {
            places.extend((0..10).map_while(|_| sending.begin(&user(name)).ok()));
        }
        assert_eq!(places.iter().filter(|place| place.owner == user("ann")).count(), 2);
        assert_eq!(places.len(), 5);
        assert_eq!(sending.begin(&user("dan")).unwrap_err().status(), 429);
        places.clear();
        assert!(sending.counts().owners.is_empty());
        drop(sending.begin(&user("ann")).unwrap());
    }

    #[test]
    fn api_keys_share_the_answers_of_their_user() {
        let sending = UserCounts::new(("too many", "wait"), 5, 2);
        let key = |id: &str| Caller::ApiKey { id: id.into(), name: "k".into(), owner: "ann".into() };
        let places = [sending.begin(&key("a")).unwrap(), sending.begin(&key("b")).unwrap()];
        for caller in [key("c"), Caller::User("ann".into())] {
            assert_eq!(sending.begin(&caller).unwrap_err().status(), 429);
        }
        drop(sending.begin(&Caller::User("bob".into())).unwrap());
        drop(places);
        assert!(sending.counts().owners.is_empty());
    }
}
