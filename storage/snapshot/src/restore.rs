//! Restoring: every file is fetched and verified, then all indices take their place at once.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use millrace_catalog::Position;
use millrace_catalog::access::{Action, Guard, NameClass, Principal};
use millrace_catalog::metadata::{Metadata, MetadataChange, RestoreIndex};
use millrace_engine::{FEED_PIPELINE, RULES_READER, RestoredPosition, RestoredState};
use millrace_runtime::Error as StoreError;
use millrace_runtime::tasks::{TaskDescription, TaskGuard, TaskHandle, TaskSpec};
use parking_lot::Mutex;
use serde_json::json;
use uuid::Uuid;

use crate::accounts::{AccountState, SECURITY_FEATURE, check_rights};
use crate::background_restore::BackgroundRestore;
use crate::contents::GlobalState;
use crate::copy::PendingCopies;
use crate::error::{Error, Result};
use crate::fetch::FetchedIndex;
use crate::figures::OperationOutcome;
use crate::manifest::{IndexSummary, Manifest, MissingShard, decode_json};
use crate::positions::decode_positions;
use crate::repository::Repository;
use crate::restore_request::{RestoreReport, RestoreSnapshot};
use crate::restoring::{RestoringGuard, check_space};
use crate::selection::{Renaming, check_expression, is_security_administrator, select_indices};
use crate::service::{SnapshotKey, SnapshotService};
use crate::system_state::{RULES_INDEX, global_changes, holds_state, is_replaced};

/// A restore that was admitted. Until it is dropped its snapshot is not deleted.
pub(crate) struct RestoreJob {
    pub(crate) service: SnapshotService,
    pub(crate) repository: Repository,
    pub(crate) manifest: Manifest,
    request: RestoreSnapshot,
    pub(crate) principal: Principal,
    /// Indices of the snapshot by their new names.
    targets: BTreeMap<String, IndexSummary>,
    alias_renaming: Renaming,
    /// `true` if the indices are searched before their files are here.
    pub(crate) is_early: bool,
    /// Segments that are copied once they are searched.
    pub(crate) pending: Mutex<PendingCopies>,
    /// Uuids of the indices that it has begun to restore.
    pub(crate) begun: Mutex<Vec<Uuid>>,
    guard: RestoringGuard,
    task: TaskGuard,
}

impl Drop for RestoreJob {
    fn drop(&mut self) {
        let inner = &self.service.inner;
        let existing: HashSet<Uuid> = inner.engine.metadata().indices().map(|meta| meta.uuid).collect();
        for uuid in self.begun.lock().iter().filter(|uuid| !existing.contains(uuid)) {
            inner.recoveries.remove(uuid);
        }
    }
}

impl SnapshotService {
    /// Restores indices of a snapshot and waits for it.
    ///
    /// # Errors
    /// [`Error::Restore`] names the index and what is wrong with it; then nothing is restored.
    pub async fn restore(
        &self,
        principal: &Principal,
        (repository, snapshot): (&str, &str),
        request: RestoreSnapshot,
    ) -> Result<RestoreReport> {
        // To its end, whether or not the caller waits.
        let begun = self.begin_restore(principal, (repository, snapshot), request).await?;
        begun.outcome().await.report
    }

    /// Begins to restore in the background.
    ///
    /// # Errors
    /// As [`SnapshotService::restore`], as far as it can be told at once.
    pub async fn begin_restore(
        &self,
        principal: &Principal,
        (repository, snapshot): (&str, &str),
        request: RestoreSnapshot,
    ) -> Result<BackgroundRestore> {
        let job = self.admit_restore(principal, (repository, snapshot), request).await?;
        Ok(BackgroundRestore::begin(job))
    }

    async fn admit_restore(
        &self,
        principal: &Principal,
        snapshot: (&str, &str),
        request: RestoreSnapshot,
    ) -> Result<RestoreJob> {
        let admitted = self.prepare_restore(principal, snapshot, request).await;
        if let Err(Error::Repository { .. }) = &admitted {
            self.inner.counters.restores.add(OperationOutcome::Failure);
        }
        admitted
    }

