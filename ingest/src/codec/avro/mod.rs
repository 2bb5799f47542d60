//! `avro`: a value of Avro in each piece, by a schema that is written in the pipeline, in a file, on a server, or in a registry.
//!
//! [`schema`] reads schemas, [`datum`] values. Schemas of servers are fetched when they are needed first, and kept.

mod datum;
mod schema;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::Utc;
use millrace_runtime::Instant;
use parking_lot::Mutex;
use serde_json::Value;

use super::plain::undecoded;
use super::{Codec, Decoder, Events, OriginalText};
use crate::event::TIMESTAMP;
use crate::http_client::{HttpAnswer, HttpClient, HttpRequest};
use crate::refresh::read_text;
use crate::{Event, Fault, FieldReference, Options};
use schema::{MAX_SCHEMA_BYTES, Schema};

/// Tag of bytes that are no value of the schema.
const FAILURE: &str = "_avroparsefailure";
/// First byte of a value whose schema is in a registry.
const REGISTRY_MAGIC: u8 = 0;
/// Schemas of a registry that are kept.
const MAX_SCHEMAS: usize = 1_000;
/// Time that a value waits for the fetch of another schema.
const FETCH_WAIT: Duration = Duration::from_secs(5);
/// Time for which a schema that cannot be fetched is not fetched again.
const FAILURE_PAUSE: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
struct Avro {
    reader: Arc<AvroReader>,
}

#[derive(Debug)]
struct AvroReader {
    source: SchemaSource,
    is_base64: bool,
    target: Option<FieldReference>,
    original: OriginalText,
}

#[derive(Debug)]
enum SchemaSource {
    Given(Arc<Schema>),
    Server(Box<SchemaServer>),
}

/// A server with one schema, or a registry with schemas by their numbers.
#[derive(Debug)]
struct SchemaServer {
    address: String,
    is_registry: bool,
    client: HttpClient,
    schemas: Mutex<HashMap<u32, FetchedSchema>>,
    /// Held during a fetch: reason and time of the last one that did not reach the server.
    outage: Mutex<Option<(String, Instant)>>,
}

/// A schema of a server, or the reason why there is none, with its time.
#[derive(Clone, Debug)]
enum FetchedSchema {
    Present(Arc<Schema>),
    Failed(String, Instant),
}

pub(super) fn build(mut options: Options) -> Result<Arc<dyn Codec>, Vec<Fault>> {
    let original = OriginalText::take(&mut options);
    let given = [
        ("schema", options.text("schema")),
        ("schema_uri", options.text("schema_uri")),
        ("schema_registry_url", options.text("schema_registry_url")),
    ];
    let is_base64 = options.one_of("encoding", &["base64", "binary"]) != Some("binary");
    // Bytes that cannot be read are never left out.
    let _ = options.boolean("tag_on_failure");
    let target = options.field("target");
    let client = HttpClient::take(&mut options);
    let mut given = given.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let source = match (given.next(), given.next()) {
        (Some((name, value)), None) => source(name, value, client),
        _ => {
            Err("[avro] needs one of the options [schema], [schema_uri] and [schema_registry_url]".to_owned())
        }
    };
    let source = source.map_err(|problem| options.fault_here(problem));
    options.finish()?;
    let Ok(source) = source else { return Err(Vec::new()) };
    Ok(Arc::new(Avro { reader: Arc::new(AvroReader { source, is_base64, target, original }) }))
}

fn source(name: &str, value: String, client: HttpClient) -> Result<SchemaSource, String> {
    let is_registry = name == "schema_registry_url";
    let is_address = value.starts_with("http://") || value.starts_with("https://");
    if is_registry && !is_address {
        return Err(format!("option [{name}] of [avro] is no address such as http://host:8081"));
    }
    if is_address {
        let address = value.trim_end_matches('/').to_owned();
        let server = SchemaServer {
            address,
            is_registry,
            client,
            schemas: Mutex::default(),
            outage: Mutex::default(),
        };
        return Ok(SchemaSource::Server(Box::new(server)));
    }
    let text =
        if name == "schema_uri" { read_file(Path::new(value.trim_start_matches("file://")))? } else { value };
    let schema = Schema::parse(&text).map_err(|problem| format!("option [{name}] of [avro]: {problem}"))?;
    Ok(SchemaSource::Given(Arc::new(schema)))
}

fn read_file(path: &Path) -> Result<String, String> {
    read_text(path, MAX_SCHEMA_BYTES as u64)
        .map_err(|reason| format!("option [schema_uri] of [avro]: {reason}"))
}

impl SchemaSource {
    /// Returns the schema of a number; all have number 0 but those of a registry.
    fn schema(&self, number: u32) -> Result<Arc<Schema>, String> {
        let server = match self {
            Self::Given(schema) => return Ok(Arc::clone(schema)),
            Self::Server(server) => server,
        };
        if let Some(schema) = server.fetched(number) {
            return schema;
        }
        // Others that need the schema wait for the one that fetches it.
        let Some(mut outage) = server.outage.try_lock_for(FETCH_WAIT) else {
            return Err("the server does not answer another request".to_owned());
        };
        if let Some(schema) = server.fetched(number) {
            return schema;
        }
        if let Some((reason, at)) = &*outage
            && at.elapsed() < FAILURE_PAUSE
        {
            return Err(reason.clone());
        }
        let answer = server.send(number);
        *outage = answer.as_ref().err().map(|reason| (reason.clone(), Instant::now()));
        let text = answer.and_then(|answer| server.schema_text(&answer));
        let fetched = text.and_then(|text| Schema::parse(&text)).map(Arc::new);
        let mut schemas = server.schemas.lock();
        if schemas.len() >= MAX_SCHEMAS {
            schemas.retain(|_, schema| matches!(schema, FetchedSchema::Present(_)));
            if schemas.len() >= MAX_SCHEMAS {
                schemas.clear();
            }
        }
        let kept = match &fetched {
            Ok(schema) => FetchedSchema::Present(Arc::clone(schema)),
            Err(reason) => {
                tracing::warn!(reason, schema = number, "the codec avro cannot fetch a schema");
                FetchedSchema::Failed(reason.clone(), Instant::now())
            }
        };
        schemas.insert(number, kept);
        fetched
    }

