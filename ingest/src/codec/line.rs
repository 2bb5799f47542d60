//! `line`: each line of a stream is an event.

use std::sync::Arc;

use super::charset::Charset;
use super::lines::{Lines, MAX_LINE_BYTES, TOO_LONG};
use super::plain::{formatted, message};
use super::{Codec, Decoder, Events, ecs_disabled};
use crate::{Event, Fault, Options, Template};

#[derive(Debug)]
struct Line {
    charset: Charset,
    delimiter: String,
    format: Option<Template>,
}

pub(super) fn build(mut options: Options) -> Result<Arc<dyn Codec>, Vec<Fault>> {
    ecs_disabled(&mut options);
    let line = Line {
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

impl Codec for Line {
    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(LineStream { charset: self.charset, lines: Lines::new(&self.delimiter, MAX_LINE_BYTES) })
    }

    fn line_decoder(&self) -> Box<dyn Decoder> {
        Box::new(TextPerCall { charset: self.charset })
    }

    fn encode(&self, event: &Event, out: &mut Vec<u8>) {
        out.extend_from_slice(formatted(self.format.as_ref(), event).as_bytes());
        out.extend_from_slice(self.delimiter.as_bytes());
    }
}

struct LineStream {
    charset: Charset,
    lines: Lines,
}

impl Decoder for LineStream {
    fn decode(&mut self, bytes: &[u8], events: &mut Events) {
        let charset = self.charset;
        self.lines.push(bytes, |line, too_long| {
            let mut event = message(charset, line);
            if too_long {
                event.tag(TOO_LONG);
            }
            events.push(event);
        });
    }

    fn finish(&mut self, events: &mut Events) {
        let charset = self.charset;
        self.lines.finish(|line| events.push(message(charset, line)));
    }

    fn holds(&self) -> bool {
        !self.lines.is_empty()
    }
}

struct TextPerCall {
    charset: Charset,
}

impl Decoder for TextPerCall {
    fn decode(&mut self, bytes: &[u8], events: &mut Events) {
        events.push(message(self.charset, bytes));
    }

    fn finish(&mut self, _events: &mut Events) {}
}
