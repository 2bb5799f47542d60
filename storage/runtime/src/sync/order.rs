//! The order of the locks, checked in debug builds: what each thread or task holds, and what it takes next.

use uuid::Uuid;

use super::Rank;

/// Place of a lock in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockRank {
    rank: Rank,
    index: Uuid,
    shard: u32,
}

impl LockRank {
    /// The place of a lock that is one of its kind.
    pub const fn new(rank: Rank) -> Self {
        Self { rank, index: Uuid::nil(), shard: 0 }
    }

    /// Returns whether it is that of the lock of an index's mapping.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn is_mapping_change(self) -> bool {
        self.rank == Rank::MappingChange
    }

    /// The place of an index's lock.
    pub const fn of_index(rank: Rank, index: Uuid) -> Self {
        Self { rank, index, shard: 0 }
    }

    /// The place of a shard's lock.
    pub const fn of_shard(rank: Rank, index: Uuid, shard: u32) -> Self {
        Self { rank, index, shard }
    }
}

#[cfg(not(debug_assertions))]
pub(super) use self::unchecked::HeldLock;
#[cfg(not(debug_assertions))]
pub use self::unchecked::scope;

#[cfg(debug_assertions)]
pub(super) use self::checked::HeldLock;
#[cfg(debug_assertions)]
pub use self::checked::scope;

#[cfg(not(debug_assertions))]
mod unchecked {
    use super::LockRank;

    /// A lock that is held.
    #[derive(Debug)]
    pub(in super::super) struct HeldLock;

    impl HeldLock {
        pub(in super::super) fn take(_: LockRank) -> Self {
            Self
        }

        pub(in super::super) fn take_in_scope(_: LockRank) -> Self {
            Self
        }
    }

    /// Runs a piece of work that takes asynchronous locks.
    pub fn scope<F: Future>(work: F) -> F {
        work
    }
}

#[cfg(debug_assertions)]
mod checked {
    use std::cell::RefCell;

    use futures::future::Either;

    use super::super::modelled;
    use super::LockRank;

    type LockRanks = RefCell<Vec<LockRank>>;

    thread_local! {
        static OF_THREAD: LockRanks = const { RefCell::new(Vec::new()) };
    }

    tokio::task_local! {
        static OF_SCOPE: LockRanks;
    }

    /// Looks at what the scope that runs now holds; where none does, the thread.
    fn with<T>(look: impl Fn(&mut Vec<LockRank>) -> T) -> T {
        let in_scope = OF_SCOPE.try_with(|places| look(&mut places.borrow_mut()));
        in_scope.unwrap_or_else(|_| OF_THREAD.with(|places| look(&mut places.borrow_mut())))
    }

    /// A lock that is held, or waited for.
    #[derive(Debug)]
    pub(in super::super) struct HeldLock(Option<LockRank>);

    impl HeldLock {
        /// Takes note of a lock that is about to be taken.
        ///
        /// # Panics
        /// Where one is held that comes after it.
        pub(in super::super) fn take(place: LockRank) -> Self {
            if modelled() {
                return Self(None);
            }
            let greatest = with(|places| {
                let greatest = places.iter().copied().max();
                places.push(place);
                greatest
            });
            let held = Self(Some(place));
            if let Some(greatest) = greatest {
                assert!(greatest < place, "{place:?} is taken while {greatest:?} is held");
            }
            held
        }

        /// Takes note of an asynchronous lock, which may be held while its task moves to another thread.
        ///
        /// # Panics
        /// As [`HeldLock::take`], and outside of a scope.
        pub(in super::super) fn take_in_scope(place: LockRank) -> Self {
            let in_scope = modelled() || OF_SCOPE.try_with(|_| ()).is_ok();
            assert!(in_scope, "{place:?} is taken outside of sync::scope");
            Self::take(place)
        }
    }

    impl Drop for HeldLock {
        fn drop(&mut self) {
            let Some(place) = self.0 else { return };
            with(|places| {
                if let Some(at) = places.iter().rposition(|held| *held == place) {
                    places.remove(at);
                }
            });
        }
    }

    /// Runs a piece of work that takes asynchronous locks; what its caller holds counts as held.
    pub fn scope<F: Future>(work: F) -> impl Future<Output = F::Output> {
        if modelled() {
            return Either::Left(work);
        }
        let held = with(|places| places.clone());
        Either::Right(OF_SCOPE.scope(RefCell::new(held), work))
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::super::{AsyncMutex, Mutex};
    use super::*;

    #[test]
    fn what_is_taken_out_of_order_panics_though_nobody_waits() {
        let positions = Mutex::new(Rank::Positions, ());
        let queue = Mutex::new(Rank::LogQueue, ());
        let first = positions.lock();
        drop(queue.lock());
        drop(first);
        let wrong = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _later = queue.lock();
            let _earlier = positions.lock();
        }));
        assert!(wrong.is_err());
        // What unwound is held no more.
        drop(positions.lock());
    }

    #[tokio::test]
    async fn a_scope_holds_what_it_holds_and_no_other_does() {
        let lock = |shard| AsyncMutex::new(LockRank::of_shard(Rank::ShardWrite, Uuid::nil(), shard));
        let (one, two) = (lock(1), lock(2));
        let state = Mutex::new(Rank::State, ());
        // Side by side in one task, each in a scope of its own.
        let work = |first: &'static str| {
            let (one, two, state) = (&one, &two, &state);
            scope(async move {
                let lock = if first == "one" { one } else { two };
                let _lock = lock.lock().await;
                tokio::task::yield_now().await;
                drop(state.lock());
                tokio::task::yield_now().await;
            })
        };
        tokio::join!(work("two"), work("one"));
        scope(async {
            let _one = one.lock().await;
            let _two = two.lock().await;
        })
        .await;
        let descending = scope(async {
            let _two = two.lock().await;
            let _one = one.lock().await;
        });
        let wrong = futures::FutureExt::catch_unwind(std::panic::AssertUnwindSafe(descending)).await;
        assert!(wrong.is_err());
        // An asynchronous lock outside of a scope could not be checked.
        let unscoped = futures::FutureExt::catch_unwind(std::panic::AssertUnwindSafe(one.lock())).await;
        assert!(unscoped.is_err());
    }
}
