//! The write path: resolve, parse, decide versions, log, apply, fsync, acknowledge.
//!
//! A request is executed in *rounds*: a round is one frame of the log with operations on any number
//! of shards. All but partial updates go into the first round; an update first reads its document
//! and goes into the round after the last one that touches the same id, as an index operation that
//! expects the document unchanged.

use std::collections::hash_map::Entry as Place;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hashbrown::{HashTable, hash_table};
use serde_json::Value;

use super::index::{Index, durable_acknowledgement};
use super::types::{Action, DocResult, RefreshPolicy, Update, WriteOp, WriteOutcome};
use super::{Engine, Inner};
use crate::document::ChunkBuilder;
use crate::mapping::Mapping;
use crate::metadata::BlockLevel;
use crate::segment::{MemChunk, Packed};
use crate::shard::{Applied, Current, Guard, Location, Probed, Shard, Wanted, decide};
use crate::wal::{Entry, Frame, FrameNumber, Op, ShardOps};
use crate::{Error, Lane, Principal, Result};

/// An operation that is ready to be parsed: partial updates are index operations by now.
struct Prepared {
    /// Position in the request.
    item: usize,
    index: Arc<Index>,
    shard: u32,
    id: Option<String>,
    routing: Option<String>,
    /// `None` for a delete.
    source: Option<Bytes>,
    wanted: Wanted,
}

/// The operations of one shard in a round.
struct Batch {
    index: Arc<Index>,
    shard: Arc<Shard>,
    ops: Vec<Prepared>,
    /// Row of each operation in the chunk; `None` for deletes.
    rows: Vec<Option<u32>>,
    builder: Option<(crate::document::Chunk, Packed)>,
}

