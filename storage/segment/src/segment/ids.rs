//! The sidecar of client-chosen ids: id to row, version, sequence number and term, without a
//! posting list.
//!
//! The file is a table of columns sorted by a 64-bit fingerprint of the id; 32 further bits of the
//! same hash tell apart ids whose fingerprints agree, so that a lookup never reads the row (a false
//! match among 10 million ids has a chance of about 1 in 10^22). A blocked Bloom filter in front
//! spares the search where the segment does not have the id. Fingerprints are uniform, so the
//! search interpolates. The layout is described in `docs/internals/segment-format.md`.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use millrace_runtime::{CancelSignal, Error, Result};
use xxhash_rust::xxh3::xxh3_128_with_seed;

use super::checked::CheckedBytes;

const MAGIC: &[u8; 8] = b"MRIDS\x00\x00\x01";
const HEADER_BYTES: usize = 64;
const FILTER_BLOCK_BYTES: usize = 32;
const FILTER_BITS_PER_ID: usize = 10;

/// The two hashes of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fingerprint {
    high: u64,
    low: u32,
}

impl Fingerprint {
    /// Hashes an id.
    pub fn new(id: &str) -> Self {
        let hash = xxh3_128_with_seed(id.as_bytes(), 0x6d69_6c6c_7261_6365);
        Self { high: (hash >> 64) as u64, low: hash as u32 }
    }

    /// The two hashes.
    pub(super) fn parts(self) -> (u64, u32) {
        (self.high, self.low)
    }

    /// Puts the two hashes together again.
    pub(super) fn from_parts(high: u64, low: u32) -> Self {
        Self { high, low }
    }
}

/// Record of a document in a sidecar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) fingerprint: Fingerprint,
    pub(crate) row: u32,
    pub(crate) version: u64,
    pub(crate) seq_no: u64,
    pub(crate) primary_term: u64,
}

/// One column of a sidecar under construction, spilled to a file of its own.
#[derive(Debug)]
struct Column {
    file: BufWriter<File>,
    path: PathBuf,
}

impl Column {
    fn create(scratch: &Path, name: &str) -> Result<Self> {
        let path = scratch.join(format!("{}-{name}", uuid::Uuid::new_v4().simple()));
        let file = File::create(&path).map_err(|e| Error::io("create scratch file", &path, e))?;
        Ok(Self { file: BufWriter::new(file), path })
    }

    fn push(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|e| Error::io("write scratch file", &self.path, e))
    }

    fn copy_to(mut self, out: &mut dyn Write) -> Result<()> {
        let mut copy = || {
            self.file.flush()?;
            io::copy(&mut File::open(&self.path)?, out)
        };
        copy().map(drop).map_err(|e| Error::io("copy scratch file", &self.path, e))
    }
}

impl Drop for Column {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Values that are all alike need no column.
#[derive(Clone, Copy, Debug)]
enum Constant {
    Unset,
    Always(u64),
    Varies,
}

impl Constant {
    fn see(&mut self, value: u64) {
        *self = match *self {
            Self::Unset => Self::Always(value),
            Self::Always(seen) if seen == value => *self,
            _ => Self::Varies,
        };
    }
}

/// Writes a sidecar from entries in fingerprint order, in memory bounded by the filter: 10 bits an id.
#[derive(Debug)]
pub(crate) struct IdsWriter {
    len: u64,
    filter: Vec<u32>,
    /// Fingerprint, version, term, seq_no, low bits, row.
    columns: [Column; 6],
    /// Version, term, seq_no less row.
    constants: [Constant; 3],
    last: Option<Fingerprint>,
}

impl IdsWriter {
    /// Starts a sidecar of at most `expected` ids with its scratch files in `scratch`.
    pub(crate) fn new(expected: usize, scratch: &Path) -> Result<Self> {
        let filter_blocks = (expected * FILTER_BITS_PER_ID).div_ceil(FILTER_BLOCK_BYTES * 8).max(1);
        let column = |name| Column::create(scratch, name);
        Ok(Self {
            len: 0,
            filter: vec![0; filter_blocks * 8],
            columns: [
                column("fp")?,
                column("ver")?,
                column("term")?,
                column("seq")?,
                column("low")?,
                column("row")?,
            ],
            constants: [Constant::Unset; 3],
            last: None,
        })
    }

    /// Appends an entry; fingerprints must not descend.
    pub(crate) fn push(&mut self, entry: &Entry) -> Result<()> {
        debug_assert!(self.last <= Some(entry.fingerprint), "entries are sorted");
        self.last = Some(entry.fingerprint);
        self.len += 1;
        let (block, masks) = filter_place(entry.fingerprint, self.filter.len() / 8);
        for (word, mask) in self.filter[block * 8..block * 8 + 8].iter_mut().zip(masks) {
            *word |= mask;
        }
        self.constants[0].see(entry.version);
        self.constants[1].see(entry.primary_term);
        self.constants[2].see(entry.seq_no.wrapping_sub(u64::from(entry.row)));
        self.columns[0].push(&entry.fingerprint.high.to_le_bytes())?;
        self.columns[1].push(&entry.version.to_le_bytes())?;
        self.columns[2].push(&entry.primary_term.to_le_bytes())?;
        self.columns[3].push(&entry.seq_no.to_le_bytes())?;
        self.columns[4].push(&entry.fingerprint.low.to_le_bytes())?;
        self.columns[5].push(&entry.row.to_le_bytes())
    }

