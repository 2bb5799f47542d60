//! The start of the store: lock the directory, read the catalog, replay the log, collect orphans.
//!
//! The catalog says which segments exist and up to where each shard's operations are in them; the
//! log has the rest. Replay parses logged documents by the mapping that was current when they were
//! logged (mapping changes are in the log, in order) and keeps the versions that were decided then.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path as FilePath;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use bytes::BytesMut;
use millrace_catalog::access::Origin;
use millrace_catalog::frame::{Entry, Frame, FrameNumber, ShardOps};
use millrace_catalog::metadata::{Metadata, RESTORE_PENDING, parse_index_sort};
use millrace_catalog::routing::IdGenerator;
use millrace_catalog::{
    Catalog, Commit, SegmentRecord, ShardCheckpoint, StoreRecord, TombstoneChunk, open_sqlite,
};
use millrace_mapping::Mapping;
use millrace_mapping::document::ChunkBuilder;
use millrace_runtime::disk::Disk;
use millrace_runtime::sync::{self, AsyncMutex, LockRank, Rank};
use millrace_runtime::tasks::TaskRegistry;
use millrace_runtime::{Compute, Error, Result, SharedClock};
use millrace_segment::objects::Objects;
use millrace_segment::{Env, MemChunk, StringBuffer, deletes_generation};
use object_store::ObjectMeta;
use parking_lot::{Mutex, RwLock};
use serde_json::{Map, Value};
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};
use uuid::Uuid;

use super::budget::Budget;
use super::deletions::{self, DamagedShard, ListedFiles};
use super::describe::{LoadedDescriptions, is_index_description};
use super::identity::{Identity, RESTORE_NEWEST, StoreTraces, segment_of};
use super::index::{Index, UnsupportedMapping, gc_deletes_ms};
use super::leases::Leases;
use super::maintenance_queue::MaintenanceQueue;
use super::orphans::find_orphans;
use super::positions::Positions;
use super::timings::EngineTimings;
use super::write_batch::{EarlierOperations, RowMeta};
use super::{Inner, maintenance};
use crate::Config;
use crate::shard::{AppliedOperation, Change, Commits, Damage, LoadedSegment, SegmentLookups, Services};
use crate::wal::{ReplayProgress, Wal};

