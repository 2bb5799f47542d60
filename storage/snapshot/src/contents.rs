//! Contents of an index in a snapshot: metadata, mapping and the files of its segments; and the global state.

use std::collections::BTreeMap;

use millrace_catalog::metadata::IndexMeta;
use millrace_catalog::{Position, SegmentRecord};
use millrace_segment::SegmentFile;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::digest::ContentDigest;
use crate::manifest::FORMAT;

/// Largest sequence number, primary term or epoch of an owner: they count on in the store that restores them.
const MAX_NUMBER: u64 = 1 << 62;

/// A file of a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileReference {
    /// Its content, which is its name.
    pub(crate) sha256: ContentDigest,
    /// Its length.
    pub(crate) bytes: u64,
}

/// A segment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SegmentContents {
    /// The catalog's record, without a deletes file.
    pub(crate) record: SegmentRecord,
    /// `data.parquet`.
    pub(crate) data: FileReference,
    /// `index.bundle`.
    pub(crate) bundle: FileReference,
    /// `ids`, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ids: Option<FileReference>,
    /// Deleted rows in the form of a deletes file, where there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) deletes: Option<FileReference>,
}

impl SegmentContents {
    /// Makes the contents of a segment and its stored files.
    ///
    /// # Errors
    /// A file that each segment has is missing.
    pub(crate) fn new(
        record: SegmentRecord,
        files: &BTreeMap<SegmentFile, FileReference>,
        deletes: Option<FileReference>,
    ) -> Result<Self, String> {
        let file = |kind: SegmentFile| files.get(&kind).copied();
        match (file(SegmentFile::Data), file(SegmentFile::Bundle)) {
            (Some(data), Some(bundle)) => {
                Ok(Self { record, data, bundle, ids: file(SegmentFile::Ids), deletes })
            }
            _ => Err(format!("segment [{}] lacks a file", record.id)),
        }
    }

    /// Lists its files.
    pub(crate) fn files(&self) -> impl Iterator<Item = FileReference> {
        [Some(self.data), Some(self.bundle), self.ids, self.deletes].into_iter().flatten()
    }
}

/// A shard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ShardContents {
    /// Number of the shard.
    pub(crate) number: u32,
    /// Primary term.
    pub(crate) primary_term: u64,
    /// Sequence number of the next operation.
    pub(crate) next_seq_no: u64,
    /// Segments in order.
    pub(crate) segments: Vec<SegmentContents>,
}

/// An index.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct IndexContents {
    format: u32,
    /// Name, settings, aliases.
    pub(crate) meta: IndexMeta,
    /// The mapping as the catalog has it.
    pub(crate) mapping: String,
    /// Shards in order.
    pub(crate) shards: Vec<ShardContents>,
}

impl IndexContents {
    pub(crate) fn new(meta: IndexMeta, mapping: String, shards: Vec<ShardContents>) -> Self {
        Self { format: FORMAT, meta, mapping, shards }
    }

    /// Lists the files of its segments.
    pub(crate) fn files(&self) -> impl Iterator<Item = FileReference> {
        self.shards.iter().flat_map(|shard| &shard.segments).flat_map(SegmentContents::files)
    }

    /// Says what no store has written; `None` where it makes sense.
    pub(crate) fn fault(&self) -> Option<String> {
        if self.shards.len() != self.meta.shards as usize {
            return Some(format!("{} shards, its metadata says {}", self.shards.len(), self.meta.shards));
        }
        for (number, shard) in (0..).zip(&self.shards) {
            if shard.number != number {
                return Some(format!("shard {} in the place of shard {number}", shard.number));
            }
            if shard.next_seq_no.max(shard.primary_term) > MAX_NUMBER {
                return Some(format!("shard {number} has a sequence number or term beyond {MAX_NUMBER}"));
            }
            for segment in &shard.segments {
                let record = &segment.record;
                let ids = segment.ids.map_or(0, |ids| ids.bytes);
                if (segment.data.bytes, segment.bundle.bytes, ids)
                    != (record.data_bytes, record.bundle_bytes, record.ids_bytes)
                {
                    return Some(format!(
                        "files of segment [{}] have other lengths than its record",
                        record.id
                    ));
                }
                if record.max_seq_no >= shard.next_seq_no || record.min_seq_no > record.max_seq_no {
                    return Some(format!("segment [{}] is ahead of its shard", record.id));
                }
            }
        }
        None
    }
}

/// State that belongs to no index.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct GlobalState {
    format: u32,
    /// Persistent cluster settings, flattened.
    pub(crate) persistent: Map<String, Value>,
    /// Templates of each kind by name.
    pub(crate) templates: BTreeMap<String, BTreeMap<String, Value>>,
    /// Positions of sources.
    pub(crate) positions: Vec<SourcePosition>,
}

/// Position of a part of a source as of the snapshot's frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SourcePosition {
    pub(crate) pipeline: String,
    pub(crate) source: String,
    pub(crate) partition: String,
    /// The position, hexadecimal.
    pub(crate) position: String,
    pub(crate) owner_epoch: u64,
}

impl SourcePosition {
    pub(crate) fn new(position: &Position) -> Self {
        use std::fmt::Write as _;
        let mut hexadecimal = String::with_capacity(2 * position.position.len());
        for byte in &position.position {
            let _ = write!(hexadecimal, "{byte:02x}");
        }
        Self {
            pipeline: position.pipeline.clone(),
            source: position.source.clone(),
            partition: position.partition.clone(),
            position: hexadecimal,
            owner_epoch: position.owner_epoch,
        }
    }

    /// Converts it to a position of a store; `frame` is 0.
    ///
    /// # Errors
    /// A position that no store has written.
    pub(crate) fn decode(&self) -> Result<Position, String> {
        let fault = |reason: &str| format!("position of source [{}] {reason}", self.source);
        if self.owner_epoch > MAX_NUMBER {
            return Err(fault(&format!("has an owner's epoch beyond {MAX_NUMBER}")));
        }
        let digits = self.position.as_bytes();
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let byte = |pair: &[u8]| match pair {
            [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        };
        let position: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
        Ok(Position {
            pipeline: self.pipeline.clone(),
            source: self.source.clone(),
            partition: self.partition.clone(),
            position: position.ok_or_else(|| fault("is not hexadecimal"))?,
            owner_epoch: self.owner_epoch,
            frame: 0,
        })
    }
}

impl GlobalState {
    pub(crate) fn new(
        persistent: Map<String, Value>,
        templates: BTreeMap<String, BTreeMap<String, Value>>,
        positions: Vec<SourcePosition>,
    ) -> Self {
        Self { format: FORMAT, persistent, templates, positions }
    }
}