    /// Counts the entries.
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    /// Writes the file; ends between two columns once the signal is given.
    pub(crate) fn finish(self, cancel: &CancelSignal, out: &mut dyn Write) -> Result<()> {
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend_from_slice(MAGIC);
        header.extend_from_slice(&self.len.to_le_bytes());
        header.extend_from_slice(&(self.filter.len() as u64 / 8).to_le_bytes());
        let varies = self.constants.map(|c| matches!(c, Constant::Varies));
        let flags =
            varies.iter().enumerate().fold(0u64, |flags, (i, &varies)| flags | u64::from(varies) << i);
        header.extend_from_slice(&flags.to_le_bytes());
        for constant in self.constants {
            let value = if let Constant::Always(value) = constant { value } else { 0 };
            header.extend_from_slice(&value.to_le_bytes());
        }
        header.resize(HEADER_BYTES, 0);
        for word in &self.filter {
            header.extend_from_slice(&word.to_le_bytes());
        }
        out.write_all(&header).map_err(|e| Error::io("write", "ids", e))?;
        for (i, column) in self.columns.into_iter().enumerate() {
            if !(1..=3).contains(&i) || varies[i - 1] {
                cancel.check()?;
                column.copy_to(out)?;
            }
        }
        Ok(())
    }
}

/// Block of a fingerprint in the filter and the bits of its eight words (a split-block Bloom filter).
fn filter_place(fingerprint: Fingerprint, blocks: usize) -> (usize, [u32; 8]) {
    const SALTS: [u32; 8] = [
        0x47b6_137b,
        0x4497_4d91,
        0x8824_ad5b,
        0xa2b7_289d,
        0x7054_95c7,
        0x2df1_424b,
        0x9efc_4947,
        0x5c6b_fb31,
    ];
    let block = ((u128::from(fingerprint.high) * blocks as u128) >> 64) as usize;
    let key = fingerprint.low;
    (block, SALTS.map(|salt| 1 << (key.wrapping_mul(salt) >> 27)))
}

/// An open sidecar.
#[derive(Debug)]
pub(crate) struct Ids {
    bytes: CheckedBytes,
    len: usize,
    filter_blocks: usize,
    constants: [Option<u64>; 3],
    /// Byte offsets of the columns: fingerprint, version, term, seq_no, low bits, row.
    offsets: [usize; 6],
}

impl Ids {
    /// Reads a range for what comes of verifying it.
    pub(super) fn read_again(&self, range: Range<usize>) -> Result<()> {
        self.bytes.get(range).map(drop)
    }

    /// Opens a sidecar and checks that its columns fit its length.
    pub(crate) fn open(bytes: CheckedBytes, name: &str) -> Result<Self> {
        let corrupt =
            |reason: &str| Error::Corrupt { file: name.to_owned(), offset: 0, reason: reason.to_owned() };
        if bytes.len() < HEADER_BYTES {
            return Err(corrupt("shorter than its header"));
        }
        let header = bytes.get(0..HEADER_BYTES)?;
        if &header[..8] != MAGIC {
            return Err(corrupt("not a sidecar of ids"));
        }
        let word = |i: usize| le_u64(header, 8 + i * 8);
        let len = usize::try_from(word(0)).map_err(|_| corrupt("row count"))?;
        let filter_blocks = usize::try_from(word(1)).map_err(|_| corrupt("filter size"))?;
        let flags = word(2);
        let constants = [0, 1, 2].map(|i| (flags & (1 << i) == 0).then(|| word(3 + i)));
        let mut offsets = [0; 6];
        let mut at = filter_blocks.checked_mul(FILTER_BLOCK_BYTES).and_then(|b| b.checked_add(HEADER_BYTES));
        for (i, offset) in offsets.iter_mut().enumerate() {
            *offset = at.ok_or_else(|| corrupt("sizes overflow"))?;
            let width = match i {
                0 => 8,
                1..=3 => 8 * usize::from(constants[i - 1].is_none()),
                _ => 4,
            };
            at = len.checked_mul(width).and_then(|b| b.checked_add(*offset));
        }
        if at != Some(bytes.len()) || filter_blocks == 0 {
            return Err(corrupt("columns do not fit the file"));
        }
        Ok(Self { bytes, len, filter_blocks, constants, offsets })
    }

    /// Counts the ids.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn u64_at(&self, column: usize, i: usize) -> Result<u64> {
        let at = self.offsets[column] + i * 8;
        Ok(le_u64(self.bytes.get(at..at + 8)?, 0))
    }

    fn u32_at(&self, column: usize, i: usize) -> Result<u32> {
        let at = self.offsets[column] + i * 4;
        Ok(le_u32(self.bytes.get(at..at + 4)?, 0))
    }

