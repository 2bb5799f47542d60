//! `syslog`: messages of RFC 3164 and RFC 5424, over TCP and UDP on one port.
//!
//! [`framing`] cuts streams into messages, [`message`] reads each, and [`writer`] makes documents of those of a stream. A message that is
//! none keeps its text and is tagged `_grokparsefailure_sysloginput`, the tag of Logstash's input.

mod framing;
mod grok;
mod message;
mod schema;
#[cfg(test)]
mod tests;
mod times;
mod writer;

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde_json::{Map, Value, json};

use self::framing::MessageStream;
use self::grok::HeaderPattern;
use self::message::SyslogMessage;
use self::times::{TimeLookup, TimeReader};
use self::writer::{MessageWriter, PriorityTable};
use super::datagram::{DatagramProtocol, DatagramSocket};
use super::stream::{Origin, StreamListener, StreamProtocol, serve, take_top_level};
use super::{Context, Input, InputError, additions};
use crate::codec::{self, Codec, Decoder, Events};
use crate::event::time_format::{TimeNames, Zone};
use crate::event::{Additions, FieldWriter, METADATA};
use crate::{EcsCompatibility, Event, Fault, Options};

/// Port where none is given.
const PORT: i64 = 514;
/// Field of the text where no other is given.
const MESSAGE: &str = "message";
/// Characters that may end a message.
const ENDS: [char; 3] = ['\r', '\n', '\0'];
/// Bytes and fields that an event gets beside its text.
const WRITTEN: (usize, usize) = (320, 14);
/// Priority of what is no message, where fields have the names of the schema: `user`, `notice`, as RFC 3164 has it.
const SCHEMA_PRIORITY: u32 = 13;
/// Tag of what is no message.
const FAILURE: &str = "_grokparsefailure_sysloginput";

const FACILITIES: [&str; 24] = [
    "kernel",
    "user-level",
    "mail",
    "system",
    "security/authorization",
    "syslogd",
    "line printer",
    "network news",
    "UUCP",
    "clock",
    "security/authorization",
    "FTP",
    "NTP",
    "log audit",
    "log alert",
    "clock",
    "local0",
    "local1",
    "local2",
    "local3",
    "local4",
    "local5",
    "local6",
    "local7",
];
const SEVERITIES: [&str; 8] =
    ["Emergency", "Alert", "Critical", "Error", "Warning", "Notice", "Informational", "Debug"];

/// The input; see the module.
#[derive(Debug)]
pub(super) struct Syslog {
    listener: StreamListener,
    socket: DatagramSocket,
    protocol: Arc<Messages>,
}

/// Messages to events.
#[derive(Debug)]
struct Messages {
    codec: Arc<dyn Codec>,
    reader: Arc<MessageReader>,
}

/// Gives events the fields of their messages.
#[derive(Debug)]
struct MessageReader {
    times: TimeReader,
    /// Labels by number; `None` where there are to be none.
    labels: Option<(Vec<String>, Vec<String>)>,
    /// Field that the codec leaves the message in.
    text_field: String,
    /// Form of messages, where it is none of the usual ones.
    pattern: Option<HeaderPattern>,
    ecs: EcsCompatibility,
    /// Value of `[service][type]` in the schema; empty for none.
    service_type: String,
    priorities: PriorityTable,
}

impl MessageReader {
    /// Returns whether messages have the usual form and names of fields, so that their fields may be written at once.
    fn is_usual(&self) -> bool {
        !self.ecs.is_enabled() && self.pattern.is_none() && self.text_field == MESSAGE
    }

    /// Gives events the fields of the messages that they have, and what events of their origin get ([`Self::additions`]).
    fn read_all(
        &self,
        events: &mut [Event],
        (origin, additions): (&Origin, &mut Additions),
        times: &mut TimeLookup<'_>,
    ) {
        let is_usual = self.is_usual();
        for event in events {
            let is_written = is_usual && self.write(event, origin, times);
            additions.add_to(event);
            if !is_written {
                self.read(event, times);
            }
        }
    }

    /// Returns what events of an origin get.
    fn additions(&self, origin: &Origin) -> Additions {
        let proxy = origin.proxy_address();
        if !self.ecs.is_enabled() {
            let additions = origin.additions(Some("host"));
            return match proxy {
                Some((address, port)) => {
                    additions.member("proxy_host", address).replacing_member("proxy_port", port)
                }
                None => additions,
            };
        }
        let mut additions =
            additions().at(&["host", "ip"], origin.address()).metadata("ip_address", origin.address());
        if !self.service_type.is_empty() {
            additions = additions.at(&["service", "type"], self.service_type.as_str());
        }
        let Some((address, port)) = proxy else { return additions };
        additions
            .at(&[METADATA, "input", "syslog", "proxy", "ip"], address)
            .at(&[METADATA, "input", "syslog", "proxy", "port"], port)
    }