    async fn prepare_restore(
        &self,
        principal: &Principal,
        (repository, snapshot): (&str, &str),
        request: RestoreSnapshot,
    ) -> Result<RestoreJob> {
        check_expression(request.indices.as_deref().unwrap_or_default())?;
        let open = self.repository(repository).await?;
        let key: SnapshotKey = (repository.to_owned(), snapshot.to_owned());
        let description = TaskDescription::text(&format!("snapshot[{repository}:{snapshot}]"));
        let spec = TaskSpec::cancellable(Action::RestoreSnapshot.name()).with_description(description);
        let task = self.inner.engine.tasks().start(spec);
        // Before it is read, so that no deletion comes between.
        let guard = RestoringGuard::begin(&self.inner, key).await?;
        let mut job = RestoreJob {
            service: self.clone(),
            repository: open,
            manifest: Manifest::empty(),
            request,
            principal: principal.clone(),
            targets: BTreeMap::new(),
            alias_renaming: Renaming::default(),
            is_early: false,
            pending: Mutex::default(),
            begun: Mutex::default(),
            guard,
            task,
        };
        let found = job.repository.read_manifest(snapshot).await?;
        job.manifest = found.ok_or_else(|| Error::SnapshotMissing {
            repository: repository.to_owned(),
            snapshot: snapshot.to_owned(),
        })?;
        job.choose_targets()?;
        job.check_accounts()?;
        // What is in the way is known before anything is fetched.
        let metadata = self.inner.engine.metadata();
        for name in job.targets.keys() {
            job.check_target(&metadata, name)?;
        }
        let bytes = job.targets.values().map(|summary| summary.bytes).fold(0, u64::saturating_add);
        check_space(&self.inner.engine, (repository, snapshot), bytes).await?;
        // A closed index stays until the one in its place is whole. Positions come with documents whose files are all here: indices
        // that are deleted later would leave the positions behind.
        job.is_early = !job.request.include_global_state
            && bytes >= job.request.early_search_bytes
            && job.targets.keys().all(|name| metadata.index(name).is_none());
        job.check_aliases(&metadata).await?;
        Ok(job)
    }
}

impl RestoreJob {
    /// Returns repository and snapshot.
    pub(crate) fn key(&self) -> (&str, &str) {
        let (repository, snapshot) = self.guard.key();
        (repository, snapshot)
    }

    pub(crate) fn fail(&self, reason: impl Into<String>) -> Error {
        let (repository, snapshot) = self.guard.key().clone();
        Error::Restore { repository, snapshot, reason: reason.into() }
    }

    pub(crate) fn check_cancelled(&self) -> Result<()> {
        self.task.check().map_err(|cancelled| self.fail(cancelled.to_string()))
    }

    /// Makes an error about an index. What a cancellation has ended is no failure of it.
    fn index_error(&self, name: &str, error: Error) -> Error {
        match self.check_cancelled() {
            Ok(()) => self.fail(format!("cannot restore index [{name}]: {error}")),
            Err(cancelled) => cancelled,
        }
    }

    /// Ends a transfer once the task is cancelled.
    pub(crate) fn check_transfer(&self) -> Result<(), StoreError> {
        self.task.check().map_err(|cancelled| StoreError::Stopped(cancelled.to_string()))
    }

    fn choose_targets(&mut self) -> Result<()> {
        let expression = self.request.indices.as_deref().filter(|text| !text.is_empty());
        let parts: HashSet<&str> =
            expression.iter().flat_map(|expression| expression.split(',')).map(str::trim).collect();
        // Under whatever name they are restored.
        let administrator = is_security_administrator(&self.principal);
        let mut available: Vec<&IndexSummary> = self.manifest.indices.iter().collect();
        available.retain(|index| !index.system || (administrator && parts.contains(index.name.as_str())));
        let available: Vec<String> = available.into_iter().map(|index| index.name.clone()).collect();
        let chosen = select_indices(&available, expression, self.request.options)
            .map_err(|index| StoreError::IndexNotFound { index })?;
        let RestoreSnapshot { rename_pattern, rename_replacement, .. } = &self.request;
        let renaming = Renaming::parse(rename_pattern.as_deref(), rename_replacement.as_deref())?;
        let RestoreSnapshot { rename_alias_pattern, rename_alias_replacement, .. } = &self.request;
        let (from, to) = (rename_alias_pattern.as_deref(), rename_alias_replacement.as_deref());
        self.alias_renaming = Renaming::parse(from, to)?;
        let summaries: HashMap<&str, &IndexSummary> =
            self.manifest.indices.iter().map(|index| (index.name.as_str(), index)).collect();
        let renamed = renaming.rename_all(&chosen).map_err(|reason| self.fail(reason))?;
        let targets = renamed.into_iter().filter_map(|(new, old)| {
            let summary = summaries.get(old.as_str())?;
            Some((new, IndexSummary::clone(summary)))
        });
        self.targets = targets.collect();
        if self.request.include_global_state {
            self.check_global_state()?;
            let metadata = self.service.inner.engine.metadata();
            // Under their own names, whatever becomes of others.
            let brings =
                |name: &str| is_replaced(name) || (holds_state(name) && metadata.index(name).is_none());
            for index in self.manifest.indices.iter().filter(|index| administrator && brings(&index.name)) {
                self.targets.entry(index.name.clone()).or_insert_with(|| index.clone());
            }
        }
        Ok(())
    }

