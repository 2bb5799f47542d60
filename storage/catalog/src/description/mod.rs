//! Descriptions of objects, from which a lost catalog can be made again.
//!
//! A [`SegmentDescription`] lies beside the files of a segment, and is written last of them: a segment that has one was whole,
//! and every operation in it was durable in the log. An [`IndexDescription`] lies in the directory of its index, from before the
//! catalog knows the index until it has forgotten it. The engine writes both, `repair` reads them. The
//! rules are in `docs/internals/segment-format.md`.

mod covered_ranges;

use bytes::Bytes;
use millrace_mapping::Mapping;
use millrace_runtime::{Error, Result};
use object_store::path::Path;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;
use uuid::Uuid;

pub use self::covered_ranges::CoveredRanges;
use crate::catalog::SegmentRecord;
use crate::metadata::IndexMeta;

/// Version of the format.
const FORMAT: u32 = 1;
/// Bytes of a description that is read, at most.
pub const MAX_BYTES: u64 = 256 << 20;
/// Name of a segment's description in its directory.
pub const SEGMENT: &str = "segment.json";
/// Name of an index's description in its directory.
pub const INDEX: &str = "index.json";
/// Key of a record's `extra`.
const ACCOUNT: &str = "account";

/// An index as of some generation of the catalog.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IndexDescription {
    format: u32,
    /// Generation of the catalog when it was written.
    pub generation: u64,
    /// Name of the index.
    pub name: Arc<str>,
    /// Uuid of the index.
    pub uuid: Uuid,
    /// Milliseconds from the epoch to its creation.
    pub created_ms: i64,
    /// Number of its shards.
    pub shards: u32,
    pub(crate) replicas: u32,
    pub(crate) open: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) doc_type: Option<Arc<str>>,
    /// Its settings, by their full names.
    pub settings: Map<String, Value>,
    /// The mapping as the catalog has it ([`Mapping::encode`]).
    pub mapping: String,
}

impl IndexDescription {
    /// Describes an index.
    ///
    /// # Errors
    /// None that is known of.
    pub fn new(meta: &IndexMeta, mapping: &Mapping, generation: u64) -> Result<Self> {
        Self::with_encoded_mapping(meta, &mapping.encode(), generation)
    }

    /// Describes an index with an encoded mapping, which this version may not accept.
    ///
    /// # Errors
    /// The mapping is not UTF-8.
    pub fn with_encoded_mapping(meta: &IndexMeta, mapping: &[u8], generation: u64) -> Result<Self> {
        let mapping = String::from_utf8(mapping.to_vec()).map_err(|e| Error::Internal(e.to_string()))?;
        Ok(Self {
            format: FORMAT,
            generation,
            name: Arc::clone(&meta.name),
            uuid: meta.uuid,
            created_ms: meta.created_ms,
            shards: meta.shards,
            replicas: meta.replicas,
            open: meta.open,
            doc_type: meta.doc_type.clone(),
            settings: meta.settings.clone(),
            mapping,
        })
    }

    /// The index, without aliases.
    pub fn meta(&self) -> IndexMeta {
        IndexMeta {
            name: Arc::clone(&self.name),
            uuid: self.uuid,
            settings: self.settings.clone(),
            aliases: BTreeMap::new(),
            open: self.open,
            created_ms: self.created_ms,
            shards: self.shards,
            replicas: self.replicas,
            doc_type: self.doc_type.clone(),
        }
    }
}

/// Operations of its shard that a segment stands for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentCoverage {
    /// Their sequence numbers. Those of segments that are there at the same time are disjoint; what has no row left in any
    /// segment counts as the next flush's.
    pub covers: CoveredRanges,
    /// The checkpoint's frame once all operations below the end of `covers` were in segments; 0 where it is not known.
    pub next_frame: u64,
    /// Generation of the catalog before the segment was committed: of two segments that cover the same the one with the
    /// greater generation holds.
    pub generation: u64,
}

impl SegmentCoverage {
    /// Reads what a record says; of one made by a version before this was kept, what its sequence numbers tell.
    pub fn new(record: &SegmentRecord) -> Self {
        let known = record.extra.get(ACCOUNT).and_then(|value| Self::deserialize(value).ok());
        known.unwrap_or_else(|| Self {
            covers: vec![(record.min_seq_no, record.max_seq_no.saturating_add(1))].into(),
            ..Self::default()
        })
    }

