//! Bytes of a segment file that are verified block by block before they are first used.
//!
//! Whoever writes a file computes the CRC32C of each 256 KiB block; the catalog keeps the list
//! beside the segment. A reader verifies the blocks that it touches, once each: opening stays cheap
//! and a flipped byte is reported with file and offset instead of being served.

use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use millrace_runtime::{Error, Result};

use super::damage::DamageRecord;

/// Bytes of one verified block.
pub(crate) const BLOCK_BYTES: usize = 256 << 10;

/// Computes block checksums of everything written through it.
#[derive(Debug)]
pub(crate) struct ChecksumWriter<W> {
    inner: W,
    sums: Vec<u32>,
    current: u32,
    in_block: usize,
    bytes: u64,
}

impl<W: Write> ChecksumWriter<W> {
    /// Wraps a writer that is at its beginning.
    pub(crate) fn new(inner: W) -> Self {
        Self { inner, sums: Vec::new(), current: 0, in_block: 0, bytes: 0 }
    }

    /// Ends the last block; returns the writer, the byte count and the checksums.
    pub(crate) fn finish(mut self) -> (W, u64, Vec<u32>) {
        if self.in_block > 0 {
            self.sums.push(self.current);
        }
        (self.inner, self.bytes, self.sums)
    }
}

impl<W: Write> Write for ChecksumWriter<W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(buf)?;
        let mut rest = &buf[..written];
        while !rest.is_empty() {
            let take = rest.len().min(BLOCK_BYTES - self.in_block);
            self.current = crc32c::crc32c_append(self.current, &rest[..take]);
            self.in_block += take;
            rest = &rest[take..];
            if self.in_block == BLOCK_BYTES {
                self.sums.push(self.current);
                self.current = 0;
                self.in_block = 0;
            }
        }
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Computes the block checksums of bytes at hand.
#[cfg(test)]
pub(crate) fn checksums(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks(BLOCK_BYTES).map(crc32c::crc32c).collect()
}

/// Verifies blocks on first use.
#[derive(Debug)]
pub(crate) struct Verifier {
    name: Arc<str>,
    sums: Vec<u32>,
    done: Vec<AtomicU64>,
    damage: DamageRecord,
}

impl Verifier {
    /// Makes a verifier for the named file with its block checksums.
    pub(crate) fn new(name: impl Into<Arc<str>>, sums: Vec<u32>) -> Self {
        let done = (0..sums.len().div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Self { name: name.into(), sums, done, damage: DamageRecord::default() }
    }

    /// Has what comes of verifying noted there.
    pub(super) fn noting(self, damage: &DamageRecord) -> Self {
        Self { damage: damage.clone(), ..self }
    }

    /// Name of the file.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Blocks that cover a byte range.
    pub(crate) fn blocks(range: &Range<usize>) -> Range<usize> {
        range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES)
    }

    fn is_done(&self, block: usize) -> bool {
        self.done.get(block / 64).is_some_and(|word| word.load(Ordering::Relaxed) & (1 << (block % 64)) != 0)
    }

    /// Verifies one block's bytes, whether or not the block was verified before.
    ///
    /// # Errors
    /// [`Error::Corrupt`] with the block's offset.
    pub(crate) fn verify_block(&self, block: usize, bytes: &[u8]) -> Result<()> {
        let verified = self.compare_block(block, bytes);
        self.damage.note(&self.name, Some(block), &verified);
        verified
    }

