//! Tombstones as the catalog keeps them: the versions of deleted documents over a restart.
//!
//! A flush stores those below its checkpoint in the transaction that moves the checkpoint; the ones
//! behind it come back from the log. The bytes are a count, then of each tombstone its version, sequence
//! number, term, time of deletion (u64, i64 for the time), length of the id (u32) and the id, then a
//! checksum (CRC-32C) of all that; numbers are little-endian. No tombstones are no bytes.

use super::versions::VersionEntry;

/// Bytes of a tombstone without its id.
const FIXED: usize = 36;

/// Encodes tombstones.
pub(super) fn encode<'a>(tombstones: impl Iterator<Item = (&'a str, &'a VersionEntry)>) -> Vec<u8> {
    let mut bytes = vec![0; 8];
    let mut count = 0u64;
    for (id, entry) in tombstones {
        count += 1;
        bytes.extend_from_slice(&entry.version.to_le_bytes());
        bytes.extend_from_slice(&entry.seq_no.to_le_bytes());
        bytes.extend_from_slice(&entry.primary_term.to_le_bytes());
        bytes.extend_from_slice(&entry.deleted_at_ms.to_le_bytes());
        bytes.extend_from_slice(&(id.len() as u32).to_le_bytes());
        bytes.extend_from_slice(id.as_bytes());
    }
    if count == 0 {
        return Vec::new();
    }
    bytes[..8].copy_from_slice(&count.to_le_bytes());
    let checksum = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Decodes tombstones, or says what is wrong with the bytes.
pub(super) fn decode(bytes: &[u8]) -> Result<Vec<(Box<str>, VersionEntry)>, String> {
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let (mut rest, checksum) = bytes.split_last_chunk::<4>().ok_or("cut off")?;
    if crc32c::crc32c(rest) != u32::from_le_bytes(*checksum) {
        return Err("the checksum of the tombstones is wrong".to_owned());
    }
    let mut take = |count: usize| {
        let (taken, left) = rest.split_at_checked(count).ok_or("cut off")?;
        rest = left;
        Ok::<_, String>(taken)
    };
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |value, byte| value << 8 | u64::from(*byte));
    let count = number(take(8)?);
    let mut tombstones = Vec::new();
    for _ in 0..count {
        let fixed = take(FIXED)?;
        let entry = VersionEntry {
            version: number(&fixed[..8]),
            seq_no: number(&fixed[8..16]),
            primary_term: number(&fixed[16..24]),
            location: None,
            deleted_at_ms: number(&fixed[24..32]).cast_signed(),
        };
        let id = take(number(&fixed[32..]) as usize)?;
        let id = std::str::from_utf8(id).map_err(|error| format!("id of a tombstone: {error}"))?;
        tombstones.push((id.into(), entry));
    }
    match take(1) {
        Ok(_) => Err("bytes too many behind the tombstones".to_owned()),
        Err(_) => Ok(tombstones),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_comes_back_and_nothing_else_is_accepted() {
        let entry = |version, seq_no, deleted_at_ms| VersionEntry {
            version,
            seq_no,
            primary_term: 3,
            location: None,
            deleted_at_ms,
        };
        let given =
            [("a", entry(1, 2, 1_700_000_000_000)), ("ünï", entry(u64::MAX, 9, -5)), ("", entry(0, 0, 0))];
        let bytes = encode(given.iter().map(|(id, entry)| (*id, entry)));
        let found = decode(&bytes).unwrap();
        assert_eq!(format!("{found:?}"), format!("{given:?}"));
        assert!(encode(std::iter::empty()).is_empty() && decode(&[]).unwrap().is_empty());
        for at in 0..bytes.len() {
            assert!(decode(&bytes[..at]).is_err() || at == 0);
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x10;
            assert!(decode(&flipped).is_err(), "byte {at}");
        }
    }
}
