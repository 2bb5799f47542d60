//! JSON as it comes, checked and brought into the form that [`Members`] keep, without making values of it.
//!
//! What is rare is left to the parser of values, which has the last word on what is JSON: what this scan does not take
//! may still be an event.

use chrono::{DateTime, Utc};
use serde_json::{Map, Number, Value};

use super::members::{MAX_MEMBERS, MemberSpan};
use super::metadata::Metadata;
use super::time_format::{Zone, iso8601};
use super::{METADATA, TAGS, TIMESTAMP, timestamp};

/// Deepest nesting.
const MAX_DEPTH: usize = 64;
/// Longest object.
const MAX_BYTES: usize = 16 << 20;
/// Most memory that one scan leaves to the next.
const MAX_KEPT: usize = 1 << 20;
/// Longest metadata that one scan leaves to the next.
const MAX_KEPT_METADATA: usize = 4 << 10;
/// Most digits of whole numbers that are not looked at closely.
const MAX_DIGITS: usize = 18;

/// Most significant digits that a number of 64 bits has for sure. What has more stays as it is written.
const EXACT_DIGITS: usize = 15;

/// An object that was read; its members are in the memory that the scan leaves to the next.
pub(super) struct ScannedObject<'s> {
    /// Its members without the time, each behind a comma.
    pub(super) members: &'s [u8],
    pub(super) spans: &'s [MemberSpan],
    /// Its time, where it has one.
    pub(super) timestamp: Option<DateTime<Utc>>,
    /// Its metadata.
    pub(super) metadata: Metadata,
    /// Bytes of the object in what was read.
    pub(super) length: usize,
}

/// Memory that one scan leaves to the next.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    out: Vec<u8>,
    places: Vec<MemberSpan>,
    names: Vec<(usize, usize)>,
    /// The last metadata as text, and what was read of it: most events of a source have the same.
    metadata: (Vec<u8>, Metadata),
}

/// Reads the object that a text begins with. `None` where it is no object, is not complete, is no JSON, or is none of
/// those that can be kept as text: two members of one name, metadata, a time or tags that are none, escapes in names,
/// very many members, very deep.
pub(super) fn scan<'s>(text: &str, scratch: &'s mut Scratch) -> Option<ScannedObject<'s>> {
    let bytes = text.as_bytes();
    let bytes = bytes.get(..bytes.len().min(MAX_BYTES))?;
    let Scratch { out, places, names, metadata: last_metadata } = scratch;
    if out.capacity() > MAX_KEPT {
        *out = Vec::new();
    }
    out.clear();
    places.clear();
    names.clear();
    let metadata = Metadata::default();
    let mut scanner = Scanner { bytes, at: 0, copied: 0, out, places, names, last_metadata, metadata };
    let timestamp = scanner.object_of_event()?;
    let Scanner { at: length, metadata, .. } = scanner;
    Some(ScannedObject { members: out, spans: places, timestamp, metadata, length })
}

/// Counts the digits of a number without its exponent, from the first to the last that is not zero.
fn significant_digits(number: &[u8]) -> usize {
    let end = number.iter().position(|byte| matches!(byte, b'e' | b'E')).unwrap_or(number.len());
    let digits = number.iter().take(end).filter(|byte| byte.is_ascii_digit());
    let is_zero = |digit: &&u8| **digit == b'0';
    let (mut counted, mut zeros) = (0, 0);
    for digit in digits.skip_while(is_zero) {
        match digit {
            b'0' => zeros += 1,
            _ => counted += 1 + std::mem::take(&mut zeros),
        }
    }
    counted
}

/// Table of the bytes that end a run of plain characters in a string: a quote, a backslash, a control character.
const SPECIAL: [bool; 256] = {
    let mut special = [false; 256];
    let mut byte = 0;
    while byte < 0x20 {
        special[byte] = true;
        byte += 1;
    }
    special[b'"' as usize] = true;
    special[b'\\' as usize] = true;
    special
};