/// Opens everything below the data directory; `catalog` is the SQLite file there where none is given, `objects` those
/// that are configured.
pub(super) async fn open(
    config: Config,
    clock: SharedClock,
    disk: Arc<dyn Disk>,
    catalog: Option<Arc<dyn Catalog>>,
    objects: Option<Objects>,
    progress: Arc<ReplayProgress>,
) -> Result<Arc<Inner>> {
    let dir = config.data_dir.clone();
    disk.create_dir_all(&dir)?;
    let lock = disk.lock(&dir.join("lock"))?;
    let scratch = dir.join("scratch");
    clear_scratch(&scratch)?;
    let compute = Compute::start(config.compute_threads)?;
    let objects = match objects {
        Some(objects) => Arc::new(objects),
        None => Arc::new(
            millrace_segment::objects::open(&config.object_store, &config.data_dir, Arc::clone(&disk))
                .await?,
        ),
    };
    // Listed before anything is written: a file that is made from here on is no orphan.
    let listed = objects.list(None).await?;
    let surroundings = StoreTraces::read_from(&dir, &disk, &objects, &listed).await?;
    let catalog = match catalog {
        Some(catalog) => catalog,
        None => {
            let file = dir.join("catalog.sqlite");
            // An empty file is as good as none.
            if std::fs::metadata(&file).map_or(0, |metadata| metadata.len()) == 0 {
                surroundings.judge(&StoreRecord::default())?;
            }
            open_sqlite(&file).await?
        }
    };
    let state = catalog.load().await?;
    let judged = surroundings.judge(&state.store).and_then(|known| {
        refuse_newer_deletes(&objects, &listed, &state.segments)?;
        Ok(known)
    });
    let known = match judged {
        Ok(judged) => judged,
        Err(error) => {
            // What is refused is left as it was found.
            catalog.close().await;
            return Err(error);
        }
    };
    let identity = Identity::claim(known, &state.store, &catalog, &objects, clock.now_ms()).await?;
    let env = Env::open(Arc::clone(&objects), compute, dir.join("cache"), config.cache_bytes)?;
    let metadata = Metadata::default().apply(&state.metadata);
    let pending_segments = {
        let here = ListedFiles::new(&listed);
        // After its restore an index has its files here: one that is missing then is damage.
        let restoring: HashSet<Uuid> =
            metadata.indices().filter(|meta| meta.flag(RESTORE_PENDING)).map(|meta| meta.uuid).collect();
        let records = state.segments.iter().filter(|record| restoring.contains(&record.index));
        Inner::find_pending(&objects, records, |path, bytes| here.contains(path, bytes))
    };
    let wake = Arc::new(Notify::new());
    let agenda = Arc::new(MaintenanceQueue::new(Arc::clone(&wake)));
    let (indices, damaged) = load_indices(&metadata, &state, &listed, &env, &clock, &agenda).await?;
    let described = LoadedDescriptions::find(&listed, &state, &indices);
    let mut orphans = find_orphans(&listed, &state.segments, &described);
    // Once a start has shown that an index is deleted, no repair may bring it back.
    for orphan in orphans.extract_if(.., |orphan| is_index_description(&orphan.path)) {
        objects.delete_durably(&orphan.path).await?;
    }
    let checkpoints = state.checkpoints.iter().map(|c| c.next_frame);
    let positions = state.positions.iter().map(|p| p.frame + 1);
    let leases = state.leases.iter().map(|lease| lease.frame);
    let known_frames = checkpoints.chain(positions).chain(leases).max().unwrap_or(0);
    let mut ids = IdGenerator::new(rand::random());
    for (_, greatest) in state.segments.iter().filter_map(|s| s.generated_ids.as_ref()) {
        ids.observe(greatest);
    }
    let services = Services {
        env,
        catalog: Arc::clone(&catalog),
        wal: Arc::new(OnceLock::new()),
        commits: Arc::new(Commits::new()),
        scratch: Arc::from(scratch.as_path()),
        leftovers: Arc::default(),
    };
    let inner = Arc::new(Inner {
        disk: Arc::clone(&disk),
        budget: Budget::new(config.memtable_max_bytes, wake),
        tasks: TaskRegistry::new(Arc::clone(&clock)),
        timings: EngineTimings::default(),
        clock,
        metadata: ArcSwap::from_pointee(metadata),
        metadata_change: AsyncMutex::new(LockRank::new(Rank::MetadataChange)),
        cutting: AsyncMutex::new(LockRank::new(Rank::Cut)),
        indices: RwLock::new(indices),
        ids: Mutex::new(ids),
        agenda,
        flushes: Semaphore::new(maintenance::FLUSHES as usize),
        compactions: maintenance::Compactions::default(),
        busy: Mutex::new(maintenance::BusySet::default()),
        wants_cut: AtomicBool::new(false),
        source_updates: tokio::sync::RwLock::default(),
        damaged: Arc::new(tokio::sync::Mutex::new(damaged)),
        leases: sync::Mutex::new(Rank::Leases, Leases::load(state.leases)),
        pending_segments: Mutex::new(Some(pending_segments)),
        decoded: Default::default(),
        positions: Positions::load(state.positions),
        identity,
        orphans: Mutex::new(orphans),
        stopping: AtomicBool::new(false),
        services,
        config,
        _lock: lock,
    });
    let replayed = {
        let inner = Arc::clone(&inner);
        let runtime = Handle::current();
        sync::blocking(move || replay(&inner, &disk, known_frames, &progress, &runtime)).await?
    };
    if inner.services.wal.set(Arc::new(replayed)).is_err() {
        return Err(Error::Internal("the log was opened twice".to_owned()));
    }
    inner.all_indices().iter().for_each(|index| inner.agenda.report_all(index));
    sync::scope(raise_terms(&inner)).await;
    inner.claim_log().await?;
    inner.note_generation().await;
    inner.delete_orphans();
    inner.describe_earlier(described);
    Ok(inner)
}

/// Begins a new primary term in every shard, durably: what an earlier process showed and lost may
/// have the sequence numbers of what this one writes, but not their term.
async fn raise_terms(inner: &Inner) {
    let mut commit = Commit::default();
    for index in inner.all_indices() {
        for shard in index.shards() {
            let write = shard.write_lock().await;
            let term = write.read().primary_term() + 1;
            write.raise_term(term);
            let checkpoint = write.read().checkpoint();
            commit.checkpoints.push(checkpoint);
        }
    }
    if !commit.checkpoints.is_empty()
        && let Err(error) = inner.services.catalog.commit(&commit).await
    {
        // A full disk is no reason not to serve reads.
        tracing::warn!(%error, "cannot store the new primary terms; the next flushes will");
    }
}

fn clear_scratch(scratch: &FilePath) -> Result<()> {
    let emptied = millrace_runtime::disk::empty_directory(scratch);
    emptied.map_err(|error| Error::io("empty scratch directory", scratch, error))
}

