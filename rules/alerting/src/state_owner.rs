//! One owner of the rules in memory: the runner has them, and lends them to one borrower at a time.
//!
//! - [`StateOwner`]: the state; the runner works on it, and lends it between two steps, and during pauses, reads
//!   and the storing of state
//! - [`StateBorrower`]: asks for the state, from any task
//! - [`StateLease`]: the state while it is lent; it goes back when the lease is dropped
//!
//! Requests for the state are messages in a bounded mailbox, so no lock guards it. A change of rules is lent the state only while it can
//! be changed; until then its request waits, and [`StateOwner::has_pending_change`] ends a batch of frames early. Others are lent it in
//! between.
//!
//! A lease may last as long as its borrower waits for something. What the owner waits for meanwhile goes on, as [`StateOwner::lend_during`]
//! polls both: a borrower may wait for what the owner's work holds, such as the lock of stored snapshots.

use std::borrow::Borrow;
use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt;
use millrace_runtime::{Error, EventSender, Mailbox, Result};
use tokio::sync::oneshot;

/// Requests that wait in the mailbox, at most; at the bound, borrowers wait to ask.
const MAILBOX_CAPACITY: usize = 64;
/// Requests that were received and cannot be served yet, at most; at the bound, the others wait in the mailbox.
const MAX_DEFERRED: usize = 1_024;

/// Condition of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeaseCondition {
    /// The state as it is.
    Any,
    /// The state once it can be changed.
    Changeable,
}

/// Request of a borrower.
pub(crate) struct LeaseRequest<S: Default> {
    condition: LeaseCondition,
    reply: oneshot::Sender<StateLease<S>>,
}

/// The state while it is lent. Dropped, it gives the state back.
pub(crate) struct StateLease<S: Default> {
    state: S,
    /// `None` once the state went back.
    owner: Option<oneshot::Sender<S>>,
}

impl<S: Default + fmt::Debug> fmt::Debug for StateLease<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateLease").field("state", &self.state).finish_non_exhaustive()
    }
}

impl<S: Default> Deref for StateLease<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.state
    }
}

impl<S: Default> DerefMut for StateLease<S> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.state
    }
}

impl<S: Default> Borrow<S> for StateLease<S> {
    fn borrow(&self) -> &S {
        &self.state
    }
}

impl<S: Default> Drop for StateLease<S> {
    fn drop(&mut self) {
        if let Some(owner) = self.owner.take() {
            // An owner that is gone has no use for it.
            let _ = owner.send(mem::take(&mut self.state));
        }
    }
}

/// Asks for the state.
pub(crate) struct StateBorrower<S: Default> {
    requests: EventSender<LeaseRequest<S>>,
    /// Number of changes that wait for the state.
    pending_changes: Arc<AtomicUsize>,
}

impl<S: Default> fmt::Debug for StateBorrower<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateBorrower")
            .field("pending_changes", &self.pending_changes)
            .finish_non_exhaustive()
    }
}

/// Counts a change as pending until it is dropped.
struct PendingChangeGuard<'a>(&'a AtomicUsize);

impl<'a> PendingChangeGuard<'a> {
    fn new(pending: &'a AtomicUsize) -> Self {
        pending.fetch_add(1, Ordering::AcqRel);
        Self(pending)
    }
}

impl Drop for PendingChangeGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl<S: Default> StateBorrower<S> {
    /// Makes the mailbox of an owner, and its borrower.
    pub(crate) fn new() -> (Self, Mailbox<LeaseRequest<S>>) {
        let (requests, mailbox) = Mailbox::with_capacity(MAILBOX_CAPACITY);
        (Self { requests, pending_changes: Arc::default() }, mailbox)
    }

    /// Waits for the state as it is.
    ///
    /// # Errors
    /// The owner has ended.
    pub(crate) async fn lease(&self) -> Result<StateLease<S>> {
        self.request(LeaseCondition::Any).await
    }

