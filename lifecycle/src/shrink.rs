//! The action `shrink`: blocks writes to an index, and copies its documents into one with fewer shards.
//!
//! The target is found by its name and the uuid of its source, so that a repetition does not copy again. A start deletes the target
//! that a crash left unfinished. The source stays blocked: its documents and those of the target are not to part. With `replace_source` one
//! change of the metadata deletes the source and gives the target its aliases and its name: no search by these finds a document twice or not
//! at all. The target records the sequence numbers that its copy went up to; a source that has others now is not deleted.

use std::sync::Arc;

use millrace_catalog::access::Action;
use millrace_catalog::metadata::{
    AliasAction, IndexMeta, Metadata, RESIZE_PENDING, ResizeIndex, ResizeKind, parse_alias_actions,
};
use millrace_engine::{Index, Session};
use millrace_runtime::Error as StoreError;
use serde_json::{Value, json};

use crate::LifecycleContext;
use crate::error::{Error, Result};
use crate::execute::{ActionOutcome, change, held_by, update_setting};
use crate::index_age::{ORIGINATION_DATE, origination_ms};
use crate::managed::ManagedIndex;
use crate::policy::ShrinkTarget;

/// Setting that keeps documents of an index as they are.
const WRITE_BLOCK: &str = "index.blocks.write";
/// Setting that names the policy of the target that takes the place of its source.
const POLICY_ID: &str = "index.plugins.index_state_management.policy_id";

/// Shrinks an index into a target of so many shards, with the rights of the policy's owner.
///
/// # Errors
/// The reason of the failure. Where the copy failed, the target is gone, and the block of the action is lifted.
pub(crate) async fn shrink(
    context: &LifecycleContext,
    meta: &Arc<IndexMeta>,
    managed: &ManagedIndex,
    (target, name): (&ShrinkTarget, &str),
    shards: u64,
) -> Result<ActionOutcome> {
    // The action has blocked the writes itself.
    let was_writable = managed.progress.was_writable;
    if shards >= u64::from(meta.shards) {
        let count = meta.shards;
        return ActionOutcome::done(format!("Skipped shrink action: the index has {count} shards already"));
    }
    if target.replace_source {
        if let Some(stream) = meta.data_stream() {
            return ActionOutcome::done(format!(
                "Skipped shrink action: the index backs data stream [{stream}], which would lose its documents"
            ));
        }
        if context.engine.metadata().is_held(meta) {
            return Ok(ActionOutcome::Pending(held_by(meta)));
        }
    }
    let is_new_copy = !is_shrunken(&context.engine.metadata(), meta, name)?;
    if is_new_copy {
        let copied = copy(context, meta, managed, (target, name), shards).await;
        if copied.is_err() && was_writable {
            let unblocked = update_setting(context, meta, WRITE_BLOCK, "false".to_owned()).await;
            if let Err(error) = unblocked {
                tracing::warn!(%error, index = %meta.name, "a failed shrink cannot lift its block of writes");
            }
        }
        copied?;
    } else {
        let source = context.engine.index(&meta.name)?;
        check_unwritten(&context.engine.metadata(), &source, name)?;
    }
    if target.replace_source {
        return replace_source(context, meta, name, is_new_copy).await;
    }
    if target.switch_aliases {
        switch_aliases(context, meta, name).await?;
    }
    ActionOutcome::done(format!("Successfully shrank index to [{name}] with {shards} shards"))
}

/// Returns whether the target is there with all documents.
fn is_shrunken(metadata: &Metadata, meta: &IndexMeta, name: &str) -> Result<bool> {
    match metadata.index(name) {
        None => Ok(false),
        Some(existing) if !existing.is_resized_from(meta) => {
            let uuid = existing.uuid_text();
            Err(StoreError::IndexAlreadyExists { index: name.to_owned(), uuid }.into())
        }
        Some(existing) if existing.flag(RESIZE_PENDING) => {
            Err(Error::Invalid(format!("index [{name}] is being made by another request")))
        }
        // Documents may have come since that target was made.
        Some(existing) if !meta.is_write_blocked() => {
            let uuid = existing.uuid_text();
            Err(StoreError::IndexAlreadyExists { index: name.to_owned(), uuid }.into())
        }
        Some(_) => Ok(true),
    }
}

async fn copy(
    context: &LifecycleContext,
    meta: &Arc<IndexMeta>,
    managed: &ManagedIndex,
    (target, name): (&ShrinkTarget, &str),
    shards: u64,
) -> Result<()> {
    let was_writable = managed.progress.was_writable;
    // By what the owner may do now: a copy under another name is not to give away documents.
    let owner = context.owner_of(&managed.policy_id, &managed.policy).await?;
    if was_writable {
        update_setting(context, meta, WRITE_BLOCK, "true".to_owned()).await?;
    }
    let mut settings = json!({ "index.number_of_shards": shards.to_string() });
    if was_writable {
        // The block is the action's; the target takes writes as its source did.
        settings[WRITE_BLOCK] = Value::Null;
    }
    if target.replace_source {
        settings[POLICY_ID] = managed.policy_id.as_str().into();
        // Its age goes on, also where it comes from the name of the source.
        let since_ms =
            origination_ms(meta).or_else(|| meta.last_rollover_ms()).or(managed.progress.rollover_ms);
        settings[ORIGINATION_DATE] = since_ms.unwrap_or(meta.created_ms).to_string().into();
    }
    let body = json!({ "settings": settings, "aliases": target.aliases });
    let request = ResizeIndex::parse(ResizeKind::Shrink, &meta.name, name, &body)?;
    Session::new(&context.engine, owner, Action::Resize)?.resize(&request).await?;
    context.audit(Action::Resize, "POST", &[&meta.name, "_shrink", name]);
    Ok(())
}

