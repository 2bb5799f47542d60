//! `json_lines`: each line of a stream is JSON.

use std::sync::Arc;

use super::charset::Charset;
use super::json::{Reader, ValuePerCall};
use super::line::delimiter;
use super::lines::{Lines, MAX_LINE_BYTES};
use super::{Codec, Decoder, Events, OriginalText};
use crate::event::Scratch;
use crate::{Event, Fault, Options};

/// Greatest limit of a line that can be set.
const MAX_LIMIT: i64 = 512 << 20;

#[derive(Debug)]
struct JsonLines {
    reader: Reader,
    delimiter: String,
    max_bytes: usize,
}

pub(super) fn build(mut options: Options) -> Result<Arc<dyn Codec>, Vec<Fault>> {
    // As in Logstash, the text of a line is not kept.
    let _ = options.ecs_compatibility();
    let reader = Reader::take(&mut options, OriginalText::default());
    let delimiter = delimiter(&mut options);
    let limit = options.integer("decode_size_limit_bytes", 1..=MAX_LIMIT);
    let max_bytes = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(MAX_LINE_BYTES);
    options.finish()?;
    Ok(Arc::new(JsonLines { reader, delimiter, max_bytes }))
}

impl Codec for JsonLines {
    fn decoder(&self) -> Box<dyn Decoder> {
        self.reader.charset().stream(|charset| JsonLinesStream {
            reader: self.reader.with_charset(charset),
            scratch: Scratch::default(),
            lines: Lines::new(&self.delimiter, self.max_bytes),
        })
    }

    fn charset(&self) -> Charset {
        self.reader.charset()
    }

    fn line_decoder(&self) -> Box<dyn Decoder> {
        Box::new(ValuePerCall::new(&self.reader))
    }

    fn encode(&self, event: &Event, out: &mut Vec<u8>) {
        event.write_json(out);
        out.extend_from_slice(self.delimiter.as_bytes());
    }
}

struct JsonLinesStream {
    reader: Reader,
    scratch: Scratch,
    lines: Lines,
}

impl Decoder for JsonLinesStream {
    fn decode(&mut self, bytes: &[u8], events: &mut Events) {
        let Self { reader, scratch, lines } = self;
        events.begin_block();
        // The pieces of a line that is too long are no JSON, and tagged so.
        lines.push(bytes, |line, _| reader.read(line, scratch, events));
        events.end_block();
    }

    fn finish(&mut self, events: &mut Events) {
        let Self { reader, scratch, lines } = self;
        lines.finish(|line| reader.read(line, scratch, events));
    }

    fn holds(&self) -> bool {
        !self.lines.is_empty()
    }
}