    /// Waits for the state until it can be changed. Meanwhile the owner begins no batch, and ends the one that it is at.
    ///
    /// # Errors
    /// The owner has ended.
    pub(crate) async fn lease_for_change(&self) -> Result<StateLease<S>> {
        let _pending = PendingChangeGuard::new(&self.pending_changes);
        self.request(LeaseCondition::Changeable).await
    }

    async fn request(&self, condition: LeaseCondition) -> Result<StateLease<S>> {
        let ended = || Error::Stopped("rules are stopped".to_owned());
        let (reply, lease) = oneshot::channel();
        self.requests.send(LeaseRequest { condition, reply }).await.map_err(|_| ended())?;
        lease.await.map_err(|_| ended())
    }
}

/// Owner of the state.
pub(crate) struct StateOwner<S: Default> {
    /// The state; the default one while it is lent.
    pub(crate) state: S,
    mailbox: Mailbox<LeaseRequest<S>>,
    deferred: VecDeque<LeaseRequest<S>>,
    pending_changes: Arc<AtomicUsize>,
    is_changeable: Box<dyn Fn(&S) -> bool + Send>,
}

impl<S: Default> StateOwner<S> {
    /// Takes over the mailbox of a borrower; `is_changeable` says of the state whether a change may be lent it.
    pub(crate) fn new(
        borrower: &StateBorrower<S>,
        mailbox: Mailbox<LeaseRequest<S>>,
        is_changeable: impl Fn(&S) -> bool + Send + 'static,
    ) -> Self {
        Self {
            state: S::default(),
            mailbox,
            deferred: VecDeque::new(),
            pending_changes: Arc::clone(&borrower.pending_changes),
            is_changeable: Box::new(is_changeable),
        }
    }

    /// Makes a function that returns whether a change waits for the state.
    pub(crate) fn has_pending_change(&self) -> impl Fn() -> bool + Send + use<S> {
        let pending = Arc::clone(&self.pending_changes);
        move || pending.load(Ordering::Acquire) > 0
    }

    /// Lends the state to those who wait for it now, one after another. Those who come meanwhile wait for the next time.
    pub(crate) async fn lend_queued(&mut self) {
        while self.has_room()
            && let Some(Some(request)) = self.mailbox.receive().now_or_never()
        {
            self.deferred.push_back(request);
        }
        for _ in 0..self.deferred.len() {
            let Some(returned) = self.lend_next() else { return };
            self.take_back(returned).await;
        }
    }

