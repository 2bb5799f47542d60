//! The write path: resolve, parse, decide versions, log, apply, fsync, acknowledge.
//!
//! A request is executed in *rounds*: a round is one frame of the log with operations on any number
//! of shards. All but partial updates go into the first round; an update first reads its document
//! and goes into the round after the last one that touches the same id, as an index operation that
//! expects the document unchanged.

use std::collections::hash_map::Entry as Place;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

use super::Engine;
use super::index::{Index, durable_acknowledgement};
use super::round::Prepared;
use super::types::{Action, DocResult, RefreshPolicy, Update, WriteOp, WriteOutcome};
use crate::metadata::BlockLevel;
use crate::shard::{Shard, Wanted};
use crate::wal::FrameNumber;
use crate::{Error, Lane, Principal, Result};

impl Engine {
    /// Executes operations in order and acknowledges those that are durable: one result an
    /// operation. Missing indices are created where `action.auto_create_index` allows.
    ///
    /// # Errors
    /// The outer error is for the request as a whole: overload, a full disk, shutdown.
    pub async fn write(
        &self,
        principal: &Principal,
        ops: Vec<WriteOp>,
        refresh: RefreshPolicy,
        timeout: Duration,
    ) -> Result<Vec<Result<WriteOutcome>>> {
        let inner = &self.inner;
        inner.check_accepting()?;
        let bytes = ops.iter().map(|op| op_bytes(op) as u64).sum::<u64>();
        inner.wal()?.admit(bytes)?;
        let reserved = inner.budget.reserve(bytes, timeout).await?;
        let targets = self.targets(principal, &ops).await;
        let has_updates = ops.iter().any(|op| matches!(op.action, Action::Update(_)));
        let (results, written) = if has_updates {
            self.write_rounds(ops, &targets).await?
        } else {
            self.write_at_once(ops, targets).await?
        };
        drop(reserved);
        self.after_write(&written, refresh).await?;
        Ok(results
            .into_iter()
            .map(|r| r.unwrap_or_else(|| Err(Error::Internal("operation was lost".to_owned()))))
            .collect())
    }

    /// Finds the indices that the operations name, in their order, and creates those that are missing.
    async fn targets(&self, principal: &Principal, ops: &[WriteOp]) -> Targets {
        // An index comes into being by an operation that can leave something in it, wherever that
        // operation stands in the request; mere deletions do not create one.
        let creating: Option<HashSet<Arc<str>>> = ops
            .iter()
            .any(|op| !may_create(op))
            .then(|| ops.iter().filter(|op| may_create(op)).map(|op| Arc::clone(&op.index)).collect());
        let mut targets = Targets::default();
        let mut last: Option<&WriteOp> = None;
        for op in ops {
            let same = |last: &WriteOp| {
                Arc::ptr_eq(&last.index, &op.index) && last.require_alias == op.require_alias
            };
            if last.replace(op).is_some_and(same) {
                continue;
            }
            if let Place::Vacant(place) = targets.entry((Arc::clone(&op.index), op.require_alias)) {
                let create = creating.as_ref().is_none_or(|names| names.contains(&op.index));
                place.insert(self.target(principal, &op.index, op.require_alias, create).await);
            }
        }
        targets
    }

    /// Executes operations without partial updates: one round, all of it on a compute thread.
    async fn write_at_once(&self, ops: Vec<WriteOp>, targets: Targets) -> Result<(Results, Written)> {
        let inner = Arc::clone(&self.inner);
        let job = move || {
            let mut results: Results = ops.iter().map(|_| None).collect();
            let mut round = Vec::with_capacity(ops.len());
            let mut written = Written::default();
            for (item, mut op) in ops.into_iter().enumerate() {
                match admit(&targets, &mut op) {
                    Ok(index) => round.push(prepare(item, index, op)),
                    Err(error) => results[item] = Some(Err(error)),
                }
            }
            let wait = written.note(&round)?;
            let mut frame = None;
            if !round.is_empty() {
                let (number, outcomes) = inner.execute(round)?;
                frame = number.filter(|_| wait);
                for (item, outcome) in outcomes {
                    results[item] = Some(outcome);
                }
            }
            Ok((frame, results, written))
        };
        let (frame, results, written) = self.inner.env().compute.run(Lane::Ingest, job).await?;
        self.executed(frame).await?;
        Ok((results, written))
    }

