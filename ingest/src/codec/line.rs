//! `line`: each line of a stream is an event.

use std::sync::Arc;

use super::charset::Charset;
use super::lines::{Lines, MAX_LINE_BYTES, TOO_LONG};
use super::plain::{formatted, text_event};
use super::{Codec, Decoder, Events, OriginalText};
use crate::{Event, Fault, Options, Template};

#[derive(Debug)]
struct Line {
    charset: Charset,
    original: OriginalText,
    delimiter: String,
    format: Option<Template>,
}

pub(super) fn build(mut options: Options) -> Result<Arc<dyn Codec>, Vec<Fault>> {
    let line = Line {
        original: OriginalText::take(&mut options),
        charset: Charset::take(&mut options),
        delimiter: delimiter(&mut options),
        format: options.template("format"),
    };
    options.finish()?;
    Ok(Arc::new(line))
}

/// Takes the option `delimiter`.
pub(super) fn delimiter(options: &mut Options) -> String {
    let delimiter = options.read("delimiter", "a text that is not empty", |setting| {
        setting.as_text().filter(|delimiter| !delimiter.is_empty())
    });
    delimiter.unwrap_or_else(|| "\n".to_owned())
}

/// Begins a stream whose lines are events.
pub(super) fn line_stream(charset: Charset, original: OriginalText, delimiter: &str) -> Box<dyn Decoder> {
    let lines = Lines::new(delimiter, MAX_LINE_BYTES);
    charset.stream(|charset| LineStream { charset, original, lines })
}

impl Codec for Line {
    fn decoder(&self) -> Box<dyn Decoder> {
        line_stream(self.charset, self.original, &self.delimiter)
    }

    fn line_decoder(&self) -> Box<dyn Decoder> {
        Box::new(TextPerCall { charset: self.charset, original: self.original })
    }

    fn charset(&self) -> Charset {
        self.charset
    }

    fn encode(&self, event: &Event, out: &mut Vec<u8>) {
        out.extend_from_slice(formatted(self.format.as_ref(), event).as_bytes());
        out.extend_from_slice(self.delimiter.as_bytes());
    }
}

struct LineStream {
    charset: Charset,
    original: OriginalText,
    lines: Lines,
}

impl Decoder for LineStream {
    fn decode(&mut self, bytes: &[u8], events: &mut Events) {
        let Self { charset, original, lines } = self;
        lines.push(bytes, |line, too_long| {
            let mut event = text_event(&charset.decode(line), *original);
            if too_long {
                event.tag(TOO_LONG);
            }
            events.push(event);
        });
    }

    fn finish(&mut self, events: &mut Events) {
        let Self { charset, original, lines } = self;
        lines.finish(|line| events.push(text_event(&charset.decode(line), *original)));
    }

    fn holds(&self) -> bool {
        !self.lines.is_empty()
    }
}

struct TextPerCall {
    charset: Charset,
    original: OriginalText,
}

impl Decoder for TextPerCall {
    fn decode(&mut self, bytes: &[u8], events: &mut Events) {
        events.push(text_event(&self.charset.decode(bytes), self.original));
    }

    fn finish(&mut self, _events: &mut Events) {}
}
