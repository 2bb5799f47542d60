//! Frames to events: those of a window, up to where the sender waits for an answer.

use std::io::{self, Read as _};
use std::sync::Arc;

use flate2::bufread::ZlibDecoder;

use super::frames::{Frame, MAX_WINDOW, frame_length, invalid, json_frame, read_frame};
use crate::Event;
use crate::codec::{Codec, Decoder, DecoderPlaceholder, Events};

/// Bytes that are inflated at once.
const INFLATED: usize = 64 << 10;
/// Field that the codec reads.
pub(super) const MESSAGE: &str = "message";

/// Events of frames, until they are handed on.
pub(super) struct WindowReader {
    /// Reads the JSON of events.
    json: Box<dyn Decoder>,
    /// Codec of the field `message`; `None` for one that leaves it as it is.
    codec: Option<Arc<dyn Codec>>,
    /// `true` if the text of an event is kept as its original, too.
    pub(super) keeps_original: bool,
    pub(super) events: Events,
    /// Version and number of the last event.
    pub(super) last: Option<(u8, u32)>,
    /// Events since the last window was announced.
    pub(super) count: u32,
    /// Events of the window.
    pub(super) window: u32,
}

impl WindowReader {
    /// Makes one for a connection.
    pub(super) fn new(json: Box<dyn Decoder>, codec: Option<Arc<dyn Codec>>) -> Self {
        let (events, keeps_original) = (Events::default(), false);
        Self { json, codec, keeps_original, events, last: None, count: 0, window: 1 }
    }

    /// Takes the state over, for a thread that reads frames with it.
    pub(super) fn take_over(&mut self) -> Self {
        let Self { codec, keeps_original, last, count, window, .. } = self;
        let (json, events) = (
            std::mem::replace(&mut self.json, Box::new(DecoderPlaceholder)),
            std::mem::take(&mut self.events),
        );
        let (codec, keeps_original) = (codec.clone(), *keeps_original);
        Self { json, codec, keeps_original, events, last: *last, count: *count, window: *window }
    }

    /// Returns whether events are read as they are sent, so that nothing but what the input adds changes them.
    pub(super) fn is_plain(&self) -> bool {
        self.codec.is_none() && !self.keeps_original
    }

    /// Returns whether the sender waits for an answer.
    pub(super) fn is_complete(&self) -> bool {
        self.last.is_some() && self.count >= self.window
    }

    /// Takes a whole frame that is not compressed.
    pub(super) fn take(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        if let Some((version, sequence, text)) = json_frame(bytes) {
            self.add_json(text);
            return self.added(version, sequence);
        }
        match read_frame(&mut bytes)? {
            Some((version, frame)) => self.add(version, frame),
            None => Ok(()),
        }
    }

    /// Takes compressed frames.
    pub(super) fn take_compressed(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut inflated = ZlibDecoder::new(bytes);
        // Frames that are not taken yet: no more than one and what is inflated at once.
        let mut buffer = Vec::new();
        loop {
            let kept = buffer.len();
            buffer.resize(kept + INFLATED, 0);
            let read = inflated.read(buffer.get_mut(kept..).unwrap_or_default())?;
            buffer.truncate(kept + read);
            if read == 0 {
                return if buffer.is_empty() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
            let mut rest = buffer.as_slice();
            self.events.begin_block();
            while let Some(length) = frame_length(rest)? {
                if rest.get(1) == Some(&b'C') {
                    return Err(invalid("compressed frames within compressed frames"));
                }
                let (frame, behind) = rest.split_at(length);
                self.take(frame)?;
                rest = behind;
            }
            self.events.end_block();
            let taken = buffer.len() - rest.len();
            buffer.drain(..taken);
        }
    }

    fn add(&mut self, version: u8, frame: Frame) -> io::Result<()> {
        let sequence = match frame {
            Frame::Window(window) if window > MAX_WINDOW => {
                return Err(invalid(format!(
                    "a window of [{window}] events exceeds the bound [{MAX_WINDOW}]"
                )));
            }
            Frame::Window(window) => {
                (self.window, self.count) = (window.max(1), 0);
                return Ok(());
            }
            Frame::Compressed(_) => return Ok(()),
            Frame::Json { sequence, text } => {
                self.add_json(&text);
                sequence
            }
            Frame::Data { sequence, mut fields } => {
                // Version 1 names the text by the file's lines.
                if let Some(line) = fields.shift_remove("line") {
                    fields.insert(MESSAGE.to_owned(), line);
                }
                let before = self.events.len();
                self.events.push(Event::from_fields(fields, chrono::Utc::now()));
                self.complete(before);
                sequence
            }
        };
        self.added(version, sequence)
    }

    fn add_json(&mut self, text: &[u8]) {
        let before = self.events.len();
        self.json.decode(text, &mut self.events);
        self.json.finish(&mut self.events);
        self.complete(before);
    }

    /// Takes note of an event that was added, if there was memory for it.
    fn added(&mut self, version: u8, sequence: u32) -> io::Result<()> {
        if self.events.is_full() {
            return Err(io::Error::new(
                io::ErrorKind::OutOfMemory,
                "the events take more memory than there is",
            ));
        }
        self.last = Some((version, sequence));
        self.count += 1;
        Ok(())
    }

    /// Has the codec read the texts of the events from this one on.
    fn complete(&mut self, before: usize) {
        let Some(codec) = &self.codec else {
            if self.keeps_original && self.events.len() == before + 1 {
                self.events.change_last(keep_message);
            }
            return;
        };
        let originals: Vec<Event> = self.events.iter().skip(before).cloned().collect();
        if originals.iter().all(|event| !event.has_field(MESSAGE)) {
            return;
        }
        self.events.truncate(before);
        for original in originals {
            let Some(text) = original.fields().get(MESSAGE).and_then(|text| text.as_str()) else {
                self.events.push(original);
                continue;
            };
            let begin = self.events.len();
            let mut decoder = codec.decoder();
            decoder.decode(text.as_bytes(), &mut self.events);
            decoder.finish(&mut self.events);
            for event in self.events.iter_mut().skip(begin) {
                // What the codec read is first, the rest is of the sender.
                for (name, value) in original.fields() {
                    if name != MESSAGE && !event.has_field(name) {
                        event.fields_mut().insert(name.clone(), value.clone());
                    }
                }
                event.set_timestamp(original.timestamp());
                for (name, value) in original.metadata() {
                    if let Ok(reference) = crate::FieldReference::parse(&format!("[@metadata][{name}]")) {
                        let _ = event.set(&reference, value.clone());
                    }
                }
            }
        }
    }
}

/// Keeps the text of an event as its original.
fn keep_message(event: &mut Event) {
    let text = match event.text_of_field(MESSAGE) {
        Some(text) => Some(text.into_owned()),
        None => event.fields().get(MESSAGE).and_then(|text| text.as_str()).map(str::to_owned),
    };
    if let Some(text) = text {
        event.keep_original(&text);
    }
}