/// Returns the number of plain characters that bytes begin with; `None` where nothing ends them.
pub(super) fn plain_length(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES << 7;
    let (words, rest) = bytes.as_chunks::<8>();
    for (number, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let (quotes, backslashes) = (word ^ (ONES * b'"' as u64), word ^ (ONES * b'\\' as u64));
        // The high bit of a byte that is below 0x20, a quote or a backslash; a byte behind such a one may have it, too.
        let controls = word.wrapping_sub(ONES * 0x20) & !word;
        let zeros = (quotes.wrapping_sub(ONES) & !quotes) | (backslashes.wrapping_sub(ONES) & !backslashes);
        let special = (controls | zeros) & HIGH;
        if special != 0 {
            return Some(8 * number + special.trailing_zeros() as usize / 8);
        }
    }
    let behind = rest.iter().position(|byte| SPECIAL[usize::from(*byte)])?;
    Some(8 * words.len() + behind)
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Up to where bytes are in `out`, or left out of it.
    copied: usize,
    out: &'a mut Vec<u8>,
    places: &'a mut Vec<MemberSpan>,
    /// Ranges of the names of open objects.
    names: &'a mut Vec<(usize, usize)>,
    /// The last metadata as text, and what was read of it.
    last_metadata: &'a mut (Vec<u8>, Metadata),
    /// Metadata of the object.
    metadata: Metadata,
}

