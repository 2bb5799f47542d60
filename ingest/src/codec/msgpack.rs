//! `msgpack`: events as MessagePack objects, one behind the other.
//!
//! The reader makes JSON values of the bytes at once, within bounds of depth and memory.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Utc};
use serde_json::{Map, Number, Value, json};

use super::plain::undecoded;
use super::{Codec, Decoder, Events, TOO_MANY};
use crate::event::{TIMESTAMP, text_of};
use crate::{Event, Fault, FieldReference, Options, Template};

/// Tag of bytes that are no object.
const FAILURE: &str = "_msgpackparsefailure";
/// Deepest nesting of an object.
const MAX_DEPTH: usize = 128;
/// Marker that no value has.
const UNUSED: u8 = 0xc1;
/// Most bytes of an object that are waited for.
const MAX_OBJECT_BYTES: usize = 64 << 20;
/// Bytes of a value in memory, about.
const VALUE_BYTES: u64 = 80;
/// Type of the extension for times.
const TIME_EXTENSION: i8 = -1;

#[derive(Clone, Debug)]
struct MsgPack {
    target: Option<FieldReference>,
    format: Option<Template>,
}

pub(super) fn build(mut options: Options) -> Result<Arc<dyn Codec>, Vec<Fault>> {
    let _ = options.ecs_compatibility();
    let codec = MsgPack { target: options.field("target"), format: options.template("format") };
    options.finish()?;
    Ok(Arc::new(codec))
}

impl MsgPack {
    /// Makes an event of a value; one that is no object needs a target.
    fn event(&self, value: Value) -> Option<Event> {
        let mut event = match (value, &self.target) {
            (Value::Object(fields), None) => Event::from_fields(fields, Utc::now()),
            (value, Some(target)) => {
                let mut event = Event::new(Utc::now());
                event.set(target, value).ok()?;
                event
            }
            (_, None) => return None,
        };
        if let Some(format) = &self.format {
            let text = format.render(&event);
            event.set_missing("message", &text);
        }
        Some(event)
    }
}

impl Codec for MsgPack {
    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(ObjectStream { codec: self.clone(), kept: Vec::new(), scan: ObjectScan::default() })
    }

    fn encode(&self, event: &Event, out: &mut Vec<u8>) {
        let fields = event.fields();
        write_length(fields.len() + 1, Family::Map, out);
        write_text(TIMESTAMP, out);
        write_text(&event.timestamp_text(), out);
        for (name, value) in fields {
            write_text(name, out);
            write_value(value, out);
        }
    }
}

/// A stream of objects, with the one that is not complete yet.
struct ObjectStream {
    codec: MsgPack,
    kept: Vec<u8>,
    scan: ObjectScan,
}

/// Heads of the values in the kept bytes: each is read once, in whatever pieces the object comes.
#[derive(Debug)]
struct ObjectScan {
    /// Offset of the next head.
    position: usize,
    /// Values of the object that are still to come.
    missing: u64,
}

impl Default for ObjectScan {
    fn default() -> Self {
        Self { position: 0, missing: 1 }
    }
}

/// State of the kept bytes.
#[derive(Debug, PartialEq, Eq)]
enum ObjectState {
    Partial,
    Complete,
    /// No bytes that follow make an object of them.
    Impossible,
}

impl ObjectScan {
    /// Reads the heads of what came.
    fn read(&mut self, kept: &[u8]) -> ObjectState {
        while self.missing > 0 {
            let rest = kept.get(self.position..).unwrap_or_default();
            let Some(ValueHead { bytes, values }) = ValueHead::read(rest) else {
                return ObjectState::Partial;
            };
            if values > 2 * MAX_OBJECT_BYTES as u64 || rest.first() == Some(&UNUSED) {
                return ObjectState::Impossible;
            }
            self.position = self.position.saturating_add(bytes);
            self.missing = (self.missing - 1).saturating_add(values);
        }
        if self.position <= kept.len() { ObjectState::Complete } else { ObjectState::Partial }
    }
}

/// Size of a value, but for the values within it.
struct ValueHead {
    /// Bytes of the head, and of a content that is no value.
    bytes: usize,
    /// Values that follow.
    values: u64,
}

