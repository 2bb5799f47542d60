//! A round of the write path: operations on any number of shards that become one frame of the log.
//!
//! Runs on a compute thread, in four steps: parse by the mapping, look ids up in stored segments, then,
//! under the write locks of all shards concerned, decide versions (changing nothing), append the frame, and
//! apply it. Readers are let in all the while. [`super::write`] makes rounds of requests and waits for
//! their fsync.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use hashbrown::{HashTable, hash_table};
use millrace_catalog::access::Origin;
use millrace_catalog::frame::{Entry, FrameNumber, Op, PositionDelta, ShardOps};
use millrace_catalog::operation::{DocResult, WriteOutcome};
use millrace_mapping::Mapping;
use millrace_mapping::document::ChunkBuilder;
use millrace_runtime::{Compute, Error, Result};
use millrace_segment::{MemChunk, StringBuffer};

use super::Inner;
use super::index::Index;
use super::maintenance_queue::Item;
use super::target::Limits;
use crate::shard::{
    AppliedOperation, Change, ConflictReason, Current, Location, SegmentLookups, Shard, StateReadGuard,
    VersionCondition, WriteLock, decide,
};

/// Documents that are parsed before a read that waits for a core is let go first.
const SLICE: usize = 64;

/// An operation that is ready to be parsed: partial updates are index operations by now.
pub(super) struct PreparedOperation {
    /// Position in the request.
    pub(super) item: usize,
    pub(super) index: Arc<Index>,
    pub(super) shard: u32,
    pub(super) id: Option<String>,
    pub(super) routing: Option<String>,
    /// `None` for a delete.
    pub(super) source: Option<Bytes>,
    pub(super) wanted: VersionCondition,
    /// Limits of its writer, if any.
    pub(super) limits: Option<Limits>,
    /// `true` if the outcome carries the source.
    pub(super) returns_source: bool,
}

/// The operations of one shard in a round.
struct Batch {
    index: Arc<Index>,
    shard: Arc<Shard>,
    ops: Vec<PreparedOperation>,
    /// Row of each operation in the chunk; `None` for deletes.
    rows: Vec<Option<u32>>,
    builder: Option<(millrace_mapping::document::Chunk, StringBuffer)>,
}

impl Batch {
    fn ids(&self) -> impl Iterator<Item = &str> {
        self.ops.iter().filter_map(|op| op.id.as_deref())
    }
}

/// A round whose documents are parsed: nothing is decided yet.
pub(super) struct ParsedBatch {
    batches: Vec<Batch>,
    /// Of what the parser refused.
    outcomes: Vec<Outcome>,
}

pub(super) type Outcome = (usize, Result<WriteOutcome>);

/// On which terms a round becomes a frame.
#[derive(Clone, Copy)]
pub(super) enum Terms<'a> {
    /// Each operation for itself: what is refused is left out.
    Each,
    /// All operations and these moves of positions, or nothing.
    Whole(&'a [PositionDelta]),
}

impl Terms<'_> {
    fn forbid(self, outcomes: &[Outcome]) -> bool {
        matches!(self, Self::Whole(_)) && outcomes.iter().any(|(_, outcome)| outcome.is_err())
    }

    fn moves(&self) -> &[PositionDelta] {
        match self {
            Self::Each => &[],
            Self::Whole(moves) => moves,
        }
    }
}

impl Inner {
    /// Executes a round on a compute thread: everything but the wait for the fsync.
    pub(super) fn execute(
        &self,
        ops: Vec<PreparedOperation>,
        origin: Origin,
    ) -> Result<(Option<FrameNumber>, Vec<Outcome>)> {
        self.execute_with(ops, origin, Terms::Each)
    }

    /// Executes a round on its terms; see [`Inner::execute`].
    pub(super) fn execute_with(
        &self,
        ops: Vec<PreparedOperation>,
        origin: Origin,
        terms: Terms<'_>,
    ) -> Result<(Option<FrameNumber>, Vec<Outcome>)> {
        self.commit_parsed(self.parse_round(ops)?, origin, terms)
    }