async fn load_indices(
    metadata: &Metadata,
    state: &millrace_catalog::State,
    listed: &[ObjectMeta],
    env: &Env,
    clock: &SharedClock,
    agenda: &Arc<MaintenanceQueue>,
) -> Result<(HashMap<Arc<str>, Arc<Index>>, Vec<DamagedShard>)> {
    let mut by_index: BTreeMap<Uuid, Vec<&SegmentRecord>> = BTreeMap::new();
    for record in &state.segments {
        by_index.entry(record.index).or_default().push(record);
    }
    let mappings: HashMap<Uuid, &Vec<u8>> =
        state.mappings.iter().map(|(index, encoded)| (*index, encoded)).collect();
    let mut checkpoints: HashMap<Uuid, Vec<ShardCheckpoint>> = HashMap::new();
    for checkpoint in &state.checkpoints {
        checkpoints.entry(checkpoint.index).or_default().push(checkpoint.clone());
    }
    let mut tombstones: HashMap<Uuid, Vec<&TombstoneChunk>> = HashMap::new();
    for chunk in &state.tombstones {
        tombstones.entry(chunk.index).or_default().push(chunk);
    }
    let loaded = deletions::load_all(&state.segments, &ListedFiles::new(listed), env).await;
    let mut loaded: HashMap<Uuid, Result<Result<LoadedSegment, Damage>>> =
        loaded.into_iter().map(|(id, loaded)| (id, as_damage(loaded))).collect();
    let (mut indices, mut damaged) = (HashMap::new(), Vec::new());
    for meta in metadata.indices() {
        let stored = mappings.get(&meta.uuid).map(|bytes| bytes.as_slice());
        let (mapping, unsupported) = match decode_mapping(stored, &meta.settings) {
            Ok(mapping) => (mapping, None),
            // The rest of the node starts without the index.
            Err(error) => (Mapping::empty(&Map::new()), Some(UnsupportedMapping::new(stored, &error))),
        };
        let mut segments: Vec<LoadedSegment> = Vec::new();
        let mut damages = BTreeMap::new();
        let records = by_index.remove(&meta.uuid).unwrap_or_default();
        for record in &records {
            match loaded.remove(&record.id).transpose()? {
                Some(Ok(segment)) => segments.push(segment),
                Some(Err(damage)) => {
                    let error = damage.clone().into_error();
                    tracing::error!(index = %meta.name, shard = record.shard, %error, "shard is damaged");
                    damages.insert(record.shard, damage);
                }
                None => {}
            }
        }
        let checkpoints = checkpoints.remove(&meta.uuid).unwrap_or_default();
        let index =
            Arc::new(Index::new(Arc::clone(meta), mapping, &checkpoints, segments, env, clock, agenda));
        if let Some(unsupported) = unsupported {
            let damage = index.set_unsupported(unsupported);
            index.shards().iter().for_each(|shard| shard.damaged(damage.clone()));
            indices.insert(Arc::clone(&meta.name), index);
            continue;
        }
        for (number, damage) in damages {
            let shard = index.shard(number)?;
            shard.damaged(damage);
            let segments = records.iter().filter(|record| record.shard == number);
            damaged.push(DamagedShard {
                index: Arc::clone(&index),
                shard: Arc::clone(shard),
                segments: segments.map(|record| (*record).clone()).collect(),
                loaded: false,
            });
        }
        for chunk in tombstones.remove(&meta.uuid).unwrap_or_default() {
            index.shard(chunk.shard)?.remember(chunk, clock.now_ms(), gc_deletes_ms(meta))?;
        }
        indices.insert(Arc::clone(&meta.name), index);
    }
    Ok((indices, damaged))
}

/// Decodes the stored mapping of an index, and checks the settings that are read without it.
///
/// # Errors
/// This version does not accept them.
fn decode_mapping(stored: Option<&[u8]>, settings: &Map<String, Value>) -> Result<Mapping> {
    parse_index_sort(settings)?;
    match stored {
        Some(bytes) => Mapping::decode(bytes, settings),
        None => Ok(Mapping::empty(settings)),
    }
}

/// Tells damage of a segment's files from other failures.
fn as_damage(loaded: Result<LoadedSegment>) -> Result<Result<LoadedSegment, Damage>> {
    match loaded {
        Ok(loaded) => Ok(Ok(loaded)),
        Err(error) => Damage::new(&error).map(Err).ok_or(error),
    }
}

