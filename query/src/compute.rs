//! Where work that keeps a core busy is done: off the asynchronous runtime, a few at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::sync::Semaphore;

use crate::error::{Error, Result};

/// Runs closures on blocking threads, at most so many at once. Those beyond wait.
#[derive(Clone, Debug)]
pub(crate) struct Compute {
    permits: Arc<Semaphore>,
}

impl Compute {
    /// Makes a pool of `cores` threads.
    pub(crate) fn new(cores: usize) -> Self {
        Self { permits: Arc::new(Semaphore::new(cores.max(1))) }
    }

    /// Runs `work` and waits for it.
    ///
    /// Dropping the future does not interrupt `work` once it has started; long work looks at a
    /// [`Stop`].
    pub(crate) async fn run<T, F>(&self, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let permit = Arc::clone(&self.permits)
            .acquire_owned()
            .await
            .map_err(|_| Error::Rejected("the query pool is shut down".to_owned()))?;
        let task = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work()
        });
        task.await.map_err(|error| Error::Execution(format!("query task failed: {error}")))
    }
}

/// Tells running work to stop.
#[derive(Debug, Default)]
pub(crate) struct Stop(AtomicU8);

const CANCELLED: u8 = 1;
const TIMED_OUT: u8 = 2;

impl Stop {
    /// Whether work should end.
    pub(crate) fn requested(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Ends work because its time is over; what it found so far counts.
    pub(crate) fn time_out(&self) {
        self.0.fetch_or(TIMED_OUT, Ordering::Relaxed);
    }

    /// Whether time was over.
    pub(crate) fn timed_out(&self) -> bool {
        self.0.load(Ordering::Relaxed) & TIMED_OUT != 0
    }
}

/// Stops work when nobody waits for it any more.
#[derive(Debug)]
pub(crate) struct StopOnDrop(pub(crate) Arc<Stop>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.0.fetch_or(CANCELLED, Ordering::Relaxed);
    }
}