    /// Commits what was parsed.
    pub(super) fn commit_parsed(
        &self,
        parsed: ParsedBatch,
        origin: Origin,
        terms: Terms<'_>,
    ) -> Result<(Option<FrameNumber>, Vec<Outcome>)> {
        let ParsedBatch { batches, mut outcomes } = parsed;
        let frame = self.commit_round(batches, origin, terms, &mut outcomes)?;
        Ok((frame, outcomes))
    }

    /// Parses the documents of a round, shard by shard.
    pub(super) fn parse_round(&self, ops: Vec<PreparedOperation>) -> Result<ParsedBatch> {
        let mut outcomes = Vec::with_capacity(ops.len());
        // Shards are locked in this order by every writer, so that two never wait for each other.
        let mut by_shard: BTreeMap<(uuid::Uuid, u32), Vec<PreparedOperation>> = BTreeMap::new();
        let key = |op: &PreparedOperation| (op.index.meta().uuid, op.shard);
        // Most often all are of one shard, and stay in the memory that they have.
        if let Some(first) = ops.first()
            && ops.iter().all(|op| op.shard == first.shard && Arc::ptr_eq(&op.index, &first.index))
        {
            by_shard.insert(key(first), ops);
        } else {
            ops.into_iter().for_each(|op| by_shard.entry(key(&op)).or_default().push(op));
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
        Ok(ParsedBatch { batches, outcomes })
    }

    /// Parses the documents of one index by its mapping, which grows by what is new in them.
    fn parse(&self, batches: Vec<Batch>, outcomes: &mut Vec<Outcome>) -> Result<Vec<Batch>> {
        let Some(index) = batches.first().map(|b| Arc::clone(&b.index)) else { return Ok(batches) };
        let base = index.mapping();
        let compute = &self.env().compute;
        let mut refused = Vec::new();
        let (mut batches, grown) = parse_with(batches, &base, compute, &mut refused);
        if !Arc::ptr_eq(&base, &grown) {
            let _change = index.mapping_change.blocking_lock();
            let current = index.mapping();
            let mut grown = grown;
            if !Arc::ptr_eq(&base, &current) {
                // Another writer was first: its mapping decides what these documents are.
                refused.clear();
                (batches, grown) = parse_with(batches, &current, compute, &mut refused);
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
        let frame = self.wal()?.append(&self.frame(Origin::System, vec![entry]))?;
        index.set_mapping(Arc::clone(mapping));
        Ok(frame.hand_over(Vec::new(), 0))
    }

    /// Decides versions, appends the frame and applies it, under the write locks of all shards concerned.
    fn commit_round(
        &self,
        mut batches: Vec<Batch>,
        origin: Origin,
        terms: Terms<'_>,
        outcomes: &mut Vec<Outcome>,
    ) -> Result<Option<FrameNumber>> {
        if terms.forbid(outcomes) {
            return Ok(None);
        }
        let now_ms = self.clock.now_ms();
        let item = |batch: &Batch| Item { index: Arc::clone(&batch.index), shard: Arc::clone(&batch.shard) };
        let items: Vec<Item> = batches.iter().map(item).collect();
        let mut probed: Vec<SegmentLookups> =
            batches.iter().map(|batch| batch.shard.probe(batch.ids())).collect();
        let locks: Vec<WriteLock<'_>> = items.iter().map(|item| item.shard.write_lock_blocking()).collect();
        for ((batch, write), probed) in batches.iter().zip(&locks).zip(&mut probed) {
            write.probe_rest(probed, batch.ids());
            if let Some((chunk, sources)) = &batch.builder {
                write.make_room((chunk.heap_bytes() + sources.bytes.len()) as u64);
            }
        }
        let mut frame = self.frame(origin, Vec::new());
        let mut decided = Vec::with_capacity(batches.len());
        for ((batch, write), probed) in batches.iter_mut().zip(&locks).zip(&probed) {
            let mut one = self.decide_batch(batch, &write.read(), probed, now_ms, outcomes);
            frame.entries.extend(one.ops.take().map(Entry::Ops));
            decided.push(one);
        }
        if terms.forbid(outcomes) || (frame.entries.is_empty() && terms.moves().is_empty()) {
            return Ok(None);
        }
        // Up to here nothing has changed; from here on nothing fails.
        let appended = self.positions.append(self.wal()?, &mut frame, terms.moves())?;
        let number = appended.number();
        // Who follows gets the operations as they are, with the documents where the memtable has them.
        let followed = appended.is_followed();
        let mut parts: Vec<ShardOps> = Vec::new();
        if followed {
            let ops = |entry| if let Entry::Ops(ops) = entry { Some(ops) } else { None };
            parts.extend(std::mem::take(&mut frame.entries).into_iter().filter_map(ops));
        }
        let (mut followed_parts, mut slack) = (parts.iter_mut(), 0);
        let mut spent = Vec::with_capacity(batches.len());
        for ((decided, batch), write) in decided.into_iter().zip(batches).zip(&locks) {
            spent.push((batch.ops, batch.rows));
            if decided.applied.is_empty() {
                continue;
            }
            if let (Some(part), Some((_, sources))) = (followed_parts.next(), &batch.builder) {
                slack += share(part, &decided.applied, sources);
            }
            let (chunk, unused) = match (batch.builder, decided.rows) {
                (Some((chunk, sources)), Some(rows)) => {
                    let mem = MemChunk {
                        chunk,
                        sources,
                        ids: rows.ids,
                        seq_nos: rows.seq_nos,
                        versions: rows.versions,
                        routings: rows.routings,
                        primary_term: decided.primary_term,
                        frame: number,
                        time_ms: appended.time_ms(),
                        origin,
                        generated: rows.generated,
                        replacing: rows.replacing,
                    };
                    (Some(mem), rows.unused)
                }
                _ => (None, Vec::new()),
            };
            let change = Change { applied: decided.applied, generated: decided.generated, chunk, unused };
            self.budget.add(write.apply(change, number, now_ms));
        }
        // The next writer waits for these locks: what is only to be handed over or freed, is so without them.
        drop(locks);
        match followed {
            true => appended.hand_over(parts, slack),
            false => appended.applied(),
        };
        items.iter().for_each(|item| self.agenda.report(&item.index, &item.shard));
        drop((frame, spent));
        Ok(Some(number))
    }

    /// Decides the operations of one shard, in order, changing nothing.
    fn decide_batch(
        &self,
        batch: &mut Batch,
        shard: &StateReadGuard<'_>,
        probed: &SegmentLookups,
        now_ms: i64,
        outcomes: &mut Vec<Outcome>,
    ) -> BatchDecision {
        let meta = batch.index.meta();
        let term = shard.primary_term();
        let refused = shard.check().err();
        let generated = batch.ops.iter().all(|op| op.id.is_none());
        let total = batch.builder.as_ref().map_or(0, |(chunk, _)| chunk.rows as usize);
        let mut rows = RowMeta::with_capacity(total, generated);
        let mut ops = Vec::with_capacity(batch.ops.len());
        let first_seq_no = shard.next_seq_no();
        let mut routings: Vec<Option<String>> = Vec::new();
        let mut any_routing = false;
        let mut earlier = EarlierOperations::default();
        for (op, row) in batch.ops.iter_mut().zip(&batch.rows) {
            if op.source.is_some() && row.is_none() {
                continue; // refused by the parser
            }
            let seq_no = first_seq_no + earlier.applied.len() as u64;
            let given = op.id.take();
            let mut wanted = op.wanted;
            let found = match &given {
                _ if shard.closed() => Err(Error::IndexNotFound { index: meta.name.to_string() }),
                _ if refused.is_some() => shard.check().map(|()| None),
                Some(id) => match earlier.find(id, shard) {
                    Some(found) => {
                        // The same request has left it.
                        wanted.seen = None;
                        Ok(Some(found))
                    }
                    None => shard.find(id, probed),
                },
                None => Ok(None),
            };
            let decision = found.and_then(|found| match decide(found.map(|f| f.0), &wanted) {
                Ok(decision) => Ok((decision, found.and_then(|f| f.1))),
                Err(ConflictReason::Hidden) => Err(Limits::hidden(op.limits.as_ref())),
                Err(ConflictReason::Conflict(reason)) => Err(Error::VersionConflict {
                    index: meta.name.to_string(),
                    index_uuid: meta.uuid_text(),
                    shard: batch.shard.number,
                    id: given.clone().unwrap_or_default(),
                    reason,
                }),
            });
            let ((version, result), deletes) = match decision {
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
            let created = result == DocResult::Created;
            let id = given.unwrap_or_else(|| {
                self.ids.lock().next(now_ms, |id| batch.index.shard_of(id) == batch.shard.number)
            });
            if let Some(row) = row {
                rows.push(&id, seq_no, version);
                if !created {
                    rows.replacing.push(*row);
                }
                any_routing |= op.routing.is_some();
                routings.push(op.routing.clone());
            } else {
                batch.shard.counters.delete.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
            // Ids of a batch that were all generated are found by their order.
            let known_by = if generated { Box::default() } else { id.as_str().into() };
            let superseded = false;
            earlier.push(
                AppliedOperation {
                    id: known_by,
                    seq_no,
                    primary_term: term,
                    version,
                    row: *row,
                    deletes,
                    superseded,
                },
                is_generated,
            );
            ops.push(Op {
                id: Bytes::copy_from_slice(id.as_bytes()),
                generated: is_generated,
                created,
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
                    source: op.source.take().filter(|_| op.returns_source),
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
        BatchDecision { ops, rows, applied: earlier.into_applied(), generated, primary_term: term }
    }
}

/// Gives the operations of a part their documents out of the buffer of the batch, which a reader of the feed keeps with them:
/// copies, where most of it is refused documents. Returns the bytes of the buffer that are no operation's.
fn share(part: &mut ShardOps, applied: &[AppliedOperation], sources: &StringBuffer) -> usize {
    let rows = || applied.iter().filter_map(|applied| applied.row);
    let accepted: usize = rows().map(|row| sources.borrow(row as usize).len()).sum();
    let pinned = sources.bytes.len();
    let copy = (accepted < pinned / 2).then(|| {
        let mut packed = StringBuffer { bytes: Bytes::new(), ends: Vec::with_capacity(applied.len()) };
        let mut bytes = Vec::with_capacity(accepted);
        for row in rows() {
            bytes.extend_from_slice(sources.borrow(row as usize));
            packed.ends.push(bytes.len() as u32);
        }
        packed.bytes = bytes.into();
        packed
    });
    let mut copied = 0..;
    for (op, applied) in part.ops.iter_mut().zip(applied) {
        op.source = applied.row.map(|row| match &copy {
            Some(copy) => copy.slice(copied.next().unwrap_or_default()),
            None => sources.slice(row as usize),
        });
    }
    if copy.is_some() { 0 } else { pinned - accepted }
}

/// Decision about a batch.
struct BatchDecision {
    ops: Option<ShardOps>,
    rows: Option<RowMeta>,
    applied: Vec<AppliedOperation>,
    /// `true` if all its ids are generated.
    generated: bool,
    primary_term: u64,
}

/// The operations of a batch that were decided so far: the shard does not know of them yet, but the
/// ones behind them follow on them.
#[derive(Default)]
pub(super) struct EarlierOperations {
    applied: Vec<AppliedOperation>,
    /// Last operation of each id that was not generated, by the id's hash.
    last: HashTable<usize>,
    hasher: foldhash::fast::RandomState,
}

impl EarlierOperations {
    /// Adds the next operation.
    pub(super) fn push(&mut self, applied: AppliedOperation, generated: bool) {
        let at = self.applied.len();
        self.applied.push(applied);
        if generated {
            return;
        }
        let (operations, hasher) = (&self.applied, &self.hasher);
        let hash = |at: &usize| hasher.hash_one(&*operations[*at].id);
        let same = |other: &usize| operations[*other].id == operations[at].id;
        match self.last.entry(hash(&at), same, hash) {
            hash_table::Entry::Occupied(mut last) => {
                let before = std::mem::replace(last.get_mut(), at);
                // What the first one replaces is deleted with the last one: until then readers find it,
                // and nobody sees the states between.
                let own = std::mem::take(&mut self.applied[before].deletes);
                let own = std::mem::replace(&mut self.applied[at].deletes, own);
                self.applied[before].deletes = own;
                self.applied[before].superseded = true;
            }
            hash_table::Entry::Vacant(place) => {
                place.insert(at);
            }
        }
    }

    /// Finds the state that the operations so far have left of a document, if any is on it.
    pub(super) fn find(&self, id: &str, shard: &StateReadGuard<'_>) -> Option<(Current, Option<Location>)> {
        if self.last.is_empty() {
            return None;
        }
        let at = self.last.find(self.hasher.hash_one(id), |at| &*self.applied[*at].id == id)?;
        let AppliedOperation { seq_no, primary_term, version, row, .. } = self.applied[*at];
        let current = Current { live: row.is_some(), version, seq_no, primary_term };
        Some((current, row.map(|row| shard.location_of(row))))
    }

    pub(super) fn into_applied(self) -> Vec<AppliedOperation> {
        self.applied
    }
}

/// Metadata of a chunk's rows in the making.
pub(super) struct RowMeta {
    id_bytes: BytesMut,
    id_ends: Vec<u32>,
    pub(super) ids: StringBuffer,
    pub(super) seq_nos: Vec<u64>,
    pub(super) versions: Vec<u64>,
    pub(super) routings: Option<Vec<Option<String>>>,
    pub(super) generated: bool,
    /// Rows that did not create their document.
    pub(super) replacing: Vec<u32>,
    pub(super) unused: Vec<u32>,
}

impl RowMeta {
    pub(super) fn with_capacity(rows: usize, generated: bool) -> Self {
        Self {
            id_bytes: BytesMut::with_capacity(rows * 20),
            id_ends: Vec::with_capacity(rows),
            ids: StringBuffer::default(),
            seq_nos: Vec::with_capacity(rows),
            versions: Vec::with_capacity(rows),
            routings: None,
            generated,
            replacing: Vec::new(),
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
        self.ids = StringBuffer {
            bytes: std::mem::take(&mut self.id_bytes).freeze(),
            ends: std::mem::take(&mut self.id_ends),
        };
        self
    }
}

/// Makes a buffer without the room that was meant for refused documents: what is kept is counted by its length.
fn packed(sources: Vec<u8>) -> Bytes {
    sources.into_boxed_slice().into()
}

/// Documents refused while parsing: batch, operation, error.
type RefusedDocuments = Vec<(usize, usize, Error)>;

fn parse_with(
    mut batches: Vec<Batch>,
    base: &Arc<Mapping>,
    compute: &Compute,
    refused: &mut RefusedDocuments,
) -> (Vec<Batch>, Arc<Mapping>) {
    let mut mapping = Arc::clone(base);
    for (at, batch) in batches.iter_mut().enumerate() {
        let bytes: usize = batch.ops.iter().filter_map(|op| op.source.as_ref()).map(Bytes::len).sum();
        let mut builder = ChunkBuilder::new(Arc::clone(&mapping));
        let mut sources = Vec::with_capacity(bytes);
        let mut ends = Vec::with_capacity(batch.ops.len());
        batch.rows.clear();
        for (i, op) in batch.ops.iter().enumerate() {
            let Some(source) = &op.source else {
                batch.rows.push(None);
                continue;
            };
            if i % SLICE == SLICE - 1 {
                compute.give_way();
            }
            let id = op.id.as_deref().unwrap_or_default();
            let pushed = match op.limits.as_ref().filter(|limits| !limits.maps) {
                None => builder.push(id, source),
                Some(limits) => builder.push_mapped(id, source).and_then(|mapped| limits.mapped(mapped)),
            };
            match pushed {
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
        batch.builder = (chunk.rows > 0).then(|| (chunk, StringBuffer { bytes: packed(sources), ends }));
    }
    (batches, mapping)
}