    /// Returns whether an index is restored as a part of the global state.
    fn is_global_state(&self, name: &str) -> bool {
        let same_name = self.targets.get(name).is_some_and(|summary| summary.name == name);
        self.request.include_global_state && same_name && holds_state(name)
    }

    fn check_target(&self, metadata: &Metadata, name: &str) -> Result<()> {
        let privileges = self.principal.privileges();
        let allowed = match NameClass::new(name) {
            NameClass::Ordinary => {
                let on = privileges.on(name);
                on.allows(Action::CreateIndex) && on.allows(Action::IndexDocument)
            }
            _ => is_security_administrator(&self.principal),
        };
        if !allowed {
            return Err(millrace_catalog::access::refusal(&self.principal, Action::CreateIndex, name).into());
        }
        match metadata.index(name) {
            Some(existing) if existing.open && !(self.is_global_state(name) && is_replaced(name)) => Err(self.fail(format!(
                "cannot restore index [{name}] because an open index with same name already exists in the cluster. Either close \
                 or delete the existing index or restore the index under a different name by providing a rename pattern and \
                 replacement name"
            ))),
            _ => Ok(()),
        }
    }

    /// Returns the metadata as the caller may change it. Whoever can grant itself every right needs none beforehand.
    fn guarded(principal: &Principal, metadata: &Metadata) -> Metadata {
        let restricted = !is_security_administrator(principal);
        metadata.guarded(Guard::new(principal, Action::RestoreSnapshot).filter(|_| restricted))
    }

    /// Refuses aliases that the caller may not give, before anything is fetched. The decision asks again.
    async fn check_aliases(&self, metadata: &Metadata) -> Result<()> {
        if is_security_administrator(&self.principal) {
            return Ok(());
        }
        let guarded = Self::guarded(&self.principal, metadata);
        if self.request.include_aliases {
            for (name, summary) in &self.targets {
                // Contents that cannot be read bring no alias; the restore names them.
                let read = self.repository.read_index(summary.contents, summary.contents_bytes).await;
                let Ok(contents) = read else { continue };
                let aliases: Vec<String> =
                    contents.meta.aliases.keys().map(|alias| self.alias_renaming.rename(alias)).collect();
                guarded.check_alias_rights(name, &aliases)?;
            }
        }
        if let Some(global) = self.read_global_state().await? {
            guarded.restore_templates(&global.templates)?;
        }
        Ok(())
    }

    /// Returns a handle of its task.
    pub(crate) fn task(&self) -> TaskHandle {
        self.task.handle()
    }

    /// Restores; it is called once.
    pub(crate) async fn run(&self) -> Result<RestoreReport> {
        let restored = self.task.scope(self.restore_all()).await;
        let outcome = match &restored {
            Ok(report) if report.failures.is_empty() => OperationOutcome::Success,
            Ok(_) => OperationOutcome::Partial,
            Err(error) => {
                let (repository, snapshot) = self.key();
                tracing::error!(repository, snapshot, %error, "a snapshot was not restored");
                OperationOutcome::Failure
            }
        };
        // What a caller has ended is no failure.
        if self.task.check().is_ok() {
            self.service.inner.counters.restores.add(outcome);
        }
        restored
    }

