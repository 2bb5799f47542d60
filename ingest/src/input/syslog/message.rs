//! Messages of syslog: RFC 3164 as devices write it, and RFC 5424.
//!
//! Both become the fields that Logstash's input gives to the former. RFC 5424 adds `msgid` and `structured_data`.

use chrono::{DateTime, Utc};
use serde_json::{Map, Value};

use super::times::TimeLookup;
use crate::Event;
use crate::event::FieldWriter;
use crate::event::time_format::{Zone, iso8601};

/// Most elements of structured data, and most parameters of one.
const MAX_STRUCTURED: usize = 256;
/// Greatest priority: facility 23, severity 7.
pub(super) const MAX_PRIORITY: u32 = 191;

/// A parsed message.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SyslogMessage<'a> {
    pub(super) priority: u32,
    /// Name of the field for the time, and the time as it is written.
    pub(super) time: Option<(&'static str, &'a str)>,
    pub(super) instant: Option<DateTime<Utc>>,
    pub(super) host: Option<&'a str>,
    pub(super) program: Option<&'a str>,
    pub(super) process: Option<&'a str>,
    pub(super) message_id: Option<&'a str>,
    pub(super) structured: Map<String, Value>,
    pub(super) text: &'a str,
}

/// Parses a message; `None` for what is none.
pub(super) fn parse<'a>(text: &'a str, times: &mut TimeLookup<'_>) -> Option<SyslogMessage<'a>> {
    let (priority, rest) = text.strip_prefix('<')?.split_once('>')?;
    if priority.is_empty() || priority.len() > 3 || !priority.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let priority = priority.parse().ok().filter(|priority| *priority <= MAX_PRIORITY)?;
    let message = match rest.strip_prefix("1 ") {
        Some(rest) => parse_5424(rest),
        None => parse_3164(rest, times),
    };
    message.map(|message| SyslogMessage { priority, ..message })
}

/// Takes the word up to the next space.
fn word<'a>(rest: &mut &'a str) -> Option<&'a str> {
    let (word, behind) = rest.split_once(' ').unwrap_or((rest, ""));
    *rest = behind;
    (!word.is_empty()).then_some(word)
}

fn parse_3164<'a>(text: &'a str, times: &mut TimeLookup<'_>) -> Option<SyslogMessage<'a>> {
    let mut message = SyslogMessage::default();
    let mut rest = text.strip_prefix(' ').unwrap_or(text);
    if rest.starts_with(|first: char| first.is_ascii_digit()) {
        let time = word(&mut rest)?;
        message.instant = Some(iso8601(time, Zone::UTC)?);
        message.time = Some(("timestamp8601", time));
    } else {
        let (length, instant) = times.read_leading(rest)?;
        let (time, behind) = rest.split_at(length);
        message.instant = Some(instant);
        message.time = Some(("timestamp", time));
        rest = behind.strip_prefix(':').unwrap_or(behind).strip_prefix(' ')?;
    }
    message.host = Some(word(&mut rest)?);
    message.text = rest;
    // `sshd[42]: text`, `kernel: text`, or text alone.
    let end = rest.find([' ', '[', ']']).unwrap_or(rest.len());
    let (token, behind) = rest.split_at(end);
    if let Some(program) = token.strip_suffix(':')
        && let Some(text) = behind.strip_prefix(' ').or_else(|| behind.is_empty().then_some(""))
    {
        (message.program, message.text) = (Some(program).filter(|program| !program.is_empty()), text);
    } else if let Some((process, text)) = behind.strip_prefix('[').and_then(|rest| rest.split_once("]:"))
        && !token.is_empty()
        && !process.is_empty()
        && process.bytes().all(|byte| byte.is_ascii_digit())
    {
        (message.program, message.process) = (Some(token), Some(process));
        message.text = text.strip_prefix(' ').unwrap_or(text);
    }
    Some(message)
}

fn parse_5424(text: &str) -> Option<SyslogMessage<'_>> {
    let mut rest = text;
    let mut next = || word(&mut rest).map(|word| (word != "-").then_some(word));
    let time = next()?;
    let mut message = SyslogMessage {
        host: next()?,
        program: next()?,
        process: next()?,
        message_id: next()?,
        ..SyslogMessage::default()
    };
    if let Some(time) = time {
        message.instant = Some(iso8601(time, Zone::UTC)?);
        message.time = Some(("timestamp8601", time));
    }
    rest = match rest.strip_prefix('-') {
        Some(behind) => behind,
        None => structured(rest, &mut message.structured)?,
    };
    let text = rest.strip_prefix(' ').unwrap_or(rest);
    message.text = text.strip_prefix('\u{feff}').unwrap_or(text);
    Some(message)
}

/// Reads structured data; returns what is behind it.
fn structured<'a>(text: &'a str, elements: &mut Map<String, Value>) -> Option<&'a str> {
    let mut rest = text;
    while let Some(inside) = rest.strip_prefix('[') {
        let end = inside.find([' ', ']'])?;
        let (id, behind) = inside.split_at(end);
        let mut parameters = Map::new();
        rest = behind;
        loop {
            rest = rest.trim_start_matches(' ');
            if let Some(behind) = rest.strip_prefix(']') {
                rest = behind;
                break;
            }
            let (name, behind) = rest.split_once("=\"")?;
            let (value, behind) = quoted(behind)?;
            if parameters.len() >= MAX_STRUCTURED {
                return None;
            }
            parameters.insert(name.to_owned(), Value::String(value));
            rest = behind;
        }
        if id.is_empty() || elements.len() >= MAX_STRUCTURED {
            return None;
        }
        elements.insert(id.to_owned(), Value::Object(parameters));
    }
    (!elements.is_empty()).then_some(rest)
}

