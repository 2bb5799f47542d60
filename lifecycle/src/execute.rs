//! Actions of policies on the store. Each finds by a check whether it was done before, so that a repetition changes nothing.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use millrace_catalog::access::{Action, Principal};
use millrace_catalog::metadata::{
    CreateIndex, IndexMeta, IndicesOptions, Metadata, MetadataChange, Uuid, parse_alias_actions,
};
use millrace_engine::Session;
use millrace_runtime::Error as StoreError;
use millrace_snapshot::{CreateSnapshot, SnapshotFilter};
use serde_json::{Map, Value, json};

use crate::decide::{IndexMeasure, is_rollover_due};
use crate::error::{Error, Result};
use crate::managed::{ManagedIndex, Progress};
use crate::policy::{ActionSpec, RolloverConditions, TemplateContext};
use crate::{LifecycleContext, PolicyMessage, shrink};

/// Settings that name the alias of an index for rollovers; the first that is set counts.
const ROLLOVER_ALIASES: [&str; 3] = [
    "index.plugins.index_state_management.rollover_alias",
    "index.opendistro.index_state_management.rollover_alias",
    "index.lifecycle.rollover_alias",
];
/// Setting that keeps an index from deletion by policies and by retention.
pub const RETENTION_HOLD: &str = "index.retention.hold";

/// Outcome of an action.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ActionOutcome {
    /// It is done.
    Done {
        /// Message about it.
        message: String,
        /// `true` if the index was rolled over.
        rolled_over: bool,
    },
    /// Its condition does not hold yet.
    Pending(String),
    /// The index is deleted.
    Deleted,
}

impl ActionOutcome {
    pub(crate) fn done(message: impl Into<String>) -> Result<Self> {
        Ok(Self::Done { message: message.into(), rolled_over: false })
    }
}

/// Returns the name of the snapshot that an action makes; it is stored before the action begins.
pub(crate) fn snapshot_name(prefix: &str, now_ms: i64) -> String {
    let time: DateTime<Utc> = DateTime::from_timestamp_millis(now_ms).unwrap_or_default();
    format!("{prefix}-{}", time.format("%Y.%m.%d-%H.%M.%S%.3f")).to_lowercase()
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
        ActionSpec::Delete if meta.flag(RETENTION_HOLD) => {
            Ok(ActionOutcome::Pending(format!("held by [{RETENTION_HOLD}]")))
        }
        ActionSpec::Delete => {
            delete_index(context, meta).await?;
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
        ActionSpec::Snapshot { repository, .. } => take_snapshot(context, managed, name, repository).await,
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

/// Returns whether documents of an index may be written.
pub(crate) fn accepts_writes(meta: &IndexMeta) -> bool {
    !meta.flag("index.blocks.write") && !meta.flag("index.blocks.read_only")
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

/// Deletes an index, if it is still the one that is meant. One that is held, and a write index, is not.
///
/// # Errors
/// Why it is not deleted.
pub(crate) async fn delete_index(context: &LifecycleContext, meta: &Arc<IndexMeta>) -> Result<()> {
    let name = &*meta.name;
    change(context, Action::DeleteIndex, "DELETE", &[name], |state, now| match state.index(name) {
        Some(current) if current.uuid == meta.uuid && current.flag(RETENTION_HOLD) => {
            Err(StoreError::IllegalArgument(format!(
                "index [{name}] is not deleted: its setting [{RETENTION_HOLD}] is [true]"
            )))
        }
        Some(current) if current.uuid == meta.uuid => state.delete_indices(name, &any_state(), now),
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
    let target = rollover_target(meta)?;
    let now_ms = context.engine.clock().now_ms();
    let done = |message: &str| Ok(ActionOutcome::Done { message: message.to_owned(), rolled_over: true });
    let is_written = |state: &Metadata| -> millrace_runtime::Result<bool> {
        // A missing alias is no rollover: a transition by the age of the rollover would delete the live index.
        match state.write_index(target, now_ms)? {
            Some(written) => Ok(written.uuid == meta.uuid),
            None => Err(StoreError::IllegalArgument(format!("rollover target [{target}] does not exist"))),
        }
    };
    if !is_written(&context.engine.metadata())? {
        return done("This index has already been rolled over");
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
    change(context, Action::Rollover, "POST", &[target, "_rollover"], |state, now| {
        // Another request may have rolled it over meanwhile.
        if !is_written(state)? {
            return Ok(Vec::new());
        }
        let plan = state.plan_rollover(target, None, now)?;
        state.roll_over(&plan, &CreateIndex { aliases, ..CreateIndex::default() }, now, Uuid::new_v4())
    })
    .await?;
    done("Successfully rolled over index")
}

/// Sends a message about the current action. Its key ends with `kind` and is the same in each try, so that its receiver knows a repetition.
pub(crate) async fn notify(
    context: &LifecycleContext,
    managed: &ManagedIndex,
    (webhook, text): (&Map<String, Value>, String),
    kind: &str,
) -> Result<()> {
    let Some(notifier) = &context.hooks.notifier else {
        return Err(Error::Notification("this server sends none".to_owned()));
    };
    let Progress { state, position, action_ms, .. } = &managed.progress;
    let message = PolicyMessage {
        key: format!("{}/{state}/{position}/{}{kind}", managed.id, action_ms.unwrap_or_default()),
        policy_id: managed.policy_id.clone(),
        subject: format!("policy [{}]: index [{}]", managed.policy_id, managed.index),
        text,
        webhook: webhook.clone(),
    };
    notifier.send(&message).await.map_err(Error::Notification)
}

async fn take_snapshot(
    context: &LifecycleContext,
    managed: &ManagedIndex,
    index: &str,
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
    let exists = !service.manifests(repository, &filter).await?.is_empty();
    if !exists {
        let request = CreateSnapshot {
            indices: Some(index.to_owned()),
            include_global_state: false,
            ..CreateSnapshot::default()
        };
        service.create(&owner, (repository, snapshot), request).await?;
        context.audit(Action::CreateSnapshot, "PUT", &["_snapshot", repository, snapshot]);
    }
    ActionOutcome::done(format!("Successfully created snapshot [{snapshot}]"))
}

/// Takes the figures of an index.
pub(crate) fn measure(context: &LifecycleContext, meta: &IndexMeta) -> IndexMeasure {
    let mut measure = IndexMeasure { created_ms: meta.created_ms, ..IndexMeasure::default() };
    let Ok(index) = context.engine.index(&meta.name) else { return measure };
    for shard in &index.figures().shards {
        let bytes = shard.bytes();
        measure.docs += shard.docs;
        measure.bytes += bytes;
        measure.largest_shard = measure.largest_shard.max(bytes);
    }
    measure
}
