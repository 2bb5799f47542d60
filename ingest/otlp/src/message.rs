//! Messages of OTLP's protocol, from `opentelemetry/proto/{common,resource,logs}/v1`, in protobuf and in JSON.
//!
//! The crate `opentelemetry-proto` has them as well, with the whole SDK behind it. It reads requests as a whole, which takes many
//! times their bytes, and copies each text. Here texts of protobuf are those of the request.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use serde::de::{Error as _, IgnoredAny};
use serde::{Deserialize, Deserializer};

use crate::wire::{Level, Message, WireError, WireValue};

/// A name with a value.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct KeyValue<'a> {
    /// The name.
    #[serde(deserialize_with = "default_if_null")]
    pub key: Cow<'a, str>,
    /// The value.
    #[serde(deserialize_with = "default_if_null")]
    pub value: AnyValue<'a>,
}

/// A value of any type.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(try_from = "JsonValue")]
pub enum AnyValue<'a> {
    /// None.
    #[default]
    Empty,
    /// Text.
    Text(Cow<'a, str>),
    /// Boolean.
    Bool(bool),
    /// Whole number.
    Int(i64),
    /// Number.
    Double(f64),
    /// Array.
    Array(Vec<AnyValue<'a>>),
    /// Map.
    Map(Vec<KeyValue<'a>>),
    /// Bytes.
    Bytes(Cow<'a, [u8]>),
}

/// Producer of records, such as a service on a host.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Resource<'a> {
    /// Its attributes.
    #[serde(deserialize_with = "default_if_null")]
    pub attributes: Vec<KeyValue<'a>>,
    /// Number of attributes that were dropped.
    #[serde(deserialize_with = "default_if_null")]
    pub dropped_attributes_count: u32,
}

/// The library that wrote records.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct InstrumentationScope<'a> {
    /// Its name.
    #[serde(deserialize_with = "default_if_null")]
    pub name: Cow<'a, str>,
    /// Its version.
    #[serde(deserialize_with = "default_if_null")]
    pub version: Cow<'a, str>,
    /// Its attributes.
    #[serde(deserialize_with = "default_if_null")]
    pub attributes: Vec<KeyValue<'a>>,
    /// Number of attributes that were dropped.
    #[serde(deserialize_with = "default_if_null")]
    pub dropped_attributes_count: u32,
}

/// A record.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LogRecord<'a> {
    /// Time of the event, in nanoseconds since 1970; 0 where it is unknown.
    #[serde(deserialize_with = "unsigned")]
    pub time_unix_nano: u64,
    /// Severity by number, 1 to 24; 0 where it is unknown.
    #[serde(deserialize_with = "default_if_null")]
    pub severity_number: i32,
    /// Severity as its source writes it.
    #[serde(deserialize_with = "default_if_null")]
    pub severity_text: Cow<'a, str>,
    /// Body: the message, or a structure.
    #[serde(deserialize_with = "default_if_null")]
    pub body: AnyValue<'a>,
    /// Its attributes.
    #[serde(deserialize_with = "default_if_null")]
    pub attributes: Vec<KeyValue<'a>>,
    /// Number of attributes that were dropped.
    #[serde(deserialize_with = "default_if_null")]
    pub dropped_attributes_count: u32,
    /// Flags of the trace in the lowest byte.
    #[serde(deserialize_with = "default_if_null")]
    pub flags: u32,
    /// Id of the trace, 16 bytes or none.
    #[serde(deserialize_with = "hexadecimal")]
    pub trace_id: Cow<'a, [u8]>,
    /// Id of the span, 8 bytes or none.
    #[serde(deserialize_with = "hexadecimal")]
    pub span_id: Cow<'a, [u8]>,
    /// Time at which the event was seen, in nanoseconds since 1970.
    #[serde(deserialize_with = "unsigned")]
    pub observed_time_unix_nano: u64,
    /// Name of the kind of event.
    #[serde(deserialize_with = "default_if_null")]
    pub event_name: Cow<'a, str>,
}

// Tags and types are those of the .proto files.

impl<'a> Message<'a> for KeyValue<'a> {
    #[inline(always)]
    fn take(&mut self, tag: u32, value: WireValue<'a>, level: Level<'_>) -> Result<(), WireError> {
        match tag {
            1 => self.key = value.text()?,
            2 => value.merge_into(&mut self.value, level)?,
            _ => {}
        }
        Ok(())
    }
}

impl<'a> Message<'a> for AnyValue<'a> {
    #[inline(always)]
    fn take(&mut self, tag: u32, value: WireValue<'a>, level: Level<'_>) -> Result<(), WireError> {
        *self = match tag {
            1 => Self::Text(value.text()?),
            2 => Self::Bool(value.varint()? != 0),
            3 => Self::Int(value.varint()?.cast_signed()),
            4 => Self::Double(f64::from_bits(value.fixed64()?)),
            5 => Self::Array(Values::read(value, level)?),
            6 => Self::Map(Values::read(value, level)?),
            7 => Self::Bytes(Cow::Borrowed(value.bytes()?)),
            _ => return Ok(()),
        };
        Ok(())
    }
}

