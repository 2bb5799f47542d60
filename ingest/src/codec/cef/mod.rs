//! `cef`: events of ArcSight's Common Event Format.
//!
//! [`message`] has the syntax, [`names`] the way from keys to fields.

mod message;
mod names;

use std::sync::Arc;

use chrono::{DateTime, Datelike, Utc};
use serde_json::Value;

use super::charset::Charset;
use super::lines::{Lines, MAX_LINE_BYTES};
use super::plain::message as text_event;
use super::{Codec, Decoder, Events};
use crate::event::text_of;
use crate::event::time_format::{TimeFormat, Zone, unix_millis};
use crate::{Event, Fault, FieldReference, Options, Template};
use message::{CefMessage, escaped_header, escaped_value, plain_key};
use names::{DeviceRole, NameMapping};

/// Tag of a text that is no message.
const FAILURE: &str = "_cefparsefailure";
/// Fields of the header, by their own names and by the Elastic Common Schema.
const HEADER: [(&str, &str); 7] = [
    ("cefVersion", "[cef][version]"),
    ("deviceVendor", "[observer][vendor]"),
    ("deviceProduct", "[observer][product]"),
    ("deviceVersion", "[observer][version]"),
    ("deviceEventClassId", "[event][code]"),
    ("name", "[cef][name]"),
    ("severity", "[event][severity]"),
];
/// Field for the text before the message.
const SYSLOG: (&str, &str) = ("syslog", "[log][syslog][header]");
/// Field for the zone of the device.
const TIME_ZONE: &str = "[event][timezone]";
/// Severity of an event that has no valid one.
const DEFAULT_SEVERITY: &str = "6";
/// Forms of times beside milliseconds since 1970.
const TIMES: [&str; 8] = [
    "MMM dd yyyy HH:mm:ss",
    "MMM dd yyyy HH:mm:ss.SSS",
    "MMM dd yyyy HH:mm:ss z",
    "MMM dd yyyy HH:mm:ss.SSS z",
    "MMM dd HH:mm:ss",
    "MMM dd HH:mm:ss.SSS",
    "MMM dd HH:mm:ss z",
    "MMM dd HH:mm:ss.SSS z",
];

