//! `gzip_lines`: lines of text in gzip.

use std::io::Write as _;
use std::sync::Arc;

use flate2::Compression;
use flate2::write::{GzEncoder, MultiGzDecoder};

use super::charset::Charset;
use super::line::{delimiter, line_stream};
use super::plain::{formatted, message};
use super::{Codec, Decoder, Events, OriginalText};
use crate::{Event, Fault, Options, Template};

/// Tag of an event that stands for the unreadable rest of a stream.
const FAILURE: &str = "_gziplinesfailure";
/// Compressed bytes that are inflated at once: at most a thousand times as much comes of them.
const CHUNK_BYTES: usize = 4 << 10;

#[derive(Debug)]
struct GzipLines {
    charset: Charset,
    delimiter: String,
    format: Option<Template>,
}

pub(super) fn build(mut options: Options) -> Result<Arc<dyn Codec>, Vec<Fault>> {
    let _ = options.ecs_compatibility();
    let codec = GzipLines {
        charset: Charset::take(&mut options),
        delimiter: delimiter(&mut options),
        format: options.template("format"),
    };
    options.finish()?;
    Ok(Arc::new(codec))
}

impl Codec for GzipLines {
    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(GzipStream {
            inflater: MultiGzDecoder::new(Vec::new()),
            lines: line_stream(self.charset, OriginalText::default(), &self.delimiter),
            has_begun: false,
            has_failed: false,
        })
    }

    /// Writes each event as a member of its own: the members together are one stream.
    fn encode(&self, event: &Event, out: &mut Vec<u8>) {
        let line = formatted(self.format.as_ref(), event) + &self.delimiter;
        let mut encoder = GzEncoder::new(std::mem::take(out), Compression::default());
        // Memory takes all bytes.
        let written = encoder.write_all(line.as_bytes());
        debug_assert!(written.is_ok(), "memory refuses nothing");
        *out = encoder.finish().unwrap_or_default();
    }
}

struct GzipStream {
    inflater: MultiGzDecoder<Vec<u8>>,
    lines: Box<dyn Decoder>,
    /// `true` if the inflater has bytes of a stream.
    has_begun: bool,
    /// `true` if the rest of the stream is no gzip.
    has_failed: bool,
}

impl GzipStream {
    fn cut(&mut self, events: &mut Events) {
        let inflated = std::mem::take(self.inflater.get_mut());
        self.lines.decode(&inflated, events);
    }

    fn fail(&mut self, error: &std::io::Error, events: &mut Events) {
        self.has_failed = true;
        let mut event = message(Charset::Utf8, format!("the stream is not gzip: {error}").as_bytes());
        event.tag(FAILURE);
        events.push(event);
    }
}

impl Decoder for GzipStream {
    fn decode(&mut self, bytes: &[u8], events: &mut Events) {
        self.has_begun |= !bytes.is_empty();
        for chunk in bytes.chunks(CHUNK_BYTES) {
            // What is dropped for want of room need not be inflated.
            if self.has_failed || events.is_full() {
                return;
            }
            let written = self.inflater.write_all(chunk);
            self.cut(events);
            if let Err(error) = written {
                self.fail(&error, events);
            }
        }
    }

    fn finish(&mut self, events: &mut Events) {
        if self.has_begun && !self.has_failed {
            let ended = self.inflater.try_finish();
            self.cut(events);
            if let Err(error) = ended {
                self.fail(&error, events);
            }
        }
        self.lines.finish(events);
        self.inflater = MultiGzDecoder::new(Vec::new());
        self.has_begun = false;
        self.has_failed = false;
    }

    fn holds(&self) -> bool {
        self.has_begun
    }
}