    async fn restore_all(&self) -> Result<RestoreReport> {
        let global = self.read_global_state().await?;
        let positions = self.decode_positions(global.as_ref())?;
        let accounts = self.read_accounts().await?;
        let mut report = RestoreReport::default();
        let mut fetched: Vec<FetchedIndex> = Vec::new();
        for (name, summary) in &self.targets {
            report.total += u64::from(summary.shards);
            let index = match self.check_cancelled() {
                Ok(()) => self.fetch_index(name, summary).await,
                Err(cancelled) => Err(cancelled),
            };
            match index {
                Ok(index) => fetched.push(index),
                // A cancellation is no failure of an index, which a partial restore leaves out.
                Err(error) if self.request.partial && self.check_cancelled().is_ok() => {
                    let failed = (0..summary.shards).map(|shard| MissingShard {
                        index: name.clone(),
                        shard,
                        reason: error.to_string(),
                    });
                    report.failures.extend(failed);
                }
                Err(error) => {
                    self.discard(fetched).await;
                    return Err(self.index_error(name, error));
                }
            }
        }
        if let Err(cancelled) = self.check_cancelled() {
            self.discard(fetched).await;
            return Err(cancelled);
        }
        report.indices = fetched.iter().map(|index| index.name.clone()).collect();
        report.successful = report.total - report.failures.len() as u64;
        let mut requests = Vec::with_capacity(fetched.len());
        let mut names = Vec::with_capacity(fetched.len());
        let mut restored = Vec::with_capacity(fetched.len());
        for index in fetched {
            let mut meta = index.contents.meta;
            let aliases = std::mem::take(&mut meta.aliases).into_iter();
            meta.aliases = aliases.map(|(name, body)| (self.alias_renaming.rename(&name), body)).collect();
            let is_state = self.is_global_state(&index.name);
            let replaces = is_state && is_replaced(&index.name);
            let mut request = RestoreIndex {
                name: index.name,
                snapshot: self.manifest.uuid,
                meta,
                next_seq_nos: index.contents.shards.iter().map(|shard| shard.next_seq_no).collect(),
                include_aliases: self.request.include_aliases,
                settings: self.request.index_settings.clone(),
                ignored_settings: self.request.ignore_index_settings.clone(),
                is_pending: self.is_early,
            };
            if is_state {
                // They are for the users' indices.
                (request.settings, request.ignored_settings) = Default::default();
            }
            names.push((index.restored.uuid, request.name.clone()));
            requests.push((request, index.restored.uuid, replaces));
            restored.push(index.restored);
        }
        let principal = self.principal.clone();
        let decide = move |metadata: &Metadata| {
            let (mut state, mut all) = (Self::guarded(&principal, metadata), Vec::new());
            for (request, uuid, replaces) in &requests {
                if let Some(replaced) = state.index(&request.name).filter(|_| *replaces) {
                    let (name, uuid) = (Arc::clone(&replaced.name), replaced.uuid);
                    let deleted = [MetadataChange::DeleteIndex { name, uuid }];
                    state = state.apply(&deleted);
                    all.extend(deleted);
                }
                let changes = state.restore_index(request, *uuid)?;
                state = state.apply(&changes);
                all.extend(changes);
            }
            if let Some(global) = &global {
                all.extend(global_changes(&state, global)?);
            }
            Ok(all)
        };
        let engine = Arc::clone(&self.service.inner.engine);
        if restored.is_empty() && !self.request.include_global_state {
            self.import_accounts(accounts).await?;
            return Ok(report);
        }
        // A pipeline never reads again what is before its position.
        let positions = if report.failures.is_empty() { positions } else { Vec::new() };
        let restored = RestoredState { indices: restored, positions };
        let uuids: Vec<Uuid> = names.iter().map(|(uuid, _)| *uuid).collect();
        engine.install_restored(&self.principal, restored, Box::new(decide)).await.map_err(|error| match error {
            StoreError::IndexAlreadyExists { index, .. } => self.fail(format!(
                "cannot restore index [{index}] because an open index with same name already exists in the cluster"
            )),
            other => other.into(),
        })?;
        let imported = self.import_accounts(accounts).await;
        // Behind the accounts, whose rights these documents name.
        self.reload_system_state(&mut report).await;
        // The indices are there, whatever came of the accounts.
        if self.is_early {
            self.copy_restored(names, &mut report).await?;
        } else {
            self.service.end_recoveries(&uuids);
        }
        imported.map(|()| report)
    }

    /// Copies the files of indices that are searched already, and has these take writes. Where the catalog refuses the end, the copies go
    /// on in the background, as after a start.
    async fn copy_restored(&self, names: Vec<(Uuid, String)>, report: &mut RestoreReport) -> Result<()> {
        let mut pending = std::mem::take(&mut *self.pending.lock());
        let segments = |(uuid, _): &(Uuid, String)| (*uuid, pending.remove(uuid).unwrap_or_default());
        let mut left: PendingCopies = names.iter().map(segments).collect();
        let ended = self.copy_indices(names, &mut left, report).await;
        if ended.is_err() && !left.is_empty() {
            let guard = RestoringGuard::begin(&self.service.inner, self.guard.key().clone()).await?;
            self.service.copy_in_background(guard, left);
        }
        ended
    }

