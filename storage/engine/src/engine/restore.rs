//! Restored indices take their place in the store.
//!
//! Files of segments come first ([`Engine::adopt_segment`]), under a new index uuid and new segment ids: nothing names them yet, so
//! a crash leaves orphans. Then one transaction of the catalog has the indices, their mappings, segments and checkpoints
//! ([`Engine::install_restored`]), and requests see them. Operations of a restored index are in no frame of this log: its shards
//! begin behind the newest durable frame, and readers of history leave out what is below `index.restored.seq_nos`.

use std::path::PathBuf;
use std::sync::Arc;

use futures::future::BoxFuture;
use millrace_catalog::access::Principal;
use millrace_catalog::description::{
    self, CoveredRanges, IndexDescription, SegmentCoverage, SegmentDescription,
};
use millrace_catalog::frame::FrameNumber;
use millrace_catalog::metadata::{IndexMeta, Metadata, MetadataChange};
use millrace_catalog::{Commit, SegmentRecord, ShardCheckpoint};
use millrace_mapping::Mapping;
use millrace_runtime::{Error, Result, sync};
use millrace_segment::{DeletesFile, SegmentFile, file_path};
use roaring::RoaringBitmap;
use uuid::Uuid;

use super::index::Index;
use super::{Engine, Inner};
use crate::shard::LoadedSegment;

/// Files of a segment on the local disk; they are moved away.
#[derive(Clone, Debug)]
pub struct SegmentFiles {
    /// Each file and where it is.
    pub files: Vec<(SegmentFile, PathBuf)>,
}

/// A segment whose files the object store has, and no catalog yet.
#[derive(Clone, Debug)]
pub struct AdoptedSegment {
    record: SegmentRecord,
    deletes: DeletesFile,
    deleted: RoaringBitmap,
}

/// A shard to be restored.
#[derive(Clone, Debug)]
pub struct RestoredShard {
    /// Number of the shard.
    pub number: u32,
    /// Primary term that it had.
    pub primary_term: u64,
    /// Sequence number of its next operation.
    pub next_seq_no: u64,
    /// Its segments.
    pub segments: Vec<AdoptedSegment>,
}

/// An index to be restored.
#[derive(Clone, Debug)]
pub struct RestoredIndex {
    /// Its uuid in this store, which its segments were adopted for.
    pub uuid: Uuid,
    /// Its mapping, encoded.
    pub mapping: Vec<u8>,
    /// Its shards.
    pub shards: Vec<RestoredShard>,
}

/// Decides where restored indices go.
pub type RestoreDecision<'a> = Box<dyn FnOnce(&Metadata) -> Result<Vec<MetadataChange>> + Send + 'a>;

impl Engine {
    /// Takes the files of a segment into the object store, under a new id, for a shard of an index to come.
    ///
    /// # Errors
    /// The object store's; what is left then is an orphan.
    pub async fn adopt_segment(
        &self,
        (index, shard): (Uuid, u32),
        record: &SegmentRecord,
        deleted: RoaringBitmap,
        files: SegmentFiles,
    ) -> Result<AdoptedSegment> {
        let objects = &self.inner.env().objects;
        let mut record = SegmentRecord { id: Uuid::new_v4(), index, shard, ..record.clone() };
        let targets: Vec<_> =
            files.files.into_iter().map(|(kind, file)| (file_path(&record, kind), file)).collect();
        objects.put_files(&targets).await?;
        let mut deletes = DeletesFile::default();
        if !deleted.is_empty() {
            let (file, bytes) = DeletesFile::encode(&deleted, 1)?;
            objects.put(&file.path(&record), bytes).await?;
            deletes = file;
        }
        deletes.write_to(&mut record);
        Ok(AdoptedSegment { record, deletes, deleted })
    }

    /// Deletes the files of adopted segments that will not be used.
    pub async fn discard_adopted(&self, segments: impl IntoIterator<Item = AdoptedSegment>) {
        for AdoptedSegment { record, .. } in segments {
            let deleted = millrace_segment::delete_files(
                &self.inner.env().objects,
                record.index,
                record.shard,
                record.id,
            );
            if let Err(error) = deleted.await {
                tracing::warn!(segment = %record.id, %error, "cannot delete an unused segment; a later start will");
            }
        }
    }

