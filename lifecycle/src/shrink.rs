//! The action `shrink`: blocks writes to an index, and copies its documents into one with fewer shards.
//!
//! The target is found by its name and the uuid of its source, so that a repetition does not copy again. A start deletes the target
//! that a crash left unfinished. The source stays blocked: its documents and those of the target are not to part.

use std::sync::Arc;

use millrace_catalog::access::Action;
use millrace_catalog::metadata::{
    IndexMeta, Metadata, RESIZE_PENDING, ResizeIndex, ResizeKind, parse_alias_actions,
};
use millrace_engine::Session;
use millrace_runtime::Error as StoreError;
use serde_json::{Value, json};

use crate::LifecycleContext;
use crate::error::{Error, Result};
use crate::execute::{ActionOutcome, accepts_writes, change, update_setting};
use crate::managed::ManagedIndex;
use crate::policy::ShrinkTarget;

/// Setting that keeps documents of an index as they are.
const WRITE_BLOCK: &str = "index.blocks.write";

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
    if !is_shrunken(&context.engine.metadata(), meta, name)? {
        let copied = copy(context, meta, managed, (target, name), shards).await;
        if copied.is_err() && was_writable {
            let unblocked = update_setting(context, meta, WRITE_BLOCK, "false".to_owned()).await;
            if let Err(error) = unblocked {
                tracing::warn!(%error, index = %meta.name, "a failed shrink cannot lift its block of writes");
            }
        }
        copied?;
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
        Some(existing) if existing.setting("index.resize.source.uuid") != Some(meta.uuid_text().as_str()) => {
            let uuid = existing.uuid_text();
            Err(StoreError::IndexAlreadyExists { index: name.to_owned(), uuid }.into())
        }
        Some(existing) if existing.flag(RESIZE_PENDING) => {
            Err(Error::Invalid(format!("index [{name}] is being made by another request")))
        }
        // Documents may have come since that target was made.
        Some(existing) if accepts_writes(meta) => {
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
    for (alias, body) in &current.aliases {
        let mut add = body.clone();
        if !add.is_object() {
            add = json!({});
        }
        add["index"] = name.into();
        add["alias"] = alias.as_str().into();
        actions.push(json!({ "remove": { "index": &*meta.name, "alias": alias } }));
        actions.push(json!({ "add": add }));
    }
    let actions = parse_alias_actions(&json!({ "actions": actions }))?;
    change(context, Action::PutAliases, "POST", &["_aliases"], |state, now| {
        state.update_aliases(&actions, now)
    })
    .await
}
