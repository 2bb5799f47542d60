//! Fetch of the files of a restore: each is verified, and the object store takes it under a new segment id.

use std::path::PathBuf;

use bytes::Bytes;
use futures::future::join_all;
use millrace_engine::{AdoptedSegment, RestoredIndex, RestoredShard, SegmentFiles, SegmentOrigin};
use millrace_segment::{SegmentFile, decode_deletes};
use roaring::RoaringBitmap;
use uuid::Uuid;

use crate::contents::{FileReference, IndexContents, SegmentContents};
use crate::error::{Error, Result};
use crate::manifest::IndexSummary;
use crate::recovery::{IndexRecovery, ShardRecovery};
use crate::repository::Repository;
use crate::restore::RestoreJob;
use crate::restoring::check_space;
use crate::side_by_side::run_side_by_side;

/// An index whose files the object store has.
pub(crate) struct FetchedIndex {
    pub(crate) name: String,
    pub(crate) contents: IndexContents,
    pub(crate) restored: RestoredIndex,
}

impl RestoreJob {
    /// Gives up the segments of indices that are not restored.
    pub(crate) async fn discard(&self, fetched: Vec<FetchedIndex>) {
        let shards = fetched.into_iter().flat_map(|index| index.restored.shards);
        let unused = shards.flat_map(|shard| shard.segments);
        self.service.inner.engine.discard_adopted(unused).await;
    }

    /// Notes that the files of an index are fetched; the index has one name here, and one in the snapshot.
    fn begin_recovery(&self, uuid: Uuid, (index, source_index): (&str, &str), contents: &IndexContents) {
        let (repository, snapshot) = self.key();
        let shards = contents.shards.iter().map(|shard| {
            let files = shard.segments.iter().flat_map(SegmentContents::files);
            files.map(|file| file.bytes).collect::<ShardRecovery>()
        });
        let engine = &self.service.inner.engine;
        let recovery = IndexRecovery {
            index: index.to_owned(),
            repository: repository.to_owned(),
            snapshot: snapshot.to_owned(),
            source_index: Some(source_index.to_owned()),
            started_ms: engine.clock().now_ms(),
            ended_ms: None,
            shards: shards.collect(),
        };
        self.begun.lock().push(uuid);
        self.service.inner.recoveries.begin(uuid, recovery);
    }

    pub(crate) async fn fetch_index(&self, name: &str, summary: &IndexSummary) -> Result<FetchedIndex> {
        let contents = self.repository.read_index(summary.contents, summary.contents_bytes).await?;
        if contents.meta.shards != summary.shards {
            return Err(
                self.fail(format!("contents of index [{}] are not those of the manifest", summary.name))
            );
        }
        let engine = &self.service.inner.engine;
        let bytes = contents.files().map(|file| file.bytes).fold(0, u64::saturating_add);
        check_space(engine, self.key(), bytes).await?;
        let uuid = Uuid::new_v4();
        self.begin_recovery(uuid, (name, &summary.name), &contents);
        let mut shards: Vec<RestoredShard> = Vec::with_capacity(contents.shards.len());
        for shard in &contents.shards {
            let (segments, failed) = self.fetch_segments((uuid, shard.number), &shard.segments).await;
            shards.push(RestoredShard {
                number: shard.number,
                primary_term: shard.primary_term,
                next_seq_no: shard.next_seq_no,
                segments,
            });
            if let Some(error) = failed {
                let unused = shards.into_iter().flat_map(|shard| shard.segments);
                self.service.inner.engine.discard_adopted(unused).await;
                return Err(error);
            }
        }
        let restored = RestoredIndex { uuid, mapping: contents.mapping.clone().into_bytes(), shards };
        Ok(FetchedIndex { name: name.to_owned(), contents, restored })
    }

    /// Fetches segments in order until one fails; those that are under way then are fetched to their end.
    async fn fetch_segments(
        &self,
        shard: (Uuid, u32),
        segments: &[SegmentContents],
    ) -> (Vec<AdoptedSegment>, Option<Error>) {
        let fetches = segments.iter().map(|segment| self.fetch_segment(shard, segment)).collect();
        run_side_by_side(fetches).await
    }

    async fn fetch_segment(&self, shard: (Uuid, u32), segment: &SegmentContents) -> Result<AdoptedSegment> {
        self.check_cancelled()?;
        let engine = &self.service.inner.engine;
        let deleted = match segment.deletes {
            None => RoaringBitmap::new(),
            Some(file) => {
                let decode = move |content: &Bytes| {
                    decode_deletes(content, &file.sha256.to_string()).map_err(|error| error.to_string())
                };
                let deleted = self.repository.read_content((file.sha256, file.bytes), decode).await?;
                self.service.inner.recoveries.note_file(&shard.0, shard.1, file.bytes);
                deleted
            }
        };
        if self.is_early {
            return self.adopt_remote(shard, segment, deleted).await;
        }
        let wanted = [
            (SegmentFile::Data, Some(segment.data)),
            (SegmentFile::Bundle, Some(segment.bundle)),
            (SegmentFile::Ids, segment.ids),
        ];
        let files: Vec<(SegmentFile, FileReference, PathBuf)> = wanted
            .into_iter()
            .filter_map(|(kind, file)| file.map(|file| (kind, file, engine.scratch_file())))
            .collect();
        let adopt = async {
            let fetches = files.iter().map(|(_, file, scratch)| async move {
                let check = || self.check_transfer();
                self.repository.fetch_content((file.sha256, file.bytes), scratch, &check).await?;
                self.service.inner.recoveries.note_file(&shard.0, shard.1, file.bytes);
                Ok::<_, Error>(())
            });
            // All come to their end, so that none leaves a file behind.
            join_all(fetches).await.into_iter().collect::<Result<()>>()?;
            let moved = files.iter().map(|(kind, _, scratch)| (*kind, scratch.clone())).collect();
            Ok(engine.adopt_segment(shard, &segment.record, deleted, SegmentFiles { files: moved }).await?)
        };
        let adopted = adopt.await;
        if adopted.is_err() {
            for (_, _, scratch) in &files {
                engine.remove_scratch(scratch.clone()).await;
            }
        }
        adopted
    }

    /// Takes a segment over whose files stay in the repository for now.
    async fn adopt_remote(
        &self,
        shard: (Uuid, u32),
        segment: &SegmentContents,
        deleted: RoaringBitmap,
    ) -> Result<AdoptedSegment> {
        let (repository, snapshot) = self.key();
        let path = |file: FileReference| Repository::content_path(file.sha256).to_string();
        let origin = SegmentOrigin {
            repository: repository.to_owned(),
            snapshot: snapshot.to_owned(),
            data: path(segment.data),
            bundle: path(segment.bundle),
            ids: segment.ids.map(path),
        };
        let (engine, objects) = (&self.service.inner.engine, self.repository.objects());
        let (adopted, pending) =
            engine.adopt_remote(shard, &segment.record, deleted, origin, objects).await?;
        self.pending.lock().entry(shard.0).or_default().push(pending);
        Ok(adopted)
    }
}
