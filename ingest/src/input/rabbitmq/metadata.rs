//! Headers and properties of messages in the metadata of events.

use std::sync::LazyLock;

use chrono::{DateTime, SecondsFormat};
use lapin::message::Delivery;
use lapin::types::{AMQPValue, FieldTable, ShortString};
use serde_json::{Map, Value};

use crate::event::{METADATA, value_bytes};
use crate::{Event, FieldReference};

/// Deepest nesting of headers that is read.
const MAX_DEPTH: usize = 32;

/// Parts of messages that go into the metadata of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetadataLevel {
    None,
    /// Headers and properties.
    Basic,
    /// The payload as well.
    Extended,
}

impl MetadataLevel {
    /// Makes the level from its name, or from the boolean of older versions.
    pub(super) fn from_name(name: &str) -> Self {
        match name {
            "basic" | "true" => Self::Basic,
            "extended" => Self::Extended,
            _ => Self::None,
        }
    }
}

/// Fields of headers, properties and payload.
static FIELDS: LazyLock<[Option<FieldReference>; 3]> = LazyLock::new(|| {
    ["rabbitmq_headers", "rabbitmq_properties", "rabbitmq_payload"]
        .map(|name| FieldReference::parse(&format!("[{METADATA}][{name}]")).ok())
});

