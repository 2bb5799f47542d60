//! Files of a queue: records one after another, each with its length and checksum.
//!
//! A file is called `<number>.events`; its number, in twenty digits, gives its place. A record is
//!
//! | bytes | what |
//! |---|---|
//! | 4 | length of the payload, little-endian |
//! | 4 | CRC-32C of the payload |
//! | … | payload: events, each as seconds (8) and nanoseconds (4) of its time, length (4) and JSON of its fields, length (4) and JSON of its metadata |
//!
//! A record that is cut off or damaged ends its file: a write that a crash interrupted was told to nobody.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use chrono::DateTime;
use millrace_ingest::{Event, FieldReference};
use serde_json::{Map, Value};

/// Length and checksum.
const HEAD: usize = 8;
/// Longest payload: what is longer might not fit into one frame of the log.
const MAX_PAYLOAD: usize = 16 << 20;
/// How deep fields may be: what is deeper could not be read back as JSON.
const MAX_DEPTH: usize = 120;
const EXTENSION: &str = "events";

/// A place between records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) segment: u64,
    pub(super) offset: u64,
}

impl Place {
    pub(super) fn new(segment: u64, offset: u64) -> Self {
        Self { segment, offset }
    }

    /// The place as the position of a source.
    pub(super) fn to_position(self) -> Bytes {
        let mut position = self.segment.to_be_bytes().to_vec();
        position.extend_from_slice(&self.offset.to_be_bytes());
        position.into()
    }

    pub(super) fn from_position(position: &[u8]) -> Option<Self> {
        let (segment, offset) = position.split_at_checked(8)?;
        Some(Self {
            segment: u64::from_be_bytes(segment.try_into().ok()?),
            offset: u64::from_be_bytes(offset.try_into().ok()?),
        })
    }
}

pub(super) fn path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:020}.{EXTENSION}"))
}

/// Segments of a directory in order, each with the bytes of its whole records.
///
/// # Errors
/// The directory or a file cannot be read.
pub(super) fn list(directory: &Path) -> io::Result<Vec<(u64, u64)>> {
    files(directory)?.into_iter().map(|(number, path)| Ok((number, whole(&path)?))).collect()
}

/// Numbers and files of the segments of a directory, in order.
///
/// # Errors
/// The directory cannot be read.
pub(super) fn files(directory: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let number = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok());
        let (Some(number), Some(EXTENSION)) = (number, path.extension().and_then(|of| of.to_str())) else {
            continue;
        };
        files.push((number, path));
    }
    files.sort_unstable();
    Ok(files)
}

/// Bytes of the whole records of a file.
fn whole(path: &Path) -> io::Result<u64> {
    let file = File::open(path)?;
    let (length, mut offset) = (file.metadata()?.len(), 0);
    while let Some((_, bytes)) = read(&file, offset)? {
        offset += bytes;
    }
    if offset < length {
        tracing::warn!(path = %path.display(), offset, length, "the file of a queue ends in a record that is not whole, as after a crash: it is read up to there");
    }
    Ok(offset)
}

/// Reads the payload of the record at an offset, and its length with everything; `None` where no whole record begins.
///
/// # Errors
/// The file cannot be read.
pub(super) fn read(file: &File, offset: u64) -> io::Result<Option<(Vec<u8>, u64)>> {
    let mut head = [0; HEAD];
    if !read_whole(file, &mut head, offset)? {
        return Ok(None);
    }
    let number = |at: usize| {
        let bytes = head.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u32::from_le_bytes)
    };
    let length = number(0) as usize;
    let left = file.metadata()?.len().saturating_sub(offset + HEAD as u64);
    // Zeros are what some file systems leave behind a crash.
    if length == 0 || length > MAX_PAYLOAD || length as u64 > left {
        return Ok(None);
    }
    let mut payload = vec![0; length];
    if !read_whole(file, &mut payload, offset + HEAD as u64)? || crc32c::crc32c(&payload) != number(4) {
        return Ok(None);
    }
    Ok(Some((payload, (HEAD + length) as u64)))
}

fn read_whole(file: &File, into: &mut [u8], offset: u64) -> io::Result<bool> {
    match file.read_exact_at(into, offset) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// A segment that is written to.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) number: u64,
    /// Bytes that are synced.
    pub(super) bytes: u64,
    file: File,
}

