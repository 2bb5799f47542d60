//! Actions of policies on the store. Each finds by a check whether it was done before, so that a repetition changes nothing.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use millrace_catalog::access::{Action, Principal};
use millrace_catalog::metadata::{
    CreateIndex, IndexMeta, IndicesOptions, Metadata, MetadataChange, RETENTION_HOLD, RETENTION_HOLDS, Uuid,
    parse_alias_actions,
};
use millrace_engine::Session;
use millrace_runtime::Error as StoreError;
use millrace_snapshot::{CreateSnapshot, Manifest, SnapshotFilter, SnapshotState};
use serde_json::{Map, Value, json};

use crate::decide::{IndexMeasure, is_rollover_due};
use crate::error::{Error, Result};
use crate::index_age::origination_ms;
use crate::managed::{ManagedIndex, Progress};
use crate::policy::{ActionSpec, RolloverConditions, TemplateContext};
use crate::written::{name_that_surely_writes, name_that_writes};
use crate::{LifecycleContext, PolicyMessage, shrink};

/// Settings that name the alias of an index for rollovers; the first that is set counts.
const ROLLOVER_ALIASES: [&str; 3] = [
    "index.plugins.index_state_management.rollover_alias",
    "index.opendistro.index_state_management.rollover_alias",
    "index.lifecycle.rollover_alias",
];
/// Setting of an index that a client has rolled over itself, by writing to another one.
const INDEXING_COMPLETE: &str = "index.lifecycle.indexing_complete";

/// Outcome of an action.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ActionOutcome {
    /// It is done.
    Done {
        /// Message about it.
        message: String,
        /// Time of the rollover, in milliseconds, if the index was rolled over.
        rollover_ms: Option<i64>,
    },
    /// Its condition does not hold yet.
    Pending(String),
    /// The index is deleted.
    Deleted,
}

impl ActionOutcome {
    pub(crate) fn done(message: impl Into<String>) -> Result<Self> {
        Ok(Self::Done { message: message.into(), rollover_ms: None })
    }

    fn rolled_over(message: &str, rollover_ms: i64) -> Result<Self> {
        Ok(Self::Done { message: message.to_owned(), rollover_ms: Some(rollover_ms) })
    }
}

/// Returns the name of the snapshot that an action makes; it is stored before the action begins. Indices of one policy that are captured
/// at the same time get different names.
pub(crate) fn snapshot_name(prefix: &str, now_ms: i64, index: &IndexMeta) -> String {
    let time: DateTime<Utc> = DateTime::from_timestamp_millis(now_ms).unwrap_or_default();
    let uuid = index.uuid.simple().to_string();
    let name = format!("{prefix}-{}-{}", time.format("%Y.%m.%d-%H.%M.%S%.3f"), &uuid[..8]);
    name.to_lowercase()
}

/// Does an action on an index.
///
/// # Errors
/// Why it failed; it may be tried again.
pub(crate) async fn execute(
    context: &LifecycleContext,
    meta: &Arc<IndexMeta>,
    spec: &ActionSpec,
    managed: &ManagedIndex,
    measure: IndexMeasure,
) -> Result<ActionOutcome> {
    let name = &*meta.name;
    let set = |key: &'static str, value: String| update_setting(context, meta, key, value);
    match spec {
        ActionSpec::Rollover(conditions) => roll_over(context, meta, conditions, measure).await,
        ActionSpec::ReadOnly => {
            set("index.blocks.write", "true".into()).await?;
            ActionOutcome::done("Successfully set index to read-only")
        }
        ActionSpec::ReadWrite => {
            set("index.blocks.write", "false".into()).await?;
            ActionOutcome::done("Successfully set index to read-write")
        }
        ActionSpec::IndexPriority(priority) => {
            set("index.priority", priority.to_string()).await?;
            ActionOutcome::done(format!("Successfully set index priority to {priority}"))
        }
        ActionSpec::ReplicaCount(replicas) => {
            set("index.number_of_replicas", replicas.to_string()).await?;
            ActionOutcome::done(format!("Successfully set number_of_replicas to {replicas}"))
        }
        ActionSpec::ForceMerge(segments) => {
            let index = context.engine.index(name)?;
            Session::system(&context.engine).force_merge(&[index], *segments).await?;
            ActionOutcome::done("Successfully completed force merge")
        }
        ActionSpec::Close => {
            change(context, Action::CloseIndex, "POST", &[name, "_close"], |state, now| {
                state.close_indices(name, &any_state(), now)
            })
            .await?;
            ActionOutcome::done("Successfully closed index")
        }
        ActionSpec::Open => {
            change(context, Action::OpenIndex, "POST", &[name, "_open"], |state, now| {
                state.open_indices(name, &any_state(), now)
            })
            .await?;
            ActionOutcome::done("Successfully opened index")
        }
        ActionSpec::Delete if context.engine.metadata().is_held(meta) => {
            Ok(ActionOutcome::Pending(held_by(meta)))
        }
        ActionSpec::Delete => {
            if let Some(name) = name_after_rollover(&context.engine.metadata(), meta, now_ms(context)) {
                return Ok(ActionOutcome::Pending(format!("it was rolled over, but [{name}] writes to it")));
            }
            delete_index(context, meta, name_after_rollover).await?;
            Ok(ActionOutcome::Deleted)
        }
        ActionSpec::Alias(actions) => {
            let actions = alias_actions(name, actions)?;
            change(context, Action::PutAliases, "POST", &["_aliases"], |state, now| {
                state.update_aliases(&actions, now)
            })
            .await?;
            ActionOutcome::done("Successfully updated alias")
        }
        ActionSpec::Snapshot { repository, .. } => take_snapshot(context, managed, meta, repository).await,
        ActionSpec::Shrink(target) => {
            let name = template_context(managed, meta, spec).render(&target.name);
            let shards = target.shards.resolve(u64::from(meta.shards), measure.bytes);
            shrink::shrink(context, meta, managed, (target, &name), shards).await
        }
        ActionSpec::Notification(notification) => {
            let text = template_context(managed, meta, spec).render(&notification.text);
            notify(context, managed, (&notification.webhook, text), "").await?;
            ActionOutcome::done("Successfully sent notification")
        }
    }
}