    /// Keeps it in a record.
    pub fn keep_in(&self, record: &mut SegmentRecord) {
        record.extra[ACCOUNT] = serde_json::json!(self);
    }
}

/// A segment as it was committed, or operations of which no row is left.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SegmentDescription {
    format: u32,
    /// The index, as it was then.
    pub index: IndexDescription,
    /// Number of the shard.
    pub shard: u32,
    /// Uuid of the segment.
    pub id: Uuid,
    /// The operations that it stands for.
    pub account: SegmentCoverage,
    /// Primary term of the shard.
    pub primary_term: u64,
    /// Segments that it replaces.
    pub replaces: Vec<Uuid>,
    /// Generations of other segments' deletes files that were written before it, as part of the same commit.
    pub deletes: Vec<(Uuid, u64)>,
    /// The catalog's record; `None` where no row is left.
    pub record: Option<SegmentRecord>,
}

impl SegmentDescription {
    /// Describes a segment that replaces none.
    pub fn new(
        index: IndexDescription,
        shard: u32,
        id: Uuid,
        account: SegmentCoverage,
        primary_term: u64,
        record: Option<SegmentRecord>,
    ) -> Self {
        let (replaces, deletes) = (Vec::new(), Vec::new());
        Self { format: FORMAT, index, shard, id, account, primary_term, replaces, deletes, record }
    }

    /// Returns its path.
    pub fn path(&self) -> Path {
        segment_path(self.index.uuid, self.shard, self.id)
    }
}

/// Object path of a segment's directory.
pub fn directory_path(index: Uuid, shard: u32, segment: Uuid) -> Path {
    Path::from_iter([index.simple().to_string(), shard.to_string(), segment.simple().to_string()])
}

/// Object path of a segment's description.
pub fn segment_path(index: Uuid, shard: u32, segment: Uuid) -> Path {
    directory_path(index, shard, segment).join(SEGMENT)
}

/// Object path of an index's description.
pub fn index_path(index: Uuid) -> Path {
    Path::from_iter([index.simple().to_string(), INDEX.to_owned()])
}

/// Encodes a description.
///
/// # Errors
/// None that is known of.
pub fn encode(description: &impl Serialize) -> Result<Bytes> {
    let mut bytes = serde_json::to_vec(description).map_err(|error| Error::Internal(error.to_string()))?;
    let sum = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(format!("\n{sum:08x}\n").as_bytes());
    Ok(bytes.into())
}

/// Decodes a description, or says what is wrong with it.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    #[derive(Deserialize)]
    struct Version {
        format: u32,
    }
    let (json, sum) = bytes.split_last_chunk::<10>().ok_or("cut off")?;
    if format!("\n{:08x}\n", crc32c::crc32c(json)).as_bytes() != sum {
        return Err("its checksum is wrong".to_owned());
    }
    let Version { format } = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    if format != FORMAT {
        return Err(format!("it has format {format}; this program reads {FORMAT}"));
    }
    serde_json::from_slice(json).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_comes_back_and_nothing_else_is_accepted() {
        let meta = IndexMeta {
            name: "logs".into(),
            uuid: Uuid::from_u128(7),
            settings: Map::from_iter([("index.number_of_shards".to_owned(), "2".into())]),
            aliases: BTreeMap::new(),
            open: true,
            created_ms: 5,
            shards: 2,
            replicas: 1,
            doc_type: None,
        };
        let mapping = Mapping::empty(&meta.settings);
        let index = IndexDescription::new(&meta, &mapping, 9).unwrap();
        assert_eq!(index.meta(), meta);
        let account = SegmentCoverage { covers: vec![(0, 4), (6, 9)].into(), next_frame: 3, generation: 9 };
        let given = SegmentDescription::new(index, 1, Uuid::from_u128(8), account.clone(), 2, None);
        let bytes = encode(&given).unwrap();
        let found: SegmentDescription = decode(&bytes).unwrap();
        assert_eq!(found.account, account);
        assert_eq!(format!("{found:?}"), format!("{given:?}"));
        for at in 0..bytes.len() {
            assert!(decode::<SegmentDescription>(&bytes[..at]).is_err());
            let mut flipped = bytes.to_vec();
            flipped[at] ^= 0x10;
            assert!(decode::<SegmentDescription>(&flipped).is_err(), "byte {at}");
        }
        let mut newer = given.clone();
        newer.format = 2;
        let refused = decode::<SegmentDescription>(&encode(&newer).unwrap()).unwrap_err();
        assert!(refused.contains("format 2"), "{refused}");
    }
}
