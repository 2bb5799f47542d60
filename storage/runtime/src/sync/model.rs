//! The engine's locks, threads and tasks as a model checker (`shuttle`) plays them.
//!
//! Locks that are made within a run of the checker are its own: at each of them it decides which thread goes
//! on. [`Runtime`] stands for the asynchronous runtime, with as few threads as are asked for, so that a task that blocks its
//! thread keeps others from going on, as it would in the server.

#![allow(clippy::unwrap_used, reason = "a failed step of the checker fails its test")]

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use super::order::LockRank;

/// A defect that is put into the locks or the log, so that a test shows that the checker finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Tasks wait for the lock of an index's mapping by blocking their thread.
    BlockingMappingChange,
    /// The log says of all durable frames that they are applied.
    DurableIsApplied,
    /// The log is cut without the catalog being told where leases are.
    UnsavedLeases,
}

thread_local! {
    static MUTANT: Cell<Option<Mutant>> = const { Cell::new(None) };
}

/// Returns whether a defect is in place.
pub fn is(mutant: Mutant) -> bool {
    MUTANT.get() == Some(mutant)
}

/// Puts a defect in place for what the calling thread checks.
pub fn with_mutant<T>(mutant: Mutant, work: impl FnOnce() -> T) -> T {
    struct Reset;
    impl Drop for Reset {
        fn drop(&mut self) {
            MUTANT.set(None);
        }
    }
    MUTANT.set(Some(mutant));
    let _reset = Reset;
    work()
}

/// Returns whether the checker runs the calling code.
pub fn modelled() -> bool {
    shuttle::current::try_get_current_task().is_some()
}

/// Lets the checker decide who goes on.
pub fn point() {
    if modelled() {
        shuttle::thread::yield_now();
    }
}

/// Model hook before a task waits for an asynchronous lock.
pub(super) fn before(place: LockRank, lock: &tokio::sync::Mutex<()>) {
    if !modelled() {
        return;
    }
    point();
    if is(Mutant::BlockingMappingChange) && place.is_mapping_change() {
        drop(shuttle::future::block_on(lock.lock()));
    }
}

/// The body of a task that [`Runtime`] runs.
pub type ThreadBody = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A runtime of few threads.
pub struct Runtime {
    ready: Arc<Ready>,
    threads: Vec<shuttle::thread::JoinHandle<()>>,
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("threads", &self.threads.len()).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Ready {
    queue: shuttle::sync::Mutex<(VecDeque<Arc<Task>>, usize)>,
    wake: shuttle::sync::Condvar,
}

struct Task {
    state: shuttle::sync::Mutex<TaskState>,
    ready: Arc<Ready>,
}

enum TaskState {
    /// It waits to be woken, or polled.
    Waits(ThreadBody),
    /// It is being polled; whether it was woken meanwhile.
    Polled(bool),
    Ended,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        match &mut *self.state.lock().unwrap() {
            TaskState::Waits(_) => {}
            TaskState::Polled(woken) => {
                *woken = true;
                return;
            }
            TaskState::Ended => return,
        }
        let ready = Arc::clone(&self.ready);
        ready.queue.lock().unwrap().0.push_back(self);
        ready.wake.notify_one();
    }
}

impl Runtime {
    /// Starts a runtime that ends once `tasks` tasks have ended.
    pub fn start(threads: usize, tasks: Vec<ThreadBody>) -> Self {
        let ready = Arc::new(Ready::default());
        ready.queue.lock().unwrap().1 = tasks.len();
        for work in tasks {
            let state = shuttle::sync::Mutex::new(TaskState::Waits(work));
            Arc::new(Task { state, ready: Arc::clone(&ready) }).wake();
        }
        let run = |ready: Arc<Ready>| {
            move || {
                while let Some(task) = ready.next() {
                    ready.poll(&task)
                }
            }
        };
        let threads = (0..threads).map(|_| shuttle::thread::spawn(run(Arc::clone(&ready)))).collect();
        Self { ready, threads }
    }

    /// Waits until all tasks have ended.
    pub fn join(self) {
        for thread in self.threads {
            thread.join().unwrap();
        }
        assert_eq!(self.ready.queue.lock().unwrap().1, 0);
    }
}

impl Ready {
    fn next(&self) -> Option<Arc<Task>> {
        let mut queue = self.queue.lock().unwrap();
        loop {
            if queue.1 == 0 {
                return None;
            }
            if let Some(task) = queue.0.pop_front() {
                return Some(task);
            }
            queue = self.wake.wait(queue).unwrap();
        }
    }

    fn poll(&self, task: &Arc<Task>) {
        let taken = std::mem::replace(&mut *task.state.lock().unwrap(), TaskState::Polled(false));
        let TaskState::Waits(mut work) = taken else {
            *task.state.lock().unwrap() = taken;
            return;
        };
        let waker = Waker::from(Arc::clone(task));
        if work.as_mut().poll(&mut Context::from_waker(&waker)) == Poll::Ready(()) {
            drop(work);
            *task.state.lock().unwrap() = TaskState::Ended;
            self.queue.lock().unwrap().1 -= 1;
            self.wake.notify_all();
            return;
        }
        let woken = {
            let mut state = task.state.lock().unwrap();
            let woken = matches!(&*state, TaskState::Polled(true));
            *state = TaskState::Waits(work);
            woken
        };
        if woken {
            Arc::clone(task).wake();
        }
    }
}

