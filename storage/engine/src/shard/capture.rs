//! Capture of a shard for a snapshot: its state as of one frame, without a flush.
//!
//! A capture holds the stored segments, so their files stay, and the memtable's rows. [`ShardCapture::merge_unflushed`] makes files
//! of the rows that no stored segment has. The shard goes on meanwhile.

use std::path::Path;
use std::sync::Arc;

use millrace_catalog::SegmentRecord;
use millrace_catalog::metadata::SortField;
use millrace_mapping::Mapping;
use millrace_runtime::{CancelSignal, Priority, Result};
use millrace_segment::{
    self as segment, DeletesFile, Env, MemChunk, Memory, MergeInput, MergeOutput, MergeTarget, Segment,
    next_key,
};
use roaring::RoaringBitmap;
use uuid::Uuid;

use super::WriteLock;
use crate::SegmentOrigin;

/// A stored segment as a snapshot has it.
#[derive(Clone, Debug)]
pub struct CapturedSegment {
    /// The catalog's record, without a deletes file.
    pub record: SegmentRecord,
    /// Deleted rows.
    pub deleted: RoaringBitmap,
    /// Keeps the files.
    _segment: Arc<Segment>,
}

/// A shard as of one frame.
#[derive(Clone, Debug)]
pub struct ShardCapture {
    /// Number of the shard.
    pub number: u32,
    /// Primary term.
    pub primary_term: u64,
    /// Sequence number of the next operation.
    pub next_seq_no: u64,
    /// Stored segments, in order.
    pub segments: Vec<CapturedSegment>,
    /// Segments in memory with their deleted rows.
    memory: Vec<MergeInput>,
    /// Chunks of rows that no refresh has made a segment of, with their deleted rows.
    tails: Vec<(Vec<Arc<MemChunk>>, RoaringBitmap)>,
    sort: Arc<[SortField]>,
    zstd_level: i32,
    index: Uuid,
}

impl WriteLock<'_> {
    /// Captures the shard's state; `None` where the index was deleted.
    ///
    /// # Errors
    /// [`millrace_runtime::Error::Corrupt`] where the shard is out of use.
    pub(crate) fn capture(&self) -> Result<Option<ShardCapture>> {
        let state = self.shard.state.read();
        if state.closed {
            return Ok(None);
        }
        state.check()?;
        let mut captured = ShardCapture {
            number: self.shard.number,
            primary_term: state.primary_term,
            next_seq_no: state.next_seq_no,
            segments: Vec::new(),
            memory: Vec::new(),
            tails: Vec::new(),
            sort: Arc::clone(&self.shard.sort),
            zstd_level: self.shard.zstd_level(),
            index: self.shard.index,
        };
        for held in &state.segments {
            let segment = Arc::clone(&held.segment);
            match segment.as_stored() {
                Some(stored) => {
                    let mut record = stored.record.clone();
                    DeletesFile::default().write_to(&mut record);
                    SegmentOrigin::remove_from(&mut record);
                    let deleted = held.live.clone();
                    captured.segments.push(CapturedSegment { record, deleted, _segment: segment });
                }
                None => captured.memory.push(MergeInput { segment, deleted: held.live.clone() }),
            }
        }
        let tails = state.frozen.iter().chain([&state.tail]).filter(|tail| tail.rows > 0);
        captured.tails.extend(tails.map(|tail| (tail.chunks.clone(), tail.deleted.clone())));
        Ok(Some(captured))
    }
}

impl ShardCapture {
    /// Returns whether rows are in memory alone.
    pub fn has_unflushed(&self) -> bool {
        !self.memory.is_empty() || !self.tails.is_empty()
    }

    /// Writes the rows that no stored segment has into the files of one segment in `scratch`. `None` where no row is live.
    ///
    /// # Errors
    /// The disk's.
    pub(crate) async fn merge_unflushed(
        &self,
        mapping: &Arc<Mapping>,
        env: &Env,
        scratch: &Arc<Path>,
    ) -> Result<Option<MergeOutput>> {
        let mut inputs = self.memory.clone();
        for (chunks, deleted) in &self.tails {
            let (mapping, chunks) = (Arc::clone(mapping), chunks.clone());
            let build = move || Memory::build(&mapping, &chunks);
            let memory = env.compute.run(Priority::Background, build).await?;
            let segment = Arc::new(Segment::memory(next_key(), env.compute.clone(), memory));
            inputs.push(MergeInput { segment, deleted: deleted.clone() });
        }
        if inputs.is_empty() {
            return Ok(None);
        }
        let target = MergeTarget {
            index: self.index,
            shard: self.number,
            level: 0,
            zstd_level: self.zstd_level,
            sort: Arc::clone(&self.sort),
            cancel: CancelSignal::default(),
        };
        let (mapping, scratch) = (Arc::clone(mapping), Arc::clone(scratch));
        let merge = move || segment::merge(&inputs, &mapping, &target, &scratch);
        env.compute.run(Priority::Background, merge).await
    }
}
