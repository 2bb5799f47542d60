//! Requests: their records, one at a time.
//!
//! A message of protobuf takes many times its bytes when it is decoded: two bytes are an empty attribute. So the levels above
//! the records are walked in place, and each record is decoded on its own.

use std::borrow::Cow;
use std::cell::OnceCell;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::converter::ContextTexts;
use crate::message::{InstrumentationScope, LogRecord, Resource, default_if_null};
use crate::wire::{self, Message, WireValue};

/// Longest record, resource or scope in bytes.
const MAX_RECORD_BYTES: usize = 4 << 20;
/// Bytes in memory of a level above the records in JSON, at most.
const JSON_LEVEL_BYTES: u64 = 256;
/// Bytes in memory of an element of an array above the records.
const JSON_ELEMENT_BYTES: u64 = 32;

/// Encoding of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// `application/x-protobuf`.
    Protobuf,
    /// `application/json`.
    Json,
}

impl Encoding {
    /// Returns the encoding of a media type; parameters do not count.
    pub fn of_media_type(media_type: &str) -> Option<Self> {
        let name = media_type.split(';').next().unwrap_or_default().trim();
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        match () {
            () if is("application/x-protobuf") || is("application/protobuf") => Some(Self::Protobuf),
            () if is("application/json") => Some(Self::Json),
            () => None,
        }
    }

    /// Returns the media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Protobuf => "application/x-protobuf",
            Self::Json => "application/json",
        }
    }
}

/// A request that cannot be read; nothing of it is of use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request is no ExportLogsServiceRequest: {0}")]
pub struct RequestError(String);

impl RequestError {
    fn new(reason: impl ToString) -> Self {
        Self(reason.to_string())
    }
}

/// Resource and scope of a record.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordContext<'a> {
    /// The resource.
    pub resource: Resource<'a>,
    /// Schema of the resource.
    pub resource_schema_url: Cow<'a, str>,
    /// The scope.
    pub scope: InstrumentationScope<'a>,
    /// Schema of the scope.
    pub scope_schema_url: Cow<'a, str>,
    /// Texts that the converter of these records makes of it, once for all of them.
    pub(crate) texts: OnceCell<ContextTexts>,
}

/// Bytes that reading a request takes beside its records, at most.
pub fn reading_cost(encoding: Encoding, body: &[u8]) -> u64 {
    match encoding {
        Encoding::Protobuf => 0,
        Encoding::Json => body
            .iter()
            .map(|byte| match byte {
                b'{' => JSON_LEVEL_BYTES,
                b',' | b'[' => JSON_ELEMENT_BYTES,
                _ => 0,
            })
            .sum(),
    }
}

/// Hands on each record of a request with what stands above it, or why the record cannot be read. The caller ends the reading
/// with an error of its own.
///
/// # Errors
/// The caller's, or that of a request that cannot be read; records before may have been handed on.
pub fn read<E: From<RequestError>>(
    encoding: Encoding,
    body: &[u8],
    mut each: impl FnMut(&RecordContext<'_>, Result<LogRecord<'_>, String>) -> Result<(), E>,
) -> Result<(), E> {
    match encoding {
        Encoding::Protobuf => read_protobuf(body, &mut each),
        Encoding::Json => read_json(body, &mut each),
    }
}

/// Takes the next field with a length off; others are skipped.
fn next_message<'a>(rest: &mut &'a [u8]) -> Result<Option<(u32, &'a [u8])>, RequestError> {
    while let Some((tag, value)) = wire::next_field(rest).map_err(RequestError::new)? {
        if let WireValue::Bytes(content) = value {
            return Ok(Some((tag, content)));
        }
    }
    Ok(None)
}

/// Decodes a message of bounded length.
fn decode<'a, M: Message<'a>>(bytes: &'a [u8]) -> Result<M, String> {
    if bytes.len() > MAX_RECORD_BYTES {
        return Err(format!("a message of [{}] bytes exceeds the bound [{MAX_RECORD_BYTES}]", bytes.len()));
    }
    wire::decode(bytes).map_err(|error| error.to_string())
}

/// Fields of `ResourceLogs` and `ScopeLogs`, which are alike.
const ABOVE: u32 = 1;
const BELOW: u32 = 2;
const SCHEMA_URL: u32 = 3;