/// Returns the values of the placeholders of an action's texts.
pub(crate) fn template_context<'a>(
    managed: &'a ManagedIndex,
    meta: &'a IndexMeta,
    spec: &ActionSpec,
) -> TemplateContext<'a> {
    TemplateContext {
        index: &meta.name,
        index_uuid: &managed.id,
        policy_id: &managed.policy_id,
        state: &managed.progress.state,
        action: spec.name(),
        message: &managed.progress.message,
        cause: managed.progress.cause.as_deref().unwrap_or_default(),
    }
}

/// Says by which setting an index is held.
pub(crate) fn held_by(meta: &IndexMeta) -> String {
    format!("held by [{}]", if meta.flag(RETENTION_HOLD) { RETENTION_HOLD } else { RETENTION_HOLDS })
}

fn any_state() -> IndicesOptions {
    IndicesOptions { expand_hidden: true, ..IndicesOptions::open_and_closed() }
}

/// Changes the metadata as the server's own work, and tells the audit if something changed.
pub(crate) async fn change<F>(
    context: &LifecycleContext,
    action: Action,
    method: &'static str,
    path: &[&str],
    decide: F,
) -> Result<()>
where
    F: FnOnce(&Metadata, i64) -> millrace_runtime::Result<Vec<MetadataChange>> + Send,
{
    let (principal, now_ms) = (Principal::system(), context.engine.clock().now_ms());
    let mut changed = false;
    let decided = |state: &Metadata| {
        let changes = decide(state, now_ms)?;
        changed = !changes.is_empty();
        Ok(changes)
    };
    context.engine.change(&principal, decided).await?;
    if changed {
        context.audit(action, method, path);
    }
    Ok(())
}

pub(crate) async fn update_setting(
    context: &LifecycleContext,
    meta: &Arc<IndexMeta>,
    key: &'static str,
    value: String,
) -> Result<()> {
    let name = &*meta.name;
    let body = json!({ key: value });
    change(context, Action::PutSettings, "PUT", &[name, "_settings"], |state, now| {
        // A block of the metadata would keep the policy from its work for ever.
        match state.index(name) {
            Some(current) if current.settings.get(key) == body.get(key) => Ok(Vec::new()),
            _ => state.update_settings(name, &any_state(), &body, false, now),
        }
    })
    .await
}

/// Returns a name that writes to an index although a rollover is on its record: aliases were put back, or are those of a shrunken index.
fn name_after_rollover<'a>(metadata: &Metadata, meta: &'a IndexMeta, now_ms: i64) -> Option<&'a str> {
    surely_written_by(metadata, meta, now_ms).filter(|_| meta.last_rollover_ms().is_some())
}

fn surely_written_by<'a>(metadata: &Metadata, meta: &'a IndexMeta, now_ms: i64) -> Option<&'a str> {
    name_that_surely_writes(metadata, meta, rollover_target(meta).ok(), now_ms)
}

fn now_ms(context: &LifecycleContext) -> i64 {
    context.engine.clock().now_ms()
}

