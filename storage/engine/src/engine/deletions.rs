//! The files of stored segments as a start finds them: whether all are there, and what is deleted of their rows. They are looked at again later
//! where they seemed to be damaged.
//!
//! A shard without its deletions would show documents that were deleted, and one without another of its files neither finds nor
//! replaces all documents, so it is put out of use; the rest of the node serves. An object store, or
//! what stands between it and this process, may give a wrong answer once: each file is read again before it is judged,
//! and a shard that is out of use is looked at again every few seconds. Once all of its files are right, it takes up
//! its part of the log and is in use.

use std::collections::HashMap;
use std::sync::Arc;

use futures::{FutureExt, StreamExt, stream};
use millrace_catalog::SegmentRecord;
use millrace_catalog::frame::Entry;
use millrace_runtime::{Error, Priority, Result, sync};
use millrace_segment::{DeletesFile, Env, files, is_damage};
use object_store::ObjectMeta;
use object_store::path::Path;
use tokio::runtime::Handle;
use uuid::Uuid;

use super::Inner;
use super::identity::segment_of;
use super::index::Index;
use super::recovery::{Replay, apply_ops, flush_largest};
use crate::ShardFault;
use crate::shard::{Damage, LoadedSegment, Shard};

/// Deletes files that are read at once.
const AT_ONCE: usize = 32;
/// Bytes of the log that are read at a time.
const LOG_BYTES: usize = 4 << 20;

/// A shard that is out of use, with what the catalog says of its segments.
#[derive(Debug)]
pub(super) struct DamagedShard {
    pub(super) index: Arc<Index>,
    pub(super) shard: Arc<Shard>,
    pub(super) segments: Vec<SegmentRecord>,
    /// `true` if the shard has its segments, and takes up its part of the log.
    pub(super) loaded: bool,
}

/// Lengths of the files of segments, as the object store was listed.
#[derive(Debug, Default)]
pub(super) struct ListedFiles(HashMap<Path, u64>);

impl ListedFiles {
    pub(super) fn new(listed: &[ObjectMeta]) -> Self {
        let files = listed.iter().filter(|object| segment_of(&object.location).is_some());
        Self(files.map(|object| (object.location.clone(), object.size)).collect())
    }

    /// Returns whether a file is there in its length.
    pub(super) fn contains(&self, path: &Path, bytes: u64) -> bool {
        self.0.get(path) == Some(&bytes)
    }
}

/// Finds the files of segments and reads their deletions, by their ids. What is `listed` as it should be is not asked for again.
pub(super) async fn load_all(
    records: &[SegmentRecord],
    listed: &ListedFiles,
    env: &Env,
) -> HashMap<Uuid, Result<LoadedSegment>> {
    let mut loading = Vec::with_capacity(records.len());
    for record in records {
        let load = async move {
            check_files(record, listed, env).await?;
            load(record, env).await
        };
        loading.push(load.map(|loaded| (record.id, loaded)).boxed());
    }
    stream::iter(loading).buffer_unordered(AT_ONCE).collect().await
}

