//! Messages of a stream, written to documents as they are read.
//!
//! The usual message becomes a document without an event of its text before. What is left is read by the codec, and given fields by the
//! [`MessageReader`]: messages with structured data, those that are none, and all of another codec.

use std::sync::{Arc, OnceLock};

use chrono::{DateTime, Utc};

use super::framing::ChunkDecoder;
use super::message::{self, MAX_PRIORITY};
use super::times::LastTime;
use super::{ENDS, MESSAGE, MessageReader, write_origin};
use crate::Event;
use crate::codec::{Charset, Codec, Decoder, Events};
use crate::event::{Additions, BlockEvent, FieldWriter};
use crate::input::stream::Origin;

/// Reads the messages of a stream, each of them in one call.
pub(super) struct MessageWriter {
    reader: Arc<MessageReader>,
    codec: Box<dyn Decoder>,
    origin: Origin,
    /// Members and metadata of the stream's events.
    additions: Additions,
    /// `true` if the codec leaves messages as they are.
    is_plain: bool,
    /// Fields of all messages, which are those of the additions.
    fields: FieldWriter,
    last_time: Option<LastTime>,
    now: DateTime<Utc>,
}

/// Fields that messages of one priority share.
#[derive(Debug)]
struct PriorityFields {
    /// The priority.
    first: FieldWriter,
    /// The numbers that it is made of, and their labels.
    last: FieldWriter,
}

/// Fields of each priority, once a message had it.
#[derive(Debug)]
pub(super) struct PriorityTable(Vec<OnceLock<PriorityFields>>);

impl Default for PriorityTable {
    fn default() -> Self {
        Self((0..=MAX_PRIORITY).map(|_| OnceLock::new()).collect())
    }
}

impl PriorityTable {
    fn get(&self, priority: u32, reader: &MessageReader) -> Option<&PriorityFields> {
        let fields = self.0.get(usize::try_from(priority).ok()?)?;
        Some(fields.get_or_init(|| {
            let (mut first, mut last) =
                (FieldWriter::with_capacity(32, 1), FieldWriter::with_capacity(128, 4));
            first.number("priority", priority);
            reader.write_numbers(priority, &mut last);
            PriorityFields { first, last }
        }))
    }
}

impl MessageWriter {
    /// Begins a stream.
    pub(super) fn new(reader: &Arc<MessageReader>, codec: &dyn Codec, origin: &Origin) -> Self {
        let is_plain = codec.is_plain_text() && reader.is_usual();
        let mut fields = FieldWriter::with_capacity(128, 4);
        write_origin(origin, &mut fields);
        Self {
            reader: Arc::clone(reader),
            codec: codec.line_decoder(),
            additions: reader.additions(origin),
            origin: origin.clone(),
            is_plain,
            fields,
            last_time: None,
            now: Utc::now(),
        }
    }

    /// Writes the document of a message; returns whether it did. It leaves rare messages alone.
    fn write(&mut self, text: &str, events: &mut Events) -> bool {
        let mut times = self.reader.times.resume(self.now, self.last_time);
        let parsed = message::parse(text.trim_end_matches(ENDS), &mut times);
        self.last_time = times.into_last();
        let Some(message) = parsed.filter(|message| message.structured.is_empty()) else { return false };
        let Some(fields) = self.reader.priorities.get(message.priority, &self.reader) else { return false };
        let time = message.instant.unwrap_or_else(Utc::now);
        let Some(mut document) = events.block().begin(time, text.len()) else { return false };
        document.text(MESSAGE, message.text);
        let mut is_written = document.append_fields(&self.fields) && document.append_fields(&fields.first);
        for (name, text) in message.texts() {
            document.text(name, text);
        }
        is_written &= document.append_fields(&fields.last);
        let bytes = document.bytes();
        let Some(range) = document.end().filter(|_| is_written) else { return false };
        let mut event = Event::new(time);
        self.additions.add_metadata(&mut event);
        events.push_document(BlockEvent::new(event, range, bytes));
        true
    }

    /// Has the codec add events, and reads their messages.
    fn read(&mut self, events: &mut Events, add: impl FnOnce(&mut dyn Decoder, &mut Events)) {
        let (before, bytes) = (events.len(), events.bytes());
        add(&mut *self.codec, events);
        if events.len() > before {
            let Self { reader, origin, additions, .. } = self;
            let mut times = reader.times.resume(self.now, self.last_time);
            let added = events.get_mut(before..).unwrap_or_default();
            reader.read_all(added, (&*origin, additions), &mut times);
            self.last_time = times.into_last();
            events.recount(before, bytes);
        }
    }
}

impl Decoder for MessageWriter {
    fn decode(&mut self, bytes: &[u8], events: &mut Events) {
        if self.is_plain && self.write(&Charset::Utf8.decode(bytes), events) {
            return;
        }
        self.read(events, |codec, events| codec.decode(bytes, events));
    }

    fn finish(&mut self, events: &mut Events) {
        self.read(events, |codec, events| codec.finish(events));
    }

    fn holds(&self) -> bool {
        self.codec.holds()
    }
}

impl ChunkDecoder for MessageWriter {
    fn begin_chunk(&mut self) {
        self.now = Utc::now();
        self.additions.renew();
    }
}
