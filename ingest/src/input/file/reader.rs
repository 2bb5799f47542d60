//! Reads one file: bytes to lines, lines to events, and how far everything is in events. Blocks.

use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::time::UNIX_EPOCH;

use chrono::Utc;
use flate2::read::MultiGzDecoder;
use xxhash_rust::xxh3::xxh3_64;

use super::delimiter::Delimiter;
use super::position::{BEFORE, Position, hash_before};
use crate::codec::{Decoder, Events, decode_piece};

/// Bytes read at once.
const READ: usize = 128 << 10;
/// Longest line; longer ones become several events.
const MAX_LINE: usize = 16 << 20;
/// Bytes of lines of one batch.
const MAX_BATCH: usize = 4 << 20;
/// Tag of events that are pieces of a line that was too long.
const SPLIT: &str = "_filelinesplit";

/// An open file and what was read of it.
pub(super) struct Reader {
    source: Source,
    decoder: Box<dyn Decoder>,
    delimiter: Delimiter,
    /// Read bytes that belong to no line yet, from `line` on.
    buffer: Vec<u8>,
    /// Offset behind the last whole line.
    line: u64,
    /// Offset up to which everything is in events.
    safe: u64,
    /// Bytes before the end of what was read.
    recent: Vec<u8>,
    at_end: bool,
    /// Bytes that the events of one line may take.
    most_of_line: u64,
    /// Number of observed truncations of the file.
    truncations: u64,
    /// Number that tells its lines from those that were at the same offsets before.
    incarnation: u64,
}

enum Source {
    Plain(File),
    /// Offsets are those of the decompressed bytes. A carriage return at the end of a line is not of the line.
    Gzip {
        inflated: Box<MultiGzDecoder<BufReader<File>>>,
        carriage_return: Delimiter,
    },
}

/// Result of one read of a file.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    pub(super) events: Events,
    /// `true` if there is nothing more for now.
    pub(super) at_end: bool,
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("line", &self.line).field("safe", &self.safe).finish_non_exhaustive()
    }
}

impl Reader {
    /// Begins at an offset, which is the beginning of a line, of a file that was truncated so often.
    pub(super) fn open(
        file: File,
        gzip: bool,
        (offset, truncations): (u64, u64),
        decoder: Box<dyn Decoder>,
        delimiter: &Delimiter,
        most_of_line: u64,
    ) -> io::Result<Self> {
        let incarnation = incarnation(&file, truncations);
        let mut recent = Vec::new();
        let source = if gzip {
            let mut file = file;
            file.seek(SeekFrom::Start(0))?;
            let mut inflated = MultiGzDecoder::new(BufReader::new(file));
            let skipped = io::copy(&mut (&mut inflated).take(offset), &mut io::sink())?;
            if skipped < offset {
                return Err(io::Error::other("it is shorter than what was read of it before"));
            }
            let carriage_return = delimiter.with_text("\r");
            Source::Gzip { inflated: Box::new(inflated), carriage_return }
        } else {
            recent = bytes_before(&file, offset)?;
            Source::Plain(file)
        };
        // As in Logstash, compressed files have the line ends of Unix or of Windows, whatever the delimiter.
        let delimiter = if gzip { delimiter.with_text("\n") } else { delimiter.clone() };
        Ok(Self {
            source,
            decoder,
            delimiter,
            buffer: Vec::new(),
            line: offset,
            safe: offset,
            recent,
            at_end: false,
            most_of_line,
            truncations,
            incarnation,
        })
    }

    /// Reads up to so many events, until they take so many bytes, or to the end for now.
    pub(super) fn read(&mut self, most: usize, bytes: u64) -> io::Result<Chunk> {
        let mut events = Events::default();
        let mut taken = 0;
        let mut searched = 0;
        while events.len() < most && events.bytes() < bytes && taken < MAX_BATCH {
            let rest = self.buffer.get(taken..).unwrap_or_default();
            // The delimiter may have begun in what was searched already.
            let from = searched.min(rest.len());
            match self.delimiter.find(rest, from) {
                Some(line) if line <= MAX_LINE => {
                    let whole = line + self.delimiter.len();
                    self.decode(taken, line, whole, &mut events);
                    taken += whole;
                    searched = 0;
                }
                // Wherever reading begins, a line is cut at the same places.
                _ if rest.len() >= MAX_LINE + self.delimiter.len() => {
                    let before = events.len();
                    self.decode(taken, MAX_LINE, MAX_LINE, &mut events);
                    events.iter_mut().skip(before).for_each(|event| event.tag(SPLIT));
                    taken += MAX_LINE;
                    searched = 0;
                }
                _ => {
                    searched = rest.len().saturating_sub(self.delimiter.len().saturating_sub(1));
                    self.buffer.drain(..taken);
                    taken = 0;
                    if !self.fill()? {
                        self.at_end = true;
                        // There may be thousands of files that wait for a line.
                        self.buffer.shrink_to_fit();
                        return Ok(Chunk { events, at_end: true });
                    }
                }
            }
        }
        self.buffer.drain(..taken);
        Ok(Chunk { events, at_end: false })
    }