fn read_protobuf<E: From<RequestError>>(
    body: &[u8],
    each: &mut impl FnMut(&RecordContext<'_>, Result<LogRecord<'_>, String>) -> Result<(), E>,
) -> Result<(), E> {
    let mut request = body;
    while let Some((tag, resource_logs)) = next_message(&mut request)? {
        if tag != 1 {
            continue;
        }
        let mut context = RecordContext::default();
        // What stands above comes first mostly, but need not.
        let mut fields = resource_logs;
        while let Some((tag, content)) = next_message(&mut fields)? {
            match tag {
                ABOVE => context.resource = decode(content).map_err(RequestError)?,
                SCHEMA_URL => context.resource_schema_url = String::from_utf8_lossy(content),
                _ => {}
            }
        }
        let mut fields = resource_logs;
        while let Some((tag, scope_logs)) = next_message(&mut fields)? {
            if tag == BELOW {
                read_scope(scope_logs, &mut context, each)?;
            }
        }
    }
    Ok(())
}

fn read_scope<'a, E: From<RequestError>>(
    scope_logs: &'a [u8],
    context: &mut RecordContext<'a>,
    each: &mut impl FnMut(&RecordContext<'_>, Result<LogRecord<'_>, String>) -> Result<(), E>,
) -> Result<(), E> {
    (context.scope, context.scope_schema_url, context.texts) = Default::default();
    let mut fields = scope_logs;
    while let Some((tag, content)) = next_message(&mut fields)? {
        match tag {
            ABOVE => context.scope = decode(content).map_err(RequestError)?,
            SCHEMA_URL => context.scope_schema_url = String::from_utf8_lossy(content),
            _ => {}
        }
    }
    let mut fields = scope_logs;
    while let Some((tag, content)) = next_message(&mut fields)? {
        if tag == BELOW {
            each(context, decode(content))?;
        }
    }
    Ok(())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct JsonRequest<'a> {
    #[serde(borrow, default, deserialize_with = "default_if_null")]
    resource_logs: Vec<JsonResourceLogs<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct JsonResourceLogs<'a> {
    #[serde(borrow, default)]
    resource: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "default_if_null")]
    scope_logs: Vec<JsonScopeLogs<'a>>,
    #[serde(borrow, default)]
    schema_url: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct JsonScopeLogs<'a> {
    #[serde(borrow, default)]
    scope: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "default_if_null")]
    log_records: Vec<&'a RawValue>,
    #[serde(borrow, default)]
    schema_url: Option<Cow<'a, str>>,
}

/// Reads a value of bounded length; one that is not there is the default.
fn from_json<T: Default + for<'de> Deserialize<'de>>(value: Option<&RawValue>) -> Result<T, String> {
    let Some(text) = value.map(RawValue::get) else { return Ok(T::default()) };
    if text.len() > MAX_RECORD_BYTES {
        return Err(format!("a message of [{}] bytes exceeds the bound [{MAX_RECORD_BYTES}]", text.len()));
    }
    let read: Option<T> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    Ok(read.unwrap_or_default())
}

fn read_json<E: From<RequestError>>(
    body: &[u8],
    each: &mut impl FnMut(&RecordContext<'_>, Result<LogRecord<'_>, String>) -> Result<(), E>,
) -> Result<(), E> {
    // Derived readers take an array for an object.
    if body.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        return Err(RequestError::new("it is no JSON object").into());
    }
    let request: JsonRequest<'_> = serde_json::from_slice(body).map_err(RequestError::new)?;
    for JsonResourceLogs { resource, scope_logs, schema_url } in request.resource_logs {
        let mut context = RecordContext {
            resource: from_json(resource).map_err(RequestError)?,
            resource_schema_url: schema_url.unwrap_or_default(),
            ..RecordContext::default()
        };
        for JsonScopeLogs { scope, log_records, schema_url } in scope_logs {
            context.scope = from_json(scope).map_err(RequestError)?;
            context.scope_schema_url = schema_url.unwrap_or_default();
            context.texts = OnceCell::new();
            for record in log_records {
                each(&context, from_json(Some(record)))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
