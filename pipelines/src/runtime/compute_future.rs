//! Futures on compute threads. Each poll is a job of its own, so that a future may compute between its waits, and takes no thread
//! while it waits.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use futures::FutureExt;
use millrace_runtime::{Compute, Error, Priority};
use tokio::runtime::Handle;
use tokio::sync::Notify;

/// Wakes the task that polls a future.
#[derive(Debug, Default)]
struct Wakeup(Notify);

impl Wake for Wakeup {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.notify_one();
    }
}

/// Polls a future on compute threads until it is ready. It must be called within a runtime, whose timers and sockets the future may
/// use.
///
/// # Errors
/// The future panicked, or the threads have ended.
pub(super) async fn run<T: Send + 'static>(
    compute: &Compute,
    future: impl Future<Output = T> + Send + 'static,
) -> Result<T, Error> {
    let runtime = Handle::current();
    let wakeup = Arc::new(Wakeup::default());
    let mut future = future.boxed();
    loop {
        let (runtime, waker) = (runtime.clone(), Waker::from(Arc::clone(&wakeup)));
        let job = move || {
            let _entered = runtime.enter();
            let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
            Ok((polled, future))
        };
        let (polled, rest) = compute.run(Priority::Ingest, job).await?;
        match polled {
            Poll::Ready(output) => return Ok(output),
            Poll::Pending => future = rest,
        }
        // A wake-up since the poll left a permit.
        wakeup.0.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_future_waits_without_a_thread() {
        let compute = Compute::start(1).unwrap();
        let waits = |seconds: u64| async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            tokio::spawn(async move { seconds }).await.unwrap()
        };
        let (a, b) = tokio::join!(run(&compute, waits(9)), run(&compute, waits(5)));
        assert_eq!((a.unwrap(), b.unwrap()), (9, 5));
        assert!(run(&compute, async { panic!("a defect") }).await.map(|(): ()| ()).is_err());
    }
}