    /// Makes restored indices and other changes durable and visible, all at once. `decide` returns a `PutIndex` with the uuid of
    /// each restored index.
    ///
    /// # Errors
    /// The decision's; a mapping that cannot be used; a failing catalog. Then nothing has changed.
    pub fn install_restored<'a>(
        &'a self,
        principal: &'a Principal,
        restored: Vec<RestoredIndex>,
        decide: RestoreDecision<'a>,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(sync::scope(self.install_decided(principal, restored, decide)))
    }

    async fn install_decided(
        &self,
        principal: &Principal,
        restored: Vec<RestoredIndex>,
        decide: RestoreDecision<'_>,
    ) -> Result<()> {
        let inner = &self.inner;
        inner.check_accepting()?;
        // Checkpoints name this frame: a log that ends before it would be refused.
        let next_frame = inner.wal()?.next_frame();
        if let Some(last) = next_frame.checked_sub(1) {
            inner.wal()?.synced(last).await?;
        }
        let one = inner.metadata_change.lock_owned().await;
        let current = inner.metadata.load_full();
        let changes = decide(&current)?;
        let (mut created, mut mappings, mut commit) = (Vec::new(), Vec::new(), Commit::default());
        for index in restored {
            let put = changes.iter().find_map(|change| match change {
                MetadataChange::PutIndex { meta, .. } if meta.uuid == index.uuid => Some(meta),
                _ => None,
            });
            let Some(meta) = put else { continue };
            let mapping = Mapping::decode(&index.mapping, &meta.settings)?;
            mappings.push((index.uuid, mapping.encode()));
            created.push(inner.load_restored(meta, mapping, index.shards, next_frame, &mut commit).await?);
        }
        let count = created.len();
        tracing::info!(principal = principal.name(), indices = count, "indices are restored");
        let inner = Arc::clone(inner);
        let installed = created.clone();
        sync::uninterrupted(async move {
            inner.change_durably(one, current, changes, created, (mappings, Some(commit))).await
        })
        .await?;
        for index in &installed {
            self.inner.agenda.report_all(index);
        }
        Ok(())
    }
}

impl Inner {
    /// Makes the running index of restored shards, describes its segments, and adds them to the commit.
    async fn load_restored(
        &self,
        meta: &Arc<IndexMeta>,
        mapping: Mapping,
        shards: Vec<RestoredShard>,
        next_frame: FrameNumber,
        commit: &mut Commit,
    ) -> Result<Arc<Index>> {
        let generation = self.services.catalog.generation();
        let described = IndexDescription::new(meta, &mapping, generation)?;
        let (mut checkpoints, mut segments, mut rests) = (Vec::new(), Vec::new(), Vec::new());
        for shard in shards {
            if shard.number >= meta.shards {
                return Err(Error::Internal(format!(
                    "shard {} of [{}] is too many",
                    shard.number, meta.name
                )));
            }
            // Operations that were shown and lost may have the sequence numbers that come next, but not their term.
            let primary_term = shard.primary_term + 1;
            let covered = coverages(&shard, next_frame, generation);
            for (mut adopted, account) in shard.segments.into_iter().zip(covered.segments) {
                account.keep_in(&mut adopted.record);
                self.describe_restored(
                    &described,
                    shard.number,
                    account,
                    primary_term,
                    Some(&adopted.record),
                )
                .await?;
                if let Some((_, greatest)) = &adopted.record.generated_ids {
                    self.ids.lock().observe(greatest);
                }
                commit.put.push(adopted.record.clone());
                let AdoptedSegment { record, deletes, deleted } = adopted;
                segments.push(LoadedSegment { record, deletes, deleted });
            }
            if let Some(account) = covered.rest {
                let id =
                    self.describe_restored(&described, shard.number, account, primary_term, None).await?;
                rests.push((shard.number, id));
            }
            checkpoints.push(ShardCheckpoint {
                index: meta.uuid,
                shard: shard.number,
                primary_term,
                next_seq_no: shard.next_seq_no,
                next_frame,
            });
        }
        commit.checkpoints.extend(checkpoints.iter().cloned());
        let (env, clock) = (self.env(), &self.clock);
        let index = Index::new(Arc::clone(meta), mapping, &checkpoints, segments, env, clock, &self.agenda);
        for (number, id) in rests {
            index.shard(number)?.has_rests(vec![id]);
        }
        Ok(Arc::new(index))
    }

    async fn describe_restored(
        &self,
        index: &IndexDescription,
        shard: u32,
        account: SegmentCoverage,
        primary_term: u64,
        record: Option<&SegmentRecord>,
    ) -> Result<Uuid> {
        let id = record.map_or_else(Uuid::new_v4, |record| record.id);
        let record = record.cloned();
        let described = SegmentDescription::new(index.clone(), shard, id, account, primary_term, record);
        self.env().objects.put(&described.path(), description::encode(&described)?).await?;
        Ok(id)
    }
}

/// The operations that each segment of a restored shard accounts for, and those that none does.
struct Coverages {
    segments: Vec<SegmentCoverage>,
    rest: Option<SegmentCoverage>,
}

/// Shares the operations of a shard out among its segments: each keeps its own, the last one takes what no segment has.
fn coverages(shard: &RestoredShard, next_frame: FrameNumber, generation: u64) -> Coverages {
    let mut segments: Vec<SegmentCoverage> = shard
        .segments
        .iter()
        .map(|segment| SegmentCoverage { next_frame, generation, ..SegmentCoverage::new(&segment.record) })
        .collect();
    let missing =
        CoveredRanges::union(segments.iter().map(|account| &account.covers)).missing(shard.next_seq_no);
    let rest = match segments.last_mut() {
        Some(last) => {
            last.covers = CoveredRanges::union([&last.covers, &missing]);
            None
        }
        None if missing.ranges().is_empty() => None,
        None => Some(SegmentCoverage { covers: missing, next_frame, generation }),
    };
    Coverages { segments, rest }
}
