//! The rows of a segment that are deleted, as a file: a roaring bitmap of row numbers, one file a
//! generation.
//!
//! [`DeletesFile`] is what the catalog says of such a file: its name, length and checksum. Each attempt to write a file
//! draws a new name, so a request that the object store carries out late cannot replace a file that was committed
//! since.

use bytes::Bytes;
use millrace_catalog::SegmentRecord;
use millrace_catalog::description::directory_path;
use millrace_runtime::{Error, Result};
use object_store::path::Path;
use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::layout;

const MAGIC: &[u8; 8] = b"MRDEL\x00\x00\x01";
/// Key of a record's `extra`.
const DELETES: &str = "deletes";

/// A file of deletions, as the catalog knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeletesFile {
    /// Generation, 0 where there is no file.
    pub generation: u64,
    /// Rows that the file marks.
    pub rows: u32,
    /// Contents of files of this version in the catalog; those of the version before have nothing.
    contents: Option<Contents>,
}

/// The member `deletes` of a record's `extra`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Contents {
    /// The attempt that wrote the file: a part of its name.
    attempt: Uuid,
    /// Length in bytes.
    bytes: u64,
    /// CRC32C of the whole file.
    crc32c: u32,
}

impl DeletesFile {
    /// Reads what a record says of the segment's current file.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where the record says nothing that makes sense.
    pub fn from_record(record: &SegmentRecord) -> Result<Self> {
        let corrupt = |error: serde_json::Error| Error::Corrupt {
            file: "catalog".to_owned(),
            offset: 0,
            reason: format!("deletes file of segment [{}]: {error}", record.id),
        };
        let contents = match record.extra.get(DELETES) {
            Some(contents) if record.delete_generation > 0 => {
                Some(Contents::deserialize(contents).map_err(corrupt)?)
            }
            _ => None,
        };
        Ok(Self { generation: record.delete_generation, rows: record.deleted_rows, contents })
    }

    /// Stores it in a record.
    pub fn write_to(&self, record: &mut SegmentRecord) {
        (record.delete_generation, record.deleted_rows) = (self.generation, self.rows);
        match self.contents {
            Some(contents) => record.extra[DELETES] = serde_json::json!(contents),
            None => {
                if let Some(extra) = record.extra.as_object_mut() {
                    extra.remove(DELETES);
                }
            }
        }
    }

    /// Encodes deletions as the file of a generation, under a new name.
    ///
    /// # Errors
    /// None that is known of.
    pub fn encode(deleted: &RoaringBitmap, generation: u64) -> Result<(Self, Bytes)> {
        let bytes = encode(deleted)?;
        Ok((Self::from_file(generation, Some(Uuid::new_v4()), &bytes, deleted), bytes))
    }

    /// Describes a file that was read, under the name that it has.
    pub fn from_file(generation: u64, attempt: Option<Uuid>, bytes: &[u8], deleted: &RoaringBitmap) -> Self {
        let rows = u32::try_from(deleted.len()).unwrap_or(u32::MAX);
        let contents = attempt.map(|attempt| Contents {
            attempt,
            bytes: bytes.len() as u64,
            crc32c: crc32c::crc32c(bytes),
        });
        Self { generation, rows, contents }
    }

    /// Object path of the file of a segment.
    pub fn path(&self, record: &SegmentRecord) -> Path {
        let name = layout::deletes_name(self.generation, self.contents.map(|contents| contents.attempt));
        directory_path(record.index, record.shard, record.id).join(name)
    }

    /// Decodes the file and holds it against what the catalog says of it; `name` is the file for messages.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub fn decode(&self, bytes: &[u8], name: &str) -> Result<RoaringBitmap> {
        let corrupt = |reason: String| Error::Corrupt { file: name.to_owned(), offset: 0, reason };
        if let Some(contents) = self.contents {
            if bytes.len() as u64 != contents.bytes {
                return Err(corrupt(format!("{} bytes, the catalog says {}", bytes.len(), contents.bytes)));
            }
            if crc32c::crc32c(bytes) != contents.crc32c {
                return Err(corrupt("its checksum is not the one in the catalog".to_owned()));
            }
        }
        let deleted = decode(bytes, name)?;
        if deleted.len() != u64::from(self.rows) {
            return Err(corrupt(format!("{} deleted rows, the catalog says {}", deleted.len(), self.rows)));
        }
        Ok(deleted)
    }
}

/// Encodes a bitmap with its checksum.
fn encode(deleted: &RoaringBitmap) -> Result<Bytes> {
    let mut bytes = Vec::with_capacity(deleted.serialized_size() + 12);
    bytes.extend_from_slice(MAGIC);
    deleted
        .serialize_into(&mut bytes)
        .map_err(|error| Error::Internal(format!("encode deletes: {error}")))?;
    let sum = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    Ok(Bytes::from(bytes))
}

/// Decodes what [`encode`] made; `name` is the file for messages.
pub fn decode(bytes: &[u8], name: &str) -> Result<RoaringBitmap> {
    let corrupt =
        |reason: &str| Error::Corrupt { file: name.to_owned(), offset: 0, reason: reason.to_owned() };
    let body = bytes.len().checked_sub(4).ok_or_else(|| corrupt("shorter than its checksum"))?;
    let (body, sum) = bytes.split_at(body);
    let sum: [u8; 4] = sum.try_into().map_err(|_| corrupt("checksum"))?;
    if crc32c::crc32c(body) != u32::from_le_bytes(sum) {
        return Err(corrupt("checksum mismatch"));
    }
    let bitmap = body.strip_prefix(MAGIC).ok_or_else(|| corrupt("not a bitmap of deleted rows"))?;
    RoaringBitmap::deserialize_from(bitmap).map_err(|_| corrupt("malformed bitmap"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_flipped_byte_is_noticed() {
        let deleted: RoaringBitmap = (0..5_000).step_by(3).collect();
        let bytes = encode(&deleted).unwrap();
        assert_eq!(decode(&bytes, "d").unwrap(), deleted);
        for at in (0..bytes.len()).step_by(97) {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 0x10;
            assert!(matches!(decode(&damaged, "d"), Err(Error::Corrupt { .. })));
        }
    }

    #[test]
    fn a_file_of_other_contents_is_not_the_one_that_the_catalog_names() {
        let few: RoaringBitmap = (0..5).collect();
        let many: RoaringBitmap = (0..7).collect();
        let (first, old) = DeletesFile::encode(&few, 1).unwrap();
        let (second, new) = DeletesFile::encode(&many, 1).unwrap();
        assert_eq!(second.decode(&new, "d").unwrap(), many);
        assert!(matches!(second.decode(&old, "d"), Err(Error::Corrupt { .. })));
        assert_ne!(first.contents, second.contents);
        // A file of the version before is known by its generation and number of rows.
        let before = DeletesFile::from_file(1, None, &old, &few);
        assert_eq!(before.decode(&old, "d").unwrap(), few);
        assert!(matches!(before.decode(&new, "d"), Err(Error::Corrupt { .. })));
        for attempt in [None, Some(Uuid::from_u128(5))] {
            let name = layout::deletes_name(12, attempt);
            assert_eq!(layout::parse_deletes_name(&name), Some((12, attempt)));
        }
        for name in ["deletes-012.roaring", "deletes-1-x.roaring", "deletes-1", "deletes--1.roaring"] {
            assert_eq!(layout::parse_deletes_name(name), None, "{name}");
        }
    }
}
