//! Formats: text with `%{[a][b]}` and `%{+yyyy.MM.dd}` in it, filled from an event.

use super::{Event, FieldReference};
use serde_json::Value;

/// A parsed format.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    text: String,
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Text(String),
    /// A field, and what stands where the event has none.
    Field(FieldReference, String),
}

impl Template {
    /// Parses a format. What is no reference stands for itself.
    pub fn parse(text: &str) -> Self {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(start) = rest.find("%{") {
            let Some(length) = rest[start..].find('}') else { break };
            let whole = &rest[start..=start + length];
            if let Ok(reference) = FieldReference::parse(&whole[2..whole.len() - 1]) {
                parts.push(Part::Text(rest[..start].to_owned()));
                parts.push(Part::Field(reference, whole.to_owned()));
            } else {
                parts.push(Part::Text(rest[..=start + length].to_owned()));
            }
            rest = &rest[start + length + 1..];
        }
        parts.push(Part::Text(rest.to_owned()));
        parts.retain(|part| !matches!(part, Part::Text(text) if text.is_empty()));
        Self { text: text.to_owned(), parts }
    }

    /// The format as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether all events get the same text.
    pub fn is_constant(&self) -> bool {
        self.parts.iter().all(|part| matches!(part, Part::Text(_)))
    }

    /// The text for an event; a reference to what the event does not have stays as it is written.
    pub fn render(&self, event: &Event) -> String {
        let mut out = String::with_capacity(self.text.len() + 16);
        for part in &self.parts {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Field(reference, written) => match event.get(reference).as_deref() {
                    None | Some(Value::Null) => out.push_str(written),
                    Some(Value::String(text)) => out.push_str(text),
                    Some(value) => out.push_str(&value.to_string()),
                },
            }
        }
        out
    }
}