/// Opens the log and applies what is not in segments yet. Blocks.
fn replay(
    inner: &Arc<Inner>,
    disk: &Arc<dyn Disk>,
    known_frames: FrameNumber,
    progress: &ReplayProgress,
    runtime: &Handle,
) -> Result<Wal> {
    let by_uuid: HashMap<Uuid, Arc<Index>> =
        inner.all_indices().into_iter().map(|index| (index.meta().uuid, index)).collect();
    let dir = inner.config.data_dir.join("wal");
    let (mut frames, mut operations) = (0u64, 0u64);
    let wal =
        Wal::open(Arc::clone(disk), &dir, &inner.config, known_frames, progress, &mut |number, frame| {
            frames += 1;
            operations += apply_frame(inner, &by_uuid, number, frame)?;
            if inner.budget.used() > inner.budget.max() {
                flush_largest(inner, runtime)?;
            }
            Ok(())
        })?;
    if frames > 0 {
        tracing::info!(frames, operations, "log replayed");
    }
    Ok(wal)
}

pub(super) fn flush_largest(inner: &Arc<Inner>, runtime: &Handle) -> Result<()> {
    let shards: Vec<_> = inner.all_indices().iter().flat_map(|i| i.shards().to_vec()).collect();
    let Some(largest) = shards.into_iter().max_by_key(|shard| shard.read().unflushed().0) else {
        return Ok(());
    };
    sync::block_on(runtime, inner.flush_shard(&largest))
}

/// Applies a frame; returns the operations that were not in segments yet.
fn apply_frame(
    inner: &Inner,
    indices: &HashMap<Uuid, Arc<Index>>,
    number: FrameNumber,
    frame: Frame,
) -> Result<u64> {
    let mut applied = 0;
    let (time_ms, origin) = (frame.time_ms, frame.origin);
    for entry in frame.entries {
        match entry {
            Entry::Mapping { index, mapping } => {
                // The catalog may be ahead of the log's older entries, which the settings of today, an analyzer less,
                // may make no sense of.
                if let Some(index) = indices.get(&index).filter(|index| index.unsupported().is_none()) {
                    apply_mapping(index, &mapping);
                }
            }
            Entry::Ops(ops) => {
                // Operations of an index that was deleted since are of no interest.
                if let Some(index) = indices.get(&ops.index) {
                    applied += apply_ops(inner, index, number, (time_ms, origin), ops, Replay::Start)?;
                }
            }
            Entry::Position(delta) => inner.positions.replay(number, &delta),
            // Looked at before.
            Entry::Store(_) => {}
        }
    }
    Ok(applied)
}

/// Makes a logged mapping that of its index, where it is a newer one.
fn apply_mapping(index: &Index, encoded: &[u8]) {
    let decoded = Mapping::version_of(encoded).and_then(|version| {
        let is_newer = version > index.mapping().version();
        is_newer.then(|| Mapping::decode(encoded, &index.meta().settings)).transpose()
    });
    match decoded {
        Ok(Some(mapping)) => index.set_mapping(Arc::new(mapping)),
        Ok(None) => {}
        // The rest of the node starts without the index.
        Err(error) => suspend_unsupported(index, UnsupportedMapping::new(Some(encoded), &error)),
    }
}

/// Puts an index out of use whose logged mapping this version does not accept. Its shards apply nothing of the log from here on,
/// and hold the log from their last commits on. Blocks.
fn suspend_unsupported(index: &Index, unsupported: UnsupportedMapping) {
    let damage = index.set_unsupported(unsupported);
    for shard in index.shards() {
        shard.write_lock_blocking().suspend(damage.clone());
    }
}

/// Purpose of applying operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Replay {
    /// The start, which leaves out damaged shards.
    Start,
    /// A shard that was damaged at the start, and may have taken up some of the operations.
    Shard,
}