type Outcome = (usize, Result<WriteOutcome>);

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
        let mut results: Vec<Option<Result<WriteOutcome>>> = ops.iter().map(|_| None).collect();
        let mut targets: HashMap<(Arc<str>, bool), Result<Target>> = HashMap::new();
        // An index comes into being by an operation that can leave something in it, wherever that
        // operation stands in the request; mere deletions do not create one.
        let creating: Option<HashSet<Arc<str>>> = ops
            .iter()
            .any(|op| !may_create(op))
            .then(|| ops.iter().filter(|op| may_create(op)).map(|op| Arc::clone(&op.index)).collect());
        let mut round = Vec::with_capacity(ops.len());
        let mut touched: HashSet<(Arc<str>, String)> = HashSet::new();
        let mut written = Written::default();
        let has_updates = ops.iter().any(|op| matches!(op.action, Action::Update(_)));
        for (item, mut op) in ops.into_iter().enumerate() {
            let key = (Arc::clone(&op.index), op.require_alias);
            let target = match targets.entry(key) {
                Place::Occupied(known) => known.into_mut(),
                Place::Vacant(place) => {
                    let create = creating.as_ref().is_none_or(|names| names.contains(&op.index));
                    place.insert(self.target(principal, &op.index, op.require_alias, create).await)
                }
            };
            let index = match target {
                Ok(target) => match target.route(&mut op) {
                    Ok(()) => Arc::clone(&target.index),
                    Err(error) => {
                        results[item] = Some(Err(error));
                        continue;
                    }
                },
                Err(error) => {
                    results[item] = Some(Err(again(error)));
                    continue;
                }
            };
            if let Err(error) = check_op(&index, &op) {
                results[item] = Some(Err(error));
                continue;
            }
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
            if has_updates && let Some(id) = &op.id {
                touched.insert((index.meta().name.clone(), id.clone()));
            }
            round.push(prepare(item, index, op));
        }
        self.round(round, &mut results, &mut written).await?;
        drop(reserved);
        self.after_write(&written, refresh).await?;
        Ok(results
            .into_iter()
            .map(|r| r.unwrap_or_else(|| Err(Error::Internal("operation was lost".to_owned()))))
            .collect())
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
    async fn round(
        &self,
        ops: Vec<Prepared>,
        results: &mut [Option<Result<WriteOutcome>>],
        written: &mut Written,
    ) -> Result<()> {
        if ops.is_empty() {
            return Ok(());
        }
        for op in &ops {
            let shard = op.index.shard(op.shard)?;
            written.0.entry((shard.index, shard.number)).or_insert_with(|| Arc::clone(shard));
        }
        let inner = Arc::clone(&self.inner);
        let wait = ops.iter().any(|op| durable_acknowledgement(&op.index.meta()));
        let (frame, outcomes) =
            self.inner.env().compute.run(Lane::Ingest, move || inner.execute(ops)).await?;
        if let Some(frame) = frame
            && wait
        {
            self.inner.wal()?.synced(frame).await?;
        }
        for (item, outcome) in outcomes {
            results[item] = Some(outcome);
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
        results: &mut [Option<Result<WriteOutcome>>],
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

impl Inner {
    /// Executes a round on a compute thread: everything but the wait for the fsync.
    fn execute(&self, ops: Vec<Prepared>) -> Result<(Option<FrameNumber>, Vec<Outcome>)> {
        let mut outcomes = Vec::with_capacity(ops.len());
        // Shards are locked in this order by every writer, so that two never wait for each other.
        let mut by_shard: BTreeMap<(uuid::Uuid, u32), Vec<Prepared>> = BTreeMap::new();
        for op in ops {
            by_shard.entry((op.index.meta().uuid, op.shard)).or_default().push(op);
        }
        let mut by_index: BTreeMap<uuid::Uuid, Vec<Batch>> = BTreeMap::new();
        for ((uuid, number), ops) in by_shard {
            let Some(index) = ops.first().map(|op| Arc::clone(&op.index)) else { continue };
            let shard = Arc::clone(index.shard(number)?);
            by_index.entry(uuid).or_default().push(Batch {
                index,
                shard,
                ops,
                rows: Vec::new(),
                builder: None,
            });
        }
        let mut batches = Vec::new();
        for of_index in by_index.into_values() {
            batches.extend(self.parse(of_index, &mut outcomes)?);
        }
        let frame = self.commit_round(batches, &mut outcomes)?;
        Ok((frame, outcomes))
    }

    /// Parses the documents of one index by its mapping, which grows by what is new in them.
    fn parse(&self, batches: Vec<Batch>, outcomes: &mut Vec<Outcome>) -> Result<Vec<Batch>> {
        let Some(index) = batches.first().map(|b| Arc::clone(&b.index)) else { return Ok(batches) };
        let base = index.mapping();
        let mut refused = Vec::new();
        let (mut batches, grown) = parse_with(batches, &base, &mut refused);
        if !Arc::ptr_eq(&base, &grown) {
            let _change = index.mapping_change.lock();
            let current = index.mapping();
            let mut grown = grown;
            if !Arc::ptr_eq(&base, &current) {
                // Another writer was first: its mapping decides what these documents are.
                refused.clear();
                (batches, grown) = parse_with(batches, &current, &mut refused);
            }
            if !Arc::ptr_eq(&current, &grown) {
                self.log_mapping(&index, &grown)?;
            }
        }
        for (batch, op, error) in refused {
            let batch: &Batch = &batches[batch];
            outcomes.push((batch.ops[op].item, Err(error)));
        }
        Ok(batches)
    }

    /// Appends a mapping to the log, before any document that needs it, and makes it current. The
    /// caller holds the index's `mapping_change`.
    pub(super) fn log_mapping(&self, index: &Index, mapping: &Arc<Mapping>) -> Result<FrameNumber> {
        let entry = Entry::Mapping { index: index.meta().uuid, mapping: Bytes::from(mapping.encode()) };
        let frame = self.wal()?.append(&Frame { entries: vec![entry] })?;
        index.set_mapping(Arc::clone(mapping));
        Ok(frame)
    }

    /// Decides versions, appends the frame and applies it, under the locks of all shards concerned.
    fn commit_round(
        &self,
        mut batches: Vec<Batch>,
        outcomes: &mut Vec<Outcome>,
    ) -> Result<Option<FrameNumber>> {
        let now_ms = self.clock.now_ms();
        let shards: Vec<Arc<Shard>> = batches.iter().map(|b| Arc::clone(&b.shard)).collect();
        let probed = batches
            .iter()
            .map(|batch| batch.shard.probe(batch.ops.iter().filter_map(|op| op.id.as_deref())))
            .collect::<Vec<Probed>>();
        let mut guards: Vec<Guard<'_>> = shards.iter().map(|shard| shard.lock()).collect();
        let mut frame = Frame::default();
        let mut decided = Vec::with_capacity(batches.len());
        for ((batch, guard), probed) in batches.iter_mut().zip(&guards).zip(&probed) {
            let mut one = self.decide_batch(batch, guard, probed, now_ms, outcomes);
            frame.entries.extend(one.ops.take().map(Entry::Ops));
            decided.push(one);
        }
        if frame.entries.is_empty() {
            return Ok(None);
        }
        // Up to here nothing has changed; from here on nothing fails.
        let number = self.wal()?.append(&frame)?;
        let mut spent = Vec::with_capacity(batches.len());
        for ((decided, batch), guard) in decided.into_iter().zip(batches).zip(&mut guards) {
            spent.push((batch.ops, batch.rows));
            if decided.applied.is_empty() {
                continue;
            }
            for applied in decided.applied {
                guard.record(applied, decided.generated, now_ms);
            }
            let chunk = match (batch.builder, decided.rows) {
                (Some((chunk, sources)), Some(rows)) => {
                    let mem = MemChunk {
                        chunk,
                        sources,
                        ids: rows.ids,
                        seq_nos: rows.seq_nos,
                        versions: rows.versions,
                        routings: rows.routings,
                        primary_term: guard.primary_term(),
                        frame: number,
                        generated: rows.generated,
                    };
                    Some((mem, rows.unused))
                }
                _ => None,
            };
            let (chunk, unused) = chunk.map_or((None, Vec::new()), |(c, u)| (Some(c), u));
            let bytes = guard.apply(chunk, &unused, number, now_ms);
            self.budget.add(bytes);
        }
        // Gets wait for these locks: what is only to be freed is freed without them.
        drop(guards);
        drop((frame, spent));
        Ok(Some(number))
    }

    /// Decides the operations of one shard, in order, changing nothing.
    fn decide_batch(
        &self,
        batch: &mut Batch,
        guard: &Guard<'_>,
        probed: &Probed,
        now_ms: i64,
        outcomes: &mut Vec<Outcome>,
    ) -> Decided {
        let meta = batch.index.meta();
        let term = guard.primary_term();
        let generated = batch.ops.iter().all(|op| op.id.is_none());
        let total = batch.builder.as_ref().map_or(0, |(chunk, _)| chunk.rows as usize);
        let mut rows = RowMeta::with_capacity(total, generated);
        let mut ops = Vec::with_capacity(batch.ops.len());
        let first_seq_no = guard.next_seq_no();
        let mut routings: Vec<Option<String>> = Vec::new();
        let mut any_routing = false;
        let mut earlier = Earlier::default();
        for (op, row) in batch.ops.iter_mut().zip(&batch.rows) {
            if op.source.is_some() && row.is_none() {
                continue; // refused by the parser
            }
            let seq_no = first_seq_no + earlier.applied.len() as u64;
            let given = op.id.take();
            let found = match &given {
                _ if guard.closed() => Err(Error::IndexNotFound { index: meta.name.to_string() }),
                _ if guard.check().is_err() => guard.check().map(|()| None),
                Some(id) => match earlier.find(id, guard) {
                    Some(found) => Ok(Some(found)),
                    None => guard.find(id, probed),
                },
                None => Ok(None),
            };
            let decision = found.and_then(|found| match decide(found.map(|f| f.0), &op.wanted) {
                Ok(decision) => Ok((decision, found.and_then(|f| f.1))),
                Err(reason) => Err(Error::VersionConflict {
                    index: meta.name.to_string(),
                    index_uuid: meta.uuid_text(),
                    shard: batch.shard.number,
                    id: given.clone().unwrap_or_default(),
                    reason,
                }),
            });
            let ((version, result), replaces) = match decision {
                Ok(decision) => decision,
                Err(error) => {
                    outcomes.push((op.item, Err(error)));
                    if let Some(row) = row {
                        rows.push(given.as_deref().unwrap_or_default(), seq_no.saturating_sub(1), 0);
                        rows.unused.push(*row);
                        routings.push(None);
                    }
                    continue;
                }
            };
            let is_generated = given.is_none();
            let id = given.unwrap_or_else(|| {
                self.ids.lock().next(now_ms, |id| batch.index.shard_of(id) == batch.shard.number)
            });
            if row.is_some() {
                rows.push(&id, seq_no, version);
                any_routing |= op.routing.is_some();
                routings.push(op.routing.clone());
            } else {
                batch.shard.counters.delete.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
            earlier.push(
                Applied { id: id.as_str().into(), seq_no, primary_term: term, version, row: *row, replaces },
                is_generated,
            );
            ops.push(Op {
                id: Bytes::copy_from_slice(id.as_bytes()),
                generated: is_generated,
                version,
                routing: op.routing.take(),
                source: op.source.clone(),
            });
            outcomes.push((
                op.item,
                Ok(WriteOutcome {
                    index: Arc::clone(&meta.name),
                    id,
                    version,
                    seq_no,
                    primary_term: term,
                    result,
                    shard_copies: meta.replicas + 1,
                    source: op.source.take(),
                }),
            ));
        }
        rows.routings = any_routing.then_some(routings);
        let ops = (!ops.is_empty()).then(|| ShardOps {
            index: meta.uuid,
            shard: batch.shard.number,
            primary_term: term,
            first_seq_no,
            ops,
        });
        let rows = (total > 0).then(|| rows.finish());
        Decided { ops, rows, applied: earlier.applied, generated }
    }
}

/// What was decided about a batch.
struct Decided {
    ops: Option<ShardOps>,
    rows: Option<RowMeta>,
    applied: Vec<Applied>,
    /// Whether all its ids are generated.
    generated: bool,
}

/// The operations of a batch that were decided so far: the shard does not know of them yet, but the
/// ones behind them follow on them.
#[derive(Default)]
struct Earlier {
    applied: Vec<Applied>,
    /// Last operation of each id that was not generated, by the id's hash.
    last: HashTable<usize>,
    hasher: foldhash::fast::RandomState,
}

impl Earlier {
    fn push(&mut self, applied: Applied, generated: bool) {
        let at = self.applied.len();
        self.applied.push(applied);
        if generated {
            return;
        }
        let (operations, hasher) = (&self.applied, &self.hasher);
        let hash = |at: &usize| hasher.hash_one(&*operations[*at].id);
        let same = |other: &usize| operations[*other].id == operations[at].id;
        match self.last.entry(hash(&at), same, hash) {
            hash_table::Entry::Occupied(mut last) => *last.get_mut() = at,
            hash_table::Entry::Vacant(place) => {
                place.insert(at);
            }
        }
    }

    fn find(&self, id: &str, guard: &Guard<'_>) -> Option<(Current, Option<Location>)> {
        if self.last.is_empty() {
            return None;
        }
        let at = self.last.find(self.hasher.hash_one(id), |at| &*self.applied[*at].id == id)?;
        let Applied { seq_no, primary_term, version, row, .. } = self.applied[*at];
        let current = Current { live: row.is_some(), version, seq_no, primary_term };
        Some((current, row.map(|row| guard.location_of(row))))
    }
}

/// Metadata of a chunk's rows in the making.
pub(super) struct RowMeta {
    id_bytes: BytesMut,
    id_ends: Vec<u32>,
    pub(super) ids: Packed,
    pub(super) seq_nos: Vec<u64>,
    pub(super) versions: Vec<u64>,
    pub(super) routings: Option<Vec<Option<String>>>,
    pub(super) generated: bool,
    pub(super) unused: Vec<u32>,
}

impl RowMeta {
    pub(super) fn with_capacity(rows: usize, generated: bool) -> Self {
        Self {
            id_bytes: BytesMut::with_capacity(rows * 20),
            id_ends: Vec::with_capacity(rows),
            ids: Packed::default(),
            seq_nos: Vec::with_capacity(rows),
            versions: Vec::with_capacity(rows),
            routings: None,
            generated,
            unused: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, id: &str, seq_no: u64, version: u64) {
        self.id_bytes.extend_from_slice(id.as_bytes());
        self.id_ends.push(self.id_bytes.len() as u32);
        self.seq_nos.push(seq_no);
        self.versions.push(version);
    }

    pub(super) fn finish(mut self) -> Self {
        self.ids = Packed {
            bytes: std::mem::take(&mut self.id_bytes).freeze(),
            ends: std::mem::take(&mut self.id_ends),
        };
        self
    }
}

/// Documents refused while parsing: batch, operation, error.
type Refused = Vec<(usize, usize, Error)>;

fn parse_with(
    mut batches: Vec<Batch>,
    base: &Arc<Mapping>,
    refused: &mut Refused,
) -> (Vec<Batch>, Arc<Mapping>) {
    let mut mapping = Arc::clone(base);
    for (at, batch) in batches.iter_mut().enumerate() {
        let bytes: usize = batch.ops.iter().filter_map(|op| op.source.as_ref()).map(Bytes::len).sum();
        let mut builder = ChunkBuilder::new(Arc::clone(&mapping));
        let mut sources = BytesMut::with_capacity(bytes);
        let mut ends = Vec::with_capacity(batch.ops.len());
        batch.rows.clear();
        for (i, op) in batch.ops.iter().enumerate() {
            let Some(source) = &op.source else {
                batch.rows.push(None);
                continue;
            };
            match builder.push(op.id.as_deref().unwrap_or_default(), source) {
                Ok(()) => {
                    batch.rows.push(Some(ends.len() as u32));
                    sources.extend_from_slice(source);
                    ends.push(sources.len() as u32);
                }
                Err(error) => {
                    batch.rows.push(None);
                    refused.push((at, i, error));
                }
            }
        }
        let (chunk, grown) = builder.finish();
        mapping = grown;
        batch.builder = (chunk.rows > 0).then(|| (chunk, Packed { bytes: sources.freeze(), ends }));
    }
    (batches, mapping)
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
