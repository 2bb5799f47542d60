//! `plain`: a text is an event.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::Utc;

use super::charset::Charset;
use super::{Codec, Decoder, Events, OriginalText};
use crate::event::FieldWriter;
use crate::{Event, Fault, Options, Template};

/// Bytes and fields beside the text that inputs usually add.
const ADDED: (usize, usize) = (64, 4);

#[derive(Clone, Debug)]
struct Plain {
    charset: Charset,
    original: OriginalText,
    format: Option<Template>,
}

pub(super) fn build(mut options: Options) -> Result<Arc<dyn Codec>, Vec<Fault>> {
    let plain = Plain {
        original: OriginalText::take(&mut options),
        charset: Charset::take(&mut options),
        format: options.template("format"),
    };
    options.finish()?;
    Ok(Arc::new(plain))
}

impl Codec for Plain {
    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(self.clone())
    }

    fn charset(&self) -> Charset {
        self.charset
    }

    fn is_plain_text(&self) -> bool {
        self.charset == Charset::Utf8 && !self.original.is_kept
    }

    fn encode(&self, event: &Event, out: &mut Vec<u8>) {
        out.extend_from_slice(formatted(self.format.as_ref(), event).as_bytes());
    }
}

impl Decoder for Plain {
    fn decode(&mut self, bytes: &[u8], events: &mut Events) {
        events.push(text_event(&self.charset.decode(bytes), self.original));
    }

    fn finish(&mut self, _events: &mut Events) {}
}

/// An event whose message is a text.
pub(super) fn message(charset: Charset, bytes: &[u8]) -> Event {
    text_event(&charset.decode(bytes), OriginalText::default())
}

/// An event whose message is a text, which may be kept a second time.
pub(super) fn text_event(text: &str, original: OriginalText) -> Event {
    let mut event = Event::new(Utc::now());
    let mut fields = FieldWriter::with_capacity(text.len() + ADDED.0, ADDED.1);
    fields.text("message", text);
    event.replace_fields(fields);
    original.keep(&mut event, text);
    event
}

/// Makes an event of bytes that a binary codec does not read: their text, or base64 where they are no UTF-8.
pub(super) fn undecoded(bytes: &[u8], failure: &str) -> Event {
    let mut event = match std::str::from_utf8(bytes) {
        Ok(_) => message(Charset::Utf8, bytes),
        Err(_) => message(Charset::Utf8, STANDARD.encode(bytes).as_bytes()),
    };
    event.tag(failure);
    event
}

/// An event by a format, or as one line.
pub(super) fn formatted(format: Option<&Template>, event: &Event) -> String {
    format.map_or_else(|| event.line(), |format| format.render(event))
}
