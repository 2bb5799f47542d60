//! Identity of a file, and its read position.
//!
//! The part of a source that a position belongs to is a file, and the input that reads it (`<file>@<input>`): two inputs of
//! a pipeline never know of each other's files. Positions of earlier versions have no input.
//!
//! A file is known by device, inode and a hash of its first line, so that it is known again under another
//! name, and its successor of the same name is not taken for it. A position is the offset behind the last line
//! that was stored whole, with a hash of the bytes before it: a file that was truncated and written again meanwhile
//! is noticed. Truncations are counted, so that lines at the same offset are told apart.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};

use bytes::Bytes;
use chrono::Utc;
use xxhash_rust::xxh3::xxh3_64;

use super::delimiter::Delimiter;

/// Bytes of the first line that tell files apart.
pub(super) const FIRST_BYTES: usize = 1024;
/// Bytes before a position that tell whether it still is one.
pub(super) const BEFORE: usize = 256;
/// Version of the form of stored positions.
const VERSION: u8 = 2;
/// The one before, without the count of truncations.
const VERSION_1: u8 = 1;
const COMPLETE: u8 = 1;
const LENGTH: usize = 34;
const LENGTH_1: usize = 26;

/// Device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Inode {
    device: u64,
    inode: u64,
}

impl Inode {
    pub(super) fn new(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }

    /// The name of a file with these first bytes.
    pub(super) fn file(self, first: &[u8]) -> String {
        format!("{:x}-{:x}-{:016x}", self.device, self.inode, xxh3_64(first))
    }

    /// The inode in the name of a file.
    pub(super) fn of_file(file: &str) -> Option<Self> {
        let mut parts = file.split('-').map(|part| u64::from_str_radix(part, 16).ok());
        Some(Self { device: parts.next()??, inode: parts.next()?? })
    }
}

/// The part of a source that a file is for an input.
pub(super) fn partition(file: &str, input: &str) -> String {
    format!("{file}@{input}")
}

/// The file of a part, and the input, where it has one.
pub(super) fn parts(partition: &str) -> (&str, Option<&str>) {
    match partition.split_once('@') {
        Some((file, input)) => (file, Some(input)),
        None => (partition, None),
    }
}

/// A stored position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) offset: u64,
    /// Hash of the bytes before the offset; 0 where they cannot be read again.
    pub(super) before: u64,
    /// `true` if a file that is read once was read to its end.
    pub(super) complete: bool,
    /// Time of its creation, in seconds.
    pub(super) seconds: i64,
    /// Number of observed truncations of the file.
    pub(super) truncations: u64,
}

impl Position {
    /// The beginning of a file that was truncated so often.
    pub(super) fn beginning(truncations: u64) -> Self {
        let (before, seconds) = (xxh3_64(&[]), Utc::now().timestamp());
        Self { offset: 0, before, complete: false, seconds, truncations }
    }

    pub(super) fn encode(self) -> Bytes {
        let mut bytes = Vec::with_capacity(LENGTH);
        bytes.push(VERSION);
        bytes.push(if self.complete { COMPLETE } else { 0 });
        bytes.extend_from_slice(&self.offset.to_be_bytes());
        bytes.extend_from_slice(&self.before.to_be_bytes());
        bytes.extend_from_slice(&self.seconds.to_be_bytes());
        bytes.extend_from_slice(&self.truncations.to_be_bytes());
        Bytes::from(bytes)
    }

    /// Reads a stored position; `None` where it has another form.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let number = |from: usize| Some(u64::from_be_bytes(bytes.get(from..from + 8)?.try_into().ok()?));
        let truncations = match (*bytes.first()?, bytes.len()) {
            (VERSION, LENGTH) => number(26)?,
            (VERSION_1, LENGTH_1) => 0,
            _ => return None,
        };
        Some(Self {
            complete: bytes.get(1)? & COMPLETE != 0,
            offset: number(2)?,
            before: number(10)?,
            seconds: i64::from_be_bytes(bytes.get(18..26)?.try_into().ok()?),
            truncations,
        })
    }

    /// Returns whether the file still has what it had before the position.
    pub(super) fn fits(&self, file: &File) -> io::Result<bool> {
        if file.metadata()?.len() < self.offset {
            return Ok(false);
        }
        Ok(hash_before(file, self.offset)? == self.before)
    }
}

/// Hash of the bytes before an offset.
pub(super) fn hash_before(file: &File, offset: u64) -> io::Result<u64> {
    let mut bytes = vec![0; BEFORE.min(usize::try_from(offset).unwrap_or(BEFORE))];
    let from = offset - bytes.len() as u64;
    file.read_exact_at(&mut bytes, from)?;
    Ok(xxh3_64(&bytes))
}

/// First bytes of a file, as far as they stay the same while it grows: its first line, at most
/// [`FIRST_BYTES`]. `None` while that is not there. A file that is `whole` counts with what it has.
pub(super) fn first_bytes(file: &File, delimiter: &Delimiter, whole: bool) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = vec![0; FIRST_BYTES];
    let mut length = 0;
    while let Some(rest) = bytes.get_mut(length..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, length as u64) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(length);
    if let Some(at) = delimiter.find(&bytes, 0) {
        bytes.truncate(at + delimiter.len());
        return Ok(Some(bytes));
    }
    Ok((length == FIRST_BYTES || whole).then_some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_read_as_written() {
        let position =
            Position { offset: u64::MAX, before: 7, complete: true, seconds: -1, truncations: 1 << 40 };
        let mut encoded = position.encode().to_vec();
        assert_eq!(Position::decode(&encoded), Some(position));
        encoded.truncate(LENGTH_1);
        encoded[0] = VERSION_1;
        assert_eq!(Position::decode(&encoded), Some(Position { truncations: 0, ..position }));
        for wrong in [&[][..], &[1; 25], &[2; 26], &[1; 34], &[3; 34]] {
            assert_eq!(Position::decode(wrong), None);
        }
        let inode = Inode { device: 0xfd00, inode: u64::MAX };
        let file = inode.file(b"first");
        assert_eq!(Inode::of_file(&file), Some(inode));
        assert_eq!(Inode::of_file("x"), None);
        assert_eq!(parts(&partition(&file, "id a@b")), (&*file, Some("id a@b")));
        assert_eq!(parts(&file), (&*file, None));
    }
}
