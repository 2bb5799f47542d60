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
//! A write that a crash interrupted was told to nobody: its record ends the file, and is left out. A record that was
//! damaged later is left out, too, and told ([`Damage`]); reading goes on behind it ([`next`]). Its end is where its length says, or
//! where the next record begins. If only its length is damaged, its checksum still tells that it is whole.

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
/// Longest payload: a longer one might not fit into one frame of the log.
const MAX_PAYLOAD: usize = 16 << 20;
/// Bound on the depth of fields: deeper ones could not be read back as JSON.
const MAX_DEPTH: usize = 120;
const EXTENSION: &str = "events";

/// A place between records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RecordPosition {
    pub(super) segment: u64,
    pub(super) offset: u64,
}

impl RecordPosition {
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

/// Returns the end of the records of a file. A record that a crash cut off does not count; a damaged one does.
fn whole(path: &Path) -> io::Result<u64> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut offset = 0;
    while offset < length {
        match next(&file, offset, length)? {
            Item::Record { length, .. } => offset += length,
            Item::Damaged(damage) if damage.end() == length && is_torn(&file, offset, length)? => {
                tracing::warn!(path = %path.display(), offset, length, "the file of a queue ends in a record that is not whole, as after a crash: it is read up to there");
                break;
            }
            Item::Damaged(damage) => offset = damage.end(),
        }
    }
    Ok(offset)
}

/// Item that begins at an offset of a file.
#[derive(Debug)]
pub(super) enum Item {
    /// A whole record: its payload, and its length with everything.
    Record { payload: Vec<u8>, length: u64 },
    /// Bytes that are no record.
    Damaged(Damage),
}

/// Bytes of a file that are no record, up to the next record or the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Damage {
    pub(super) offset: u64,
    pub(super) length: u64,
    /// Number of events in them; `None` if that cannot be told.
    pub(super) events: Option<usize>,
}

impl Damage {
    /// Offset of the first byte behind the damage.
    pub(super) fn end(self) -> u64 {
        self.offset + self.length
    }
}

/// Reads what begins at an offset before the end of the records.
///
/// # Errors
/// The file cannot be read.
pub(super) fn next(file: &File, offset: u64, end: u64) -> io::Result<Item> {
    let Some(head) = head(file, offset)? else {
        return Ok(Item::Damaged(Damage { offset, length: end - offset, events: None }));
    };
    let payload_at = offset + HEAD as u64;
    let left = end.saturating_sub(payload_at);
    let by_head = match head.length().filter(|length| *length <= left) {
        Some(length) => Some(payload(file, payload_at, length)?),
        None => None,
    };
    let length_of = |payload: &[u8]| (HEAD + payload.len()) as u64;
    let by_head = match by_head {
        Some(payload) if crc32c::crc32c(&payload) == head.sum => {
            let length = length_of(&payload);
            return Ok(Item::Record { payload, length });
        }
        by_head => by_head,
    };
    let behind = find(file, offset + 1, end)?.unwrap_or(end);
    let whole = behind.checked_sub(payload_at).filter(|length| (1..=MAX_PAYLOAD as u64).contains(length));
    let mut events = None;
    if let Some(length) = whole {
        let payload = payload(file, payload_at, length)?;
        if crc32c::crc32c(&payload) == head.sum {
            let length = length_of(&payload);
            return Ok(Item::Record { payload, length });
        }
        events = count(&payload);
    }
    // Records behind it may be damaged, too: each is told by itself, as long as their lengths are right.
    Ok(Item::Damaged(match by_head.map(|payload| (length_of(&payload), count(&payload))) {
        Some((length, Some(events))) => Damage { offset, length, events: Some(events) },
        _ => Damage { offset, length: behind - offset, events },
    }))
}

/// Returns whether the last bytes of a file are what a crash left of a write, rather than a record that was damaged: a beginning
/// of a record, or zeros, which some file systems leave.
fn is_torn(file: &File, offset: u64, end: u64) -> io::Result<bool> {
    let Some(head) = head(file, offset)? else { return Ok(true) };
    let payload_at = offset + HEAD as u64;
    let left = end.saturating_sub(payload_at);
    if head.length == 0 {
        return Ok(true);
    }
    if head.length().is_some_and(|length| length <= left) {
        return Ok(false);
    }
    if left > MAX_PAYLOAD as u64 {
        return Ok(true);
    }
    // All events are there, so it is the length that is wrong.
    Ok(count(&payload(file, payload_at, left)?).is_none())
}

/// Header before a payload.
struct RecordHeader {
    length: u32,
    sum: u32,
}

impl RecordHeader {
    /// Length of the payload, if it can be one.
    fn length(&self) -> Option<u64> {
        let length = u64::from(self.length);
        (1..=MAX_PAYLOAD as u64).contains(&length).then_some(length)
    }
}

/// Reads the head of a record; `None` at the end of the file.
fn head(file: &File, offset: u64) -> io::Result<Option<RecordHeader>> {
    let mut bytes = [0; HEAD];
    if !read_whole(file, &mut bytes, offset)? {
        return Ok(None);
    }
    Ok(Some(RecordHeader { length: number(&bytes, 0), sum: number(&bytes, 4) }))
}

/// A number of four bytes; 0 where they are not there.
fn number(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes)
}

/// Reads a payload. Bytes that the file does not have any more are zeros.
fn payload(file: &File, offset: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut payload = vec![0; usize::try_from(length).unwrap_or(MAX_PAYLOAD).min(MAX_PAYLOAD)];
    read_whole(file, &mut payload, offset)?;
    Ok(payload)
}

/// Finds the first whole record that begins at an offset or behind it.
fn find(file: &File, from: u64, end: u64) -> io::Result<Option<u64>> {
    /// Bytes that are searched at once.
    const STEP: usize = 1 << 20;
    /// Bytes of a record that tell whether it is worth reading: up to the brace that its first event begins with.
    const LOOK: usize = HEAD + 17;
    let mut base = from;
    while base + LOOK as u64 <= end {
        let length = (end - base).min((STEP + LOOK - 1) as u64);
        let bytes = payload(file, base, length)?;
        for (at, look) in bytes.windows(LOOK).enumerate() {
            let offset = base + at as u64;
            let length = u64::from(number(look, 0));
            let left = end - offset - HEAD as u64;
            let likely = look.last() == Some(&b'{')
                && (1..=MAX_PAYLOAD as u64).contains(&length)
                && length <= left
                && number(look, HEAD + 8) < 2_000_000_000
                && u64::from(number(look, HEAD + 12)) < length;
            if likely && crc32c::crc32c(&payload(file, offset + HEAD as u64, length)?) == number(look, 4) {
                return Ok(Some(offset));
            }
        }
        base += STEP as u64;
    }
    Ok(None)
}

/// Number of events of a payload by their lengths alone; `None` if these do not fit.
fn count(mut payload: &[u8]) -> Option<usize> {
    let mut events = 0;
    while !payload.is_empty() {
        take(&mut payload, 12)?;
        for _ in 0..2 {
            let length = u32::from_le_bytes(take(&mut payload, 4)?.try_into().ok()?);
            let fields = take(&mut payload, usize::try_from(length).ok()?)?;
            if fields.first() != Some(&b'{') || fields.last() != Some(&b'}') {
                return None;
            }
        }
        events += 1;
    }
    (events > 0).then_some(events)
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