/// Applies operations of the log that are not in segments yet; returns how many.
pub(super) fn apply_ops(
    inner: &Inner,
    index: &Index,
    number: FrameNumber,
    (time_ms, origin): (i64, Origin),
    ops: ShardOps,
    replay: Replay,
) -> Result<u64> {
    let shard = index.shard(ops.shard)?;
    let write = shard.write_lock_blocking();
    write.raise_term(ops.primary_term);
    write.make_room(
        ops.ops.iter().filter_map(|op| op.source.as_ref()).map(|source| source.len() as u64).sum(),
    );
    let guard = write.read();
    let left_out = match replay {
        Replay::Start => ops.first_seq_no < guard.committed_below() || guard.check().is_err(),
        Replay::Shard => ops.first_seq_no < guard.next_seq_no() || guard.closed(),
    };
    if left_out {
        return Ok(0);
    }
    if ops.first_seq_no != guard.next_seq_no() {
        return Err(Error::Corrupt {
            file: format!("log frame {number}"),
            offset: 0,
            reason: format!(
                "operations of shard {} of [{}] begin at sequence number {}, expected {}: a part of the log is missing",
                ops.shard,
                index.meta().name,
                ops.first_seq_no,
                guard.next_seq_no()
            ),
        });
    }
    let now_ms = inner.clock.now_ms();
    let generated = ops.ops.iter().all(|op| op.generated);
    let mut builder = ChunkBuilder::new(index.mapping());
    let mut sources = BytesMut::new();
    let mut ends = Vec::new();
    let mut rows = RowMeta::with_capacity(ops.ops.len(), generated);
    let mut routings = Vec::new();
    let mut earlier = EarlierOperations::default();
    for (seq_no, op) in (ops.first_seq_no..).zip(&ops.ops) {
        let id = std::str::from_utf8(&op.id).map_err(|_| Error::Corrupt {
            file: format!("log frame {number}"),
            offset: 0,
            reason: "document id is not UTF-8".to_owned(),
        })?;
        let row = match &op.source {
            None => None,
            Some(source) => {
                builder.push_accepted(id, source).map_err(|error| Error::Corrupt {
                    file: format!("log frame {number}"),
                    offset: 0,
                    reason: format!("document [{id}] was accepted once and is refused now: {error}"),
                })?;
                sources.extend_from_slice(source);
                ends.push(sources.len() as u32);
                rows.push(id, seq_no, op.version);
                routings.push(op.routing.clone());
                let row = ends.len() as u32 - 1;
                if !op.created {
                    rows.replacing.push(row);
                }
                Some(row)
            }
        };
        let deletes = match earlier.find(id, &guard) {
            Some((_, location)) => location,
            None if op.generated => None,
            None => match guard.find_unchecked(id, &SegmentLookups::default()) {
                Ok(found) => found.and_then(|found| found.1),
                Err(error) => {
                    // The rest of the node starts without it.
                    let damage = Damage::new(&error).filter(|_| replay == Replay::Start).ok_or(error)?;
                    drop(guard);
                    write.suspend(damage.clone());
                    return inner.suspended(index, shard, damage).map(|()| 0);
                }
            },
        };
        let applied = AppliedOperation {
            id: if generated { Box::default() } else { id.into() },
            seq_no,
            primary_term: ops.primary_term,
            version: op.version,
            row,
            deletes,
            superseded: false,
        };
        earlier.push(applied, op.generated);
    }
    drop(guard);
    // The mapping has not grown: it is what the log's own frames say.
    let (chunk, _) = builder.finish();
    let mem = (chunk.rows > 0).then(|| {
        rows.routings = routings.iter().any(Option::is_some).then_some(routings);
        let rows = rows.finish();
        MemChunk {
            chunk,
            sources: StringBuffer { bytes: sources.freeze(), ends },
            ids: rows.ids,
            seq_nos: rows.seq_nos,
            versions: rows.versions,
            routings: rows.routings,
            primary_term: ops.primary_term,
            frame: number,
            time_ms,
            origin,
            generated,
            replacing: rows.replacing,
        }
    });
    let applied = earlier.into_applied();
    let change = Change { applied, generated, chunk: mem, unused: Vec::new() };
    inner.budget.add(write.apply(change, number, now_ms));
    if let Some(id) = ops.ops.iter().rfind(|op| op.generated).and_then(|op| std::str::from_utf8(&op.id).ok())
    {
        inner.ids.lock().observe(id);
    }
    Ok(ops.ops.len() as u64)
}

/// Refuses a catalog that is older than the deletes files of its segments: a commit writes the next generation, and
/// the catalog follows before there is another.
///
/// # Errors
/// [`Error::Mismatch`].
fn refuse_newer_deletes(objects: &Objects, listed: &[ObjectMeta], segments: &[SegmentRecord]) -> Result<()> {
    let known: HashMap<Uuid, u64> = segments.iter().map(|s| (s.id, s.delete_generation)).collect();
    for path in listed.iter().map(|object| &object.location) {
        let older = segment_of(path).and_then(|id| known.get(&id));
        let generation = path.filename().and_then(deletes_generation);
        if let Some((older, generation)) = older.zip(generation)
            && generation > older + 1
        {
            let store = objects.store();
            return Err(Error::Mismatch {
                what: format!(
                    "the object store [{store}] has [{path}], the catalog knows of generation {older} and is older"
                ),
                remedy: RESTORE_NEWEST.to_owned(),
            });
        }
    }
    Ok(())
}