/// Deletes an index, if it is still the one that is meant. One that is held, that `written_by` finds a name for, and the write index of a
/// data stream, is not.
///
/// # Errors
/// Why it is not deleted.
pub(crate) async fn delete_index(
    context: &LifecycleContext,
    meta: &Arc<IndexMeta>,
    written_by: for<'a> fn(&Metadata, &'a IndexMeta, i64) -> Option<&'a str>,
) -> Result<()> {
    let name = &*meta.name;
    change(context, Action::DeleteIndex, "DELETE", &[name], |state, now| match state.index(name) {
        Some(current) if current.uuid == meta.uuid && state.is_held(current) => {
            Err(StoreError::IllegalArgument(format!("index [{name}] is not deleted: {}", held_by(current))))
        }
        Some(current) if current.uuid == meta.uuid => match written_by(state, current, now) {
            Some(by) => Err(StoreError::IllegalArgument(format!(
                "index [{name}] is not deleted: [{by}] writes to it"
            ))),
            None => state.delete_indices(name, &any_state(), now),
        },
        _ => Ok(Vec::new()),
    })
    .await
}

fn alias_actions(index: &str, actions: &[Value]) -> Result<Vec<millrace_catalog::metadata::AliasAction>> {
    let mut actions = actions.to_vec();
    for body in actions.iter_mut().filter_map(Value::as_object_mut).flat_map(|verbs| verbs.values_mut()) {
        body["index"] = index.into();
        // What a crash has left done is no error.
        if let Some(members) = body.as_object_mut() {
            members.entry("must_exist").or_insert(false.into());
        }
    }
    Ok(parse_alias_actions(&json!({ "actions": actions }))?)
}

/// Returns the name that an index is rolled over by: its data stream, or the alias of its settings.
fn rollover_target(meta: &IndexMeta) -> Result<&str> {
    let alias = || ROLLOVER_ALIASES.iter().find_map(|key| meta.setting(key));
    meta.data_stream()
        .or_else(alias)
        .ok_or_else(|| Error::Invalid(format!("Missing rollover_alias index setting [index={}]", meta.name)))
}

/// Returns the time of the rollover of an index that was rolled over, in milliseconds; `None` where it is to be rolled over.
///
/// # Errors
/// An index that its alias does not write to, and that no rollover has ended: others may write to it by its name, and a transition by the
/// age of the rollover would delete it.
fn past_rollover(
    state: &Metadata,
    meta: &IndexMeta,
    target: &str,
    now_ms: i64,
) -> millrace_runtime::Result<Option<i64>> {
    let refuse = |reason: String| Err(StoreError::IllegalArgument(reason));
    let name = &meta.name;
    let written = state.write_index(target, now_ms);
    let is_written = matches!(&written, Ok(Some(written)) if written.uuid == meta.uuid);
    // Aliases may have been put back.
    if let Some(time) = meta.rollover_ms(target).filter(|_| !is_written) {
        return Ok(Some(time));
    }
    let written = written?;
    if meta.flag(INDEXING_COMPLETE) {
        return match is_written {
            true => refuse(format!(
                "index [{name}] has [{INDEXING_COMPLETE}] set to [true], but is still the write index of [{target}]"
            )),
            false => Ok(Some(now_ms)),
        };
    }
    // A rollover of an earlier version left no record.
    let is_behind = meta.data_stream() == Some(target)
        || meta.aliases.get(target).is_some_and(|alias| alias["is_write_index"] == false);
    match written {
        Some(_) if is_written => Ok(None),
        Some(written) if *written.name == *target => {
            refuse(format!("rollover target [{target}] is an index; an alias or a data stream was expected"))
        }
        Some(_) if is_behind => Ok(Some(now_ms)),
        Some(_) if meta.aliases.contains_key(target) => {
            refuse(format!("index [{name}] is not the write index of alias [{target}]"))
        }
        Some(_) => refuse(format!("rollover alias [{target}] does not point to index [{name}]")),
        None => refuse(format!("rollover target [{target}] does not exist")),
    }
}

