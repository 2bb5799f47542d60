//! `multiline`: joins lines that belong together.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};

use super::charset::Charset;
use super::lines::{Lines, MAX_LINE_BYTES};
use super::{Codec, Decoder, Events, OriginalText};
use crate::pattern::{Deadline, Library, Pattern};
use crate::{Event, Fault, Options, Provenance};

/// Bytes of an event by default.
const DEFAULT_MAX_BYTES: usize = 10 << 20;
/// Most lines that can be set.
const MAX_LINES: i64 = 10_000_000;
/// Most bytes that can be set.
const MAX_BYTES: u64 = 1 << 30;

#[derive(Clone, Debug)]
struct Multiline {
    joining: Arc<JoinOptions>,
}

/// Options for the joined lines, and their number.
#[derive(Debug)]
struct JoinOptions {
    charset: Charset,
    original: OriginalText,
    pattern: Pattern,
    negate: bool,
    /// A line that matches belongs to the one before it, else to the one behind it.
    previous: bool,
    tag: String,
    max_lines: usize,
    max_bytes: usize,
    flush_after: Option<Duration>,
}

pub(super) fn build(mut options: Options) -> Result<Arc<dyn Codec>, Vec<Fault>> {
    let original = OriginalText::take(&mut options);
    let charset = Charset::take(&mut options);
    let mut library = Library::new();
    for directory in options.texts("patterns_dir") {
        if let Err(fault) = library.load(Path::new(&directory), "*") {
            options.fault_here(fault);
        }
    }
    let pattern = options.required_text("pattern");
    let pattern = Pattern::compile(&pattern, &library, true);
    let pattern = pattern.map_err(|fault| options.fault_here(fault));
    let what = options.one_of("what", &["previous", "next"]);
    if what.is_none() {
        options.fault_here("[multiline] needs the option [what], which is previous or next");
    }
    let negate = options.boolean("negate").unwrap_or(false);
    let tag = options.text("multiline_tag").unwrap_or_else(|| "multiline".to_owned());
    let max_lines = options.integer("max_lines", 1..=MAX_LINES).and_then(|lines| usize::try_from(lines).ok());
    let max_bytes = options.read("max_bytes", "a size such as 10 MiB, at most 1 GiB", |setting| {
        size(&setting.as_text()?)
            .filter(|size| (1..=MAX_BYTES).contains(size))
            .and_then(|size| usize::try_from(size).ok())
    });
    let interval = options.read("auto_flush_interval", "a number of seconds above 0", |setting| {
        let seconds: f64 = setting.as_text()?.parse().ok()?;
        (seconds > 0.0).then(|| Duration::try_from_secs_f64(seconds).ok()).flatten()
    });
    options.finish()?;
    let Ok(pattern) = pattern else { return Err(Vec::new()) };
    let joining = JoinOptions {
        charset,
        original,
        pattern,
        negate,
        previous: what == Some("previous"),
        tag,
        max_lines: max_lines.unwrap_or(500),
        max_bytes: max_bytes.unwrap_or(DEFAULT_MAX_BYTES),
        flush_after: interval,
    };
    Ok(Arc::new(Multiline { joining: Arc::new(joining) }))
}

/// Reads a size: `10 MiB` by powers of 1024, `10 MB` by powers of 1000, a number alone in bytes.
fn size(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let (number, unit) = text.split_at(digits);
    let unit = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "kb" | "k" => 1e3,
        "mb" | "m" => 1e6,
        "gb" | "g" => 1e9,
        "kib" => 1024.0,
        "mib" => 1_048_576.0,
        "gib" => 1_073_741_824.0,
        _ => return None,
    };
    let size = number.parse::<f64>().ok()? * unit;
    (size.is_finite() && size >= 0.0).then_some(size as u64)
}

impl Codec for Multiline {
    fn decoder(&self) -> Box<dyn Decoder> {
        self.joining.charset.stream(|charset| ByteStreamDecoder {
            charset,
            lines: Lines::new("\n", MAX_LINE_BYTES),
            open: Open::new(&self.joining),
        })
    }

