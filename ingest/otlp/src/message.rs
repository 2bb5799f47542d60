//! Messages of OTLP's protocol, from `opentelemetry/proto/{common,resource,logs}/v1`, in protobuf and in JSON.
//!
//! The crate `opentelemetry-proto` has them as well, with the whole SDK behind it; and it reads requests as a whole, which takes
//! many times their bytes.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use serde::de::{Error as _, IgnoredAny};
use serde::{Deserialize, Deserializer};

/// A name with a value.
#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default)]
pub struct KeyValue {
    /// The name.
    #[prost(string, tag = "1")]
    #[serde(deserialize_with = "default_if_null")]
    pub key: String,
    /// The value.
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
}

/// A value of any type.
#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(try_from = "JsonValue")]
pub struct AnyValue {
    /// The value; `None` for an empty one.
    #[prost(oneof = "ValueKind", tags = "1, 2, 3, 4, 5, 6, 7")]
    pub value: Option<ValueKind>,
}

/// The types of a value.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum ValueKind {
    /// Text.
    #[prost(string, tag = "1")]
    Text(String),
    /// Boolean.
    #[prost(bool, tag = "2")]
    Bool(bool),
    /// Whole number.
    #[prost(int64, tag = "3")]
    Int(i64),
    /// Number.
    #[prost(double, tag = "4")]
    Double(f64),
    /// Array.
    #[prost(message, tag = "5")]
    Array(ArrayValue),
    /// Map.
    #[prost(message, tag = "6")]
    Map(KeyValueList),
    /// Bytes.
    #[prost(bytes, tag = "7")]
    Bytes(Vec<u8>),
}

/// An array.
#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default)]
pub struct ArrayValue {
    /// The elements.
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "default_if_null")]
    pub values: Vec<AnyValue>,
}

/// A map.
#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default)]
pub struct KeyValueList {
    /// The members.
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "default_if_null")]
    pub values: Vec<KeyValue>,
}

/// Producer of records, such as a service on a host.
#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Resource {
    /// Its attributes.
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "default_if_null")]
    pub attributes: Vec<KeyValue>,
    /// Number of attributes that were dropped.
    #[prost(uint32, tag = "2")]
    #[serde(deserialize_with = "default_if_null")]
    pub dropped_attributes_count: u32,
}

/// The library that wrote records.
#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct InstrumentationScope {
    /// Its name.
    #[prost(string, tag = "1")]
    #[serde(deserialize_with = "default_if_null")]
    pub name: String,
    /// Its version.
    #[prost(string, tag = "2")]
    #[serde(deserialize_with = "default_if_null")]
    pub version: String,
    /// Its attributes.
    #[prost(message, repeated, tag = "3")]
    #[serde(deserialize_with = "default_if_null")]
    pub attributes: Vec<KeyValue>,
    /// Number of attributes that were dropped.
    #[prost(uint32, tag = "4")]
    #[serde(deserialize_with = "default_if_null")]
    pub dropped_attributes_count: u32,
}

/// A record.
#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LogRecord {
    /// Time of the event, in nanoseconds since 1970; 0 where it is unknown.
    #[prost(fixed64, tag = "1")]
    #[serde(deserialize_with = "unsigned")]
    pub time_unix_nano: u64,
    /// Severity by number, 1 to 24; 0 where it is unknown.
    #[prost(int32, tag = "2")]
    #[serde(deserialize_with = "default_if_null")]
    pub severity_number: i32,
    /// Severity as its source writes it.
    #[prost(string, tag = "3")]
    #[serde(deserialize_with = "default_if_null")]
    pub severity_text: String,
    /// Body: the message, or a structure.
    #[prost(message, optional, tag = "5")]
    pub body: Option<AnyValue>,
    /// Its attributes.
    #[prost(message, repeated, tag = "6")]
    #[serde(deserialize_with = "default_if_null")]
    pub attributes: Vec<KeyValue>,
    /// Number of attributes that were dropped.
    #[prost(uint32, tag = "7")]
    #[serde(deserialize_with = "default_if_null")]
    pub dropped_attributes_count: u32,
    /// Flags of the trace in the lowest byte.
    #[prost(fixed32, tag = "8")]
    #[serde(deserialize_with = "default_if_null")]
    pub flags: u32,
    /// Id of the trace, 16 bytes or none.
    #[prost(bytes = "vec", tag = "9")]
    #[serde(deserialize_with = "hexadecimal")]
    pub trace_id: Vec<u8>,
    /// Id of the span, 8 bytes or none.
    #[prost(bytes = "vec", tag = "10")]
    #[serde(deserialize_with = "hexadecimal")]
    pub span_id: Vec<u8>,
    /// Time at which the event was seen, in nanoseconds since 1970.
    #[prost(fixed64, tag = "11")]
    #[serde(deserialize_with = "unsigned")]
    pub observed_time_unix_nano: u64,
    /// Name of the kind of event.
    #[prost(string, tag = "12")]
    #[serde(deserialize_with = "default_if_null")]
    pub event_name: String,
}

