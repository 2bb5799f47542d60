//! Trainings on spare threads. They end soon once their caller is gone, as with a cancelled task.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millrace_runtime::{Compute, Priority};

use crate::error::Result;

/// RAII guard: sets a flag when it is dropped.
struct CancelGuard(Arc<AtomicBool>);

impl Drop for CancelGuard {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs a training, which asks the flag between its steps whether it is cancelled. It is cancelled by dropping the future.
///
/// # Errors
/// Those of the pool.
pub(crate) async fn run_training<T, F>(compute: &Compute, training: F) -> Result<T>
where
    F: FnOnce(&AtomicBool) -> T + Send + 'static,
    T: Send + 'static,
{
    let cancelled = Arc::new(AtomicBool::new(false));
    let _guard = CancelGuard(Arc::clone(&cancelled));
    Ok(compute.run(Priority::Spare, move || Ok(training(&cancelled))).await?)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use millrace_runtime::SystemClock;
    use millrace_runtime::tasks::{TaskRegistry, TaskSpec};

    use super::*;

    #[tokio::test]
    async fn a_training_ends_with_the_task_that_waits_for_it() {
        let (compute, tasks) = (Compute::start(1).unwrap(), TaskRegistry::new(Arc::new(SystemClock)));
        let task = tasks.start(TaskSpec::cancellable("training"));
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let (ended, has_ended) = mpsc::channel();
        let training = run_training(&compute, move |cancelled| {
            begun.send(()).unwrap();
            while !cancelled.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            ended.send(()).unwrap();
        });
        let cancellation = async {
            has_begun.await.unwrap();
            tasks.cancel(task.id(), "test");
        };
        let (outcome, ()) = tokio::join!(task.run(training), cancellation);
        assert!(outcome.is_err());
        has_ended.recv().unwrap();
        assert_eq!(run_training(&compute, |_| 7).await.unwrap(), 7);
    }
}