impl ValueHead {
    /// Reads a head; `None` where bytes of it are missing.
    fn read(bytes: &[u8]) -> Option<Self> {
        let marker = *bytes.first()?;
        let length = |width: usize| -> Option<u64> {
            Some(bytes.get(1..1 + width)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
        };
        let sized = |width: usize, more: usize| -> Option<Self> {
            let content = usize::try_from(length(width)?).unwrap_or(usize::MAX);
            Some(Self { bytes: content.saturating_add(1 + width + more), values: 0 })
        };
        let fixed = |bytes: usize| Some(Self { bytes, values: 0 });
        let several = |bytes: usize, values: u64| Some(Self { bytes, values });
        match marker {
            0x80..=0x8f => several(1, 2 * u64::from(marker & 0x0f)),
            0x90..=0x9f => several(1, u64::from(marker & 0x0f)),
            0xa0..=0xbf => fixed(1 + usize::from(marker & 0x1f)),
            0xc4..=0xc6 => sized(1 << (marker - 0xc4), 0),
            0xc7..=0xc9 => sized(1 << (marker - 0xc7), 1),
            0xca => fixed(5),
            0xcb => fixed(9),
            0xcc..=0xcf => fixed(1 + (1 << (marker - 0xcc))),
            0xd0..=0xd3 => fixed(1 + (1 << (marker - 0xd0))),
            0xd4..=0xd8 => fixed(2 + (1 << (marker - 0xd4))),
            0xd9..=0xdb => sized(1 << (marker - 0xd9), 0),
            0xdc => several(3, length(2)?),
            0xdd => several(5, length(4)?),
            0xde => several(3, 2 * length(2)?),
            0xdf => several(5, 2 * length(4)?),
            _ => fixed(1),
        }
    }
}

impl ObjectStream {
    /// Reads whole objects; returns the number of bytes that were read.
    fn read(&self, bytes: &[u8], is_last: bool, events: &mut Events) -> usize {
        let mut reader = Reader { bytes, at: 0, values: 0 };
        loop {
            let begin = reader.at;
            if begin >= bytes.len() || events.is_full() {
                return bytes.len();
            }
            reader.values = 0;
            let mut room = |values: u64| events.has_room(values.saturating_mul(VALUE_BYTES));
            let read = reader.value(MAX_DEPTH, &mut room);
            match read {
                Ok(value) => match self.codec.event(value) {
                    Some(event) => events.push(event),
                    None => events.push(undecoded(bytes.get(begin..reader.at).unwrap_or_default(), FAILURE)),
                },
                Err(Unread::Incomplete) if !is_last => return begin,
                Err(Unread::NoRoom) if events.is_full() => return bytes.len(),
                Err(Unread::NoRoom) => {
                    // The object is too large, and nothing tells where the next one begins.
                    events.push(undecoded(bytes.get(begin..).unwrap_or_default(), TOO_MANY));
                    return bytes.len();
                }
                Err(Unread::Incomplete | Unread::Malformed) => {
                    // Nothing tells where the next object begins.
                    events.push(undecoded(bytes.get(begin..).unwrap_or_default(), FAILURE));
                    return bytes.len();
                }
            }
        }
    }
}

impl Decoder for ObjectStream {
    fn decode(&mut self, bytes: &[u8], events: &mut Events) {
        if self.kept.is_empty() {
            let read = self.read(bytes, false, events);
            self.kept.extend_from_slice(bytes.get(read..).unwrap_or_default());
        } else {
            self.kept.extend_from_slice(bytes);
            let state = self.scan.read(&self.kept);
            let is_last = self.kept.len() > MAX_OBJECT_BYTES || state == ObjectState::Impossible;
            if !is_last && state == ObjectState::Partial {
                return;
            }
            let read = self.read(&self.kept, is_last, events);
            self.kept.drain(..read);
            self.scan = ObjectScan::default();
        }
    }

    fn finish(&mut self, events: &mut Events) {
        self.scan = ObjectScan::default();
        let kept = std::mem::take(&mut self.kept);
        if !kept.is_empty() {
            self.read(&kept, true, events);
        }
    }

    fn holds(&self) -> bool {
        !self.kept.is_empty()
    }
}

/// Reason why bytes are no value.
#[derive(Debug, PartialEq, Eq)]
enum Unread {
    Incomplete,
    Malformed,
    NoRoom,
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Values of the present object so far.
    values: u64,
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Unread> {
        let end = self.at.checked_add(length).ok_or(Unread::Malformed)?;
        let taken = self.bytes.get(self.at..end).ok_or(Unread::Incomplete)?;
        self.at = end;
        Ok(taken)
    }

