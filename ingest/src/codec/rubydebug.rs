//! `rubydebug`: shows events to people, as Ruby's `awesome_print` does.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::charset::Charset;
use super::plain::message;
use super::{Codec, Decoder, Events};
use crate::event::{METADATA, TIMESTAMP, write_text};
use crate::{Event, Fault, Options};

/// Spaces of each level.
const INDENT: usize = 4;

#[derive(Debug)]
struct RubyDebug {
    metadata: bool,
}

pub(super) fn build(mut options: Options) -> Result<Arc<dyn Codec>, Vec<Fault>> {
    let metadata = options.boolean("metadata").unwrap_or(false);
    options.finish()?;
    Ok(Arc::new(RubyDebug { metadata }))
}

impl Codec for RubyDebug {
    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(Text)
    }

    fn encode(&self, event: &Event, out: &mut Vec<u8>) {
        let time = event.timestamp_text();
        let mut members = vec![(TIMESTAMP, InspectedValue::Bare(&time))];
        members
            .extend(event.fields().iter().map(|(name, value)| (name.as_str(), InspectedValue::Value(value))));
        if self.metadata && !event.metadata().is_empty() {
            members.push((METADATA, InspectedValue::Object(event.metadata())));
        }
        let mut text = String::new();
        object(members, INDENT, &mut text);
        text.push('\n');
        out.extend_from_slice(text.as_bytes());
    }
}

/// The codec only writes; input read with it stays text.
struct Text;

impl Decoder for Text {
    fn decode(&mut self, bytes: &[u8], events: &mut Events) {
        events.push(message(Charset::Utf8, bytes));
    }

    fn finish(&mut self, _events: &mut Events) {}
}

enum InspectedValue<'a> {
    Bare(&'a str),
    Value(&'a Value),
    Object(&'a Map<String, Value>),
}

/// Shows members whose arrows stand below one another.
fn object<'a>(members: Vec<(&'a str, InspectedValue<'a>)>, indentation: usize, out: &mut String) {
    if members.is_empty() {
        out.push_str("{}");
        return;
    }
    let names: Vec<String> = members.iter().map(|(name, _)| quoted(name)).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0) + indentation;
    out.push_str("{\n");
    for (at, (name, (_, value))) in names.iter().zip(members).enumerate() {
        if at > 0 {
            out.push_str(",\n");
        }
        spaces(width - name.chars().count(), out);
        out.push_str(name);
        out.push_str(" => ");
        match value {
            InspectedValue::Bare(text) => out.push_str(text),
            InspectedValue::Value(value) => show(value, indentation + INDENT, out),
            InspectedValue::Object(members) => show_object(members, indentation + INDENT, out),
        }
    }
    out.push('\n');
    spaces(indentation - INDENT, out);
    out.push('}');
}

fn show_object(members: &Map<String, Value>, indentation: usize, out: &mut String) {
    let members = members.iter().map(|(name, value)| (name.as_str(), InspectedValue::Value(value))).collect();
    object(members, indentation, out);
}

fn show(value: &Value, indentation: usize, out: &mut String) {
    match value {
        Value::Null => out.push_str("nil"),
        Value::String(text) => out.push_str(&quoted(text)),
        Value::Bool(_) | Value::Number(_) => write_text(value, out),
        Value::Object(members) => show_object(members, indentation, out),
        Value::Array(elements) if elements.is_empty() => out.push_str("[]"),
        Value::Array(elements) => {
            let width = (elements.len() - 1).to_string().len();
            out.push_str("[\n");
            for (at, element) in elements.iter().enumerate() {
                if at > 0 {
                    out.push_str(",\n");
                }
                spaces(indentation, out);
                out.push_str(&format!("[{at:width$}] "));
                show(element, indentation + INDENT, out);
            }
            out.push('\n');
            spaces(indentation - INDENT, out);
            out.push(']');
        }
    }
}

fn spaces(count: usize, out: &mut String) {
    out.extend(std::iter::repeat_n(' ', count));
}

/// A text in quotes, as Ruby's `inspect` shows it.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    let mut rest = text.chars().peekable();
    while let Some(letter) = rest.next() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            '\u{1b}' => out.push_str("\\e"),
            '#' if matches!(rest.peek(), Some('{' | '$' | '@')) => out.push_str("\\#"),
            control if control.is_control() && u32::from(control) < 0x80 => {
                out.push_str(&format!("\\x{:02X}", u32::from(control)));
            }
            control if control.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(control))),
            other => out.push(other),
        }
    }
    out.push('"');
    out
}
