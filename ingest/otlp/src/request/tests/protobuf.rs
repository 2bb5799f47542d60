//! Messages as the crate `prost` derives them, to encode requests with.

use prost::Message;

use crate::message;

#[derive(Clone, PartialEq, Message)]
pub(super) struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct AnyValue {
    #[prost(oneof = "ValueKind", tags = "1, 2, 3, 4, 5, 6, 7")]
    value: Option<ValueKind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum ValueKind {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Bool(bool),
    #[prost(int64, tag = "3")]
    Int(i64),
    #[prost(double, tag = "4")]
    Double(f64),
    #[prost(message, tag = "5")]
    Array(ArrayValue),
    #[prost(message, tag = "6")]
    Map(KeyValueList),
    #[prost(bytes, tag = "7")]
    Bytes(Vec<u8>),
}

#[derive(Clone, PartialEq, Message)]
struct ArrayValue {
    #[prost(message, repeated, tag = "1")]
    values: Vec<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValueList {
    #[prost(message, repeated, tag = "1")]
    values: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
    #[prost(uint32, tag = "2")]
    dropped_attributes_count: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct InstrumentationScope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
    #[prost(message, repeated, tag = "3")]
    attributes: Vec<KeyValue>,
    #[prost(uint32, tag = "4")]
    dropped_attributes_count: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LogRecord {
    #[prost(fixed64, tag = "1")]
    time_unix_nano: u64,
    #[prost(int32, tag = "2")]
    severity_number: i32,
    #[prost(string, tag = "3")]
    severity_text: String,
    #[prost(message, optional, tag = "5")]
    body: Option<AnyValue>,
    #[prost(message, repeated, tag = "6")]
    attributes: Vec<KeyValue>,
    #[prost(uint32, tag = "7")]
    dropped_attributes_count: u32,
    #[prost(fixed32, tag = "8")]
    flags: u32,
    #[prost(bytes = "vec", tag = "9")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "10")]
    span_id: Vec<u8>,
    #[prost(fixed64, tag = "11")]
    observed_time_unix_nano: u64,
    #[prost(string, tag = "12")]
    event_name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ScopeLogs {
    #[prost(message, optional, tag = "1")]
    pub scope: Option<InstrumentationScope>,
    #[prost(message, repeated, tag = "2")]
    pub log_records: Vec<LogRecord>,
    #[prost(string, tag = "3")]
    pub schema_url: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ResourceLogs {
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub scope_logs: Vec<ScopeLogs>,
    #[prost(string, tag = "3")]
    pub schema_url: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LogsRequest {
    #[prost(message, repeated, tag = "1")]
    pub resource_logs: Vec<ResourceLogs>,
}

impl From<&message::AnyValue<'_>> for AnyValue {
    fn from(value: &message::AnyValue<'_>) -> Self {
        let value = match value {
            message::AnyValue::Empty => None,
            message::AnyValue::Text(text) => Some(ValueKind::Text(text.to_string())),
            message::AnyValue::Bool(value) => Some(ValueKind::Bool(*value)),
            message::AnyValue::Int(number) => Some(ValueKind::Int(*number)),
            message::AnyValue::Double(number) => Some(ValueKind::Double(*number)),
            message::AnyValue::Array(values) => {
                Some(ValueKind::Array(ArrayValue { values: values.iter().map(Into::into).collect() }))
            }
            message::AnyValue::Map(members) => Some(ValueKind::Map(KeyValueList { values: all(members) })),
            message::AnyValue::Bytes(bytes) => Some(ValueKind::Bytes(bytes.to_vec())),
        };
        Self { value }
    }
}

fn all(attributes: &[message::KeyValue<'_>]) -> Vec<KeyValue> {
    let one = |attribute: &message::KeyValue<'_>| KeyValue {
        key: attribute.key.to_string(),
        value: Some((&attribute.value).into()),
    };
    attributes.iter().map(one).collect()
}

impl From<&message::Resource<'_>> for Resource {
    fn from(resource: &message::Resource<'_>) -> Self {
        Self {
            attributes: all(&resource.attributes),
            dropped_attributes_count: resource.dropped_attributes_count,
        }
    }
}

impl From<&message::InstrumentationScope<'_>> for InstrumentationScope {
    fn from(scope: &message::InstrumentationScope<'_>) -> Self {
        Self {
            name: scope.name.to_string(),
            version: scope.version.to_string(),
            attributes: all(&scope.attributes),
            dropped_attributes_count: scope.dropped_attributes_count,
        }
    }
}

impl From<&message::LogRecord<'_>> for LogRecord {
    fn from(record: &message::LogRecord<'_>) -> Self {
        Self {
            time_unix_nano: record.time_unix_nano,
            severity_number: record.severity_number,
            severity_text: record.severity_text.to_string(),
            body: Some((&record.body).into()),
            attributes: all(&record.attributes),
            dropped_attributes_count: record.dropped_attributes_count,
            flags: record.flags,
            trace_id: record.trace_id.to_vec(),
            span_id: record.span_id.to_vec(),
            observed_time_unix_nano: record.observed_time_unix_nano,
            event_name: record.event_name.to_string(),
        }
    }
}