    /// Executes operations with partial updates among them, in as many rounds as it takes.
    async fn write_rounds(&self, ops: Vec<WriteOp>, targets: &Targets) -> Result<(Results, Written)> {
        let mut results: Results = ops.iter().map(|_| None).collect();
        let mut round = Vec::with_capacity(ops.len());
        let mut touched: HashSet<(Arc<str>, String)> = HashSet::new();
        let mut written = Written::default();
        for (item, mut op) in ops.into_iter().enumerate() {
            let index = match admit(targets, &mut op) {
                Ok(index) => index,
                Err(error) => {
                    results[item] = Some(Err(error));
                    continue;
                }
            };
            if let Action::Update(update) = &op.action {
                let id = op.id.clone().unwrap_or_default();
                if touched.contains(&(index.meta().name.clone(), id.clone())) {
                    self.round(std::mem::take(&mut round), &mut results, &mut written).await?;
                    touched.clear();
                }
                match self.prepare_update(item, &index, &op, update).await {
                    Ok(Ok(prepared)) => {
                        touched.insert((index.meta().name.clone(), id));
                        round.push(prepared);
                    }
                    Ok(Err(noop)) => results[item] = Some(Ok(noop)),
                    Err(error) => results[item] = Some(Err(error)),
                }
                // Retries of a lost race need the update again, so it is executed by itself.
                if update.retry_on_conflict > 0 {
                    self.round(std::mem::take(&mut round), &mut results, &mut written).await?;
                    touched.clear();
                    self.retry_update(item, &index, &op, update, &mut results, &mut written).await?;
                }
                continue;
            }
            if let Some(id) = &op.id {
                touched.insert((index.meta().name.clone(), id.clone()));
            }
            round.push(prepare(item, index, op));
        }
        self.round(round, &mut results, &mut written).await?;
        Ok((results, written))
    }

    /// Finds the index that writes to a name go to; `create`: a missing one is created.
    async fn target(
        &self,
        principal: &Principal,
        name: &Arc<str>,
        require_alias: bool,
        create: bool,
    ) -> Result<Target> {
        let now_ms = self.inner.clock.now_ms();
        let metadata = self.metadata();
        if require_alias && metadata.indices.contains_key(name) {
            return Err(Error::IndexNotFound {
                index: format!(
                    "{name}] and [require_alias] request flag is [true] and [{name}] is not an alias"
                ),
            });
        }
        if let Some(meta) = metadata.write_index(name, now_ms)? {
            return Ok(Target::new(self.index(&meta.name)?, name));
        }
        if require_alias {
            return Err(Error::IndexNotFound {
                index: format!(
                    "{name}] and [require_alias] request flag is [true] and [{name}] is not an alias"
                ),
            });
        }
        if !create {
            return Err(Error::IndexNotFound { index: name.to_string() });
        }
        metadata.auto_create_allowed(name)?;
        let created = self
            .change(principal, |metadata| {
                // Another request may have been first.
                if metadata.write_index(name, now_ms)?.is_some() {
                    return Ok(Vec::new());
                }
                metadata.create_index(name, &Value::Null, now_ms, uuid::Uuid::new_v4())
            })
            .await;
        created?;
        match self.metadata().write_index(name, now_ms)? {
            Some(meta) => Ok(Target::new(self.index(&meta.name)?, name)),
            None => Err(Error::IndexNotFound { index: name.to_string() }),
        }
    }