/// Moves the aliases of the source to the target.
async fn switch_aliases(context: &LifecycleContext, meta: &IndexMeta, name: &str) -> Result<()> {
    let metadata = context.engine.metadata();
    let Some(current) = metadata.index(&meta.name) else { return Ok(()) };
    if current.aliases.is_empty() {
        return Ok(());
    }
    let mut actions: Vec<Value> = Vec::new();
    for add in added_aliases(current, name) {
        actions.push(json!({ "remove": { "index": &*meta.name, "alias": &add["alias"] } }));
        actions.push(json!({ "add": add }));
    }
    let actions = parse_alias_actions(&json!({ "actions": actions }))?;
    change(context, Action::PutAliases, "POST", &["_aliases"], |state, now| {
        state.update_aliases(&actions, now)
    })
    .await
}

/// Returns the aliases of an index as actions that give them to another one.
fn added_aliases(source: &IndexMeta, target: &str) -> Vec<Value> {
    let added = source.aliases.iter().map(|(alias, body)| {
        let mut add = if body.is_object() { body.clone() } else { json!({}) };
        add["index"] = target.into();
        add["alias"] = alias.as_str().into();
        add
    });
    added.collect()
}

/// End of the replacement of a source.
enum Replacement {
    Done,
    Held(String),
    /// The source is gone, and with it the copy that was made of it.
    SourceGone,
}

/// Deletes the source, and gives the target its aliases and its name. A target that this action has copied goes with a source that was
/// deleted meanwhile: what a user has deleted does not come back.
async fn replace_source(
    context: &LifecycleContext,
    meta: &Arc<IndexMeta>,
    name: &str,
    is_new_copy: bool,
) -> Result<ActionOutcome> {
    let source = &*meta.name;
    let index = context.engine.index(source);
    let mut replacement = Replacement::Done;
    change(context, Action::PutAliases, "POST", &["_aliases"], |state, now| {
        let Some(current) = state.index(source).filter(|current| current.uuid == meta.uuid) else {
            replacement = Replacement::SourceGone;
            return Ok(Vec::new());
        };
        if state.is_held(current) {
            replacement = Replacement::Held(held_by(current));
            return Ok(Vec::new());
        }
        if !is_shrunken(state, current, name).unwrap_or(false) {
            let reason = format!("index [{name}] does not have all documents of [{source}] any more; retry");
            return Err(StoreError::Rejected(reason));
        }
        match &index {
            Ok(index) => check_unwritten(state, index, name)?,
            Err(error) => return Err(StoreError::Rejected(error.to_string())),
        }
        state.update_aliases(&replacing_actions(current, name)?, now)
    })
    .await?;
    match replacement {
        Replacement::Held(reason) => return Ok(ActionOutcome::Pending(reason)),
        Replacement::Done => context.audit(Action::DeleteIndex, "DELETE", &[source]),
        Replacement::SourceGone => {
            tracing::info!(index = source, target = name, "an index was deleted while its policy shrank it");
            change(context, Action::DeleteIndex, "DELETE", &[name], |state, _| {
                let copy = state.index(name).filter(|copy| is_new_copy && copy.is_resized_from(meta));
                Ok(copy.map(|copy| state.delete_unfinished(Some(copy))).unwrap_or_default())
            })
            .await?;
        }
    }
    Ok(ActionOutcome::Deleted)
}

/// Refuses a target whose source has taken writes since the copy: a block that was lifted and set again let them through.
fn check_unwritten(metadata: &Metadata, source: &Index, target: &str) -> millrace_runtime::Result<()> {
    let copied = metadata.index(target).and_then(|target| target.copied_seq_nos());
    if copied.is_some_and(|copied| copied == source.next_seq_nos()) {
        return Ok(());
    }
    Err(StoreError::IllegalArgument(format!(
        "index [{target}] does not have all documents of [{}], or an earlier version made it; delete [{target}] and retry",
        source.meta().name
    )))
}

fn replacing_actions(source: &IndexMeta, target: &str) -> millrace_runtime::Result<Vec<AliasAction>> {
    let mut actions: Vec<Value> =
        added_aliases(source, target).into_iter().map(|add| json!({ "add": add })).collect();
    // By its name it was searched; it took no more writes.
    actions.push(json!({ "add": { "index": target, "alias": &*source.name, "is_write_index": false } }));
    actions.push(json!({ "remove_index": { "index": &*source.name } }));
    parse_alias_actions(&json!({ "actions": actions }))
}