/// Metadata of a message, which each of its events has.
#[derive(Debug)]
pub(super) struct MessageMetadata(Vec<(&'static FieldReference, Value)>);

impl MessageMetadata {
    /// Reads the parts of a message that a level has.
    pub(super) fn new(level: MetadataLevel, message: &Delivery, consumer_tag: &str) -> Self {
        let values = match level {
            MetadataLevel::None => Vec::new(),
            MetadataLevel::Basic => vec![headers(message), properties(message, consumer_tag)],
            MetadataLevel::Extended => {
                let payload = Value::from(String::from_utf8_lossy(&message.data));
                vec![headers(message), properties(message, consumer_tag), payload]
            }
        };
        let fields = FIELDS.iter().zip(values);
        Self(fields.filter_map(|(field, value)| Some((field.as_ref()?, value))).collect())
    }

    /// Returns the bytes that an event takes for it.
    pub(super) fn bytes(&self) -> u64 {
        self.0.iter().map(|(_, value)| value_bytes(value)).sum()
    }

    /// Sets it, unless the codec made something else of the event's metadata.
    pub(super) fn set(&self, event: &mut Event) {
        for (field, value) in &self.0 {
            let _ = event.set(field, value.clone());
        }
    }
}

fn headers(message: &Delivery) -> Value {
    message.properties.headers().as_ref().map_or_else(|| Value::Object(Map::new()), |table| object(table, 0))
}

fn properties(message: &Delivery, consumer_tag: &str) -> Value {
    let given = &message.properties;
    let text = |value: &Option<ShortString>| value.as_ref().map(|value| Value::from(value.as_str()));
    let all = [
        ("app-id", text(given.app_id())),
        ("cluster-id", text(given.cluster_id())),
        ("consumer-tag", Some(Value::from(consumer_tag))),
        ("content-encoding", text(given.content_encoding())),
        ("content-type", text(given.content_type())),
        ("correlation-id", text(given.correlation_id())),
        ("delivery-mode", given.delivery_mode().map(Value::from)),
        ("exchange", Some(Value::from(message.exchange.as_str()))),
        ("expiration", text(given.expiration())),
        ("message-id", text(given.message_id())),
        ("priority", given.priority().map(Value::from)),
        ("redeliver", Some(Value::from(message.redelivered))),
        ("reply-to", text(given.reply_to())),
        ("routing-key", Some(Value::from(message.routing_key.as_str()))),
        ("timestamp", given.timestamp().map(Value::from)),
        ("type", text(given.kind())),
        ("user-id", text(given.user_id())),
    ];
    Value::Object(all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect())
}

fn object(table: &FieldTable, depth: usize) -> Value {
    let members = table.inner().iter();
    Value::Object(members.map(|(name, value)| (name.to_string(), header(value, depth + 1))).collect())
}

fn header(value: &AMQPValue, depth: usize) -> Value {
    match value {
        AMQPValue::FieldArray(_) | AMQPValue::FieldTable(_) if depth >= MAX_DEPTH => {
            Value::from(format!("nested more than {MAX_DEPTH} deep"))
        }
        AMQPValue::FieldArray(elements) => {
            Value::Array(elements.as_slice().iter().map(|element| header(element, depth + 1)).collect())
        }
        AMQPValue::FieldTable(table) => object(table, depth),
        AMQPValue::Boolean(flag) => Value::from(*flag),
        AMQPValue::ShortShortInt(number) => Value::from(*number),
        AMQPValue::ShortShortUInt(number) => Value::from(*number),
        AMQPValue::ShortInt(number) => Value::from(*number),
        AMQPValue::ShortUInt(number) => Value::from(*number),
        AMQPValue::LongInt(number) => Value::from(*number),
        AMQPValue::LongUInt(number) => Value::from(*number),
        AMQPValue::LongLongInt(number) => Value::from(*number),
        AMQPValue::Float(number) => Value::from(*number),
        AMQPValue::Double(number) => Value::from(*number),
        AMQPValue::DecimalValue(decimal) => {
            Value::from(f64::from(decimal.value) / 10_f64.powi(i32::from(decimal.scale)))
        }
        AMQPValue::ShortString(text) => Value::from(text.as_str()),
        AMQPValue::LongString(text) => Value::from(String::from_utf8_lossy(text.as_bytes())),
        AMQPValue::ByteArray(bytes) => Value::from(String::from_utf8_lossy(bytes.as_slice())),
        AMQPValue::Timestamp(seconds) => {
            let time = i64::try_from(*seconds).ok().and_then(|seconds| DateTime::from_timestamp(seconds, 0));
            time.map_or_else(
                || Value::from(*seconds),
                |time| Value::from(time.to_rfc3339_opts(SecondsFormat::Millis, true)),
            )
        }
        AMQPValue::Void => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use lapin::BasicProperties;
    use serde_json::json;

    use super::*;

    fn message(headers: FieldTable) -> Delivery {
        let payload = b"{\"n\":1}".to_vec();
        let mut message = Delivery::mock(7, "events".into(), "app.web".into(), true, payload);
        message.properties = BasicProperties::default()
            .with_headers(headers)
            .with_content_type("application/json".into())
            .with_priority(3)
            .with_timestamp(1_700_000_000);
        message
    }

    #[test]
    fn headers_and_properties_have_the_names_of_logstash() {
        let mut headers = FieldTable::default();
        headers.insert("tenant".into(), AMQPValue::LongString("one".into()));
        headers.insert("sent".into(), AMQPValue::Timestamp(1_700_000_000));
        let message = message(headers);
        let metadata = |level: MetadataLevel| {
            let mut event = Event::new(DateTime::UNIX_EPOCH);
            MessageMetadata::new(level, &message, "consumer").set(&mut event);
            let field = FieldReference::parse(&format!("[{METADATA}]")).unwrap();
            event.get(&field).map(|value| serde_json::to_value(value).unwrap())
        };
        assert_eq!(
            metadata(MetadataLevel::None).and_then(|value| value.get("rabbitmq_headers").cloned()),
            None
        );
        let basic = metadata(MetadataLevel::Basic).unwrap();
        assert_eq!(basic["rabbitmq_headers"], json!({"tenant": "one", "sent": "2023-11-14T22:13:20.000Z"}));
        let expected = json!({
            "consumer-tag": "consumer", "content-type": "application/json", "exchange": "events", "priority": 3,
            "redeliver": true, "routing-key": "app.web", "timestamp": 1_700_000_000,
        });
        assert_eq!(basic["rabbitmq_properties"], expected);
        assert_eq!(basic.get("rabbitmq_payload"), None);
        assert_eq!(metadata(MetadataLevel::Extended).unwrap()["rabbitmq_payload"], json!("{\"n\":1}"));
    }

    #[test]
    fn the_depth_of_headers_is_bounded() {
        let mut table = FieldTable::default();
        for _ in 0..1_000 {
            let mut outer = FieldTable::default();
            outer.insert("x".into(), AMQPValue::FieldTable(table));
            table = outer;
        }
        let text = headers(&message(table)).to_string();
        assert!(text.contains("nested more than 32 deep"), "{text}");
    }
}