    fn compare_block(&self, block: usize, bytes: &[u8]) -> Result<()> {
        let expected = self.sums.get(block).copied();
        let found = crc32c::crc32c(bytes);
        if expected != Some(found) {
            return Err(Error::Corrupt {
                file: self.name.to_string(),
                offset: (block * BLOCK_BYTES) as u64,
                reason: format!(
                    "checksum of the {BLOCK_BYTES}-byte block is {found:08x}, expected {}",
                    expected.map_or_else(|| "no such block".to_owned(), |sum| format!("{sum:08x}"))
                ),
            });
        }
        if let Some(word) = self.done.get(block / 64) {
            word.fetch_or(1 << (block % 64), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Verifies the blocks of a whole file at hand that cover `range`.
    pub(crate) fn verify(&self, file: &[u8], range: &Range<usize>) -> Result<()> {
        for block in Self::blocks(range) {
            if !self.is_done(block) {
                let start = block * BLOCK_BYTES;
                let bytes = file.get(start..(start + BLOCK_BYTES).min(file.len())).unwrap_or_default();
                self.verify_block(block, bytes)?;
            }
        }
        Ok(())
    }
}

/// A whole file at hand (mapped or on the heap), verified as it is used.
#[derive(Clone, Debug)]
pub(crate) struct CheckedBytes {
    bytes: Bytes,
    verifier: Arc<Verifier>,
}

impl CheckedBytes {
    /// Wraps a file's bytes; a length that does not fit the checksums is corruption.
    pub(crate) fn new(bytes: Bytes, verifier: Arc<Verifier>) -> Result<Self> {
        if bytes.len().div_ceil(BLOCK_BYTES) != verifier.sums.len() {
            return Err(Error::Corrupt {
                file: verifier.name.to_string(),
                offset: bytes.len() as u64,
                reason: format!("{} bytes do not fit {} block checksums", bytes.len(), verifier.sums.len()),
            });
        }
        Ok(Self { bytes, verifier })
    }

    /// Counts the file's bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Name of the file, for messages.
    pub(crate) fn name(&self) -> &Arc<str> {
        self.verifier.name()
    }

    /// Borrows a verified range.
    pub(crate) fn get(&self, range: Range<usize>) -> Result<&[u8]> {
        self.verifier.verify(&self.bytes, &range)?;
        self.bytes.get(range.clone()).ok_or_else(|| Error::Corrupt {
            file: self.verifier.name.to_string(),
            offset: range.end as u64,
            reason: format!("read past the end, the file has {} bytes", self.bytes.len()),
        })
    }

    /// Returns a verified range without copying.
    pub(crate) fn slice(&self, range: Range<usize>) -> Result<Bytes> {
        self.get(range.clone())?;
        Ok(self.bytes.slice(range))
    }
}

/// Encodes checksums for the catalog.
pub(crate) fn encode_sums(sums: &[u32]) -> String {
    sums.iter().map(|sum| format!("{sum:08x}")).collect()
}

/// Decodes what [`encode_sums`] made.
pub(crate) fn decode_sums(text: &str) -> Option<Vec<u32>> {
    if !text.is_ascii() || !text.len().is_multiple_of(8) {
        return None;
    }
    (0..text.len() / 8).map(|i| u32::from_str_radix(&text[i * 8..i * 8 + 8], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flipped_byte_is_reported_with_its_block() {
        let bytes: Vec<u8> = (0..BLOCK_BYTES * 2 + 10).map(|i| u8::try_from(i % 251).unwrap()).collect();
        let mut writer = ChecksumWriter::new(Vec::new());
        for piece in bytes.chunks(7_777) {
            writer.write_all(piece).unwrap();
        }
        let (_, len, sums) = writer.finish();
        assert_eq!((len, sums.clone()), (bytes.len() as u64, checksums(&bytes)));
        assert_eq!(decode_sums(&encode_sums(&sums)), Some(sums.clone()));
        let mut damaged = bytes.clone();
        damaged[BLOCK_BYTES + 5] ^= 1;
        let checked = CheckedBytes::new(Bytes::from(damaged), Arc::new(Verifier::new("f", sums))).unwrap();
        assert!(checked.slice(0..BLOCK_BYTES).is_ok());
        assert!(checked.slice(BLOCK_BYTES * 2..BLOCK_BYTES * 2 + 10).is_ok());
        let error = checked.slice(BLOCK_BYTES - 1..BLOCK_BYTES + 1).unwrap_err();
        assert!(matches!(error, Error::Corrupt { offset, .. } if offset == BLOCK_BYTES as u64), "{error}");
    }
}
