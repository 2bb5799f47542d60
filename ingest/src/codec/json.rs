//! `json`: a JSON object is an event, an array is one for each element.

use std::sync::Arc;

use chrono::Utc;
use serde_json::{Map, Value};

use super::charset::Charset;
use super::plain::message;
use super::{Codec, Decoder, ecs_disabled};
use crate::event::Scratch;
use crate::{Event, Fault, FieldReference, Options};

/// Tag of what is no JSON.
const FAILURE: &str = "_jsonparsefailure";
/// Most bytes of a value that are waited for.
const MAX_VALUE_BYTES: usize = 128 << 20;
/// Up to here, what is kept is read anew with all bytes that come; above, each time it has doubled.
const SMALL_BYTES: usize = 64 << 10;

#[derive(Clone, Debug)]
struct Json {
    reader: Reader,
}

/// Reads events from JSON.
#[derive(Clone, Debug)]
pub(super) struct Reader {
    charset: Charset,
    target: Option<FieldReference>,
}

pub(super) fn build(mut options: Options) -> Result<Arc<dyn Codec>, Vec<Fault>> {
    let reader = Reader::take(&mut options);
    options.finish()?;
    Ok(Arc::new(Json { reader }))
}

impl Reader {
    /// Takes the options that say how JSON becomes events.
    pub(super) fn take(options: &mut Options) -> Self {
        ecs_disabled(options);
        Self { charset: Charset::take(options), target: options.field("target") }
    }

    /// Appends the events of one value, or of the several that follow one another. What is no JSON becomes an event
    /// with the text as message and the tag `_jsonparsefailure`.
    pub(super) fn read(&self, bytes: &[u8], scratch: &mut Scratch, events: &mut Vec<Event>) {
        self.read_whole(bytes, true, scratch, events);
    }

    /// As [`Self::read`]; without `last`, the beginning of a value at the end is left alone. Answers how many bytes were read.
    fn read_whole(&self, bytes: &[u8], last: bool, scratch: &mut Scratch, events: &mut Vec<Event>) -> usize {
        let text = self.charset.decode(bytes);
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let mut begin = 0;
        loop {
            let rest = text.get(begin..).unwrap_or_default();
            if let Some(length) = self.scan(rest, scratch, events) {
                begin += length;
                continue;
            }
            let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
            match values.next() {
                None => return bytes.len(),
                Some(Ok(value)) => {
                    begin += values.byte_offset();
                    self.value(value, events);
                }
                // Where a value is not complete, the text is that of UTF-8, byte for byte.
                Some(Err(error)) if error.is_eof() && !last && self.charset == Charset::Utf8 => return begin,
                Some(Err(_)) => {
                    events.push(failed(rest.trim_end_matches(['\r', '\n'])));
                    return bytes.len();
                }
            }
        }
    }

    /// Appends the events of the value that a text begins with, without making values of it; how long it is. `None`,
    /// and no event, where that cannot be done.
    fn scan(&self, text: &str, scratch: &mut Scratch, events: &mut Vec<Event>) -> Option<usize> {
        if self.target.is_some() {
            return None;
        }
        let behind_space = |at: usize| {
            let rest = text.get(at..)?.trim_start_matches([' ', '\n', '\r', '\t']);
            Some((text.len() - rest.len(), rest))
        };
        let (mut at, rest) = behind_space(0)?;
        if rest.starts_with('{') {
            let (event, length) = Event::scan(rest, scratch, Utc::now)?;
            events.push(event);
            return Some(at + length);
        }
        if !rest.starts_with('[') {
            return None;
        }
        let before = events.len();
        let all = loop {
            at += 1;
            let Some((begin, rest)) = behind_space(at) else { break None };
            let Some((event, length)) = Event::scan(rest, scratch, Utc::now) else { break None };
            events.push(event);
            let Some((end, rest)) = behind_space(begin + length) else { break None };
            at = end;
            match rest.as_bytes().first() {
                Some(b',') => {}
                Some(b']') => break Some(at + 1),
                _ => break None,
            }
        };
        if all.is_none() {
            // An array is read as a whole or not at all.
            events.truncate(before);
        }
        all
    }

    fn value(&self, value: Value, events: &mut Vec<Event>) {
        match value {
            Value::Array(elements) => elements.into_iter().for_each(|element| self.object(element, events)),
            other => self.object(other, events),
        }
    }

    fn object(&self, value: Value, events: &mut Vec<Event>) {
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

fn failed(text: &str) -> Event {
    let mut event = message(Charset::Utf8, text.as_bytes());
    event.tag(FAILURE);
    event
}

impl Codec for Json {
    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(Values {
            reader: self.reader.clone(),
            scratch: Scratch::default(),
            kept: Vec::new(),
            tried: 0,
        })
    }

    fn line_decoder(&self) -> Box<dyn Decoder> {
        Box::new(Whole::new(&self.reader))
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
    fn decode(&mut self, bytes: &[u8], events: &mut Vec<Event>) {
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

    fn finish(&mut self, events: &mut Vec<Event>) {
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
pub(super) struct Whole {
    reader: Reader,
    scratch: Scratch,
}

impl Whole {
    pub(super) fn new(reader: &Reader) -> Self {
        Self { reader: reader.clone(), scratch: Scratch::default() }
    }
}

impl Decoder for Whole {
    fn decode(&mut self, bytes: &[u8], events: &mut Vec<Event>) {
        self.reader.read(bytes, &mut self.scratch, events);
    }

    fn finish(&mut self, _events: &mut Vec<Event>) {}
}
