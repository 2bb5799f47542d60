//! Open scrolls, points in time and cursors of statements: what is pinned between requests, for whom, and until when.
//!
//! At most so many of a kind are open; one more is refused. Contexts that are not asked for within
//! their keep-alive are dropped whenever the registry is used, by the injected clock.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

use millrace_storage::{Principal, SharedClock};
use parking_lot::Mutex;
use rand::Rng;

use crate::error::{Error, Result};

/// Bytes of randomness in an id.
const ID_BYTES: usize = 24;

/// What a context is for, as refusals name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A scroll.
    Scroll,
    /// A point in time.
    PointInTime,
    /// A cursor of a statement; bounded as scrolls are.
    Cursor,
}

impl Kind {
    /// Returns its name and the settings that bound its number and how long it is kept alive.
    pub(crate) fn settings(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Scroll => ("scroll", "search.max_open_scroll_context", "search.max_keep_alive"),
            Self::Cursor => ("cursor", "search.max_open_scroll_context", "search.max_keep_alive"),
            Self::PointInTime => {
                ("Point In Time", "search.max_open_pit_context", "point_in_time.max_keep_alive")
            }
        }
    }
}

/// The open contexts of one kind; `T` is what is pinned.
#[derive(Debug)]
pub(crate) struct Contexts<T> {
    kind: Kind,
    clock: SharedClock,
    open: Mutex<HashMap<String, Entry<T>>>,
}

/// An open context as its owner may list it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    /// Id.
    pub id: String,
    /// When it was opened.
    pub created_ms: i64,
    /// How long it lives without being asked for.
    pub keep_alive_ms: u64,
}

#[derive(Debug)]
struct Entry<T> {
    owner: String,
    created_ms: i64,
    expires_ms: i64,
    keep_alive_ms: u64,
    context: Arc<T>,
}

impl<T> Contexts<T> {
    /// Makes an empty registry.
    pub(crate) fn new(kind: Kind, clock: SharedClock) -> Self {
        Self { kind, clock, open: Mutex::default() }
    }

    /// Opens a context beside less than `limit` others and returns its id.
    pub(crate) fn open(
        &self,
        owner: &Principal,
        context: T,
        keep_alive_ms: u64,
        limit: usize,
    ) -> Result<String> {
        let mut bytes = [0_u8; ID_BYTES];
        rand::rng().fill_bytes(&mut bytes);
        let mut id = String::with_capacity(2 * ID_BYTES);
        for byte in bytes {
            // Writing to a string cannot fail.
            let _ = write!(id, "{byte:02x}");
        }
        let mut open = self.alive();
        if open.len() >= limit {
            let (name, setting, _) = self.kind.settings();
            return Err(Error::Rejected(format!(
                "Trying to create too many {name} contexts. Must be less than or equal to: [{limit}]. This limit can be set by changing the [{setting}] setting."
            )));
        }
        let entry = Entry {
            owner: owner.name().to_owned(),
            created_ms: self.clock.now_ms(),
            expires_ms: self.expiry(keep_alive_ms),
            keep_alive_ms,
            context: Arc::new(context),
        };
        open.insert(id.clone(), entry);
        Ok(id)
    }

    /// Returns a context and keeps it alive for longer.
    pub(crate) fn get(&self, id: &str, owner: &Principal, keep_alive_ms: Option<u64>) -> Result<Arc<T>> {
        let mut open = self.alive();
        let entry = open
            .get_mut(id)
            .filter(|entry| entry.owner == owner.name())
            .ok_or_else(|| Error::ContextNotFound(id.to_owned()))?;
        if let Some(keep_alive_ms) = keep_alive_ms {
            entry.keep_alive_ms = keep_alive_ms;
        }
        entry.expires_ms = self.expiry(entry.keep_alive_ms);
        Ok(Arc::clone(&entry.context))
    }

    /// Closes a context; whether there was one of the caller's.
    pub(crate) fn close(&self, id: &str, owner: &Principal) -> bool {
        let mut open = self.alive();
        match open.get(id) {
            Some(entry) if entry.owner == owner.name() => open.remove(id).is_some(),
            _ => false,
        }
    }

    /// Closes all contexts of the caller; returns their ids.
    pub(crate) fn close_all(&self, owner: &Principal) -> Vec<String> {
        let ids: Vec<String> = self.list(owner).into_iter().map(|listed| listed.id).collect();
        let mut open = self.open.lock();
        ids.into_iter().filter(|id| open.remove(id).is_some()).collect()
    }

    /// Lists the contexts of the caller, oldest first.
    pub(crate) fn list(&self, owner: &Principal) -> Vec<Listed> {
        let open = self.alive();
        let mut listed: Vec<Listed> = open
            .iter()
            .filter(|(_, entry)| entry.owner == owner.name())
            .map(|(id, entry)| Listed {
                id: id.clone(),
                created_ms: entry.created_ms,
                keep_alive_ms: entry.keep_alive_ms,
            })
            .collect();
        listed.sort_by(|a, b| (a.created_ms, &a.id).cmp(&(b.created_ms, &b.id)));
        listed
    }

    fn expiry(&self, keep_alive_ms: u64) -> i64 {
        self.clock.now_ms().saturating_add(i64::try_from(keep_alive_ms).unwrap_or(i64::MAX))
    }

    /// Locks the registry with the expired contexts dropped.
    fn alive(&self) -> parking_lot::MutexGuard<'_, HashMap<String, Entry<T>>> {
        let now = self.clock.now_ms();
        let mut open = self.open.lock();
        open.retain(|_, entry| entry.expires_ms > now);
        open
    }
}

#[cfg(test)]
mod tests {
    use millrace_storage::ManualClock;

    use super::*;

    fn principal(name: &str) -> Principal {
        Principal::new(name, Vec::new())
    }

    #[test]
    fn contexts_expire_unless_asked_for() {
        let clock = Arc::new(ManualClock::new(0));
        let scrolls = Contexts::new(Kind::Scroll, Arc::clone(&clock) as SharedClock);
        let ann = principal("ann");
        let id = scrolls.open(&ann, 1, 1_000, 10).unwrap();
        clock.advance_ms(900);
        assert_eq!(*scrolls.get(&id, &ann, None).unwrap(), 1);
        clock.advance_ms(900);
        assert_eq!(*scrolls.get(&id, &ann, Some(5_000)).unwrap(), 1);
        clock.advance_ms(4_999);
        assert!(scrolls.get(&id, &ann, None).is_ok());
        clock.advance_ms(5_000);
        let error = scrolls.get(&id, &ann, None).unwrap_err();
        assert_eq!(error.status(), 404);
    }

    #[test]
    fn contexts_are_bounded_and_belong_to_their_caller() {
        let scrolls = Contexts::new(Kind::Scroll, Arc::new(ManualClock::new(0)));
        let (ann, bob) = (principal("ann"), principal("bob"));
        let id = scrolls.open(&ann, (), 1_000, 2).unwrap();
        scrolls.open(&bob, (), 1_000, 2).unwrap();
        assert_eq!(scrolls.open(&ann, (), 1_000, 2).unwrap_err().status(), 429);
        assert!(scrolls.get(&id, &bob, None).is_err() && !scrolls.close(&id, &bob));
        assert_eq!(scrolls.list(&ann).len(), 1);
        assert_eq!(scrolls.close_all(&ann), std::slice::from_ref(&id));
        assert!(!scrolls.close(&id, &ann));
    }
}
