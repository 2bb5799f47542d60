//! Entry points of fuzzers.

use std::sync::Arc;
use std::time::Duration;

use chrono::Datelike as _;
use serde_json::Value;

use crate::codec::{self, Codec, Events};
use crate::event::Scratch;
use crate::event::time_format::{TimeFormat, Zone};
use crate::options::{Location, Setting};
use crate::pattern::{Deadline, Library, Pattern};
use crate::{Event, Options, Template};

/// A byte that chooses a codec, a byte that says how long the chunks are, a stream. What is read can be written and read
/// again.
pub fn codec(data: &[u8]) {
    let [choice, length, stream @ ..] = data else { return };
    let options: &[(&str, &str)] = if choice / 16 % 2 == 0 {
        &[]
    } else {
        &[("charset", "ISO-8859-1"), ("delimiter", "ab"), ("target", "[a][b]")]
    };
    let name = codec::NAMES.get(usize::from(*choice) % codec::NAMES.len()).copied().unwrap_or("plain");
    let codec = match (name, options) {
        ("multiline", []) => built(name, &[("pattern", "^\\s"), ("what", "previous")]),
        ("multiline", _) => {
            built(name, &[("pattern", "%{INT}$"), ("what", "next"), ("max_lines", "3"), ("max_bytes", "9")])
        }
        ("avro", options) => {
            let schema = r#"{"type":"record","name":"r","fields":[{"name":"a","type":["null","string",{"type":"array","items":"r"}]}]}"#;
            let given = [("schema", schema), ("encoding", "binary"), ("target", "[a][b]")];
            built(name, given.get(..2 + options.len().min(1)).unwrap_or_default())
        }
        (_, options) => built(name, options),
    };
    let mut events = Events::default();
    for mut decoder in [codec.decoder(), codec.line_decoder()] {
        for chunk in stream.chunks(usize::from(*length).max(1)) {
            decoder.decode(chunk, &mut events);
        }
        decoder.finish(&mut events);
        assert!(!decoder.holds(), "something is kept after the end");
    }
    if let Ok(text) = std::str::from_utf8(stream) {
        scan(text);
    }
    let json = built("json", &[]);
    // Other years are written, but are no ISO 8601.
    let years = 0..=9999;
    for event in events.iter().filter(|event| years.contains(&event.timestamp().year())) {
        codec.encode(event, &mut Vec::new());
        let mut written = Vec::new();
        json.encode(event, &mut written);
        let mut again = Events::default();
        json.line_decoder().decode(&written, &mut again);
        assert_eq!(
            again.first().map(Event::timestamp),
            Some(event.timestamp()),
            "an event comes back from JSON"
        );
    }
}

/// An object that is kept as text is written and read as the one that is made of its values.
fn scan(text: &str) {
    let now = chrono::DateTime::UNIX_EPOCH;
    let Some((event, length)) = Event::scan(text, &mut Scratch::default(), || now) else { return };
    let values = text.get(..length).and_then(|object| serde_json::from_str(object).ok());
    let Some(Value::Object(fields)) = values else { panic!("what was scanned is no object") };
    let parsed = Event::from_fields(fields, now);
    let (mut one, mut other) = (Vec::new(), Vec::new());
    event.write_json(&mut one);
    parsed.write_json(&mut other);
    // Numbers that values cannot hold stay as they are written.
    let read = |text: &[u8]| serde_json::from_slice::<Value>(text).ok();
    assert!(read(&one) == read(&other) && event == parsed, "an event is the same, scanned or parsed");
}

/// A codec with those of the options that it has.
fn built(name: &str, options: &[(&str, &str)]) -> Arc<dyn Codec> {
    let all = options
        .iter()
        .map(|(name, value)| ((*name).to_owned(), Location::default(), Setting::Text((*value).to_owned())));
    let mut given: Vec<_> = all.collect();
    loop {
        match codec::build(Options::new(name, Location::default(), given.clone())) {
            Ok(codec) => return codec,
            Err(faults) => {
                let before = given.len();
                given.retain(|(option, ..)| {
                    !faults.iter().any(|fault| fault.message.contains(&format!("[{option}]")))
                });
                assert!(given.len() < before, "{faults:?}");
            }
        }
    }
}

/// A byte that chooses a protocol, a byte that says how long the chunks are, a stream of one of the network inputs.
pub fn network(data: &[u8]) {
    crate::input::fuzz_network(data);
}

/// A grok pattern, a line end, a text.
pub fn pattern(data: &[u8]) {
    let Some((pattern, text)) = std::str::from_utf8(data).ok().and_then(|text| text.split_once('\n')) else {
        return;
    };
    let Ok(pattern) = Pattern::compile(pattern, &Library::new(), false) else { return };
    if let Ok(Some(found)) = pattern.find(text, &Deadline::within(Duration::from_millis(10))) {
        for capture in 0..pattern.captures().len() {
            if let Some(range) = found.range(capture) {
                assert!(text.get(range).is_some(), "a capture lies between characters");
            }
        }
    }
}

/// A format or a pattern of times, a line end, a text.
pub fn format(data: &[u8]) {
    let Some((format, text)) = std::str::from_utf8(data).ok().and_then(|text| text.split_once('\n')) else {
        return;
    };
    let mut event = Event::new(chrono::DateTime::UNIX_EPOCH);
    event.fields_mut().insert("text".to_owned(), Value::String(text.to_owned()));
    Template::parse(format).render(&event);
    for compiled in [TimeFormat::joda(format), TimeFormat::java(format)].into_iter().flatten() {
        let mut written = String::new();
        compiled.format(event.timestamp(), Zone::UTC, &mut written);
        for text in [text, &written] {
            if let Some(parsed) = compiled.parse(text, 2026) {
                let _ = parsed.instant(Zone::UTC, event.timestamp());
            }
        }
    }
}
