//! `json`: a JSON object is an event, an array is one for each element.

use std::sync::Arc;

use chrono::Utc;
use millrace_mapping::document::replace_lone_surrogates;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use super::charset::Charset;
use super::plain::message;
use super::{Codec, Decoder, Events, OriginalText, TOO_MANY};
use crate::event::Scratch;
use crate::{Event, Fault, FieldReference, Options};

/// Tag of what is no JSON.
const FAILURE: &str = "_jsonparsefailure";
/// Most bytes of a value that are waited for.
const MAX_VALUE_BYTES: usize = 128 << 20;
/// Up to here, kept bytes are read anew with all bytes that come; above, each time they have doubled.
const SMALL_BYTES: usize = 64 << 10;

/// Bytes of a value in memory, about.
const VALUE: u64 = 80;
/// Space between values.
const SPACE: [char; 4] = [' ', '\n', '\r', '\t'];

/// Value that a text begins with.
enum LeadingValue {
    /// Nothing but space.
    Nothing,
    /// A value that ends at this place.
    Read(usize),
    /// The beginning of a value.
    Incomplete,
    /// No JSON.
    Wrong,
}

#[derive(Clone, Debug)]
struct Json {
    reader: Reader,
}

/// Reads events from JSON.
#[derive(Clone, Debug)]
pub(super) struct Reader {
    charset: Charset,
    original: OriginalText,
    target: Option<FieldReference>,
}

pub(super) fn build(mut options: Options) -> Result<Arc<dyn Codec>, Vec<Fault>> {
    let original = OriginalText::take(&mut options);
    let reader = Reader::take(&mut options, original);
    options.finish()?;
    Ok(Arc::new(Json { reader }))
}

impl Reader {
    /// Takes the options that say how JSON becomes events.
    pub(super) fn take(options: &mut Options, original: OriginalText) -> Self {
        Self { charset: Charset::take(options), original, target: options.field("target") }
    }

    /// Character set of the JSON.
    pub(super) fn charset(&self) -> Charset {
        self.charset
    }

    /// The same reader for JSON in another character set.
    pub(super) fn with_charset(&self, charset: Charset) -> Self {
        Self { charset, ..self.clone() }
    }

    /// Appends the events of one value, or of the several that follow one another. What is no JSON becomes an event
    /// with the text as message and the tag `_jsonparsefailure`.
    pub(super) fn read(&self, bytes: &[u8], scratch: &mut Scratch, events: &mut Events) {
        self.read_whole(bytes, true, scratch, events);
    }

    /// As [`Self::read`]; without `last`, the beginning of a value at the end is left alone. Answers how many bytes were read.
    fn read_whole(&self, bytes: &[u8], last: bool, scratch: &mut Scratch, events: &mut Events) -> usize {
        let text = self.charset.decode(bytes);
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let has_escapes = memchr::memchr(b'\\', text.as_bytes()).is_some();
        let replaced = if has_escapes { replace_lone_surrogates(text.as_bytes()) } else { None };
        // The same text, byte for byte, but for those escapes.
        let json = replaced.as_deref().and_then(|json| std::str::from_utf8(json).ok()).unwrap_or(text);
        let mut begin = 0;
        loop {
            let before = events.total();
            match self.next(json.get(begin..).unwrap_or_default(), scratch, events) {
                // What is dropped for want of room need not be read.
                LeadingValue::Nothing | LeadingValue::Read(_) if events.is_full() => return bytes.len(),
                LeadingValue::Nothing => return bytes.len(),
                LeadingValue::Read(length) => {
                    let value = text.get(begin..begin + length).unwrap_or_default().trim_matches(SPACE);
                    // Of several events, none is the whole text.
                    if self.original.is_kept && events.total() == before + 1 && value.starts_with(['{', '['])
                    {
                        events.change_last(|event| self.original.keep(event, value));
                    }
                    begin += length;
                }
                // Where a value is not complete, the text is that of UTF-8, byte for byte.
                LeadingValue::Incomplete if !last && self.charset == Charset::Utf8 => return begin,
                LeadingValue::Incomplete | LeadingValue::Wrong => {
                    let rest = text.get(begin..).unwrap_or_default();
                    events.push(failed(rest.trim_end_matches(['\r', '\n'])));
                    return bytes.len();
                }
            }
        }
    }