    fn may_contain(&self, fingerprint: Fingerprint) -> Result<bool> {
        let (block, masks) = filter_place(fingerprint, self.filter_blocks);
        let at = HEADER_BYTES + block * FILTER_BLOCK_BYTES;
        let words = self.bytes.get(at..at + FILTER_BLOCK_BYTES)?;
        Ok(masks.iter().enumerate().all(|(i, mask)| le_u32(words, i * 4) & mask == *mask))
    }

    /// Finds all entries of an id: one, or several where older versions lie in the same segment.
    pub(crate) fn find(&self, fingerprint: Fingerprint) -> Result<Vec<Entry>> {
        let mut found = Vec::new();
        if self.len == 0 || !self.may_contain(fingerprint)? {
            return Ok(found);
        }
        let mut at = self.lower_bound(fingerprint.high)?;
        while at < self.len && self.u64_at(0, at)? == fingerprint.high {
            if self.u32_at(4, at)? == fingerprint.low {
                found.push(self.entry(at)?);
            }
            at += 1;
        }
        Ok(found)
    }

    /// First position whose fingerprint is not less than `target`.
    fn lower_bound(&self, target: u64) -> Result<usize> {
        let Range { start: mut low, end: mut high } = 0..self.len;
        let (mut low_value, mut high_value) = (0u64, u64::MAX);
        // Interpolation finds the neighbourhood of a uniform key in a few steps; a hostile
        // distribution falls back to halving.
        let mut steps = 0;
        while low < high {
            let middle = if steps < 8 && high_value > low_value {
                let span = u128::from(high_value - low_value);
                let share = u128::from(target.saturating_sub(low_value)) * (high - low) as u128 / span;
                low + (share as usize).min(high - low - 1)
            } else {
                low + (high - low) / 2
            };
            steps += 1;
            let value = self.u64_at(0, middle)?;
            if value < target {
                low = middle + 1;
                low_value = value;
            } else {
                high = middle;
                high_value = value;
            }
        }
        Ok(low)
    }

    /// Returns the entry at a position of the fingerprint order.
    pub(crate) fn entry(&self, i: usize) -> Result<Entry> {
        let row = self.u32_at(5, i)?;
        let column = |which: usize| match self.constants[which] {
            Some(value) => Ok(value),
            None => self.u64_at(which + 1, i),
        };
        let seq_no = match self.constants[2] {
            Some(base) => base.wrapping_add(u64::from(row)),
            None => self.u64_at(3, i)?,
        };
        Ok(Entry {
            fingerprint: Fingerprint { high: self.u64_at(0, i)?, low: self.u32_at(4, i)? },
            row,
            version: column(0)?,
            seq_no,
            primary_term: column(1)?,
        })
    }
}

fn le_u64(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

fn le_u32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::super::checked::{Verifier, checksums};
    use super::*;

    fn open(entries: &mut [Entry]) -> Ids {
        entries.sort_by_key(|e| e.fingerprint);
        let scratch = tempfile::tempdir().unwrap();
        let mut writer = IdsWriter::new(entries.len(), scratch.path()).unwrap();
        for entry in entries.iter() {
            writer.push(entry).unwrap();
        }
        let mut bytes = Vec::new();
        writer.finish(&CancelSignal::default(), &mut bytes).unwrap();
        let verifier = Arc::new(Verifier::new("ids", checksums(&bytes)));
        Ids::open(CheckedBytes::new(Bytes::from(bytes), verifier).unwrap(), "ids").unwrap()
    }

    fn entry(i: u32, version: u64, seq_no: u64) -> Entry {
        Entry { fingerprint: Fingerprint::new(&format!("id-{i}")), row: i, version, seq_no, primary_term: 1 }
    }

    #[test]
    fn finds_every_id_and_no_other() {
        let mut entries: Vec<_> = (0..10_000).map(|i| entry(i, 1, 500 + u64::from(i))).collect();
        let ids = open(&mut entries);
        for i in (0..10_000).step_by(7) {
            assert_eq!(
                ids.find(Fingerprint::new(&format!("id-{i}"))).unwrap(),
                [entry(i, 1, 500 + u64::from(i))]
            );
        }
        assert!((10_000..20_000).all(|i| ids.find(Fingerprint::new(&format!("id-{i}"))).unwrap().is_empty()));
    }

    #[test]
    fn keeps_versions_and_sequence_numbers_that_do_not_follow_a_rule() {
        let mut entries: Vec<_> = (0..1_000).map(|i| entry(i, u64::from(i % 3), u64::from(i) * 7)).collect();
        entries.push(Entry { row: 5_000, ..entry(3, 9, 9_999) });
        let ids = open(&mut entries);
        let found = ids.find(Fingerprint::new("id-3")).unwrap();
        assert_eq!(found.len(), 2);
        assert!(found.contains(&entry(3, 0, 21)) && found.iter().any(|e| e.row == 5_000 && e.version == 9));
    }

    #[test]
    fn an_empty_sidecar_finds_nothing() {
        assert!(open(&mut Vec::new()).find(Fingerprint::new("x")).unwrap().is_empty());
    }
}
