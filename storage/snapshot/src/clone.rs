//! Clone of a snapshot: another manifest over files that the repository has.

use millrace_runtime::Error as StoreError;
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::manifest::{Manifest, SnapshotState};
use crate::names::snapshot_name_fault;
use crate::selection::{SelectionOptions, check_expression, select_indices};
use crate::service::SnapshotService;

impl SnapshotService {
    /// Makes a snapshot of some indices of another one in the same repository; no file is copied. The global state and accounts stay behind.
    ///
    /// # Errors
    /// A name that is taken or cannot be used, a source or index that is missing, no index at all, and the repository's.
    pub async fn clone_snapshot(
        &self,
        repository: &str,
        source: &str,
        target: &str,
        (indices, options): (&str, SelectionOptions),
    ) -> Result<Manifest> {
        let invalid = |reason: String| Error::InvalidSnapshotName {
            repository: repository.to_owned(),
            snapshot: target.to_owned(),
            reason,
        };
        if let Some(fault) = snapshot_name_fault(target) {
            return Err(invalid(fault));
        }
        check_expression(indices)?;
        let open = self.repository(repository).await?;
        let _one = self.inner.writing.lock().await;
        open.check_writer().await?;
        let missing =
            || Error::SnapshotMissing { repository: repository.to_owned(), snapshot: source.to_owned() };
        let manifest = open.read_manifest(source).await?.ok_or_else(missing)?;
        let names: Vec<String> = manifest.visible_indices().map(|index| index.name.clone()).collect();
        let chosen = select_indices(&names, Some(indices), options)
            .map_err(|index| StoreError::IndexNotFound { index })?;
        if chosen.is_empty() {
            return Err(Error::Snapshot {
                repository: repository.to_owned(),
                snapshot: target.to_owned(),
                reason: format!(
                    "No indices in the source snapshot [{source}] matched requested pattern [{indices}]"
                ),
            });
        }
        let now_ms = self.inner.engine.clock().now_ms();
        let clone = Manifest {
            snapshot: target.to_owned(),
            uuid: Uuid::new_v4(),
            state: SnapshotState::Success,
            started_ms: now_ms,
            ended_ms: now_ms,
            include_global_state: false,
            indices: manifest.indices.into_iter().filter(|index| chosen.contains(&index.name)).collect(),
            failures: Vec::new(),
            global_state: None,
            accounts: None,
            added_files: 0,
            added_bytes: 0,
            ..manifest
        };
        match open.publish(&clone).await? {
            true => Ok(clone),
            false => Err(invalid("snapshot with the same name already exists".to_owned())),
        }
    }
}