/// Elements of an array, or members of a map.
#[derive(Deserialize)]
#[serde(default, bound(deserialize = "T: Deserialize<'de>"))]
struct Values<T> {
    #[serde(deserialize_with = "default_if_null")]
    values: Vec<T>,
}

impl<T> Default for Values<T> {
    fn default() -> Self {
        Self { values: Vec::new() }
    }
}

impl<'a, T: Message<'a>> Values<T> {
    fn read(value: WireValue<'a>, level: Level<'_>) -> Result<Vec<T>, WireError> {
        let mut read = Self::default();
        value.merge_into(&mut read, level)?;
        Ok(read.values)
    }
}

impl<'a, T: Message<'a>> Message<'a> for Values<T> {
    #[inline(always)]
    fn take(&mut self, tag: u32, value: WireValue<'a>, level: Level<'_>) -> Result<(), WireError> {
        if tag == 1 {
            value.push_to(&mut self.values, level)?;
        }
        Ok(())
    }
}

impl<'a> Message<'a> for Resource<'a> {
    #[inline(always)]
    fn take(&mut self, tag: u32, value: WireValue<'a>, level: Level<'_>) -> Result<(), WireError> {
        match tag {
            1 => value.push_to(&mut self.attributes, level)?,
            2 => self.dropped_attributes_count = value.varint()? as u32,
            _ => {}
        }
        Ok(())
    }
}

impl<'a> Message<'a> for InstrumentationScope<'a> {
    #[inline(always)]
    fn take(&mut self, tag: u32, value: WireValue<'a>, level: Level<'_>) -> Result<(), WireError> {
        match tag {
            1 => self.name = value.text()?,
            2 => self.version = value.text()?,
            3 => value.push_to(&mut self.attributes, level)?,
            4 => self.dropped_attributes_count = value.varint()? as u32,
            _ => {}
        }
        Ok(())
    }
}

impl<'a> Message<'a> for LogRecord<'a> {
    #[inline(always)]
    fn take(&mut self, tag: u32, value: WireValue<'a>, level: Level<'_>) -> Result<(), WireError> {
        match tag {
            1 => self.time_unix_nano = value.fixed64()?,
            2 => self.severity_number = value.varint()? as i32,
            3 => self.severity_text = value.text()?,
            5 => value.merge_into(&mut self.body, level)?,
            6 => value.push_to(&mut self.attributes, level)?,
            7 => self.dropped_attributes_count = value.varint()? as u32,
            8 => self.flags = value.fixed32()?,
            9 => self.trace_id = Cow::Borrowed(value.bytes()?),
            10 => self.span_id = Cow::Borrowed(value.bytes()?),
            11 => self.observed_time_unix_nano = value.fixed64()?,
            12 => self.event_name = value.text()?,
            _ => {}
        }
        Ok(())
    }
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

fn hexadecimal<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Cow<'static, [u8]>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?.unwrap_or_default();
    let wrong = || D::Error::custom(format!("[{text}] is no hexadecimal id"));
    if text.len() % 2 != 0 || text.len() > 64 || !text.is_ascii() {
        return Err(wrong());
    }
    let pairs = text.as_bytes().chunks_exact(2).map(|pair| {
        let pair = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(pair, 16).ok()
    });
    pairs.collect::<Option<Vec<u8>>>().map(Cow::Owned).ok_or_else(wrong)
}

/// A value as JSON has it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct JsonValue {
    string_value: Option<String>,
    bool_value: Option<bool>,
    int_value: Option<Whole64<i64>>,
    double_value: Option<JsonDouble>,
    array_value: Option<Values<AnyValue<'static>>>,
    kvlist_value: Option<Values<KeyValue<'static>>>,
    bytes_value: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum JsonDouble {
    Number(f64),
    Text(String),
    Other(IgnoredAny),
}

impl TryFrom<JsonValue> for AnyValue<'_> {
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
        Ok(if let Some(text) = string_value {
            Self::Text(Cow::Owned(text))
        } else if let Some(value) = bool_value {
            Self::Bool(value)
        } else if let Some(number) = int_value {
            let number = number.read::<serde::de::value::Error>();
            Self::Int(number.map_err(|error| error.to_string())?)
        } else if let Some(number) = double_value {
            let number = match number {
                JsonDouble::Number(number) => Some(number),
                JsonDouble::Text(text) => text.parse().ok(),
                JsonDouble::Other(_) => None,
            };
            Self::Double(number.ok_or("doubleValue is no number")?)
        } else if let Some(array) = array_value {
            Self::Array(array.values)
        } else if let Some(map) = kvlist_value {
            Self::Map(map.values)
        } else if let Some(text) = bytes_value {
            let bytes = STANDARD.decode(&text).or_else(|_| URL_SAFE.decode(&text));
            Self::Bytes(Cow::Owned(bytes.map_err(|_| "bytesValue is no base64")?))
        } else {
            Self::Empty
        })
    }
}
