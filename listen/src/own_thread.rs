//! [`OwnThread`]: a thread whose runtime serves one listener.
//!
//! A request that computes next to nothing costs less than the changes between the threads of a shared runtime. Here the thread that
//! learns of a request answers it. The thread waits for its listener's start, and ends with the serving or with [`OwnThread`].

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::mpsc;

use tokio::runtime::Builder;
use tokio::sync::oneshot;

/// Stack of the thread.
const STACK_BYTES: usize = 8 << 20;

/// Work of the thread; it is made there.
type ThreadFuture = Pin<Box<dyn Future<Output = ()>>>;
type ThreadWork = Box<dyn FnOnce() -> ThreadFuture + Send>;

/// Work for the thread, and the ends of its caller.
struct WorkOrder {
    work: ThreadWork,
    /// Resolves once nobody waits for the work.
    caller_gone: oneshot::Receiver<Infallible>,
    /// Dropped at the end of the work.
    _ended: oneshot::Sender<Infallible>,
}

/// A thread with a runtime of its own, which waits for work.
pub(crate) struct OwnThread(oneshot::Sender<WorkOrder>);

impl OwnThread {
    /// Starts the thread; `prepare` runs first on it.
    ///
    /// # Errors
    /// The system refuses a thread, or files for its runtime.
    pub(crate) fn start(name: &str, prepare: fn()) -> io::Result<Self> {
        let (sender, receiver) = oneshot::channel();
        let (started, outcome) = mpsc::sync_channel(1);
        let main = move || {
            prepare();
            let runtime = match Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => {
                    let _ = started.send(Err(error));
                    return;
                }
            };
            let _ = started.send(Ok(()));
            runtime.block_on(run(receiver));
        };
        std::thread::Builder::new().name(format!("millrace-{name}")).stack_size(STACK_BYTES).spawn(main)?;
        outcome.recv().unwrap_or_else(|_| Err(io::Error::other("a thread ended before its start")))?;
        Ok(Self(sender))
    }

    /// Does work on the thread. Dropping the future ends the work where it stands.
    pub(crate) async fn run<F>(self, work: impl FnOnce() -> F + Send + 'static)
    where
        F: Future<Output = ()> + 'static,
    {
        let (_caller, caller_gone) = oneshot::channel();
        let (_ended, end) = oneshot::channel();
        let order = WorkOrder { work: Box::new(move || Box::pin(work())), caller_gone, _ended };
        if self.0.send(order).is_ok() {
            let _ = end.await;
        }
    }
}

async fn run(orders: oneshot::Receiver<WorkOrder>) {
    let Ok(WorkOrder { work, caller_gone, _ended }) = orders.await else { return };
    tokio::select! {
        () = work() => {}
        _ = caller_gone => {}
    }
}
