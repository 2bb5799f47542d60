//! Threads for CPU-bound work: the store's compute threads, off the asynchronous runtime.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use millrace_runtime::Priority;

use crate::error::Result;

/// Runs closures on the threads for short jobs, or on those for jobs that yield to all others. Those beyond the number of threads wait.
#[derive(Clone, Debug)]
pub struct Compute {
    pool: millrace_runtime::Compute,
    priority: Priority,
}

impl Compute {
    /// Wraps the store's pool.
    pub fn new(pool: millrace_runtime::Compute) -> Self {
        Self { pool, priority: Priority::Foreground }
    }

    /// Makes the same for work that yields to everything else.
    #[must_use]
    pub fn spare(&self) -> Self {
        Self { pool: self.pool.clone(), priority: Priority::Spare }
    }

    /// Counts the threads.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// Runs `work` and waits for it.
    ///
    /// Dropping the future does not interrupt `work`; long work looks at a [`Stop`].
    pub async fn run<T, F>(&self, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce() -> Result<T> + Send + 'static,
    {
        self.pool.run(self.priority, move || Ok(work())).await?
    }
}

/// Tells running work to stop.
#[derive(Debug, Default)]
pub struct Stop {
    state: AtomicU8,
    /// The work that it is a part of, which ends it too.
    outer: Option<Arc<Stop>>,
}

const CANCELLED: u8 = 1;
const TIMED_OUT: u8 = 2;
const LIMITED: u8 = 4;

impl Stop {
    /// Makes the stop of a part of some work.
    pub fn inside(outer: &Arc<Self>) -> Arc<Self> {
        Arc::new(Self { state: AtomicU8::new(0), outer: Some(Arc::clone(outer)) })
    }

    /// Returns whether work should end.
    #[inline]
    pub fn requested(&self) -> bool {
        self.state.load(Ordering::Relaxed) & (CANCELLED | TIMED_OUT) != 0
            || self.outer.as_ref().is_some_and(|outer| outer.requested())
    }

    /// Notes that its time is limited.
    pub fn limit(&self) {
        self.state.fetch_or(LIMITED, Ordering::Relaxed);
    }

    /// Returns whether time is limited.
    pub fn is_limited(&self) -> bool {
        self.state.load(Ordering::Relaxed) & LIMITED != 0
            || self.outer.as_ref().is_some_and(|outer| outer.is_limited())
    }

    /// Ends work because its time is over; its results so far count.
    pub fn time_out(&self) {
        self.state.fetch_or(TIMED_OUT, Ordering::Relaxed);
    }

    /// Returns whether time was over.
    pub fn timed_out(&self) -> bool {
        self.state.load(Ordering::Relaxed) & TIMED_OUT != 0
            || self.outer.as_ref().is_some_and(|outer| outer.timed_out())
    }
}

/// Stops work when nobody waits for it any more.
#[derive(Debug)]
pub struct StopOnDrop(pub Arc<Stop>);

impl StopOnDrop {
    /// Lets the work go on.
    pub fn disarm(mut self) {
        self.0 = Arc::default();
    }
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.state.fetch_or(CANCELLED, Ordering::Relaxed);
    }
}