    /// Writes the fields of an event that has a message and nothing else; returns whether it did. It leaves rare messages alone.
    fn write(&self, event: &mut Event, origin: &Origin, times: &mut TimeLookup<'_>) -> bool {
        if !event.has_single_field() {
            return false;
        }
        let text = event.text_of_field(MESSAGE);
        let Some((fields, instant)) = text.and_then(|text| self.fields_of(&text, origin, times)) else {
            return false;
        };
        event.replace_fields(fields);
        if let Some(instant) = instant {
            event.set_timestamp(instant);
        }
        true
    }

    /// Writes the fields of a message without structured data; returns them with its time.
    fn fields_of(
        &self,
        text: &str,
        origin: &Origin,
        times: &mut TimeLookup<'_>,
    ) -> Option<(FieldWriter, Option<DateTime<Utc>>)> {
        let message = message::parse(text.trim_end_matches(ENDS), times)?;
        if !message.structured.is_empty() {
            return None;
        }
        let mut fields = FieldWriter::with_capacity(text.len() + WRITTEN.0, WRITTEN.1);
        fields.text(MESSAGE, message.text);
        write_origin(origin, &mut fields);
        message.write(&mut fields);
        self.write_numbers(message.priority, &mut fields);
        Some((fields, message.instant))
    }

    /// Writes the numbers that a priority is made of, and their labels.
    fn write_numbers(&self, priority: u32, fields: &mut FieldWriter) {
        let (facility, severity) = (priority >> 3, priority & 7);
        fields.number("facility", facility);
        fields.number("severity", severity);
        for (name, label) in self.labels_of(facility, severity) {
            fields.text(name, label);
        }
    }