    /// Waits for something, and lends the state meanwhile. What it waits for goes on while the state is lent; the state is back at the
    /// end.
    pub(crate) async fn lend_during<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            let Some(mut returned) = self.lend_next() else {
                let has_room = self.has_room();
                tokio::select! {
                    output = &mut work => return output,
                    Some(request) = self.mailbox.receive(), if has_room => self.deferred.push_back(request),
                }
                continue;
            };
            tokio::select! {
                output = &mut work => {
                    self.take_back(returned).await;
                    return output;
                }
                state = &mut returned => self.state = state.unwrap_or_default(),
            }
        }
    }

    /// Checks whether one more request can be deferred. At the bound it drops the requests whose borrowers have gone away.
    fn has_room(&mut self) -> bool {
        if self.deferred.len() >= MAX_DEFERRED {
            self.deferred.retain(|request| !request.reply.is_closed());
        }
        self.deferred.len() < MAX_DEFERRED
    }

    /// Lends the state to the first who can be lent it; returns the way it comes back.
    fn lend_next(&mut self) -> Option<oneshot::Receiver<S>> {
        let can_be_lent = |request: &LeaseRequest<S>| {
            request.condition == LeaseCondition::Any || (self.is_changeable)(&self.state)
        };
        let place = self.deferred.iter().position(can_be_lent)?;
        let request = self.deferred.remove(place)?;
        let (owner, returned) = oneshot::channel();
        let lease = StateLease { state: mem::take(&mut self.state), owner: Some(owner) };
        // A borrower that has gone away drops the lease, which gives the state back.
        let _ = request.reply.send(lease);
        Some(returned)
    }

    async fn take_back(&mut self, returned: oneshot::Receiver<S>) {
        // A lease that is lost, as no drop is, takes the state with it.
        self.state = returned.await.unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::future::join_all;
    use tokio::time::{sleep, timeout};

    use super::*;

    /// Changes may be made of even numbers.
    fn owner() -> (Arc<StateBorrower<u32>>, StateOwner<u32>) {
        let (borrower, mailbox) = StateBorrower::new();
        let owner = StateOwner::new(&borrower, mailbox, |state: &u32| state.is_multiple_of(2));
        (Arc::new(borrower), owner)
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_change_waits_until_the_state_can_be_changed_and_others_do_not() {
        let (borrower, mut owner) = owner();
        owner.state = 1;
        let changing = Arc::clone(&borrower);
        let change = tokio::spawn(async move {
            *changing.lease_for_change().await.unwrap() += 10;
        });
        let reading = Arc::clone(&borrower);
        let read = tokio::spawn(async move { *reading.lease().await.unwrap() });
        let has_pending_change = owner.has_pending_change();
        owner.lend_during(sleep(SECOND)).await;
        assert_eq!(read.await.unwrap(), 1);
        assert!(has_pending_change() && !change.is_finished());
        owner.lend_queued().await;
        assert_eq!(owner.state, 1);
        owner.state = 2;
        owner.lend_queued().await;
        assert_eq!(owner.state, 12);
        change.await.unwrap();
        assert!(!has_pending_change());
    }

    #[tokio::test(start_paused = true)]
    async fn work_goes_on_while_the_state_is_lent_and_ends_once_it_is_back() {
        let (borrower, mut owner) = owner();
        let lock = Arc::new(tokio::sync::Mutex::new(()));
        let (borrower, held) = (Arc::clone(&borrower), Arc::clone(&lock).lock_owned().await);
        let borrowed = tokio::spawn(async move {
            let mut lease = borrower.lease().await.unwrap();
            // Held by the work of the owner.
            let _held = lock.lock().await;
            sleep(SECOND).await;
            *lease = 7;
        });
        let work = async {
            sleep(SECOND).await;
            drop(held);
            "done"
        };
        let done = timeout(10 * SECOND, owner.lend_during(work)).await.unwrap();
        assert_eq!((done, owner.state), ("done", 7));
        borrowed.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn abandoned_changes_leave_room_for_other_requests() {
        let (borrower, mut owner) = owner();
        owner.state = 1;
        for _ in 0..MAX_DEFERRED / MAILBOX_CAPACITY {
            let change = || timeout(SECOND, borrower.lease_for_change());
            let changes = join_all((0..MAILBOX_CAPACITY).map(|_| change()));
            let (changes, ()) = tokio::join!(changes, owner.lend_during(sleep(2 * SECOND)));
            assert!(changes.iter().all(|change| change.is_err()));
        }
        let read = async { timeout(SECOND, borrower.lease()).await.map(|lease| *lease.unwrap()) };
        let (read, ()) = tokio::join!(read, owner.lend_during(sleep(2 * SECOND)));
        assert_eq!(read, Ok(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_borrower_that_goes_away_or_panics_leaves_the_state() {
        let (borrower, mut owner) = owner();
        owner.state = 3;
        let gone = Arc::clone(&borrower);
        let waited = timeout(SECOND, gone.lease_for_change());
        let (waited, ()) = tokio::join!(waited, owner.lend_during(sleep(2 * SECOND)));
        assert!(waited.is_err() && !owner.has_pending_change()());
        owner.state = 4;
        owner.lend_queued().await;
        assert_eq!(owner.state, 4, "nobody changed it");
        let panicking = Arc::clone(&borrower);
        let panicked = tokio::spawn(async move {
            let _lease = panicking.lease().await.unwrap();
            panic!("a borrower fails");
        });
        owner.lend_during(sleep(SECOND)).await;
        assert!(panicked.await.is_err());
        assert_eq!(owner.state, 4);
        drop(owner);
        assert!(borrower.lease().await.is_err());
    }
}