impl Scanner<'_> {
    /// Reads the object of an event; its time, where it has one.
    fn object_of_event(&mut self) -> Option<Option<DateTime<Utc>>> {
        self.take(b'{')?;
        self.copied = self.at;
        self.skip_space();
        let mut timestamp = None;
        if self.take(b'}').is_some() {
            return Some(timestamp);
        }
        self.out.push(b',');
        let mut comma = 0;
        loop {
            let (begin, end) = self.name(0)?;
            let name = self.bytes.get(begin..end)?;
            let value = self.written();
            let from = self.at;
            let first = self.peek()?;
            let plain = self.value(1)?;
            let place = MemberSpan { at: u32::try_from(comma).ok()?, value: u32::try_from(value).ok()? };
            if name == TAGS.as_bytes() && first == b'{' {
                return None;
            } else if name == METADATA.as_bytes() {
                self.copy();
                match first {
                    b'n' => {}
                    b'{' => self.read_metadata(value)?,
                    _ => return None,
                }
                self.out.truncate(comma);
            } else if name == TIMESTAMP.as_bytes() {
                timestamp = match first {
                    b'n' => None,
                    b'"' if plain => {
                        let text = self.bytes.get(from + 1..self.at - 1)?;
                        Some(match timestamp::read(text) {
                            Some(time) => time,
                            None => iso8601(std::str::from_utf8(text).ok()?, Zone::UTC)?,
                        })
                    }
                    _ => return None,
                };
                self.copy();
                self.out.truncate(comma);
            } else {
                self.places.push(place);
            }
            self.skip_space();
            comma = self.written();
            match self.peek()? {
                b',' => self.at += 1,
                b'}' => break,
                _ => return None,
            }
            self.skip_space();
        }
        self.copy();
        self.at += 1;
        Some(timestamp)
    }

    /// Takes the metadata that begins in the output at an offset.
    fn read_metadata(&mut self, from: usize) -> Option<()> {
        let text = self.out.get(from..)?;
        let (last_text, last) = &mut *self.last_metadata;
        if last_text.as_slice() == text {
            self.metadata = last.clone();
            return Some(());
        }
        self.metadata = serde_json::from_slice::<Map<String, Value>>(text).ok()?.into();
        if text.len() <= MAX_KEPT_METADATA {
            text.clone_into(last_text);
            *last = self.metadata.clone();
        }
        Some(())
    }

    /// Returns the output offset of the next byte.
    fn written(&self) -> usize {
        self.out.len() + (self.at - self.copied)
    }

    /// Writes what was read and not yet written.
    fn copy(&mut self) {
        self.out.extend_from_slice(self.bytes.get(self.copied..self.at).unwrap_or_default());
        self.copied = self.at;
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// Leaves space between tokens out.
    fn skip_space(&mut self) {
        let is_space = |byte: u8| matches!(byte, b' ' | b'\n' | b'\r' | b'\t');
        if !self.peek().is_some_and(is_space) {
            return;
        }
        self.copy();
        while self.peek().is_some_and(is_space) {
            self.at += 1;
        }
        self.copied = self.at;
    }

    /// Reads a name and its colon. Names of the same object begin at `first`.
    fn name(&mut self, first: usize) -> Option<(usize, usize)> {
        let begin = self.at + 1;
        // As written, so that names can be compared.
        let plain = self.string()?;
        let name = (begin, self.at - 1);
        let text = |(begin, end): (usize, usize)| self.bytes.get(begin..end);
        let others = self.names.get(first..)?;
        if !plain || others.len() >= MAX_MEMBERS || others.iter().any(|other| text(*other) == text(name)) {
            return None;
        }
        self.names.push(name);
        self.skip_space();
        self.take(b':')?;
        self.skip_space();
        Some(name)
    }

    /// Reads a value; of a string, whether it has no escapes.
    fn value(&mut self, depth: usize) -> Option<bool> {
        match self.peek()? {
            b'"' => return self.string(),
            b'{' if depth < MAX_DEPTH => self.object(depth)?,
            b'[' if depth < MAX_DEPTH => self.array(depth)?,
            b't' => self.literal(b"true")?,
            b'f' => self.literal(b"false")?,
            b'n' => self.literal(b"null")?,
            b'-' | b'0'..=b'9' => self.number()?,
            _ => return None,
        }
        Some(true)
    }

    fn object(&mut self, depth: usize) -> Option<()> {
        let first = self.names.len();
        self.at += 1;
        self.skip_space();
        if self.take(b'}').is_some() {
            return Some(());
        }
        loop {
            self.name(first)?;
            self.value(depth + 1)?;
            self.skip_space();
            if self.take(b'}').is_some() {
                self.names.truncate(first);
                return Some(());
            }
            self.take(b',')?;
            self.skip_space();
        }
    }

    fn array(&mut self, depth: usize) -> Option<()> {
        self.at += 1;
        self.skip_space();
        if self.take(b']').is_some() {
            return Some(());
        }
        loop {
            self.value(depth + 1)?;
            self.skip_space();
            if self.take(b']').is_some() {
                return Some(());
            }
            self.take(b',')?;
            self.skip_space();
        }
    }

    fn literal(&mut self, literal: &[u8]) -> Option<()> {
        self.bytes.get(self.at..)?.starts_with(literal).then(|| self.at += literal.len())
    }

    fn number(&mut self) -> Option<()> {
        let rest = self.bytes.get(self.at..)?;
        let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
        let number = rest.get(..rest.iter().position(|byte| !is_part(byte)).unwrap_or(rest.len()))?;
        let digits = number.strip_prefix(b"-").unwrap_or(number);
        let whole = (1..=MAX_DIGITS).contains(&digits.len())
            && digits.iter().all(u8::is_ascii_digit)
            && (digits.first() != Some(&b'0') || number == b"0");
        if !whole {
            let read = serde_json::from_slice::<Number>(number).ok()?;
            // As the parser of values reads and writes it, where that is the same number.
            let canonical = read.to_string();
            if canonical.as_bytes() != number && significant_digits(number) <= EXACT_DIGITS {
                self.copy();
                self.out.extend_from_slice(canonical.as_bytes());
                self.copied = self.at + number.len();
            }
        }
        self.at += number.len();
        Some(())
    }

    /// Reads a string; whether it has no escapes.
    fn string(&mut self) -> Option<bool> {
        self.take(b'"')?;
        let mut plain = true;
        loop {
            let rest = self.bytes.get(self.at..)?;
            self.at += plain_length(rest)?;
            match self.peek()? {
                b'"' => {
                    self.at += 1;
                    return Some(plain);
                }
                b'\\' => {
                    plain = false;
                    self.escape()?;
                }
                _ => return None,
            }
        }
    }

    /// Reads an escape, and writes it as `serde_json` does: as short as can be, without an escape where none is needed.
    fn escape(&mut self) -> Option<()> {
        match self.bytes.get(self.at + 1)? {
            b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't' => {
                self.at += 2;
                return Some(());
            }
            b'/' => {
                self.copy();
                self.at += 1;
                self.copied = self.at;
                self.at += 1;
                return Some(());
            }
            b'u' => {}
            _ => return None,
        }
        let (character, length) = match self.hex(self.at + 2)? {
            high @ 0xd800..=0xdbff => {
                if self.bytes.get(self.at + 6..self.at + 8)? != b"\\u" {
                    return None;
                }
                let low = self.hex(self.at + 8).filter(|low| (0xdc00..=0xdfff).contains(low))?;
                (char::from_u32(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00))?, 12)
            }
            other => (char::from_u32(other)?, 6),
        };
        self.copy();
        match character {
            '"' | '\\' | '\0'..='\u{1f}' => {
                let quoted = serde_json::to_vec(&character).ok()?;
                self.out.extend_from_slice(quoted.get(1..quoted.len() - 1)?);
            }
            other => self.out.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
        }
        self.at += length;
        self.copied = self.at;
        Some(())
    }

    fn hex(&self, at: usize) -> Option<u32> {
        let digits = self.bytes.get(at..at + 4)?;
        digits.iter().try_fold(0, |value, digit| Some(value * 16 + char::from(*digit).to_digit(16)?))
    }
}
