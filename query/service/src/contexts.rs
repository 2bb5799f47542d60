//! Open scrolls, points in time and cursors of statements: their pinned state between requests, their owners, and their ends.
//!
//! At most so many of a kind are open; one more is refused. A context that is not asked for within its keep-alive, by
//! the injected clock, is gone; what it pins goes with the next tick ([`Contexts::expired`]). As long as a request uses it,
//! however long that takes, it stays, and its keep-alive begins again when the request is done.

use std::collections::HashMap;
use std::fmt::Write;
use std::ops::Deref;
use std::sync::Arc;

use millrace_catalog::access::{Caller, Principal};
use millrace_engine::OpenContext;
pub(crate) use millrace_engine::SearchContextKind as Kind;
use millrace_runtime::SharedClock;
use millrace_work::error::{Error, Result};
use parking_lot::Mutex;
use rand::Rng;

/// Bytes of randomness in an id.
const ID_BYTES: usize = 24;

/// Returns the name of a kind, as refusals have it, and the settings that bound its number and how long it is kept alive.
pub(crate) fn settings(kind: Kind) -> (&'static str, &'static str, &'static str) {
    match kind {
        Kind::Scroll => ("scroll", "search.max_open_scroll_context", "search.max_keep_alive"),
        Kind::Cursor => ("cursor", "search.max_open_scroll_context", "search.max_keep_alive"),
        Kind::PointInTime => ("Point In Time", "search.max_open_pit_context", "point_in_time.max_keep_alive"),
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
pub(crate) struct ContextInfo {
    /// Id.
    pub id: String,
    /// Time of its opening.
    pub created_ms: i64,
    /// Time that it lives without use.
    pub keep_alive_ms: u64,
}

#[derive(Debug)]
struct Entry<T> {
    owner: Caller,
    created_ms: i64,
    keep_alive_ms: u64,
    context: Arc<T>,
    usage: Arc<Mutex<Usage>>,
    /// Counts it in the figures of its shards.
    _counted: Vec<OpenContext>,
}

/// User of a context, and the time of the last use.
#[derive(Debug)]
struct Usage {
    users: usize,
    last_ms: i64,
}

/// A context that a request uses, which does not expire meanwhile.
#[derive(Debug)]
pub(crate) struct InUse<T> {
    context: Arc<T>,
    usage: Arc<Mutex<Usage>>,
    clock: SharedClock,
}

impl<T> Deref for InUse<T> {
    type Target = Arc<T>;

    fn deref(&self) -> &Arc<T> {
        &self.context
    }
}

impl<T> Drop for InUse<T> {
    fn drop(&mut self) {
        let mut usage = self.usage.lock();
        usage.users -= 1;
        usage.last_ms = self.clock.now_ms();
    }
}

impl<T> Entry<T> {
    fn is_alive(&self, now_ms: i64) -> bool {
        let usage = self.usage.lock();
        let keep_alive_ms = i64::try_from(self.keep_alive_ms).unwrap_or(i64::MAX);
        usage.users > 0 || usage.last_ms.saturating_add(keep_alive_ms) > now_ms
    }
}

impl<T: Send + Sync + 'static> Contexts<T> {
    /// Makes an empty registry.
    pub(crate) fn new(kind: Kind, clock: SharedClock) -> Self {
        Self { kind, clock, open: Mutex::default() }
    }

    /// Opens a context beside less than `limit` others and returns its id.
    pub(crate) fn open(
        &self,
        owner: &Principal,
        context: T,
        counted: Vec<OpenContext>,
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
        let (now, mut open) = (self.clock.now_ms(), self.open.lock());
        if open.values().filter(|entry| entry.is_alive(now)).count() >= limit {
            let (name, setting, _) = settings(self.kind);
            return Err(Error::Rejected(format!(
                "Trying to create too many {name} contexts. Must be less than or equal to: [{limit}]. This limit can be set by changing the [{setting}] setting."
            )));
        }
        let entry = Entry {
            owner: owner.caller().clone(),
            created_ms: now,
            keep_alive_ms,
            context: Arc::new(context),
            usage: Arc::new(Mutex::new(Usage { users: 0, last_ms: now })),
            _counted: counted,
        };
        open.insert(id.clone(), entry);
        Ok(id)
    }

    /// Returns a context, which is kept alive until the answer is dropped, and for its keep-alive from then on.
    pub(crate) fn get(&self, id: &str, owner: &Principal, keep_alive_ms: Option<u64>) -> Result<InUse<T>> {
        let (now, mut open) = (self.clock.now_ms(), self.open.lock());
        let entry = open
            .get_mut(id)
            .filter(|entry| entry.owner == *owner.caller() && entry.is_alive(now))
            .ok_or_else(|| Error::ContextNotFound(id.to_owned()))?;
        if let Some(keep_alive_ms) = keep_alive_ms {
            entry.keep_alive_ms = keep_alive_ms;
        }
        entry.usage.lock().users += 1;
        let (context, usage) = (Arc::clone(&entry.context), Arc::clone(&entry.usage));
        Ok(InUse { context, usage, clock: Arc::clone(&self.clock) })
    }

    /// Closes a context; whether there was one of the caller's. What it pins goes soon after.
    pub(crate) fn close(&self, id: &str, owner: &Principal) -> bool {
        let (was_open, pinned) = self.take(id, owner);
        free(pinned);
        was_open
    }

    /// Closes contexts, and returns whether each was there and the caller's. What they pin is gone then.
    pub(crate) async fn close_each(&self, ids: Vec<String>, owner: &Principal) -> Vec<(String, bool)> {
        let mut pinned = Vec::with_capacity(ids.len());
        let close = |id: String| {
            let (was_open, own) = self.take(&id, owner);
            pinned.extend(own);
            (id, was_open)
        };
        let closed = ids.into_iter().map(close).collect();
        if !pinned.is_empty() {
            // Dropping cannot fail.
            let _ = tokio::task::spawn_blocking(move || drop(pinned)).await;
        }
        closed
    }

    /// Closes all contexts of the caller, as [`Contexts::close_each`] does; returns their ids.
    pub(crate) async fn close_all(&self, owner: &Principal) -> Vec<String> {
        let ids = self.list(owner).into_iter().map(|listed| listed.id).collect();
        let closed = self.close_each(ids, owner).await;
        closed.into_iter().filter(|(_, was_open)| *was_open).map(|(id, _)| id).collect()
    }

    /// Takes a context of the caller's out; whether it was open.
    fn take(&self, id: &str, owner: &Principal) -> (bool, Option<Arc<T>>) {
        let now = self.clock.now_ms();
        let taken = {
            let mut open = self.open.lock();
            match open.get(id) {
                Some(entry) if entry.owner == *owner.caller() => open.remove(id),
                _ => None,
            }
        };
        let was_open = taken.as_ref().is_some_and(|entry| entry.is_alive(now));
        (was_open, taken.map(|entry| entry.context))
    }

    /// Lists the contexts of the caller, oldest first.
    pub(crate) fn list(&self, owner: &Principal) -> Vec<ContextInfo> {
        let (now, open) = (self.clock.now_ms(), self.open.lock());
        let mut listed: Vec<ContextInfo> = open
            .iter()
            .filter(|(_, entry)| entry.owner == *owner.caller() && entry.is_alive(now))
            .map(|(id, entry)| ContextInfo {
                id: id.clone(),
                created_ms: entry.created_ms,
                keep_alive_ms: entry.keep_alive_ms,
            })
            .collect();
        listed.sort_by(|a, b| (a.created_ms, &a.id).cmp(&(b.created_ms, &b.id)));
        listed
    }

    /// Takes out what has expired. What those contexts pin goes with the result: freeing it takes its time.
    #[must_use]
    pub(crate) fn expired(&self) -> ExpiredContexts<T> {
        let (now, mut open) = (self.clock.now_ms(), self.open.lock());
        ExpiredContexts(open.extract_if(|_, entry| !entry.is_alive(now)).map(|(_, entry)| entry).collect())
    }
}

/// Contexts that nobody asked for in time.
#[derive(Debug)]
pub(crate) struct ExpiredContexts<T>(Vec<Entry<T>>);

impl<T> ExpiredContexts<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Lets go of what a context pins, off the threads of connections: freeing large segments takes a while, and files may be
/// removed.
pub(crate) fn free<T: Send + 'static>(pinned: T) {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn_blocking(move || drop(pinned))),
        Err(_) => drop(pinned),
    }
}

