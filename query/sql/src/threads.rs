//! The threads that statements run on: a runtime of their own, beside the one that serves connections.
//!
//! DataFusion's operators compute in the polls of their streams, some of them for long. Here they delay other
//! statements at most: connections are served by other threads, and these have the priority of bulks, so that gets and
//! searches go first. Trees of expressions are bound, planned, evaluated and dropped by functions that call themselves,
//! so the stacks are deep; a statement's trees never leave these threads ([`StatementThreads::owned`]).
//!
//! A join that finds nothing hands its thread's place to another, so that what waits behind it gets a turn; each statement may
//! come to hold a thread so. Statements at work have turns, which users share ([`turns`]). Those that wait for one and those whose answers
//! are on their way ([`items`]) are bounded by their owners: beyond, they are refused.

mod items;
mod turns;
mod user_counts;

use std::fmt;
use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use millrace_catalog::access::Caller;
use millrace_runtime::Instant;
use millrace_work::compute::{Stop, StopOnDrop};
use millrace_work::error::Error;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tracing::Instrument as _;

pub use self::items::PATIENCE;
pub(crate) use self::items::{Item, ItemSink, Items};
use self::turns::{TurnScheduler, most};
use self::user_counts::UserCounts;
use super::error::Result;

/// Stack of a thread. Only what a statement's nesting needs of it is ever touched.
pub(crate) const STACK_BYTES: usize = 64 << 20;

/// Statements at work for each thread: some that take long leave room for others, with which they share the cores.
const AT_WORK_A_THREAD: usize = 2;
/// Least statements at work at a time.
const LEAST_AT_WORK: usize = 4;
/// Statements of one user that may wait for each at work, and users who may have so many.
const WAITING_FOR_EACH: usize = 32;
const USERS_WAITING: usize = 4;
/// Answers that may be on their way, item by item, for each statement at work, and those of one owner.
const SENDING_FOR_EACH: usize = 16;
const SENDING_OF_OWNER_FOR_EACH: usize = 4;

/// The threads; clones share them. They end with the last clone.
#[derive(Clone)]
pub struct StatementThreads(Arc<ThreadsState>);

struct ThreadsState {
    handle: Handle,
    /// There until it is dropped.
    runtime: Option<Runtime>,
    /// Those of statements at work.
    turns: Arc<TurnScheduler>,
    /// Those that are at work or wait.
    places: Arc<UserCounts>,
    /// Those whose answers are on their way.
    sending: Arc<UserCounts>,
}

impl Drop for ThreadsState {
    fn drop(&mut self) {
        // Waiting for the threads would block one of the runtime that serves connections.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for StatementThreads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatementThreads").finish_non_exhaustive()
    }
}

impl StatementThreads {
    /// Starts so many threads.
    ///
    /// # Errors
    /// The operating system refuses a thread.
    pub fn start(threads: usize) -> Result<Self, Error> {
        let at_work = (threads * AT_WORK_A_THREAD).max(LEAST_AT_WORK);
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads.max(1))
            .max_blocking_threads(most(at_work))
            .thread_name("sql")
            .thread_stack_size(STACK_BYTES)
            .on_thread_start(millrace_runtime::run_behind_reads)
            .enable_time()
            .build()
            .map_err(|error| Error::Execution(format!("cannot start the threads of statements: {error}")))?;
        Ok(Self(Arc::new(ThreadsState {
            handle: runtime.handle().clone(),
            runtime: Some(runtime),
            turns: TurnScheduler::new(at_work),
            places: UserCounts::new(
                ("too many statements of SQL wait for others to end", "try again later"),
                at_work * (1 + WAITING_FOR_EACH) * USERS_WAITING,
                at_work * (1 + WAITING_FOR_EACH),
            ),
            sending: UserCounts::new(
                ("too many answers of SQL are on their way", "read some of them to their end"),
                at_work * SENDING_FOR_EACH,
                at_work * SENDING_OF_OWNER_FOR_EACH,
            ),
        })))
    }

    /// Runs a part of a statement on the threads and waits for it, for so long; while too many others are at work, it waits for them
    /// first.
    ///
    /// Dropping the future, and the end of the time, end the part: it is told by `stop`, where there is one, and dropped at
    /// its next await.
    ///
    /// # Errors
    /// The part's own; [`Error::TimedOut`]; [`Error::Rejected`] where too many of the owner wait, or of all; [`Error::Execution`] when it panicked.
    pub async fn run<T: Send + 'static>(
        &self,
        owner: &Caller,
        stop: Option<&Arc<Stop>>,
        timeout_ms: Option<u64>,
        part: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let place = self.0.places.begin(owner)?;
        let (turns, owner) = (Arc::clone(&self.0.turns), owner.bounded_as());
        let part = async move {
            // Both go with the part, also where nobody waits for it any more.
            let _place = place;
            let _turn = turns.take(&owner).await;
            part.await
        };
        let part = part.in_current_span();
        AbortOnDrop::new(self.0.handle.spawn(part), stop, timeout_ms).ended().await
    }

    /// Starts a statement that hands items on while it runs, as they are taken, and returns the last one. It counts as at work
    /// while it makes an item only, so one whose items nobody takes keeps no other from work. Its time is that for which items
    /// are waited for.
    ///
    /// Dropping the items ends it, as dropping the future of [`StatementThreads::run`] does.
    ///
    /// # Errors
    /// [`Error::Rejected`] where too many answers are on their way to the owner, or to all; [`Items::next`] has those of the statement.
    pub(crate) fn stream<T, F>(
        &self,
        owner: &Caller,
        stop: &Arc<Stop>,
        timeout_ms: Option<u64>,
        statement: impl FnOnce(ItemSink<T>) -> F + Send + 'static,
    ) -> Result<Items<T>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let place = self.0.sending.begin(owner)?;
        let (sender, given) = mpsc::channel(1);
        let (turns, owner) = (Arc::clone(&self.0.turns), owner.bounded_as());
        let statement = async move {
            let _place = place;
            statement(ItemSink::at_work(sender, turns, owner).await).await
        };
        let statement = statement.in_current_span();
        Ok(Items::new(given, AbortOnDrop::new(self.0.handle.spawn(statement), Some(stop), timeout_ms)))
    }

    /// Makes a value that is dropped on the threads, wherever its owner is.
    pub(crate) fn owned<T: Send + 'static>(&self, value: T) -> ThreadDropped<T> {
        ThreadDropped { value: Some(value), threads: self.clone() }
    }
}