#[derive(Debug)]
struct Cef {
    reader: Arc<CefReader>,
    delimiter: Option<String>,
    /// Vendor, product, version, signature and name, with the text for an empty one.
    header: [(Template, &'static str); 5],
    severity: Template,
    fields: Vec<(FieldReference, String)>,
}

#[derive(Debug)]
struct CefReader {
    is_ecs: bool,
    names: NameMapping,
    raw: Option<FieldReference>,
    zone: Zone,
    times: Vec<TimeFormat>,
}

pub(super) fn build(mut options: Options) -> Result<Arc<dyn Codec>, Vec<Fault>> {
    let is_ecs = options.ecs_compatibility().is_enabled();
    let header = [
        ("vendor", "Elasticsearch"),
        ("product", "Logstash"),
        ("version", "1.0"),
        ("signature", "Logstash"),
        ("name", "Logstash"),
    ]
    .map(|(name, default)| (options.template(name).unwrap_or_else(|| Template::parse(default)), default));
    let severity = options.template("severity").unwrap_or_else(|| Template::parse(DEFAULT_SEVERITY));
    let delimiter = options.text("delimiter").map(|text| text.replace("\\r", "\r").replace("\\n", "\n"));
    let writes_keys = options.boolean("reverse_mapping").unwrap_or(false);
    let device = match options.one_of("device", &["observer", "host"]) {
        Some("host") => DeviceRole::Host,
        _ => DeviceRole::Observer,
    };
    let raw = options.field("raw_data_field");
    let zone = options.read("default_timezone", "a time zone such as Europe/Berlin or +02:00", |setting| {
        Zone::named(&setting.as_text()?)
    });
    if let Some(locale) = options.text("locale")
        && !locale.to_ascii_lowercase().starts_with("en")
    {
        options.fault_here(format!("[cef] reads names of months in English (locale en), not in [{locale}]"));
    }
    let mut fields = Vec::new();
    for field in options.texts("fields") {
        match FieldReference::parse(&field) {
            Ok(reference) => fields.push((reference, field)),
            Err(fault) => options.fault_here(fault),
        }
    }
    options.finish()?;
    let times = TIMES.iter().filter_map(|pattern| TimeFormat::joda(pattern).ok()).collect();
    let names = NameMapping::new(is_ecs, device, writes_keys);
    let reader = CefReader { is_ecs, names, raw, zone: zone.unwrap_or(Zone::Local), times };
    let delimiter = delimiter.filter(|delimiter| !delimiter.is_empty());
    Ok(Arc::new(Cef { reader: Arc::new(reader), delimiter, header, severity, fields }))
}

impl CefReader {
    /// Reads a message; another text becomes an event with the tag `_cefparsefailure`.
    fn read(&self, bytes: &[u8], events: &mut Events) {
        let text = std::str::from_utf8(bytes).ok();
        match text.and_then(|text| self.event(text)) {
            Some(event) => events.push(event),
            None => {
                let mut event = text_event(Charset::Utf8, bytes);
                event.tag(FAILURE);
                events.push(event);
            }
        }
    }

    fn event(&self, whole: &str) -> Option<Event> {
        let mut event = Event::new(Utc::now());
        if let Some(raw) = &self.raw {
            event.set(raw, Value::from(whole)).ok()?;
        }
        // Some connectors put messages in quotes.
        let text = whole.strip_prefix('"').map_or(whole, |text| {
            let mut letters = text.chars();
            letters.next_back();
            letters.as_str()
        });
        let message = match CefMessage::parse(text) {
            Ok(message) => message,
            Err(error) => {
                tracing::debug!(%error, "the codec cef did not read a message");
                return None;
            }
        };
        let own = |(own, ecs): (&'static str, &'static str)| if self.is_ecs { ecs } else { own };
        for (names, value) in HEADER.into_iter().zip(message.header) {
            self.set(&mut event, own(names), value.into())?;
        }
        if let Some(syslog) = message.syslog {
            self.set(&mut event, own(SYSLOG), syslog.into())?;
        }
        let pairs: Vec<(&str, &str)> =
            message.pairs.iter().map(|(key, value)| (self.names.field(key), value.as_str())).collect();
        let zone = pairs.iter().find(|(field, _)| *field == TIME_ZONE).map(|(_, zone)| *zone);
        for (field, value) in &pairs {
            let value = if self.names.is_time(field) { self.time(value, zone)? } else { Value::from(*value) };
            self.set(&mut event, field, value)?;
        }
        Some(event)
    }

    /// Sets a field; `name[0]` is the element of an array by its number.
    fn set(&self, event: &mut Event, field: &str, value: Value) -> Option<()> {
        let indexed = field
            .strip_suffix(']')
            .filter(|_| !field.starts_with('['))
            .and_then(|field| field.split_once('['));
        let reference = match indexed {
            Some((name, number)) => FieldReference::parse(&format!("[{name}][{number}]")),
            None => FieldReference::parse(field),
        };
        let reference = reference.ok()?;
        // An empty time of an event leaves it as it is.
        if value.is_null() && reference.path() == [crate::event::TIMESTAMP] {
            return Some(());
        }
        event.set(&reference, value).ok()
    }

    /// Reads a time: milliseconds since 1970, or one of the forms of CEF. An empty one is null.
    fn time(&self, text: &str, zone: Option<&str>) -> Option<Value> {
        let text = text.trim();
        if text.is_empty() {
            return Some(Value::Null);
        }
        let time = if text.starts_with(|letter: char| letter.is_ascii_digit()) {
            unix_millis(text, true)?
        } else {
            let zone = match zone {
                Some(name) => Zone::named(name)?,
                None => self.zone,
            };
            self.written_time(text, zone, Utc::now())?
        };
        Some(Value::String(Event::new(time).timestamp_text()))
    }

    fn written_time(&self, text: &str, zone: Zone, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        self.times.iter().find_map(|format| format.parse(text, now.year())?.instant(zone, now))
    }
}

impl Cef {
    fn severity(&self, event: &Event) -> String {
        let text = escaped_header(&self.severity.render(event));
        let number = text.trim().parse::<f64>().ok();
        let valid = number.filter(|number| number.fract() == 0.0 && (0.0..=10.0).contains(number));
        valid.map_or_else(|| DEFAULT_SEVERITY.to_owned(), |number| format!("{number:.0}"))
    }

    fn extension(&self, event: &Event, field: &FieldReference, name: &str) -> Option<String> {
        let value = event.get(field).filter(|value| !value.is_null())?;
        let text = match &*value {
            Value::Object(_) | Value::Array(_) => value.to_string(),
            single => text_of(single),
        };
        Some(format!("{}={}", plain_key(self.reader.names.written(name)), escaped_value(&text)))
    }
}

impl Codec for Cef {
    fn decoder(&self) -> Box<dyn Decoder> {
        let reader = Arc::clone(&self.reader);
        match &self.delimiter {
            Some(delimiter) => {
                Box::new(MessageStream { reader, lines: Lines::new(delimiter, MAX_LINE_BYTES) })
            }
            None => Box::new(MessagePerCall { reader }),
        }
    }

    fn line_decoder(&self) -> Box<dyn Decoder> {
        Box::new(MessagePerCall { reader: Arc::clone(&self.reader) })
    }

    fn encode(&self, event: &Event, out: &mut Vec<u8>) {
        let mut text = "CEF:0|".to_owned();
        for (template, default) in &self.header {
            let value = escaped_header(&template.render(event));
            text.push_str(if value.is_empty() { default } else { &value });
            text.push('|');
        }
        text.push_str(&self.severity(event));
        text.push('|');
        let pairs: Vec<String> =
            self.fields.iter().filter_map(|(field, name)| self.extension(event, field, name)).collect();
        text.push_str(&pairs.join(" "));
        text.push_str(self.delimiter.as_deref().unwrap_or_default());
        out.extend_from_slice(text.as_bytes());
    }
}

/// A message in each call.
struct MessagePerCall {
    reader: Arc<CefReader>,
}

impl Decoder for MessagePerCall {
    fn decode(&mut self, bytes: &[u8], events: &mut Events) {
        self.reader.read(bytes, events);
    }

    fn finish(&mut self, _events: &mut Events) {}
}

/// Messages with a delimiter behind each.
struct MessageStream {
    reader: Arc<CefReader>,
    lines: Lines,
}

impl Decoder for MessageStream {
    fn decode(&mut self, bytes: &[u8], events: &mut Events) {
        let Self { reader, lines } = self;
        lines.push(bytes, |line, _| reader.read(line, events));
    }

    fn finish(&mut self, events: &mut Events) {
        let Self { reader, lines } = self;
        lines.finish(|line| reader.read(line, events));
    }

    fn holds(&self) -> bool {
        !self.lines.is_empty()
    }
}

#[cfg(test)]
mod tests;
