//! Codecs: bytes to events and back. One file a codec.

mod avro;
mod cef;
mod charset;
mod csv;
mod dots;
mod es_bulk;
mod events;
mod gzip_lines;
mod json;
mod json_lines;
mod line;
pub(crate) mod lines;
mod msgpack;
mod multiline;
mod netflow;
mod plain;
mod rubydebug;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

pub use charset::{Charset, WideCharset};
pub use events::Events;

use crate::options::suggest;
use crate::{Event, Fault, Options};

/// Names of the codecs.
pub const NAMES: &[&str] = &[
    "avro",
    "cef",
    "csv",
    "dots",
    "es_bulk",
    "gzip_lines",
    "json",
    "json_lines",
    "line",
    "msgpack",
    "multiline",
    "netflow",
    "plain",
    "rubydebug",
];

/// Tag of pieces that would have become too many events.
const TOO_MANY: &str = "_toomanyevents";

/// A configured codec.
pub trait Codec: fmt::Debug + Send + Sync {
    /// Begins a stream of bytes.
    fn decoder(&self) -> Box<dyn Decoder>;

    /// Begins a stream of lines: each call of [`Decoder::decode`] gets a whole one, without what ends it.
    fn line_decoder(&self) -> Box<dyn Decoder> {
        self.decoder()
    }

    /// Character set of the bytes that are decoded. An input that cuts lines for the codec cuts them in this set.
    fn charset(&self) -> Charset {
        Charset::Utf8
    }

    /// Returns whether each line becomes an event whose only field `message` is its text in UTF-8.
    fn is_plain_text(&self) -> bool {
        false
    }

    /// Appends the bytes of an event.
    fn encode(&self, event: &Event, out: &mut Vec<u8>);

    /// Returns whether [`Codec::prepare`] is to be called before events are encoded.
    fn needs_preparation(&self) -> bool {
        false
    }

    /// Fetches what [`Codec::try_encode`] needs; blocks.
    ///
    /// # Errors
    /// The reason why it is not there: try again later.
    fn prepare(&self) -> Result<(), String> {
        Ok(())
    }

    /// Appends the bytes of an event.
    ///
    /// # Errors
    /// The reason why the event has no such bytes; `out` is as it was.
    fn try_encode(&self, event: &Event, out: &mut Vec<u8>) -> Result<(), String> {
        self.encode(event, out);
        Ok(())
    }

    /// Pause of a stream after which its decoder is to be told to finish what it holds; `None` for never.
    fn flush_after(&self) -> Option<Duration> {
        None
    }
}

/// Decodes one stream; bytes that are no event by themselves yet are kept.
pub trait Decoder: Send {
    /// Says who sends the stream; for protocols whose senders agree on something first.
    fn set_peer(&mut self, _peer: IpAddr) {}

    /// Takes further bytes of the stream and appends the events that they complete.
    fn decode(&mut self, bytes: &[u8], events: &mut Events);

    /// Ends a part of the stream, which goes on behind a pause: appends what was kept, but not the beginning of a character.
    fn pause(&mut self, events: &mut Events) {
        self.finish(events);
    }

    /// Ends the stream: appends what was kept.
    fn finish(&mut self, events: &mut Events);

    /// Returns whether something is kept that is in no event yet. What made events in the call before this one is not: after
    /// events, only bytes of the last call are kept.
    fn holds(&self) -> bool {
        false
    }
}

/// Decodes a piece of a source that must take it as it is: a line, a record. Where its events would take more than `most`
/// bytes, it is one event with all of it as its message, tagged `_toomanyevents`. A `whole` one ends its stream.
pub fn decode_piece(decoder: &mut dyn Decoder, bytes: &[u8], whole: bool, most: u64, events: &mut Events) {
    events.begin_piece(most);
    decoder.decode(bytes, events);
    if whole {
        decoder.finish(events);
    }
    if !events.end_piece() {
        let mut event = plain::message(Charset::Utf8, bytes);
        event.tag(TOO_MANY);
        events.push(event);
    }
}

/// Makes an event whose message is a text.
#[cfg(test)]
pub(crate) fn decode_text(text: &str) -> Event {
    plain::message(Charset::Utf8, text.as_bytes())
}

/// Stands for the decoder while that is on another thread.
pub(crate) struct DecoderPlaceholder;

impl Decoder for DecoderPlaceholder {
    fn decode(&mut self, _bytes: &[u8], _events: &mut Events) {}

    fn finish(&mut self, _events: &mut Events) {}
}

/// Makes a codec.
///
/// # Errors
/// An unknown name, or what is wrong with the options.
pub fn build(options: Options) -> Result<Arc<dyn Codec>, Vec<Fault>> {
    let at = options.at();
    match options.plugin() {
        "avro" => avro::build(options),
        "cef" => cef::build(options),
        "csv" => csv::build(options),
        "dots" => dots::build(options),
        "es_bulk" => es_bulk::build(options),
        "gzip_lines" => gzip_lines::build(options),
        "json" => json::build(options),
        "json_lines" => json_lines::build(options),
        "line" => line::build(options),
        "msgpack" => msgpack::build(options),
        "multiline" => multiline::build(options),
        "netflow" => netflow::build(options),
        "plain" => plain::build(options),
        "rubydebug" => rubydebug::build(options),
        unknown if let Some(instead) = instead_of(unknown) => {
            Err(vec![Fault { at, message: format!("codec [{unknown}] is not supported: {instead}") }])
        }
        unknown => {
            let suggestion = suggest(unknown, NAMES.iter().copied());
            Err(vec![Fault { at, message: format!("there is no codec [{unknown}]{suggestion}") }])
        }
    }
}

/// Returns what to do instead of a codec that is known and not there.
fn instead_of(name: &str) -> Option<&'static str> {
    match name {
        "collectd" => Some("have collectd post JSON to [http] by its plugin write_http"),
        "sflow" => Some(
            "have a collector such as goflow2 turn it into JSON; NetFlow and IPFIX are read by [netflow]",
        ),
        "oldlogstashjson" | "json_spooler" | "edn" | "edn_lines" => {
            Some("have the sender write JSON, for [json] or [json_lines]")
        }
        "cloudtrail" => Some("read by [json], and split the array by the filter split"),
        "fluent" | "protobuf" | "cloudfront" => Some("have the sender write JSON, msgpack or Avro"),
        _ => None,
    }
}

/// Takes the option `codec` of a plugin. Its faults are the plugin's, too.
///
/// # Errors
/// The reason why it is refused.
pub fn take(options: &mut Options, default: &str) -> Result<Arc<dyn Codec>, Vec<Fault>> {
    let given = options.codec("codec");
    let built = build(given.unwrap_or_else(|| options.inherit(Options::new(default, options.at(), []))));
    if let Err(faults) = &built {
        for fault in faults {
            options.fault(fault.at, fault.message.clone());
        }
    }
    built
}

/// The text that an event was made of: codecs keep it in `[event][original]` where fields have the names of the schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct OriginalText {
    is_kept: bool,
}

impl OriginalText {
    /// Takes `ecs_compatibility`.
    fn take(options: &mut Options) -> Self {
        Self { is_kept: options.ecs_compatibility().is_enabled() }
    }

    /// Gives the text to its event.
    fn keep(self, event: &mut Event, text: &str) {
        if self.is_kept {
            event.keep_original(text);
        }
    }
}

#[cfg(test)]
mod tests;
