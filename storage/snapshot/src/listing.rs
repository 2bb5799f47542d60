//! Listing and deletion of snapshots.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millrace_catalog::access::backed_stream;
use serde_json::{Value, json};

use crate::accounts::SECURITY_FEATURE;
use crate::error::{Error, Result};
use crate::manifest::Manifest;
use crate::progress::IndexProgressFigures;
use crate::restoring::DeletingGuard;
use crate::selection::{check_expression, select_names};
use crate::service::{DeletionReport, RunningSnapshot, SnapshotService};

/// The snapshots that a request is about.
#[derive(Clone, Debug)]
pub struct SnapshotFilter {
    /// Comma-separated names and wildcards, `_all` or `_current`.
    pub expression: String,
    /// `true` if names that are missing, and snapshots that cannot be read, are left out.
    pub ignore_unavailable: bool,
}

/// A snapshot of a listing.
#[derive(Clone, Debug)]
pub(crate) enum ListedSnapshot {
    Complete(Box<Manifest>),
    Running(Arc<RunningSnapshot>),
    Failed { uuid: uuid::Uuid, started_ms: i64, ended_ms: i64, reason: String },
}

/// Figures of a listed snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotOverview {
    /// Name.
    pub snapshot: String,
    /// Name of the state.
    pub state: &'static str,
    /// Time of the begin, in milliseconds since the epoch.
    pub started_ms: i64,
    /// Time of the end; that of the begin while it is being made.
    pub ended_ms: i64,
    /// Indices, without those of the server's own.
    pub indices: u64,
    /// Shards that are in it.
    pub successful_shards: u64,
    /// Shards that are missing.
    pub failed_shards: u64,
    /// Shards that were asked for.
    pub total_shards: u64,
    /// Why it failed; empty where it did not.
    pub reason: String,
}

impl SnapshotOverview {
    fn new(name: &str, snapshot: &ListedSnapshot) -> Self {
        let without_shards = |state, started_ms, ended_ms| Self {
            snapshot: name.to_owned(),
            state,
            started_ms,
            ended_ms,
            indices: 0,
            successful_shards: 0,
            failed_shards: 0,
            total_shards: 0,
            reason: String::new(),
        };
        match snapshot {
            ListedSnapshot::Complete(manifest) => {
                let (successful_shards, failed_shards) = manifest.shard_counts();
                Self {
                    indices: manifest.visible_indices().count() as u64,
                    successful_shards,
                    failed_shards,
                    total_shards: successful_shards + failed_shards,
                    ..without_shards(manifest.state.name(), manifest.started_ms, manifest.ended_ms)
                }
            }
            ListedSnapshot::Running(running) => {
                let indices = running.indices();
                let shards = |pick: fn(&IndexProgressFigures) -> u32| -> u64 {
                    indices.iter().map(|index| u64::from(pick(&index.figures()))).sum()
                };
                Self {
                    indices: indices.len() as u64,
                    successful_shards: shards(|index| index.done_shards),
                    total_shards: shards(|index| index.shards),
                    ..without_shards("IN_PROGRESS", running.started_ms, running.started_ms)
                }
            }
            ListedSnapshot::Failed { started_ms, ended_ms, reason, .. } => {
                Self { reason: reason.clone(), ..without_shards("FAILED", *started_ms, *ended_ms) }
            }
        }
    }
}

impl SnapshotService {
    /// Lists snapshots as the API shows them, the oldest first; `verbose` has shards, times and failures beside the names.
    ///
    /// # Errors
    /// [`Error::SnapshotMissing`] for a name; a manifest that cannot be read.
    pub async fn list(&self, repository: &str, filter: &SnapshotFilter, verbose: bool) -> Result<Vec<Value>> {
        // Rendered one by one: manifests may be large.
        self.find(repository, filter, |name, snapshot| Some(render(name, &snapshot, verbose))).await
    }

    /// Lists the snapshots that are complete, the oldest first.
    ///
    /// # Errors
    /// As [`SnapshotService::list`].
    pub async fn manifests(&self, repository: &str, filter: &SnapshotFilter) -> Result<Vec<Manifest>> {
        let complete = |_: &str, snapshot| match snapshot {
            ListedSnapshot::Complete(manifest) => Some(*manifest),
            _ => None,
        };
        self.find(repository, filter, complete).await
    }