async fn roll_over(
    context: &LifecycleContext,
    meta: &Arc<IndexMeta>,
    conditions: &RolloverConditions,
    measure: IndexMeasure,
) -> Result<ActionOutcome> {
    let skips = [
        "index.plugins.index_state_management.rollover_skip",
        "index.opendistro.index_state_management.rollover_skip",
    ];
    if skips.iter().any(|key| meta.flag(key)) {
        return ActionOutcome::done("Skipped rollover action for this index");
    }
    const ALREADY: &str = "This index has already been rolled over";
    let target = match (rollover_target(meta), meta.last_rollover_ms()) {
        (Ok(target), _) => target,
        // A shrunken backing index has the rollover of its source, and no stream.
        (Err(_), Some(time)) => return ActionOutcome::rolled_over(ALREADY, time),
        (Err(error), None) => return Err(error),
    };
    let now_ms = now_ms(context);
    if let Some(time) = past_rollover(&context.engine.metadata(), meta, target, now_ms)? {
        return ActionOutcome::rolled_over(ALREADY, time);
    }
    if conditions.prevent_empty && measure.docs == 0 {
        return Ok(ActionOutcome::Pending("The index has no documents".to_owned()));
    }
    if !is_rollover_due(conditions, measure, now_ms) {
        return Ok(ActionOutcome::Pending("Rollover conditions not met".to_owned()));
    }
    let mut aliases = meta.aliases.clone();
    aliases.remove(target);
    if !conditions.copy_alias {
        aliases.clear();
    }
    let mut rollover_ms = now_ms;
    change(context, Action::Rollover, "POST", &[target, "_rollover"], |state, now| {
        let Some(current) = state.index(&meta.name).filter(|current| current.uuid == meta.uuid) else {
            return Err(StoreError::IndexNotFound { index: meta.name.to_string() });
        };
        // Another request may have rolled it over meanwhile.
        if let Some(time) = past_rollover(state, current, target, now)? {
            rollover_ms = time;
            return Ok(Vec::new());
        }
        rollover_ms = now;
        let plan = state.plan_rollover(target, None, now)?;
        state.roll_over(&plan, &CreateIndex { aliases, ..CreateIndex::default() }, now, Uuid::new_v4())
    })
    .await?;
    ActionOutcome::rolled_over("Successfully rolled over index", rollover_ms)
}

/// Sends a message about the current action. Its key ends with `kind` and is the same in each try, so that its receiver knows a repetition.
pub(crate) async fn notify(
    context: &LifecycleContext,
    managed: &ManagedIndex,
    (webhook, text): (&Map<String, Value>, String),
    kind: &str,
) -> Result<()> {
    let Progress { state, position, action_ms, .. } = &managed.progress;
    let message = PolicyMessage {
        key: format!("{}/{state}/{position}/{}{kind}", managed.id, action_ms.unwrap_or_default()),
        policy_id: managed.policy_id.clone(),
        subject: format!("policy [{}]: index [{}]", managed.policy_id, managed.index),
        text,
        webhook: webhook.clone(),
    };
    context.send(&message).await.map_err(Error::Notification)
}

/// Makes the snapshot of the progress, if it is not there with all of the index.
async fn take_snapshot(
    context: &LifecycleContext,
    managed: &ManagedIndex,
    meta: &IndexMeta,
    repository: &str,
) -> Result<ActionOutcome> {
    let service = &context.snapshots;
    let snapshot = managed.progress.snapshot.as_deref().unwrap_or_default();
    // By what the owner may do now: a policy brings nobody rights.
    let owner = context.owner_of(&managed.policy_id, &managed.policy).await?;
    if !owner.privileges().allows(Action::CreateSnapshot) {
        let (action, caller) = (Action::CreateSnapshot.name(), owner.caller().to_string());
        return Err(StoreError::Unauthorized { action, caller, index: None }.into());
    }
    let filter = SnapshotFilter { expression: snapshot.to_owned(), ignore_unavailable: true };
    let made = match service.manifests(repository, &filter).await?.into_iter().next() {
        Some(made) => made,
        None => {
            let request = CreateSnapshot {
                indices: Some(meta.name.to_string()),
                include_global_state: false,
                ..CreateSnapshot::default()
            };
            let made = service.create(&owner, (repository, snapshot), request).await?;
            context.audit(Action::CreateSnapshot, "PUT", &["_snapshot", repository, snapshot]);
            made
        }
    };
    if !holds_index(&made, meta) {
        return Err(Error::ForeignSnapshot {
            snapshot: format!("{repository}:{snapshot}"),
            index: meta.name.to_string(),
        });
    }
    ActionOutcome::done(format!("Successfully created snapshot [{snapshot}]"))
}

/// Returns whether a snapshot has all of an index.
fn holds_index(manifest: &Manifest, meta: &IndexMeta) -> bool {
    manifest.state == SnapshotState::Success && manifest.indices.iter().any(|index| index.uuid == meta.uuid)
}

/// Takes the figures of an index.
pub(crate) fn measure(context: &LifecycleContext, meta: &IndexMeta) -> IndexMeasure {
    let (metadata, now_ms) = (context.engine.metadata(), context.engine.clock().now_ms());
    let may_be_written = name_that_writes(&metadata, meta, now_ms).is_some();
    let mut measure = IndexMeasure {
        created_ms: meta.created_ms,
        origination_ms: origination_ms(meta),
        rollover_ms: meta.last_rollover_ms().filter(|_| !may_be_written),
        is_written: surely_written_by(&metadata, meta, now_ms).is_some(),
        ..IndexMeasure::default()
    };
    let Ok(index) = context.engine.index(&meta.name) else { return measure };
    for shard in &index.figures().shards {
        let bytes = shard.bytes();
        measure.docs += shard.docs;
        measure.bytes += bytes;
        measure.largest_shard = measure.largest_shard.max(bytes);
    }
    measure
}