    /// Decodes a line of the buffer.
    fn decode(&mut self, from: usize, length: usize, whole: usize, events: &mut Events) {
        let before = events.len();
        let mut line = self.buffer.get(from..from + length).unwrap_or_default();
        if let Source::Gzip { carriage_return, .. } = &self.source {
            line = carriage_return.strip_suffix(line);
        }
        events.begin_record(u128::from(self.line), self.incarnation);
        decode_piece(&mut *self.decoder, line, false, self.most_of_line, events);
        let begin = self.line;
        self.line += whole as u64;
        if !self.decoder.holds() {
            self.safe = self.line;
        } else if events.len() > before {
            self.safe = begin;
        }
    }

    fn fill(&mut self) -> io::Result<bool> {
        let end = self.end();
        let length = self.buffer.len();
        self.buffer.resize(length + READ, 0);
        let space = self.buffer.get_mut(length..).unwrap_or_default();
        let read = loop {
            let read = match &mut self.source {
                Source::Plain(file) => file.read_at(space, end),
                Source::Gzip { inflated, .. } => inflated.read(space),
            };
            match read {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.buffer.truncate(length);
                    return Err(error);
                }
                Ok(read) => break read,
            }
        };
        self.buffer.truncate(length + read);
        if matches!(self.source, Source::Plain(_)) && read > 0 {
            self.recent.extend_from_slice(self.buffer.get(length..).unwrap_or_default());
            let surplus = self.recent.len().saturating_sub(BEFORE);
            self.recent.drain(..surplus);
        }
        Ok(read > 0)
    }

    /// Makes events of what the decoder holds; with `last` also of a last line without a delimiter.
    pub(super) fn finish(&mut self, last: bool, events: &mut Events) {
        if last && !self.buffer.is_empty() {
            let length = self.buffer.len();
            self.decode(0, length, length, events);
            self.buffer.clear();
        }
        self.decoder.finish(events);
        self.safe = self.line;
    }

    /// Returns whether the decoder holds something.
    pub(super) fn holds(&self) -> bool {
        self.decoder.holds()
    }

    /// Returns whether the last look came to the end.
    pub(super) fn at_end(&self) -> bool {
        self.at_end
    }

    /// Offset up to which the file was read.
    pub(super) fn end(&self) -> u64 {
        self.line + self.buffer.len() as u64
    }

    /// Returns the length of the file as far as it was read, where it is not decompressed.
    pub(super) fn read_length(&self) -> Option<u64> {
        matches!(self.source, Source::Plain(_)).then(|| self.end())
    }

    /// Returns the number of observed truncations of the file.
    pub(super) fn truncations(&self) -> u64 {
        self.truncations
    }

    /// Offset up to which everything is in events.
    pub(super) fn safe(&self) -> u64 {
        self.safe
    }

    /// The position up to which everything is in events.
    pub(super) fn position(&self, complete: bool) -> io::Result<Position> {
        let before = match &self.source {
            Source::Plain(file) => hash_before(file, self.safe)?,
            Source::Gzip { .. } => 0,
        };
        let (offset, truncations, seconds) = (self.safe, self.truncations, Utc::now().timestamp());
        Ok(Position { offset, before, complete, seconds, truncations })
    }

    /// The file, where it is read as it is.
    pub(super) fn file(&self) -> &File {
        match &self.source {
            Source::Plain(file) => file,
            Source::Gzip { inflated, .. } => inflated.get_ref().get_ref(),
        }
    }

    /// Returns whether the file has become shorter, or other than what was read of it.
    pub(super) fn was_replaced(&self) -> io::Result<bool> {
        let Source::Plain(file) = &self.source else { return Ok(false) };
        let end = self.end();
        if file.metadata()?.len() < end {
            return Ok(true);
        }
        let mut now = vec![0; self.recent.len()];
        let from = end - now.len() as u64;
        file.read_exact_at(&mut now, from)?;
        Ok(now != self.recent)
    }
}

/// A number that another content of the same name has not: inodes are given again, and files truncated.
fn incarnation(file: &File, truncations: u64) -> u64 {
    // Not all file systems know when a file was made.
    let made = file.metadata().and_then(|metadata| metadata.created()).ok();
    let made = made.and_then(|made| made.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    let mut bytes = made.as_nanos().to_be_bytes().to_vec();
    bytes.extend_from_slice(&truncations.to_be_bytes());
    xxh3_64(&bytes)
}

fn bytes_before(file: &File, offset: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; BEFORE.min(usize::try_from(offset).unwrap_or(BEFORE))];
    let from = offset - bytes.len() as u64;
    file.read_exact_at(&mut bytes, from)?;
    Ok(bytes)
}

/// Returns the begin of the last line that is not whole.
pub(super) fn last_line(file: &File, delimiter: &Delimiter) -> io::Result<u64> {
    let end = file.metadata()?.len();
    let mut from = end;
    let mut behind = Vec::new();
    while from > 0 {
        let length = (READ as u64).min(from);
        from -= length;
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(READ)];
        file.read_exact_at(&mut bytes, from)?;
        // A delimiter may lie across two pieces.
        bytes.extend_from_slice(&behind);
        if let Some(end) = delimiter.find_end(&bytes, from) {
            return Ok(end);
        }
        behind = bytes.get(..delimiter.len().saturating_sub(1)).unwrap_or_default().to_vec();
    }
    Ok(0)
}

#[cfg(test)]
mod tests;