    /// Converts the snapshots that are complete, the oldest first. One manifest is in memory at a time.
    ///
    /// # Errors
    /// As [`SnapshotService::list`].
    pub async fn map_manifests<T>(
        &self,
        repository: &str,
        filter: &SnapshotFilter,
        convert: impl Fn(&Manifest) -> T,
    ) -> Result<Vec<T>> {
        let complete = |_: &str, snapshot| match snapshot {
            ListedSnapshot::Complete(manifest) => Some(convert(&manifest)),
            _ => None,
        };
        self.find(repository, filter, complete).await
    }

    /// Lists snapshots without the names of their indices, the oldest first. One manifest is in memory at a time.
    ///
    /// # Errors
    /// As [`SnapshotService::list`].
    pub async fn overviews(
        &self,
        repository: &str,
        filter: &SnapshotFilter,
    ) -> Result<Vec<SnapshotOverview>> {
        self.find(repository, filter, |name, snapshot| Some(SnapshotOverview::new(name, &snapshot))).await
    }

    /// Lists the snapshots that are being made, of one repository or of all.
    pub fn running(&self, repository: Option<&str>) -> Vec<Arc<RunningSnapshot>> {
        let running = self.inner.running.lock();
        let wanted = running.values().filter(|one| repository.is_none_or(|name| one.repository == name));
        wanted.cloned().collect()
    }

    /// Makes the manifest's answer to a creation.
    pub fn render_manifest(manifest: &Manifest) -> Value {
        render(&manifest.snapshot, &ListedSnapshot::Complete(Box::new(manifest.clone())), true)
    }

    /// Converts the snapshots that a filter names, the oldest first.
    async fn find<T>(
        &self,
        repository: &str,
        filter: &SnapshotFilter,
        convert: impl Fn(&str, ListedSnapshot) -> Option<T>,
    ) -> Result<Vec<T>> {
        check_expression(&filter.expression)?;
        let open = self.repository(repository).await?;
        let running = self.running(Some(repository));
        if filter.expression == "_current" {
            let named = running.into_iter().filter_map(|one| {
                let name = one.snapshot.clone();
                convert(&name, ListedSnapshot::Running(one))
            });
            return Ok(named.collect());
        }
        let mut known: BTreeMap<String, Option<ListedSnapshot>> = BTreeMap::new();
        for ((_, name), failed) in self.inner.failed.lock().iter().filter(|((of, _), _)| of == repository) {
            let (uuid, started_ms, ended_ms) = (failed.uuid, failed.started_ms, failed.ended_ms);
            let snapshot =
                ListedSnapshot::Failed { uuid, started_ms, ended_ms, reason: failed.reason.clone() };
            known.insert(name.clone(), Some(snapshot));
        }
        for one in running {
            known.insert(one.snapshot.clone(), Some(ListedSnapshot::Running(one)));
        }
        known.extend(open.list_snapshots().await?.into_iter().map(|name| (name, None)));
        let names: Vec<String> = known.keys().cloned().collect();
        let expression = Some(filter.expression.as_str());
        let chosen = select_names(&names, expression, filter.ignore_unavailable)
            .map_err(|snapshot| Error::SnapshotMissing { repository: repository.to_owned(), snapshot })?;
        let mut found = Vec::with_capacity(chosen.len());
        for name in chosen {
            let listed = match known.remove(&name).flatten() {
                Some(listed) => Some(listed),
                None => match open.read_manifest(&name).await {
                    Ok(manifest) => manifest.map(|manifest| ListedSnapshot::Complete(Box::new(manifest))),
                    Err(_) if filter.ignore_unavailable => None,
                    Err(error) => return Err(error),
                },
            };
            let Some(listed) = listed else { continue };
            let started_ms = match &listed {
                ListedSnapshot::Complete(manifest) => manifest.started_ms,
                ListedSnapshot::Running(one) => one.started_ms,
                ListedSnapshot::Failed { started_ms, .. } => *started_ms,
            };
            found.extend(convert(&name, listed).map(|converted| (started_ms, converted)));
        }
        found.sort_by_key(|(started_ms, _)| *started_ms);
        Ok(found.into_iter().map(|(_, converted)| converted).collect())
    }