    /// Reads the message that an event has.
    fn read(&self, event: &mut Event, times: &mut TimeLookup<'_>) {
        let text =
            event.fields().get(&self.text_field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let by_schema = self.ecs.is_enabled();
        if by_schema && let Value::Object(original) = json!({ "event": { "original": text.as_str() } }) {
            event.replace_members(&original);
        }
        let text = text.trim_end_matches(ENDS);
        let priority = match &self.pattern {
            Some(pattern) => pattern.read(event, text, times),
            None => message::parse(text, times).map(|message| {
                if by_schema {
                    self.fill_by_schema(event, &message);
                } else {
                    message.fill(event, &self.text_field);
                }
                message.priority
            }),
        };
        if priority.is_none() {
            event.tag(FAILURE);
        }
        if by_schema {
            let priority = priority.unwrap_or(SCHEMA_PRIORITY);
            let labels = ["facility_label", "severity_label"].map(|name| {
                let mut labels = self.labels_of(priority >> 3, priority & 7);
                labels.find(|(own, _)| *own == name).map(|(_, label)| label)
            });
            return event.replace_members(&schema::priority_fields(priority, labels));
        }
        let priority = priority.unwrap_or(0);
        event.fields_mut().insert("priority".to_owned(), Value::from(priority));
        let (facility, severity) = (priority >> 3, priority & 7);
        let fields = event.fields_mut();
        fields.insert("facility".to_owned(), Value::from(facility));
        fields.insert("severity".to_owned(), Value::from(severity));
        for (name, label) in self.labels_of(facility, severity) {
            fields.insert(name.to_owned(), Value::from(label));
        }
    }

    /// Gives an event the fields of a message by the names of the schema.
    fn fill_by_schema(&self, event: &mut Event, message: &SyslogMessage<'_>) {
        let mut fields = Map::new();
        schema::add_message(message, &mut fields);
        fields.insert(self.text_field.clone(), message.text.into());
        event.replace_members(&fields);
        if let Some(instant) = message.instant {
            event.set_timestamp(instant);
        }
    }

    /// Returns the labels of numbers, with the names of their fields.
    fn labels_of(&self, facility: u32, severity: u32) -> impl Iterator<Item = (&'static str, &str)> {
        let of_numbers = self.labels.iter().flat_map(move |(facilities, severities)| {
            [("facility_label", facilities, facility), ("severity_label", severities, severity)]
        });
        of_numbers.filter_map(|(name, labels, number)| {
            let label = labels.get(usize::try_from(number).ok()?)?;
            Some((name, label.as_str()))
        })
    }
}

/// Writes the fields that messages of an origin share.
fn write_origin(origin: &Origin, fields: &mut FieldWriter) {
    fields.text("host", origin.address());
    fields.text("@version", "1");
    if let Some((address, port)) = origin.proxy_address() {
        fields.text("proxy_host", &address);
        fields.number("proxy_port", port.into());
    }
}

impl StreamProtocol for Messages {
    fn decoder(&self, origin: &Origin) -> Box<dyn Decoder> {
        Box::new(MessageStream::new(MessageWriter::new(&self.reader, &*self.codec, origin)))
    }
}

impl DatagramProtocol for Messages {
    fn decode(&self, datagram: &[u8], source: SocketAddr, events: &mut Events) {
        let before = events.len();
        let mut decoder = self.codec.line_decoder();
        decoder.decode(datagram, events);
        decoder.finish(events);
        let mut times = self.reader.times.at(Utc::now());
        let added = events.get_mut(before..).unwrap_or_default();
        let origin = Origin::new(source);
        let mut additions = self.reader.additions(&origin);
        self.reader.read_all(added, (&origin, &mut additions), &mut times);
    }
}

impl Syslog {
    /// Makes the input.
    ///
    /// # Errors
    /// Faults of the options.
    pub(super) fn new(mut options: Options) -> Result<Self, Vec<Fault>> {
        let listener = StreamListener::take(&mut options, "syslog", Some(PORT));
        let socket = DatagramSocket::new("syslog", listener.host.clone(), listener.port);
        let codec = codec::take(&mut options, "plain");
        let uses_labels = options.boolean("use_labels").unwrap_or(true);
        let facilities = labels(&mut options, "facility_labels", &FACILITIES);
        let severities = labels(&mut options, "severity_labels", &SEVERITIES);
        let zone = options.read("timezone", "a time zone", |setting| Zone::named(&setting.as_text()?));
        let locales = format!("a locale of one of the languages [{}], such as de_DE", TimeNames::languages());
        let names = options.read("locale", &locales, |setting| TimeNames::find(&setting.as_text()?));
        let text_field = take_top_level(&mut options, "syslog_field");
        let text_field = text_field.unwrap_or_else(|| MESSAGE.to_owned());
        let ecs = options.ecs_compatibility();
        let pattern = HeaderPattern::take(&mut options, &text_field, ecs);
        let service_type = options.text("service_type").unwrap_or_else(|| "system".to_owned());
        options.finish()?;
        let reader = MessageReader {
            times: TimeReader::new(zone.unwrap_or(Zone::Local), names.flatten()),
            labels: uses_labels.then_some((facilities, severities)),
            text_field,
            pattern,
            ecs,
            service_type,
            priorities: PriorityTable::default(),
        };
        let protocol = Messages { codec: codec?, reader: Arc::new(reader) };
        Ok(Self { listener, socket, protocol: Arc::new(protocol) })
    }
}

fn labels(options: &mut Options, name: &'static str, default: &[&str]) -> Vec<String> {
    let given = options.texts(name);
    if given.is_empty() { default.iter().map(|label| (*label).to_owned()).collect() } else { given }
}

#[async_trait]
impl Input for Syslog {
    fn identity(&self) -> String {
        format!("syslog {}:{}", self.listener.host, self.listener.port)
    }

    fn local_address(&self) -> Option<SocketAddr> {
        *self.listener.address.borrow()
    }

    async fn run(&self, context: Context) -> Result<(), InputError> {
        let streams = serve(&self.listener, Arc::clone(&self.protocol) as _, context.clone());
        let datagrams = self.socket.read(Arc::clone(&self.protocol) as _, &context);
        // One that fails ends the other: the input is run again as a whole.
        tokio::try_join!(streams, datagrams).map(|_| ())
    }
}

/// Reads a stream, and each chunk of it as a datagram; for fuzzing.
pub(super) fn fuzz<'a>(chunks: impl Iterator<Item = &'a [u8]>) {
    let Ok(syslog) = Syslog::new(Options::new("syslog", crate::Location::default(), [])) else { return };
    let origin = Origin::new(([127, 0, 0, 1], 514).into());
    let mut decoder = StreamProtocol::decoder(&*syslog.protocol, &origin);
    let mut events = Events::default();
    for chunk in chunks {
        decoder.decode(chunk, &mut events);
        DatagramProtocol::decode(&*syslog.protocol, chunk, origin.client, &mut events);
    }
    decoder.finish(&mut events);
    assert!(!decoder.holds(), "something is kept after the end");
}
