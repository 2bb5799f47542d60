//! `es_bulk`: bodies of `_bulk` requests. A line names the action, the next one is the document; a `delete` has none.

use std::sync::Arc;

use chrono::Utc;
use serde_json::{Map, Value};

use super::charset::Charset;
use super::lines::{Lines, MAX_LINE_BYTES};
use super::plain::message;
use super::{Codec, Decoder, Events};
use crate::{Event, Fault, FieldReference, Options};

/// Tag of lines that are no part of a request.
const FAILURE: &str = "_jsonparsefailure";

#[derive(Clone, Debug)]
struct EsBulk {
    reader: BulkReader,
}

#[derive(Clone, Debug)]
struct BulkReader {
    target: Option<FieldReference>,
    metadata: FieldReference,
}

pub(super) fn build(mut options: Options) -> Result<Arc<dyn Codec>, Vec<Fault>> {
    let name =
        if options.ecs_compatibility().is_enabled() { "[@metadata][codec][es_bulk]" } else { "[@metadata]" };
    let target = options.field("target");
    options.finish()?;
    let Ok(metadata) = FieldReference::parse(name) else { return Err(Vec::new()) };
    Ok(Arc::new(EsBulk { reader: BulkReader { target, metadata } }))
}

impl BulkReader {
    /// Reads a line; `action` is the one that the next document belongs to.
    fn read(&self, line: &[u8], action: &mut Option<Map<String, Value>>, events: &mut Events) {
        let line = line.trim_ascii();
        if line.is_empty() {
            return;
        }
        let Ok(Value::Object(object)) = serde_json::from_slice(line) else {
            *action = None;
            let mut event = message(Charset::Utf8, line);
            event.tag(FAILURE);
            events.push(event);
            return;
        };
        if let Some(metadata) = action.take() {
            events.push(self.event(Some(object), metadata));
            return;
        }
        let Some((name, parameters)) = object.into_iter().next() else { return };
        let mut metadata = match parameters {
            Value::Object(parameters) => parameters,
            _ => Map::new(),
        };
        let is_delete = name == "delete";
        metadata.insert("action".to_owned(), Value::String(name));
        if is_delete {
            events.push(self.event(None, metadata));
        } else {
            *action = Some(metadata);
        }
    }

    fn event(&self, document: Option<Map<String, Value>>, metadata: Map<String, Value>) -> Event {
        let mut event = match (document, &self.target) {
            (Some(document), None) => Event::from_fields(document, Utc::now()),
            (Some(document), Some(target)) => {
                let mut event = Event::new(Utc::now());
                // A target is a reference that events without fields have room for.
                let _ = event.set(target, Value::Object(document));
                event
            }
            (None, _) => Event::new(Utc::now()),
        };
        let _ = event.set(&self.metadata, Value::Object(metadata));
        event
    }
}

impl Codec for EsBulk {
    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(BulkStream {
            reader: self.reader.clone(),
            lines: Lines::new("\n", MAX_LINE_BYTES),
            action: None,
        })
    }

    fn line_decoder(&self) -> Box<dyn Decoder> {
        Box::new(BulkLines { reader: self.reader.clone(), action: None })
    }

    /// Writes JSON: the codec only reads requests.
    fn encode(&self, event: &Event, out: &mut Vec<u8>) {
        event.write_json(out);
    }
}

/// A stream of bytes.
struct BulkStream {
    reader: BulkReader,
    lines: Lines,
    action: Option<Map<String, Value>>,
}

impl Decoder for BulkStream {
    fn decode(&mut self, bytes: &[u8], events: &mut Events) {
        let Self { reader, lines, action } = self;
        lines.push(bytes, |line, _| reader.read(line, action, events));
    }

    fn finish(&mut self, events: &mut Events) {
        let Self { reader, lines, action } = self;
        lines.finish(|line| reader.read(line, action, events));
        *action = None;
    }

    fn holds(&self) -> bool {
        !self.lines.is_empty() || self.action.is_some()
    }
}

/// A line in each call.
struct BulkLines {
    reader: BulkReader,
    action: Option<Map<String, Value>>,
}

impl Decoder for BulkLines {
    fn decode(&mut self, bytes: &[u8], events: &mut Events) {
        self.reader.read(bytes, &mut self.action, events);
    }

    fn finish(&mut self, _events: &mut Events) {
        self.action = None;
    }

    fn holds(&self) -> bool {
        self.action.is_some()
    }
}
