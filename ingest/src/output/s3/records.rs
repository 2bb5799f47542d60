//! Files of the spool: records one after another.
//!
//! | bytes | what |
//! |---|---|
//! | 4 | length of the payload, little-endian |
//! | 4 | CRC-32C of the payload |
//! | … | payload |
//!
//! The first payload is the header as JSON: what object the file becomes. The others are texts of whole events. They are synced before
//! their events count as delivered. A record that a crash cut off was told to nobody: it ends the file, and is left out.

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Length and checksum of a record.
const RECORD_HEAD: u64 = 8;

/// Header of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ObjectHeader {
    /// Name of the object.
    pub(super) key: String,
    pub(super) is_gzip: bool,
}

/// Makes the error of a file whose content is damaged.
pub(super) fn damage(reason: impl Into<Box<dyn Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

/// Writes a record at an offset; returns its length.
pub(super) fn write_record(file: &File, at: u64, payload: &[u8]) -> io::Result<u64> {
    let length = u32::try_from(payload.len()).map_err(io::Error::other)?;
    let head = [length.to_le_bytes(), crc32c::crc32c(payload).to_le_bytes()].concat();
    file.write_all_at(&head, at)?;
    file.write_all_at(payload, at + RECORD_HEAD)?;
    Ok(RECORD_HEAD + u64::from(length))
}

/// Reads a file that was left; returns its header, the bytes of its whole records, and whether there are records behind a damaged one. `None`
/// where it has no event.
pub(super) fn measure(path: &Path) -> io::Result<Option<(ObjectHeader, u64, bool)>> {
    let all = fs::metadata(path)?.len();
    let mut records = RecordReader::open(path, all)?;
    let Some(header) = records.next()? else {
        // Without a whole header, it was never synced; unless it has more than a header.
        return if records.skip()? { Err(damage("its header is damaged")) } else { Ok(None) };
    };
    // A disk may have had room for it, and no content yet.
    if header.is_empty() {
        return Ok(None);
    }
    let header = serde_json::from_slice(&header).map_err(damage)?;
    let events = records.at;
    while records.next()?.is_some() {}
    let whole = records.at;
    let mut is_damaged = false;
    if whole < all {
        is_damaged = records.skip()? && records.next()?.is_some();
        let (cut_off, path) = (all - whole, path.display());
        tracing::warn!(%path, cut_off, is_damaged, "a file of the output s3 ends in a record that is not whole, as after a crash: it is read up to there");
    }
    if is_damaged && whole == events {
        return Err(damage("its first record is damaged"));
    }
    Ok((whole > events).then_some((header, whole, is_damaged)))
}

/// Reader of the records of a file.
#[derive(Debug)]
struct RecordReader {
    file: File,
    at: u64,
    length: u64,
    /// Bytes of a damaged record that was just read.
    skipped: u64,
}

impl RecordReader {
    fn open(path: &Path, length: u64) -> io::Result<Self> {
        Ok(Self { file: File::open(path)?, at: 0, length, skipped: 0 })
    }

    /// Goes behind a damaged record; returns whether there is something.
    fn skip(&mut self) -> io::Result<bool> {
        self.at += std::mem::take(&mut self.skipped);
        let (begin, is_over) = (self.file.seek(SeekFrom::Start(self.at))?, self.at == self.length);
        Ok(begin > 0 && !is_over)
    }

    /// Reads the next payload; `None` behind the last whole record.
    fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let left = self.length - self.at;
        if left < RECORD_HEAD {
            return Ok(None);
        }
        let mut head = [0; RECORD_HEAD as usize];
        self.file.read_exact(&mut head)?;
        let [a, b, c, d, sum @ ..] = head;
        let (length, sum) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes(sum));
        if u64::from(length) > left - RECORD_HEAD {
            return Ok(None);
        }
        let mut payload = vec![0; length as usize];
        self.file.read_exact(&mut payload)?;
        if crc32c::crc32c(&payload) != sum {
            self.skipped = RECORD_HEAD + u64::from(length);
            return Ok(None);
        }
        self.at += RECORD_HEAD + u64::from(length);
        Ok(Some(payload))
    }
}

/// Reader of the events of a finished file.
#[derive(Debug)]
pub(super) struct EventReader {
    path: PathBuf,
    length: u64,
    /// Records behind the header, once the file is open.
    records: Option<RecordReader>,
}

impl EventReader {
    /// Makes a reader of so many bytes of a file, which is not opened yet.
    pub(super) fn new(path: PathBuf, length: u64) -> Self {
        Self { path, length, records: None }
    }

    /// Reads the text of the next events; `None` behind the last.
    ///
    /// # Errors
    /// The file cannot be read, or was damaged.
    pub(super) fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let records = match &mut self.records {
            Some(records) => records,
            unopened => {
                let mut records = RecordReader::open(&self.path, self.length)?;
                records.next()?;
                unopened.insert(records)
            }
        };
        let text = records.next()?;
        if text.is_none() && records.at < self.length {
            return Err(damage("a record of the file is damaged"));
        }
        Ok(text)
    }
}
