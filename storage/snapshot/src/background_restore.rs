//! A restore that goes on while its caller does not wait for it.

use std::fmt;

use millrace_runtime::Error as StoreError;
use millrace_runtime::sync;
use millrace_runtime::tasks::TaskHandle;
use tokio::sync::oneshot;

use crate::error::Result;
use crate::restore::RestoreJob;
use crate::restore_request::RestoreReport;

/// A restore that runs in the background. It goes on where this is dropped.
#[derive(Debug)]
pub struct BackgroundRestore {
    task: TaskHandle,
    outcome: oneshot::Receiver<RestoreOutcome>,
}

impl BackgroundRestore {
    /// Runs a restore in the background.
    pub(crate) fn begin(job: RestoreJob) -> Self {
        let task = job.task();
        let (sender, outcome) = oneshot::channel();
        sync::detached(async move {
            let report = job.run().await;
            // The task ends here where nobody waits.
            let _ = sender.send(RestoreOutcome { report, job: Some(job) });
        });
        Self { task, outcome }
    }

    /// Returns its task.
    pub fn task(&self) -> &TaskHandle {
        &self.task
    }

    /// Waits for its end.
    pub async fn outcome(self) -> RestoreOutcome {
        self.outcome.await.unwrap_or_else(|_| {
            let panicked = StoreError::Internal("a restore panicked".to_owned());
            RestoreOutcome { report: Err(panicked.into()), job: None }
        })
    }
}

/// Outcome of a restore. Its task ends with it, so that the outcome may be noted before.
pub struct RestoreOutcome {
    /// Report of the restore, or its error.
    pub report: Result<RestoreReport>,
    /// Holds the task.
    job: Option<RestoreJob>,
}

impl fmt::Debug for RestoreOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RestoreOutcome")
            .field("report", &self.report)
            .field("runs", &self.job.is_some())
            .finish_non_exhaustive()
    }
}