/// Locks that are the checker's within its runs, and the real ones elsewhere; as `parking_lot` has them.
pub(super) mod locks {
    use std::fmt;
    use std::ops::{Deref, DerefMut};
    use std::sync::PoisonError;
    use std::time::Duration;

    use shuttle::sync as model;

    use super::modelled;

    pub(crate) enum Mutex<T> {
        Real(parking_lot::Mutex<T>),
        Model(model::Mutex<T>),
    }

    pub(crate) enum MutexGuard<'a, T> {
        Real(parking_lot::MutexGuard<'a, T>),
        /// `None` while a condition is waited for.
        Model(Option<model::MutexGuard<'a, T>>),
    }

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            match modelled() {
                true => Self::Model(model::Mutex::new(value)),
                false => Self::Real(parking_lot::Mutex::new(value)),
            }
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            match self {
                Self::Real(lock) => MutexGuard::Real(lock.lock()),
                Self::Model(lock) => {
                    MutexGuard::Model(Some(lock.lock().unwrap_or_else(PoisonError::into_inner)))
                }
            }
        }
    }

    impl<T: fmt::Debug> fmt::Debug for Mutex<T> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self {
                Self::Real(lock) => lock.fmt(f),
                Self::Model(_) => f.write_str("Mutex"),
            }
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            match self {
                Self::Real(guard) => guard,
                Self::Model(guard) => guard.as_ref().unwrap(),
            }
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            match self {
                Self::Real(guard) => guard,
                Self::Model(guard) => guard.as_mut().unwrap(),
            }
        }
    }

    pub(crate) enum Condvar {
        Real(parking_lot::Condvar),
        Model(model::Condvar),
    }

    impl Default for Condvar {
        fn default() -> Self {
            match modelled() {
                true => Self::Model(model::Condvar::new()),
                false => Self::Real(parking_lot::Condvar::new()),
            }
        }
    }

    impl Condvar {
        pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            match (self, guard) {
                (Self::Real(condition), MutexGuard::Real(guard)) => condition.wait(guard),
                (Self::Model(condition), MutexGuard::Model(guard)) => {
                    let waited = condition.wait(guard.take().unwrap());
                    *guard = Some(waited.unwrap_or_else(PoisonError::into_inner));
                }
                _ => panic!("a lock of the checker and a condition that is not, or the other way round"),
            }
        }

        pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, time: Duration) {
            match (self, guard) {
                (Self::Real(condition), MutexGuard::Real(guard)) => drop(condition.wait_for(guard, time)),
                (_, guard) => self.wait(guard),
            }
        }

        pub(crate) fn notify_one(&self) {
            match self {
                Self::Real(condition) => drop(condition.notify_one()),
                Self::Model(condition) => condition.notify_one(),
            }
        }

        pub(crate) fn notify_all(&self) {
            match self {
                Self::Real(condition) => drop(condition.notify_all()),
                Self::Model(condition) => condition.notify_all(),
            }
        }
    }

    pub(crate) enum RwLock<T> {
        Real(parking_lot::RwLock<T>),
        Model(model::RwLock<T>),
    }

    pub(crate) enum RwLockReadGuard<'a, T> {
        Real(parking_lot::RwLockReadGuard<'a, T>),
        Model(model::RwLockReadGuard<'a, T>),
    }

    pub(crate) enum RwLockWriteGuard<'a, T> {
        Real(parking_lot::RwLockWriteGuard<'a, T>),
        Model(model::RwLockWriteGuard<'a, T>),
    }

    impl<T> RwLock<T> {
        pub(crate) fn new(value: T) -> Self {
            match modelled() {
                true => Self::Model(model::RwLock::new(value)),
                false => Self::Real(parking_lot::RwLock::new(value)),
            }
        }

        pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
            match self {
                Self::Real(lock) => RwLockReadGuard::Real(lock.read()),
                Self::Model(lock) => {
                    RwLockReadGuard::Model(lock.read().unwrap_or_else(PoisonError::into_inner))
                }
            }
        }

        pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
            match self {
                Self::Real(lock) => RwLockWriteGuard::Real(lock.write()),
                Self::Model(lock) => {
                    RwLockWriteGuard::Model(lock.write().unwrap_or_else(PoisonError::into_inner))
                }
            }
        }
    }

    impl<T: fmt::Debug> fmt::Debug for RwLock<T> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self {
                Self::Real(lock) => lock.fmt(f),
                Self::Model(_) => f.write_str("RwLock"),
            }
        }
    }

    impl<T> Deref for RwLockReadGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            match self {
                Self::Real(guard) => guard,
                Self::Model(guard) => guard,
            }
        }
    }

    impl<T> Deref for RwLockWriteGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            match self {
                Self::Real(guard) => guard,
                Self::Model(guard) => guard,
            }
        }
    }

    impl<T> DerefMut for RwLockWriteGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            match self {
                Self::Real(guard) => guard,
                Self::Model(guard) => guard,
            }
        }
    }

    impl<T> RwLockWriteGuard<'_, T> {
        pub(crate) fn unlock_fair(guard: Self) {
            match guard {
                Self::Real(guard) => parking_lot::RwLockWriteGuard::unlock_fair(guard),
                Self::Model(guard) => drop(guard),
            }
        }
    }
}