    /// Executes a round and files its outcomes.
    async fn round(&self, ops: Vec<Prepared>, results: &mut Results, written: &mut Written) -> Result<()> {
        if ops.is_empty() {
            return Ok(());
        }
        let wait = written.note(&ops)?;
        let inner = Arc::clone(&self.inner);
        let (frame, outcomes) =
            self.inner.env().compute.run(Lane::Ingest, move || inner.execute(ops)).await?;
        self.executed(frame.filter(|_| wait)).await?;
        for (item, outcome) in outcomes {
            results[item] = Some(outcome);
        }
        Ok(())
    }

    /// Waits for the frame of a round where acknowledgements are to wait for it.
    async fn executed(&self, frame: Option<FrameNumber>) -> Result<()> {
        if let Some(frame) = frame {
            self.inner.wal()?.synced(frame).await?;
        }
        self.inner.upkeep.notify_one();
        Ok(())
    }

    /// Reads the document of an update and makes the index operation of it, or the no-op that it is.
    async fn prepare_update(
        &self,
        item: usize,
        index: &Arc<Index>,
        op: &WriteOp,
        update: &Update,
    ) -> Result<Result<Prepared, WriteOutcome>> {
        let id = op.id.clone().unwrap_or_default();
        let number = index.shard_for(Some(&id), op.routing.as_deref());
        let shard = Arc::clone(index.shard(number)?);
        let lookup = id.clone();
        let found = self.inner.env().compute.run(Lane::Foreground, move || shard.get(&lookup, true)).await?;
        let mut wanted = Wanted {
            delete: false,
            create: false,
            version: None,
            if_seq_no: op.if_seq_no,
            if_primary_term: op.if_primary_term,
        };
        let meta = index.meta();
        let (source, routing) = match found {
            None => {
                let upsert =
                    update.upsert.as_ref().or(if update.doc_as_upsert { update.doc.as_ref() } else { None });
                let Some(upsert) = upsert else {
                    return Err(Error::DocumentMissing {
                        index: meta.name.to_string(),
                        index_uuid: meta.uuid_text(),
                        shard: number,
                        doc_type: op.doc_type.to_string(),
                        id,
                    });
                };
                wanted.create = op.if_seq_no.is_none();
                (upsert.clone(), op.routing.clone())
            }
            Some(found) => {
                if let Some(seq_no) = op.if_seq_no
                    && (seq_no != found.seq_no || op.if_primary_term != Some(found.primary_term))
                {
                    return Err(Error::VersionConflict {
                        index: meta.name.to_string(),
                        index_uuid: meta.uuid_text(),
                        shard: number,
                        id,
                        reason: format!(
                            "required seqNo [{seq_no}], primary term [{}]. current document has seqNo [{}] and primary term [{}]",
                            op.if_primary_term.unwrap_or(0),
                            found.seq_no,
                            found.primary_term
                        ),
                    });
                }
                let current: Value = serde_json::from_slice(&found.source)
                    .map_err(|e| Error::Internal(format!("stored source of [{id}] does not parse: {e}")))?;
                let mut next = current.clone();
                if let Some(doc) = &update.doc {
                    merge_objects(&mut next, doc);
                }
                if update.detect_noop && next == current {
                    return Ok(Err(WriteOutcome {
                        index: Arc::clone(&meta.name),
                        id,
                        version: found.version,
                        seq_no: found.seq_no,
                        primary_term: found.primary_term,
                        result: DocResult::Noop,
                        shard_copies: meta.replicas + 1,
                        source: Some(found.source),
                    }));
                }
                wanted.if_seq_no = Some(found.seq_no);
                wanted.if_primary_term = Some(found.primary_term);
                (next, op.routing.clone().or(found.routing))
            }
        };
        let source =
            serde_json::to_vec(&source).map_err(|e| Error::Internal(format!("encode source: {e}")))?;
        Ok(Ok(Prepared {
            item,
            index: Arc::clone(index),
            shard: number,
            id: Some(id),
            routing,
            source: Some(Bytes::from(source)),
            wanted,
        }))
    }