    /// Copies the files of indices. An index whose files cannot be copied is deleted, and so are the others unless a part is enough. Deleted
    /// indices leave `left`.
    async fn copy_indices(
        &self,
        names: Vec<(Uuid, String)>,
        left: &mut PendingCopies,
        report: &mut RestoreReport,
    ) -> Result<()> {
        let engine = &self.service.inner.engine;
        let total = names.len();
        for (copied, (uuid, name)) in names.into_iter().enumerate() {
            self.task.set_progress(json!({ "indices": total, "copied": copied }).to_string());
            let copied =
                self.service.copy_segments(&self.repository, &left[&uuid], &|| self.check_transfer()).await;
            let Err(error) = copied else { continue };
            if !self.request.partial || self.check_cancelled().is_err() {
                engine.abandon_restore(&left.keys().copied().collect::<Vec<_>>()).await?;
                left.clear();
                return Err(self.index_error(&name, error));
            }
            engine.abandon_restore(&[uuid]).await?;
            left.remove(&uuid);
            report.indices.retain(|index| *index != name);
            let shards = self.targets.get(&name).map_or(0, |summary| summary.shards);
            let reason = error.to_string();
            report.failures.extend((0..shards).map(|shard| MissingShard {
                index: name.clone(),
                shard,
                reason: reason.clone(),
            }));
            report.successful = report.total - report.failures.len() as u64;
        }
        let uuids: Vec<Uuid> = left.keys().copied().collect();
        engine.complete_restore(&uuids).await?;
        self.service.end_recoveries(&uuids);
        Ok(())
    }

    async fn read_global_state(&self) -> Result<Option<GlobalState>> {
        let Some(file) = self.manifest.global_state.filter(|_| self.request.include_global_state) else {
            return Ok(None);
        };
        let read = self.repository.read_content(file, |read| decode_json(read)).await;
        read.map(Some).map_err(|error| self.fail(format!("the global state is damaged: {error}")))
    }

    /// Refuses accounts where they are not there, and where the caller may not change them.
    fn check_accounts(&self) -> Result<()> {
        if !self.request.include_accounts {
            return Ok(());
        }
        check_rights(&self.principal)?;
        self.service.accounts()?;
        match self.manifest.accounts {
            Some(_) => Ok(()),
            None => Err(self.fail(format!("the snapshot has no feature state [{SECURITY_FEATURE}]"))),
        }
    }

    async fn read_accounts(&self) -> Result<Option<AccountState>> {
        let Some(file) = self.manifest.accounts.filter(|_| self.request.include_accounts) else {
            return Ok(None);
        };
        let read = self.repository.read_content(file, |read| decode_json(read)).await;
        read.map(Some).map_err(|error| self.fail(format!("the accounts are damaged: {error}")))
    }

    /// Puts the accounts, behind the indices: these are refused more often.
    async fn import_accounts(&self, accounts: Option<AccountState>) -> Result<()> {
        let Some(accounts) = accounts else { return Ok(()) };
        let imported = self.service.accounts()?.import(accounts.into_records()).await;
        imported.map_err(|reason| {
            self.fail(format!("the accounts are not restored, while all else of the request is: {reason}"))
        })
    }

    /// Decodes the positions. A position decides what a pipeline never reads, so users without all rights restore none.
    fn decode_positions(&self, global: Option<&GlobalState>) -> Result<Vec<Position>> {
        let Some(global) = global.filter(|_| is_security_administrator(&self.principal)) else {
            return Ok(Vec::new());
        };
        let engine = &self.service.inner.engine;
        let restored = RestoredPosition {
            snapshot: self.manifest.uuid,
            next_frame: 0,
            snapshot_ms: self.manifest.started_ms,
            last_frame: engine.next_frame()?.saturating_sub(1),
        };
        // Rules of a moment ago may have no position yet.
        let has_rules = !engine.positions(FEED_PIPELINE, RULES_READER).is_empty()
            || engine.metadata().index(RULES_INDEX).is_some();
        decode_positions(&global.positions, Some(restored).filter(|_| !has_rules))
            .map_err(|reason| self.fail(format!("the global state is damaged: {reason}")))
    }
}
