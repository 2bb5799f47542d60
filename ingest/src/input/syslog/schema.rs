//! Fields of messages by the names of the Elastic Common Schema, as Logstash's input has them.
//!
//! Parts that only RFC 5424 has go to the fields that the schema has for them: `[log][syslog][msgid]`,
//! `[log][syslog][structured_data]`, and `[log][syslog][procid]` for an id of a process that is no number.

use serde_json::{Map, Value, json};

use super::message::SyslogMessage;

/// Puts the fields of a message, but for its text, into those of an event.
pub(super) fn add_message(message: &SyslogMessage<'_>, fields: &mut Map<String, Value>) {
    let (mut process, mut syslog) = (Map::new(), Map::new());
    if let Some(program) = message.program {
        process.insert("name".to_owned(), program.into());
    }
    if let Some(id) = message.process {
        match id.parse::<i64>() {
            Ok(number) => process.insert("pid".to_owned(), number.into()),
            Err(_) => syslog.insert("procid".to_owned(), id.into()),
        };
    }
    if let Some(id) = message.message_id {
        syslog.insert("msgid".to_owned(), id.into());
    }
    if !message.structured.is_empty() {
        syslog.insert("structured_data".to_owned(), Value::Object(message.structured.clone()));
    }
    if let Some(host) = message.host {
        fields.insert("host".to_owned(), json!({ "hostname": host }));
    }
    if !process.is_empty() {
        fields.insert("process".to_owned(), Value::Object(process));
    }
    if !syslog.is_empty() {
        fields.insert("log".to_owned(), json!({ "syslog": syslog }));
    }
}

/// Returns the fields of a priority. The labels are those of facility and severity.
pub(super) fn priority_fields(priority: u32, labels: [Option<&str>; 2]) -> Map<String, Value> {
    let numbered = |code: u32, label: Option<&str>| match label {
        Some(label) => json!({ "code": code, "name": label }),
        None => json!({ "code": code }),
    };
    let [facility, severity] = labels;
    let syslog = json!({
        "priority": priority,
        "facility": numbered(priority >> 3, facility),
        "severity": numbered(priority & 7, severity),
    });
    Map::from_iter([("log".to_owned(), json!({ "syslog": syslog }))])
}
