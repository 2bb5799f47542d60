//! The rows of a segment that are deleted, as a file: a roaring bitmap of row numbers, one file a
//! generation.

use bytes::Bytes;
use roaring::RoaringBitmap;

use crate::{Error, Result};

const MAGIC: &[u8; 8] = b"MRDEL\x00\x00\x01";

/// Encodes a bitmap with its checksum.
pub(crate) fn encode(deleted: &RoaringBitmap) -> Result<Bytes> {
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
pub(crate) fn decode(bytes: &[u8], name: &str) -> Result<RoaringBitmap> {
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
}