#[cfg(test)]
mod tests {
    use millrace_catalog::access::Privileges;

    use millrace_runtime::ManualClock;

    use super::*;

    fn principal(name: &str) -> Principal {
        Principal::new(Caller::User(name.into()), Vec::new(), Arc::new(Privileges::unrestricted()))
    }

    #[test]
    fn contexts_expire_unless_asked_for() {
        let clock = Arc::new(ManualClock::new(0));
        let scrolls = Contexts::new(Kind::Scroll, Arc::clone(&clock) as SharedClock);
        let ann = principal("ann");
        let id = scrolls.open(&ann, 1, Vec::new(), 1_000, 10).unwrap();
        clock.advance_ms(900);
        assert_eq!(**scrolls.get(&id, &ann, None).unwrap(), 1);
        clock.advance_ms(900);
        assert_eq!(**scrolls.get(&id, &ann, Some(5_000)).unwrap(), 1);
        clock.advance_ms(4_999);
        assert!(scrolls.get(&id, &ann, None).is_ok());
        clock.advance_ms(5_000);
        let error = scrolls.get(&id, &ann, None).unwrap_err();
        assert_eq!(error.status(), 404);
        assert!(scrolls.list(&ann).is_empty());
        assert_eq!((scrolls.expired().0.len(), scrolls.expired().0.len()), (1, 0));
    }