    /// Deletes snapshots and the files that no other snapshot needs. One that is being made is aborted.
    ///
    /// # Errors
    /// [`Error::SnapshotMissing`], [`Error::Concurrent`] for one that is being restored, and the repository's.
    pub async fn delete(&self, repository: &str, expression: &str) -> Result<DeletionReport> {
        check_expression(expression)?;
        let open = self.repository(repository).await?;
        open.check_writable()?;
        let running = self.running(Some(repository));
        let names: Vec<String> = running.iter().map(|one| one.snapshot.clone()).collect();
        let aborted = select_names(&names, Some(expression), true).unwrap_or_default();
        running.iter().filter(|one| aborted.contains(&one.snapshot)).for_each(|one| one.abort());
        let _one = self.inner.writing.lock().await;
        open.check_writer().await?;
        let mut names = open.list_snapshots().await?;
        let complete = names.len();
        names.extend(
            self.inner.failed.lock().keys().filter(|(of, _)| of == repository).map(|(_, name)| name.clone()),
        );
        let chosen = select_names(&names, Some(expression), !aborted.is_empty())
            .map_err(|snapshot| Error::SnapshotMissing { repository: repository.to_owned(), snapshot })?;
        let _deleting = DeletingGuard::begin(&self.inner, repository, &chosen).await?;
        for snapshot in &chosen {
            if names[..complete].contains(snapshot) {
                open.delete_manifest(snapshot).await?;
            }
            self.inner.failed.lock().remove(&(repository.to_owned(), snapshot.clone()));
        }
        // The snapshots are gone; files that stay now go with the next deletion or cleanup.
        match open.collect(self.inner.engine.clock().now_ms()).await {
            Ok(collected) => Ok(DeletionReport { files: collected.files, bytes: collected.bytes }),
            Err(error) => {
                tracing::warn!(repository, %error, "cannot remove files that no snapshot needs");
                Ok(DeletionReport::default())
            }
        }
    }
}

/// Renders the figures of [`SnapshotOverview`], and the members that each kind has beside.
fn render(name: &str, snapshot: &ListedSnapshot, verbose: bool) -> Value {
    let overview = SnapshotOverview::new(name, snapshot);
    let (uuid, indices): (_, Vec<String>) = match snapshot {
        ListedSnapshot::Complete(manifest) => {
            (manifest.uuid, manifest.visible_indices().map(|index| index.name.clone()).collect())
        }
        ListedSnapshot::Running(running) => {
            (running.uuid, running.indices().iter().map(|index| index.name.clone()).collect())
        }
        ListedSnapshot::Failed { uuid, .. } => (*uuid, Vec::new()),
    };
    let uuid = millrace_catalog::metadata::uuid_text(&uuid);
    let streams: BTreeSet<&str> = indices.iter().filter_map(|index| backed_stream(index)).collect();
    let mut shown = json!({
        "snapshot": name, "uuid": uuid, "indices": indices, "data_streams": streams, "state": overview.state,
    });
    if !verbose {
        return shown;
    }
    shown["version_id"] = 7_100_299.into();
    shown["version"] = "7.10.2".into();
    shown["remote_store_index_shallow_copy"] = false.into();
    shown["failures"] = json!([]);
    match snapshot {
        ListedSnapshot::Complete(manifest) => {
            shown["include_global_state"] = manifest.include_global_state.into();
            if manifest.accounts.is_some() {
                shown["feature_states"] = json!([{ "feature_name": SECURITY_FEATURE, "indices": [] }]);
            }
            if let Some(metadata) = &manifest.metadata {
                shown["metadata"] = metadata.clone().into();
            }
            shown["failures"] = manifest
                .failures
                .iter()
                .map(|failure| {
                    json!({
                        "index": failure.index, "index_uuid": failure.index, "shard_id": failure.shard,
                        "reason": failure.reason, "status": "INTERNAL_SERVER_ERROR",
                    })
                })
                .collect();
        }
        ListedSnapshot::Running(running) => {
            shown["include_global_state"] = running.include_global_state.into();
        }
        ListedSnapshot::Failed { .. } => shown["reason"] = overview.reason.into(),
    }
    shown["shards"] = json!({
        "total": overview.total_shards,
        "failed": overview.failed_shards,
        "successful": overview.successful_shards,
    });
    shown["start_time_in_millis"] = overview.started_ms.into();
    shown["end_time_in_millis"] = overview.ended_ms.into();
    shown["duration_in_millis"] = (overview.ended_ms - overview.started_ms).max(0).into();
    shown
}