    /// Reads an unsigned number of so many bytes.
    fn number(&mut self, length: usize) -> Result<u64, Unread> {
        Ok(self.take(length)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn length(&mut self, bytes: usize) -> Result<usize, Unread> {
        usize::try_from(self.number(bytes)?).map_err(|_| Unread::Malformed)
    }

    fn signed(&mut self, length: usize) -> Result<Value, Unread> {
        // The shifts carry the sign of a short number to all 64 bits.
        let unused = 64 - 8 * u32::try_from(length).map_err(|_| Unread::Malformed)?;
        Ok(Value::from((self.number(length)? << unused).cast_signed() >> unused))
    }

    /// Reads a value. `room` says whether there is memory for so many values more.
    fn value(&mut self, depth: usize, room: &mut dyn FnMut(u64) -> bool) -> Result<Value, Unread> {
        let [marker] = *self.take(1)? else { return Err(Unread::Malformed) };
        Ok(match marker {
            0x00..=0x7f => Value::from(marker),
            0x80..=0x8f => self.map(usize::from(marker & 0x0f), depth, room)?,
            0x90..=0x9f => self.array(usize::from(marker & 0x0f), depth, room)?,
            0xa0..=0xbf => self.text(usize::from(marker & 0x1f))?,
            0xc0 => Value::Null,
            0xc1 => return Err(Unread::Malformed),
            0xc2 => Value::Bool(false),
            0xc3 => Value::Bool(true),
            0xc4..=0xc6 | 0xd9..=0xdb => {
                let first = if marker < 0xd0 { 0xc4 } else { 0xd9 };
                let length = self.length(1 << (marker - first))?;
                self.text(length)?
            }
            0xc7..=0xc9 => {
                let length = self.length(1 << (marker - 0xc7))?;
                self.extension(length)?
            }
            0xca => {
                let bytes = self.take(4)?.try_into().map_err(|_| Unread::Malformed)?;
                float(f64::from(f32::from_be_bytes(bytes)))
            }
            0xcb => {
                let bytes = self.take(8)?.try_into().map_err(|_| Unread::Malformed)?;
                float(f64::from_be_bytes(bytes))
            }
            0xcc..=0xcf => Value::from(self.number(1 << (marker - 0xcc))?),
            0xd0..=0xd3 => self.signed(1 << (marker - 0xd0))?,
            0xd4..=0xd8 => self.extension(1 << (marker - 0xd4))?,
            0xdc | 0xdd => {
                let length = self.length(if marker == 0xdc { 2 } else { 4 })?;
                self.array(length, depth, room)?
            }
            0xde | 0xdf => {
                let length = self.length(if marker == 0xde { 2 } else { 4 })?;
                self.map(length, depth, room)?
            }
            0xe0..=0xff => Value::from(i64::from(marker.cast_signed())),
        })
    }

    fn text(&mut self, length: usize) -> Result<Value, Unread> {
        Ok(Value::String(String::from_utf8_lossy(self.take(length)?).into_owned()))
    }

    /// Checks that so many values may follow, of which each has a byte at least.
    fn expect(
        &mut self,
        values: usize,
        depth: usize,
        room: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(), Unread> {
        if depth == 0 {
            return Err(Unread::Malformed);
        }
        if values > MAX_OBJECT_BYTES {
            return Err(Unread::Malformed);
        }
        if values > self.bytes.len() - self.at {
            return Err(Unread::Incomplete);
        }
        self.values += values as u64;
        if room(self.values) { Ok(()) } else { Err(Unread::NoRoom) }
    }

    fn array(
        &mut self,
        length: usize,
        depth: usize,
        room: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Value, Unread> {
        self.expect(length, depth, room)?;
        let mut elements = Vec::with_capacity(length);
        for _ in 0..length {
            elements.push(self.value(depth - 1, room)?);
        }
        Ok(Value::Array(elements))
    }

    fn map(
        &mut self,
        length: usize,
        depth: usize,
        room: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Value, Unread> {
        self.expect(length.saturating_mul(2), depth, room)?;
        let mut members = Map::new();
        for _ in 0..length {
            let name = match self.value(depth - 1, room)? {
                Value::String(name) => name,
                other => text_of(&other),
            };
            members.insert(name, self.value(depth - 1, room)?);
        }
        Ok(Value::Object(members))
    }

    /// Reads an extension: a time, or its type and bytes.
    fn extension(&mut self, length: usize) -> Result<Value, Unread> {
        let [kind] = *self.take(1)? else { return Err(Unread::Malformed) };
        let (kind, data) = (kind.cast_signed(), self.take(length)?);
        let time = (kind == TIME_EXTENSION).then(|| extension_time(data)).flatten();
        Ok(match time {
            Some(time) => Value::String(Event::new(time).timestamp_text()),
            None => json!({"type": kind, "data": STANDARD.encode(data)}),
        })
    }
}

fn float(number: f64) -> Value {
    Number::from_f64(number).map_or_else(|| Value::String(number.to_string()), Value::Number)
}

/// Reads a time of 32, 64 or 96 bits.
fn extension_time(data: &[u8]) -> Option<DateTime<Utc>> {
    let number = |bytes: &[u8]| bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    let (seconds, nanos) = match data.len() {
        4 => (i64::try_from(number(data)).ok()?, 0),
        8 => (i64::try_from(number(data) & 0x3_ffff_ffff).ok()?, number(data) >> 34),
        12 => {
            let (nanos, seconds) = data.split_at(4);
            (number(seconds).cast_signed(), number(nanos))
        }
        _ => return None,
    };
    DateTime::from_timestamp(seconds, u32::try_from(nanos).ok()?)
}

/// Kinds of values that have a length.
#[derive(Clone, Copy)]
enum Family {
    Text,
    Array,
    Map,
}

fn write_length(length: usize, family: Family, out: &mut Vec<u8>) {
    let (fixed, most, byte, short, long) = match family {
        Family::Text => (0xa0_u8, 31, Some(0xd9), 0xda, 0xdb),
        Family::Array => (0x90, 15, None, 0xdc, 0xdd),
        Family::Map => (0x80, 15, None, 0xde, 0xdf),
    };
    match (u8::try_from(length), u16::try_from(length), byte) {
        (Ok(length), ..) if length <= most => out.push(fixed | length),
        (Ok(length), _, Some(marker)) => out.extend([marker, length]),
        (_, Ok(length), _) => {
            out.push(short);
            out.extend(length.to_be_bytes());
        }
        _ => {
            out.push(long);
            // Values in memory are shorter than the greatest length.
            out.extend(u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
        }
    }
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    write_length(text.len(), Family::Text, out);
    out.extend_from_slice(text.as_bytes());
}

fn write_value(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.push(0xc0),
        Value::Bool(value) => out.push(if *value { 0xc3 } else { 0xc2 }),
        Value::Number(number) => write_number(number, out),
        Value::String(text) => write_text(text, out),
        Value::Array(elements) => {
            write_length(elements.len(), Family::Array, out);
            elements.iter().for_each(|element| write_value(element, out));
        }
        Value::Object(members) => {
            write_length(members.len(), Family::Map, out);
            for (name, value) in members {
                write_text(name, out);
                write_value(value, out);
            }
        }
    }
}

fn write_number(number: &Number, out: &mut Vec<u8>) {
    if let Some(number) = number.as_u64() {
        match (u8::try_from(number), u16::try_from(number), u32::try_from(number)) {
            (Ok(number), ..) if number < 0x80 => out.push(number),
            (Ok(number), ..) => out.extend([0xcc, number]),
            (_, Ok(number), _) => {
                out.push(0xcd);
                out.extend(number.to_be_bytes());
            }
            (.., Ok(number)) => {
                out.push(0xce);
                out.extend(number.to_be_bytes());
            }
            _ => {
                out.push(0xcf);
                out.extend(number.to_be_bytes());
            }
        }
    } else if let Some(number) = number.as_i64() {
        match i8::try_from(number) {
            Ok(number) if number >= -32 => out.extend(number.to_be_bytes()),
            _ => {
                out.push(0xd3);
                out.extend(number.to_be_bytes());
            }
        }
    } else {
        out.push(0xcb);
        out.extend(number.as_f64().unwrap_or_default().to_be_bytes());
    }
}
