//! Turns at work: how many statements may run at a time, shared between users.
//!
//! Some statements run at a time ([`TurnScheduler::new`]); a user may have all of these turns while nobody else wants one. Whoever comes then does
//! not wait for the long statements of others: users who have fewer than their share at work, and at least one, get a turn
//! beside them, up to a bound for all. Of those that wait, the first of the user with the fewest at work is next.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrace_catalog::access::Caller;
use tokio::sync::oneshot;

/// Turns for each of those that one user may have: how many users may have a statement at work beside others with long ones.
const USERS_FOR_EACH: usize = 4;

/// Hands out turns.
#[derive(Debug)]
pub(super) struct TurnScheduler {
    /// Statements at work while one user wants all turns.
    at_work: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    all: usize,
    /// Statements at work by user; nobody who has none.
    owners: HashMap<Caller, usize>,
    /// Those that wait, in the order in which they came.
    waiting: VecDeque<(Caller, oneshot::Sender<TurnPermit>)>,
}

/// A turn at work, given back on drop.
#[derive(Debug)]
pub(super) struct TurnPermit {
    turns: Arc<TurnScheduler>,
    owner: Caller,
}

impl State {
    fn of(&self, owner: &Caller) -> usize {
        self.owners.get(owner).copied().unwrap_or_default()
    }

    /// Returns whether a statement of a user may begin, where `users` have one at work or wait.
    fn may_begin(&self, owner: &Caller, users: usize, at_work: usize) -> bool {
        let share = (at_work / users.max(1)).max(1);
        self.all < at_work || self.of(owner) < share && self.all < most(at_work)
    }

    /// Finds the place of the one that waits and is next.
    fn next(&self, at_work: usize) -> Option<usize> {
        let mut users: HashSet<&Caller> = self.owners.keys().collect();
        users.extend(self.waiting.iter().map(|(owner, _)| owner));
        let waiting = self.waiting.iter().enumerate();
        let may_begin = waiting.filter(|(_, (owner, _))| self.may_begin(owner, users.len(), at_work));
        // Of equals the first.
        may_begin.min_by_key(|(_, (owner, _))| self.of(owner)).map(|(at, _)| at)
    }
}

/// Returns how many may be at work in all.
pub(super) fn most(at_work: usize) -> usize {
    at_work * USERS_FOR_EACH
}

impl TurnScheduler {
    /// Makes turns for so many statements at a time.
    pub(super) fn new(at_work: usize) -> Arc<Self> {
        Arc::new(Self { at_work, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics between two changes.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a turn. The number of those that wait is bounded by who lets them come here.
    pub(super) async fn take(self: &Arc<Self>, owner: &Caller) -> TurnPermit {
        loop {
            let (sender, given) = oneshot::channel();
            self.state().waiting.push_back((owner.clone(), sender));
            self.hand_out();
            // A sender is dropped with its turn only.
            if let Ok(turn) = given.await {
                return turn;
            }
        }
    }

    /// Gives turns to those that wait, as many as there are.
    fn hand_out(self: &Arc<Self>) {
        loop {
            let (turn, sender) = {
                let mut state = self.state();
                state.waiting.retain(|(_, sender)| !sender.is_closed());
                let next = state.next(self.at_work).and_then(|at| state.waiting.remove(at));
                let Some((owner, sender)) = next else { return };
                state.all += 1;
                *state.owners.entry(owner.clone()).or_default() += 1;
                (TurnPermit { turns: Arc::clone(self), owner }, sender)
            };
            // One that does not wait any more gives it back.
            drop(sender.send(turn));
        }
    }
}

impl Drop for TurnPermit {
    fn drop(&mut self) {
        {
            let mut state = self.turns.state();
            state.all -= 1;
            if let Some(of_owner) = state.owners.get_mut(&self.owner) {
                *of_owner -= 1;
                if *of_owner == 0 {
                    state.owners.remove(&self.owner);
                }
            }
        }
        self.turns.hand_out();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    type TurnFuture<'a> = Pin<Box<dyn Future<Output = TurnPermit> + 'a>>;

    fn poll(taking: &mut TurnFuture<'_>) -> Option<TurnPermit> {
        match taking.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(turn) => Some(turn),
            Poll::Pending => None,
        }
    }

    /// Asks for so many turns and returns those that come at once, and what waits.
    fn ask<'a>(
        turns: &'a Arc<TurnScheduler>,
        owner: &'a Caller,
        count: usize,
    ) -> (Vec<TurnPermit>, Vec<TurnFuture<'a>>) {
        let (mut given, mut waiting) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let mut taking: TurnFuture<'a> = Box::pin(turns.take(owner));
            match poll(&mut taking) {
                Some(turn) => given.push(turn),
                None => waiting.push(taking),
            }
        }
        (given, waiting)
    }

    #[test]
    fn long_statements_of_one_user_leave_others_their_share() {
        let turns = TurnScheduler::new(4);
        let [ann, bob, cid] = ["ann", "bob", "cid"].map(|name| Caller::User(name.into()));
        let (of_ann, mut ann_waits) = ask(&turns, &ann, 6);
        assert_eq!((of_ann.len(), ann_waits.len()), (4, 2));
        let (of_bob, mut bob_waits) = ask(&turns, &bob, 3);
        assert_eq!((of_bob.len(), bob_waits.len()), (2, 1));
        let (of_cid, cid_waits) = ask(&turns, &cid, 2);
        assert_eq!((of_cid.len(), cid_waits.len()), (1, 1));
        drop(cid_waits);
        // What ends makes no room while there are more at work than one user may have; then the user with the fewest is next.
        drop(of_cid);
        drop(of_bob);
        assert!(poll(&mut ann_waits[0]).is_none());
        let turn = poll(&mut bob_waits[0]).unwrap();
        drop(of_ann);
        assert!(poll(&mut ann_waits[0]).is_some());
        drop((turn, ann_waits, bob_waits));
        let state = turns.state();
        assert_eq!((state.all, state.owners.len()), (0, 0));
    }

    #[test]
    fn all_together_are_bounded() {
        let turns = TurnScheduler::new(2);
        let users: Vec<Caller> = (0..20).map(|name| Caller::User(format!("{name}").into())).collect();
        let asked: Vec<_> = users.iter().map(|user| ask(&turns, user, 1)).collect();
        let given: usize = asked.iter().map(|(given, _)| given.len()).sum();
        assert_eq!(given, most(2));
        // One that gives up while it waits takes no turn along.
        drop(asked);
        turns.hand_out();
        let state = turns.state();
        assert_eq!((state.all, state.waiting.len()), (0, 0));
    }
}