/// A part of a statement that ends when nobody waits for it any more.
pub(crate) struct AbortOnDrop<T> {
    task: JoinHandle<Result<T>>,
    stop: Option<StopOnDrop>,
    limit: Limit,
}

/// Deadline of one wait of a statement.
struct Limit {
    /// Rest of it; `None` without a deadline.
    left: Option<Duration>,
    stop: Option<Arc<Stop>>,
}

impl Limit {
    /// Waits while there is time, and tells the part when that is over.
    ///
    /// # Errors
    /// [`Error::TimedOut`].
    async fn within<T>(&mut self, awaited: impl Future<Output = T>) -> Result<T> {
        let Some(left) = &mut self.left else { return Ok(awaited.await) };
        let since = Instant::now();
        let done = tokio::time::timeout(*left, awaited).await;
        *left = left.saturating_sub(since.elapsed());
        done.map_err(|_| {
            if let Some(stop) = &self.stop {
                stop.time_out();
            }
            Error::TimedOut.into()
        })
    }
}

impl<T> AbortOnDrop<T> {
    fn new(task: JoinHandle<Result<T>>, stop: Option<&Arc<Stop>>, timeout_ms: Option<u64>) -> Self {
        let left = timeout_ms.filter(|timeout_ms| *timeout_ms != u64::MAX).map(Duration::from_millis);
        let limit = Limit { left, stop: stop.cloned() };
        Self { task, stop: stop.map(|stop| StopOnDrop(Arc::clone(stop))), limit }
    }

    /// Waits for something that it does.
    ///
    /// # Errors
    /// [`Error::TimedOut`].
    async fn within<O>(&mut self, awaited: impl Future<Output = O>) -> Result<O> {
        self.limit.within(awaited).await
    }

    /// Waits for its end, once.
    async fn ended(&mut self) -> Result<T> {
        let done = self.limit.within(&mut self.task).await?;
        if let Some(stop) = self.stop.take() {
            stop.disarm();
        }
        done.unwrap_or_else(|error| {
            tracing::error!(%error, "a statement failed");
            Err(Error::Execution("the statement failed, see the log of the server".to_owned()).into())
        })
    }
}

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A value that is dropped on the threads of statements.
pub(crate) struct ThreadDropped<T: Send + 'static> {
    /// There until it is dropped.
    value: Option<T>,
    threads: StatementThreads,
}

impl<T: Send + 'static> ThreadDropped<T> {
    /// Returns the threads that drop it.
    pub(crate) fn threads(&self) -> &StatementThreads {
        &self.threads
    }
}

impl<T: Send + 'static> Deref for ThreadDropped<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("it is there until it is dropped")
    }
}

impl<T: Send + 'static> DerefMut for ThreadDropped<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("it is there until it is dropped")
    }
}

impl<T: Send + 'static> Drop for ThreadDropped<T> {
    fn drop(&mut self) {
        let value = self.value.take();
        self.threads.0.handle.spawn(async move { drop(value) });
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[tokio::test]
    async fn statements_at_work_and_waiting_are_bounded() {
        let threads = StatementThreads::start(1).unwrap();
        let mut running = Vec::new();
        for number in 0..LEAST_AT_WORK * (1 + WAITING_FOR_EACH) {
            let mut run = Box::pin(threads.run(&Caller::System, None, None, pending::<Result<()>>()));
            assert!(run.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending(), "{number}");
            running.push(run);
        }
        let refused = threads.run(&Caller::System, None, None, async { Ok(()) }).await.unwrap_err();
        assert_eq!(
            (refused.status(), refused.to_body()["error"]["type"].as_str()),
            (429, Some("RejectedExecutionException"))
        );
        // One that gives up makes room, and waits until another at work has ended.
        running.pop();
        let last = async {
            loop {
                match threads.run(&Caller::System, None, Some(60_000), async { Ok(()) }).await {
                    Err(error) if error.status() == 429 => tokio::task::yield_now().await,
                    done => return done,
                }
            }
        };
        let mut last = Box::pin(last);
        assert!(matches!(last.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Pending));
        running.clear();
        last.await.unwrap();
    }
}