    #[test]
    fn what_is_in_use_does_not_expire() {
        let clock = Arc::new(ManualClock::new(0));
        let scrolls = Contexts::new(Kind::Scroll, Arc::clone(&clock) as SharedClock);
        let ann = principal("ann");
        let id = scrolls.open(&ann, 1, Vec::new(), 1_000, 10).unwrap();
        let (one, other) = (scrolls.get(&id, &ann, None).unwrap(), scrolls.get(&id, &ann, None).unwrap());
        drop(one);
        clock.advance_ms(10_000);
        assert!(scrolls.expired().is_empty());
        drop(other);
        clock.advance_ms(999);
        assert!(scrolls.expired().is_empty() && scrolls.list(&ann).len() == 1);
        clock.advance_ms(1);
        assert_eq!(scrolls.expired().0.len(), 1);
    }

    #[tokio::test]
    async fn what_has_expired_does_not_count_and_is_not_closed() {
        let clock = Arc::new(ManualClock::new(0));
        let scrolls = Contexts::new(Kind::Scroll, Arc::clone(&clock) as SharedClock);
        let ann = principal("ann");
        let id = scrolls.open(&ann, (), Vec::new(), 1_000, 1).unwrap();
        clock.advance_ms(1_000);
        scrolls.open(&ann, (), Vec::new(), 1_000, 1).unwrap();
        assert!(!scrolls.close(&id, &ann));
        assert_eq!(scrolls.close_all(&ann).await.len(), 1);
    }

    #[tokio::test]
    async fn contexts_are_bounded_and_belong_to_their_caller() {
        let scrolls = Contexts::new(Kind::Scroll, Arc::new(ManualClock::new(0)));
        let (ann, bob) = (principal("ann"), principal("bob"));
        let id = scrolls.open(&ann, (), Vec::new(), 1_000, 2).unwrap();
        scrolls.open(&bob, (), Vec::new(), 1_000, 2).unwrap();
        assert_eq!(scrolls.open(&ann, (), Vec::new(), 1_000, 2).unwrap_err().status(), 429);
        assert!(scrolls.get(&id, &bob, None).is_err() && !scrolls.close(&id, &bob));
        assert_eq!(scrolls.list(&ann).len(), 1);
        assert_eq!(scrolls.close_all(&ann).await, std::slice::from_ref(&id));
        assert!(!scrolls.close(&id, &ann));
    }
}
