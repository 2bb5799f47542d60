//! File headers and records: how frames and group marks lie in a log file.
//!
//! The layout is in `docs/internals/log-format.md`. Pure functions over bytes; the writer, recovery
//! and readers share them.

use millrace_catalog::frame::FrameNumber;

/// Bytes of a file's header.
pub(super) const FILE_HEADER: usize = 32;
/// Bytes of a record before its payload: length, checksum, kind, number.
pub(super) const RECORD_HEADER: usize = 17;
/// Bytes of a whole mark record.
pub(super) const MARK: usize = RECORD_HEADER + 8;

const MAGIC: [u8; 8] = *b"MILLRWAL";
const VERSION: u32 = 1;
/// Bytes that a record's length field does not count: itself and the checksum.
const UNCOUNTED: usize = 8;

/// Kinds of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A frame.
    Frame,
    /// Says how much of the file was durable when it was written.
    Mark,
}

impl Kind {
    fn code(self) -> u8 {
        match self {
            Self::Frame => 1,
            Self::Mark => 2,
        }
    }
}

/// Content of a file's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileHeader {
    /// Random identity, part of every checksum in the file.
    pub(super) id: u64,
    /// Number of the file's first frame.
    pub(super) first: FrameNumber,
}

impl FileHeader {
    pub(super) fn encode(self) -> [u8; FILE_HEADER] {
        let mut bytes = [0; FILE_HEADER];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..20].copy_from_slice(&self.id.to_le_bytes());
        bytes[20..28].copy_from_slice(&self.first.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[..28]);
        bytes[28..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Decodes a header, or says what is wrong with it.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        if bytes.len() < FILE_HEADER {
            return Err(format!("file header cut off after {} bytes", bytes.len()));
        }
        if bytes[..8] != MAGIC {
            return Err("not a log file (wrong magic)".to_owned());
        }
        let version = u32_at(bytes, 8);
        let (expected, found) = (u32_at(bytes, 28), crc32c::crc32c(&bytes[..28]));
        if expected != found {
            return Err(format!("file header has checksum {found:08x}, expected {expected:08x}"));
        }
        if version != VERSION {
            return Err(format!("log format version {version}; this program reads version {VERSION}"));
        }
        Ok(Self { id: u64_at(bytes, 12), first: u64_at(bytes, 20) })
    }
}

/// A record found intact.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a> {
    pub(super) kind: Kind,
    /// The frame's number; of a mark, the number of the next frame.
    pub(super) number: FrameNumber,
    pub(super) payload: &'a [u8],
    /// Bytes of the whole record.
    pub(super) len: usize,
}

impl Record<'_> {
    /// Returns the length of the file that a mark records as durable.
    pub(super) fn durable_len(&self) -> Option<u64> {
        (self.kind == Kind::Mark && self.payload.len() == 8).then(|| u64_at(self.payload, 0))
    }
}

/// Why there is no record where one was looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Nothing but zeros follows.
    Zeros,
    /// The record goes on beyond the bytes there are: that many are needed from its start.
    Incomplete(usize),
    /// The bytes are not a record.
    Bad(String),
    /// An intact record of a kind that this version does not know: never a torn write.
    Unknown(u8),
}

impl Fault {
    pub(super) fn reason(self) -> String {
        match self {
            Self::Zeros => "zeros where a record was expected".to_owned(),
            Self::Incomplete(needed) => {
                format!("record of {needed} bytes goes on beyond the end of the file")
            }
            Self::Bad(reason) => reason,
            Self::Unknown(code) => format!("unknown record kind {code}; a newer version wrote it"),
        }
    }
}

/// Reads the record at the start of `bytes`, which are not empty.
pub(super) fn read_record(bytes: &[u8], file_id: u64) -> Result<Record<'_>, Fault> {
    if bytes.len() < 4 {
        return Err(if is_zero(bytes) { Fault::Zeros } else { Fault::Incomplete(RECORD_HEADER) });
    }
    let length = u32_at(bytes, 0) as usize;
    if length < RECORD_HEADER - UNCOUNTED {
        let fault = if is_zero(bytes) { Fault::Zeros } else { Fault::Bad(format!("record length {length}")) };
        return Err(fault);
    }
    let len = length + UNCOUNTED;
    if len > bytes.len() {
        return Err(Fault::Incomplete(len));
    }
    let payload = &bytes[RECORD_HEADER..len];
    let (code, number) = (bytes[8], u64_at(bytes, 9));
    let (expected, found) = (u32_at(bytes, 4), checksum(crc32c::crc32c(payload), code, number, file_id));
    if expected != found {
        return Err(Fault::Bad(format!("checksum {found:08x}, expected {expected:08x}")));
    }
    let kind = match code {
        1 => Kind::Frame,
        2 if payload.len() == 8 => Kind::Mark,
        _ => return Err(Fault::Unknown(code)),
    };
    Ok(Record { kind, number, payload, len })
}

/// Fills in the first [`RECORD_HEADER`] bytes of a record whose payload, with checksum
/// `payload_checksum`, follows them.
pub(super) fn fill_header(
    record: &mut [u8],
    kind: Kind,
    number: FrameNumber,
    payload_checksum: u32,
    file_id: u64,
) {
    let length = (record.len() - UNCOUNTED) as u32;
    record[..4].copy_from_slice(&length.to_le_bytes());
    let checksum = checksum(payload_checksum, kind.code(), number, file_id);
    record[4..8].copy_from_slice(&checksum.to_le_bytes());
    record[8] = kind.code();
    record[9..17].copy_from_slice(&number.to_le_bytes());
}

/// Makes a mark: the first `durable_len` bytes of the file are durable.
pub(super) fn mark(next: FrameNumber, durable_len: u64, file_id: u64) -> [u8; MARK] {
    let mut record = [0; MARK];
    record[RECORD_HEADER..].copy_from_slice(&durable_len.to_le_bytes());
    let payload_checksum = crc32c::crc32c(&record[RECORD_HEADER..]);
    fill_header(&mut record, Kind::Mark, next, payload_checksum, file_id);
    record
}

/// Finds a mark after `bad` which proves that the record at `bad` had been synced whole.
/// `bytes` is the whole file.
pub(super) fn proof_of_damage(bytes: &[u8], bad: usize, file_id: u64) -> Option<usize> {
    let length = ((MARK - UNCOUNTED) as u32).to_le_bytes();
    let mut at = bad + 1;
    while at + MARK <= bytes.len() {
        // Almost every position fails here; the checksum decides about the rest.
        if bytes[at] == length[0] && bytes[at..at + 4] == length && bytes[at + 8] == Kind::Mark.code() {
            let record = read_record(&bytes[at..at + MARK], file_id).ok();
            if record.and_then(|mark| mark.durable_len()).is_some_and(|durable| durable > bad as u64) {
                return Some(at);
            }
        }
        at += 1;
    }
    None
}

fn checksum(payload_checksum: u32, code: u8, number: FrameNumber, file_id: u64) -> u32 {
    let mut tail = [0; 17];
    tail[0] = code;
    tail[1..9].copy_from_slice(&number.to_le_bytes());
    tail[9..].copy_from_slice(&file_id.to_le_bytes());
    crc32c::crc32c_append(payload_checksum, &tail)
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut value = [0; 4];
    value.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(value)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut value = [0; 8];
    value.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(value)
}