/// Reads a value up to its closing quote; returns what is behind that.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut rest = text.char_indices();
    while let Some((at, character)) = rest.next() {
        match character {
            '"' => return Some((value, text.get(at + 1..)?)),
            '\\' => match rest.next()?.1 {
                escaped @ ('"' | '\\' | ']') => value.push(escaped),
                other => value.extend(['\\', other]),
            },
            other => value.push(other),
        }
    }
    None
}

impl SyslogMessage<'_> {
    /// Writes the fields of a message without structured data, but for its text.
    pub(super) fn write(&self, fields: &mut FieldWriter) {
        fields.number("priority", self.priority);
        self.texts().for_each(|(name, text)| fields.text(name, text));
    }

    /// Lists the fields that are texts, but for the text of the message.
    pub(super) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        let parts = [
            ("logsource", self.host),
            ("program", self.program),
            ("pid", self.process),
            ("msgid", self.message_id),
        ];
        self.time.into_iter().chain(parts.into_iter().filter_map(|(name, text)| Some((name, text?))))
    }

    /// Gives an event the fields of the message.
    pub(super) fn fill(&self, event: &mut Event, text_field: &str) {
        let fields = event.fields_mut();
        fields.insert("priority".to_owned(), Value::from(self.priority));
        for (name, text) in self.texts().chain([(text_field, self.text)]) {
            fields.insert(name.to_owned(), Value::from(text));
        }
        if !self.structured.is_empty() {
            fields.insert("structured_data".to_owned(), Value::Object(self.structured.clone()));
        }
        if let Some(instant) = self.instant {
            event.set_timestamp(instant);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::times::TimeReader;
    use super::*;

    fn fields(text: &str) -> Option<Value> {
        let now = "2026-03-01T00:00:00Z".parse().unwrap();
        let reader = TimeReader::new(Zone::UTC, None);
        let message = parse(text, &mut reader.at(now))?;
        let mut event = Event::new(now);
        message.fill(&mut event, "message");
        let mut fields = event.fields().clone();
        fields.insert("@timestamp".to_owned(), Value::from(event.timestamp_text()));
        Some(Value::Object(fields))
    }

    #[test]
    fn messages_of_both_forms_become_the_same_fields() {
        for (text, expected) in [
            (
                "<164>Oct 26 15:19:25 1.2.3.4 %ASA-4-106023: Deny udp",
                serde_json::json!({"priority": 164, "timestamp": "Oct 26 15:19:25", "logsource": "1.2.3.4",
                    "program": "%ASA-4-106023", "message": "Deny udp", "@timestamp": "2026-10-26T15:19:25.000Z"}),
            ),
            (
                "<13>Oct 6 15:19:25 web sshd: x",
                serde_json::json!({"priority": 13, "timestamp": "Oct 6 15:19:25", "logsource": "web",
                    "program": "sshd", "message": "x", "@timestamp": "2026-10-06T15:19:25.000Z"}),
            ),
            (
                "<13>Feb  3 04:05:06 web sshd[42]: Accepted: key",
                serde_json::json!({"priority": 13, "timestamp": "Feb  3 04:05:06", "logsource": "web",
                    "program": "sshd", "pid": "42", "message": "Accepted: key", "@timestamp": "2026-02-03T04:05:06.000Z"}),
            ),
            (
                "<13>2026-02-03T04:05:06.5+01:00 web no program here",
                serde_json::json!({"priority": 13, "timestamp8601": "2026-02-03T04:05:06.5+01:00", "logsource": "web",
                    "message": "no program here", "@timestamp": "2026-02-03T03:05:06.500Z"}),
            ),
            (
                "<34>1 2003-10-11T22:14:15.003Z host su - ID47 - \u{feff}'su root' failed",
                serde_json::json!({"priority": 34, "timestamp8601": "2003-10-11T22:14:15.003Z", "logsource": "host",
                    "program": "su", "msgid": "ID47", "message": "'su root' failed",
                    "@timestamp": "2003-10-11T22:14:15.003Z"}),
            ),
            (
                r#"<165>1 - - app 7 - [a@1 b="x \"y\" \] \\" c="" ][d@2] text"#,
                serde_json::json!({"priority": 165, "program": "app", "pid": "7", "message": "text",
                    "structured_data": {"a@1": {"b": "x \"y\" ] \\", "c": ""}, "d@2": {}},
                    "@timestamp": "2026-03-01T00:00:00.000Z"}),
            ),
        ] {
            assert_eq!(fields(text), Some(expected), "{text}");
        }
        for wrong in [
            "no priority",
            "<>Oct 26 15:19:25 h m",
            "<999>Oct 26 15:19:25 h m",
            "<13>Someday h m",
            "<13>1 not-a-time h a p m -",
            "<13>1 - h a p m [a b=\"x]",
            "<13>1 - h",
        ] {
            assert_eq!(fields(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "(<[0-9]{0,4}>)?(1 )?[\\x20-\\x7eäß\\[\\]\"=\\\\]{0,80}") {
            let _ = fields(&text);
        }
    }
}