    fn line_decoder(&self) -> Box<dyn Decoder> {
        Box::new(LineStreamDecoder { open: Open::new(&self.joining) })
    }

    fn charset(&self) -> Charset {
        self.joining.charset
    }

    fn encode(&self, event: &Event, out: &mut Vec<u8>) {
        out.extend_from_slice(event.line().as_bytes());
    }

    fn flush_after(&self) -> Option<Duration> {
        self.joining.flush_after
    }
}

/// The event that lines are being added to.
struct Open {
    joining: Arc<JoinOptions>,
    text: String,
    lines: usize,
    begun: DateTime<Utc>,
    /// Provenance of its first line.
    provenance: Option<Provenance>,
}

impl Open {
    fn new(joining: &Arc<JoinOptions>) -> Self {
        Self {
            joining: Arc::clone(joining),
            text: String::new(),
            lines: 0,
            begun: DateTime::UNIX_EPOCH,
            provenance: None,
        }
    }

    fn line(&mut self, line: &str, events: &mut Events) {
        let joining = Arc::clone(&self.joining);
        // A line on which the pattern takes too long does not match.
        let belongs = joining.pattern.is_match(line, &Deadline::default()).unwrap_or(false) != joining.negate;
        if joining.previous {
            if !belongs || self.is_full() {
                self.close(events);
            }
            self.add(line, events);
        } else {
            self.add(line, events);
            if !belongs || self.is_full() {
                self.close(events);
            }
        }
    }

    fn add(&mut self, line: &str, events: &mut Events) {
        if self.lines == 0 {
            self.begun = Utc::now();
            self.provenance = events.here();
        } else {
            self.text.push('\n');
        }
        self.text.push_str(line);
        self.lines += 1;
    }

    fn is_full(&self) -> bool {
        self.lines >= self.joining.max_lines || self.text.len() >= self.joining.max_bytes
    }

    fn close(&mut self, events: &mut Events) {
        if self.lines == 0 {
            return;
        }
        let mut event = Event::new(self.begun);
        event.set_provenance(self.provenance);
        let (full_lines, full_bytes) =
            (self.lines >= self.joining.max_lines, self.text.len() >= self.joining.max_bytes);
        let text = std::mem::take(&mut self.text);
        event.set_text("message", &text);
        self.joining.original.keep(&mut event, &text);
        if self.lines > 1 && !self.joining.tag.is_empty() {
            event.tag(&self.joining.tag);
        }
        if full_bytes {
            event.tag("multiline_codec_max_bytes_reached");
        }
        if full_lines {
            event.tag("multiline_codec_max_lines_reached");
        }
        self.lines = 0;
        events.push(event);
    }
}

/// A stream of bytes.
struct ByteStreamDecoder {
    charset: Charset,
    lines: Lines,
    open: Open,
}

impl Decoder for ByteStreamDecoder {
    fn decode(&mut self, bytes: &[u8], events: &mut Events) {
        let Self { charset, lines, open } = self;
        lines.push(bytes, |line, _| {
            let line = charset.decode(line);
            open.line(line.strip_suffix('\r').unwrap_or(&line), events);
        });
    }

    fn finish(&mut self, events: &mut Events) {
        let Self { charset, lines, open } = self;
        lines.finish(|line| open.line(&charset.decode(line), events));
        open.close(events);
    }

    fn holds(&self) -> bool {
        !self.lines.is_empty() || self.open.lines > 0
    }
}

/// A stream of lines.
struct LineStreamDecoder {
    open: Open,
}

impl Decoder for LineStreamDecoder {
    fn decode(&mut self, bytes: &[u8], events: &mut Events) {
        let joining = Arc::clone(&self.open.joining);
        for line in joining.charset.decode(bytes).split('\n') {
            self.open.line(line, events);
        }
    }

    fn finish(&mut self, events: &mut Events) {
        self.open.close(events);
    }

    fn holds(&self) -> bool {
        self.open.lines > 0
    }
}