    /// Appends the events of the value that a text begins with, or none of them.
    fn next(&self, text: &str, scratch: &mut Scratch, events: &mut Events) -> LeadingValue {
        let begin = text.len() - text.trim_start_matches(SPACE).len();
        match text.as_bytes().get(begin) {
            None => LeadingValue::Nothing,
            // Events that are handed on at once are not taken back.
            Some(b'[') if events.is_handed_on_in_chunks() => match complete_value(text) {
                LeadingValue::Read(_) => self.array(text, begin, scratch, events),
                other => other,
            },
            Some(b'[') => {
                let before = events.len();
                let read = self.array(text, begin, scratch, events);
                if !matches!(read, LeadingValue::Read(_)) {
                    events.truncate(before);
                }
                read
            }
            Some(_) => self.element(text, scratch, events),
        }
    }

    /// Reads the array that begins at a place, an element after the other: all of them as values would take more than
    /// anybody has room for.
    fn array(&self, text: &str, begin: usize, scratch: &mut Scratch, events: &mut Events) -> LeadingValue {
        let behind_space = |at: usize| {
            let rest = text.get(at..).unwrap_or_default();
            let at = text.len() - rest.trim_start_matches(SPACE).len();
            (at, text.as_bytes().get(at))
        };
        let (mut at, first) = behind_space(begin + 1);
        if first == Some(&b']') {
            return LeadingValue::Read(at + 1);
        }
        loop {
            match self.element(text.get(at..).unwrap_or_default(), scratch, events) {
                LeadingValue::Nothing => return LeadingValue::Incomplete,
                LeadingValue::Read(_) if events.is_full() => return LeadingValue::Read(text.len()),
                LeadingValue::Read(length) => at += length,
                // The array is complete, so that an element has what no value has: a number out of range, too many levels.
                LeadingValue::Incomplete | LeadingValue::Wrong if events.is_handed_on_in_chunks() => {
                    events.push(failed(text.get(at..).unwrap_or_default()));
                    return LeadingValue::Read(text.len());
                }
                other => return other,
            }
            match behind_space(at) {
                (end, Some(b']')) => return LeadingValue::Read(end + 1),
                (end, Some(b',')) => at = end + 1,
                (_, Some(_)) => return LeadingValue::Wrong,
                (_, None) => return LeadingValue::Incomplete,
            }
        }
    }

    /// Appends the event of a value that is no array, or is one within an array. An object becomes one without
    /// values being made of it, if it can.
    fn element(&self, text: &str, scratch: &mut Scratch, events: &mut Events) -> LeadingValue {
        if self.target.is_none() {
            let rest = text.trim_start_matches(SPACE);
            if let Some(length) = events.push_scanned(rest, scratch) {
                return LeadingValue::Read(text.len() - rest.len() + length);
            }
        }
        if !events.has_room(value_bytes_of(text.as_bytes())) {
            if events.is_full() || !events.is_handed_on_in_chunks() {
                return LeadingValue::Read(text.len());
            }
            // Others go on behind a value that is too large.
            let read = complete_value(text);
            if let LeadingValue::Read(length) = read {
                events.push(too_large(text.get(..length).unwrap_or_default()));
            }
            return read;
        }
        let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
        match values.next() {
            None => LeadingValue::Nothing,
            Some(Ok(value)) => {
                self.object(value, events);
                LeadingValue::Read(values.byte_offset())
            }
            Some(Err(error)) if error.is_eof() => LeadingValue::Incomplete,
            Some(Err(_)) => LeadingValue::Wrong,
        }
    }

    fn object(&self, value: Value, events: &mut Events) {
        let now = Utc::now();
        let event = match (&self.target, value) {
            (None, Value::Object(fields)) => Event::from_fields(fields, now),
            (Some(target), value) => {
                let mut event = Event::from_fields(Map::new(), now);
                let text = value.to_string();
                match event.set(target, value) {
                    Ok(()) => event,
                    Err(_) => failed(&text),
                }
            }
            (None, other) => failed(&other.to_string()),
        };
        events.push(event);
    }
}