/// Checks that the files of a segment are there in their lengths.
///
/// # Errors
/// [`Error::Corrupt`]; the object store's.
async fn check_files(record: &SegmentRecord, listed: &ListedFiles, env: &Env) -> Result<()> {
    for (path, bytes) in files(record) {
        // What a repository holds is checked when it is copied.
        if listed.contains(&path, bytes) || env.objects.has_origin(&path) {
            continue;
        }
        let corrupt = |offset, reason| Error::Corrupt { file: path.to_string(), offset, reason };
        match env.objects.len(&path).await {
            Ok(found) if found == bytes => {}
            Ok(found) => return Err(corrupt(found, format!("{found} bytes, the catalog says {bytes}"))),
            Err(error) if is_damage(&error) => return Err(corrupt(0, "it is missing".to_owned())),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads which rows of a segment are deleted. A missing file is a damaged one.
async fn load(record: &SegmentRecord, env: &Env) -> Result<LoadedSegment> {
    let deletes = DeletesFile::from_record(record)?;
    let mut deleted = roaring::RoaringBitmap::new();
    if deletes.generation > 0 {
        let path = deletes.path(record);
        let read = env.objects.get_checked(&path, |bytes| deletes.decode(bytes, path.as_ref())).await?;
        let missing =
            || Error::Corrupt { file: path.to_string(), offset: 0, reason: "it is missing".to_owned() };
        deleted = read.ok_or_else(missing)?;
    }
    Ok(LoadedSegment { record: record.clone(), deletes, deleted })
}

impl Inner {
    /// Takes note of a shard whose files turn out to be damaged while it takes up its part of the log.
    pub(super) fn suspended(&self, index: &Index, shard: &Arc<Shard>, damage: Damage) -> Result<()> {
        let name = &index.meta().name;
        let error = damage.into_error();
        tracing::error!(index = %name, shard = shard.number, %error, "shard is damaged");
        let Ok(mut damaged) = self.damaged.try_lock() else {
            return Err(Error::Internal("shards are restored before the log is replayed".to_owned()));
        };
        let index = self.indices.read().get(name).cloned();
        let index = index.ok_or_else(|| Error::IndexNotFound { index: name.to_string() })?;
        damaged.push(DamagedShard { index, shard: Arc::clone(shard), segments: Vec::new(), loaded: true });
        Ok(())
    }

    /// Looks again at shards that are out of use, in a task of its own, unless one does so.
    pub(super) fn restore_damaged_soon(self: &Arc<Self>) {
        let Ok(mut damaged) = Arc::clone(&self.damaged).try_lock_owned() else { return };
        if damaged.is_empty() {
            return;
        }
        let inner = Arc::clone(self);
        sync::detached(async move {
            let mut left = Vec::new();
            for mut shard in damaged.drain(..) {
                match inner.restore(&mut shard).await {
                    Ok(true) => {}
                    Ok(false) => left.push(shard),
                    Err(error) => {
                        let (index, number) = (shard.index.meta(), shard.shard.number);
                        tracing::debug!(index = %index.name, shard = number, %error, "shard stays out of use");
                        left.push(shard);
                    }
                }
            }
            damaged.append(&mut left);
        });
    }

    /// Reads damaged files again of shards that serve, in a task of its own, unless one does so.
    pub(super) fn probe_damage_soon(self: &Arc<Self>) {
        let indices = self.all_indices();
        let shards = indices.iter().flat_map(|index| index.shards());
        let unreadable = |shard: &&Arc<Shard>| shard.fault() == Some(ShardFault::Unreadable);
        let shards: Vec<Arc<Shard>> = shards.filter(unreadable).cloned().collect();
        if shards.is_empty() || std::mem::replace(&mut self.busy.lock().damage_probes, true) {
            return;
        }
        let inner = Arc::clone(self);
        sync::detached(async move {
            let probe = move || {
                shards.iter().for_each(|shard| shard.probe_damage());
                Ok(())
            };
            if let Err(error) = inner.env().compute.run(Priority::Background, probe).await {
                tracing::debug!(%error, "damaged files are not read again");
            }
            inner.busy.lock().damage_probes = false;
        });
    }

    /// Puts a shard in use again if its files are right now; whether it needs no other attempt.
    async fn restore(self: &Arc<Self>, damaged: &mut DamagedShard) -> Result<bool> {
        let DamagedShard { index, shard, segments, loaded } = damaged;
        // No file makes a refused mapping right: the shard stays out of use, and its part of the log stays.
        if shard.read().closed() || index.unsupported().is_some() {
            return Ok(true);
        }
        if !*loaded {
            let read = load_all(segments, &ListedFiles::default(), self.env()).await;
            let read = read.into_values().collect::<Result<Vec<_>>>()?;
            shard.restore_segments(read, self.env()).await;
            *loaded = true;
        }
        let (inner, of, from) = (Arc::clone(self), (Arc::clone(index), Arc::clone(shard)), Handle::current());
        sync::blocking(move || inner.replay_shard(&of.0, &of.1, &from)).await?;
        shard.end_damage().await;
        tracing::info!(index = %index.meta().name, shard = shard.number, "shard is in use again");
        self.agenda.report(index, shard);
        Ok(true)
    }

    /// Applies the part of the log that a shard which was out of use has not taken up. It has taken no writes since the
    /// start, so all of that part is durable. Blocks.
    fn replay_shard(self: &Arc<Self>, index: &Index, shard: &Arc<Shard>, runtime: &Handle) -> Result<()> {
        let wal = self.wal()?;
        // What went before the shard was out of use had nothing of it that is not in segments; since then nothing goes.
        let mut next = shard.read().committed_frame().max(wal.first_frame());
        while next < wal.durable_below() {
            let frames = wal.read(next, LOG_BYTES)?;
            let Some((last, _)) = frames.last() else { return Ok(()) };
            next = last + 1;
            for (number, frame) in frames {
                let at = (frame.time_ms, frame.origin);
                for entry in frame.entries {
                    if let Entry::Ops(ops) = entry
                        && ops.index == shard.index
                        && ops.shard == shard.number
                    {
                        apply_ops(self, index, number, at, ops, Replay::Shard)?;
                    }
                }
                if self.budget.used() > self.budget.max() {
                    flush_largest(self, runtime)?;
                }
            }
        }
        Ok(())
    }
}