/// Reads a member for which `null` stands for its default.
pub(crate) fn default_if_null<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: Default + Deserialize<'de>,
    D: Deserializer<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// A whole number, which JSON of protobuf writes as text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Whole64<T> {
    Number(T),
    Text(String),
}

impl<T: std::str::FromStr> Whole64<T> {
    fn read<E: serde::de::Error>(self) -> Result<T, E> {
        match self {
            Self::Number(number) => Ok(number),
            Self::Text(text) => text.parse().map_err(|_| E::custom(format!("[{text}] is no whole number"))),
        }
    }
}

fn unsigned<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    Option::<Whole64<u64>>::deserialize(deserializer)?.map_or(Ok(0), Whole64::read)
}

fn hexadecimal<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?.unwrap_or_default();
    let wrong = || D::Error::custom(format!("[{text}] is no hexadecimal id"));
    if text.len() % 2 != 0 || text.len() > 64 || !text.is_ascii() {
        return Err(wrong());
    }
    let pairs = text.as_bytes().chunks_exact(2).map(|pair| {
        let pair = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(pair, 16).ok()
    });
    pairs.collect::<Option<_>>().ok_or_else(wrong)
}

/// A value as JSON has it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct JsonValue {
    string_value: Option<String>,
    bool_value: Option<bool>,
    int_value: Option<Whole64<i64>>,
    double_value: Option<JsonDouble>,
    array_value: Option<ArrayValue>,
    kvlist_value: Option<KeyValueList>,
    bytes_value: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum JsonDouble {
    Number(f64),
    Text(String),
    Other(IgnoredAny),
}

impl TryFrom<JsonValue> for AnyValue {
    type Error = String;

    fn try_from(json: JsonValue) -> Result<Self, String> {
        let JsonValue {
            string_value,
            bool_value,
            int_value,
            double_value,
            array_value,
            kvlist_value,
            bytes_value,
        } = json;
        let value = if let Some(text) = string_value {
            Some(ValueKind::Text(text))
        } else if let Some(value) = bool_value {
            Some(ValueKind::Bool(value))
        } else if let Some(number) = int_value {
            let number = number.read::<serde::de::value::Error>();
            Some(ValueKind::Int(number.map_err(|error| error.to_string())?))
        } else if let Some(number) = double_value {
            let number = match number {
                JsonDouble::Number(number) => Some(number),
                JsonDouble::Text(text) => text.parse().ok(),
                JsonDouble::Other(_) => None,
            };
            Some(ValueKind::Double(number.ok_or("doubleValue is no number")?))
        } else if let Some(array) = array_value {
            Some(ValueKind::Array(array))
        } else if let Some(map) = kvlist_value {
            Some(ValueKind::Map(map))
        } else if let Some(text) = bytes_value {
            let bytes = STANDARD.decode(&text).or_else(|_| URL_SAFE.decode(&text));
            Some(ValueKind::Bytes(bytes.map_err(|_| "bytesValue is no base64")?))
        } else {
            None
        };
        Ok(Self { value })
    }
}
