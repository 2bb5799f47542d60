//! `_snapshot`: repositories, snapshots, restoring. `millrace-snapshot` does the work; here are the requests and answers.

mod accounts;
pub(crate) mod body;
pub(crate) mod lifecycle;
pub(crate) mod repositories;
pub(crate) mod status;

pub use self::accounts::SnapshotAccounts;
use millrace_snapshot::{Error as SnapshotError, SnapshotService};

use crate::error::Error;
use crate::route::DataApi;

/// Returns the service of snapshots.
///
/// # Errors
/// A server that has none.
pub(crate) fn service(served: &DataApi) -> Result<&SnapshotService, Error> {
    let missing = || Error::new(404, "repository_missing_exception", "snapshots are not served here");
    served.snapshots().ok_or_else(missing)
}

/// Turns an error of snapshots into the answer, by OpenSearch's names.
pub(crate) fn refuse(error: SnapshotError) -> Error {
    let reason = error.to_string();
    match error {
        SnapshotError::RepositoryMissing { .. } => Error::new(404, "repository_missing_exception", reason),
        SnapshotError::Repository { .. } => Error::new(500, "repository_exception", reason),
        SnapshotError::Verification { .. } => Error::new(500, "repository_verification_exception", reason),
        SnapshotError::RepositoryBusy { .. } => Error::new(500, "illegal_state_exception", reason),
        SnapshotError::SnapshotMissing { .. } => Error::new(404, "snapshot_missing_exception", reason),
        SnapshotError::InvalidSnapshotName { .. } => {
            Error::new(400, "invalid_snapshot_name_exception", reason)
        }
        SnapshotError::Concurrent { .. } => {
            Error::new(503, "concurrent_snapshot_execution_exception", reason)
        }
        SnapshotError::Snapshot { .. } => Error::new(500, "snapshot_exception", reason),
        SnapshotError::Restore { .. } => Error::new(500, "snapshot_restore_exception", reason),
        SnapshotError::IllegalArgument(_) => Error::illegal_argument(reason),
        SnapshotError::Store(error) => error.into(),
    }
}