    fn is_registry(&self) -> bool {
        matches!(self, Self::Server(server) if server.is_registry)
    }
}

impl SchemaServer {
    /// Returns a schema that was fetched, or the reason why it could not be a short time ago.
    fn fetched(&self, number: u32) -> Option<Result<Arc<Schema>, String>> {
        match self.schemas.lock().get(&number)? {
            FetchedSchema::Present(schema) => Some(Ok(Arc::clone(schema))),
            FetchedSchema::Failed(reason, at) => (at.elapsed() < FAILURE_PAUSE).then(|| Err(reason.clone())),
        }
    }

    /// Asks for a schema on a thread of its own, for decoders run outside of a runtime.
    fn send(&self, number: u32) -> Result<HttpAnswer, String> {
        let address = &self.address;
        let url = if self.is_registry { format!("{address}/schemas/ids/{number}") } else { address.clone() };
        let request = HttpRequest { method: "GET".to_owned(), url, ..HttpRequest::default() };
        std::thread::scope(|scope| {
            let run = || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.map_err(|error| error.to_string())?.block_on(self.client.send(request))
            };
            scope.spawn(run).join().unwrap_or_else(|_| Err("the request panicked".to_owned()))
        })
    }

    fn schema_text(&self, answer: &HttpAnswer) -> Result<String, String> {
        if answer.status != 200 {
            return Err(format!("the server answers {}", answer.status));
        }
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        if !self.is_registry {
            return Ok(text);
        }
        let json: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let schema = json.get("schema").and_then(Value::as_str).map(str::to_owned);
        schema.ok_or_else(|| "the registry's answer has no schema".to_owned())
    }
}

impl AvroReader {
    fn read(&self, bytes: &[u8], events: &mut Events) {
        let decoded = self.is_base64.then(|| STANDARD.decode(bytes.trim_ascii()).ok()).flatten();
        let event = match self.event(decoded.as_deref().unwrap_or(bytes)) {
            Ok(mut event) => {
                // Bytes that are no text cannot be kept.
                if let Ok(text) = std::str::from_utf8(bytes) {
                    self.original.keep(&mut event, text);
                }
                event
            }
            Err(reason) => {
                tracing::debug!(reason, "the codec avro did not read a value");
                undecoded(bytes, FAILURE)
            }
        };
        events.push(event);
    }

    fn event(&self, bytes: &[u8]) -> Result<Event, String> {
        let (number, bytes) = match bytes {
            [REGISTRY_MAGIC, a, b, c, d, rest @ ..] if self.source.is_registry() => {
                (u32::from_be_bytes([*a, *b, *c, *d]), rest)
            }
            _ if self.source.is_registry() => {
                return Err("the value names no schema of the registry".to_owned());
            }
            bytes => (0, bytes),
        };
        let schema = self.source.schema(number)?;
        let (value, _) = datum::read(&schema, bytes).map_err(|error| error.to_string())?;
        match (value, &self.target) {
            (Value::Object(fields), None) => Ok(Event::from_fields(fields, Utc::now())),
            (value, Some(target)) => {
                let mut event = Event::new(Utc::now());
                event.set(target, value)?;
                Ok(event)
            }
            (_, None) => Err("the value is no record, and there is no target".to_owned()),
        }
    }
}

impl Codec for Avro {
    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(self.clone())
    }

    /// Writes an event by the schema. One that does not fit is left out, which the log reports.
    fn encode(&self, event: &Event, out: &mut Vec<u8>) {
        if let Err(reason) = self.try_encode(event, out) {
            tracing::error!(reason, "the codec avro does not write an event");
        }
    }

    fn needs_preparation(&self) -> bool {
        match &self.reader.source {
            SchemaSource::Given(_) => false,
            SchemaSource::Server(server) => {
                !server.is_registry
                    && !matches!(server.schemas.lock().get(&0), Some(FetchedSchema::Present(_)))
            }
        }
    }

    /// Fetches the schema of a server.
    fn prepare(&self) -> Result<(), String> {
        match &self.reader.source {
            source if source.is_registry() => Ok(()),
            source => source.schema(0).map(drop),
        }
    }

    /// Writes an event by the schema; a registry has no schema to write by.
    fn try_encode(&self, event: &Event, out: &mut Vec<u8>) -> Result<(), String> {
        let mut fields = event.fields().clone();
        fields.entry(TIMESTAMP).or_insert_with(|| Value::String(event.timestamp_text()));
        let mut bytes = Vec::new();
        if self.reader.source.is_registry() {
            return Err("[schema_registry_url] of [avro] is for reading only".to_owned());
        }
        let schema = self.reader.source.schema(0)?;
        datum::write(&schema, &Value::Object(fields), &mut bytes).map_err(|error| error.to_string())?;
        if self.reader.is_base64 {
            out.extend_from_slice(STANDARD.encode(&bytes).as_bytes());
        } else {
            out.extend_from_slice(&bytes);
        }
        Ok(())
    }
}

impl Decoder for Avro {
    fn decode(&mut self, bytes: &[u8], events: &mut Events) {
        self.reader.read(bytes, events);
    }

    fn finish(&mut self, _events: &mut Events) {}
}

#[cfg(test)]
mod tests;