    /// Tries an update again that lost against a concurrent writer.
    async fn retry_update(
        &self,
        item: usize,
        index: &Arc<Index>,
        op: &WriteOp,
        update: &Update,
        results: &mut Results,
        written: &mut Written,
    ) -> Result<()> {
        for _ in 0..update.retry_on_conflict {
            if !matches!(results[item], Some(Err(Error::VersionConflict { .. }))) {
                break;
            }
            match self.prepare_update(item, index, op, update).await {
                Ok(Ok(prepared)) => self.round(vec![prepared], results, written).await?,
                Ok(Err(noop)) => results[item] = Some(Ok(noop)),
                Err(error) => results[item] = Some(Err(error)),
            }
        }
        Ok(())
    }

    /// Makes the shards that were written to searchable, as the request asks.
    async fn after_write(&self, written: &Written, refresh: RefreshPolicy) -> Result<()> {
        for shard in written.0.values() {
            match refresh {
                RefreshPolicy::None => {}
                RefreshPolicy::Immediate => {
                    let refreshed = shard.refresh(self.inner.env(), self.inner.clock.now_ms()).await;
                    // What was written is durable: an error now would have the client write it again.
                    if let Err(error) = refreshed {
                        tracing::error!(index = %shard.index, shard = shard.number, %error, "refresh failed");
                    }
                }
                RefreshPolicy::WaitFor => {
                    self.inner.upkeep.notify_one();
                    shard.wait_searchable(shard.next_seq_no()).await;
                }
            }
        }
        Ok(())
    }
}

/// The shards that a request has written to.
#[derive(Default)]
struct Written(BTreeMap<(uuid::Uuid, u32), Arc<Shard>>);

impl Written {
    /// Takes note of a round; returns whether its acknowledgement waits for the fsync.
    fn note(&mut self, round: &[Prepared]) -> Result<bool> {
        let mut wait = false;
        let mut last: Option<(&Arc<Index>, u32)> = None;
        for Prepared { index, shard: number, .. } in round {
            if last
                .replace((index, *number))
                .is_some_and(|last| Arc::ptr_eq(last.0, index) && last.1 == *number)
            {
                continue;
            }
            let shard = index.shard(*number)?;
            if let std::collections::btree_map::Entry::Vacant(place) =
                self.0.entry((shard.index, shard.number))
            {
                place.insert(Arc::clone(shard));
            }
            wait = wait || durable_acknowledgement(&index.meta());
        }
        Ok(wait)
    }
}

/// One result an operation, `None` until it is known.
type Results = Vec<Option<Result<WriteOutcome>>>;

/// Where writes go, by the name given and whether it must be an alias.
type Targets = HashMap<(Arc<str>, bool), Result<Target>>;

/// Where writes to a name go.
struct Target {
    index: Arc<Index>,
    /// The alias and the routing that it gives to every write.
    routing: Option<(Arc<str>, String)>,
}

impl Target {
    fn new(index: Arc<Index>, name: &Arc<str>) -> Self {
        let meta = index.meta();
        let routing = meta.aliases.get(&**name).and_then(|alias| alias["index_routing"].as_str());
        let routing = routing.map(|routing| (Arc::clone(name), routing.to_owned()));
        Self { index, routing }
    }

    /// Gives an operation the routing of the alias.
    fn route(&self, op: &mut WriteOp) -> Result<()> {
        let Some((alias, routing)) = &self.routing else { return Ok(()) };
        match &op.routing {
            Some(given) if given != routing => Err(Error::IllegalArgument(format!(
                "Alias [{alias}] has index routing associated with it [{routing}], and was provided with routing \
                 value [{given}], rejecting operation"
            ))),
            Some(_) => Ok(()),
            None => {
                op.routing = Some(routing.clone());
                Ok(())
            }
        }
    }
}

/// Whether an operation creates the index that it names: a deletion leaves something only by an
/// external version.
fn may_create(op: &WriteOp) -> bool {
    !matches!(op.action, Action::Delete) || op.version.is_some()
}

