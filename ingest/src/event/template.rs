//! Formats: text with `%{[a][b]}`, `%{+yyyy.MM.dd}` and `%{{yyyy-MM-dd}}` in it, filled from an event.

use chrono::Utc;
use serde_json::Value;

use super::time_format::{TimeFormat, Zone};
use super::{Event, FieldReference, write_text};

/// A parsed format.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    text: String,
    parts: Vec<TemplateItem>,
}

#[derive(Clone, Debug, PartialEq)]
enum TemplateItem {
    Text(String),
    /// A field, and what stands where the event has none.
    Field(FieldReference, String),
    /// Time of the event by a pattern.
    Time(TimeFormat),
    /// Time of the event in seconds since 1970.
    EpochSeconds,
    /// Time of the clock.
    Now,
}

impl Template {
    /// Parses a format. What is no reference stands for itself.
    pub fn parse(text: &str) -> Self {
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(start) = rest.find("%{") {
            let (before, from) = rest.split_at(start);
            literal.push_str(before);
            let close = if from.starts_with("%{{") { "}}" } else { "}" };
            let Some(end) = from.find(close) else {
                rest = from;
                break;
            };
            let (written, behind) = from.split_at(end + close.len());
            match part(written) {
                Some(part) => {
                    parts.extend(
                        Some(std::mem::take(&mut literal))
                            .filter(|text| !text.is_empty())
                            .map(TemplateItem::Text),
                    );
                    parts.push(part);
                }
                None => literal.push_str(written),
            }
            rest = behind;
        }
        literal.push_str(rest);
        parts.extend(Some(literal).filter(|text| !text.is_empty()).map(TemplateItem::Text));
        Self { text: text.to_owned(), parts }
    }

    /// The format as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns whether all events get the same text.
    pub fn is_constant(&self) -> bool {
        self.parts.iter().all(|part| matches!(part, TemplateItem::Text(_)))
    }

    /// The texts that events may get, as a pattern: `*` stands for what is not the same for all.
    pub fn pattern(&self) -> String {
        let mut pattern = String::with_capacity(self.text.len());
        for part in &self.parts {
            match part {
                TemplateItem::Text(text) => pattern.push_str(text),
                TemplateItem::Field(..)
                | TemplateItem::Time(_)
                | TemplateItem::EpochSeconds
                | TemplateItem::Now => pattern.push('*'),
            }
        }
        pattern
    }

    /// The text for an event; a reference to what the event does not have stays as it is written. Arrays are
    /// their elements with commas between, objects are JSON, times are in UTC.
    pub fn render(&self, event: &Event) -> String {
        let mut out = String::with_capacity(self.text.len() + 16);
        for part in &self.parts {
            match part {
                TemplateItem::Text(text) => out.push_str(text),
                TemplateItem::Field(reference, written) => match event.get(reference).as_deref() {
                    None | Some(Value::Null) => out.push_str(written),
                    Some(value) => write_text(value, &mut out),
                },
                TemplateItem::Time(format) => format.format(event.timestamp(), Zone::UTC, &mut out),
                TemplateItem::EpochSeconds => out.push_str(&event.timestamp().timestamp().to_string()),
                TemplateItem::Now => out.push_str(&Event::new(Utc::now()).timestamp_text()),
            }
        }
        out
    }
}

/// Parses a text from `%{` to its closing brackets.
fn part(written: &str) -> Option<TemplateItem> {
    if let Some(pattern) = written.strip_prefix("%{{").and_then(|rest| rest.strip_suffix("}}")) {
        return match pattern {
            "TIME_NOW" => Some(TemplateItem::Now),
            pattern => TimeFormat::java(pattern).ok().map(TemplateItem::Time),
        };
    }
    let inner = written.strip_prefix("%{")?.strip_suffix('}')?;
    match inner.strip_prefix('+') {
        Some("%s") => Some(TemplateItem::EpochSeconds),
        Some(pattern) => TimeFormat::joda(pattern).ok().map(TemplateItem::Time),
        None => FieldReference::parse(inner)
            .ok()
            .map(|reference| TemplateItem::Field(reference, written.to_owned())),
    }
}