impl Segment {
    /// Begins the first segment from a number on that is not there.
    pub(super) fn create(directory: &Path, from: u64) -> io::Result<Self> {
        let mut number = from;
        loop {
            match File::options().create_new(true).write(true).open(path(directory, number)) {
                Ok(file) => return Ok(Self { number, bytes: 0, file }),
                // Begun before a write that failed.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Appends whole records and syncs.
    ///
    /// # Errors
    /// They count as not written, once the file is cut ([`Segment::cut`]): they may be there whole after a crash.
    pub(super) fn append(&mut self, records: &[u8]) -> io::Result<()> {
        self.file.write_all_at(records, self.bytes)?;
        self.file.sync_data()?;
        self.bytes += records.len() as u64;
        Ok(())
    }

    /// Cuts off what a failed append left behind, durably.
    ///
    /// # Errors
    /// The disk refuses that, too.
    pub(super) fn cut(&self) -> io::Result<()> {
        self.file.set_len(self.bytes)?;
        self.file.sync_all()
    }
}

/// Makes a record of events; `None` if it could not be read back.
pub(super) fn encode(events: &[Event]) -> Option<Vec<u8>> {
    let mut record = vec![0; HEAD];
    for event in events {
        if [event.fields(), event.metadata()].into_iter().any(|fields| too_deep(fields, 1)) {
            return None;
        }
        let time = event.timestamp();
        record.extend_from_slice(&time.timestamp().to_le_bytes());
        record.extend_from_slice(&time.timestamp_subsec_nanos().to_le_bytes());
        for fields in [event.fields(), event.metadata()] {
            let at = record.len();
            record.extend_from_slice(&[0; 4]);
            serde_json::to_writer(&mut record, fields).ok()?;
            let length = u32::try_from(record.len() - at - 4).ok()?;
            record.get_mut(at..at + 4)?.copy_from_slice(&length.to_le_bytes());
        }
    }
    let payload = record.get(HEAD..)?;
    if payload.is_empty() || payload.len() > MAX_PAYLOAD {
        return None;
    }
    let (length, sum) = (u32::try_from(payload.len()).ok()?, crc32c::crc32c(payload));
    record.get_mut(..4)?.copy_from_slice(&length.to_le_bytes());
    record.get_mut(4..HEAD)?.copy_from_slice(&sum.to_le_bytes());
    Some(record)
}

fn too_deep(fields: &Map<String, Value>, depth: usize) -> bool {
    fields.values().any(|value| value_too_deep(value, depth + 1))
}

fn value_too_deep(value: &Value, depth: usize) -> bool {
    if depth > MAX_DEPTH {
        return true;
    }
    match value {
        Value::Array(elements) => elements.iter().any(|element| value_too_deep(element, depth + 1)),
        Value::Object(members) => too_deep(members, depth),
        _ => false,
    }
}

/// Reads the events of a payload; `None` if it is none of ours.
pub(super) fn decode(mut payload: &[u8]) -> Option<Vec<Event>> {
    let metadata_field = FieldReference::parse(millrace_ingest::event::METADATA).ok()?;
    let mut events = Vec::new();
    while !payload.is_empty() {
        let seconds = i64::from_le_bytes(take(&mut payload, 8)?.try_into().ok()?);
        let nanos = u32::from_le_bytes(take(&mut payload, 4)?.try_into().ok()?);
        let mut event = Event::new(DateTime::from_timestamp(seconds, nanos)?);
        let fields = take_map(&mut payload)?;
        let metadata = take_map(&mut payload)?;
        *event.fields_mut() = fields;
        if !metadata.is_empty() {
            event.set(&metadata_field, Value::Object(metadata)).ok()?;
        }
        events.push(event);
    }
    Some(events)
}

fn take<'a>(from: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = from.split_at_checked(length)?;
    *from = rest;
    Some(taken)
}

fn take_map(from: &mut &[u8]) -> Option<Map<String, Value>> {
    let length = u32::from_le_bytes(take(from, 4)?.try_into().ok()?);
    serde_json::from_slice(take(from, usize::try_from(length).ok()?)?).ok()
}