fn op_bytes(op: &WriteOp) -> usize {
    match &op.action {
        Action::Index(source) | Action::Create(source) => source.len(),
        Action::Delete => 64,
        Action::Update(_) => 1024,
    }
}

/// Makes an error anew for each operation that it concerns.
fn again(error: &Error) -> Error {
    match error {
        Error::IndexNotFound { index } => Error::IndexNotFound { index: index.clone() },
        Error::IndexClosed { index } => Error::IndexClosed { index: index.clone() },
        Error::InvalidIndexName { index, reason } => {
            Error::InvalidIndexName { index: index.clone(), reason: reason.clone() }
        }
        Error::AutoCreateRefused { index, reason } => {
            Error::AutoCreateRefused { index: index.clone(), reason: reason.clone() }
        }
        Error::InvalidAliasName { alias, reason } => {
            Error::InvalidAliasName { alias: alias.clone(), reason: reason.clone() }
        }
        Error::Blocked { index, reason } => Error::Blocked { index: index.clone(), reason: reason.clone() },
        Error::MapperParsing { reason, caused_by } => {
            Error::MapperParsing { reason: reason.clone(), caused_by: caused_by.clone() }
        }
        Error::Validation(text) => Error::Validation(text.clone()),
        Error::IllegalArgument(text) => Error::IllegalArgument(text.clone()),
        Error::Rejected(text) => Error::Rejected(text.clone()),
        Error::Stopped(text) => Error::Stopped(text.clone()),
        other => Error::Internal(other.to_string()),
    }
}

/// Finds the index of an operation, which may refuse it.
fn admit(targets: &Targets, op: &mut WriteOp) -> Result<Arc<Index>> {
    let target = match targets.get(&(Arc::clone(&op.index), op.require_alias)) {
        Some(Ok(target)) => target,
        Some(Err(error)) => return Err(again(error)),
        None => return Err(Error::Internal(format!("no target for [{}]", op.index))),
    };
    target.route(op)?;
    check_op(&target.index, op)?;
    Ok(Arc::clone(&target.index))
}

fn check_op(index: &Index, op: &WriteOp) -> Result<()> {
    let meta = index.meta();
    if !meta.open {
        return Err(Error::IndexClosed { index: meta.name.to_string() });
    }
    crate::metadata::check_block(&meta, BlockLevel::Write)?;
    if op.routing.is_none() && index.mapping().routing_required() {
        return Err(Error::RoutingMissing {
            index: meta.name.to_string(),
            id: op.id.clone().unwrap_or_default(),
        });
    }
    Ok(())
}

fn prepare(item: usize, index: Arc<Index>, op: WriteOp) -> Prepared {
    let (source, create) = match op.action {
        Action::Index(source) => (Some(source), false),
        Action::Create(source) => (Some(source), true),
        Action::Delete | Action::Update(_) => (None, false),
    };
    Prepared {
        item,
        shard: index.shard_for(op.id.as_deref(), op.routing.as_deref()),
        wanted: Wanted {
            delete: source.is_none(),
            // A generated id cannot exist.
            create: create && op.id.is_some(),
            version: op.version,
            if_seq_no: op.if_seq_no,
            if_primary_term: op.if_primary_term,
        },
        index,
        id: op.id,
        routing: op.routing,
        source,
    }
}

/// Merges `patch` into `target`: objects recursively, everything else replaced.
fn merge_objects(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (key, value) in patch {
                match target.get_mut(key) {
                    Some(existing) => merge_objects(existing, value),
                    None => {
                        target.insert(key.clone(), value.clone());
                    }
                }
            }
        }
        (target, patch) => *target = patch.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn updates_merge_objects_and_replace_the_rest() {
        let mut target = json!({"a": {"b": 1, "c": [1, 2]}, "d": 1});
        merge_objects(&mut target, &json!({"a": {"c": [3]}, "d": {"e": 1}, "f": null}));
        assert_eq!(target, json!({"a": {"b": 1, "c": [3]}, "d": {"e": 1}, "f": null}));
    }
}