/// Reads the value that a text begins with, and keeps nothing of it.
fn complete_value(text: &str) -> LeadingValue {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>();
    match values.next() {
        None => LeadingValue::Nothing,
        Some(Ok(_)) => LeadingValue::Read(values.byte_offset()),
        Some(Err(error)) if error.is_eof() => LeadingValue::Incomplete,
        Some(Err(_)) => LeadingValue::Wrong,
    }
}

/// Bytes that the values take at most that a text begins with: those between its first bracket and the one that closes it.
pub(crate) fn value_bytes_of(text: &[u8]) -> u64 {
    let (mut depth, mut values, mut length) = (0_usize, 1_u64, 0_u64);
    let (mut in_text, mut escaped) = (false, false);
    for &byte in text {
        length += 1;
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            _ if in_text => {}
            b'[' | b'{' => depth += 1,
            b']' | b'}' if depth <= 1 => break,
            b']' | b'}' => depth -= 1,
            b',' if depth == 0 => break,
            b',' | b':' => values += 1,
            _ => {}
        }
    }
    values * VALUE + length
}

/// Makes the event of a value whose parts would take too much memory.
fn too_large(text: &str) -> Event {
    let mut event = message(Charset::Utf8, text.trim_matches(SPACE).as_bytes());
    event.tag(TOO_MANY);
    event
}

fn failed(text: &str) -> Event {
    let mut event = message(Charset::Utf8, text.as_bytes());
    event.tag(FAILURE);
    event
}

impl Codec for Json {
    fn decoder(&self) -> Box<dyn Decoder> {
        self.reader.charset.stream(|charset| Values {
            reader: self.reader.with_charset(charset),
            scratch: Scratch::default(),
            kept: Vec::new(),
            tried: 0,
        })
    }

    fn charset(&self) -> Charset {
        self.reader.charset
    }

    fn line_decoder(&self) -> Box<dyn Decoder> {
        Box::new(ValuePerCall::new(&self.reader))
    }

    fn encode(&self, event: &Event, out: &mut Vec<u8>) {
        event.write_json(out);
    }
}

/// A stream of values, with the one that is not complete yet.
struct Values {
    reader: Reader,
    scratch: Scratch,
    kept: Vec<u8>,
    /// Length of what was kept when it was last found incomplete.
    tried: usize,
}

impl Decoder for Values {
    fn decode(&mut self, bytes: &[u8], events: &mut Events) {
        if self.kept.is_empty() {
            let read = self.reader.read_whole(bytes, false, &mut self.scratch, events);
            self.kept.extend_from_slice(bytes.get(read..).unwrap_or_default());
        } else {
            self.kept.extend_from_slice(bytes);
            if self.kept.len() > SMALL_BYTES && self.kept.len() < self.tried.saturating_mul(2) {
                return;
            }
            let last = self.kept.len() > MAX_VALUE_BYTES;
            let read = self.reader.read_whole(&self.kept, last, &mut self.scratch, events);
            self.kept.drain(..read);
        }
        self.tried = self.kept.len();
    }

    fn finish(&mut self, events: &mut Events) {
        self.tried = 0;
        if !self.kept.is_empty() {
            let kept = std::mem::take(&mut self.kept);
            self.reader.read(&kept, &mut self.scratch, events);
        }
    }

    fn holds(&self) -> bool {
        !self.kept.is_empty()
    }
}

/// A value in each call.
pub(super) struct ValuePerCall {
    reader: Reader,
    scratch: Scratch,
}

impl ValuePerCall {
    pub(super) fn new(reader: &Reader) -> Self {
        Self { reader: reader.clone(), scratch: Scratch::default() }
    }
}

impl Decoder for ValuePerCall {
    fn decode(&mut self, bytes: &[u8], events: &mut Events) {
        self.reader.read(bytes, &mut self.scratch, events);
    }

    fn finish(&mut self, _events: &mut Events) {}
}
